"""``rlbhpc select``: ids of problems by how often an arm solves them, for a curriculum."""

from __future__ import annotations

from pathlib import Path

import click

from rlbhpc.errors import DONE, UserError

_WORDS = {"unsolved": "no right sample", "thin": "one or two right samples"}


@click.command(epilog="Example: rlbhpc select runs/math base omni-train 0.1-0.9 > middle.txt")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("arm")
@click.argument("problem_set", metavar="SET")
@click.argument("take", metavar="unsolved|thin|LOW-HIGH")
@click.option("--step", type=int, help="Of the arm's checkpoints; the first by default.")
def select(run: Path, arm: str, problem_set: str, take: str, step: int | None) -> int:
    """Print the ids of the problems of SET that ARM solves at a certain rate, one a line.

    unsolved: never in its samples; thin: once or twice; LOW-HIGH: in a share between the two, both
    included. A problem set of a study takes the file as `ids`. Problems without samples are left
    out.
    """
    from rlbhpc.store.reader import open_cube

    low, high = _bounds(take)
    tree = open_cube(run)
    path = f"{arm}/{problem_set}"
    if f"/{path}" not in tree.groups:
        groups = [node.path.strip("/") for node in tree.subtree if "verdict" in node]
        names = ", ".join(sorted(groups))
        raise UserError(f"{run}: no samples of {path}; there are {names}")
    counts = tree[path].to_dataset().rlb.counts()
    steps = counts["step"].values.tolist()
    if step is not None and step not in steps:
        raise UserError(f"{path}: no step {step}; there are {', '.join(map(str, steps))}")
    at_step = counts.sel(step=steps[0] if step is None else step)
    values = at_step["c"] if take in _WORDS else at_step.rlb.pass_at_k(1, ragged=True)
    sampled = at_step["n"].values > 0
    for problem, value in zip(
        at_step["problem"].values[sampled].tolist(), values.values[sampled].tolist(), strict=True
    ):
        if low <= value <= high:
            click.echo(problem)
    return DONE


def _bounds(take: str) -> tuple[float, float]:
    if take in _WORDS:
        return (0, 0) if take == "unsolved" else (1, 2)
    low, _, high = take.partition("-")
    try:
        bounds = float(low), float(high)
    except ValueError:
        bounds = (1.0, 0.0)
    if not 0 <= bounds[0] <= bounds[1] <= 1:
        raise UserError(f"{take!r}: allowed: unsolved, thin, or two shares such as 0.1-0.9")
    return bounds
