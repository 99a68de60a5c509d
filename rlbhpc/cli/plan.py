"""``rlbhpc plan``: say which samples are missing and what they cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rlbhpc.cli.cost import Cost
from rlbhpc.cli.power import power_rows, print_power
from rlbhpc.cli.table import print_json, print_table
from rlbhpc.cli.until import look_rows, print_looks, tell_next
from rlbhpc.errors import DONE, NOTHING_TO_DO
from rlbhpc.launch.cluster import choose
from rlbhpc.launch.predict import Rates, measured
from rlbhpc.launch.prepare import SHARD_TOKENS, reject_what_jobs_would
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import load_study
from rlbhpc.sweep.looks import LookRecord, Until, Waiting
from rlbhpc.sweep.plan import Plan, make_plan
from rlbhpc.sweep.presence import Presence, presence

# Seconds in which an engine loads a model of some billion parameters.
START = 60.0


@click.command(epilog="Example: rlbhpc plan math.yaml --shard-tokens 20000000")
@click.argument("study", type=click.Path(path_type=Path))
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Override one key.")
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
    "--preemptions", type=click.FloatRange(min=0), metavar="PER_DAY",
    help="Play the sweep through with so many preemptions of a worker per day.",
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
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def plan(
    study: Path, overrides: tuple[str, ...], shard_tokens: int, cluster: str | None,
    width: int | None, tokens_per_second: float | None, startup: float | None,
    preemptions: float | None, until: str | None, budget: int | None, as_json: bool,
) -> int:  # fmt: skip
    """Show which samples of STUDY are missing, and the shards that would make them.

    Also the smallest loss or gain of problems that a study of this size can call, from its first
    samples or from a typical base. With a rate, measured or given, also what they cost; with
    --preemptions, how that changes with the number of shards and the drain time. No plan is
    written. Exit code 4 says that nothing is missing.

    With --until, a look is taken where all samples are there, and what it asks for is missing from
    then on, for `sample` and `launch` too. Looks are kept, and their error holds at all of them
    together, however many you take: see docs/stopping.md.
    """
    if budget is not None and until is None:
        raise click.UsageError("--budget goes with --until")
    resolved = load_study(study, overrides)
    reject_what_jobs_would(resolved)
    _, site = choose(cluster or resolved.file.cluster)
    present = presence(resolved.layout, list(resolved.blocks()))
    looks: list[LookRecord | Waiting] = []
    if until is not None:
        from rlbhpc.sweep.until import take_looks  # loads SciPy

        looks = take_looks(resolved, present, Until(until), budget)
        present = presence(resolved.layout, list(resolved.blocks()))
    new_plan = make_plan(resolved, present, shard_tokens)
    rates = known_rates(resolved.layout, tokens_per_second, startup)
    decides = power_rows(resolved, present)
    duplicates = dict(resolved.duplicates)
    record = {
        "duplicates_left_out": duplicates,
        "blocks": [block_row(p) for p in present],
        **summary(new_plan),
        "decides": decides,
        **({"looks": look_rows(looks)} if until is not None else {}),
    }
    if not as_json:
        print_blocks(present)
        for name, count in duplicates.items():
            click.echo(f"{name}: {count:,} repeated records of its files are left out")
        print_summary(new_plan)
        print_power(decides)
        if until is not None:
            print_looks(looks)
            tell_next(looks, str(study))
    if new_plan.samples and rates is not None:
        cost = Cost(
            new_plan, rates, site, width or len(new_plan.shards), resolved.file.engine.options
        )
        record |= cost.record(preemptions)
        if not as_json:
            cost.show(preemptions)
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
    if rates is None:
        return Rates(tokens or 0.0, START if start is None else start, "as given")
    source = rates.source if tokens is None and start is None else "as given"
    return Rates(tokens or rates.tokens, rates.start if start is None else start, source)


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


def summary(plan: Plan) -> dict[str, Any]:
    """What a plan amounts to, as JSON-ready values."""
    return {"samples": plan.samples, "expected_tokens": plan.tokens, "shards": len(plan.shards)}


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
