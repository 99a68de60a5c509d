"""What a sweep says of itself while it runs."""

from __future__ import annotations

import io
import time

from rlbhpc.sweep.progress import ENOUGH_SECONDS, Progress


def counted(samples: int) -> Progress:
    progress = Progress(1000, io.StringIO())
    for i in range(samples):
        progress.add("base", 0, str(i), 20, right=i == 0)
    return progress


def test_the_start_of_an_engine_is_not_taken_for_the_speed_of_samples() -> None:
    began = time.monotonic()
    assert "unknown time to go" in counted(0).line(began + 600)
    assert "unknown time to go" in counted(9).line(began + 30)
    assert "· 50 min to go ·" in counted(10).line(time.monotonic() + 30)


def test_a_slow_sweep_tells_after_a_minute_how_long_it_will_take() -> None:
    line = counted(1).line(time.monotonic() + ENOUGH_SECONDS)
    assert "16.7 h to go · 1 problems solved" in line


def test_what_is_done_tells_how_long_it_took() -> None:
    line = counted(1000).line(time.monotonic() + 120)
    assert line == "1,000/1,000 samples (100%) · 167 tokens/s · in 2 min · 1 problems solved"
