"""The interface of every engine, and the registry that finds one by name.

A new engine is one file (or folder) that has the methods of :class:`Engine`, plus a line in
:data:`ENGINES`.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from rlbhpc import plugins
from rlbhpc.engines.completion import NOT_READY, Completion, Finish, Request
from rlbhpc.errors import UserError
from rlbhpc.study.keys import Sampling

if TYPE_CHECKING:
    import torch

    from rlbhpc.engines.tokens import Tokens


@dataclass(frozen=True)
class Score:
    """A given response under the model: one value per response token, the end-of-text included.

    ``logprobs`` are those of the given tokens and ``entropies`` those of the full-vocabulary
    next-token distributions (nats), both at the temperature that was asked for.
    """

    logprobs: NDArray[np.float32]
    entropies: NDArray[np.float32]


class Engine(Protocol):
    """Prompts in, tokens with log-probs out.

    ``max_length`` counts prompt and response together. An engine that ``sees`` shows the model the
    images of a request. It is ``deterministic`` if a sample's bits depend only on (model, prompt,
    seed, sampling), whatever runs beside it in the batch.
    """

    tokens: Tokens
    max_length: int
    sees: bool
    deterministic: bool

    def generate(self, requests: Iterable[Request], sampling: Sampling) -> Iterator[Completion]:
        """Yield every request's completion as it finishes, in no particular order.

        Requests are pulled when there is room for them, from a thread of the engine's own, so to
        stop admitting (a drain) let ``requests`` end: what is in flight still finishes. Where one
        is :data:`NOT_READY`, go on and ask again: another one may depend on what is in flight.
        Closing the returned iterator drops what is in flight. A request that cannot be run comes
        back with :attr:`Finish.ERROR` and the reason; it does not stop the others.
        """
        ...

    def score(
        self, texts: Iterable[tuple[tuple[int, ...], tuple[int, ...]]], temperature: float = 1.0
    ) -> Iterator[Score]:
        """Score responses given their prompts: pairs of (prompt ids, response ids), in order."""
        ...

    def load_weights(self, weights: Path | Iterable[tuple[str, torch.Tensor]]) -> None:
        """Swap all weights in place: a model folder, or (name, tensor) as transformers names them.

        An unknown name, another shape or a missing weight is an error (an output layer that is
        tied to the embedding may be left out): a model that is half old and half new still runs.
        """
        ...

    def rest(self) -> None:
        """Give memory back for a while; nothing is asked of the engine before new weights come."""
        ...

    def close(self) -> None:
        """Free what the engine holds. A closed engine cannot be used again."""
        ...


@dataclass(frozen=True)
class Kind:
    """Where an engine is, and the settings that it takes: its keyword arguments."""

    module: str
    name: str
    settings: tuple[str, ...]


#: Settings that are whole numbers of at least one.
COUNTS: Final = frozenset((
    "rows", "max_length", "tensor_parallel", "data_parallel", "context", "concurrency", "tries",
))  # fmt: skip

#: Share of a GPU's memory that vLLM takes where a study names none.
VLLM_MEMORY: Final = 0.9

# Settings stand here as well, so that a study is checked in no time and where there is no torch.
# Each module is imported only when its engine is asked for.
ENGINES: dict[str, Kind] = {
    "hf": Kind("rlbhpc.engines.hf_engine", "HfEngine", ("rows", "dtype", "device")),
    "vllm": Kind(
        "rlbhpc.engines.vllm_engine", "VllmEngine",
        ("rows", "dtype", "max_length", "tensor_parallel", "data_parallel", "memory", "options"),
    ),
    "endpoint": Kind(
        "rlbhpc.engines.endpoint", "EndpointEngine",
        ("url", "chat", "key_env", "context", "concurrency", "tries", "timeout", "top_logprobs"),
    ),
}  # fmt: skip


def make_engine(kind: str, model: str | Path, **settings: Any) -> Engine:
    """Make the engine ``kind`` for a model folder (for ``endpoint``: the server's model name).

    An engine samples responses from a model. ``ENGINES`` has the module and class of each of the
    package's own, which is imported only now; any other is a plugin. ``settings`` are the engine's
    own keyword arguments; see :func:`check_settings`.
    """
    check_settings(kind, settings)
    if kind in ENGINES:
        maker = getattr(importlib.import_module(ENGINES[kind].module), ENGINES[kind].name)
    else:
        maker = _plugin_engine(kind)
    engine: Engine = maker(model, **settings)
    return engine


def check_settings(kind: str, settings: Mapping[str, Any]) -> None:
    """Refuse an unknown engine, a setting that it does not have, and a value that cannot be.

    ``ENGINES`` lists the package's own engines with their settings; any other is a plugin, whose
    parameters are its settings. ``COUNTS`` are the settings that must be whole numbers.
    """
    if kind in ENGINES:
        plugins.reject_own_name("engines", kind)
        allowed = ENGINES[kind].settings
    else:
        allowed = tuple(inspect.signature(_plugin_engine(kind)).parameters)[1:]
    for setting, value in settings.items():
        if setting not in allowed:
            raise UserError(f"engine {kind}: no setting {setting!r}; it has {', '.join(allowed)}")
        if setting in COUNTS and not (value is None or (type(value) is int and value >= 1)):
            raise UserError(
                f"engine {kind}: {setting} is {value!r:.60}; allowed: a whole number, at least 1"
            )
    if kind == "vllm" and (settings.get("data_parallel") or 1) > 1:
        # vLLM would wait for the processes of the other copies, which nobody starts.
        raise UserError(
            "engine vllm: data_parallel: a process holds one copy of the model; leave it out, and "
            "`rlbhpc sample` and `rlbhpc launch` start a process for each copy that fits the GPUs"
        )


def _plugin_engine(kind: str) -> Callable[..., Any]:
    """The class of an engine that a study's file or an installed package brings."""
    plugin = plugins.find("engines", kind)
    if plugin is None:
        names = ", ".join((*ENGINES, *plugins.installed("engines")))
        near = difflib.get_close_matches(kind, ENGINES, n=1)
        hint = f"; nearest: {near[0]}" if near else ""
        raise UserError(f"found {kind!r}{hint}; allowed: {names}, or a file such as ./mine.py")
    return cast(Callable[..., Any], plugin.value)


def too_long(prompt_length: int, max_tokens: int, max_length: int) -> str:
    """Why a prompt and its longest response do not fit the model; empty if they do.

    All lengths are in tokens; ``max_tokens`` is that of the longest response, ``max_length`` what
    the model holds of prompt and response together.
    """
    if prompt_length == 0:
        return "the prompt has no tokens"
    if prompt_length + max_tokens <= max_length:
        return ""
    return (
        f"prompt of {prompt_length} tokens + max_tokens {max_tokens} exceeds the "
        f"{max_length} that the model can hold; lower max_tokens to at most "
        f"{max(0, max_length - prompt_length)}"
    )


#: Seconds until an idle engine asks again for a request.
IDLE_SECONDS: Final = 0.001


def take_ready(requests: Iterator[Request], limit: int) -> tuple[list[Request], bool]:
    """Take the requests that are ready, at most ``limit``; and whether more may come."""
    ready: list[Request] = []
    while len(ready) < limit:
        request = next(requests, None)
        if request is None:
            return ready, False
        if request is NOT_READY:
            break
        ready.append(request)
    return ready, True


def failed_completion(request: Request, error: str) -> Completion:
    """Make the completion of a request that could not be run."""
    ids = np.array([], np.int32)
    numbers = np.array([], np.float32)
    return Completion(request.tag, ids, numbers, numbers, "", Finish.ERROR, error)


T = TypeVar("T")


@dataclass(frozen=True)
class SourceEnd:
    """Stands in the queue behind the last item of a source, with what it raised if anything."""

    error: BaseException | None = None


class Ahead(Generic[T]):
    """Iterator over what several sources yield, each of which runs ahead in its own thread.

    An engine keeps stepping while the reader verifies and writes; PyTorch releases the
    interpreter lock in its operations, so both make progress. At most ``max_waiting`` items wait
    in a queue: there a source stops until the reader has caught up. An exception of a source is
    raised in the reader. ``close`` stops the sources at their next item and waits until they have
    let go of the model.
    """

    def __init__(self, sources: Sequence[Iterator[T]], max_waiting: int = 1024) -> None:
        """Start a thread for each source, which puts what the source yields into a shared queue."""
        self._queue: queue.Queue[T | SourceEnd] = queue.Queue(max_waiting)
        self._stop = threading.Event()
        self._n_running = len(sources)
        self._threads = [
            threading.Thread(target=self._exhaust, args=(source,), daemon=True)
            for source in sources
        ]
        for thread in self._threads:
            thread.start()

    def _exhaust(self, source: Iterator[T]) -> None:
        """Put all items of a source into the queue, and its end behind them.

        It runs in the source's own thread. An exception travels with the end to the reader.
        """
        end = SourceEnd()
        try:
            for item in source:
                self._put(item)
                if self._stop.is_set():
                    break
            close = getattr(source, "close", None)
            if close is not None:
                close()
        except BaseException as error:  # it is raised again in the reader
            end = SourceEnd(error)
        self._put(end)

    def _put(self, entry: T | SourceEnd) -> None:
        """Wait for room in the queue, or until the reader has closed it.

        ``entry`` is an item of a source, or the mark of its end.
        """
        while not self._stop.is_set():
            try:
                self._queue.put(entry, timeout=0.1)
            except queue.Full:
                continue
            return

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        """The next item of any source; ends when all have ended, and raises what one raised."""
        while self._n_running:
            entry = self._queue.get()
            if not isinstance(entry, SourceEnd):
                return entry
            self._n_running -= 1
            if entry.error is not None:
                self.close()
                raise entry.error
        raise StopIteration

    def close(self) -> None:
        """Drop what is left and wait for the threads."""
        self._n_running = 0
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
