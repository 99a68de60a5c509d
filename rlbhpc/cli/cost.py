"""What a plan costs, as ``rlbhpc plan`` shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import click

from rlbhpc.cli.table import print_table
from rlbhpc.launch import predict
from rlbhpc.launch.cluster import Cluster
from rlbhpc.launch.host.task import seconds
from rlbhpc.launch.predict import Outcome, Site, curve
from rlbhpc.sweep.plan import Plan
from rlbhpc.sweep.progress import duration

# Slurm lets a requeued job wait for about so long before it looks at it again.
PAUSE = 120.0


@dataclass(frozen=True)
class Cost:
    """A plan at known rates on a site."""

    plan: Plan
    rates: predict.Rates
    site: Cluster
    width: int
    options: Mapping[str, Any]

    @property
    def prediction(self) -> predict.Prediction:
        """Cost without any disturbance."""
        in_flight = predict.rows_in_flight(self.options)
        return predict.predict(self.plan, self.rates, self.site, self.width, in_flight)

    def curves(self, per_day: float) -> tuple[list[Outcome], list[tuple[float, Outcome]]]:
        """The sweep played through with preemptions, by shards and by drain time."""
        mean = self.plan.tokens / self.plan.samples
        rows = predict.rows_in_flight(self.options)
        met = Site(
            preemptions=per_day / 24,
            limit=seconds(self.site.sample.time),
            drain=self.site.warning,
            pause=PAUSE,
            response=mean * rows / self.rates.tokens,
            in_flight=self.prediction.loss_tokens,
        )
        return curve(self.plan.tokens, len(self.plan.shards), self.rates, met, self.width)

    def record(self, per_day: float | None) -> dict[str, Any]:
        """JSON-ready values."""
        record: dict[str, Any] = {"rates": asdict(self.rates), "width": self.width}
        record["prediction"] = asdict(self.prediction)
        if per_day is not None:
            sizes, drains = self.curves(per_day)
            record["by_shards"] = [asdict(outcome) for outcome in sizes]
            record["by_drain"] = [{"drain": drain, **asdict(outcome)} for drain, outcome in drains]
        return record

    def show(self, per_day: float | None) -> None:
        """Print it for a person."""
        prediction, rates = self.prediction, self.rates
        click.echo(
            f"At {rates.tokens:,.0f} tokens/s and {rates.start:.0f} s to load ({rates.source}):\n"
            f"  {prediction.gpu_hours:,.2f} hours of a device, "
            f"{prediction.start_share:.0%} of them loading; "
            f"{duration(prediction.wall_seconds)} on {self.width:,} workers\n"
            f"  about {prediction.files:,} files, {prediction.megabytes:,.0f} MB, "
            f"{prediction.sbatch_calls} sbatch calls\n"
            f"  a preemption without warning loses about {prediction.loss_tokens:,.0f} tokens"
        )
        if per_day is None:
            return
        sizes, drains = self.curves(per_day)
        click.echo()
        names = ["wall time", "busy hours", "overhead", "attempts per shard", ""]
        rows = [[outcome.shards, *_cells(outcome)] for outcome in sizes]
        print_table(f"{per_day:g} preemptions of a worker per day", ["shards", *names], rows)
        by_drain = [[f"{drain:g} s", *_cells(outcome)] for drain, outcome in drains]
        print_table(f"With {len(self.plan.shards):,} shards", ["drain time", *names], by_drain)


def _cells(outcome: Outcome) -> list[str]:
    never = "" if outcome.finished else "never ends: the time limit is below the start"
    return [
        duration(outcome.wall_seconds), f"{outcome.busy_hours:,.1f}", f"{outcome.overhead:.1%}",
        f"{outcome.attempts_per_shard:.2f}", never,
    ]  # fmt: skip
