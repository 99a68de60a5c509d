"""Training curves of the models of a run, whatever their trainer called the metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report, once_each, single_chart, tables_of
from rlbhpc.report.chart import Chart, Colours, Key, Panel, linear_axis
from rlbhpc.report.markup import Node, el, table
from rlbhpc.report.svg import figure
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
_DRAWN_POINTS: Final = 400
# Characters of a response that a table shows.
_SHOWN_CHARACTERS: Final = 400


@dataclass(frozen=True)
class Training:
    """Metrics of one model over optimizer steps.

    ``frame``: columns ``train_step`` and those of ``METRICS`` that were logged. ``rollouts``:
    responses of the first and the last step, as the trainer stored them.
    """

    model: str
    frame: pd.DataFrame
    rollouts: tuple[dict[str, Any], ...] = ()


@once_each
def training(report: Report) -> Iterator[Training]:
    """Read the training curves of a run; nothing where none were recorded.

    They stand in the cube where they were imported, and beside the training state where the run
    trained its models itself: ``dynamics`` gives the log of each model, and ``rollouts.jsonl``
    beside it has responses. Of these the ones of the first and the last step are kept. Both use "."
    in names of metrics where trainers write "/".
    """
    logs: dict[str, pd.DataFrame] = {}
    rollouts: dict[str, tuple[dict[str, Any], ...]] = {}
    for group in report.groups(TRAINING):
        columns = ["train_step", *map(str, group.data_vars)]
        logs[str(group["model"].item())] = group[columns].to_dataframe().reset_index()
    for model, path in sorted(Layout(report.folder).dynamics().items()):
        log = pd.DataFrame(log_lines(path)).rename(columns={"step": "train_step"})
        logs[model] = log.rename(columns=lambda name: str(name).replace("/", "."))
        rows = log_lines(path.with_name("rollouts.jsonl"))
        steps = {rows[0]["step"], rows[-1]["step"]} if rows else set()
        rollouts[model] = tuple(row for row in rows if row["step"] in steps)
    for model, log in logs.items():
        if len(log):
            yield Training(model, _with_our_names(log), rollouts.get(model, ()))


def _with_our_names(log: pd.DataFrame) -> pd.DataFrame:
    """The log with the report's names of metrics, each from the first trainer's name that it has.

    ``log``: a row per step. ``METRICS``: what is shown, with the names under which trainers log it.
    """
    columns = {"train_step": log["train_step"]}
    for metric, logged_names in METRICS.items():
        for logged_name in logged_names:
            column = logged_name.replace("/", ".")
            if column in log:
                columns[metric] = log[column]
                break
    return pd.DataFrame(columns)


def section(report: Report) -> Iterator[Node]:
    """Show the training curves, the means of their first and last tenths, and some responses.

    ``model.frame``: a row per optimizer step, a column per metric. ``model.rollouts``: responses of
    the first and the last step.
    """
    models = training(report)
    if not models:
        return
    yield el("h3", "Training")
    caption = "Training curves as the trainer logged them, all models."
    yield figure(caption, training_chart(models, report.colours))
    rows = []
    for model in models:
        for metric in model.frame.columns.drop("train_step"):
            column = model.frame[metric]
            ends = first_and_last_tenth(column)
            if ends is not None:
                rows.append([model.model, metric, int(column.count()), *ends])
    heads = ["model", "metric", "steps", "first tenth, mean", "last tenth, mean"]
    yield table("Training curves from their first to their last tenth", heads, rows)
    responses = [
        [model.model, row["step"], row["problem"], _cut(row["text"]), row["tokens"],
         "right" if row["correct"] else "wrong", row["reward"]]
        for model in models
        for row in model.rollouts
    ]  # fmt: skip
    heads = ["model", "step", "problem", "response", "tokens", "verdict", "reward"]
    if responses:
        yield table("Responses of the first and the last step", heads, responses, wide=(3,))


def training_chart(models: Sequence[Training], colours: Colours) -> Chart:
    """Draw one panel per metric that any model has, one line per model.

    ``model.frame``: a row per optimizer step, a column per metric.
    """
    panels = []
    for metric in METRICS:
        frames = {model.model: model.frame for model in models if metric in model.frame}
        if frames:
            panels.append(metric_panel(frames, metric, metric, colours))
    legend = tuple(Key(model.model, colours[model.model]) for model in models)
    return Chart(panels, lambda: training_frame(models), legend)


def metric_panel(
    frame_of_model: Mapping[str, pd.DataFrame], metric: str, title: str, colours: Colours, *,
    zero: bool = False,
) -> Panel:  # fmt: skip
    """Draw one column of the frames of some models over optimizer steps.

    ``frame_of_model``: a row per step, with ``train_step`` and the metric. ``zero``: whether the
    axis holds 0. Of a long curve every ``stride``-th point is drawn.
    """
    curves = {
        model: frame[["train_step", metric]].dropna() for model, frame in frame_of_model.items()
    }
    x = linear_axis([curve["train_step"] for curve in curves.values()], "optimizer step")
    y = linear_axis([curve[metric] for curve in curves.values()], "", zero=zero)
    panel = Panel(x, y, title, 140)
    for model, curve in curves.items():
        stride = max(1, len(curve) // _DRAWN_POINTS)
        drawn = curve.iloc[::stride]
        panel.line(drawn["train_step"], drawn[metric], colours[model], name=model, width=1.2)
    return panel


def training_frame(models: Sequence[Training]) -> pd.DataFrame:
    """All training curves as one long table, one row per model, metric and optimizer step.

    ``model.frame``: a row per step, a column per metric; ``melt`` puts the columns below each
    other.
    """
    columns = ["model", "metric", "train_step", "value"]
    parts = [
        model.frame.melt("train_step", var_name="metric", value_name="value").assign(
            model=model.model
        )
        for model in models
    ]
    if not parts:
        return pd.DataFrame(columns=columns)
    return pd.concat(parts, ignore_index=True).dropna(subset="value")[columns]


def first_and_last_tenth(column: pd.Series) -> tuple[float, float] | None:
    """Means of the first and the last tenth of a curve: one step alone is noise."""
    values = column.dropna().to_numpy()
    if not len(values):
        return None
    tenth = max(1, len(values) // 10)
    return float(values[:tenth].mean()), float(values[-tenth:].mean())


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]} …"


charts = single_chart("training_dynamics", training, training_chart)

ASPECT = Aspect(
    Part.TRAINING,
    section,
    tables=tables_of(training, training=training_frame),
    charts=charts,
)
