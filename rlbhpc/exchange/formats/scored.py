"""JSON Lines of scored responses, one object per response."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rlbhpc.engines.completion import Finish
from rlbhpc.errors import UserError
from rlbhpc.exchange.formats.form import (
    Imported,
    as_verdict,
    choose_score,
    first_object,
    json_lines,
)
from rlbhpc.verify.verdict import Status

_SCORES: Final = ("correct", "score", "verdict")
_TEXTS: Final = ("text", "response")


class ScoredJsonl:
    """Objects with ``problem`` and ``correct``, ``score`` or ``verdict``.

    ``correct`` and ``score`` are 0, 1, true or false; ``verdict`` is a name as the cube has it
    (``right``, ``wrong``, ``no_answer``, ``timeout``, ``failed``, ``error``). Beside them may
    stand ``sample``, ``step``, ``text`` (or ``response``), ``answer``, ``finish``, ``n_tokens``,
    ``seed`` and ``gold``, the reference answer.
    """

    name = "JSON Lines of scored responses (fields problem and correct, score or verdict)"

    def fits(self, path: Path) -> bool:
        """By the ending and the fields of the first object."""
        return path.suffix.lower() in {".jsonl", ".ndjson"} and "problem" in first_object(path)

    def read(self, path: Path, metric: str | None) -> Iterator[Imported]:
        """Read the responses."""
        for place, row in json_lines(path):
            yield self._response(row, metric, place)

    @staticmethod
    def _response(row: dict[str, Any], metric: str | None, place: str) -> Imported:
        names = (metric,) if metric else _SCORES
        score = choose_score({k: row[k] for k in names if k in row}, metric, place)
        if isinstance(score, str) and score.upper() in Status.__members__:
            verdict: Status | str = Status[score.upper()]
        else:
            verdict = as_verdict(score, place)
        finish = row.get("finish")
        if finish is not None and str(finish).upper() not in Finish.__members__:
            allowed = ", ".join(name.lower() for name in Finish.__members__)
            raise UserError(f"{place}: finish {finish!r}; allowed are {allowed}")
        if "problem" not in row:
            raise UserError(f"{place}: no field 'problem'")
        try:
            return Imported(
                str(row["problem"]),
                verdict,
                int(row["sample"]) if "sample" in row else None,
                int(row.get("step", 0)),
                str(next((row[k] for k in _TEXTS if k in row), "")),
                str(row.get("answer") or ""),
                -1 if finish is None else Finish[str(finish).upper()],
                int(row.get("n_tokens", -1)),
                int(row.get("seed", -1)),
                str(row["gold"]) if "gold" in row else None,
            )
        except (TypeError, ValueError, OverflowError) as error:
            raise UserError(
                f"{place}: sample, step, n_tokens and seed are whole numbers ({error})"
            ) from error
