"""``rlbhpc verify``: look again at what was accepted, or judge all of it anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from rlbhpc.cli import shared
from rlbhpc.cli.shared import print_json, print_table, visible
from rlbhpc.debug_log import keep
from rlbhpc.errors import DONE, NOTHING_TO_DO, UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.stats import pass_at_k
from rlbhpc.study.layout import Layout
from rlbhpc.study.schema import Verification
from rlbhpc.sweep.again import Stored, grade_again
from rlbhpc.sweep.judge import kind_of
from rlbhpc.verify.audit.second_look import Comparison, compare_graders, thin_list
from rlbhpc.verify.benchmark.table import benchmark as score_answers
from rlbhpc.verify.registry import KINDS
from rlbhpc.verify.running.batch import BatchVerifier
from rlbhpc.verify.verdict import Status

_SHOWN: Final = 20
_ANSWER: Final = 60


@click.command(
    epilog="Examples: rlbhpc verify runs/math; rlbhpc verify runs/math --again --into "
    "runs/math-regraded; rlbhpc verify runs/math --again --grader math-paper --into "
    "runs/math-paper; rlbhpc verify runs/math --compare math math-paper"
)
@click.argument("run", type=click.Path(path_type=Path), required=False)
@shared.one_arm
@shared.one_step
@click.option("--again", is_flag=True, help="Judge every response with the grader of today.")
@click.option(
    "--into", type=click.Path(path_type=Path), help="With --again: keep the result as a new run."
)
@click.option(
    "--grader", type=click.Choice(list(KINDS)), help="With --again: judge with this grader."
)
@click.option(
    "--compare", nargs=2, type=click.Choice(list(KINDS)), help="Put two graders side by side."
)
@click.option("--benchmark", is_flag=True, help="Grade the labelled answers of the package.")
@click.option("--at-most", type=click.IntRange(min=1), default=2, show_default=True,
    help="Problems with at most so many right answers are thin.",
)  # fmt: skip
@shared.judging_workers
@shared.as_json
def verify(
    run: Path | None, arm: str | None, step: int | None, again: bool, into: Path | None,
    grader: str | None, compare: tuple[str, str] | None, benchmark: bool, at_most: int,
    workers: int, as_json: bool,
) -> int:  # fmt: skip
    """Look again at the verdicts of the run in the folder RUN; nothing is sampled.

    Without an option: every accepted response to a problem that was hardly ever solved, each
    judged again on a second path. At large k these few decide the curve, so read them.

    --again judges every stored response with the grader of today and shows what changes, per
    problem and on the curve. The run itself stays as it is: with --into the new verdicts become
    a run of their own, which compacts and reports like any other.

    --benchmark needs no RUN: it grades the package's own labelled answers with our grader (or with
    --grader, such as judge: a served model's agreement with the labels) and with
    Math-Verify, family by family.
    """
    if benchmark:
        return _benchmark(grader or "math", as_json)
    if run is None:
        raise click.UsageError("give the folder RUN, or --benchmark")
    if (into is not None or grader is not None) and not again:
        raise click.UsageError("--into and --grader go with --again")
    if again and compare:
        raise click.UsageError("give either --again or --compare")
    layout = Layout(run)
    keep(layout.logs, "verify", layout.attempts)
    stored = Stored(layout, arm, step)
    if compare is not None:
        return _compare(stored, *compare, workers, as_json)
    if again:
        return _again(stored, grader, into, workers, as_json)
    return _thin(stored, at_most, as_json)


def _benchmark(kind: str, as_json: bool) -> int:
    rows, differing = score_answers(kind)
    if as_json:
        print_json([asdict(row) for row in rows])
        return DONE
    columns = ["family", "cases"]
    for grader in ("ours" if kind == "math" else kind, "Math-Verify"):
        columns += [f"{grader}: agrees", "accepts wrong", "refuses right"]
    cells = []
    for row in rows:
        cells.append([row.family, f"{row.ours.cases:,}"])
        for score in (row.ours, row.theirs):
            share = f"{score.agrees / score.cases:.1%}"
            cells[-1] += [share, str(score.accepted_wrong), str(score.refused_right)]
    print_table("Labelled answers", columns, cells)
    for case in differing[:_SHOWN]:
        click.echo(visible(f"{case.family}: {case.gold!r} and {case.response!r}: {case.reason}"))
    return DONE


def _thin(stored: Stored, at_most: int, as_json: bool) -> int:
    rows: list[dict[str, Any]] = []
    seconds = stored.study.file.verification.timeout
    for group in stored.groups():
        for step, records in stored.steps(group):
            rows += [
                {
                    "arm": group.arm,
                    "step": step,
                    "problem": entry.problem.id,
                    "right": entry.right,
                    "n": entry.n,
                    "gold": entry.problem.gold,
                    "answer": entry.verdict.answer,
                    "rule": entry.verdict.rule,
                    "second": entry.second,
                    "why": entry.why,
                    "response": entry.response,
                }
                for entry in thin_list(records, at_most, seconds)
            ]
    if as_json:
        print_json(rows)
    else:
        columns = [name for name in rows[0] if name != "response"] if rows else ["problem"]
        short = [[_short(row[name]) for name in columns] for row in rows]
        print_table(f"Accepted answers to problems solved at most {at_most} times", columns, short)
        doubted = sum(row["second"] == "disagrees" for row in rows)
        click.echo(f"{len(rows):,} such answers; the second path disagrees with {doubted} of them.")
        if rows:
            click.echo("Read them: rlbhpc show RUN --problem … --sample …, or rlbhpc review RUN.")
    return DONE if rows else NOTHING_TO_DO


def _again(
    stored: Stored, grader: str | None, into: Path | None, workers: int, as_json: bool
) -> int:
    kind = partial(_kind, grader, stored.verification)
    comparisons = grade_again(stored, kind, None if into is None else Layout(into), workers)
    by_name = {f"{group}": comparison for group, comparison in comparisons.items()}
    _print(by_name, "stored", grader or "today", as_json)
    if into is not None and not as_json:
        click.echo(
            f"{into} holds the run with the new verdicts; compact it, or show both beside each "
            f"other: rlbhpc report {stored.layout.root} --regraded {into}"
        )
    return DONE


def _kind(grader: str | None, verification: Verification, problem: Problem) -> str:
    """The grader that was asked for, on problems of its kind; on others that of the study."""
    own = kind_of(problem, verification)
    if not own and grader is None:
        raise UserError(
            f"{problem.id} was imported, and no study says what judges it; name a grader, such as "
            "--grader math"
        )
    # `math-paper` reads what `math` reads, and nothing of a program.
    if grader and own.split("-")[0] in ("", grader.split("-")[0]):
        return grader
    return own


def _compare(stored: Stored, first: str, second: str, workers: int, as_json: bool) -> int:
    comparisons = {}
    for group in stored.groups():
        graders = (BatchVerifier(first, workers=workers), BatchVerifier(second, workers=workers))
        graded = (
            record
            for _, records in stored.records(group)
            for record in records
            if record.verdict.status is not Status.FAILED
        )
        comparisons[str(group)] = compare_graders(graded, *graders)
    _print(comparisons, first, second, as_json)
    return DONE


def _print(comparisons: dict[str, Comparison], before: str, after: str, as_json: bool) -> None:
    if as_json:
        print_json({name: _record(comparison) for name, comparison in comparisons.items()})
        return
    for name, comparison in comparisons.items():
        print_table(
            f"{name}: verdicts, {before} and {after}",
            [before, after, "samples"],
            [
                [was.name.lower(), now.name.lower(), count]
                for (was, now), count in sorted(comparison.table.items())
            ],
        )
        if not comparison.disagreements:
            click.echo("Both call the same samples right.\n")
            continue
        print_table(
            f"{name}: pass@k",
            ["k", before, after],
            paired_curves(*comparison.counts()),
        )
        print_table(
            f"{name}: answers on which they differ",
            ["problem", "answer", before, after, "samples"],
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
