"""The cluster `local`: the same jobs on this machine, and the same cube at the end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import submitit

import rlbhpc
from rlbhpc.errors import DONE, INCOMPLETE, UserError
from rlbhpc.launch import Launch
from rlbhpc.launch.status import status
from rlbhpc.store.compact import compact
from rlbhpc.study.layout import Layout
from rlbhpc.sweep.attempt import read_attempts
from tests.launch.made import ROOT, Stubs, cluster_of, tiny, tiny_trained
from tests.launch.test_on_a_cluster import digest

pytestmark = pytest.mark.slow


def study_in(folder: Path, text: str) -> Path:
    from rlbhpc.engines.tiny import make_tiny_model

    folder.mkdir()
    make_tiny_model(folder / "model", hidden_size=32)
    path = folder / "tiny.yaml"
    path.write_text(text)
    return path


def cube_of(run: Path) -> dict[str, str]:
    return digest((run / "cube.zarr").resolve())


@pytest.mark.timeout(600)
def test_local_jobs_make_the_cube_of_the_verbs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a training to the report."""
    for name, text in {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, text)
    study = study_in(tmp_path / "s", tiny_trained(2))
    local = tmp_path / "local"
    launch = rlbhpc.launch.write(study, "local", overrides=[f"output={local}"])
    jobs = launch.submit()
    names = {"train-rl", "sample", "sample-rl-1", "sample-rl-2", "compact", "report"}
    assert set(jobs) == names
    assert all(job.done() for found in jobs.values() for job in found)
    assert (local / "report" / "report.html").is_file()
    assert not list(local.rglob("*.pkl"))
    run = tmp_path / "verbs"
    for verb in ("train", "sample"):
        subprocess.run(
            [sys.executable, "-m", "rlbhpc", verb, str(study), "--set", f"output={run}"],
            check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    assert cube_of(local) == digest(compact(Layout(run)).store)
    with pytest.raises(UserError, match="nothing is missing"):
        rlbhpc.launch.write(study, "local", overrides=[f"output={local}"])


def test_a_killed_worker_comes_back_and_a_warned_launcher_drains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    study = study_in(tmp_path / "s", tiny(200, max_tokens=64))
    run = tmp_path / "s" / "runs" / "tiny"
    words = ("launch", str(study), "--cluster", "local", "--submit", "--only", "sample")

    def launch() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "rlbhpc", *words], env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
        )  # fmt: skip

    def once_sampling(known: set[Path]) -> None:
        until = time.monotonic() + 120
        while set(run.glob("journals/*/*/*")) <= known and time.monotonic() < until:
            time.sleep(0.1)

    first = launch()
    once_sampling(set())
    known = set(run.glob("journals/*/*/*"))
    (worker,) = _workers(run)
    os.kill(worker, signal.SIGKILL)
    # It comes back by itself: another attempt writes another journal.
    once_sampling(known)
    assert len(set(run.glob("journals/*/*/*"))) == 2
    first.terminate()
    assert first.wait(60) == INCOMPLETE
    assert not _workers(run), "drained, and not requeued"
    assert launch().wait(240) == DONE, "samples alone were to be made"
    assert compact(Layout(run)).new
    assert len(Launch(run / "launches" / "0001").jobs()) == 0, "local jobs end with their launcher"


def _workers(run: Path) -> list[int]:
    found = subprocess.run(
        ["pgrep", "-f", "rlbhpc run ../../plans"], text=True, capture_output=True, check=False
    ).stdout.split()  # fmt: skip
    pids = [int(pid) for pid in found]
    return [pid for pid in pids if _is_worker(pid, run)]


def _is_worker(pid: int, run: Path) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return Path(f"/proc/{pid}/cwd").readlink().is_relative_to(run) and b"host" not in words
    except OSError:
        return False


@pytest.mark.parametrize(("gpus_per_copy", "held"), [(1, ["0", "1"]), (2, ["0,1"])])
def test_a_task_with_several_gpus_holds_a_copy_on_each_share_of_them(
    tmp_path: Path, gpus_per_copy: int, held: list[str]
) -> None:
    """The script of a task, run as Slurm runs it; one with few samples fills its GPUs as well."""
    study = study_in(tmp_path / "s", tiny(2))
    table = cluster_of(tmp_path, sample={"gpus": 2, "cpus": 2})
    assert table.sample.gpus == 2
    overrides = [f"engine.tensor_parallel={gpus_per_copy}"]
    launch = rlbhpc.launch.write(study, str(tmp_path / "site.yaml"), overrides=overrides)
    # As Slurm names the devices that it gives; the engine finds none and works on the processor.
    gpus = {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_ARRAY_TASK_ID": "0", "PYTHONPATH": str(ROOT)}
    script = launch.folder / "sample.sbatch"
    done = subprocess.run(
        ["bash", script], env={**os.environ, **gpus}, capture_output=True, text=True, check=False
    )
    assert done.returncode == DONE, done.stderr
    layout = Layout(tmp_path / "s" / "runs" / "tiny")
    attempts = read_attempts(layout)
    assert sorted(",".join(attempt["devices"]) for attempt in attempts) == held
    assert len({attempt["pid"] for attempt in attempts}) == len(held)
    assert not status(layout).missing


def test_any_function_runs_through_a_plain_executor(tmp_path: Path) -> None:
    executor = rlbhpc.launch.executor("local", folder=tmp_path)
    assert isinstance(executor, submitit.LocalExecutor)
    assert executor.submit(pow, 2, 5).result() == 32


def test_a_sites_executor_has_the_site_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs = Stubs(tmp_path / "bin")
    stubs.add("srun")
    stubs.add("sbatch", 'cp $1 "$HOME/script"; echo Submitted batch job 12')
    monkeypatch.setenv("PATH", f"{stubs.folder}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(stubs.folder))
    kind = {"partition": "gpu", "time": "02:00:00", "gpus": 2, "gpu_type": "a100", "cpus": 6}
    kind |= {"memory": "8G", "options": {"mem-per-cpu": "2G", "qos": "long"}}
    environment = {"HF_HOME": "/a b"}
    keys = {"setup": ["module load x"], "environment": environment}
    cluster_of(tmp_path, account="proj", sample=kind, **keys)
    executor = rlbhpc.launch.executor(str(tmp_path / "site.yaml"), "sample", tmp_path / "jobs")
    assert executor.submit(pow, 2, 5).job_id == "12"
    text = (stubs.folder / "script").read_text()
    for line in (
        "account=proj", "partition=gpu", "time=02:00:00", "gres=gpu:a100:2", "cpus-per-task=6",
        "mem-per-cpu=2G", "qos=long", "nodes=1",
    ):  # fmt: skip
        name = line.partition("=")[0]
        assert re.findall(f"#SBATCH --{name}[ =].*", text) == [f"#SBATCH --{line}"]
    assert "--mem=" not in text, "of two rival options the job's own stays"
    assert "module load x\nexport HF_HOME='/a b'\n" in text
