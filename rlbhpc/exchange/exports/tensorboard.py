"""Training curves as event files of TensorBoard, a folder a model, made from the step logs.

``tensorboard --logdir`` lays the models over each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from rlbhpc.store.tables import log_lines
from rlbhpc.study.layout import Layout


def write_tensorboard(layout: Layout, folder: Path) -> int:
    """Write the curves of every model that the run trains; how many steps they have."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    count = 0
    for model, path in sorted(layout.dynamics().items()):
        writer = EventFileWriter(str(folder / model))
        for step, row in _finished_steps(path.parent):
            values = [Summary.Value(tag=name, simple_value=value) for name, value in row.items()]
            writer.add_event(Event(step=step, summary=Summary(value=values)))
            count += 1
        writer.close()
    return count


def _finished_steps(folder: Path) -> Iterator[tuple[int, Mapping[str, float]]]:
    """Numbers of the finished training steps in a training folder, each once and in order."""
    timed = (folder / "timings.jsonl").exists()  # not in supervised training
    times = {row.pop("step"): row for row in log_lines(folder / "timings.jsonl")}
    saved = [
        int(path.name.removeprefix("step-")) for path in (folder / "state").glob("step-*[0-9]")
    ]
    last = max([*times, *saved], default=0)
    shown = 0
    for row in log_lines(folder / "dynamics.jsonl"):
        step = row.pop("step")
        # A run that goes on writes its last steps once more. A step's times are the last that is
        # logged of it; a kill may have come before them.
        if shown < step and (step <= last or not timed):
            shown = step
            yield step, row | times.get(step, {})
