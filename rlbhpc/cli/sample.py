"""``rlbhpc sample``: make what is missing, on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from rlbhpc.cli import shared
from rlbhpc.cli.check import tell_of_old_verdicts
from rlbhpc.errors import INCOMPLETE, NOTHING_TO_DO, TRY_AGAIN
from rlbhpc.launch.launches import note
from rlbhpc.launch.prepare import SHARD_TOKENS
from rlbhpc.store.seal import seal_and_clean
from rlbhpc.study.lineage import reject_strangers
from rlbhpc.sweep.drain import Drain
from rlbhpc.sweep.load import check_verifiers
from rlbhpc.sweep.local import run_plan
from rlbhpc.sweep.plan import make_plan, presence
from rlbhpc.sweep.remember import remember


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
    reject_strangers(resolved, {resolved.arms[b.arm].model for b in blocks})
    tell_of_old_verdicts(remember(resolved), tell)
    plan = make_plan(resolved, presence(resolved.layout, blocks), shard_tokens, retry_failed)
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
    if code == 0 and any(p.missing for p in presence(resolved.layout, blocks)):
        return INCOMPLETE
    # A worker that was killed leaves work undone; the same command goes on from there.
    return TRY_AGAIN if code > 128 else code
