"""How a response is shown: formulas, code, thoughts, the answer."""

from __future__ import annotations

import pytest

from rlbhpc.view.text import MAX_CHARACTERS, answer_span, rich
from tests.view.looked import Page


@pytest.mark.parametrize(
    ("text", "answer", "marked"),
    [
        ("So \\boxed{1}, no, \\boxed{\\frac{1}{2}}.", "1/2", "\\boxed{\\frac{1}{2}}"),
        ("cut in \\boxed{12", "", "\\boxed{12"),
        ("a brace \\boxed{\\} } b", "", "\\boxed{\\} }"),
        ("<answer> 7 </answer> or so", "7", "<answer> 7 </answer>"),
        ("#### 5\n#### 18\n", "18", "#### 18"),
        ("It is 4. I mean 4, not 5.", "4", "4"),
        ("nothing", "4", None),
        ("nothing", "", None),
    ],
)
def test_the_answer_is_found_where_it_is_stated(text: str, answer: str, marked: str | None) -> None:
    span = answer_span(text, answer)
    assert (span and text[span.start : span.stop]) == marked
    if text.startswith("It is"):
        assert span is not None and span.start > 10, "the last one"


def test_a_formula_with_the_answer_is_marked_whole() -> None:
    page = Page(str(rich("Thus $x = \\boxed{42}$ holds.", "42")))
    assert [tag for tag, _ in page.elements][:4] == ["div", "mark", "span", "math"]
    assert page.tags["menclose"] == 1


@pytest.mark.parametrize(
    ("text", "formulas"),
    [
        ("It costs $5 and then $6.", 0),
        ("$x$ and \\(y\\) and \\[z\\] and $$w$$", 4),
        ("$$\\begin{aligned}x&=1\\\\y&=2\\end{aligned}$$", 1),
        ("a \\$5 note, \\[ not closed", 0),
        ("$\\left( x$ cannot be read", 0),
    ],
)
def test_formulas_are_drawn(text: str, formulas: int) -> None:
    page = Page(str(rich(text)))
    assert page.tags["math"] == formulas
    if "aligned" in text:
        assert page.tags["mtr"] == 2 and "&" not in page.text
    if not formulas:
        assert page.text == text


def test_thoughts_are_folded_and_the_answer_is_not_sought_in_them() -> None:
    for opening in ("<think>", ""):
        page = Page(str(rich(f"{opening}is it \\boxed{{1}}?</think>It is \\boxed{{2}}.", "2")))
        assert page.tags["details"] == 1 and page.tags["mark"] == 1
        assert page.text.endswith("It is \\boxed{2}.")
    unfinished = Page(str(rich("Well <think>so \\boxed{1}", "1")))
    assert unfinished.tags["mark"] == 0


def test_python_is_coloured_and_nothing_of_it_is_lost() -> None:
    code = "def f(x):\n    return 'a' + x  # why\n"
    for language, coloured in (("python", True), ("html", False), ("", False)):
        page = Page(str(rich(f"So:\n```{language}\n{code}```\nDone.")))
        assert code in page.text
        assert bool({"code-k", "code-s", "code-c"} & {*page.values("class")}) == coloured


def test_a_text_without_end_is_cut_and_says_so() -> None:
    page = Page(str(rich("y" * (MAX_CHARACTERS + 7), "")))
    assert page.text.count("y") == MAX_CHARACTERS and page.text.count("7 characters more") == 1
