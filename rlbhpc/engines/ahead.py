"""Run iterators ahead of their reader, each in a thread, with a bounded queue between them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """What several iterators yield, each advanced in a thread of its own.

    An engine keeps stepping while the reader verifies and writes; PyTorch releases the
    interpreter lock in its operations, so both make progress. At most ``bound`` items wait: a
    reader slower than the engine stops it there, so memory stays bounded. An exception of a
    source is raised in the reader. ``close`` stops the sources at their next item and waits until
    they have let go of the model.
    """

    def __init__(self, sources: Sequence[Iterator[T]], bound: int = 1024) -> None:
        self._queue: queue.Queue[tuple[bool, T | BaseException | None]] = queue.Queue(bound)
        self._stop = threading.Event()
        self._running = len(sources)
        self._threads = [
            threading.Thread(target=self._run, args=(source,), daemon=True) for source in sources
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, source: Iterator[T]) -> None:
        end: BaseException | None = None
        try:
            for item in source:
                self._put((True, item))
                if self._stop.is_set():
                    break
            close = getattr(source, "close", None)
            if close is not None:
                close()
        except BaseException as error:  # it is raised again in the reader
            end = error
        self._put((False, end))

    def _put(self, entry: tuple[bool, T | BaseException | None]) -> None:
        while not self._stop.is_set():
            try:
                self._queue.put(entry, timeout=0.1)
            except queue.Full:
                continue
            return

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        while self._running:
            alive, item = self._queue.get()
            if alive:
                return item  # type: ignore[return-value]
            self._running -= 1
            if isinstance(item, BaseException):
                self.close()
                raise item
        raise StopIteration

    def close(self) -> None:
        """Drop what is left and wait for the threads."""
        self._running = 0
        self._stop.set()
        for thread in self._threads:
            thread.join()


class Shared(Generic[T]):
    """One iterator that several threads pull from."""

    def __init__(self, source: Iterator[T]) -> None:
        self._source = source
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._lock:
            return next(self._source)
