"""The killable pool: what hangs, swallows memory or dies costs its task and nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rlbhpc.errors import UserError
from rlbhpc.verify.running.pool import MAX_REPLY, Pool
from tests.verify.busy import busy_processes, one_processor

HERE = "tests.verify.pool_tasks"


@pytest.fixture
def pool(monkeypatch):
    """Two workers on the functions of pool_tasks, with half a second for each task."""
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", root)
    with Pool(f"{HERE}:act", workers=2, seconds=0.5, memory=1 << 30) as pool:
        yield pool


def test_results_come_back_in_order(pool):
    results = pool.run([{"do": "echo", "value": i} for i in range(50)])
    assert [result.value for result in results] == list(range(50))
    assert pool.started == 2


def test_a_hang_costs_its_deadline_and_one_worker(pool):
    tasks = [{"do": "echo", "value": i} for i in range(20)]
    tasks[3] = {"do": "spin"}
    results = pool.run(tasks)
    assert results[3].outcome == "timeout"
    assert all(result.outcome == "done" for at, result in enumerate(results) if at != 3)
    # The first hang, its retry, and no more: the slots were given back each time.
    assert pool.started <= 4


def test_a_hang_that_ignores_signals_and_uses_no_time_is_killed_from_outside(pool):
    pool.seconds = 0.05
    results = pool.run([{"do": "deaf"}, {"do": "echo", "value": 1}])
    assert [result.outcome for result in results] == ["timeout", "done"]


def test_what_is_only_slow_passes_when_it_is_tried_again_alone(pool):
    result = pool.run([{"do": "burn", "seconds": 1.0}])[0]
    assert (result.outcome, result.value) == ("done", "burnt")


@pytest.mark.slow
@pytest.mark.parametrize("threads", [0, 5])
def test_waiting_for_a_busy_processor_is_no_time_of_the_task(pool, threads):
    pool.seconds = 0.2
    with one_processor():
        pool.run([{"do": "echo", "value": 1}])
    with one_processor(), busy_processes(40):
        started = time.monotonic()
        task = {"do": "burn", "seconds": 0.1, "threads": threads}
        result = pool.run([task])[0]
        assert time.monotonic() - started > 3 * pool.seconds + 2, "not busy enough to tell"
    assert (result.outcome, result.value) == ("done", "burnt")
    assert pool.started == 1


@pytest.mark.parametrize(
    ("task", "outcome"),
    [
        ({"do": "memory"}, "limit"),
        ({"do": "recursion"}, "limit"),
        ({"do": "raise"}, "error"),
        ({"do": "exit"}, "error"),
        ({"do": "segv"}, "error"),
        ({"do": "flood"}, "error"),
        ({"do": "file"}, "error"),
    ],
)
def test_every_other_end_is_told_apart(pool, task, outcome):
    results = pool.run([task, {"do": "echo", "value": "next"}])
    assert results[0].outcome == outcome
    assert results[1].value == "next"


def test_a_forged_frame_is_a_dead_worker(pool):
    """Whatever a worker writes is bytes: no length, no JSON and no pickle runs in the parent."""
    for kind in ("length", "json", "list", "pickle"):
        result = pool.run([{"do": "forge", "kind": kind}])[0]
        assert result.outcome == "error", kind
    assert MAX_REPLY <= 1 << 16
    assert not Path("forged").exists()


def test_prints_of_a_library_do_not_reach_the_frames(pool):
    assert pool.run([{"do": "print"}])[0].value == "printed"


def test_the_environment_of_a_worker_holds_no_secret(pool, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    assert "SECRET_TOKEN" not in pool.run([{"do": "environment"}])[0].value


def test_a_worker_that_cannot_start_is_a_clear_error():
    with Pool("tests.no_such_module:act") as pool, pytest.raises(UserError, match="did not start"):
        pool.run([1])


def test_close_leaves_no_process(pool):
    pool.run([{"do": "echo", "value": 1}] * 4)
    pids = [worker.process.pid for worker in pool._workers]
    pool.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_more_hangs_than_workers_do_not_wedge_the_pool(pool):
    pool.seconds = 0.05
    results = pool.run([{"do": "spin"}] * 6 + [{"do": "echo", "value": "alive"}])
    assert results[-1].value == "alive"
    assert [result.outcome for result in results[:-1]] == ["timeout"] * 6
    # Two workers, and one more after each hang and each of its second tries.
    assert pool.started <= 2 + 2 * 6
