"""How a sweep tells how far it is: a live bar on a terminal, plain lines everywhere else."""

from __future__ import annotations

import math
import sys
import time
from typing import TextIO

# Plain lines end up in log files that nobody watches: few of them.
LINE_SECONDS = 30.0
_LIVE_SECONDS = 0.2
# An engine takes long to start. Before so large a share is done, or so long after the first sample,
# that time would be taken for the speed of all samples.
_ENOUGH_SHARE = 0.01
_ENOUGH_SECONDS = 60.0
_MAX_CAUSE_CHARACTERS = 300


class Progress:
    """Samples done of those asked for, speed, time to go and problems solved so far."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.total = total
        self.done = 0
        self.tokens = 0
        self._failed = 0
        self._last_cause = ""
        self._solved: set[tuple[str, int, str]] = set()
        self._stream = stream or sys.stderr
        self._is_live = self._stream.isatty()
        self._start = time.monotonic()
        self._last_shown = self._start
        self._first_sample = float("inf")

    def add(self, arm: str, step: int, problem: str, tokens: int, right: bool) -> None:
        """Count one stored sample."""
        self.done += 1
        self.tokens += tokens
        if right:
            self._solved.add((arm, step, problem))
        now = time.monotonic()
        self._first_sample = min(self._first_sample, now)
        if now - self._last_shown >= (_LIVE_SECONDS if self._is_live else LINE_SECONDS):
            self._last_shown = now
            self._show(now)

    def failed(self, cause: str) -> None:
        """Count a stored sample that is neither right nor wrong."""
        self._failed += 1
        self._last_cause = cause

    def finish(self) -> None:
        """Show the final state."""
        self._show(time.monotonic())
        if self._is_live:
            self._stream.write("\n")
        if self._failed:
            cause = " ".join(self._last_cause.split())[:_MAX_CAUSE_CHARACTERS]
            self._stream.write(f"The last that failed: {cause}\n")
        self._stream.flush()

    def line(self, now: float) -> str:
        """Make the line that is shown."""
        seconds = max(now - self._start, 1e-9)
        share = self.done / self.total if self.total else 1.0
        has_enough = share >= _ENOUGH_SHARE or now - self._first_sample >= _ENOUGH_SECONDS
        time_text = f"in {duration(seconds)}"
        if self.done < self.total:
            seconds_left = float("nan")
            if self.done and has_enough:
                seconds_left = (self.total - self.done) * seconds / self.done
            time_text = f"{duration(seconds_left)} to go"
        plural = "" if len(self._solved) == 1 else "s"
        parts = [
            f"{self.done:,}/{self.total:,} samples ({share:.0%})",
            f"{self.tokens / seconds:,.0f} tokens/s",
            time_text,
            f"{len(self._solved):,} problem{plural} solved",
        ]
        if self._failed:
            parts.append(f"{self._failed:,} failed")
        return " · ".join(parts)

    def _show(self, now: float) -> None:
        text = self.line(now)
        self._stream.write(f"\r\x1b[2K{text}" if self._is_live else f"{text}\n")
        self._stream.flush()


def duration(seconds: float) -> str:
    """Render a time span as a person would say it; NaN is unknown."""
    if math.isnan(seconds):
        return "unknown time"
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
