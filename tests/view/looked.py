"""Runs that the pages are tested on, and what a parser finds in a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

from rlbhpc.store.questions import Question, put_questions
from rlbhpc.study.study import Study
from tests.report.made import SET, make_study, put_samples

#: Right samples of four, by problem: lost, gained, thin on both sides, wrong, the same.
BASE = [4, 0, 1, 0, 3]
TRAINED = [0, 3, 1, 0, 3]


def make_run(folder: Path, texts: Mapping[tuple[int, int], str] = {}) -> Study:
    """A base and a trained arm on five problems, four samples each."""
    study = make_study(folder, 5, 4)
    for arm, step, rights in (("base", 0, BASE), ("rl", 100, TRAINED)):
        right = np.arange(4) < np.array(rights)[:, np.newaxis]
        questions = {
            f"{SET}/{i}": Question(f"What is $x_{{{i}}}$, plainly?", str(i)) for i in range(5)
        }
        stored = put_questions(study.layout, arm, SET, questions)
        answers = {(i, j): f"{i}{j}" for i in range(5) for j in range(4)}
        put_samples(study, arm, right, step, texts, provenance=stored, answers=answers)
    return study


class Page(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open.append(tag)
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & {*self._open[-1:]}:
            self.text += data

    @property
    def tags(self) -> Counter[str]:
        """How often each element stands in the page."""
        return Counter(tag for tag, _ in self.elements)

    def values(self, name: str) -> list[str]:
        """Every value of an attribute."""
        return [attrs[name] or "" for _, attrs in self.elements if name in attrs]
