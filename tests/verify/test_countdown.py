"""The exact verifier of Countdown: what it accepts, what it refuses, and that nothing breaks it."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlbhpc.problems.countdown import (
    Rules,
    generate,
    make_problem,
    random_trace,
    reachable,
    solve,
    trace_text,
)
from rlbhpc.verify.kinds.countdown import MAX_CHARS, distinct, verify
from rlbhpc.verify.verdict import Status, Verdict

GOLD = "3 5 7 11 -> 25 (+-*)"
RATIONAL = "3 3 8 8 -> 24 (+-*/)"


def expression(steps: list[tuple[int, str, int, int]]) -> str:
    """A trace as one expression, written independently of the package."""
    built: list[tuple[int, str]] = []

    def take(value: int) -> str:
        for i, (known, text) in enumerate(built):
            if known == value:
                built.pop(i)
                return text
        return str(value)

    for a, operation, b, result in steps:
        built.append((result, f"({take(a)} {operation} {take(b)})"))
    return built[-1][1]


@pytest.mark.parametrize(
    "response",
    [
        "(11-5)*3+7",
        "  ( 11 - 5 ) * 3 + 7 = 25 ",
        "7--3*(11-5)",
        "-3*(5-11)+7",
        "11-5=6\n6*3=18\n18+7=25",
        "11-5=6\n6*3=18\n18+7=25\n\n",
        "11-5=6, 6*3=18, 18+7=25",
        "5-11=-6\n-6*3=-18\n7--18=25",
        "First 3*5=15, no.\n<answer>(11-5)*3+7</answer>",
        "<think>3*5+7+11 = 33</think>\n\\boxed{(11-5) \\times 3 + 7}",
        "The answer is (11−5)×3+7 = 25.",
        "Answer: `(11-5)*3+7`",
        "**Answer:** $(11-5)\\cdot 3+7$",
        "<answer>3+5</answer> wait <answer>(11-5)*3+7",
        "\\boxed{1} then \\boxed{\\left(11-5\\right)\\times3+7}",
        "thinking aloud, 3+5 is 8\n(11-5)*3+7",
        "The answer is: 7+3*(11-5)",
        "**Final Answer:** $7 + 3 \\times (11 - 5) = 25$",
        "<answer>3 x (11 - 5) + 7</answer>",
        "<answer>3x(11-5)+7 = 25</answer>",
        "<answer>3(11-5)+7</answer>",
        "<answer>[(11 - 5) * 3] + 7</answer>",
        "\\boxed{\\{(11-5)\\times 3\\}+7}",
        "<answer>(3)(11-5)+7</answer>",
        "<answer>\\boxed{(11-5)*3+7}</answer>",
        "<answer>The answer is (11-5)*3+7</answer>",
        "\\boxed{(11-5)*3+7 = 18 + 7 = 25}",
        "\\boxed{25 = (11-5)*3+7}",
        "\\boxed{(11-5) \\cdot 3 + 7 = 6 \\cdot 3 + 7 = 18 + 7 = 25}",
        "The expression is \\((11-5)*3+7\\)",
    ],
)
def test_right(response: str) -> None:
    assert verify(GOLD, response).status is Status.RIGHT


@pytest.mark.parametrize(
    ("response", "rule"),
    [
        ("(11-5)*3", "numbers"),
        ("(11-5)*3+7*1", "numbers"),
        ("(11-5)*3+7+7", "numbers"),
        ("(11-5)*3+07", "numbers"),
        ("25", "numbers"),
        ("(11-5)*3+7=26", "arithmetic"),
        ("(11-5)*3+7=18+7=26", "arithmetic"),
        ("(11-5)*3+7=19+7=25", "arithmetic"),
        ("18+7=25", "numbers"),
        ("[(11-5)]*3+7]", "not arithmetic"),
        ("(11+5)*3+7", "expression"),
        ("11-5=6\n6*3=18", "numbers"),
        ("11-5=6\n6*3=19\n19+7=26", "arithmetic"),
        ("11-5=7\n7*3=21\n21+7=28", "arithmetic"),
        ("11-5=6\n11*3=33\n33+7=40", "numbers"),
        ("11-5=6\n6*3=18\n18+7=25\n25-0=25", "numbers"),
        ("11+3=14\n14+5=19\n19+7=26", "steps"),
        ("11-5=6\n6*3=18,\nso 18+7=25,", "not arithmetic"),
        ("3 5 7 11", "numbers"),
        ("(11-5)*3+7)", "not arithmetic"),
        ("((11-5)*3+7", "not arithmetic"),
        ("(11-5)3+7", "not arithmetic"),
        ("(11-5)*3+7 apples", "not arithmetic"),
        ("11-5*+3+7", "not arithmetic"),
        ("()11-5*3+7", "not arithmetic"),
        ("11**5-3+7", "not arithmetic"),
        ("11//5-3+7", "not arithmetic"),
        ("(11-5)/3+7", "operation"),
        ("+11-5*3+7", "not arithmetic"),
        ("__import__('os').system('3 5 7 11')", "not arithmetic"),
        ("٣+5+7+11", "not arithmetic"),
        ("³+5+7+11", "not arithmetic"),
        ("3+5+7+11e0", "not arithmetic"),
        ("0x3+5+7+11", "not arithmetic"),
        ("3.0+5+7+11", "not arithmetic"),
    ],
)
def test_wrong(response: str, rule: str) -> None:
    verdict = verify(GOLD, response)
    assert (verdict.status, verdict.rule) == (Status.WRONG, rule)


@pytest.mark.parametrize(
    "response",
    ["", "   \n", "I do not know.", "<think>(11-5)*3+7", "(11-5)*3+7 <think> hm", "٣", "<answer>",
     "\\boxed{}", "\\boxed{(11-5)*3+7"],
)  # fmt: skip
def test_no_answer(response: str) -> None:
    assert verify(GOLD, response).status is Status.NO_ANSWER


def test_rationals_are_exact() -> None:
    assert verify(RATIONAL, "8/(3-8/3)").right
    assert not verify("1 3 3 7 -> 1 (+-*/)", "7/3/3+1").right
    # 1/3 * 3 is 1, and not almost.
    assert verify("1 3 3 -> 1 (*/)", "1/3*3").right
    assert not verify(RATIONAL, "8*3-8/3").right


@pytest.mark.parametrize(
    "response",
    [
        r"\boxed{\frac{8}{3-\frac{8}{3}}}",
        r"\boxed{\dfrac{8}{(3-\tfrac{8}{3})} = 24}",
        "8 ÷ (3 − 8 ÷ 3)",
    ],
)
def test_fractions_are_quotients(response: str) -> None:
    assert verify(RATIONAL, response).right


@pytest.mark.parametrize("response", ["8/(3-3)+8", "8/(3-3)*8", "3-3=0\n8/0=0\n0+8=8", "8/0"])
def test_division_by_zero_is_wrong(response: str) -> None:
    assert verify(RATIONAL, response).status is Status.WRONG


@pytest.mark.parametrize("gold", ["", "24", "3 5 -> x (+)", "3 -> 3 (+)", "3 5 -> 8 (^)"])
def test_a_bad_gold_is_the_sets_fault(gold: str) -> None:
    with pytest.raises(ValueError, match="gold answer"):
        verify(gold, "3+5")


HOSTILE = [
    "(" * 100_000 + "3+5+7+11" + ")" * 100_000,
    "9" * 100_000,
    "3+5+7+" + "1" * 300,
    "-" * 399 + "3",
    "-" * 300 + "3+5+7+11",
    "(" * 190 + "11" + ")" * 190,
    "1/0" * 50_000,
    "\\boxed{" * 50_000,
    "<answer>" * 50_000,
    "answer: " * 50_000,
    "3*5=15\n" * 50_000,
    "\n" * 200_000,
    "\ud800 3+5+7+11",
    "\x00" * 1000 + "3",
    "<think>" * 30_000 + "</think>" * 30_000,
    "٣٥٧" * 10_000,
    "９" * 100,
    "3+5+7+11=" + "9" * 300,
    "11-5=6\n6*3=18\n18+7=" + "9" * 300,
]


@pytest.mark.parametrize("response", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_refused(response: str) -> None:
    assert verify(GOLD, response).status in (Status.WRONG, Status.NO_ANSWER)
    assert len(distinct(response)) <= MAX_CHARS + 1


@given(st.text(alphabet="0123457+-*/()=,; \n.×−$\\boxed{}<>answer:think", max_size=80))
def test_no_text_raises(response: str) -> None:
    assert isinstance(verify(GOLD, response), Verdict)


@given(st.text(max_size=200))
def test_no_unicode_raises(response: str) -> None:
    assert isinstance(verify(GOLD, response), Verdict)


@given(st.text(alphabet="357 1+-*/()", max_size=24))
def test_right_means_right(response: str) -> None:
    """Against Python's own arithmetic, on text made of nothing but arithmetic."""
    verdict = verify("3 5 7 11 -> 25 (+-*/)", response)
    if verdict.right:
        parts = _parts(verdict.canonical)
        exact = [f"Fraction({part})" if part.isdigit() else part for part in parts]
        assert eval("".join(exact), {"Fraction": Fraction}) == 25


def _parts(text: str) -> list[str]:
    parts: list[str] = []
    for char in text:
        if char.isdigit() and parts and parts[-1].isdigit():
            parts[-1] += char
        else:
            parts.append(char)
    return parts


SEEDS = st.integers(0, 10**6)


@given(SEEDS, st.sampled_from(["+-*", "+-*/", "+-"]), st.integers(2, 5))
def test_the_solvers_solutions_verify(seed: int, operations: str, count: int) -> None:
    rules = Rules(counts=(count,), operations=operations)
    (problem,) = generate("countdown", rules, "train" if seed % 2 else "test", 1, seed)
    numbers, target = tuple(problem.extras["numbers"]), problem.extras["target"]
    steps = solve(numbers, target, operations)
    assert steps is not None
    assert verify(problem.gold, trace_text(steps)).right
    assert verify(problem.gold, expression(steps)).right
    assert verify(problem.gold, f"{expression(steps)} = {target}").right


@given(SEEDS, st.data())
def test_any_mutation_of_a_number_fails(seed: int, data: st.DataObject) -> None:
    rules = Rules(operations="+-*/")
    (problem,) = generate("countdown", rules, "test", 1, seed)
    steps = solve(tuple(problem.extras["numbers"]), problem.extras["target"], "+-*/")
    assert steps is not None
    text = data.draw(st.sampled_from([trace_text(steps), expression(steps)]))
    parts = _parts(text)
    at = data.draw(st.sampled_from([i for i, part in enumerate(parts) if part.isdigit()]))
    old = parts[at]
    other = data.draw(st.integers(0, 10**6).map(str).filter(lambda new: new != old))
    parts[at] = data.draw(st.sampled_from([other, "", "0" + old, old + "0"]))
    assert not verify(problem.gold, "".join(parts)).right


@given(SEEDS)
def test_a_trace_is_right_if_and_only_if_it_hits(seed: int) -> None:
    rng = random.Random(seed)
    numbers = tuple(sorted(rng.randint(1, 13) for _ in range(4)))
    steps = random_trace(rng, numbers, "+-*")
    for target in (steps[-1].result, steps[-1].result + 1, steps[0].result):
        problem = make_problem("countdown", numbers, target, "+-*")
        hits = target == steps[-1].result
        assert verify(problem.gold, trace_text(steps)).right == hits
        assert verify(problem.gold, expression(steps)).right == hits


@pytest.mark.parametrize("numbers", [(1, 2), (3, 3, 4), (2, 5, 7), (1, 1, 1)])
def test_reachable_is_all_there_is(numbers: tuple[int, ...]) -> None:
    """Every value by brute force over orders, operations and shapes, signs allowed everywhere."""
    found = set()
    shapes = ["{0}{3}{1}"] if len(numbers) == 2 else ["({0}{3}{1}){4}{2}", "{0}{3}({1}{4}{2})"]
    for order in permutations(numbers):
        for operations in product("+-*", repeat=2):
            for shape in shapes:
                found.add(eval(shape.format(*(*order, 0)[:3], *operations)))
    assert set(reachable(numbers, "+-*")) == {value for value in found if value >= 0}


def test_equal_answers_have_one_canonical_form() -> None:
    spaced, tight = verify(GOLD, "( 11 − 5 ) × 3 + 7"), verify(GOLD, "Answer: (11-5)*3+7.")
    assert spaced.canonical == tight.canonical == "(11-5)*3+7"
    assert distinct("x\n<answer> 3+5 </answer> y") == distinct("<answer>3+5</answer>") == "3+5"


def test_equal_wrong_answers_have_one_canonical_form_too() -> None:
    # Else votes for one wrong answer count as votes for several.
    for answer in ("3 + 5", "3 × 5 = 14", "3 / 0 + 5 * 7 + 11", "3 +* 5"):
        spaced = verify(GOLD, answer)
        tight = verify(GOLD, answer.replace(" ", ""))
        assert spaced.status is tight.status is Status.WRONG
        assert spaced.canonical == tight.canonical
