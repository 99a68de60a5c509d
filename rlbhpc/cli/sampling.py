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
from rlbhpc.launch.launches import note
from rlbhpc.launch.prepare import (
    SHARD_TOKENS,
    Prediction,
    Rates,
    measured_rates,
    predict,
    reject_what_jobs_would,
)
from rlbhpc.stats.design import CHANCE, smallest_loss
from rlbhpc.store.seal import seal_and_clean
from rlbhpc.study.layout import Layout
from rlbhpc.study.lineage import reject_foreign_models
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.load import check_verifiers
from rlbhpc.sweep.looks import LookRecord, Until, Waiting, as_row
from rlbhpc.sweep.plan import Plan, Presence, make_plan, read_presence
from rlbhpc.sweep.process import Drain, duration
from rlbhpc.sweep.remember import load_plan, store_study
from rlbhpc.sweep.worker import run_plan

if TYPE_CHECKING:
    from rlbhpc.stats.joint import Finding


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
@click.option(
    "--width", type=click.IntRange(min=1),
    help="Most array tasks, as for launch. Default: one for each worker that the shards keep busy.",
)  # fmt: skip
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
    present = read_presence(resolved.layout, list(resolved.blocks()))
    looks: list[LookRecord | Waiting] = []
    if until is not None:
        from rlbhpc.sweep.until import take_looks  # loads SciPy

        looks = take_looks(resolved, present, Until(until), budget)
        present = read_presence(resolved.layout, list(resolved.blocks()))
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
        tasks = width or -(-len(new_plan.shards) // copies)
        prediction = predict(new_plan, rates, site, tasks * copies, gpus_per_copy)
        record |= {"rates": asdict(rates), "width": tasks, "prediction": asdict(prediction)}
        if not as_json:
            print_cost(rates, tasks, prediction)
    elif new_plan.samples and not as_json:
        click.echo("No rate was measured yet: give --tokens-per-second to see what that costs.")
    if as_json:
        print_json(record)
    return DONE if new_plan.samples else NOTHING_TO_DO


def known_rates(layout: Layout, tokens: float | None, start: float | None) -> Rates | None:
    """Rates as given, else as measured in the run's own attempts."""
    rates = measured_rates(layout)
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


def print_cost(rates: Rates, tasks: int, prediction: Prediction) -> None:
    """Print what a plan costs without any disturbance."""
    click.echo(
        f"At {rates.tokens:,.0f} tokens/s and {rates.start:.0f} s to load ({rates.source}):\n"
        f"  {prediction.gpu_hours:,.2f} hours of a device, "
        f"{prediction.start_share:.0%} of them loading; "
        f"{duration(prediction.wall_seconds)} in {tasks:,} tasks at once\n"
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
    n, c = present.counts().exchangeable
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


_NEXT: Final = {
    "decided": "decided",
    "nothing open": "no problem is left open: only more problems can decide",
    "budget": "the budget is out",
}


def look_rows(results: Sequence[LookRecord | Waiting]) -> list[dict[str, Any]]:
    """Looks as JSON-ready values."""
    rows = []
    for result in results:
        if isinstance(result, LookRecord):
            rows.append(as_row(result))
        else:
            last = as_row(result.last) if result.last else None
            rows.append({
                "base": result.base, "trained": result.trained, "set_name": result.set_name,
                "outcome": "samples are missing", "missing": result.missing, "last": last,
            })  # fmt: skip
    return rows


def print_looks(results: Sequence[LookRecord | Waiting]) -> None:
    """Print what is decided, and what comes next."""
    rows = []
    for result in results:
        record = result if isinstance(result, LookRecord) else result.last
        if isinstance(result, LookRecord):
            names = result.base[0], result.trained[0], result.set_name
            following = _NEXT.get(result.outcome) or _drawing(result)
        else:
            names = result.base, result.trained, result.set_name
            following = f"{result.missing:,} samples are missing; no look was taken"
        findings = [_words(record.lost), _words(record.gained)] if record else ["–", "–"]
        number = str(record.number) if record else "–"
        k = f"{record.k:,}" if record else "–"
        rows.append([*names, number, k, *findings, following])
    columns = ["base", "trained", "problem set", "look", "k", "lost", "gained", "next"]
    print_table("Looks", columns, rows)


def _words(finding: Finding) -> str:
    low, high = 100 * finding.low, 100 * finding.high
    if finding.verdict == "undecided":
        return f"undecided (at most {high:.1f} %)"
    return f"{finding.verdict} ({100 * finding.estimate:.1f} %, {low:.1f} to {high:.1f})"


def _drawing(record: LookRecord) -> str:
    problems = {problem for more in record.more for problem in more.problems}
    return f"more samples of {len(problems):,} problems"


def tell_next(results: Sequence[LookRecord | Waiting], study: str) -> None:
    """Say which command follows."""
    if any(isinstance(r, Waiting) or r.outcome == "draw" for r in results):
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
    resolved = shared.logged_study(study, overrides, "sample")
    for arm in arms:
        if arm not in resolved.arms:
            raise click.BadParameter(f"{arm!r} is none of {', '.join(resolved.arms)}")
    check_verifiers(resolved)
    blocks = [b for b in resolved.blocks() if not arms or b.arm in arms]
    reject_foreign_models(resolved, {resolved.arms[b.arm].model for b in blocks})
    tell_of_old_verdicts(store_study(resolved), tell)
    plan = make_plan(resolved, read_presence(resolved.layout, blocks), shard_tokens, retry_failed)
    print_summary(plan)
    if not plan.samples:
        return NOTHING_TO_DO
    path = plan.save(resolved.layout.plans)
    with Drain(grace, limit) as drain, note(resolved.layout.claims, "sample") as others:
        for other in others:
            tell(
                f"{other} draws samples of {resolved.layout.root}, too. This one begins at the "
                "other end of the plan; what both have under way at the same time is drawn twice."
            )
        code = run_plan(resolved, plan, path, drain, workers, backwards=bool(others))
    if not drain.requested:
        seal_and_clean(resolved.layout)
    if code == 0 and any(p.missing for p in read_presence(resolved.layout, blocks)):
        return INCOMPLETE
    # A worker that was killed leaves work undone; the same command goes on from there.
    return TRY_AGAIN if code > 128 else code


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
    study, loaded = load_plan(plan, None if shards is None else _numbers(shards))
    keep(study.layout.logs, "run")
    with Drain(grace, limit) as drain:
        return run_plan(study, loaded, plan, drain)


def _numbers(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.strip().isdigit() for word in words):
        raise click.BadParameter(f"--shards: found {text!r}; allowed: numbers such as 3,4")
    return [int(word) for word in words]
