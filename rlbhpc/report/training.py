"""Training curves of the models of a run, whatever their trainer called the metrics."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

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
    """Metrics of one model over optimizer steps; ``frame`` has ``train_step`` and METRICS."""

    model: str
    frame: pd.DataFrame


def training(report: Report) -> list[Training]:
    """Read the training curves of a run; nothing where none were recorded.

    They stand in the cube where they were imported, and beside the training state where the run
    trained its models itself.
    """
    found = {}
    for node in open_cube(report.folder).subtree:
        if node.attrs.get("kind") == TRAINING:
            group = node.to_dataset()
            names = [str(name) for name in group.data_vars]
            frame = group[["train_step", *names]].to_dataframe().reset_index()
            found[str(group["model"].item())] = frame
    for model, path in sorted(Layout(report.folder).dynamics().items()):
        lines = path.read_text().splitlines()
        # A line that a trainer is writing at this moment has no end yet.
        rows = [json.loads(line) for line in lines if line.endswith("}")]
        frame = pd.DataFrame(rows).rename(columns={"step": "train_step"})
        found[model] = frame.rename(columns=lambda name: str(name).replace("/", "."))
    return [Training(model, _shown(frame)) for model, frame in found.items() if len(frame)]


def _shown(frame: pd.DataFrame) -> pd.DataFrame:
    columns = {"train_step": frame["train_step"]}
    for name, known in METRICS.items():
        there = next((m for m in known if m.replace("/", ".") in frame), None)
        if there is not None:
            columns[name] = frame[there.replace("/", ".")]
    return pd.DataFrame(columns)
