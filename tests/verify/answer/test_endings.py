"""What models write around and after a box must not change the verdict on it."""

from __future__ import annotations

import pytest

from rlbhpc.verify import verify
from tests.verify.test_math import table

# Endings of trained and base models; ``{a}`` is the boxed answer, as it was written.
ENDINGS = [
    "So the answer is $\\boxed{{{a}}}$.",
    "\\[\n\\boxed{{{a}}}\n\\]\n\n#### Verification\nSubstituting back gives $2+3=5$, so it holds.",
    "$\\boxed{{{a}}}$\n\nWait, let me double-check. We have $3 \\cdot 4 = 12$, the sum is 7. Yes, "
    "the answer is correct.",
    "Hence $$\\boxed{{{a}}}$$ I hope this final answer is clear.",
    "**Final Answer**\n\n\\[ \\boxed{{{a}}} \\]",
    "### Final Answer\n$\\boxed{{{a}}}$\n\n---\n\n#### 1. Check of the first case\nFine.",
    "\\boxed{{{a}}}\n\nThe final answer is as stated above. Let me know if you have questions!",
    "Final Answer: The final answer is $\\boxed{{{a}}}$. I hope it is correct.",
    "Thus $\\boxed{{{a}}}$.\n\nTo verify, suppose the answer is 4: then $4^2=16$, which fails.",
    "\\boxed{{{a}}}\n```python\nprint(17)\n```\n```output\n17\n```\nThe result is 17 as an index.",
    "$\\boxed{{{a}}}$ <|im_end|>\n<|im_start|>user\nWhat is 1+1? The answer is 2.",
    "<think>Try \\boxed{{17}}. The answer is 23, no.</think>\n\nThe answer is $\\boxed{{{a}}}$.",
    "\\boxed{{{a}}}\n\nProblem: What is $1+1$?\nSolution: $1+1=2$, so it is \\boxed{{2}}.",
    "\\boxed{{{a}}}\n\nWas the answer what you expected? The result of the check is 1.",
    "\\boxed{{{a}}}\n\nThis completes the proof. The final answer is obtained by adding all parts.",
    "\\boxed{{{a}}} is the answer. Note that the answer is independent of $n$.",
    "\\boxed{{{a}}}\n\nDouble-checking: no mistake was made, since the remainder of 17 by 5 is 2.",
    "\\boxed{{{a}}}\n\n**Answer:** see the box above.\n\n**Confidence:** 95%",
    "答案是 $\\boxed{{{a}}}$。验证：代入成立，答案正确。",
    "\\boxed{{{a}}}.\n\nHmm, wait. Is the answer 4? No, since $4 < 5$. So the answer stands.",
    "\\boxed{{{a}}}\n\n## Step 5: Summary\nWe are done. The final answer is the boxed expression.",
]


@pytest.fixture(scope="module")
def answers() -> dict[bool, list[tuple[str, str]]]:
    """Right and wrong answers of the fact table that the plain box is judged as."""
    found: dict[bool, list[tuple[str, str]]] = {True: [], False: []}
    for _, gold, answer, right in table("math_answers.tsv"):
        if answer.strip() and "\\boxed" not in answer:
            found[right].append((gold, answer))
    return found


@pytest.mark.parametrize("right", [True, False], ids=["right", "wrong"])
def test_no_ending_changes_a_verdict(answers, right, soak):
    """The style study: 500 answers, each in every ending; at most 1 % may change."""
    chosen = answers[right][: 500 if soak else 100]
    changed = [
        (gold, answer, ending)
        for gold, answer in chosen
        for ending in ENDINGS
        if verify("math", gold, ending.format(a=answer)).right != right
    ]
    assert len(chosen) >= 100
    allowed = len(chosen) * len(ENDINGS) // 100 if right else 0
    assert len(changed) <= allowed, changed[:20]
