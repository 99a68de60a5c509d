"""Options that several verbs have, and what is common to their values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rlbhpc.study.study import Study

as_json = click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
overrides = click.option(
    "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Override one key."
)
one_arm = click.option("--arm", help="Keep to one arm.")
one_step = click.option("--step", type=int, help="Keep to one training step; 0 is the base.")
judging_workers = click.option(
    "--workers", type=click.IntRange(min=1), default=1, show_default=True,
    help="Processes that judge what takes long.",
)  # fmt: skip
minutes = click.option(
    "--minutes", "limit", type=click.FloatRange(min=0), help="Stop by itself after so long.",
    callback=lambda context, option, value: None if value is None else value * 60,
)  # fmt: skip
grace = click.option(
    "--grace", type=click.FloatRange(min=0), default=60.0, show_default=True,
    help="Seconds for what is in flight once it has to stop.",
)  # fmt: skip


def logged_study(file: Path, overrides: Sequence[str], verb: str) -> Study:
    """Load a study whose run keeps what the verb does in its log."""
    from rlbhpc.debug_log import keep
    from rlbhpc.study.load import load_study

    study = load_study(file, overrides)
    keep(study.layout.logs, verb)
    return study


def named_entries(option: str, chosen: Sequence[str], entries: Iterable[str]) -> list[str]:
    """The entries of a study that an option names, all where it names none."""
    names = list(entries)
    for name in chosen:
        if name not in names:
            raise click.BadParameter(f"{option}: {name!r} is none of {', '.join(names) or 'none'}")
    return list(chosen) or names
