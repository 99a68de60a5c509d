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
SETS = {"learnt": "1,500 problems to train on", "others": "400 other problems"}
PAGE = """# What each algorithm learns

Nine algorithms train the quickstart's distilled model on the same 1,500 Countdown problems with one
budget (`configs/learning.yaml`: {steps} steps of 32 prompts × 16 responses, two epochs in two
mini-batches each, the same learning rate; the quickstart's, for twice as many steps), with {seeds}
seeds of the rollouts each. Greedy answers (temperature 0) tell what came of it. Made by
`make quickstart` and `tools/learning.sh {names}`.

![Greedy accuracy over steps](learning.png)

## Greedy accuracy after {steps} steps, percent

{accuracy}

Lift: points above the base, mean over seeds, each seed in brackets. Noise: standard deviation of
the lift between seeds. The base has {base_learnt:.1f} % on the problems to train on, and
{base_others:.1f} % on the 400 others, of which none was ever trained on.

## What moved inside

{inside}

The first two pairs are of one critic while the policy is held (`critic_warmup`): the rewards stay
as they are, and the loss tells of the critic alone. In PPO itself rewards grow, and with them the
loss of any critic; the share of the rewards' variance that the critic foresaw tells what it knows.
Critics start at 0. DAPO may refill a step {refills} times, and throws no group away that has a
signal; it samples more prompts for as many updates.

## What it says

{verdict}

Fifty steps were planned. Two seeds of them were looked at, in which `dr_grpo` and `remax` stayed
within the noise on the problems to train on; then the budget was doubled for all. The curves still
jump by some points from one checkpoint to the next: the learning rate is constant, and greedy
answers of so small a model hang by little.
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


def lifts(frame: pd.DataFrame, arm: str, name: str) -> pd.Series:
    """Points of each seed above the base."""
    return 100 * (at_end(frame, arm, name) - at_end(frame, BASE, name))


def accuracy_table(frame: pd.DataFrame, arms: list[str]) -> str:
    """One line per algorithm."""
    of_set = ("lift", "noise", "lift / noise")
    heads = ("algorithm", "to train on", *of_set, "others", *of_set)
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for arm in arms:
        cells = [f"`{arm}`"]
        for name in SETS:
            lift = lifts(frame, arm, name)
            noise = float(lift.std(ddof=1))
            each = ", ".join(f"{value:+.1f}" for value in lift)
            cells += [f"{100 * at_end(frame, arm, name).mean():.1f}"]
            cells += [f"{lift.mean():+.1f} ({each})", f"{noise:.1f}", f"{lift.mean() / noise:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def verdict(frame: pd.DataFrame, arms: list[str]) -> str:
    """Which algorithms lift greedy accuracy by more than twice the noise of one seed."""
    lines = []
    for name, words in SETS.items():
        lift = {arm: lifts(frame, arm, name) for arm in arms}
        clear = [arm for arm in arms if lift[arm].mean() > 2 * lift[arm].std(ddof=1)]
        rest = [f"`{arm}`" for arm in arms if arm not in clear]
        lines.append(
            f"- On {words}, lifted by more than twice the noise: {len(clear)} of {len(arms)}"
            + (f"; not {', '.join(rest)}." if rest else ".")
        )
    return "\n".join(lines)


def inside_table(runs: list[Path]) -> str:
    """Value loss and explained variance of critics, refills of DAPO: a line per seed."""
    heads = (
        "seed",
        "critic alone: value loss, first five and last five steps",
        "variance explained",
        "PPO: value loss, first five and last five",
        "variance explained",
        "DAPO: refills, mean and most",
        "prompts drawn for 32",
    )
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    frames = (dynamics(runs, model) for model in ("critic", "ppo", "dapo"))
    for run, critic, ppo, dapo in zip(runs, *frames, strict=True):
        cells = [run.name]
        for each in (critic, ppo):
            loss, share = each["critic/vf_loss"], each["critic/vf_explained_var"]
            cells += [f"{loss[:5].mean():.3f}, {loss[-5:].mean():.3f}"]
            cells += [f"{share[:5].mean():.2f}, {share[-5:].mean():.2f}"]
        refills = dapo["dapo/refills"]
        cells += [
            f"{refills.mean():.1f} and {refills.max():.0f}",
            f"{dapo['dapo/prompts'].mean():.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
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
    )
    (ROOT / "docs" / "learning.md").write_text(page)


def max_refills() -> int:
    """How often DAPO may refill a step."""
    from rlbhpc.train.algorithms.dapo import DAPO

    return DAPO().max_refills


if __name__ == "__main__":
    main(sys.argv[1:])
