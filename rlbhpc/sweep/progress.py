"""How a sweep tells how far it is: a live bar on a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
import time
from typing import TextIO

# Plain lines end up in log files that nobody watches: few of them.
LINE_SECONDS = 30.0
# Before so large a share is done, or so long after the first sample, the time that an engine takes
# to start would be taken for the speed of all samples.
ENOUGH, ENOUGH_SECONDS = 0.01, 60.0


class Progress:
    """Samples done of those asked for, speed, time to go and problems solved so far."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.total = total
        self.done = self.tokens = self._failed = 0
        self._cause = ""
        self._solved: set[tuple[str, int, str]] = set()
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._start = self._said = time.monotonic()
        self._first = float("inf")

    def add(self, arm: str, step: int, problem: str, tokens: int, right: bool) -> None:
        """Count one stored sample."""
        self.done += 1
        self.tokens += tokens
        if right:
            self._solved.add((arm, step, problem))
        now = time.monotonic()
        self._first = min(self._first, now)
        if now - self._said >= (0.2 if self._live else LINE_SECONDS):
            self._said = now
            self._show(now)

    def failed(self, cause: str) -> None:
        """Count a stored sample that is neither right nor wrong."""
        self._failed += 1
        self._cause = cause

    def finish(self) -> None:
        """Say the final state."""
        self._show(time.monotonic())
        if self._live:
            self._stream.write("\n")
        if self._failed:
            self._stream.write(f"The last that failed: {' '.join(self._cause.split())[:300]}\n")
        self._stream.flush()

    def line(self, now: float) -> str:
        """Make the line that is shown."""
        seconds = max(now - self._start, 1e-9)
        share = self.done / self.total if self.total else 1.0
        is_known = self.done and (share >= ENOUGH or now - self._first >= ENOUGH_SECONDS)
        seconds_left = (self.total - self.done) * seconds / self.done if is_known else float("nan")
        parts = [
            f"{self.done:,}/{self.total:,} samples ({share:.0%})",
            f"{self.tokens / seconds:,.0f} tokens/s",
            f"{duration(seconds_left)} to go"
            if self.done < self.total
            else f"in {duration(seconds)}",
            f"{len(self._solved):,} problem{'s' * (len(self._solved) != 1)} solved",
        ]
        if self._failed:
            parts.append(f"{self._failed:,} failed")
        return " · ".join(parts)

    def _show(self, now: float) -> None:
        text = self.line(now)
        self._stream.write(f"\r\x1b[2K{text}" if self._live else f"{text}\n")
        self._stream.flush()


def duration(seconds: float) -> str:
    """Render a time span as a person would say it."""
    if seconds != seconds:
        return "unknown time"
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
