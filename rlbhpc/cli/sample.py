"""``rlbhpc sample``: make what is missing, on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from rlbhpc.cli.plan import print_summary
from rlbhpc.errors import INCOMPLETE, NOTHING_TO_DO
from rlbhpc.launch.prepare import SHARD_TOKENS
from rlbhpc.study.block import Block
from rlbhpc.study.lineage import reject_strangers
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.devices import devices
from rlbhpc.sweep.drain import Drain
from rlbhpc.sweep.local import run_here, run_workers
from rlbhpc.sweep.plan import make_plan
from rlbhpc.sweep.presence import Presence, presence
from rlbhpc.sweep.remember import remember
from rlbhpc.sweep.sealing import seal_and_clean
from rlbhpc.sweep.topup import RULES, TopUp, choose, record


@click.command(epilog="Example: rlbhpc sample math.yaml --arm base --set sampling.n=64")
@click.argument("study", type=click.Path(path_type=Path))
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Override one key.")
@click.option("--arm", "arms", multiple=True, help="Only this arm; may be given again.")
@click.option(
    "--only", type=click.Choice(RULES), help="With --n: raise n for these problems alone."
)
@click.option("--ids", help="With --only ids: problem ids, separated by commas.")
@click.option("--n", type=click.IntRange(min=1), help="With --only: samples per chosen problem.")
@click.option(
    "--shard-tokens", type=click.IntRange(min=1), default=SHARD_TOKENS, show_default=True,
    help="Expected response tokens of one shard.",
)  # fmt: skip
@click.option("--retry-failed", is_flag=True, help="Try again what is stored as failed.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes. Default: one per GPU.")
@click.option("--minutes", type=click.FloatRange(min=0), help="Stop by itself after so long.")
@click.option(
    "--grace", type=click.FloatRange(min=0), default=60.0, show_default=True,
    help="Seconds for what is in flight once it has to stop.",
)  # fmt: skip
def sample(
    study: Path, overrides: tuple[str, ...], arms: tuple[str, ...], only: str | None,
    ids: str | None, n: int | None, shard_tokens: int, retry_failed: bool, workers: int | None,
    minutes: float | None, grace: float,
) -> int:  # fmt: skip
    """Make all samples of STUDY that are missing, on this machine.

    What is complete at the end is sealed into Parquet parts, and its journals are removed. The same
    command again goes on from where it stopped, whatever stopped it. TERM, USR1 and USR2
    ask it to finish what is in flight and stop with exit code 75.
    """
    resolved = load_study(study, overrides)
    for arm in arms:
        if arm not in resolved.arms:
            raise click.BadParameter(f"{arm!r} is none of {', '.join(resolved.arms)}")
    blocks = [b for b in resolved.blocks() if not arms or b.arm in arms]
    reject_strangers(resolved, {resolved.arms[b.arm].model for b in blocks})
    if (only is None) != (n is None) or (only == "ids") != (ids is not None):
        raise click.UsageError("--only goes with --n, and --only ids with --ids as well")
    if only is not None and n is not None:
        top_up(resolved, blocks, only, n, (ids or "").split(","))
    remember(resolved)
    plan = make_plan(resolved, presence(resolved.layout, blocks), shard_tokens, retry_failed)
    print_summary(plan)
    if not plan.samples:
        return NOTHING_TO_DO
    path = plan.save(resolved.layout.plans)
    count = workers or max(1, len(devices()))
    with Drain(grace, None if minutes is None else minutes * 60) as drain:
        if count == 1:
            code = run_here(resolved, plan, plan.shards, drain)
        else:
            numbers = [shard.number for shard in plan.shards]
            code = run_workers(path, numbers, count, drain)
    if not drain.requested:
        seal_and_clean(resolved.layout)
    if code == 0 and any(p.missing for p in presence(resolved.layout, blocks)):
        return INCOMPLETE
    return code


def top_up(study: Study, blocks: list[Block], rule: str, n: int, ids: list[str]) -> None:
    """Choose problems by a rule and ask for ``n`` samples of each."""
    present = {(p.block.arm, p.block.set_name, p.block.step): p for p in everything(study)}
    problem_ids = {problem for b in blocks for problem in b.problems}
    for unknown in set(ids) - problem_ids if rule == "ids" else ():
        raise click.BadParameter(f"--ids: no problem {unknown!r}; one is {min(problem_ids)}")
    pairs = study.comparisons()
    partners = {arm: base for base, arm in pairs} | dict(pairs)
    chosen = []
    for b in blocks:
        other = partners.get(b.arm)
        steps = study.arms[other].steps if other else ()
        # A base has one step; of a line that was trained, its last checkpoint is compared.
        partner = present.get((other, b.set_name, steps[-1])) if other else None
        problems = choose(rule, present[b.arm, b.set_name, b.step], partner, ids)
        if problems:
            chosen.append(TopUp(b.arm, b.set_name, b.step, n, rule, problems))
        click.echo(f"{b.arm}, {b.set_name}, step {b.step}: {len(problems)} problems are {rule}")
    record(study.layout, chosen)


def everything(study: Study) -> list[Presence]:
    """What is there of the whole study."""
    return presence(study.layout, list(study.blocks()))
