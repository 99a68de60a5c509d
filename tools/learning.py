"""Put the tables and the figure of ``configs/learning*.yaml`` into docs/learning.md.

Seeds that are not whole yet are left out; a recipe of which none is whole has no row. What stands
around the tables is written by hand.

Example: python -m tools.learning runs/learning runs/learning-programs runs/calculator
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.ticker import MaxNLocator
from scipy.stats import ttest_ind

from rlbhpc.stats.counts import Counts
from rlbhpc.stats.decision import Answer, answer
from rlbhpc.stats.interval import Interval
from rlbhpc.store.reader import open_cube
from rlbhpc.verify.verdict import Status

DOCS: Final = Path(__file__).parents[1] / "docs"
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Algorithms": ("ppo", "grpo", "dr_grpo", "reinforce++", "reinforce++_baseline", "rloo",
                   "remax", "dapo", "maxrl"),
    "Exploration and after": ("clip-cov", "kl-cov", "cispo", "gspo", "pass-at-k", "negative",
                              "unlikeliness", "success-gate", "prorl", "credit", "distillation"),
    "Without a verifier, or gold": ("rlpr", "ttrl"),
    "Trained on the held-out problems": ("ttrl-test", "oracle"),
    "Controls": ("random", "inverted", "format", "likelihood", "noisy"),
}  # fmt: skip
COLOURS: Final = dict(
    zip(GROUPS, ("#0072b2", "#009e73", "#cc79a7", "#e69f00", "#7f7f7f"), strict=True)
)
# Training steps whose mean a point of a curve is.
SMOOTH: Final = 4
PROGRAMS: Final = ("absolute-zero", "chance")
KINDS: Final = ("deduction", "abduction", "induction")
# Of the study with a calculator: most turns, and samples that are drawn.
TURNS: Final = (1, 2, 3, 4)
DRAWN: Final = (1, 4, 16)


Curve = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
"""Steps and values."""


@dataclass(frozen=True)
class Row:
    """All whole seeds of one recipe against the base."""

    recipe: str
    answer: Answer
    entropy: float

    @property
    def clears(self) -> bool:
        """Whether the difference at k = 1 is beyond chance."""
        return beyond(self.answer.efficiency)


def beyond(interval: Interval) -> bool:
    """Whether an interval leaves 0 out."""
    return bool(interval.low > 0 or interval.high < 0)


def counts_of(samples: xr.Dataset, where: Any = slice(None)) -> Counts:
    """Counts of the chosen problems of a group of the cube."""
    both = samples.rlb.counts().isel(step=-1, problem=where)
    return Counts.of(both["n"].values, both["c"].values)


def entropy_of(samples: xr.Dataset) -> float:
    """Mean entropy of a response token, nat."""
    last = samples.isel(step=-1)
    return float(last["entropy_sum"].sum() / last["n_tokens"].where(last["n_tokens"] > 0).sum())


def whole_seeds(tree: xr.DataTree, recipe: str, problem_set: str) -> dict[str, xr.Dataset]:
    """Samples of the seeds of a recipe that have as many as the base, by arm."""
    asked = counts_of(tree[f"base/{problem_set}"].dataset).n
    found = {
        arm: tree[f"{arm}/{problem_set}"].dataset
        for arm in (f"{recipe}-s{seed}" for seed in range(9))
        if f"/{arm}/{problem_set}" in tree.groups
    }
    return {arm: group for arm, group in found.items() if (counts_of(group).n == asked).all()}


def row_of(
    tree: xr.DataTree, recipe: str, problem_set: str, where: Any = slice(None)
) -> Row | None:
    """Compare the whole seeds of a recipe with the base; None where there is none."""
    groups = whole_seeds(tree, recipe, problem_set)
    if not groups:
        return None
    base = counts_of(tree[f"base/{problem_set}"].dataset, where)
    return Row(
        recipe,
        answer(base, [counts_of(group, where) for group in groups.values()]),
        float(np.mean([entropy_of(group) for group in groups.values()])),
    )


def points(interval: Interval) -> str:
    """An interval of a difference in points."""
    value = f"{100 * float(interval.estimate):+.1f}"
    if np.isnan(interval.low):
        return value
    return f"{value} [{100 * interval.low:+.1f}, {100 * interval.high:+.1f}]"


def countdown_table(tree: xr.DataTree, rows: Mapping[str, list[Row]]) -> str:
    """One line per recipe."""
    base = tree["base/held-out"].dataset
    first, last = counts_of(base).pass_at_k([1, 256]).mean(0)
    lines = [
        "| | seeds | pass@1, points | only base | only trained | pass@256, points | entropy |",
        "|---|---|---|---|---|---|---|",
        f"| **base** | | {100 * first:.1f} % | | | {100 * last:.1f} % | {entropy_of(base):.2f} |",
    ]
    for group, members in rows.items():
        lines += [f"| **{group}** | | | | | | |"] if members else []
        for row in members:
            found = row.answer
            name = f"**`{row.recipe}`**" if row.clears else f"`{row.recipe}`"
            lines.append(
                f"| {name} | {found.seeds} | {points(found.efficiency)} | {found.lost.count} | "
                f"{found.gained.count} | {points(found.net)} | {row.entropy:.2f} |"
            )
    return "\n".join(lines)


def labels_table(tree: xr.DataTree) -> str:
    """What the votes of TTRL were worth, by seed: first and last eight steps."""
    names = ("ttrl.label_accuracy", "ttrl.reward_accuracy", "ttrl.majority_ratio")
    lines = ["| run | label accuracy | reward accuracy | majority ratio |", "|---|---|---|---|"]
    for arm in (f"{recipe}-s{seed}" for recipe in ("ttrl", "ttrl-test") for seed in range(9)):
        if f"/{arm}/held-out" in tree.groups and f"/training/{arm}" in tree.groups:
            curves = [tree[f"training/{arm}"].dataset[name].values for name in names]
            cells = [f"{c[:8].mean():.2f} → {c[-8:].mean():.2f}" for c in curves]
            lines.append(f"| `{arm}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def tasks_of(tree: xr.DataTree, kind: str) -> np.ndarray[Any, Any]:
    """Positions of the tasks of one type."""
    ids = tree["base/program-tasks"].dataset["problem"].values.astype(str)
    return np.flatnonzero([f"/{kind}" in i for i in ids])


def solved_by_seed(tree: xr.DataTree, recipe: str, kind: str) -> list[float]:
    """pass@1 on the tasks of one type after each whole training, percent."""
    where = tasks_of(tree, kind)
    groups = whole_seeds(tree, recipe, "program-tasks").values()
    return [100 * float(counts_of(group, where).pass_at_k(1).mean()) for group in groups]


def programs_table(tree: xr.DataTree) -> str:
    """Absolute Zero and its control against their base, by type of task."""
    lines = [
        "| | tasks | base | by seed | pass@1, points | only base | only trained |",
        "|---|---|---|---|---|---|---|",
    ]
    base = tree["base/program-tasks"].dataset
    for recipe in PROGRAMS:
        for kind in KINDS:
            where = tasks_of(tree, kind)
            row = row_of(tree, recipe, "program-tasks", where)
            if row is not None:
                first = 100 * float(counts_of(base, where).pass_at_k(1).mean())
                seeds = ", ".join(f"{value:.1f}" for value in solved_by_seed(tree, recipe, kind))
                found = row.answer
                lines.append(
                    f"| `{recipe}` | {kind} | {first:.1f} % | {seeds} | "
                    f"{points(found.efficiency)} | {found.lost.count} | {found.gained.count} |"
                )
    return "\n".join(lines)


def control_table(tree: xr.DataTree) -> str:
    """Absolute Zero minus its control by type of task; 95 % by Welch's t over trainings.

    Pooling the trainings of either side would take their scatter for none.
    """
    lines = ["| tasks | `absolute-zero` − `chance`, points |", "|---|---|"]
    for kind in KINDS:
        own, control = (solved_by_seed(tree, recipe, kind) for recipe in PROGRAMS)
        if min(len(own), len(control)) > 1:
            bounds = ttest_ind(own, control, equal_var=False).confidence_interval()
            middle = np.mean(own) - np.mean(control)
            lines.append(f"| {kind} | {middle:+.1f} [{bounds.low:+.1f}, {bounds.high:+.1f}] |")
    return "\n".join(lines)


def surface_table(tree: xr.DataTree) -> str:
    """pass@(k, T) with a calculator, percent: a line per model and T."""
    heads = [f"k = {k}" for k in DRAWN]
    lines = [f"| | turns | {' | '.join(heads)} |", "|---" * (len(DRAWN) + 2) + "|"]
    for arm in ("base", "sft", "rl"):
        samples = tree[f"{arm}/held-out"].dataset
        for limit in TURNS:
            cells = [f"{100 * value:.1f}" for value in pass_within(samples, limit)]
            lines.append(f"| `{arm}` | {limit} | {' | '.join(cells)} |")
    return "\n".join(lines)


def pass_within(samples: xr.Dataset, limit: int) -> np.ndarray[Any, Any]:
    """pass@k for each k of :data:`DRAWN`, where an answer must come within so many turns."""
    last = samples.isel(step=-1)
    is_solved = (last["verdict"] == Status.RIGHT) & (last["n_turns"] <= limit)
    counts = Counts.of(counts_of(samples).n, is_solved.sum("sample").values)
    means: np.ndarray[Any, Any] = counts.pass_at_k(DRAWN).mean(0)
    return means


def draw(rows: Mapping[str, list[Row]], path: Path) -> None:
    """Differences at k = 1 and at k = 256 with their intervals, a line per recipe."""
    members = [(group, row) for group, found in rows.items() for row in found]
    figure, axes = plt.subplots(1, 2, figsize=(9, 0.9 + 0.24 * len(members)), sharey=True)
    sides: tuple[tuple[str, Callable[[Answer], Interval]], ...] = (
        ("pass@1, points", lambda found: found.efficiency),
        ("pass@256, points", lambda found: found.net),
    )
    for ax, (title, pick) in zip(axes, sides, strict=True):
        ax.axvline(0, color="#444444", lw=0.8)
        for y, (group, row) in enumerate(members):
            found = pick(row.answer)
            bounds = 100 * np.array([found.low, found.high])
            ax.plot(bounds, [y, y], color=COLOURS[group], lw=1.4)
            ax.plot(100 * float(found.estimate), y, "o", color=COLOURS[group], ms=4)
        ax.set_title(title, fontsize=9)
        ax.tick_params(labelsize=8)
    axes[0].set_yticks(range(len(members)), [row.recipe for _, row in members])
    axes[0].invert_yaxis()
    for group in rows:
        axes[1].plot([], [], color=COLOURS[group], label=group)
    figure.legend(loc="lower center", ncols=3, fontsize=7, frameon=False)
    figure.tight_layout(rect=(0, 1.1 / (0.9 + 0.24 * len(members)) / 2, 1, 1))
    figure.savefig(path, dpi=130)


def curve(tree: xr.DataTree, recipe: str, name: str) -> Curve | None:
    """A metric of finished trainings, averaged over seeds and over :data:`SMOOTH` steps."""
    runs = [
        tree[f"training/{recipe}-s{seed}"].dataset[name]
        for seed in range(9)
        if f"/training/{recipe}-s{seed}" in tree.groups
    ]
    if not runs:
        return None
    steps = max(run.size for run in runs)
    mean = np.mean([run.values for run in runs if run.size == steps], 0)
    kernel = np.full(SMOOTH, 1 / SMOOTH)
    return np.arange(SMOOTH, steps + 1), np.convolve(mean, kernel, "valid")


def draw_training(countdown: xr.DataTree, programs: xr.DataTree | None, path: Path) -> None:
    """What the trainings themselves saw: right responses, votes, and solved tasks."""
    figure, axes = plt.subplots(1, 3, figsize=(12, 4))
    titles = ("right responses", "votes of TTRL", "solved tasks")
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title, fontsize=9)
        ax.set_xlabel("training step", fontsize=8)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.tick_params(labelsize=8)

    def line(ax: Any, tree: xr.DataTree, recipe: str, name: str, **style: Any) -> None:
        points = curve(tree, recipe, name)
        if points is not None:
            ax.plot(*points, lw=1.2, **style)

    for group, recipes in GROUPS.items():
        axes[0].plot([], [], color=COLOURS[group], label=group)
        for recipe in recipes:
            line(axes[0], countdown, recipe, "critic.score.mean", color=COLOURS[group])
    for recipe, colour in (("ttrl", "#0072b2"), ("ttrl-test", "#e69f00")):
        for name, dash in (("label_accuracy", "-"), ("majority_ratio", "--")):
            words = f"{recipe}, {name.replace('_', ' ')}"
            line(axes[1], countdown, recipe, f"ttrl.{name}", color=colour, ls=dash, label=words)
    if programs is not None:
        for kind, colour in zip(KINDS, ("#0072b2", "#009e73", "#cc79a7"), strict=True):
            for recipe, dash in zip(PROGRAMS, ("-", "--"), strict=True):
                words = f"{recipe}, {kind}"
                line(axes[2], programs, recipe, f"azr.solved.{kind}", color=colour, ls=dash,
                     label=words)  # fmt: skip
    for ax in axes:
        ax.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, fontsize=7, frameon=False
        )
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def main(countdown: Path, programs: Path | None = None, calculator: Path | None = None) -> None:
    """Write page and figures."""
    tree = open_cube(countdown)
    tasks = None if programs is None else open_cube(programs)
    found = {
        group: [row for recipe in recipes if (row := row_of(tree, recipe, "held-out")) is not None]
        for group, recipes in GROUPS.items()
    }
    draw(found, DOCS / "learning.png")
    draw_training(tree, tasks, DOCS / "learning-steps.png")
    tables = {
        "countdown": countdown_table(tree, found),
        "labels": labels_table(tree),
    }
    if tasks is not None:
        tables |= {"programs": programs_table(tasks), "control": control_table(tasks)}
    if calculator is not None:
        tables["calculator"] = surface_table(open_cube(calculator))
    page = DOCS / "learning.md"
    text = page.read_text()
    for name, table in tables.items():
        mark = f"<!-- {name} -->"
        before, _, rest = text.partition(mark)
        after = rest.partition(mark)[2]
        text = f"{before}{mark}\n{table}\n{mark}{after}"
    page.write_text(text)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
