"""Training curves on other people's boards: TensorBoard, and Weights & Biases.

Both are fed from the step logs, by a command of its own and never by training: a board that fails,
a service that is slow or a signal that ends its helper costs no training step, nor is anything of
them wanted in the image that trains. The copy is made anew each time, and lacks nothing that a
killed attempt held back.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.store.step_log import lines
from rlbhpc.study.layout import Layout

Row = Mapping[str, float]


class TensorBoard:
    """One folder of event files a model: ``tensorboard --logdir FOLDER`` lays them over."""

    def __init__(self, folder: Path, model: str) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer: Any = EventFileWriter(str(folder / model))

    def show(self, step: int, row: Row) -> None:
        """Add a point to each curve."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in row.items()]
        self._writer.add_event(Event(step=step, summary=Summary(value=values)))

    def flush(self) -> None:
        """Let readers see what was added."""
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


class Wandb:
    """One W&B run a model, without a network unless ``WANDB_MODE`` says online.

    Its name at W&B is that of the model in this folder, whenever the copy is made: a later copy of
    a longer run goes on where the earlier one ended.
    """

    def __init__(self, folder: Path, model: str) -> None:
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        # It reports on itself by way of its server, offline or not.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        run = folder.parent.parent
        place = hashlib.sha256(f"{run.resolve()} {model}".encode()).hexdigest()[:16]
        try:
            quiet = wandb.Settings(
                silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True
            )
            self._run: Any = wandb.init(
                mode=mode, project="rlbhpc", group=run.name, name=model, id=place, resume="allow",
                dir=folder, reinit="create_new", settings=quiet,
            )  # fmt: skip
        except (wandb.Error, ValueError) as error:
            why = str(error).splitlines()[0]
            raise UserError(
                f"W&B does not begin a run: {why}; WANDB_MODE=offline needs no account"
            ) from None

    def show(self, step: int, row: Row) -> None:
        """Add a point to each curve."""
        self._run.log(dict(row), step=step, commit=True)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """End the run."""
        self._run.finish()


Board = TensorBoard | Wandb
BOARDS: Final[Mapping[str, type[Board]]] = {"tensorboard": TensorBoard, "wandb": Wandb}


class Copy:
    """The curves of all models of a run on one board."""

    def __init__(self, layout: Layout, board: str) -> None:
        if importlib.util.find_spec(board) is None:
            raise UserError(f"{board} is not here; in a checkout: pip install '.[boards]'")
        self.folder = layout.boards / board
        self._layout = layout
        self._make = BOARDS[board]
        self._open: dict[str, Board] = {}
        self.shown: dict[str, int] = {}

    def __enter__(self) -> Copy:
        """Boards are opened as models appear."""
        return self

    def __exit__(self, *exc: object) -> None:
        for board in self._open.values():
            board.close()

    def look(self) -> int:
        """Copy the steps that were logged since the last look; how many."""
        new = 0
        for model, path in sorted(self._layout.dynamics().items()):
            # A run that goes on writes its last steps once more; they are shown already. Where they
            # are other draws (rollouts by vLLM), a copy that is made anew has those that count.
            fresh = [(s, row) for s, row in steps(path.parent) if s > self.shown.get(model, 0)]
            if not fresh:
                continue
            if not self._open:
                shutil.rmtree(self.folder, ignore_errors=True)  # an earlier copy
            if model not in self._open:
                try:
                    self._open[model] = self._make(self.folder, model)
                except OSError as error:
                    raise UserError(f"{self.folder}: cannot be written: {error}") from None
            for step, row in fresh:
                self._open[model].show(step, row)
            self._open[model].flush()
            self.shown[model] = fresh[-1][0]
            new += len(fresh)
        return new


def steps(folder: Path) -> Iterator[tuple[int, Row]]:
    """Numbers of the finished training steps in a training folder, in order."""
    timed = (folder / "timings.jsonl").exists()  # not in supervised training
    times = {row.pop("step"): row for row in lines(folder / "timings.jsonl")}
    saved = [
        int(path.name.removeprefix("step-")) for path in (folder / "state").glob("step-*[0-9]")
    ]
    last = max([*times, *saved], default=0)
    for row in lines(folder / "dynamics.jsonl"):
        step = row.pop("step")
        # A step's times are the last that is logged of it; a kill may have come before them.
        if step <= last or not timed:
            yield step, row | times.get(step, {})
