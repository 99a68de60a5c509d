"""A thread that verifies and stores what the engine hands over, so that the engine never waits."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType

from rlbhpc.engines.completion import Completion
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.sample import Sample
from rlbhpc.sweep.judge import Asked, Judge

# Completions that may wait for verification. Each is some kilobytes; when verification is slower
# than sampling for so long, the engine has to wait after all, or memory would grow without end.
WAITING = 4096
# Completions that are verified as one batch.
BATCH = 256


class Recorder:
    """Verifies and journals completions in the background; closing it flushes everything.

    An error on the recording side (a full disk) is raised to the sampling side at its next
    ``put``, so a sweep never goes on sampling what it cannot keep.
    """

    def __init__(
        self,
        judge: Judge,
        folder_of: Callable[[str, str], Path],
        attempt: str,
        on_stored: Callable[[Sample], None],
    ) -> None:
        self._judge = judge
        self._folder_of = folder_of
        self._attempt = attempt
        self._on_stored = on_stored
        self._writers: dict[tuple[str, str], JournalWriter] = {}
        self._queue: queue.Queue[tuple[Asked, Completion] | None] = queue.Queue(WAITING)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def __enter__(self) -> Recorder:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._queue.put(None)
        self._thread.join()
        # What was sampled and is not stored matters more than why sampling stopped.
        if self._error is not None and self._error is not error:
            raise self._error from error

    def put(self, request: Asked, done: Completion) -> None:
        """Hand over one completion."""
        self.check()
        self._queue.put((request, done))

    def check(self) -> None:
        """Raise what went wrong with recording, if anything did."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        closing = False
        while not closing:
            batch, closing = self._take()
            # After an error the queue is still emptied, or the sampling side would block on it.
            if self._error is None:
                self._trying(partial(self._store, batch))
        for writer in self._writers.values():
            self._trying(writer.close)

    def _trying(self, step: Callable[[], None]) -> None:
        """Take a step and keep its error for the sampling side; the first error counts."""
        try:
            step()
        except BaseException as error:
            self._error = self._error or error

    def _store(self, batch: list[tuple[Asked, Completion]]) -> None:
        for row in self._judge.samples(batch):
            self._writer(row.key.arm, row.key.set_name).append(row)
            self._on_stored(row)
        for writer in self._writers.values():
            writer.tick()

    def _take(self) -> tuple[list[tuple[Asked, Completion]], bool]:
        """Everything that waits, at least one and at most a batch; and whether it was the last."""
        batch: list[tuple[Asked, Completion]] = []
        item = self._queue.get()
        while item is not None:
            batch.append(item)
            if len(batch) >= BATCH or self._queue.empty():
                return batch, False
            item = self._queue.get()
        return batch, True

    def _writer(self, arm: str, set_name: str) -> JournalWriter:
        if (arm, set_name) not in self._writers:
            folder = self._folder_of(arm, set_name)
            self._writers[arm, set_name] = JournalWriter(folder, self._attempt)
        return self._writers[arm, set_name]
