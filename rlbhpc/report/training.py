"""Training curves of the models of a run, whatever their trainer called the metrics."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd

from rlbhpc.report.gather import Report
from rlbhpc.store.cube_schema import TRAINING
from rlbhpc.store.reader import open_cube
from rlbhpc.study.layout import Layout

#: What is shown, in this order, each with the names under which trainers log it.
METRICS: Final = {
    "reward": ("critic/rewards/mean", "reward", "reward/mean"),
    "response length, tokens": ("response_length/mean", "length", "completions/mean_length"),
    "entropy, nat per token": ("actor/entropy", "entropy", "actor/entropy_loss"),
    "KL to the sampling policy": ("actor/ppo_kl", "kl"),
    "share of tokens clipped": ("actor/pg_clipfrac", "clip_fraction", "clip_ratio"),
    "gradient norm": ("actor/grad_norm", "grad_norm"),
}


@dataclass(frozen=True)
class Training:
    """Metrics of one model over optimizer steps; ``frame`` has ``train_step`` and METRICS.

    ``written`` are responses of the first and the last step, as the trainer kept them.
    """

    model: str
    frame: pd.DataFrame
    written: tuple[dict[str, Any], ...] = ()


def training(report: Report) -> list[Training]:
    """Read the training curves of a run; nothing where none were recorded.

    They stand in the cube where they were imported, and beside the training state where the run
    trained its models itself.
    """
    found, written = {}, {}
    for node in open_cube(report.folder).subtree:
        if node.attrs.get("kind") == TRAINING:
            group = node.to_dataset()
            names = [str(name) for name in group.data_vars]
            frame = group[["train_step", *names]].to_dataframe().reset_index()
            found[str(group["model"].item())] = frame
    for model, path in sorted(Layout(report.folder).dynamics().items()):
        frame = pd.DataFrame(lines(path)).rename(columns={"step": "train_step"})
        found[model] = frame.rename(columns=lambda name: str(name).replace("/", "."))
        kept = lines(path.with_name("rollouts.jsonl"))
        ends = {kept[0]["step"], kept[-1]["step"]} if kept else set()
        written[model] = tuple(row for row in kept if row["step"] in ends)
    return [
        Training(model, _shown(frame), written.get(model, ()))
        for model, frame in found.items()
        if len(frame)
    ]


def lines(path: Path) -> list[dict[str, Any]]:
    """Rows of a trainer's log, up to a line that is being written at this moment."""
    rows: list[dict[str, Any]] = []
    for line in path.read_text().splitlines() if path.is_file() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def _shown(frame: pd.DataFrame) -> pd.DataFrame:
    columns = {"train_step": frame["train_step"]}
    for name, known in METRICS.items():
        there = next((m for m in known if m.replace("/", ".") in frame), None)
        if there is not None:
            columns[name] = frame[there.replace("/", ".")]
    return pd.DataFrame(columns)
