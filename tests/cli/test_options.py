"""Options of the verbs: each says what it is for, and those that many verbs have."""

from __future__ import annotations

import click
import pytest

from rlbhpc.cli import shared
from rlbhpc.cli.main import VERBS, cli


def commands(command: click.Command) -> list[click.Command]:
    """A command and those below it."""
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return [command, *(each for child in below for each in commands(child))]


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_says_what_it_is_for(verb: str) -> None:
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    for each in commands(command):
        options = [o for o in each.params if isinstance(o, click.Option)]
        assert all(option.help or option.hidden for option in options), each.name


def test_minutes_are_a_limit_in_seconds() -> None:
    verb = shared.minutes(click.Command("work", callback=lambda limit: limit))
    assert verb.main(["--minutes", "0.5"], standalone_mode=False) == 30
    assert verb.main([], standalone_mode=False) is None
