"""What commits a response to an answer, and what only looks as if it did."""

from __future__ import annotations

import pytest

from rlbhpc.verify import verify
from rlbhpc.verify.verdict import Status

HEADINGS = (
    "Solution:", "Answer:", "**Solution:**", "## Final Answer", "**Final Answer**", "The answer is:",
    "答案：", "Ответ:", "Respuesta:",
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
