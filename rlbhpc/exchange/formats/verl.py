"""Rollouts that verl writes down: ``<step>.jsonl`` of rollout_data_dir or validation_data_dir."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.exchange.formats.form import (
    Imported,
    as_verdict,
    json_lines,
    row_of,
    single_reference,
)
from rlbhpc.exchange.formats.json_stream import first_names
from rlbhpc.verify.verdict import Status

# Fields that verl's own reward functions put beside the score, the plainest first.
_SCORES: Final = ("acc", "score")


class VerlRollouts:
    """One record per response. A problem has no id there: it is named by a hash of its prompt.

    ``acc`` decides where the reward function gave it, else ``score``, of which 1 is right and 0
    and −1 are wrong. A shaped score is no verdict; ``--metric`` may name another field.
    """

    name = "verl rollouts (fields input, output, score)"

    def fits(self, path: Path) -> bool:
        """By the fields of the first object."""
        return {"input", "output", "score"} <= set(first_names(path))

    def read(self, path: Path, metric: str | None) -> Iterator[Imported]:
        """Read the records."""
        for place, row in json_lines(path):
            with row_of(self.name, place):
                response = _response(row, metric, place)
            yield response


def _response(row: dict[str, Any], metric: str | None, place: str) -> Imported:
    name = metric or next(field for field in _SCORES if field in row)
    if name not in row:
        raise UserError(f"{place}: no score {name!r}; its fields are {', '.join(row)}")
    score = row[name]
    verdict = Status.WRONG if score == -1 else as_verdict(score, place)
    prompt = hashlib.sha256(row["input"].encode()).hexdigest()
    return Imported(
        f"prompt-{prompt[:16]}",
        verdict,
        step=int(row.get("step", 0)),
        text=str(row["output"]),
        answer=str(row.get("pred") or ""),
        # What else a reward function takes, such as a table, is no reference answer.
        gold=single_reference(row.get("gts")),
        question=row["input"],
    )
