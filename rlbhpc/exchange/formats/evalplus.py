"""Results of EvalPlus: ``*_eval_results.json``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.exchange.formats.form import Form, Imported, ImportedCounts
from rlbhpc.exchange.formats.json_stream import entries, first_value
from rlbhpc.verify.verdict import Status

_STATUS: Final = {"pass": Status.RIGHT, "fail": Status.WRONG, "timeout": Status.TIMEOUT}


class EvalPlusResults(Form):
    """Programs by task, each with a status on the base tests and on the added ones.

    A program is right if it passes both; ``--metric base`` asks for the base tests alone.
    """

    name = "EvalPlus results (*_eval_results.json)"

    def fits(self, path: Path) -> bool:
        """By the ending and the first task's list of programs."""
        return isinstance(first_value(path, "eval"), list)

    def records(self, path: Path) -> Iterator[tuple[str, Any]]:
        """Every program with its task and its number there."""
        for task, programs in entries(path, "eval"):
            for number, program in enumerate(programs):
                yield f"{path}: {task}, program {number}", (task, number, program)

    def read(self, path: Path, metric: str | None) -> Iterator[Imported | ImportedCounts]:
        """Read every program."""
        if metric not in (None, "base", "plus"):
            raise UserError(f"{path}: no score {metric!r}; allowed are base and plus")
        return super().read(path, metric)

    def responses(self, row: Any, metric: str | None, place: str) -> Iterator[Imported]:
        """The program; its solution is the text."""
        task, number, program = row
        base = _STATUS[program["base_status"]]
        added = program.get("plus_status")
        if metric == "plus" and added is None:
            raise ValueError("only the base tests were run; use --metric base")
        verdict = base
        if metric != "base" and added is not None and base is Status.RIGHT:
            verdict = _STATUS[added]
        yield Imported(task, verdict, number, text=str(program.get("solution") or ""))
