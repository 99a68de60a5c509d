"""What commits a response to an answer, and what only looks as if it did."""

from __future__ import annotations

import pytest

from rlbhpc.verify import verify
from rlbhpc.verify.verdict import Status

HEADINGS = (
    "Solution:", "Answer:", "**Solution:**", "## Final Answer", "**Final Answer**",
    "The answer is:", "答案：", "Ответ:", "Respuesta:",
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
            assert not verify("math", "1", heading + gap + steps).right, repr(gap + steps)
    assert verify("math", "1", f"{heading}\n\n1").right
    assert verify("math", "1", f"{heading}\n\n$1$.").right


@pytest.mark.parametrize(
    "rest", ["less than $12$", "times $7$, which equals $35$", "over $9$", "plus $3$", "at least"]
)
def test_all_of_the_clause_behind_a_phrase_is_read(rest: str) -> None:
    for phrase in ("The answer is", "Thus the final answer is", "Answer:"):
        assert not verify("math", "5", f"{phrase} $5$ {rest}.").right
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
