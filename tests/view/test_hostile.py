"""What a model wrote is text on every page, whatever it looks like."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rlbhpc.report.phrases import printable
from rlbhpc.store.questions import Question, put_questions
from rlbhpc.store.samples import StoredSample
from rlbhpc.view.pages import Site, problem_page, search_page, table_page
from rlbhpc.view.run import Hit, OpenRun
from rlbhpc.view.text import rich
from tests.report.made import SET
from tests.view.hostile import VECTORS, texts
from tests.view.looked import Page, make_run

ELEMENTS = set(
    "html head meta title style body main nav h1 h2 h3 p a div b span section article form label "
    "select option input button table caption thead tbody tr th td svg rect small dl dt dd details "
    "summary pre mark ol li blockquote dialog output script "
    "math mrow mi mn mo mtext mspace msup msub msubsup mfrac msqrt mroot mover munder munderover "
    "mtable mtr mtd mstyle menclose mphantom mpadded".split()
)
ADDRESS = re.compile(r"(\./)?(problem|search|index\.html)?[?#]?[^:]*$")


def harmless(page: str) -> Page:
    """Parse a page; every element and address is ours, and nothing in it acts."""
    parsed = Page(page)
    assert {*parsed.tags} <= ELEMENTS
    names = {name for _, attrs in parsed.elements for name in attrs}
    assert not [name for name in names if name.startswith("on") or name in {"style", "src"}]
    for address in parsed.values("href") + parsed.values("action"):
        assert ADDRESS.match(address), address
    return parsed


def test_there_are_enough_of_them() -> None:
    assert len(set(texts())) >= 200 and len(VECTORS) >= 10


@pytest.mark.parametrize("category", VECTORS)
def test_a_vector_stays_text(category: str) -> None:
    for text in texts():
        if not any(vector in text for vector in VECTORS[category]):
            continue
        parsed = harmless(str(rich(text, "42")))
        assert "script" not in parsed.tags and "a" not in parsed.tags, text


def test_every_page_takes_them_for_text(tmp_path: Path) -> None:
    study = make_run(tmp_path / "run")
    every = texts()
    questions = {f"{SET}/0": Question(every[0] + every[40], every[80])}
    for arm in ("base", "rl"):
        put_questions(study.layout, arm, SET, questions)
    run = OpenRun(tmp_path / "run")
    pair = run.pair
    found = run.read(f"{SET}/0", pair.left, {0})[0].sample
    hostile = [
        StoredSample(replace(found, text=text, answer=text, rule=text, error=text), text)
        for text in every
    ]
    page = problem_page(Site(every[3]), run, pair, f"{SET}/0", [hostile, hostile[:1]])
    parsed = harmless(page)
    assert parsed.tags["script"] == parsed.tags["style"] == 1
    for text in every:
        assert printable(text, lines=True) in parsed.text
    harmless(table_page(Site(every[5]), run, pair, run.by_difference(pair)))
    hits = [Hit(f"{SET}/0", pair.left, 0, text, text, text) for text in every]
    parsed = harmless(search_page(Site("run"), run, pair, every[7], every[9], hits, 3))
    assert parsed.tags["mark"] == len(every)


@pytest.mark.parametrize(
    "text",
    ["\\(" * 90_000, "\\[" * 90_000, "$a " * 60_000, "```" * 60_000, "```\n" * 40_000,
     "<think>" * 25_000, "\\boxed{" * 25_000, "${" + "{" * 1900 + "}$",
     "$" + "\\sqrt{" * 300 + "}" * 300 + "$", "```python\n" + "'''\\" * 2000,
     "```python\n" + "f'{" * 3000, "<answer>" * 25_000],
    ids=lambda text: text[:8],
)  # fmt: skip
def test_no_text_takes_long(text: str) -> None:
    """Processor time, of which the worst takes a quarter of this on a busy machine."""
    started = time.process_time()
    rich(text, "42")
    assert time.process_time() - started < 8
