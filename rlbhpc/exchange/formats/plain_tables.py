"""Rows as people write them themselves: counts of a problem, or one scored response each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rlbhpc.engines.completion import Finish
from rlbhpc.errors import UserError
from rlbhpc.exchange.formats.form import (
    Form,
    Imported,
    ImportedCounts,
    as_verdict,
    choose_score,
    single_reference,
)
from rlbhpc.exchange.formats.rows import fields, problem_id, rows, whole_number
from rlbhpc.verify.verdict import Status


class Counts(Form):
    """One row a problem; a field ``step`` may be there too."""

    name = "counts in CSV, JSON or JSON Lines (a row a problem: problem, n, c)"

    def fits(self, path: Path) -> bool:
        """By the fields of the first row."""
        return {"problem", "n", "c"} <= set(fields(path))

    def read(self, path: Path, metric: str | None) -> Iterator[ImportedCounts]:
        """Yield samples ``n`` and right ones ``c`` of each problem, one row of the file each.

        ``lines`` remembers where each problem at each training step stood, because it may stand
        once. `whole_number` refuses anything else, as for an empty cell.
        """
        lines: dict[tuple[str, int], str] = {}
        for place, row in rows(path):
            problem = problem_id(row, place)
            try:
                # None is no number: a cell of n or c may not be empty.
                n, c = whole_number(row.get("n")), whole_number(row.get("c"))
                step = whole_number(row.get("step", 0))
            except (TypeError, ValueError, OverflowError) as error:
                raise UserError(f"{place}: n, c and step are whole numbers ({error})") from error
            if not 0 <= c <= n:
                raise UserError(f"{place}: n={n}, c={c}; allowed is 0 <= c <= n")
            first = lines.setdefault((problem, step), place)
            if first != place:
                raise UserError(
                    f"{place}: {problem} at step {step} stands in {first} already; give the rows "
                    "of one arm"
                )
            yield ImportedCounts(problem, n, c, step)


SCORES: Final = ("correct", "score", "verdict")


class Scored(Form):
    """Rows with ``problem`` and ``correct``, ``score`` or ``verdict``.

    ``correct`` and ``score`` are 0, 1, true or false; ``verdict`` is a name as the cube has it
    (``right``, ``wrong``, ``no_answer``, ``timeout``, ``failed``, ``error``). Beside them may
    stand ``sample``, ``step``, ``text`` (or ``response``), ``answer``, ``finish``, ``n_tokens``,
    ``seed``, ``question`` and ``gold``, the reference answer. Texts that are judged again need no
    score.
    """

    name = "scored responses in JSON Lines, JSON or CSV (a row a response: problem, correct)"

    def fits(self, path: Path) -> bool:
        """By the fields of the first row."""
        return "problem" in fields(path)

    def records(self, path: Path) -> Iterator[tuple[str, Any]]:
        """The rows."""
        return rows(path)

    def responses(self, row: Any, metric: str | None, place: str) -> Iterator[Imported]:
        """Yield the response of a row.

        ``finish`` is why it ended, by name; −1 stands for a number that the row does not have.
        `_row_verdict` gives the verdict, or a complaint in its place. An `Imported` is one response
        with its problem, verdict and number; ``place`` says where the row stands, for messages.
        """
        verdict = _row_verdict(row, metric, place)
        finish = row.get("finish")
        if finish is not None and str(finish).upper() not in Finish.__members__:
            allowed = ", ".join(name.lower() for name in Finish.__members__)
            raise UserError(f"{place}: finish {finish!r}; allowed are {allowed}")
        text = row.get("text", row.get("response", ""))
        if not isinstance(text, str):
            raise UserError(f"{place}: the response is a {type(text).__name__}; a text is needed")
        try:
            yield Imported(
                problem_id(row, place),
                verdict,
                whole_number(row["sample"]) if "sample" in row else None,
                whole_number(row.get("step", 0)),
                text,
                str(row.get("answer") or ""),
                -1 if finish is None else Finish[str(finish).upper()],
                whole_number(row.get("n_tokens", -1)),
                whole_number(row.get("seed", -1)),
                single_reference(row.get("gold")),
                str(row.get("question", "")),
            )
        except (TypeError, ValueError, OverflowError) as error:
            raise UserError(
                f"{place}: sample, step, n_tokens and seed are whole numbers ({error})"
            ) from error


def _row_verdict(row: dict[str, Any], metric: str | None, place: str) -> Status | str:
    """Return the verdict that a row carries, or the complaint that it carries none.

    It stands in the field ``metric``, else in ``correct``, ``score`` or ``verdict``, of which a row
    may have one. Its value is a name such as ``right``, or a truth value. `choose_score` picks the
    one that decides, and `as_verdict` turns it into a status.
    """
    names = (metric,) if metric else SCORES
    scores = {name: row[name] for name in names if name in row}
    if not scores:
        return (
            f"{place}: no {' or '.join(names)} among its fields {', '.join(row)}; --metric "
            "names the one that says right or wrong, --judge-again math needs none"
        )
    score = choose_score(scores, metric, place)
    if isinstance(score, str) and score.upper() in Status.__members__:
        return Status[score.upper()]
    return as_verdict(score, place)
