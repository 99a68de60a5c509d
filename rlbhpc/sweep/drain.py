"""Stopping in time: a warning signal or a deadline asks long work to finish and save."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Generic, TypeVar

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
