"""Training curves of the models of a run, whatever their trainer called the metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report, once, single_chart, tables_of
from rlbhpc.report.draw.chart import Chart, Colours, Key, Panel, linear_axis
from rlbhpc.report.draw.svg import figure
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.store.cube_schema import TRAINING
from rlbhpc.store.tables import log_lines
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
# Points of a curve that are drawn: more than a panel has pixels show nothing more.
_POINTS: Final = 400
# Characters of a response that a table shows.
_WRITTEN: Final = 400


@dataclass(frozen=True)
class Training:
    """Metrics of one model over optimizer steps; ``frame`` has ``train_step`` and METRICS.

    ``written`` are responses of the first and the last step, as the trainer stored them.
    """

    model: str
    frame: pd.DataFrame
    written: tuple[dict[str, Any], ...] = ()


@once
def training(report: Report) -> list[Training]:
    """Read the training curves of a run; nothing where none were recorded.

    They stand in the cube where they were imported, and beside the training state where the run
    trained its models itself.
    """
    frames: dict[str, pd.DataFrame] = {}
    written: dict[str, tuple[dict[str, Any], ...]] = {}
    for group in report.groups(TRAINING):
        names = [str(name) for name in group.data_vars]
        frame = group[["train_step", *names]].to_dataframe().reset_index()
        frames[str(group["model"].item())] = frame
    for model, path in sorted(Layout(report.folder).dynamics().items()):
        frame = pd.DataFrame(log_lines(path)).rename(columns={"step": "train_step"})
        frames[model] = frame.rename(columns=lambda name: str(name).replace("/", "."))
        rollouts = log_lines(path.with_name("rollouts.jsonl"))
        ends = {rollouts[0]["step"], rollouts[-1]["step"]} if rollouts else set()
        written[model] = tuple(row for row in rollouts if row["step"] in ends)
    return [
        Training(model, _renamed(frame), written.get(model, ()))
        for model, frame in frames.items()
        if len(frame)
    ]


def _renamed(frame: pd.DataFrame) -> pd.DataFrame:
    columns = {"train_step": frame["train_step"]}
    for name, aliases in METRICS.items():
        alias = next((m for m in aliases if m.replace("/", ".") in frame), None)
        if alias is not None:
            columns[name] = frame[alias.replace("/", ".")]
    return pd.DataFrame(columns)


def section(report: Report) -> Iterator[Node]:
    """Curves, their first and last tenth, and what models wrote."""
    models = training(report)
    if not models:
        return
    caption = "Training curves as the trainer logged them, all models."
    yield el("h3", "Training")
    yield figure(caption, training_chart(models, report.colours))
    rows: list[list[Cell]] = []
    for model in models:
        for name in METRICS:
            ends = first_and_last_tenth(model.frame[name]) if name in model.frame else None
            if ends is not None:
                rows.append([model.model, name, int(model.frame[name].count()), *ends])
    heads = ["model", "metric", "steps", "first tenth, mean", "last tenth, mean"]
    yield table("Training curves from their first to their last tenth", heads, rows)
    rows = [
        [model.model, row["step"], row["problem"], _cut(row["text"]), row["tokens"],
         "right" if row["correct"] else "wrong", row["reward"]]
        for model in models
        for row in model.written
    ]  # fmt: skip
    heads = ["model", "step", "problem", "response", "tokens", "verdict", "reward"]
    if rows:
        yield table("Responses of the first and the last step", heads, rows, wide=(3,))


def training_chart(models: Sequence[Training], colours: Colours) -> Chart:
    """Draw one panel per metric that any model has, one line per model."""
    panels = []
    for name in METRICS:
        frames = {model.model: model.frame for model in models if name in model.frame}
        if frames:
            panels.append(over_steps(frames, name, name, colours))
    legend = tuple(Key(model.model, colours[model.model]) for model in models)
    return Chart(panels, lambda: training_frame(models), legend)


def over_steps(
    frames: Mapping[str, pd.DataFrame], name: str, title: str, colours: Colours, *,
    zero: bool = False,
) -> Panel:  # fmt: skip
    """Draw one column of the frames of some models over optimizer steps."""
    curves = {model: frame[["train_step", name]].dropna() for model, frame in frames.items()}
    x = linear_axis([curve["train_step"] for curve in curves.values()], "optimizer step")
    y = linear_axis([curve[name] for curve in curves.values()], "", zero=zero)
    panel = Panel(x, y, title, 140)
    for model, curve in curves.items():
        thin = curve.iloc[:: max(1, len(curve) // _POINTS)]
        panel.line(thin["train_step"], thin[name], colours[model], name=model, width=1.2)
    return panel


def training_frame(models: Sequence[Training]) -> pd.DataFrame:
    """One row per model, metric and optimizer step."""
    parts = [
        model.frame.melt("train_step", var_name="metric", value_name="value").assign(
            model=model.model
        )
        for model in models
    ]
    if not parts:
        return pd.DataFrame(columns=["model", "metric", "train_step", "value"])
    whole = pd.concat(parts, ignore_index=True).dropna(subset="value")
    return whole[["model", "metric", "train_step", "value"]]


def first_and_last_tenth(column: pd.Series) -> tuple[float, float] | None:
    """Means of the first and the last tenth of a curve: one step alone is noise."""
    values = column.dropna().to_numpy()
    if not len(values):
        return None
    part = max(1, len(values) // 10)
    return float(values[:part].mean()), float(values[-part:].mean())


def _cut(text: str) -> str:
    return text if len(text) <= _WRITTEN else f"{text[:_WRITTEN]} …"


charts = single_chart("training_dynamics", training, training_chart)

ASPECT = Aspect(
    Part.TRAINING,
    section,
    tables=tables_of(training, training=training_frame),
    charts=charts,
)
