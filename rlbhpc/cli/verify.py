"""``rlbhpc verify``: judge what a run holds anew; nothing is sampled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from rlbhpc.cli import shared
from rlbhpc.cli.shared import print_json, print_table, visible
from rlbhpc.debug_log import keep
from rlbhpc.errors import DONE, UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.stats import pass_at_k
from rlbhpc.study.layout import Layout
from rlbhpc.study.schema import Verification
from rlbhpc.sweep.again import Comparison, StoredRun, grade_again
from rlbhpc.sweep.judge import verifier_kind
from rlbhpc.verify.registry import KINDS

_SHOWN: Final = 20
_ANSWER: Final = 60


@click.command(
    epilog="Examples: rlbhpc verify runs/math; rlbhpc verify runs/math --into runs/math-regraded; "
    "rlbhpc verify runs/math --grader math-paper --into runs/math-paper"
)
@click.argument("run", type=click.Path(path_type=Path))
@shared.one_arm
@shared.one_step
@click.option("--into", type=click.Path(path_type=Path), help="Keep the result as a new run.")
@click.option("--grader", type=click.Choice(list(KINDS)), help="Judge with this grader.")
@shared.judging_workers
@shared.as_json
def verify(
    run: Path, arm: str | None, step: int | None, into: Path | None, grader: str | None,
    workers: int, as_json: bool,
) -> int:  # fmt: skip
    """Judge every response of the run in the folder RUN with the grader of today.

    Shows what changes, per problem and on the curve. The run itself stays as it is: with --into
    the new verdicts become a run of their own, which compacts and reports like any other. How often
    verdicts are wrong, `rlbhpc audit` finds out.
    """
    layout = Layout(run)
    keep(layout.logs, "verify", layout.attempts)
    stored = StoredRun(layout, arm, step)
    kind = partial(_kind, grader, stored.verification)
    comparisons = grade_again(stored, kind, None if into is None else Layout(into), workers)
    by_group = {str(group): comparison for group, comparison in comparisons.items()}
    if as_json:
        print_json({group: _record(comparison) for group, comparison in by_group.items()})
        return DONE
    _print(by_group, grader or "today")
    if into is not None:
        click.echo(
            f"{into} holds the run with the new verdicts; compact it, or show both beside each "
            f"other: rlbhpc report {run} --regraded {into}"
        )
    return DONE


def _kind(grader: str | None, verification: Verification, problem: Problem) -> str:
    """The grader that was asked for, on problems of its kind; on others that of the study."""
    own = verifier_kind(problem, verification)
    if not own and grader is None:
        raise UserError(
            f"{problem.id} was imported, and no study says what judges it; name a grader, such as "
            "--grader math"
        )
    # `math-paper` reads what `math` reads, and nothing of a program.
    if grader and own.split("-")[0] in ("", grader.split("-")[0]):
        return grader
    return own


def _print(comparisons: Mapping[str, Comparison], grader: str) -> None:
    for name, comparison in comparisons.items():
        print_table(
            f"{name}: verdicts, stored and {grader}",
            ["stored", grader, "samples"],
            [
                [was.name.lower(), now.name.lower(), count]
                for (was, now), count in sorted(comparison.table.items())
            ],
        )
        if not comparison.disagreements:
            click.echo("Both call the same samples right.\n")
            continue
        curves = paired_curves(*comparison.counts())
        print_table(f"{name}: pass@k", ["k", "stored", grader], curves)
        print_table(
            f"{name}: answers on which they differ",
            ["problem", "answer", "stored", grader, "samples"],
            [[_short(value) for value in row] for row in comparison.disagreements[:_SHOWN]],
        )
        unprinted = len(comparison.disagreements) - _SHOWN
        if unprinted > 0:
            click.echo(f"and {unprinted:,} more; --json has all\n")


def _record(comparison: Comparison) -> dict[str, Any]:
    curves = paired_curves(*comparison.counts())
    return {
        "verdicts": [
            {"before": was.name.lower(), "after": now.name.lower(), "samples": count}
            for (was, now), count in sorted(comparison.table.items())
        ],
        "pass_at_k": [{"k": k, "before": a, "after": b} for k, a, b in curves],
        "problems": [vars(item) for item in comparison.changed],
        "answers": [item._asdict() for item in comparison.disagreements],
    }


def paired_curves(
    n: Sequence[int], before: Sequence[int], after: Sequence[int]
) -> Iterator[tuple[int, float, float]]:
    """Mean pass@k by two counts at powers of two, up to the fewest samples of a problem."""
    for power in range(min(n, default=0).bit_length()):
        k = 1 << power
        first, second = (round(float(pass_at_k(n, c, k).mean()), 6) for c in (before, after))
        yield k, first, second


def _short(value: Any) -> Any:
    """Model text fit for a line of a terminal."""
    if not isinstance(value, str):
        return value
    return visible(value if len(value) <= _ANSWER else value[: _ANSWER - 1] + "…", lines=False)
