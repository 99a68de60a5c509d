"""Stopping in time: a warning signal or a deadline asks long work to finish and save."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

# Slurm's time limit and preemption (TERM), submitit (USR2), Lightning and hand-written
# `--signal=B:USR1@…` scripts (USR1).
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
NEVER = float("inf")


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
        clock: threading.Timer | None = None
        if self._deadline < NEVER and self._previous:
            seconds = self._deadline - time.monotonic()
            # A true signal to the main thread, so that a wait of its ends, too.
            main = threading.main_thread().ident
            clock = threading.Timer(max(seconds, 0.0), signal.pthread_kill, (main, signal.SIGUSR2))
            clock.daemon = True
            clock.start()
        self._raises = True
        try:
            if self.requested:
                raise Interrupted
            yield
        finally:
            self._raises = False
            if clock is not None:
                clock.cancel()

    def within(self, stream: Iterator[T]) -> Iterator[T]:
        """Hand on what ``stream`` yields until it ends or the time is over.

        The stream runs in a thread of its own, so a unit of work that outlasts the grace period
        cannot hold up the end: it is left behind, and what it works with must not be touched.
        """
        ready: queue.Queue[tuple[bool, T | BaseException | None]] = queue.Queue(256)

        def run() -> None:
            try:
                for item in stream:
                    ready.put((True, item))
                ready.put((False, None))
            except BaseException as error:  # it is raised again on the other side
                ready.put((False, error))

        threading.Thread(target=run, name="sampling", daemon=True).start()
        while True:
            try:
                alive, item = ready.get(timeout=0.2)
            except queue.Empty:
                if self.time_left() <= 0:
                    self.abandoned = True
                    return
                continue
            if alive:
                yield item  # type: ignore[misc]
            elif isinstance(item, BaseException):
                raise item
            else:
                return
