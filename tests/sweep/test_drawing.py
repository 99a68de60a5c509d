"""What is there and what to draw next, each against a count one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import pytest
from numpy.typing import NDArray

from rlbhpc import sweep as room
from rlbhpc.store.sample_rows import Sample
from rlbhpc.store.snapshot import COMPLETED_FLAG, FAILED_FLAG, RIGHT_FLAG, StoredFlags
from rlbhpc.study.keys import Block, SampleKey
from rlbhpc.sweep.plan import Presence, Span, _compare, _cut_pieces, _expected_samples
from rlbhpc.sweep.worker import ArmQueue, ProblemQueue
from rlbhpc.verify.verdict import Status


def line(
    problem: str, stop: int, stop_after: int = 0, judged: int = 0, right: int = 0
) -> ProblemQueue:
    spans = [Span("base", "s", 0, problem, 2, 4), Span("base", "s", 0, problem, 6, stop)]
    return ProblemQueue(spans, stop_after, judged, right)


def row(problem: str, verdict: Status) -> Sample:
    return Sample(SampleKey("base", 0, problem, 0), 1, 1, int(verdict), 0, 5, -1.0, 1.0)


def drawn(drawing: ArmQueue) -> list[tuple[str, int]]:
    """All that may be under way now."""
    pairs = []
    while (key := drawing.next()) is not None:
        pairs.append((key.problem, key.sample))
    return pairs


@pytest.mark.parametrize(
    ("stop_after", "judged", "right", "under_way"),
    [
        # Half of what the rate says: 3 more right ones at 1.5 of 10 take 20 samples.
        (4, 9, 1, 10),
        (4, 3, 3, 1),
        (1, 0, 0, 1),
        (4, 0, 0, 4),
        (4, 40, 0, 98),
        # It has enough: what is missing are holes before the last right one, which are all needed.
        (4, 9, 4, 98),
        (0, 9, 4, 98),
    ],
)
def test_as_much_is_under_way_as_a_problem_will_probably_need(
    stop_after: int, judged: int, right: int, under_way: int
) -> None:
    indices = [2, 3, *range(6, 102)]
    drawing = ArmQueue([line("p", 102, stop_after, judged, right)])
    assert drawn(drawing) == [("p", index) for index in indices[:under_way]]
    assert drawing.is_open == (under_way < len(indices))


def test_problems_take_turns_until_all_have_enough() -> None:
    drawing = ArmQueue(
        [
            line("p", 10, 2),
            line("q", 10, 2),
            ProblemQueue([Span("base", "s", 0, "r", 0, 0)], 0, 0, 0),
        ]
    )
    assert drawn(drawing) == [("p", 2), ("p", 3), ("q", 2), ("q", 3)]
    assert not drawing.wait_until_stored(0.0)
    assert drawing.note_stored(row("p", Status.RIGHT)) == 0
    # One right of one: one more is needed, and one is under way already.
    assert drawn(drawing) == []
    assert drawing.note_stored(row("q", Status.FAILED)) == 0
    assert drawn(drawing) == [("q", 6)]
    assert drawing.note_stored(row("p", Status.RIGHT)) == 4, "6 to 9 need not be drawn"
    for verdict in (Status.WRONG, Status.RIGHT):
        assert drawing.note_stored(row("q", verdict)) == 0
    # Of two that are judged one is right: 2.0 samples are expected to bring the other.
    assert drawn(drawing) == [("q", 7)]
    assert not drawing.wait_until_stored(0.0)
    assert drawing.note_stored(row("q", Status.RIGHT)) == 2
    assert drawing.wait_until_stored(0.0)
    assert not drawing.is_open


PROBLEMS = ("a", "b", "c", "d", "e")


def stored(seed: int, width: int) -> tuple[NDArray[np.bool_], NDArray[np.int64], list[list[int]]]:
    """Which samples exist, how many are asked for, and which of those there are failed."""
    rng = np.random.default_rng(seed)
    there = rng.random((len(PROBLEMS), width)) < rng.random((len(PROBLEMS), 1)) * 1.2
    failed = [[int(r), int(s)] for r, s in np.argwhere(there) if rng.random() < 0.2]
    return there, rng.integers(0, width + 1, len(PROBLEMS)), failed


def gaps(there: NDArray[np.bool_], n: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    for problem, present in enumerate(there):
        lacking = [sample for sample in range(n[problem]) if not present[sample]]
        starts = [sample for sample in lacking if sample - 1 not in lacking]
        stops = [sample + 1 for sample in lacking if sample + 1 not in lacking]
        yield from ((problem, *span) for span in zip(starts, stops, strict=True))


def presence_of(
    there: NDArray[np.bool_], n: NDArray[np.int64], failed: list[list[int]]
) -> Presence:
    zeros = np.zeros(len(PROBLEMS), np.int64)
    block = Block("base", "s", 0, PROBLEMS, 8, zeros)
    flags = np.where(there, COMPLETED_FLAG, np.uint8(0))
    for problem, sample in failed:
        flags[problem, sample] = FAILED_FLAG
    return Presence(block, n, flags, zeros)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_missing_is_what_a_count_one_by_one_misses(seed: int) -> None:
    there, n, failed = stored(seed, 5 + 3 * seed)
    asked = np.arange(there.shape[1]) < n[:, None]
    held = presence_of(there, n, failed)
    assert held.requested == n.sum()
    assert held.present == (there & asked).sum()
    assert held.missing == (~there & asked).sum()
    assert held.failed == sum(sample < n[problem] for problem, sample in failed)
    assert list(held.missing_runs()) == list(gaps(there, n))
    for problem, start, stop in ((0, 0, 5), (2, 3, 5), (4, 1, there.shape[1]), (1, 2, 2)):
        assert held.count_missing(problem, start, stop) == (~there[problem, start:stop]).sum()
    more = there.copy()
    more[1, 1:4] = True
    counted = held.with_samples_present([("b", 1, 4), ("unknown", 0, 5)])
    assert list(counted.missing_runs()) == list(gaps(more, n))
    retried = there.copy()
    for problem, sample in failed:
        retried[problem, sample] = False
    assert list(held.with_failures_missing().missing_runs()) == list(gaps(retried, n))
    assert list(held.missing_runs()) == list(gaps(there, n)), "what is there stays as it was"


def holding(right: NDArray[np.bool_], there: NDArray[np.bool_]) -> StoredFlags:
    flags = there * COMPLETED_FLAG + right * RIGHT_FLAG
    return StoredFlags(flags.astype(np.uint8), 5.0 * there.sum(axis=1), 3)


def test_a_problem_ends_at_its_last_needed_right_sample() -> None:
    """Stops at 2: right as 3rd and 5th with a hole, right as 1st and 2nd, right once, never."""
    there = np.array([[1, 0, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0], [0] * 6], bool)
    right = np.array([[0, 0, 1, 0, 1, 1], [1, 1, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0] * 6], bool)
    asked = np.full(4, 12)
    block = Block("base", "s", 0, PROBLEMS[:4], 12, np.zeros(4, np.int64), 2)
    held = _compare(block, asked, holding(right, there))
    assert held.n.tolist() == [5, 2, 12, 12]
    assert (held.stopped, held.stale, held.missing) == (2, 3, 1 + 0 + 10 + 12)
    counts = held.counts()
    assert (counts.n.tolist(), counts.c.tolist()) == ([5, 2, 2, 0], [2, 2, 1, 0])
    assert list(held.missing_runs()) == [(0, 1, 2), (2, 2, 12), (3, 0, 12)]
    whole = _compare(Block("base", "s", 0, PROBLEMS[:4], 12, np.zeros(4, np.int64)), asked,
                     holding(right, there))  # fmt: skip
    assert (whole.n.tolist(), whole.stopped) == ([12] * 4, 0)
    assert (whole.counts().n.tolist(), whole.counts().c.tolist()) == ([5, 3, 2, 0], [3, 2, 1, 0])
    assert whole.tokens.tolist() == [25, 15, 10, 0]
    # What a problem takes until it stops: those with enough just what is missing of them.
    expected = _expected_samples(held)
    assert expected is not None and expected[:2].tolist() == [1, 0]
    # One more right one at rates Beta(1.5, 1.5), and two at Beta(0.5, 0.5), of 10 and 12 that are
    # left: the mean of min(needed / rate, left), worked out on a fine grid of rates.
    rates = (np.arange(400_000) + 0.5) / 400_000
    for problem, needed, shape, left in ((2, 1, 1.5, 10), (3, 2, 0.5, 12)):
        weights = (rates * (1 - rates)) ** (shape - 1)
        mean = np.average(np.minimum(needed / rates, left), weights=weights)
        assert expected[problem] == pytest.approx(mean, rel=0.01)
    assert _expected_samples(whole) is None
    # A problem that stops stays with one worker, at 5 tokens for each sample that is expected.
    flags = held.flags.copy()
    flags[2, 1:3] = flags[2, 2], flags[2, 1]
    holed = replace(held, flags=flags)
    pieces = _cut_pieces(holed, 64, 8)
    places = [[(span.problem, span.start, span.stop) for span in spans] for spans, _ in pieces]
    assert places == [[("a", 1, 2)], [("c", 1, 2), ("c", 3, 12)], [("d", 0, 12)]]
    assert [cost for _, cost in pieces] == pytest.approx(5 * expected[[0, 2, 3]])


def test_what_a_sweep_hands_on_cannot_be_changed() -> None:
    modules = [import_module(f"{room.__name__}.{m.name}") for m in iter_modules(room.__path__)]
    classes = {c for m in modules for c in vars(m).values() if isinstance(c, type)}
    own = [c for c in classes if is_dataclass(c) and c.__module__.startswith(room.__name__)]
    mutable = {c.__name__ for c in own if not c.__dataclass_params__.frozen}
    assert mutable == {"Comparison", "ProblemQueue", "ProblemChange", "Wave"}
