"""Sets are drawn by weight, problems by success, and what was right comes again as it was."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlbhpc.engines.completion import Completion, Finish, Request
from rlbhpc.engines.engine import Engine
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.study.keys import Sampling
from rlbhpc.sweep.process import Drain
from rlbhpc.train.algorithms import make_algorithm
from rlbhpc.train.batch import Response, Rollout
from rlbhpc.train.deepspeed_engine import init_ranks
from rlbhpc.train.mixture import (
    Mixture,
    draw_indices,
    draw_order,
    keep_right,
    note_success,
    replay,
)
from rlbhpc.train.rollout import Judge, Prompt, Run, collect
from rlbhpc.train.settings import Settings
from rlbhpc.verify.verdict import Status, Verdict

pytestmark = pytest.mark.engine

SETTINGS = Settings(steps=1, samples_per_prompt=4)


def fresh_draws(n_sets: int) -> dict[str, Any]:
    return {"positions": [0] * n_sets, "balances": [0.0] * n_sets, "rates": {}}


def drawn(
    mixture: Mixture,
    counts: Sequence[int],
    draws: dict[str, Any] | None = None,
    settings: Settings = SETTINGS,
) -> list[list[int]]:
    """The indices of each step; between two steps what is remembered goes through a file."""
    draws = fresh_draws(len(mixture.sizes)) if draws is None else draws
    problems = [f"p{index}" for index in range(sum(mixture.sizes))]
    steps = []
    for step, count in enumerate(counts, 1):
        steps.append(draw_indices(settings, mixture, problems, step, count, draws))
        draws |= json.loads(json.dumps(draws, sort_keys=True))
    return steps


@given(
    weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=5),
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=12),
)
def test_every_set_has_the_share_of_its_weight(weights: list[float], counts: list[int]) -> None:
    sizes = tuple(3 + number for number in range(len(weights)))
    mixture = Mixture(sizes, ((1, tuple(weights)),))
    indices = [*chain.from_iterable(drawn(mixture, counts))]
    owners = [number for number, size in enumerate(sizes) for _ in range(size)]
    n_of_set = Counter(owners[index] for index in indices)
    for number, weight in enumerate(weights):
        owed = len(indices) * weight / sum(weights)
        assert owed - len(weights) < n_of_set[number] < owed + 1 + 1e-6
    for number in n_of_set:  # and its problems come in whole passes
        times = Counter(index for index in indices if owners[index] == number)
        assert max(times.values()) - min(times[i] for i in times) <= 1
        assert max(times.values()) == -(-n_of_set[number] // sizes[number])


@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=9), seed=st.integers(0, 5))
def test_one_set_is_drawn_as_it_was_before_there_were_mixtures(
    counts: list[int], seed: int
) -> None:
    settings = replace(SETTINGS, seed=seed)
    steps = drawn(Mixture((7,), ((1, (2.5,)),)), counts, settings=settings)
    assert [*chain.from_iterable(steps)] == draw_order(seed, 7, 0, sum(counts))


def test_weights_change_at_the_first_step_of_a_stage() -> None:
    mixture = Mixture((4, 4), ((1, (1.0, 0.0)), (3, (1.0, 3.0)), (5, (0.0, 1.0))))
    n_of_second = [sum(i >= 4 for i in step) for step in drawn(mixture, [8] * 6)]
    assert n_of_second == [0, 0, 6, 6, 8, 8]


def test_problems_outside_the_band_are_tried_now_and_then() -> None:
    settings = replace(SETTINGS, success_rate=[0.25, 0.75], select_every=50, retry_passes=5)
    mixture = Mixture((8,), ((1, (1.0,)),))
    rates = {"p0": 0.0, "p1": 1.0, "p2": 0.25, "p3": 0.75}
    draws = fresh_draws(1) | {"rates": dict(rates)}
    times = Counter(chain.from_iterable(drawn(mixture, [20] * 20, draws, settings)))
    n_passes = draws["positions"][0] / 8
    for index in range(8):
        expected = n_passes / 5 if index in (0, 1) else n_passes
        assert abs(times[index] - expected) <= 1, index
    assert draws["outside"] == ["p0", "p1"]


def test_a_selection_is_made_again_at_its_steps_alone_and_is_never_empty() -> None:
    settings = replace(SETTINGS, success_rate=[0.25, 0.75], select_every=3, retry_passes=10)
    mixture = Mixture((3,), ((1, (1.0,)),))
    draws = fresh_draws(1)
    left_out = []
    for step in range(1, 8):
        draw_indices(settings, mixture, ["a", "b", "c"], step, 2, draws)
        left_out.append(draws["outside"])
        draws["rates"] = dict.fromkeys("abc", 0.0 if step < 5 else 0.5)
    assert left_out == [[]] * 3 + [["a", "b", "c"]] * 3 + [[]]
    draws = fresh_draws(1) | {"rates": dict.fromkeys(("p0", "p1", "p2"), 1.0)}
    times = Counter(chain.from_iterable(drawn(mixture, [30], draws, settings)))
    assert set(times.values()) == {10}


def rollout(problem: str, group: int, right: bool = True, number: int = 1) -> Rollout:
    return Rollout(
        problem=problem,
        gold="4",
        group=group,
        response=Response((1, 2), np.array([number, 7, 0], np.int32)),
        sampler_logprobs=np.array([-0.1, -1 / 3, -number], np.float32),
        entropy_sum=1 / 7,
        truncated=False,
        text=f"text {number}",
        verdict=Verdict(Status.RIGHT if right else Status.WRONG, canonical="4"),
        reward=0.75,
    )


def test_a_replayed_response_is_the_one_that_was_sampled() -> None:
    settings = replace(SETTINGS, replays=2)
    draws: dict[str, Any] = {}
    keep_right([rollout("a", 0), rollout("a", 0, right=False, number=2)], draws, settings)
    draws = json.loads(json.dumps(draws))
    (again,) = replay([rollout("a", 9, False, 3), rollout("a", 9, False, 4)], draws)
    original = rollout("a", 9)
    for name in vars(original):
        if name not in ("response", "sampler_logprobs"):
            assert getattr(again, name) == getattr(original, name), name
    assert again.response.prompt == original.response.prompt
    assert again.response.token_ids.tolist() == original.response.token_ids.tolist()
    assert again.sampler_logprobs.tobytes() == original.sampler_logprobs.tobytes()
    assert not replay([rollout("b", 9)], draws)
    longer = replace(rollout("a", 9), response=Response((1, 2, 3), np.array([1], np.int32)))
    assert not replay([longer], draws), "after a hint another prompt was answered"


def test_the_newest_responses_are_kept_and_no_more_than_the_buffer_holds() -> None:
    settings = replace(SETTINGS, replays=2, replay_buffer=5)
    draws: dict[str, Any] = {}
    for number in range(1, 5):
        groups = [rollout(problem, 0, number=number) for problem in "abc"]
        cut_off = replace(rollout("d", 0, number=number), truncated=True)
        keep_right([*groups, cut_off], draws, settings)
    again = replay([rollout(problem, 5) for problem in "d"], draws)
    assert again == []
    kept = {
        problem: [r.response.token_ids[0] for r in replay([rollout(problem, 5)], draws)]
        for problem in "abc"
    }
    assert kept == {"a": [4], "b": [3, 4], "c": [3, 4]}


class Even:
    """An engine that is right by turns, and that keeps what it was asked."""

    max_length = 64

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def generate(self, requests: Iterable[Request], _: Sampling) -> Iterator[Completion]:
        for request in requests:
            self.asked.append(request)
            ids = np.array([len(self.asked), 7, 0], np.int32)
            numbers = np.full(3, -0.5, np.float32)
            text = str(request.tag % 2)
            yield Completion(request.tag, ids, numbers, numbers, text, Finish.EOS)


def judged(problem: Problem, text: str, finish: str) -> Verdict:
    is_right = text.endswith("1") and problem.id != "hard"
    return Verdict(Status.RIGHT if is_right else Status.WRONG)


def run_of(problems: Sequence[str], **changes: Any) -> Run:
    settings = Settings(steps=9, prompts_per_step=2, samples_per_prompt=4, max_tokens=8, **changes)
    prompts = [Prompt(Problem(p, {"question": "?"}, "4", "math"), (3, 1)) for p in problems]
    judge = Judge(judged, lambda judged: float(judged.verdict.right))
    return Run("m", Path(), Path(), {}, settings, make_algorithm("grpo"), prompts, judge)


def test_a_step_learns_from_fresh_and_from_replayed_responses() -> None:
    run, engine = run_of(["a", "b"], replays=1), cast(Engine, Even())
    store: dict[str, Any] = {}
    init_ranks()
    with Drain() as drain:
        first = collect(run, engine, cast(Any, None), 1, 0, store, drain)
        second = collect(run, engine, cast(Any, None), 2, first.cursor, store, drain)
    assert len(first.sampled) == len(first.lessons) == 6
    assert len(second.sampled) == 6 and len(second.lessons) == 8
    assert [lesson.group for lesson in second.lessons] == [2] * 4 + [3] * 4
    replayed = [r for r in second.lessons if not any(r is fresh for fresh in second.sampled)]
    old = {(r.problem, r.response.token_ids[0]) for r in first.sampled if r.correct}
    assert {(r.problem, r.response.token_ids[0]) for r in replayed} < old
    assert [first.metrics["replay/responses"], second.metrics["replay/responses"]] == [0, 2]


def test_a_problem_without_success_comes_with_a_hint_that_the_verifier_reads() -> None:
    run, engine = run_of(["hard", "b"]), Even()
    store: dict[str, Any] = {}
    hinted = {
        "hard": replace(run.prompts[0], ids=(3, 1, 9), hint="so "),
        "b": replace(run.prompts[1], ids=(3, 1, 8), hint="so "),
    }
    texts = []

    def verify(problem: Problem, text: str, finish: str) -> Verdict:
        texts.append(text)
        return judged(problem, text, finish)

    run = replace(run, hinted=hinted, judge=replace(run.judge, verify=verify))
    init_ranks()
    with Drain() as drain:
        for step in (1, 2):
            collect(run, cast(Engine, engine), cast(Any, None), step, 2 * step - 2, store, drain)
    asked = {request.prompt[0] for request in engine.asked[8:]}
    assert asked == {(3, 1, 9), (3, 1)}
    assert {request.prompt[0] for request in engine.asked[:8]} == {(3, 1)}
    assert sum(text.startswith("so ") for text in texts) == 4
    assert store["draws"]["rates"] == {"hard": 0.0, "b": 0.5}


def test_the_rate_of_a_problem_is_that_of_its_latest_draw() -> None:
    draws = fresh_draws(1)
    note_success([rollout("a", 0), rollout("a", 0, right=False)], draws)
    assert draws["rates"] == {"a": 0.5}
    note_success([rollout("a", 1, right=False), rollout("b", 2)], draws)
    assert draws["rates"] == {"a": 0.0, "b": 1.0}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"replays": 4}, "replays: found 4; allowed: fewer than the 4 samples_per_prompt"),
        ({"replays": 1, "sampler_cap": 0.0}, "replays: found 1; .* `sampler_cap`"),
        ({"success_rate": [0.9, 0.1]}, "success_rate: found .* no share of 4 responses"),
        ({"success_rate": [0.3, 0.4]}, "success_rate: found .* no share of 4 responses"),
        ({"success_rate": [0.5]}, "success_rate: found .* allowed: two shares"),
        ({"retry_passes": 0}, "retry_passes: found 0; allowed: .* from 1"),
        ({"hints": 1.0}, "hints: found 1.0; allowed: a number from 0 and below 1"),
    ],
)
def test_settings_that_select_or_replay_nothing_are_refused(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=f"^{said}"):
        replace(SETTINGS, **changes)
    assert replace(SETTINGS, replays=1, sampler_cap=0.0, sampler_band=[0.5, 5.0]).replays
