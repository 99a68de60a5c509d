"""Work that is shared with another process, which a thread stands for here."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rlbhpc.report.aspect import Errand, Helper, Report


def a_report() -> Report:
    return cast(Report, SimpleNamespace(memo={}))


def test_what_the_other_has_not_begun_is_done_here_from_the_end() -> None:
    here, gate, order = threading.get_ident(), threading.Event(), []

    def work(number: int) -> tuple[int, bool]:
        is_here = threading.get_ident() == here
        if is_here:
            order.append(number)
        if number == 2:  # the last one here: now the other may end
            gate.set()
        elif not is_here:
            assert gate.wait(60)
        return number, is_here

    report = a_report()
    errand = Errand(work, lambda _: [(i,) for i in range(5)])
    with ThreadPoolExecutor(1) as pool:
        errand.send(report, Helper(pool))
        found = errand.results(report)
    assert found == [(0, False), (1, False), (2, True), (3, True), (4, True)]
    assert order == [4, 3, 2]
    assert errand.results(report) is found


def test_the_other_goes_on_by_itself() -> None:
    calls: list[Any] = []
    report = a_report()
    errand = Errand(calls.append, lambda _: [(i,) for i in range(20)])
    done = threading.Event()
    last = Errand(done.set, lambda _: [()])
    with ThreadPoolExecutor(1) as pool:
        helper = Helper(pool)
        errand.send(report, helper)
        last.send(report, helper)
        assert done.wait(60)
        assert calls == list(range(20))


def test_an_error_of_the_other_is_an_error_here() -> None:
    report = a_report()
    errand = Errand(int, lambda _: [("1",), ("one",), ("2",)])
    with ThreadPoolExecutor(1) as pool:
        errand.send(report, Helper(pool))
        with pytest.raises(ValueError, match="one"):
            errand.results(report)
