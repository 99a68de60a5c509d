"""Samples that take several requests each, over the open batch of any engine.

A *process* draws one sample. It is a generator that yields a request, is sent the request's
completion, and so on, until it returns the completion of the whole sample. Many processes go on
side by side, so that the engine stays full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rlbhpc.engines import power
from rlbhpc.engines.completion import NOT_READY, Completion, Finish, Request
from rlbhpc.engines.engine import Engine
from rlbhpc.engines.episode import Player, Tools
from rlbhpc.engines.tokens import StopText
from rlbhpc.study.keys import Sampling

Process = Generator[Request | Future[Any], Any, Completion]


def draw(
    engine: Engine, requests: Iterable[Request], sampling: Sampling, tools: Tools | None = None
) -> Iterator[Completion]:
    """Yield the sample of each request as it finishes: one response, or what it takes more for.

    ``tools``: what responses may call, where the setting has ``turns``.
    """
    if tools is not None:
        player = Player(engine.tokens, sampling, engine.max_length, tools)
        return drive(engine, requests, player.turn_sampling, player.play)
    if sampling.power is None:
        return engine.generate(requests, sampling)
    stop = StopText(engine.tokens, sampling)

    def start(request: Request) -> Process:
        return power.sample_power(request, sampling, stop, engine.max_length)

    return drive(engine, requests, sampling, start)


def drive(
    engine: Engine,
    requests: Iterable[Request],
    sampling: Sampling,
    start: Callable[[Request], Process],
) -> Iterator[Completion]:
    """Run a process for each request; yield the completions of whole samples as they finish.

    ``start`` makes the process of a request. A request that fails ends its sample: a sample is
    drawn again as a whole.
    """
    batch = OpenBatch(requests, start)
    try:
        for completion in engine.generate(batch, sampling):
            if completion.finish is Finish.ERROR:
                batch.end(completion)
            else:
                batch.advance(completion.tag, completion)
            yield from batch.pop_finished()
        yield from batch.pop_finished()
    finally:
        batch.close()


class OpenBatch:
    """The requests of all processes, as an engine pulls them.

    Those of samples under way go first, then a new sample begins. There is none ready where all
    processes wait, for the engine or for tools. Each has at most one request there, which bears the
    tag of its sample.
    """

    def __init__(self, requests: Iterable[Request], start: Callable[[Request], Process]) -> None:
        self._new_requests = iter(requests)
        self._start = start
        self._processes: dict[int, Process] = {}
        self._ready: deque[Request] = deque()
        self._finished: deque[Completion] = deque()
        self._error: BaseException | None = None

    def __iter__(self) -> Iterator[Request]:
        return self

    def __next__(self) -> Request:
        if self._error is not None:
            raise self._error
        while not self._ready:
            request = next(self._new_requests, None)
            if request is None:
                break
            self._processes[request.tag] = self._start(request)
            self.advance(request.tag, None)
        if self._ready:
            return self._ready.popleft()
        if self._processes:
            return NOT_READY
        raise StopIteration

    def advance(self, tag: int, outcome: Any) -> None:
        """Send what the process of a sample waits for, None to begin it, and take what it gives.

        That is its next request, a future whose result it needs, or the completion of the whole
        sample.
        """
        try:
            step = self._processes[tag].send(outcome)
        except StopIteration as stop:
            self.end(stop.value)
            return
        if isinstance(step, Future):
            step.add_done_callback(lambda future: self._resume(tag, future))
        else:
            self._ready.append(replace(step, tag=tag))

    def _resume(self, tag: int, future: Future[Any]) -> None:
        """Go on with a process in the thread of its tool; an error is raised in the engine's."""
        try:
            self.advance(tag, future.result())
        except BaseException as error:
            self._error = error

    def end(self, completion: Completion) -> None:
        """Note the completion of a whole sample, whose process ends with it."""
        self._finished.append(completion)
        # Last: without processes the engine's requests are at their end.
        self._processes.pop(completion.tag).close()

    def close(self) -> None:
        """Drop the samples that have not finished."""
        for process in list(self._processes.values()):
            # One that a tool's thread goes on with can't be closed here.
            with suppress(ValueError):
                process.close()

    def pop_finished(self) -> Iterator[Completion]:
        """Yield the samples that have finished."""
        while self._finished:
            yield self._finished.popleft()
