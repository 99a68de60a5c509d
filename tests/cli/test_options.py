"""The words that every verb takes: their types, ranges and defaults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from rlbhpc.cli import shared
from rlbhpc.cli.main import VERBS, cli

EXPECTED = Path(__file__).with_name("options.txt")
FACTS = ("required", "multiple", "is_flag", "show_default", "hidden")


def described(verb: str, command: click.Command) -> Iterator[str]:
    """A line for each word that a verb takes, and those of the verbs below it."""
    for parameter in command.params:
        if parameter.name == "verbose":
            continue
        kind = parameter.type.name
        if hasattr(parameter.type, "min"):
            kind = repr(parameter.type)
        if isinstance(parameter.type, click.Choice):
            kind = "|".join(parameter.type.choices)
        facts = [fact for fact in FACTS if getattr(parameter, fact, False)]
        if isinstance(parameter.default, int | float | str | Path):
            facts.append(f"default={parameter.default}")
        if parameter.nargs != 1:
            facts.append(f"nargs={parameter.nargs}")
        yield " ".join([verb, *parameter.opts, kind, *facts])
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from described(f"{verb} {name}", child)


def test_options_of_every_verb() -> None:
    context = click.Context(cli)
    lines: list[str] = []
    for name in VERBS:
        command = cli.get_command(context, name)
        assert command is not None
        lines += described(name, command)
    assert "\n".join(lines) + "\n" == EXPECTED.read_text()


def test_minutes_are_a_limit_in_seconds() -> None:
    verb = shared.minutes(click.Command("work", callback=lambda limit: limit))
    assert verb.main(["--minutes", "0.5"], standalone_mode=False) == 30
    assert verb.main([], standalone_mode=False) is None
