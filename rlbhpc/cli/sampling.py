"""The verbs that make samples here and say which are missing: `plan`, `sample`, `run`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from rlbhpc.cli import shared
from rlbhpc.cli.check import tell_of_old_verdicts
from rlbhpc.cli.shared import print_json, print_table, tell
from rlbhpc.debug_log import keep
from rlbhpc.errors import DONE, INCOMPLETE, NOTHING_TO_DO, TRY_AGAIN
from rlbhpc.launch.cluster import choose, copies_per_task
from rlbhpc.launch.launches import announce
from rlbhpc.launch.prepare import (
    SHARD_TOKENS,
    Rates,
    gpu_hours,
    measured_rates,
    reject_what_jobs_would,
)
from rlbhpc.stats.design import CHANCE, smallest_loss
from rlbhpc.store.seal import seal_and_clean
from rlbhpc.study.layout import Layout
from rlbhpc.study.lineage import reject_foreign_models
from rlbhpc.study.load import load_study
from rlbhpc.study.search import describe_searches
from rlbhpc.study.study import Study
from rlbhpc.sweep.attempt import read_attempts
from rlbhpc.sweep.load import check_verifiers
from rlbhpc.sweep.looks import LookRecord, Until, Waiting, as_row
from rlbhpc.sweep.plan import Plan, Presence, make_plan, read_presence
from rlbhpc.sweep.process import Drain
from rlbhpc.sweep.remember import load_plan, store_study
from rlbhpc.sweep.search import choose_prompts
from rlbhpc.sweep.worker import run_plan

if TYPE_CHECKING:
    from rlbhpc.stats.joint import Finding

# Seconds in which an engine loads a model of some billion parameters.
DEFAULT_START_SECONDS: Final = 60.0
# Samples of every problem, and right ones where it stops, from which a base's rates are taken:
# a rate from fewer is mostly noise.
ENOUGH_SAMPLES: Final = 8
# Exit codes of a shell for a process that died of a signal are larger than this.
SIGNAL_EXIT_CODE: Final = 128
NO_VALUE: Final = "–"


@click.command(epilog="Example: rlbhpc plan math.yaml --shard-tokens 20000000")
@click.argument("study", type=click.Path(path_type=Path))
@shared.overrides
@click.option(
    "--shard-tokens", type=click.IntRange(min=1), default=SHARD_TOKENS, show_default=True,
    help="Expected response tokens of one shard.",
)  # fmt: skip
@click.option("--cluster", metavar="NAME|FILE", help="Default: the study's, or by the host's name.")
@click.option(
    "--tokens-per-second", type=click.FloatRange(min=0, min_open=True), metavar="RATE",
    help="Response tokens per second of one worker. Default: as measured in this run.",
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
    tokens_per_second: float | None, until: str | None, budget: int | None, as_json: bool,
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
    resolved = choose_prompts(load_study(study, overrides))
    _, site = choose(cluster or resolved.file.cluster)
    reject_what_jobs_would(resolved, site)
    blocks = read_presence(resolved.layout, list(resolved.blocks()))
    looks: list[LookRecord | Waiting] = []
    if until is not None:
        from rlbhpc.sweep.until import take_looks  # loads SciPy

        looks = take_looks(resolved, blocks, Until(until), budget)
        blocks = read_presence(resolved.layout, list(resolved.blocks()))
    gpus_per_copy = resolved.file.engine.tensor_parallel
    copies = copies_per_task(site, gpus_per_copy)
    new_plan = make_plan(resolved, blocks, shard_tokens, copies=copies)
    rates = known_rates(resolved.layout, tokens_per_second)
    power = power_rows(resolved, blocks)
    record: dict[str, Any] = {
        "duplicates_left_out": dict(resolved.duplicates),
        "blocks": [block_row(block) for block in blocks],
        "samples": new_plan.samples,
        "expected_tokens": new_plan.tokens,
        "shards": len(new_plan.shards),
        "decides": power,
    }
    if until is not None:
        record["looks"] = look_rows(looks)
    if not as_json:
        print_blocks(blocks)
        if resolved.searching:
            click.echo(describe_searches(resolved))
        for name, count in resolved.duplicates.items():
            click.echo(f"{name}: {count:,} repeated records of its files are left out")
        print_summary(new_plan)
        print_power(power)
        if until is not None:
            print_looks(looks)
            tell_next_command(looks, str(study))
    if new_plan.samples and rates is not None:
        hours = gpu_hours(new_plan, rates, gpus_per_copy)
        record |= {"rates": asdict(rates), "gpu_hours": hours}
        if not as_json:
            click.echo(
                f"At {rates.tokens:,.0f} tokens/s and {rates.start:.0f} s to load ({rates.source}):"
                f" {hours:,.2f} hours of a device"
            )
    elif new_plan.samples and not as_json:
        click.echo("No rate was measured yet: give --tokens-per-second to see what that costs.")
    if as_json:
        print_json(record)
    return DONE if new_plan.samples else NOTHING_TO_DO


def known_rates(layout: Layout, tokens_per_second: float | None) -> Rates | None:
    """Rates as given, else as measured in the run's own attempts; None without a number."""
    measured = measured_rates(read_attempts(layout))
    if tokens_per_second is None:
        return measured
    start_seconds = DEFAULT_START_SECONDS if measured is None else measured.start
    return Rates(tokens_per_second, start_seconds, "as given")


def block_row(block_presence: Presence) -> dict[str, Any]:
    """Counts of one arm on one problem set at one training step, as JSON-ready values.

    An arm is a model as it is sampled. "stopped" are problems that need no more samples, since
    enough are right. "stale" are stored samples that answer another request than today's. "solved"
    are problems with a right sample.
    """
    block = block_presence.block
    return {
        "arm": block.arm,
        "problem_set": block.set_name,
        "step": block.step,
        "requested": block_presence.requested,
        "present": block_presence.present,
        "missing": block_presence.missing,
        "stopped": block_presence.stopped,
        "stale": block_presence.stale,
        "solved": int((block_presence.right > 0).sum()),
        "problems": len(block.problems),
    }


def print_blocks(blocks: list[Presence]) -> None:
    """Print what is there and what is missing, one line a block.

    A block is the samples of one arm on one problem set at one step. Only where problems stop after
    some right samples is there a column of those that did.
    """
    columns = ["arm", "problem_set", "step", "requested", "present", "missing"]
    if any(block_presence.block.stop_after for block_presence in blocks):
        columns.append("stopped")
    columns.append("stale")
    rows = [block_row(block_presence) for block_presence in blocks]
    print_table("Samples", columns, [[row[name] for name in columns] for row in rows])


def print_summary(plan: Plan) -> None:
    """Print how many samples a plan asks for, or that nothing is missing.

    Shards are the units of work that the samples are split into.
    """
    if not plan.samples:
        click.echo("Nothing is missing.")
        return
    click.echo(
        f"{plan.samples:,} samples to make, about {plan.tokens:,} response tokens, "
        f"{len(plan.shards):,} shards"
    )


class _ComparisonSize(NamedTuple):
    """What of a comparison decides its power.

    ``n`` is the samples of a problem, ``stop_after`` the right ones at which sampling stops, of
    the base and of the trained arm.
    """

    base: str
    set_name: str
    n: int
    stop_after: tuple[int, int]


def power_rows(study: Study, blocks: Sequence[Presence]) -> list[dict[str, Any]]:
    """The smallest loss that can be called, one row per problem set and size that is compared.

    A comparison is of a base and a trained arm on a problem set. Its power depends on the numbers
    of problems and samples, on how often the base is right, and on the number of comparisons, since
    their error is shared. Sampling of a problem may stop after some right samples. `smallest_loss`
    gives the loss as a share and a number of problems, NaN where no loss is called. A `Presence`
    says which samples of a block (arm, set and step) are stored.
    """
    presence_of = {(block.block.arm, block.block.set_name): block for block in blocks}
    sizes = []
    for base, trained in study.comparisons():
        for set_name in study.sets(base):
            if set_name in study.sets(trained):
                n = min(study.n(base, set_name), study.n(trained, set_name))
                stops = study.stop_after(base, set_name), study.stop_after(trained, set_name)
                sizes.append(_ComparisonSize(base, set_name, n, stops))
    rows = []
    # Each size once, in the order in which they came.
    for size in dict.fromkeys(sizes):
        problems = len(study.problem_ids(size.set_name))
        rates = _measured_success_rates(presence_of.get((size.base, size.set_name)))
        # A fixed seed, so that the same study always gets the same answer.
        rng = np.random.default_rng(0)
        power = smallest_loss(problems, size.n, rng, len(sizes), rates, size.stop_after)
        can_decide = not math.isnan(power.share)
        rows.append({
            "base": size.base,
            "problem_set": size.set_name,
            "problems": problems,
            "n": size.n,
            "comparisons": len(sizes),
            "smallest_share": power.share if can_decide else None,
            "smallest_count": int(power.count) if can_decide else None,
            "rates": "a typical base" if rates is None else "its first samples",
        })  # fmt: skip
    return rows


def _measured_success_rates(base: Presence | None) -> NDArray[np.float64] | None:
    """Share of right samples of each problem; None while a base has too few samples.

    ``base`` says what is stored of a base model's samples: ``count`` is their number for each
    problem. Sampling of a problem may stop at ``stop_after`` right samples, 0 if it never does. The
    last sample of one that stopped is always right, which would bias the share, so `exchangeable`
    leaves it out of both numbers.
    """
    if base is None or not len(base.count) or base.count.min() < ENOUGH_SAMPLES:
        return None
    if 0 < base.block.stop_after < ENOUGH_SAMPLES:
        return None
    samples, right = base.counts().exchangeable
    return np.asarray(right / samples)


def print_power(rows: Sequence[dict[str, Any]]) -> None:
    """Print the smallest loss or gain of problems that is called, as `power_rows` gives it.

    A row without a smallest count can call none. `CHANCE` is how often such a study calls the loss.
    """
    if not rows:
        return
    cells = []
    for row in rows:
        smallest = "none"
        if row["smallest_count"] is not None:
            percent = 100 * row["smallest_share"]
            smallest = f"{row['smallest_count']:,} ({percent:.1f} %)"
        values = [row[key] for key in ("problem_set", "base", "problems", "n")]
        cells.append([*values, smallest, row["rates"]])
    title = (
        f"Smallest loss or gain of problems that {100 * CHANCE:g} % of such studies call, "
        f"with {rows[0]['comparisons']:,} comparisons"
    )
    print_table(title, ["problem set", "base", "problems", "n", "smallest", "rates from"], cells)


# What follows a look, by its outcome; any other outcome asks for samples.
NEXT_STEP: Final = {
    "decided": "decided",
    "nothing open": "no problem is left open: only more problems can decide",
    "budget": "the budget is out",
}


def look_rows(looks: Sequence[LookRecord | Waiting]) -> list[dict[str, Any]]:
    """Looks as JSON-ready values.

    A look is an analysis of a study while it grows: it decides, or says which samples to draw next.
    One is `Waiting` while samples that the look before asked for are missing.
    """
    rows = []
    for look in looks:
        if isinstance(look, LookRecord):
            rows.append(as_row(look))
        else:
            last_look = as_row(look.last) if look.last else None
            rows.append({
                "base": look.base, "trained": look.trained, "set_name": look.set_name,
                "outcome": "samples are missing", "missing": look.missing, "last": last_look,
            })  # fmt: skip
    return rows


def print_looks(looks: Sequence[LookRecord | Waiting]) -> None:
    """Print what is decided, and what comes next, one line a comparison.

    A look is an analysis of a study while it grows: it decides, or says which samples to draw next.
    One is `Waiting` while samples are missing; its last look, if any, is then shown. In a record
    ``base`` and ``trained`` begin with the arm's name. A finding is the verdict on the share of
    problems lost or gained, at pass@``k``.
    """
    rows = []
    for look in looks:
        if isinstance(look, LookRecord):
            record: LookRecord | None = look
            arms = [look.base[0], look.trained[0]]
            next_step = NEXT_STEP.get(look.outcome) or _describe_request(look)
        else:
            record = look.last
            arms = [look.base, look.trained]
            next_step = f"{look.missing:,} samples are missing; no look was taken"
        findings = [NO_VALUE] * 4
        if record is not None:
            lost = _describe_finding(record.lost)
            gained = _describe_finding(record.gained)
            findings = [str(record.number), f"{record.k:,}", lost, gained]
        rows.append([*arms, look.set_name, *findings, next_step])
    columns = ["base", "trained", "problem set", "look", "k", "lost", "gained", "next"]
    print_table("Looks", columns, rows)


def _describe_finding(finding: Finding) -> str:
    """A verdict with its share of problems in percent."""
    low, high = 100 * finding.low, 100 * finding.high
    if finding.verdict == "undecided":
        return f"undecided (at most {high:.1f} %)"
    return f"{finding.verdict} ({100 * finding.estimate:.1f} %, {low:.1f} to {high:.1f})"


def _describe_request(look: LookRecord) -> str:
    """What a look asks for."""
    problems = {problem for request in look.more for problem in request.problems}
    return f"more samples of {len(problems):,} problems"


def tell_next_command(looks: Sequence[LookRecord | Waiting], study: str) -> None:
    """Say which command follows where samples are to be drawn."""
    if any(isinstance(look, Waiting) or look.outcome == "draw" for look in looks):
        click.echo(
            f"Draw what is missing with `rlbhpc launch {study}` or `rlbhpc sample {study}`, and "
            "ask again."
        )


@click.command(epilog="Example: rlbhpc sample math.yaml --arm base --set sampling.n=64")
@click.argument("study", type=click.Path(path_type=Path))
@shared.overrides
@click.option("--arm", "arms", multiple=True, help="Only this arm; may be given again.")
@click.option(
    "--shard-tokens", type=click.IntRange(min=1), default=SHARD_TOKENS, show_default=True,
    help="Expected response tokens of one shard.",
)  # fmt: skip
@click.option("--retry-failed", is_flag=True, help="Try again what is stored as failed.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes. Default: one per GPU.")
@shared.minutes
@shared.grace
def sample(
    study: Path, overrides: tuple[str, ...], arms: tuple[str, ...], shard_tokens: int,
    retry_failed: bool, workers: int | None, limit: float | None, grace: float,
) -> int:  # fmt: skip
    """Make all samples of STUDY that are missing, on this machine.

    What is complete at the end is sealed into Parquet parts, and its journals are removed. The same
    command again goes on from where it stopped, whatever stopped it. TERM, USR1 and USR2
    ask it to finish what is in flight and stop with exit code 75.
    """
    resolved = choose_prompts(shared.logged_study(study, overrides, "sample"))
    for arm in arms:
        if arm not in resolved.arms:
            raise click.BadParameter(f"{arm!r} is none of {', '.join(resolved.arms)}")
    check_verifiers(resolved)
    code = _sample_once(resolved, arms, shard_tokens, retry_failed, workers, limit, grace)
    chosen = choose_prompts(resolved)
    if code in (DONE, NOTHING_TO_DO) and chosen is not resolved:
        return _sample_once(chosen, arms, shard_tokens, retry_failed, workers, limit, grace)
    return code


def _sample_once(
    resolved: Study, arms: tuple[str, ...], shard_tokens: int, retry_failed: bool,
    workers: int | None, limit: float | None, grace: float,
) -> int:  # fmt: skip
    """Make the missing samples of all arms, or of some and of the tries for their prompts.

    The arguments are those of `sample`; gives the exit code.
    """
    wanted = {*arms, *(arm_try for arm_try, arm in resolved.tries.items() if arm in arms)}
    blocks = [block for block in resolved.blocks() if not arms or block.arm in wanted]
    reject_foreign_models(resolved, {resolved.arms[block.arm].model for block in blocks})
    tell_of_old_verdicts(store_study(resolved), tell)
    layout = resolved.layout
    plan = make_plan(resolved, read_presence(layout, blocks), shard_tokens, retry_failed)
    print_summary(plan)
    if not plan.samples:
        return NOTHING_TO_DO
    plan_file = plan.save(layout.plans)
    with Drain(grace, limit) as drain, announce(layout.claims, "sample") as others:
        for other in others:
            tell(
                f"{other} draws samples of {layout.root}, too. This one begins at the other end of"
                " the plan; what both have under way at the same time is drawn twice."
            )
        code = run_plan(resolved, plan, plan_file, drain, workers, backwards=bool(others))
    if not drain.requested:
        seal_and_clean(layout)
    if code == DONE and any(block.missing for block in read_presence(layout, blocks)):
        return INCOMPLETE
    # A worker that was killed leaves work undone; the same command goes on from there.
    return TRY_AGAIN if code > SIGNAL_EXIT_CODE else code


@click.command(epilog="Example: rlbhpc run runs/math/plans/0a1b2c3d4e5f.json --shards 3,4")
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("--shards", help="Numbers of shards, such as 3,4. Default: all.")
@shared.minutes
@shared.grace
def run(plan: Path, shards: str | None, limit: float | None, grace: float) -> int:
    """Work shards of PLAN, a file that `rlbhpc sample` or `rlbhpc launch` wrote.

    A process works for each copy of the model that the GPUs hold. Samples that somebody has made
    in the meantime are not made again.
    """
    numbers = None if shards is None else _read_numbers(shards)
    study, chosen_plan = load_plan(plan, numbers)
    keep(study.layout.logs, "run")
    with Drain(grace, limit) as drain:
        return run_plan(study, chosen_plan, plan, drain)


def _read_numbers(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.strip().isdigit() for word in words):
        raise click.BadParameter(f"--shards: found {text!r}; allowed: numbers such as 3,4")
    return [int(word) for word in words]
