"""Math-Verify as second reader: what it calls right, and what it can't read."""

from __future__ import annotations

import pytest

from rlbhpc.verify.running.second_reader import decide


@pytest.mark.parametrize(
    ("gold", "answer", "word"),
    [
        ("5", "5", "right"), (r"\frac12", "0.5", "right"), ("2x", "x+x", "right"),
        (r"\{1,2\}", r"\{2,1\}", "right"), ("5", "x=5", "right"),
        ("5", "6", "wrong"), ("x", "y", "wrong"), ("0.3333", r"\frac13", "wrong"),
        ("{", "5", "unread"), ("5", r"\begin{oops}", "unread"),
    ],
)  # fmt: skip
def test_words(gold: str, answer: str, word: str) -> None:
    assert decide({"gold": gold, "answer": answer}) == word
