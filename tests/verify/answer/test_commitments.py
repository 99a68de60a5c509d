"""What commits a response to an answer, and what only looks as if it did."""

from __future__ import annotations

import re

import pytest

from rlbhpc.verify import verify
from rlbhpc.verify.answer.statements import OPENINGS, STATEMENTS, TURN_ENDS, Pattern
from rlbhpc.verify.verdict import Status

HEADINGS = (
    "Solution:", "Answer:", "**Solution:**", "## Final Answer", "**Final Answer**",
    "The answer is:", "答案：",
)  # fmt: skip
# The beginning of a solution of Qwen2.5-Math, as it lists its steps.
STEPS = (
    "1. First, we multiply the approximated values together: $10 \\cdot 6 \\cdot 7$.\n"
    "2. Next, we multiply the result by $7$."
)


@pytest.mark.parametrize("heading", HEADINGS)
def test_the_number_of_a_step_is_no_answer(heading: str) -> None:
    for gap in ("\n\n", "\n", " "):
        for steps in (STEPS, STEPS[:40]):
            if gap == " " and steps != STEPS:
                continue  # "Answer: 1. It is …" may state an answer and explain it
            verdict = verify("math", "1", heading + gap + steps)
            assert verdict.strict is not Status.RIGHT, repr(gap + steps)
    if "Solution" not in heading:
        assert verify("math", "1", f"{heading}\n\n1", None, "eos").right
        assert verify("math", "1", f"{heading}\n\n$1$.").right


@pytest.mark.parametrize(
    "rest", ["less than $12$", "times $7$, which equals $35$", "over $9$", "plus $3$", "at least"]
)
def test_all_of_the_clause_behind_a_phrase_is_read(rest: str) -> None:
    for phrase in ("The answer is", "Thus the final answer is", "Answer:"):
        assert verify("math", "5", f"{phrase} $5$ {rest}.").strict is not Status.RIGHT
        assert verify("math", "5", f"{phrase} $5$ meters.").right
        assert verify("math", "5", f"{phrase} $5$, because $2 + 3 = 5$.").right


OPEN_BOX = r"The partial sum is $\boxed{5}$. Now the total is $\boxed{17"
# What the text before the cut says is finished only if something follows it.
CUT = ("The answer is 1", "#### 1", "So the total is 1.", "1", r"The answer is $\frac{1}{2}")
FINISHED = (
    r"It is $\boxed{1}$. Let me che",
    "The answer is 1. Let me",
    "#### 1\nNow",
    OPEN_BOX + "}",
)


def test_a_response_that_was_cut_within_a_box_has_no_answer() -> None:
    for kind in ("math", "choice", "visual"):
        assert verify(kind, "5", OPEN_BOX, None, "length").status is Status.NO_ANSWER
    # A model that ended by itself forgot a brace at most.
    assert verify("math", "5", OPEN_BOX, None, "eos").right


def test_of_a_response_that_was_cut_only_what_it_finished_counts() -> None:
    for response in CUT:
        gold = "1/2" if "frac" in response else "1"
        assert verify("math", gold, response, None, "length").status is Status.NO_ANSWER, response
    for response in FINISHED:
        gold = "17" if "17" in response else "1"
        assert verify("math", gold, response, None, "length").right, response


# Last lines of real solutions of GSM8K's problems, of which none has a box, a marker or a phrase.
LAST_LINES = [
    ("18", "She sells 2 eggs at $9 per day so she makes $2 * 9 = $18 every day."),
    ("8", "She will need 80 / 10 = 8 more weeks to collect 200 toothpicks."),
    ("12", "So it would take 10*1.2=12 minutes to speak 10 pages."),
    ("18", "She makes 2 * 9 = $<<2*9=18>>18 every day."),
    ("-18", "So the temperature was −18 degrees."),
]


@pytest.mark.parametrize(("gold", "line"), LAST_LINES)
def test_the_last_value_of_a_finished_response_is_its_answer(gold: str, line: str) -> None:
    body = f"There are 5 of them.\n{line}"
    for finish in ("", "eos", "stop_string"):
        for end in ("", " I hope it is correct."):
            assert verify("math", gold, body + end, None, finish).right
        assert not verify("math", "5", body, None, finish).right
    assert verify("math", gold, body, None, "length").status is Status.NO_ANSWER


def test_a_number_that_stands_last_may_have_been_cut() -> None:
    body = "There are 5 of them.\nShe makes 2 * 9 = $18"
    assert verify("math", "18", body, None, "eos").right
    assert verify("math", "18", body).status is Status.NO_ANSWER
    assert verify("math", "18", f"{body}\nA: 18").right


@pytest.mark.parametrize("finish", ["eos", "length"])
@pytest.mark.parametrize("heading", ["Question:", "Q:", "Problem 2:", "### Question 2:", "Human:"])
def test_a_last_value_before_another_question_is_the_answer(heading: str, finish: str) -> None:
    """A base model answers, asks itself something else, and is cut or ends there."""
    text = f"He pays 3 * 6 = 18 dollars.\n\n{heading} Tom has 3 apples and buys 4. Now he has 7 app"
    assert verify("math", "18", text, finish=finish).right
    assert not verify("math", "7", text, finish=finish).right


def test_only_a_tag_or_a_marker_replaces_a_box() -> None:
    for rest in ("Some say that the final answer is 7.", "To check: $5 + 2 = 7$.", "Wait, 7."):
        assert verify("math", "5", f"It is $\\boxed{{5}}$. {rest}").right
    for rest in ("#### 7", "<answer>7</answer>", "A: 7"):
        assert verify("math", "7", f"It is $\\boxed{{5}}$.\n{rest}").right
    assert verify("math", "5", "It is $\\boxed{5}$.\n#### 7", None, "length").right


def test_a_list_of_options_is_no_marker() -> None:
    for gap in ("\n", "\n\n"):
        options = gap.join(("A: 12", "B: 15", "C: 18"))
        response = f"Let us look at the options.\n\n{options}\n\nSince $3 * 5 = 15$, the answer is"
        assert verify("choice", "B", f"{response} B.").right
        assert verify("math", "15", f"{response} 15.").right
        assert verify("choice", "B", f"{response} B.", None, "eos").right


@pytest.mark.parametrize("pattern", [*TURN_ENDS, *OPENINGS, *STATEMENTS], ids=lambda row: row.name)
def test_each_pattern_finds_its_own_example(pattern: Pattern) -> None:
    assert re.search(pattern.regex, pattern.example, re.IGNORECASE | re.MULTILINE)


@pytest.mark.parametrize("pattern", [*TURN_ENDS, *OPENINGS], ids=lambda row: row.name)
@pytest.mark.parametrize("finish", ["eos", "length"])
@pytest.mark.parametrize(
    "first", ["So it is $\\boxed{18}$.", "#### 18", "He pays 3 * 6 = 18 dollars."]
)
def test_another_task_behind_an_answer_is_no_part_of_it(
    pattern: Pattern, finish: str, first: str
) -> None:
    if pattern.name == "rule" and first.startswith("He"):
        return  # it may part the steps of one solution
    text = f"{first}{pattern.example} Tom has 3 apples and buys 4.\nNow he has 3 + 4 = 7 apples.\n"
    for ending in ("", "#### 7", "It is 7."):
        assert verify("math", "18", text + ending, finish=finish).right
    # A box counts before all that is no box, if no earlier one states an answer.
    if "boxed" in first or "####" in first:
        assert verify("math", "18", text + "\\boxed{7}", finish=finish).right


def test_an_opening_before_any_answer_ends_nothing() -> None:
    for pattern in OPENINGS:
        text = (
            f"We restate it.{pattern.example} Tom has 3 apples.\nSo the answer is $\\boxed{{3}}$."
        )
        assert verify("math", "3", text).right, pattern.name


# Values that stand in a sentence without any delimiter around them.
PLAIN = [
    (r"36\pi", r"So the area is 36\pi."), (r"36\pi", "So the area is 36π."),
    ("1024", "There are 2^10 ways."), ("3:4", "The ratio is 3:4."), ("1/3", "He needs 1/3 pound."),
    ("16/3", "He needs 5 1/3 pounds."), (r"5\sqrt{3}", r"Thus we get 5\sqrt{3} cm."),
    ("18", "所以，她每天赚18美元。"), ("18", "答：小明一共有18元。"),
    ("18", "综上所述，答案是 18 美元。"),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "sentence"), PLAIN)
def test_the_last_value_is_read_whole(gold: str, sentence: str) -> None:
    assert verify("math", gold, sentence, finish="eos").right


def test_rules_between_the_steps_of_a_solution_end_nothing() -> None:
    step = "### {0}. Add\n\nThe result is {0}.\n\n---\n\n"
    steps = "".join(step.format(number) for number in (1, 2, 3))
    for ending in ("So it is $\\boxed{6}$.", "The answer is 6.", "So we get 3 + 3 = 6."):
        assert verify("math", "6", steps + ending, finish="eos").right
