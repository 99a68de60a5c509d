"""A problem set of your own without a line of Python: a study says what its fields are called."""

from __future__ import annotations

from collections.abc import Mapping

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, Source, make_problem
from rlbhpc.problems.record import Record

_QUESTION = "question"
_PLACES = (_QUESTION, "gold", "id", "solution")


def own_set(fields: Mapping[str, str]) -> FileSet:
    """A set whose records have these fields.

    ``fields`` maps ``question``, and possibly ``gold``, ``id`` and ``solution``, to the names of
    the fields in the file. Any other name becomes an extra of the problem.
    """
    if _QUESTION not in fields:
        raise UserError("`fields` says not which field holds the question: {question: NAME, …}")
    extras = {name: field for name, field in fields.items() if name not in _PLACES}

    def parse(set_name: str, record: Record) -> Problem:
        gold = record.text(fields["gold"]) if "gold" in fields else ""
        local_id = record.text(fields["id"]) if "id" in fields else ""
        question = record.text(fields[_QUESTION])
        more = {name: record.need(field) for name, field in extras.items()}
        solution = record.text(fields["solution"]) if "solution" in fields else ""
        return make_problem(set_name, local_id, question, gold, "math", more, solution=solution)

    return FileSet(parse, Source(), splits=("test", "train"))
