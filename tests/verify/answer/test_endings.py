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


@pytest.mark.parametrize(
    ("gold", "response", "right"),
    [
        ("5", "\\boxed{5}. Wait, I made an error: $3+4=7$. So the answer is 7.", False),
        ("7", "\\boxed{5}. Wait, I made an error: $3+4=7$. So the answer is 7.", True),
        ("7", "\\boxed{5}\n\nHold on, that is incorrect. Therefore, $x = 7$.", True),
        ("7", "\\boxed{5}\n\n#### 7", True),
        ("7", "\\boxed{5}\n\n### Final Answer\n\n$$x = 7$$", True),
        ("5", "\\boxed{5}\n\nThe answer is 7.", False),
        ("east", "\\boxed{\\text{west}}. That was wrong; the answer is east.", True),
        ("5", "\\boxed{5}\n\nIf the answer is 7, the sum is odd, which fails.", True),
    ],
)
def test_a_value_called_the_answer_replaces_the_box(gold, response, right):
    assert verify("math", gold, response).right == right


@pytest.mark.parametrize(
    ("gold", "response", "right"),
    [
        ("113", "\\boxed{m+n=113}", True),
        ("113", "\\boxed{m+n=114}", False),
        ("113", "\\boxed{a+b+c = 113}", True),
        ("113", "\\boxed{a+b+c = 100+10+3 = 113}", True),
        ("113", "\\boxed{100m+n=113}", True),
        ("113", "\\boxed{\\lfloor x \\rfloor = 113}", True),
        ("3", "\\boxed{2x=6}", False),
        ("6", "\\boxed{x^2 = 6}", False),
        ("5", "\\boxed{x+3=5}", False),
        ("5", "### Final Answer\n\n$$x = 5$$", True),
        ("5", "### Final Answer\n5", True),
        ("\\frac12", "## Answer\n\\[ \\frac{1}{2} \\]", True),
        ("5", "So the answer should be 5.", True),
        ("5", "Therefore, it should be 5.", True),
        ("5", "The answer must be $5$.", True),
        ("5", "The final answer is 5, since the other root, 7, is too large.", True),
        ("7", "The final answer is 5, as the other root is 7.", False),
        ("5", "The answer is 5, not 7.", True),
        ("5", "The answer is 5. I am sure that the answer is correct.", True),
        ("5", "Ans: 5", True),
        ("5", "La respuesta es 5.", True),
        ("5", "La réponse est $5$.", True),
        ("5", "Ответ: 5", True),
        ("5", "정답: 5", True),
        ("5", "答えは5です。", True),
        ("C", "故选：C", True),
        ("5", "The answer is 5.\n\nQuestion: What is 3+4?\nThe answer is 7.", True),
        ("7", "The answer is 5.\n\nQuestion: What is 3+4?\nThe answer is 7.", False),
        ("144", "There are \\boxed{12} dozen eggs.", True),
        ("12", "There are \\boxed{12} dozen eggs.", False),
        ("0.2", "It is \\boxed{20}\\% of all.", True),
    ],
)
def test_labelled_and_announced_values(gold, response, right):
    verdict = verify("math", gold, response)
    assert verdict.right == right, verdict


@pytest.mark.parametrize(
    ("response", "gold", "right"),
    [
        (r"$-\boxed{\frac{1}{2}}$", "1/2", False),
        (r"$-\boxed{\frac{1}{2}}$", "-1/2", True),
        (r"\[-\boxed{1.5}\]", "1.5", False),
        (r"-\boxed{5}", "5", False),
        (r"$-\boxed{x+1}$", "-x-1", True),
        (r"$-\boxed{-5}$", "-5", True),
        ("- \\boxed{4}", "4", True),
        ("- $\\boxed{4}$", "4", True),
        (r"$\boxed{5}\pi$", "5", False),
        (r"$\boxed{5}\pi$", r"5\pi", True),
        (r"\[\boxed{5}\sqrt{2}\]", "5", False),
        (r"$x = \boxed{5}+3$", "5", False),
        (r"He had $20. So he spends \boxed{5} - and keeps $15.", "5", True),
    ],
)
def test_what_stands_around_a_box_belongs_to_it(response: str, gold: str, right: bool) -> None:
    assert verify("math", gold, response).right is right
