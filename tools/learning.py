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
SETS = {"learnt": "640 problems to train on", "taught": "400 that the base was taught"}
PAGE = """# What each algorithm learns

Nine algorithms train the quickstart's distilled model on the same 640 Countdown problems with one
budget (`configs/learning.yaml`: {steps} steps of 32 prompts × 16 responses, two epochs in two
mini-batches each, a learning rate of 1e-4 that halves every 30 steps), with {seeds} seeds of the
rollouts each. The base had not been taught these problems; 400 that it had been taught tell what
it forgets. Greedy answers (temperature 0) tell what came of it. Made by `make quickstart` and
`tools/learning.sh {names}`.

![Greedy accuracy over steps](learning.png)

## Greedy accuracy after {steps} steps, percent

{accuracy}

Lift: points above the base, mean over seeds, each seed in brackets. Noise: standard deviation of
the lift between seeds. The base has {base_learnt:.1f} % on the problems to train on and
{base_taught:.1f} % on those that it was taught, of which RL trains on none.

## What moved inside

{inside}

The first two pairs are of one critic while the policy is held (`critic_warmup`): the rewards stay
as they are, and the loss tells of the critic alone. In PPO itself rewards grow, and with them the
loss of any critic; the share of the rewards' variance that the critic foresaw tells what it knows.
Critics start at 0. DAPO may refill a step {refills} times, and throws no group away that has a
signal; it samples more prompts for as many updates.

## What it says

{verdict}

These are not the first problems. On 1,500 that the base had been taught, at a constant rate and
for 100 steps, three of the nine (`dr_grpo`, `rloo`, `remax`) ended within the noise: the base knew
some answers by heart, all algorithms made it forget them, and greedy accuracy told of both. Then
problems and rate were chosen in a trial of those three with another seed, and the budget that had
been planned at first, 50 steps, was run with the seeds above. What RL does for problems that it
was not trained on is told by [the quickstart](quickstart.md).
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
    heads = ("algorithm", "to train on", *of_set, "taught before", *of_set)
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for arm in arms:
        cells = [f"`{arm}`"]
        for name in SETS:
            lift = lifts(frame, arm, name)
            noise = float(lift.std(ddof=1))
            each = ", ".join(f"{value:+.1f}" for value in lift)
            cells += [f"{100 * at_end(frame, arm, name).mean():.1f}"]
            ratio = f"{lift.mean() / noise:.1f}" if noise else "–"
            cells += [f"{lift.mean():+.1f} ({each})", f"{noise:.1f}", ratio]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def verdict(frame: pd.DataFrame, arms: list[str]) -> str:
    """Which algorithms move greedy accuracy by more than twice the noise of one seed."""
    lines = []
    for name, words in SETS.items():
        far = "by more than twice the noise"
        ways = [f"lifted {far}", f"lowered {far}", "within twice the noise"]
        moved: dict[str, list[str]] = {way: [] for way in ways}
        for arm in arms:
            lift = lifts(frame, arm, name)
            clear = abs(lift.mean()) > 2 * lift.std(ddof=1)
            way = ways[int(lift.mean() < 0) if clear else 2]
            moved[way].append(f"`{arm}`")
        parts = [f"{_which(found, len(arms))} {way}" for way, found in moved.items() if found]
        lines.append(f"- On {words}: {'; '.join(parts)}.")
    return "\n".join(lines)


def _which(found: list[str], of: int) -> str:
    if len(found) == of:
        return f"all {of}"
    return f"{len(found)} of {of} ({', '.join(found)})"


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
        refills = dapo["rollout/refills"]
        cells += [
            f"{refills.mean():.1f} and {refills.max():.0f}",
            f"{dapo['rollout/prompts'].mean():.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(frame: pd.DataFrame, arms: list[str], path: Path) -> None:
    """Greedy accuracy over steps: a panel per algorithm, a line per seed and problem set."""
    columns = 3
    rows = -(-len(arms) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(9, 2.4 * rows), sharex=True, sharey=True)
    colours = {"learnt": "#0072b2", "taught": "#d55e00"}
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
        base_taught=100 * at_end(frame, BASE, "taught").mean(),
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
