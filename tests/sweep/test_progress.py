"""What a sweep says of itself while it runs."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from rlbhpc.sweep import process
from rlbhpc.sweep.process import Progress, duration


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    seconds = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(process, "time", seconds)
    return seconds


def line(clock: Any, samples: int, first: float, now: float) -> str:
    """The line ``now`` seconds after the start, with all samples so far at the second ``first``."""
    clock.monotonic = lambda: 0.0
    counted = Progress(1000, io.StringIO())
    clock.monotonic = lambda: first
    for i in range(samples):
        counted.add("base", 0, str(i), 20, right=i == 0)
    return counted.line(now)


def test_the_start_of_an_engine_is_not_taken_for_the_speed_of_samples(clock: Any) -> None:
    assert "unknown time to go" in line(clock, 0, 0, 600)
    assert "unknown time to go" in line(clock, 9, 30, 89)
    assert "· 50 min to go ·" in line(clock, 10, 30, 30)


def test_a_slow_sweep_tells_after_a_minute_how_long_it_will_take(clock: Any) -> None:
    assert "25.0 h to go · 1 problem solved" in line(clock, 1, 30, 90)


def test_what_is_done_tells_how_long_it_took(clock: Any) -> None:
    text = line(clock, 1000, 30, 120)
    assert text == "1,000/1,000 samples (100%) · 167 tokens/s · in 2 min · 1 problem solved"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


HALF = "2/4 samples (50%) · 1 tokens/s · 30 s to go · 1 problem solved"
WHOLE = "4/4 samples (100%) · 1 tokens/s · in 1 min · 1 problem solved"


@pytest.mark.parametrize(
    ("stream", "times", "text"),
    [
        (io.StringIO(), (29, 30, 59, 60), f"{HALF}\n{WHOLE}\n{WHOLE}\n"),
        (
            Terminal(),
            (0.1, 30, 30.1, 60),
            "".join(f"\r\x1b[2K{x}" for x in (HALF, WHOLE, WHOLE)) + "\n",
        ),
    ],
)
def test_a_log_gets_few_lines_and_a_terminal_one_that_changes(
    clock: Any, stream: io.StringIO, times: tuple[float, ...], text: str
) -> None:
    counted = Progress(4, stream)
    for now in times:
        clock.monotonic = lambda now=now: now
        counted.add("base", 0, "p", 20, right=True)
    counted.finish()
    assert stream.getvalue() == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(59, "59 s"), (60, "1 min"), (3540, "59 min"), (3600, "1.0 h"), (3_600_000, "1000.0 h")],
)
def test_a_span_of_time_has_a_unit_of_its_size(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_samples_that_failed_are_told_with_the_last_cause() -> None:
    said = io.StringIO()
    counted = Progress(2, said)
    counted.add("base", 0, "a", 20, right=False)
    counted.failed("raised TypeError: the verifier\ngave None" + "." * 999)
    counted.finish()
    *_, line, cause = said.getvalue().splitlines()
    assert line.endswith(" · 1 failed") and len(cause) == len("The last that failed: ") + 300
    assert cause.startswith("The last that failed: raised TypeError: the verifier gave None...")
