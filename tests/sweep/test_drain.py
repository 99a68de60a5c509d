"""Draining: a warning ends work between units, and no unit can hold up the end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import ClassVar

import pytest

from rlbhpc.sweep import process
from rlbhpc.sweep.process import SIGNALS, Drain, Interrupted


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_asks_and_the_old_handler_comes_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Drain(grace=60) as drain:
        assert not drain.requested
        assert drain.time_left() == float("inf")
        os.kill(os.getpid(), number)
        assert drain.requested
        assert 59 < drain.time_left() <= 60
    assert signal.getsignal(number) is before


def test_a_deadline_asks_by_itself_and_a_second_warning_prolongs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(monotonic=lambda: 5.0)
    monkeypatch.setattr(process, "time", clock)
    drain = Drain(grace=100, limit=10)
    clock.monotonic = lambda: 14.5
    assert not drain.requested and drain.time_left() == float("inf")
    clock.monotonic = lambda: 15.0
    assert drain.time_left() == 100 and drain.requested
    clock.monotonic = lambda: 25.0
    drain.request()
    assert drain.time_left() == 90


def test_a_stream_without_a_stop_is_passed_through_whole() -> None:
    assert list(Drain().within(iter(range(1000)))) == list(range(1000))


def test_an_error_in_the_stream_is_raised() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise RuntimeError("engine died")

    stream = Drain().within(broken())
    assert next(stream) == 1
    with pytest.raises(RuntimeError, match="engine died"):
        next(stream)


def test_work_that_outlasts_the_grace_period_is_left_behind() -> None:
    never = threading.Event()

    def stuck() -> Iterator[int]:
        yield 1
        never.wait()
        yield 2

    drain = Drain(grace=0)
    got = []
    for item in drain.within(stuck()):
        got.append(item)
        drain.request()
    never.set()
    assert got == [1]
    assert drain.abandoned


class Ending(Drain):
    """Has less and less time left, and none at its third look."""

    left: ClassVar = [0.9, 0.1, 0.0]

    def time_left(self) -> float:
        return self.left.pop(0)


def test_work_has_all_of_the_grace_period() -> None:
    never = threading.Event()
    drain = Ending()
    assert list(drain.within(iter(never.wait, None))) == []
    assert drain.abandoned and drain.left == []


def test_what_finishes_within_the_grace_period_is_kept() -> None:
    drain = Drain(grace=60)
    drain.request()
    assert list(drain.within(iter([1, 2, 3]))) == [1, 2, 3]
    assert not drain.abandoned


@pytest.mark.parametrize("number", SIGNALS)
def test_a_warning_ends_what_may_be_interrupted_at_once(number: signal.Signals) -> None:
    reached = False
    with Drain() as drain:
        with pytest.raises(Interrupted), drain.interruptible():
            os.kill(os.getpid(), number)
            reached = True
        assert drain.requested and not reached
        os.kill(os.getpid(), number)  # outside of the block nothing is raised
        with pytest.raises(Interrupted), drain.interruptible():
            reached = True
        assert not reached


def test_a_deadline_interrupts_a_wait() -> None:
    with Drain(limit=0.05) as drain, pytest.raises(Interrupted), drain.interruptible():
        threading.Event().wait()


def test_a_block_that_ends_in_time_leaves_no_deadline_behind() -> None:
    before = threading.active_count()
    with Drain(limit=1000) as drain, drain.interruptible():
        assert threading.active_count() == before + 1
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join()
    assert threading.active_count() == before
