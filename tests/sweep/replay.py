"""A study whose samples exist already, and an engine that replays them through the real sampler.

``python -m tests.sweep.replay FOLDER`` samples what is missing, as a task that can be killed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlbhpc.engines.completion import Completion, Finish, Request
from rlbhpc.errors import DONE
from rlbhpc.study.keys import SampleKey, Sampling, sample_seed
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.plan import Plan, Presence, make_plan, read_presence
from rlbhpc.sweep.process import Drain, Progress
from rlbhpc.sweep.remember import store_study
from rlbhpc.sweep.worker import Work, load_all_problems, work
from tests.studies import write_unloadable_model

STUDY = """
name: replayed
models:
  base: {path: model}
  rl: {path: trained, base: base}
problem_sets:
  math500: {path: problems.jsonl}
sampling: {prompt: answer.txt, temperature: 1.0, max_tokens: 8, n: N, stop_after: STOP}
arms:
  base: {model: base}ARMS
engine: {name: hf, dtype: float32}
"""


class Tokens:
    """A tokeniser of one token a byte."""

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(text.encode())

    def check_prompt(self, *_: Any) -> None:
        pass


@dataclass
class Replay:
    """Gives each seed the response that is stored for it; ``rows`` of them run side by side.

    They end in the order of their lengths, as those of a real engine do. ``dies_after`` so many
    responses, it goes as a preempted task does: what runs is lost.
    """

    right: dict[int, bool]
    rows: int = 64
    dies_after: int = 1 << 60
    drawn: int = 0
    lost: int = 0
    pause: float = 0.0
    tokens: Tokens = field(default_factory=Tokens)
    sees: bool = False
    deterministic: bool = True
    max_length: int = 4096

    def generate(self, requests: Iterable[Request], sampling: Sampling) -> Iterator[Completion]:
        source = iter(requests)
        running: list[tuple[int, int, Request]] = []
        clock, ended = 0, False
        while True:
            while not ended and len(running) < self.rows:
                request = next(source, None)
                ended = request is None
                if request is not None:
                    running.append((clock + 1 + request.seed % 97, request.tag, request))
            if not running:
                return
            running.sort()
            clock, tag, request = running.pop(0)
            if self.drawn >= self.dies_after:
                raise InterruptedError
            self.drawn += 1
            time.sleep(self.pause)
            some = np.ones(3, np.float32)
            text = rf"\boxed{{{7 if self.right[request.seed] else 8}}}"
            yield Completion(tag, np.ones(3, np.int32), -some, some, text, Finish.EOS)

    @property
    def begun(self) -> int:
        """Responses that were begun, the lost ones too."""
        return self.drawn + self.lost

    def close(self) -> None:
        pass


def math_like(problems: int, seed: int) -> NDArray[np.float64]:
    """Rates as a model of some billion parameters has them on MATH500."""
    return np.asarray(1 / (1 + np.exp(-np.random.default_rng(seed).normal(0.3, 3.2, problems))))


#: A second arm, of which every sample is drawn.
FULL_RL = "\n  rl: {model: rl, stop_after: 0}"


def make_study(folder: Path, problems: int, n: int, stop_after: int, more: str = "") -> Study:
    """Write the study's files and load it."""
    for model in ("model", "trained"):
        write_unloadable_model(folder / model)
    (folder / "answer.txt").write_text("{question}")
    records = [
        {"problem": f"What is {i}?", "answer": "7", "unique_id": f"p{i}"} for i in range(problems)
    ]
    (folder / "problems.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    path = folder / "replayed.yaml"
    path.write_text(
        STUDY.replace("STOP", str(stop_after)).replace("N", str(n)).replace("ARMS", more)
    )
    return load_study(path)


def full_samples(
    study: Study, n: int, seed: int = 0, arm: str = "base"
) -> tuple[NDArray[np.bool_], dict[int, bool]]:
    """Every sample of the full study: right or not, ``[problem, sample]`` and by seed."""
    problems = study.problem_ids("math500")
    rng = np.random.default_rng(seed)
    right = rng.random((len(problems), n)) < math_like(len(problems), seed)[:, None]
    by_seed = {
        sample_seed(study.seed, SampleKey(arm, 0, problem, i)): bool(right[row, i])
        for row, problem in enumerate(problems)
        for i in range(n)
    }
    return right, by_seed


def look(study: Study) -> list[Presence]:
    """What is there of each arm."""
    return read_presence(study.layout, list(study.blocks()))


def job_of(study: Study, plan: Plan, engine: Replay) -> Work:
    problems = load_all_problems(study, plan.shards)
    progress = Progress(plan.samples)
    return Work(study, plan, problems, lambda _: engine, Drain(), progress)  # type: ignore[arg-type,return-value]


def swept(study: Study, engine: Replay, tasks: int = 1) -> None:
    """Sample all that is missing, launch after launch as a user would."""
    store_study(study)
    while any(arm.missing for arm in look(study)):
        whole = make_plan(study, look(study), 1 << 60)
        plan = make_plan(study, look(study), max(1, whole.tokens // tasks))
        plan.save(study.layout.plans)
        for shard in plan.shards:
            try:
                assert work(job_of(study, plan, engine), shard) == DONE
            except InterruptedError:
                engine.dies_after += 1 << 60


@dataclass
class Preempted(Replay):
    """Dies every so many responses; ``begun`` counts what was under way as well."""

    every: int = 100

    def generate(self, requests: Iterable[Request], sampling: Sampling) -> Iterator[Completion]:
        begun = 0

        def counted() -> Iterator[Request]:
            nonlocal begun
            for request in requests:
                begun += 1
                yield request

        self.dies_after = self.drawn - self.drawn % self.every + self.every
        before = self.drawn
        try:
            yield from super().generate(counted(), sampling)
        except InterruptedError:
            self.lost += begun - (self.drawn - before)
            raise


def main(folder: Path) -> None:
    """Sample the small study of the kill test, slowly enough to be killed in the middle."""
    study = make_study(folder, 24, 96, 5)
    _, by_seed = full_samples(study, 96)
    swept(study, Replay(by_seed, rows=16, pause=0.002), tasks=3)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
