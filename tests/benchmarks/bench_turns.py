"""Episodes with Python: how busy 256 of them keep an engine, beside the same tokens without tools.

The engine stands for one on a GPU: it takes a fixed time for a step of all its rows and no
processor. Each turn is of another length, so that calls come spread out, as they do.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import numpy as np

from rlbhpc.engines.completion import Completion, Finish, Request
from rlbhpc.engines.driver import draw
from rlbhpc.engines.engine import take_ready
from rlbhpc.engines.episode import Call, EpisodeTools, Result, Tools
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.engines.tokens import Tokens
from rlbhpc.study.keys import Sampling, Turns
from rlbhpc.verify.tools import Toolbox, open_tools
from tests.benchmarks import Row

ROWS, EPISODES, CALLS = 256, 1024, 2
STEP_SECONDS = 0.02
TURN_TOKENS = (100, 700)
CALL = "\n```python\ntotal = {0}\nsum(i * i for i in range(total))\n```\n"
SAMPLING = Sampling(1.0, 1.0, 10_000, turns=Turns(CALLS + 1, ("python",), "blocks"))


class PacedEngine:
    """Rows that each write one token a step, and a call or an answer at the end of their turn."""

    max_length = 100_000
    sees = False
    deterministic = True

    def __init__(self, folder: Path) -> None:
        self.tokens = Tokens(make_tiny_model(folder))
        self.n_steps = 0

    def generate(self, requests: Iterable[Request], sampling: Sampling) -> Iterator[Completion]:
        source, has_more = iter(requests), True
        running: list[tuple[int, Request]] = []
        while has_more or running:
            arriving, has_more = take_ready(source, ROWS - len(running))
            running += [(self._last_step(request), request) for request in arriving]
            time.sleep(STEP_SECONDS)
            self.n_steps += 1
            for end, request in running:
                if end <= self.n_steps:
                    yield self._complete(request)
            running = [(end, request) for end, request in running if end > self.n_steps]

    def _last_step(self, request: Request) -> int:
        return self.n_steps + random.Random(request.seed).randint(*TURN_TOKENS)

    def _complete(self, request: Request) -> Completion:
        n_calls = self.tokens.decode(request.prompt_ids).count("```output")
        text = CALL.format(request.seed % 1000) if n_calls < CALLS else "It is so."
        ids = list(self.tokens.encode(text))
        finish = Finish.STOP_STRING
        if n_calls == CALLS:
            ids.append(self.tokens.end)
            finish = Finish.EOS
        zeros = np.zeros(len(ids), np.float32)
        return Completion(request.tag, np.array(ids, np.int32), zeros, zeros, text, finish)


class Instant:
    """Tools that answer at once, and cost nothing."""

    def open(self) -> EpisodeTools:
        return self

    def start(self, calls: Sequence[Call]) -> Future[list[Result]]:
        future: Future[list[Result]] = Future()
        future.set_result([Result("1")])
        return future

    def close(self) -> None:
        pass


def play(engine: PacedEngine, tools: Tools) -> tuple[float, int]:
    """Seconds of all episodes, and how many calls failed."""
    requests = [Request(i, engine.tokens.encode("What is it?"), i) for i in range(EPISODES)]
    start = time.perf_counter()
    episodes = list(draw(engine, requests, SAMPLING, tools))
    failed = sum('"n_failed_calls": 0' not in episode.trace for episode in episodes)
    return time.perf_counter() - start, failed


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        engine = PacedEngine(Path(folder) / "tiny")
        without, _ = play(engine, Instant())
        with open_tools(SAMPLING) as toolbox:
            assert isinstance(toolbox, Toolbox)
            with_python, failed = play(engine, toolbox)
    busy = without / with_python
    n_tokens = (CALLS + 1) * sum(TURN_TOKENS) // 2
    return [
        Row(f"{EPISODES} episodes of about {n_tokens} tokens, {ROWS} at a time", without, "s"),
        Row(f"  the same with {CALLS} calls of Python each", with_python, "s"),
        Row("  share of the time that the engine is busy", busy, "", ">= 0.8", busy >= 0.8),
        Row("  calls that failed", failed, "", "0", failed == 0),
    ]
