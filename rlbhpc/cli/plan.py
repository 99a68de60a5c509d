"""``rlbhpc plan``: say which samples are missing and what they cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from rlbhpc.cli import shared
from rlbhpc.cli.table import print_json, print_table
from rlbhpc.cli.until import look_rows, print_looks, tell_next
from rlbhpc.errors import DONE, NOTHING_TO_DO
from rlbhpc.launch.cluster import choose, copies_per_task
from rlbhpc.launch.prepare import (
    SHARD_TOKENS,
    Prediction,
    Rates,
    measured,
    predict,
    reject_what_jobs_would,
)
from rlbhpc.stats.design import CHANCE, smallest_loss
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.looks import LookRecord, Until, Waiting
from rlbhpc.sweep.plan import Plan, make_plan
from rlbhpc.sweep.presence import Presence, presence
from rlbhpc.sweep.progress import duration

# Seconds in which an engine loads a model of some billion parameters.
START: Final = 60.0
# Samples of every problem, and right ones where it stops, from which a base's rates are taken.
_ENOUGH: Final = 8


@click.command(epilog="Example: rlbhpc plan math.yaml --shard-tokens 20000000")
@click.argument("study", type=click.Path(path_type=Path))
@shared.overrides
@click.option(
    "--shard-tokens", type=click.IntRange(min=1), default=SHARD_TOKENS, show_default=True,
    help="Expected response tokens of one shard.",
)  # fmt: skip
@click.option("--cluster", metavar="NAME|FILE", help="Default: the study's, or by the host's name.")
@click.option("--width", type=click.IntRange(min=1), help="Workers at a time. Default: all shards.")
@click.option(
    "--tokens-per-second", type=click.FloatRange(min=0, min_open=True), metavar="RATE",
    help="Response tokens per second of one worker. Default: as measured in this run.",
)  # fmt: skip
@click.option(
    "--startup", type=click.FloatRange(min=0), metavar="SECONDS",
    help=f"Until a worker's model is loaded. Default: as measured, else {START:g}.",
)  # fmt: skip
@click.option(
    "--until", type=click.Choice([u.value for u in Until]), metavar="CONDITION",
    help="Take a look at what is there, and ask for the samples that can decide it: "
    + ", ".join(f'"{u.value}"' for u in Until) + ".",
)  # fmt: skip
@click.option(
    "--budget", type=click.IntRange(min=1), metavar="SAMPLES",
    help="With --until: most samples of the whole study.",
)  # fmt: skip
@shared.as_json
def plan(
    study: Path, overrides: tuple[str, ...], shard_tokens: int, cluster: str | None,
    width: int | None, tokens_per_second: float | None, startup: float | None,
    until: str | None, budget: int | None, as_json: bool,
) -> int:  # fmt: skip
    """Show which samples of STUDY are missing, and the shards that would make them.

    Also the smallest loss or gain of problems that a study of this size can call, from its first
    samples or from a typical base. With a rate, measured or given, also what they cost. No plan is
    written. Exit code 4 says that nothing is missing.

    With --until, a look is taken where all samples are there, and what it asks for is missing from
    then on, for `sample` and `launch` too. Looks are kept, and their error holds at all of them
    together, however many you take: see docs/stopping.md.
    """
    if budget is not None and until is None:
        raise click.UsageError("--budget goes with --until")
    resolved = load_study(study, overrides)
    _, site = choose(cluster or resolved.file.cluster)
    reject_what_jobs_would(resolved, site)
    present = presence(resolved.layout, list(resolved.blocks()))
    looks: list[LookRecord | Waiting] = []
    if until is not None:
        from rlbhpc.sweep.until import take_looks  # loads SciPy

        looks = take_looks(resolved, present, Until(until), budget)
        present = presence(resolved.layout, list(resolved.blocks()))
    gpus_per_copy = resolved.file.engine.tensor_parallel
    copies = copies_per_task(site, gpus_per_copy)
    new_plan = make_plan(resolved, present, shard_tokens, copies=copies)
    rates = known_rates(resolved.layout, tokens_per_second, startup)
    decides = power_rows(resolved, present)
    record: dict[str, Any] = {
        "duplicates_left_out": dict(resolved.duplicates),
        "blocks": [block_row(p) for p in present],
        "samples": new_plan.samples,
        "expected_tokens": new_plan.tokens,
        "shards": len(new_plan.shards),
        "decides": decides,
        **({"looks": look_rows(looks)} if until is not None else {}),
    }
    if not as_json:
        print_blocks(present)
        for name, count in resolved.duplicates.items():
            click.echo(f"{name}: {count:,} repeated records of its files are left out")
        print_summary(new_plan)
        print_power(decides)
        if until is not None:
            print_looks(looks)
            tell_next(looks, str(study))
    if new_plan.samples and rates is not None:
        workers = width or len(new_plan.shards)
        prediction = predict(new_plan, rates, site, workers, gpus_per_copy)
        record |= {"rates": asdict(rates), "width": workers, "prediction": asdict(prediction)}
        if not as_json:
            print_cost(rates, workers, prediction)
    elif new_plan.samples and not as_json:
        click.echo("No rate was measured yet: give --tokens-per-second to see what that costs.")
    if as_json:
        print_json(record)
    return DONE if new_plan.samples else NOTHING_TO_DO


def known_rates(layout: Layout, tokens: float | None, start: float | None) -> Rates | None:
    """Rates as given, else as measured in the run's own attempts."""
    rates = measured(layout)
    if tokens is None and rates is None:
        return None
    if tokens is None and start is None:
        return rates
    before = rates or Rates(0.0, START, "")
    return Rates(tokens or before.tokens, before.start if start is None else start, "as given")


def block_row(p: Presence) -> dict[str, Any]:
    """One arm, set and step as JSON-ready values."""
    return {
        "arm": p.block.arm,
        "problem_set": p.block.set_name,
        "step": p.block.step,
        "requested": p.requested,
        "present": p.present,
        "missing": p.missing,
        "stopped": p.stopped,
        "stale": p.stale,
        "solved": int((p.right > 0).sum()),
        "problems": len(p.block.problems),
    }


def print_blocks(present: list[Presence]) -> None:
    """Print what is there and what is missing."""
    rows = [block_row(p) for p in present]
    names = ["arm", "problem_set", "step", "requested", "present", "missing", "stale"]
    if any(p.block.stop_after for p in present):
        names.insert(-1, "stopped")
    print_table("Samples", names, [[row[name] for name in names] for row in rows])


def print_summary(plan: Plan) -> None:
    """Print what is left to do."""
    if not plan.samples:
        click.echo("Nothing is missing.")
        return
    click.echo(
        f"{plan.samples:,} samples to make, about {plan.tokens:,} response tokens, "
        f"{len(plan.shards):,} shards"
    )


def print_cost(rates: Rates, width: int, prediction: Prediction) -> None:
    """Print what a plan costs without any disturbance."""
    click.echo(
        f"At {rates.tokens:,.0f} tokens/s and {rates.start:.0f} s to load ({rates.source}):\n"
        f"  {prediction.gpu_hours:,.2f} hours of a device, "
        f"{prediction.start_share:.0%} of them loading; "
        f"{duration(prediction.wall_seconds)} on {width:,} workers\n"
        f"  about {prediction.files:,} files, {prediction.megabytes:,.0f} MB, "
        f"{prediction.sbatch_calls} sbatch calls"
    )


class _Size(NamedTuple):
    """What of a comparison decides its power; ``stop_after``: of the base and of the other arm."""

    base: str
    set_name: str
    n: int
    stop_after: tuple[int, int]


def power_rows(study: Study, present: Sequence[Presence]) -> list[dict[str, Any]]:
    """One row per problem set, number of samples and stopping rule that is compared."""
    by_arm = {(p.block.arm, p.block.set_name): p for p in present}
    shared = [
        _Size(
            base,
            set_name,
            min(study.n(base, set_name), study.n(trained, set_name)),
            (study.stop_after(base, set_name), study.stop_after(trained, set_name)),
        )
        for base, trained in study.comparisons()
        for set_name in study.sets(base)
        if set_name in study.sets(trained)
    ]
    rows = []
    for size in dict.fromkeys(shared):
        problems = len(study.problem_ids(size.set_name))
        rates = _rates(by_arm.get((size.base, size.set_name)))
        rng = np.random.default_rng(0)
        power = smallest_loss(problems, size.n, rng, len(shared), rates, size.stop_after)
        decided = not math.isnan(power.share)
        rows.append({
            "base": size.base,
            "problem_set": size.set_name,
            "problems": problems,
            "n": size.n,
            "comparisons": len(shared),
            "smallest_share": power.share if decided else None,
            "smallest_count": int(power.count) if decided else None,
            "rates": "its first samples" if rates is not None else "a typical base",
        })  # fmt: skip
    return rows


def _rates(present: Presence | None) -> NDArray[np.float64] | None:
    """Success rates of a base that has enough samples of every problem."""
    if present is None or not len(present.count) or present.count.min() < _ENOUGH:
        return None
    if 0 < present.block.stop_after < _ENOUGH:
        return None  # a rate from fewer right samples is mostly noise
    n, c = present.counts().places
    return np.asarray(c / n)


def print_power(rows: Sequence[dict[str, Any]]) -> None:
    """Print the smallest loss or gain that is called."""
    if not rows:
        return
    cells = [
        [
            row["problem_set"], row["base"], row["problems"], row["n"],
            "none" if row["smallest_count"] is None
            else f"{row['smallest_count']:,} ({100 * row['smallest_share']:.1f} %)",
            row["rates"],
        ]
        for row in rows
    ]  # fmt: skip
    title = (
        f"Smallest loss or gain of problems that {100 * CHANCE:g} % of such studies call, "
        f"with {rows[0]['comparisons']:,} comparisons"
    )
    print_table(title, ["problem set", "base", "problems", "n", "smallest", "rates from"], cells)
