"""What `rlbhpc plan --until` prints of looks at a growing study."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlbhpc.cli.sampling import look_rows, print_looks, tell_next_command
from rlbhpc.stats.joint import Finding
from rlbhpc.sweep.looks import LookRecord, More, Waiting, as_row
from tests.cli.transcript import narrowed

DRAWING = LookRecord(
    ("base", 0), ("rl", 100), "math", 1024, 0.02, 3, "digest", 0.01,
    lost=Finding("yes", 0.125, 0.0625, 0.25, 5, 40),
    gained=Finding("undecided", 0.01, 0.0, 0.05, 1, 40),
    outcome="draw",
    more=(More("base", "math", 0, 64, ("a", "b")), More("rl", "math", 100, 64, ("b", "c"))),
)  # fmt: skip
ENDED = [replace(DRAWING, outcome=outcome) for outcome in ("decided", "nothing open", "budget")]
WAITING = [Waiting("base", "rl", "gsm8k", 1200, None), Waiting("base", "sft", "math", 7, DRAWING)]
FOUND = "3  1,024  yes (12.5 %, 6.2 to 25.0)  undecided (at most 5.0 %)"
PRINTED = f"""\
Looks
base  trained  problem set  look  k  lost  gained  next
base  rl  math  {FOUND}  more samples of 3 problems
base  rl  math  {FOUND}  decided
base  rl  math  {FOUND}  no problem is left open: only more problems can decide
base  rl  math  {FOUND}  the budget is out
base  rl  gsm8k  –  –  –  –  1,200 samples are missing; no look was taken
base  sft  math  {FOUND}  7 samples are missing; no look was taken
"""


def test_looks_say_what_is_decided_and_what_comes_next(capsys: pytest.CaptureFixture[str]) -> None:
    print_looks([DRAWING, *ENDED, *WAITING])
    assert "\n".join([*narrowed(capsys.readouterr().out), ""]) == PRINTED
    assert look_rows([DRAWING, *WAITING]) == [
        as_row(DRAWING),
        {"base": "base", "trained": "rl", "set_name": "gsm8k", "outcome": "samples are missing",
         "missing": 1200, "last": None},
        {"base": "base", "trained": "sft", "set_name": "math", "outcome": "samples are missing",
         "missing": 7, "last": as_row(DRAWING)},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("results", "draws"), [(ENDED, False), ([*ENDED, DRAWING], True), (WAITING[:1], True)]
)
def test_the_next_command_is_named_where_samples_are_missing(
    capsys: pytest.CaptureFixture[str], results: list[LookRecord | Waiting], draws: bool
) -> None:
    tell_next_command(results, "math.yaml")
    printed = capsys.readouterr().out
    assert printed.startswith("Draw what is missing with `rlbhpc launch math.yaml`") == draws
    assert bool(printed) == draws
