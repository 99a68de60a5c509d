"""Write docs/learning.md: what each algorithm learnt in runs of ``configs/learning.yaml``.

Example: python -m tools.learning runs/learning/*/
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from rlbhpc.store.reader import open_cube

ROOT = Path(__file__).parents[1]
BASE = "base"
SETS = {"learnt": "the 128 problems trained on", "others": "96 other problems"}
PAGE = """# What each algorithm learns

Nine algorithms train the quickstart's distilled model on the same 128 Countdown problems with one
budget (`configs/learning.yaml`: {steps} steps of 16 prompts × 16 responses in two mini-batches, the
same learning rate), with {seeds} seeds of the rollouts each. Greedy answers (temperature 0) tell
what came of it. Made by `make quickstart` and `tools/learning.sh {names}`.

![Greedy accuracy over steps](learning.png)

## Greedy accuracy after {steps} steps, percent

{accuracy}

Lift: points above the base, mean over seeds, each seed in brackets. Noise: standard deviation of
the lift between seeds. The base has {base_learnt:.1f} % on the problems that are trained on, and
{base_others:.1f} % on the 96 others, which tell how much of the lift carries over.

## What moved inside

{inside}

PPO's critic starts at 0. DAPO may refill a step {refills} times, and throws no group away that has
a signal; it samples more prompts for as many updates.

## What it says

{verdict}

On the other problems the lift is between {worst:+.1f} and {best:+.1f} points: so few
problems, seen so often, are learnt by heart. [The quickstart](quickstart.md) trains GRPO on 1,500
at half the rate, and there it carries over.
"""


def accuracies(runs: list[Path]) -> pd.DataFrame:
    """Share of greedy answers that are right: seed, arm, step, set, accuracy."""
    rows = []
    for run in runs:
        tree = open_cube(run)
        for path in tree.groups:
            arm, _, name = path.strip("/").partition("/")
            if name not in SETS:
                continue
            counts = tree[path].dataset.rlb.counts()
            right = (counts["c"] / counts["n"]).mean("problem")
            rows += [
                (run.name, arm, int(step), name, float(value))
                for step, value in zip(right["step"].values, right.values, strict=True)
            ]
    return pd.DataFrame(rows, columns=["seed", "arm", "step", "set", "accuracy"])


def dynamics(runs: list[Path], model: str) -> list[pd.DataFrame]:
    """What a trainer logged of a model, a frame per run."""
    files = [run / "training" / model / "dynamics.jsonl" for run in runs]
    return [pd.DataFrame(map(json.loads, f.read_text().splitlines())) for f in files]


def at_end(frame: pd.DataFrame, arm: str, name: str) -> pd.Series:
    """Accuracy of each seed at the last step of an arm."""
    chosen = frame[(frame["arm"] == arm) & (frame["set"] == name)]
    return chosen[chosen["step"] == chosen["step"].max()].set_index("seed")["accuracy"]


def accuracy_table(frame: pd.DataFrame, arms: list[str]) -> str:
    """One line per algorithm."""
    heads = ("algorithm", "trained on", "lift", "noise", "lift / noise", "others", "lift")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for arm in arms:
        cells = [f"`{arm}`"]
        for name in SETS:
            end = at_end(frame, arm, name)
            lift = 100 * (end - at_end(frame, BASE, name))
            each = ", ".join(f"{value:+.1f}" for value in lift)
            cells += [f"{100 * end.mean():.1f}", f"{lift.mean():+.1f} ({each})"]
            if name == "learnt":
                noise = float(lift.std(ddof=1))
                cells += [f"{noise:.1f}", f"{lift.mean() / noise:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def verdict(frame: pd.DataFrame, arms: list[str]) -> str:
    """Which algorithms lift the problems trained on by more than twice the noise of one seed."""
    lifts = {arm: at_end(frame, arm, "learnt") - at_end(frame, BASE, "learnt") for arm in arms}
    clear = {arm for arm, lift in lifts.items() if lift.mean() > 2 * lift.std(ddof=1)}
    words = [f"Beyond twice the noise: {', '.join(f'`{a}`' for a in arms if a in clear)}."]
    if rest := [f"`{a}`" for a in arms if a not in clear]:
        words.append(f"Not so: {', '.join(rest)}.")
    return " ".join(words)


def inside_table(runs: list[Path]) -> str:
    """Value loss of PPO, refills of DAPO: one line per seed."""
    heads = (
        "seed",
        "PPO: value loss, first step, first five, last five",
        "DAPO: refills, mean and most",
        "prompts drawn for 16",
    )
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for run, ppo, dapo in zip(runs, dynamics(runs, "ppo"), dynamics(runs, "dapo"), strict=True):
        loss, refills = ppo["critic/vf_loss"], dapo["dapo/refills"]
        lines.append(
            f"| {run.name} | {loss.iloc[0]:.3f}, {loss[:5].mean():.3f}, {loss[-5:].mean():.3f} | "
            f"{refills.mean():.1f} and {refills.max():.0f} | {dapo['dapo/prompts'].mean():.0f} |"
        )
    return "\n".join(lines)


def draw(frame: pd.DataFrame, arms: list[str], path: Path) -> None:
    """Greedy accuracy over steps: a panel per algorithm, a line per seed and problem set."""
    columns = 3
    rows = -(-len(arms) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(9, 2.4 * rows), sharex=True, sharey=True)
    colours = {"learnt": "#0072b2", "others": "#d55e00"}
    for arm, ax in zip(arms, axes.flat, strict=False):
        for name, colour in colours.items():
            start = at_end(frame, BASE, name)
            ax.axhline(100 * start.mean(), color=colour, lw=0.8, ls=":")
            chosen = frame[(frame["arm"] == arm) & (frame["set"] == name)]
            for i, (seed, part) in enumerate(chosen.groupby("seed")):
                label = SETS[name] if i == 0 and arm == arms[0] else None
                values = np.concatenate([[start[seed]], part["accuracy"]])
                ax.plot([0, *part["step"]], 100 * values, color=colour, lw=1.2, label=label)
        ax.set_title(arm, fontsize=9)
        ax.tick_params(labelsize=8)
    figure.supxlabel("training step", fontsize=9)
    figure.supylabel("greedy answers right, %", fontsize=9)
    figure.legend(loc="upper center", ncols=2, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.96))
    figure.savefig(path, dpi=130)


def main(folders: list[str]) -> None:
    """Write page and figure from the runs in ``folders``."""
    runs = [Path(folder) for folder in folders]
    if len(runs) < 2:
        raise SystemExit("the noise between seeds takes two seeds: tools/learning.sh 0 1 2")
    frame = accuracies(runs)
    arms = [arm for arm in dict.fromkeys(frame["arm"]) if arm != BASE]
    draw(frame, arms, ROOT / "docs" / "learning.png")
    others = [
        100 * (at_end(frame, a, "others") - at_end(frame, BASE, "others")).mean() for a in arms
    ]
    page = PAGE.format(
        steps=frame["step"].max(),
        seeds=len(runs),
        names=" ".join(run.name for run in runs),
        accuracy=accuracy_table(frame, arms),
        inside=inside_table(runs),
        base_learnt=100 * at_end(frame, BASE, "learnt").mean(),
        base_others=100 * at_end(frame, BASE, "others").mean(),
        refills=max_refills(),
        verdict=verdict(frame, arms),
        worst=min(others),
        best=max(others),
    )
    (ROOT / "docs" / "learning.md").write_text(page)


def max_refills() -> int:
    """How often DAPO may refill a step."""
    from rlbhpc.train.algorithms.dapo import DAPO

    return DAPO().max_refills


if __name__ == "__main__":
    main(sys.argv[1:])
