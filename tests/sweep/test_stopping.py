"""Sampling that stops: through the real planner, worker and store, with an engine that replays."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import rlbhpc
from rlbhpc.engines.completion import Completion, Finish, Request
from rlbhpc.errors import DONE
from rlbhpc.stats import Counts
from rlbhpc.store import band
from rlbhpc.store.compact import compact
from rlbhpc.study.arm import Sampling
from rlbhpc.study.keys import SampleKey, sample_seed
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.drain import Drain
from rlbhpc.sweep.plan import Plan, make_plan
from rlbhpc.sweep.presence import Presence, presence
from rlbhpc.sweep.progress import Progress
from rlbhpc.sweep.remember import remember
from rlbhpc.sweep.worker import Work, load_all_problems, work

STUDY = """
name: replayed
models:
  base: {path: model}
problem_sets:
  math500: {path: problems.jsonl}
arms:
  base: {model: base, prompt: answer.txt, temperature: 1.0, max_tokens: 8, n: N, stop_after: STOP}
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
    return np.asarray(1 / (1 + np.exp(-np.random.default_rng(seed).normal(2.0, 3.2, problems))))


def make_study(folder: Path, problems: int, n: int, stop_after: int) -> Study:
    (folder / "model").mkdir(exist_ok=True)
    config = {"model_type": "qwen2", "max_position_embeddings": 512}
    (folder / "model" / "config.json").write_text(json.dumps(config))
    (folder / "model" / "model.safetensors").write_bytes(b"weights")
    (folder / "answer.txt").write_text("{question}")
    records = [
        {"problem": f"What is {i}?", "answer": "7", "unique_id": f"p{i}"} for i in range(problems)
    ]
    (folder / "problems.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    path = folder / "replayed.yaml"
    path.write_text(STUDY.replace("STOP", str(stop_after)).replace("N", str(n)))
    return load_study(path)


def full_samples(study: Study, n: int, seed: int = 0) -> tuple[NDArray[np.bool_], dict[int, bool]]:
    """Every sample of the full study: right or not, ``[problem, sample]`` and by seed."""
    problems = study.problem_ids("math500")
    rng = np.random.default_rng(seed)
    right = rng.random((len(problems), n)) < math_like(len(problems), seed)[:, None]
    by_seed = {
        sample_seed(study.seed, SampleKey("base", 0, problem, i)): bool(right[row, i])
        for row, problem in enumerate(problems)
        for i in range(n)
    }
    return right, by_seed


def look(study: Study) -> Presence:
    (found,) = presence(study.layout, list(study.blocks()))
    return found


def job_of(study: Study, plan: Plan, engine: Replay) -> Work:
    problems = load_all_problems(study, plan.shards)
    progress = Progress(plan.samples)
    return Work(study, plan, problems, lambda _: engine, Drain(), progress)  # type: ignore[arg-type,return-value]


def swept(study: Study, engine: Replay, tasks: int = 1) -> None:
    """Sample all that is missing, launch after launch as a user would."""
    remember(study)
    while look(study).missing:
        whole = make_plan(study, [look(study)], 1 << 60)
        plan = make_plan(study, [look(study)], max(1, whole.tokens // tasks))
        plan.save(study.layout.plans)
        for shard in plan.shards:
            try:
                assert work(job_of(study, plan, engine), shard) == DONE
            except InterruptedError:
                engine.dies_after += 1 << 60


def ideal(right: NDArray[np.bool_], stop_after: int) -> Counts:
    """The prefix of each problem, counted one by one."""
    n, c = [], []
    for row in right.tolist():
        total = 0
        for drawn, hit in enumerate(row, 1):  # noqa: B007
            total += hit
            if total == stop_after:
                break
        n.append(drawn)
        c.append(total)
    return Counts.of(n, c, stop_after, right.shape[1])


def test_what_counts_ends_at_a_right_sample_or_before_a_missing_one() -> None:
    verdict = np.array([[1, 0, 1, 1], [0, -1, 1, 1], [0, 0, 2, 0], [4, 1, 0, 1]], np.int8)
    assert band.up_to_stop(verdict, 2).tolist() == [
        [1, 0, 1, -1], [0, -1, -1, -1], [0, 0, 2, 0], [4, 1, 0, 1],
    ]  # fmt: skip
    assert band.up_to_stop(verdict, 0) is verdict


@pytest.mark.parametrize("tasks", [1, 32])
def test_a_replayed_study_draws_little_beyond_its_prefixes(
    tmp_path: Path, tasks: int, soak: bool
) -> None:
    problems, n, stop_after = (500, 1024, 16) if soak else (64, 256, 8)
    study = make_study(tmp_path, problems, n, stop_after)
    right, by_seed = full_samples(study, n)
    needed = ideal(right, stop_after)
    # A preempted array: some task or other dies again and again, with all that it has under way.
    engine = Replay(by_seed, dies_after=1 << 60)
    if tasks > 1:
        engine = Preempted(by_seed, every=max(600, int(needed.n.sum()) // 40))
    swept(study, engine, tasks)
    spent = engine.begun / int(needed.n.sum())
    print(f"{tasks} tasks: {engine.begun:,} drawn, {spent:.3f} of the ideal prefixes, ", end="")
    print(f"{engine.begun / right.size:.3f} of the full study")
    assert spent <= (1.15 if tasks == 1 else 1.3)
    if soak:
        assert engine.begun <= 0.2 * right.size
    compact(study.layout)
    group = rlbhpc.open_cube(study.layout.root)["base/math500"].to_dataset()
    counts = group.rlb.counts()
    assert (counts["n"].values[:, 0] == needed.n).all()
    assert (counts["c"].values[:, 0] == needed.c).all()
    assert (int(counts["stop_after"]), int(counts["n_max"])) == (stop_after, n)
    k = np.array([1, 16, n])
    assert np.allclose(group.rlb.pass_at_k(k).values[:, 0], needed.pass_at_k(k))
    # Overdraw is kept.
    assert int((group["verdict"].values >= 0).sum()) >= int(needed.n.sum())
    assert look(study).stopped == int(needed.stopped.sum())


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


def test_raising_the_rule_or_n_keeps_every_sample(tmp_path: Path) -> None:
    study = make_study(tmp_path, 12, 64, 4)
    _, by_seed = full_samples(study, 128)
    first = Replay(by_seed)
    swept(study, first)
    prints = [block.fingerprints.tolist() for block in study.blocks()]
    for n, stop_after in ((64, 8), (128, 8), (128, 0)):
        study = make_study(tmp_path, 12, n, stop_after)
        assert [block.fingerprints.tolist() for block in study.blocks()] == prints
        more = Replay(by_seed)
        held = int(look(study).count.sum())
        swept(study, more)
        assert int(look(study).count.sum()) == held + more.drawn
    assert look(study).missing == 0
    assert held + more.drawn == 12 * 128
    # And back: what is there is more than enough.
    assert look(make_study(tmp_path, 12, 128, 4)).missing == 0
