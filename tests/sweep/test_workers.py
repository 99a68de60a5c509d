"""Workers on one machine: their devices and shards, what they write down, and what fails."""

from __future__ import annotations

import io
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlbhpc import __version__
from rlbhpc.engines.completion import Completion, Finish, Request
from rlbhpc.errors import DONE, TRY_AGAIN, LeftOutWarning, UserError
from rlbhpc.store import checked
from rlbhpc.study.keys import Sampling
from rlbhpc.study.layout import Layout
from rlbhpc.sweep import process, worker
from rlbhpc.sweep.attempt import Attempt, read_attempts
from rlbhpc.sweep.plan import make_plan
from rlbhpc.sweep.process import Drain, Progress, devices
from rlbhpc.sweep.remember import load_plan, store_study
from rlbhpc.sweep.worker import work
from tests.sweep.replay import Replay, job_of, look, make_study


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("0,1", ["0", "1"]),
        ("GPU-8932f937, MIG-4a7f", ["GPU-8932f937", "MIG-4a7f"]),
        ("2,-1,3", ["2"]),
        ("NoDevFiles", []),
        ("", []),
        (None, ["0", "1", "5"]),
    ],
)
def test_devices_are_those_that_are_visible_else_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, names: list[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    assert devices() == [], "a host without them has no program that lists them"
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/bash\necho 0; echo 1; echo 5; exit 1\n")
    smi.chmod(0o755)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert devices() == names


@pytest.mark.parametrize(("visible", "names"), [("4,6", ["0", "1"]), ("", [])])
def test_devices_of_amd_are_numbered_anew(
    monkeypatch: pytest.MonkeyPatch, visible: str, names: list[str]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", visible)
    assert devices() == names


WORKER = """#!/bin/bash
echo "$CUDA_VISIBLE_DEVICES: $*" >"$(dirname "$0")/$7"
trap 'exit 75' TERM
case $7 in KILLED) kill -KILL $$;; FAILED) exit 3;; WAITS) touch "$0.waits"; while :; do sleep 0.05;
done;; esac
"""


@pytest.mark.parametrize(
    ("visible", "gpus_per_copy", "shards", "workers", "started"),
    [
        ("", 1, [0, 1, 2, 3, 4], 2, {"0,2,4": "", "1,3": ""}),
        # A worker with more GPUs than its copy needs would start copies of its own on them.
        ("0,1,2", 1, [0, 1, 2], 2, {"0,2": "0", "1": "1"}),
        ("0,1,2,3,4", 2, [0, 1, 2], 2, {"0,2": "0,1", "1": "2,3"}),
        ("0", 1, [0, 1], 4, {"0": "0", "1": ""}),
        ("0", 1, [], 4, {}),
    ],
)
def test_each_worker_has_its_share_of_shards_and_the_devices_of_one_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str, gpus_per_copy: int,
    shards: list[int], workers: int, started: dict[str, str],
) -> None:  # fmt: skip
    (tmp_path / "python").write_text(WORKER)
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    # -P: a verifier `string.py` in the working folder must not be taken for Python's own.
    drain = Drain(grace=9)
    assert worker.run_workers(Path("plan.json"), shards, workers, drain, gpus_per_copy) == DONE
    told = {path.name: path.read_text() for path in tmp_path.iterdir() if path.name != "python"}
    assert told == {
        name: f"{gpus}: -P -m rlbhpc run plan.json --shards {name} --grace 9\n"
        for name, gpus in started.items()
    }


@pytest.mark.parametrize(
    ("names", "code"),
    [(["FAILED", "ok"], 3), (["KILLED", "ok"], 137), (["FAILED", "WAITS"], TRY_AGAIN)],
)
def test_the_worst_end_of_a_worker_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], code: int
) -> None:
    """A warning is handed on once to each that still works."""
    (tmp_path / "python").write_text(WORKER)
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    drain = Drain()
    wait = subprocess.Popen.wait

    def ask(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if (tmp_path / "python.waits").exists():
            drain.request()
        return wait(process, timeout=timeout and 0.05)

    monkeypatch.setattr(subprocess.Popen, "wait", ask)
    assert worker.run_workers(Path("plan.json"), names, len(names), drain) == code  # type: ignore[arg-type]


def test_an_attempt_writes_down_where_and_with_what_it_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, text in {
        "SLURM_JOB_ID": "7",
        "RLBHPC_IMAGE": "abc",
        "CUDA_VISIBLE_DEVICES": "1",
    }.items():
        monkeypatch.setenv(name, text)
    layout = Layout(tmp_path)
    before = time.time()
    attempt = Attempt(layout.attempts, "plan", 12)
    attempt.record_loaded()
    attempt.record_end("done", samples=3)
    (record,) = read_attempts(layout)
    assert before <= record.pop("started") <= record.pop("loaded") <= record.pop("ended")
    assert record.pop("packages")["pyarrow"]
    assert record == {
        "plan": "plan", "shard": 12, "host": socket.gethostname(), "pid": os.getpid(),
        "rlbhpc": __version__, "python": platform.python_version(), "devices": ["1"],
        "image": "abc", "scheduler": {"SLURM_JOB_ID": "7"}, "outcome": "done", "samples": 3,
    }  # fmt: skip
    assert len(attempt.name) == len("plan-00012-") + 8
    assert attempt.name.startswith("plan-00012-")
    # A folder in its place, and a record of something else.
    (layout.attempts / "a.json").mkdir()
    checked.write(layout.attempts / "b.json", {"plan": "p", "shard": 0})
    (layout.attempts / "c.txt").write_text("{")
    with pytest.warns(
        LeftOutWarning, match="a.json: Is a directory; what this attempt took is not"
    ):
        assert len(read_attempts(layout)) == 1


class Right(dict[int, bool]):
    """Every sample is right."""

    def __missing__(self, seed: int) -> bool:
        return True


@dataclass
class Failing(Replay):
    """Fails at some requests so many times each."""

    failures: dict[int, int] = field(default_factory=dict)
    closed: int = 0

    def close(self) -> None:
        self.closed += 1

    def generate(self, requests: Iterable[Request], sampling: Sampling) -> Iterator[Completion]:
        for done in super().generate(requests, sampling):
            seed_left = self.failures.get(done.tag, 0)
            self.failures[done.tag] = seed_left - 1
            failed = replace(done, finish=Finish.ERROR, error="no room\nfor it", text="")
            yield failed if seed_left > 0 else done


def test_what_fails_is_tried_alone_and_kept_as_failed_the_third_time(tmp_path: Path) -> None:
    study = make_study(tmp_path, 2, 4, 0)
    store_study(study)
    plan = make_plan(study, look(study), 10**9)
    engine = Failing(Right(), failures={0: 1, 1: 2, 2: 3, 3: 9})
    job = job_of(study, plan, engine)
    said = io.StringIO()
    job = replace(job, progress=Progress(plan.samples, said))
    (shard,) = plan.shards
    assert work(job, shard) == DONE
    # Eight beside each other; then 1, 2, 2 and 2 tries alone of those that failed.
    assert engine.drawn == 8 + 1 + 2 + 2 + 2
    assert engine.closed == 1
    (present,) = look(study)
    assert (present.present, present.failed, int(present.right.sum())) == (8, 2, 6)
    job.progress.finish()
    assert said.getvalue().endswith(
        " · 2 problems solved · 2 failed\nThe last that failed: no room for it\n"
    )
    assert "8/8 samples (100%)" in said.getvalue()
    # Nothing is left: the engine is not loaded.
    again = replace(job, make_engine=lambda shard: pytest.fail("loaded"))
    assert work(again, shard) == DONE
    # Those that failed, on demand, and nothing else.
    retry = make_plan(study, look(study), 10**9, retry_failed=True)
    engine = Failing(Right())
    assert work(job_of(study, retry, engine), retry.shards[0]) == DONE
    assert engine.drawn == 2
    assert look(study)[0].failed == 0
    outcomes = [(r["outcome"], r["samples"], r["tokens"]) for r in read_attempts(study.layout)]
    assert sorted(outcomes) == [("done", 2, 6), ("done", 8, 24)]


def test_shards_here_stop_between_two_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = make_study(tmp_path, 4, 64, 0)
    store_study(study)
    plan = make_plan(study, look(study), 64 * 8)
    assert len(plan.shards) == 4
    codes = iter((DONE, 3, DONE))
    drain = Drain()

    def works(job: object, shard: object) -> int:
        worked.append(shard)
        if len(worked) == 3:
            drain.request()
        return next(codes)

    worked: list[object] = []
    monkeypatch.setattr(worker, "work", works)
    monkeypatch.setattr(process.sys, "stderr", io.StringIO())
    assert worker.run_here(study, plan, plan.shards[:2], Drain()) == 3
    assert worker.run_here(study, plan, plan.shards, drain) == TRY_AGAIN
    assert worked == [*plan.shards[:2], plan.shards[0]]
    assert "256 samples" in process.sys.stderr.getvalue()  # type: ignore[attr-defined]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "seconds", "text"),
    [
        # A line after half a minute, and one at the end.
        (io.StringIO(), [29.9, 30.0, 59.9], ["2/4 samples (50%)", "3/4 samples (75%)"]),
        (Terminal(), [0.1, 0.2, 0.3], ["\r\x1b[2K2/4 samples (50%)", "\r\x1b[2K3/4 samples (75%)"]),
    ],
)
def test_a_sweep_says_how_far_it_is_now_and_then(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, seconds: list[float], text: list[str]
) -> None:
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(process, "time", clock)
    counted = Progress(4, stream)
    for now in seconds:
        clock.monotonic = lambda now=now: now
        counted.add("base", 0, "p", 3, right=False)
    counted.finish()
    ends = "\n" if isinstance(stream, Terminal) else ""
    said = stream.getvalue().split("\n" if not ends else "\r")
    assert ["\r" * bool(ends) + line.split(" · ")[0] for line in said if line.strip()] == text
    assert stream.getvalue().endswith("0 problems solved\n")
    assert "failed" not in stream.getvalue()
    assert Progress(0, io.StringIO()).line(60.0).startswith("0/0 samples (100%) · 0 tokens/s · in")


def test_a_grace_period_is_as_long_as_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=lambda: 100.0)
    monkeypatch.setattr(process, "time", clock)
    drain = Drain(grace=60.0, limit=50.0)
    for now, left in ((150.0, 60.0), (170.0, 40.0), (230.0, -20.0)):
        clock.monotonic = lambda now=now: now
        assert drain.time_left() == left
        drain.request()  # asking again does not prolong it
    clock.monotonic = lambda: 100.0
    drain = Drain(grace=60.0, limit=50.0)
    clock.monotonic = lambda: 149.9
    assert drain.time_left() == Drain().time_left() == float("inf")


def test_every_task_starts_without_what_only_some_need() -> None:
    code = "import sys, rlbhpc.sweep.worker, rlbhpc.launch; print({*sys.modules} & {*sys.argv})"
    words = ["scipy", "torch", "pandas", "submitit", "rlbhpc.launch.api"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, env=environment,
        check=True,
    )  # fmt: skip
    assert done.stdout == "set()\n"


def test_a_study_of_a_plan_that_is_gone_is_told(tmp_path: Path) -> None:
    study = make_study(tmp_path, 1, 2, 0)
    store_study(study)
    path = make_plan(study, look(study), 10**9).save(study.layout.plans)
    assert load_plan(path)[0].hash == study.hash
    study.layout.snapshot(study.hash).unlink()
    with pytest.raises(UserError, match=f"^{path}: its study is not at .*; make a new plan$"):
        load_plan(path)
