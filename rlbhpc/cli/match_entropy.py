"""``rlbhpc match-entropy``: the temperature at which one arm is as random as another."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from rlbhpc.cli import shared
from rlbhpc.cli.table import print_json, tell
from rlbhpc.errors import DONE, NOTHING_TO_DO
from rlbhpc.study.study import Study
from rlbhpc.sweep.match import match


@click.command(epilog="Example: rlbhpc match-entropy math.yaml --match rl-matched")
@click.argument("study", type=click.Path(path_type=Path))
@shared.overrides
@click.option("--match", "chosen", multiple=True, help="Only this match; may be given again.")
@shared.as_json
def match_entropy(
    study: Path, overrides: tuple[str, ...], chosen: tuple[str, ...], as_json: bool
) -> int:
    """Find the temperatures that STUDY asks for under `match_entropy`.

    For each entry the temperature at which the mean token entropy of one arm is that of the other
    arm at its own temperature, by bisection on a seeded subset of the problems. What is printed is
    the arm to put into the study in place of the entry; nothing is stored.
    """
    resolved = shared.logged_study(study, overrides, "match-entropy")
    names = shared.named_entries("--match", chosen, resolved.file.match_entropy)
    if not names:
        click.echo("The study asks for no match.")
        return NOTHING_TO_DO
    results: dict[str, Any] = {}
    for name in names:
        entry = resolved.file.match_entropy[name]
        matched = match(resolved, name, tell)
        arm = line(resolved, name, matched.temperature)
        results[name] = {**asdict(matched), "tolerance": entry.tolerance, "arm": arm}
        if not as_json:
            click.echo(
                f"{entry.arm} at temperature {matched.temperature:g} has {matched.entropy:.4f} "
                f"nat per token, {entry.to} has {matched.wanted:.4f} "
                f"(tolerance {entry.tolerance:g}).\n"
                f"In the study, remove match_entropy.{name} and put under `arms`:\n"
                f"  {arm}"
            )
    if as_json:
        print_json(results)
    return DONE


def line(study: Study, name: str, temperature: float) -> str:
    """The matched arm as one line of a study file."""
    arm = study.file.arms[study.file.match_entropy[name].arm]
    values = arm.model_dump(mode="json", exclude_defaults=True) | {"temperature": temperature}
    return f"{name}: {{{', '.join(f'{key}: {_plain(value)}' for key, value in values.items())}}}"


def _plain(value: Any) -> str:
    """A value as YAML reads it back; JSON is YAML."""
    simple = isinstance(value, str) and value.replace("-", "").replace("_", "").isalnum()
    return str(value) if simple else json.dumps(value, ensure_ascii=False)
