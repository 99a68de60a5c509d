"""What a process is told and tells: its devices, when to stop, and how far it is."""

from __future__ import annotations

import itertools
import math
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final, Generic, TextIO, TypeVar

# ---- devices -------------------------------------------------------------------------------------
# Which devices a process may use.


# The second is what Slurm sets in a job without a GPU.
NONE: Final = ("", "NoDevFiles", "-1")


def devices() -> list[str]:
    """GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; none on a CPU host.

    A name is an index, or `GPU-…` or `MIG-…`.
    """
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    amd = os.environ.get("ROCR_VISIBLE_DEVICES")
    if chosen is None and amd is not None:
        # HIP numbers what this lets through anew.
        return [str(index) for index, _ in enumerate(filter(None, amd.split(",")))]
    if chosen is not None:
        names = (name.strip() for name in chosen.split(","))
        # CUDA reads up to the first that names none.
        return list(itertools.takewhile(lambda name: name not in NONE, names))
    if shutil.which("nvidia-smi") is None:
        return []
    listed = subprocess.run(
        ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return listed.stdout.split()


def shares(gpus: Sequence[str], gpus_per_copy: int) -> list[str]:
    """GPUs of each copy of a model that fits, in the words of CUDA_VISIBLE_DEVICES."""
    starts = range(0, len(gpus) - gpus_per_copy + 1, gpus_per_copy)
    return [",".join(gpus[start : start + gpus_per_copy]) for start in starts]


# ---- drain ---------------------------------------------------------------------------------------
# Stopping in time: a warning signal or a deadline asks long work to finish and save.


T = TypeVar("T")

# Slurm's time limit and preemption (TERM), submitit (USR2), Lightning and hand-written
# `--signal=B:USR1@…` scripts (USR1).
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
NEVER = float("inf")
# How often to look whether the time is over, and how many values may wait for their reader.
_POLL_SECONDS = 0.2
_MAX_WAITING = 256


class Interrupted(BaseException):
    """A warning came while work ran that is thrown away; no `except Exception` may swallow it."""


class Drain:
    """Says whether to stop, and how long there is left to do so.

    The first warning starts a grace period; work looks at :attr:`requested` between units and at
    :meth:`time_left` to decide whether one more unit still fits. Nothing is raised, so no code is
    interrupted in the middle of a write, but for what is marked as :meth:`interruptible`.

    ``grace``: seconds between the warning and the end. ``limit``: seconds until the warning comes
    by itself; None means never. ``abandoned``: whether some work was left running in its thread
    because the time was over.
    """

    def __init__(self, grace: float = 60.0, limit: float | None = None) -> None:
        """Start the clock; nothing is caught until the block is entered.

        ``_deadline``: time at which the warning comes by itself. ``_warned``: time of the first
        warning. ``_previous``: handlers of the signals, to be put back. ``_raises``: whether a
        warning is raised in the main thread, instead of only noted.
        """
        self.grace = grace
        self._deadline = NEVER if limit is None else time.monotonic() + limit
        self._warned = NEVER
        self._previous: dict[signal.Signals, object] = {}
        self.abandoned = False
        self._raises = False

    def __enter__(self) -> Drain:
        """Catch the warning signals until the block is left."""
        for number in SIGNALS:
            self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._previous.clear()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.request()
        if self._raises:
            self._raises = False
            raise Interrupted

    def request(self) -> None:
        """Ask for the stop. Asking again does not prolong the grace period."""
        self._warned = min(self._warned, time.monotonic())

    @property
    def requested(self) -> bool:
        """Whether the work should come to its end."""
        if time.monotonic() >= self._deadline:
            self.request()
        return self._warned < NEVER

    def time_left(self) -> float:
        """Seconds until the end of the grace period; infinite without a request."""
        return self._warned + self.grace - time.monotonic() if self.requested else NEVER

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Raise :class:`Interrupted` in this block at a warning, or if there was one already.

        For the main thread, and for work that writes nothing and is worth nothing unfinished, such
        as a rollout: its longest response could outlast any grace period.

        The deadline is made a signal by a timer, so that it comes even while the main thread waits.
        """
        timer: threading.Timer | None = None
        if self._deadline < NEVER and self._previous:
            seconds = max(self._deadline - time.monotonic(), 0.0)
            # A true signal to the main thread also ends a wait of it.
            main_thread = threading.main_thread().ident
            timer = threading.Timer(seconds, signal.pthread_kill, (main_thread, signal.SIGUSR2))
            timer.daemon = True
            timer.start()
        self._raises = True
        try:
            if self.requested:
                raise Interrupted
            yield
        finally:
            self._raises = False
            if timer is not None:
                timer.cancel()

    def within(self, stream: Iterator[T]) -> Iterator[T]:
        """Hand on what ``stream`` yields until it ends or the time is over.

        The stream runs in a thread of its own, so a unit of work that outlasts the grace period
        cannot hold up the end: it is left behind, and what it works with must not be touched.
        """
        results: queue.Queue[_Item[T] | _End] = queue.Queue(_MAX_WAITING)

        def run() -> None:
            """Put each value of the stream into the queue, then its end or its error."""
            try:
                for value in stream:
                    results.put(_Item(value))
                results.put(_End(None))
            except BaseException as error:  # it is raised again on the other side
                results.put(_End(error))

        threading.Thread(target=run, name="sampling", daemon=True).start()
        while True:
            try:
                result = results.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if self.time_left() <= 0:
                    self.abandoned = True
                    return
                continue
            if isinstance(result, _Item):
                yield result.value
            elif result.error is not None:
                raise result.error
            else:
                return


@dataclass(frozen=True)
class _Item(Generic[T]):
    """A value of a stream in another thread."""

    value: T


@dataclass(frozen=True)
class _End:
    """The end of a stream in another thread, and the error that ended it."""

    error: BaseException | None


# ---- progress ------------------------------------------------------------------------------------
# How a sweep tells how far it is: a live bar on a terminal, plain lines everywhere else.


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
        """Start counting at 0 of ``total`` samples.

        ``stream``: where progress is shown, stderr by default; on a terminal one line is kept up to
        date, elsewhere a line is added now and then. ``_solved`` holds the (arm, step, problem)
        with a right sample.
        """
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
        """Count one stored sample, and show the progress if it was not shown lately.

        ``tokens``: of the response. ``right``: whether it solved the problem.
        """
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
        """Show the final state, and why the last sample that failed did."""
        self._show(time.monotonic())
        if self._is_live:
            self._stream.write("\n")
        if self._failed:
            cause = " ".join(self._last_cause.split())[:_MAX_CAUSE_CHARACTERS]
            self._stream.write(f"The last that failed: {cause}\n")
        self._stream.flush()

    def line(self, now: float) -> str:
        """The line that is shown: samples done, speed, time to go, problems solved, failures.

        ``now``: on the monotonic clock. The time to go is unknown until enough is done: an engine
        takes long to start, and that would be taken for the speed of all samples.
        """
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
