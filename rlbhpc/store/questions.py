"""What a run asked: question and reference answer of every problem, once a problem set.

A file has the problems of a set and is named by its content, so it never changes: arms that were
asked the same share it, any number of writers may write it at once, and whoever is killed leaves a
whole file or none. The grid of an arm names the file of its problems.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.record import Deferred
from rlbhpc.store import checked, left_out
from rlbhpc.store.cube_schema import QUESTIONS
from rlbhpc.store.grid import Grid
from rlbhpc.store.left_out import Note
from rlbhpc.study.layout import Layout

# Characters that are kept of tests; those of a program may be megabytes.
_MAX_TEST_CHARACTERS: Final = 2_000
_DIGEST_DIGITS: Final = 16


@dataclass(frozen=True)
class Question:
    """What a problem asks, and by what its answers are judged.

    ``gold`` is the reference answer; None where a file of another tool does not hold a single one.
    ``tests`` begin what decides where there is no answer to compare with, as in code.
    """

    question: str
    gold: str | None
    tests: str = ""

    @property
    def reference(self) -> str:
        """The reference answer, or the tests in its place."""
        return self.gold or self.tests


def questions_of(problems: Iterable[Problem]) -> dict[str, Question]:
    """Make the questions of a problem set to be stored, by id of the problem.

    A problem without a reference answer (``gold``) is judged by tests, as code is: the first
    characters of these are kept instead.
    """
    questions = {}
    for problem in problems:
        tests = ""
        if not problem.gold:
            # Tests that are read when they are needed stand here by their digest.
            tests = json.dumps(dict(problem.extras), ensure_ascii=False, default=Deferred.digest_of)
        if len(tests) > _MAX_TEST_CHARACTERS:
            tests = f"{tests[:_MAX_TEST_CHARACTERS]}… ({len(tests):,} characters)"
        questions[problem.id] = Question(problem.fields["question"], problem.gold, tests)
    return questions


def put_questions(
    layout: Layout, arm: str, set_name: str, questions: Mapping[str, Question]
) -> dict[str, str]:
    """Store the questions of an arm beside those that it has, in a file named by its content.

    Gives the entry ``{"questions": digest}`` that the caller puts into the arm's saved grid, which
    so names the file; empty where there are no questions. An intact file of that name is left as it
    is.
    """
    merged = stored_questions(layout, arm, set_name) | dict(questions)
    if not merged:
        return {}
    values = {"problems": {name: asdict(merged[name]) for name in sorted(merged)}}
    digest = checked.digest(values)[:_DIGEST_DIGITS]
    path = layout.questions(set_name, digest)
    try:
        checked.read(path)
    except (FileNotFoundError, ValueError):
        checked.write(path, values)
    return {QUESTIONS: digest}


def stored_questions(layout: Layout, arm: str, set_name: str) -> dict[str, Question]:
    """Read the questions that are stored for an arm, by id; none in a run of an older version.

    The saved grid of the arm names their file by its digest.
    """
    grid = Grid.load(layout.grid(arm, set_name))
    digest = grid.provenance.get(QUESTIONS) if grid else None
    if digest is None:
        return {}
    path = layout.questions(set_name, digest)
    try:
        values: dict[str, Any] = checked.read(path)["problems"]
        return {name: Question(**value) for name, value in values.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path}: damaged ({error}); remove it, and sample or import once more"
        ) from error


def read_questions(layout: Layout, arm: str, set_name: str) -> dict[str, Question]:
    """The questions of an arm on a problem set, by id; a damaged file is told and left out."""
    try:
        return stored_questions(layout, arm, set_name)
    except UserError as error:
        left_out.warn_left_out(layout.root, [Note(left_out.DAMAGED, str(error))])
        return {}
