"""Jobs of this machine: who looks is told what runs, what failed and where its log is."""

from __future__ import annotations

import errno
import getpass
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlbhpc.errors import DONE, INCOMPLETE, TRY_AGAIN, USAGE, UserError
from rlbhpc.launch.api import write_prepared
from rlbhpc.launch.ask import make_results
from rlbhpc.launch.host.claims import host_name, start_tick
from rlbhpc.launch.prepare import prepare
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from tests.launch.launched import call, make, status, stubs
from tests.launch.made import ROOT, SAMPLED, Stubs, study_in

__all__ = ["stubs"]


def launched(folder: Path, work: str, text: str = SAMPLED) -> tuple[Path, Study, Path]:
    """A launch on this machine that was run, in which sampling is some lines of shell."""
    path, _ = study_in(folder, text)
    launch = write_prepared(prepare(path, cluster="local", shard_tokens=300)).folder
    for script in launch.glob("*.sbatch"):
        lines = work if script.stem == "sample" else "exit 0"
        parent = f"exec {sys.executable} -m host --drain 1 --last 1"
        script.write_text(f"cd '{launch}'; {parent} -- bash -c '{lines}'\n")
    return path, load_study(path), launch


def submit(launch: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "submit.sh"], cwd=launch, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
        capture_output=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_a_failure_of_a_local_job_has_its_log_and_an_end(tmp_path: Path, stubs: Stubs) -> None:
    work = '[ $SLURM_ARRAY_TASK_ID = 0 ] || exit 0; echo "CUDA out of memory. Tried"; exit 64'
    path, study, launch = launched(tmp_path / "s", work)
    done = submit(launch)
    assert done.returncode == INCOMPLETE
    assert f"48 samples are missing; rlbhpc doctor {study.layout.root} says why" in done.stderr
    code, result = call("doctor", path, "--json")
    (cause,) = json.loads(result.stdout)
    assert code == INCOMPLETE
    assert cause["cause"] == "the GPU's memory is full"
    (job,) = cause["jobs"]
    assert cause["evidence"] == f"sample-0/{job}_0_log.out: CUDA out of memory. Tried"
    (shards,) = (one["shards"] for one in status(path)[1]["launches"])
    assert set(shards) == {"stopped"}, "nothing works at them any more"
    # The log is found as well once another launch is the newest.
    assert call("launch", path, "--shard-tokens", 300)[0] == DONE
    assert json.loads(call("doctor", path, "--json")[1].stdout) == [cause]
    # Another launch has made what the task was to make: both shards.
    make(study, [0])
    assert json.loads(call("doctor", path, "--json")[1].stdout) == [cause]
    make(study, [1])
    assert call("doctor", path)[0] == DONE
    assert submit(launch).returncode == INCOMPLETE, "no cube"


def test_who_runs_a_launch_here_is_told(tmp_path: Path, stubs: Stubs) -> None:
    """And a shard runs that a process of this machine has claimed."""
    path, study, launch = launched(tmp_path / "s", "exit 0")
    (launch / "submitted").touch()
    process = subprocess.Popen(["sleep", "60"])
    try:
        who = f"{host_name()} {process.pid} {start_tick(str(process.pid))}"
        sending = launch.parent / "sending.0"
        sending.write_text(f"local {who} {getpass.getuser()} runs launch 0001\n")
        plan = json.loads((launch / "launch.json").read_text())["plan"]
        study.layout.claims.mkdir()
        (study.layout.claims / f"{plan}-00001.0").write_text(f"local {who}\n")
        holder = f"{getpass.getuser()} runs launch 0001 (process {process.pid} on"
        text = call("status", path)[1].stdout
        assert f"At work: {holder} {host_name()})" in text
        assert "No job" not in text
        found = status(path)[1]
        assert found["launches"][0]["shards"] == {"running": [1], "waiting": [0]}
        assert found["at_work"].startswith(holder)
        assert holder in call("doctor", path)[1].stdout
        sending.unlink()
        assert "works an earlier launch" in status(path)[1]["at_work"]
        assert status(path)[1]["launches"][0]["shards"] == {"running": [1], "stopped": [0]}
    finally:
        process.kill()
        process.wait()
    found = status(path)[1]
    assert found["at_work"] == ""
    assert found["launches"][0]["shards"] == {"stopped": [0, 1]}


def test_a_job_without_shards_is_seen_at_work_too(tmp_path: Path, stubs: Stubs) -> None:
    """A training that has outlived its launcher: another would write the same checkpoints."""
    _, study, launch = launched(tmp_path / "s", "[ -e held ] || cp -r ../../claims held")
    assert submit(launch).returncode == INCOMPLETE
    (claim,) = (launch / "held").iterdir()
    kind, host, _, _ = claim.read_text().split()
    assert (kind, host) == ("local", host_name())
    assert not list(study.layout.claims.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("visible", "per_copy", "used"),
    [
        ("MIG-4a7f", 1, {"MIG-4a7f"}),
        ("GPU-8932f937, GPU-1f22", 1, {"GPU-8932f937,GPU-1f22"}),
        ("0,1,2,3,4", 2, {"0,1,2,3,4"}),
        ("-1", 1, {""}),
        # As Slurm says it in a job without a GPU.
        ("NoDevFiles", 1, {""}),
    ],
)
def test_a_task_has_all_devices_of_this_machine_by_any_name(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch, visible: str, per_copy: int,
    used: set[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    text = SAMPLED.replace("dtype: float32", f"tensor_parallel: {per_copy}")
    work = 'echo "$CUDA_VISIBLE_DEVICES" >devices-$SLURM_ARRAY_TASK_ID'
    _, _, launch = launched(tmp_path / "s", work, text.replace("hf", "vllm"))
    done = submit(launch)
    assert done.returncode == INCOMPLETE, done.stderr
    seen = {path.read_text().strip() for path in launch.glob("devices-*")}
    assert seen == used


def test_fewer_devices_than_one_copy_needs_are_told(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-4a7f")
    text = SAMPLED.replace("dtype: float32", "tensor_parallel: 2").replace("hf", "vllm")
    _, _, launch = launched(tmp_path / "s", "exit 0", text)
    done = submit(launch)
    assert done.returncode == USAGE
    (line,) = done.stderr.splitlines()
    assert "engine.tensor_parallel: found 2; allowed: 1 to 1, the GPUs of this machine" in line


@pytest.mark.parametrize("verb", ["submits", "runs"])
def test_cancel_stops_what_is_not_submitted_or_begun(
    tmp_path: Path, stubs: Stubs, verb: str
) -> None:
    path, _, launch = launched(tmp_path / "s", "echo ran >ran")
    process = subprocess.Popen(["sleep", "60"])
    try:
        who = f"{host_name()} {process.pid} {start_tick(str(process.pid))}"
        sending = launch.parent / "sending.0"
        sending.write_text(f"local {who} {getpass.getuser()} {verb} launch 0001\n")
        code, result = call("cancel", path)
        assert code == TRY_AGAIN
        assert f"{verb} launch 0001 (process {process.pid} on" in result.output
        assert "nothing more starts" in result.output
    finally:
        process.kill()
        process.wait()
    assert submit(launch).returncode == USAGE
    assert not (launch / "ran").exists()


def test_a_launch_that_was_cancelled_is_not_sent_again(tmp_path: Path, stubs: Stubs) -> None:
    """Its jobs would end at once; one that is written anew takes the same shards."""
    path, study = study_in(tmp_path / "s")
    assert call("launch", path, "--submit", "--shard-tokens", 300)[0] == DONE
    assert call("launch", path, "--shard-tokens", 150)[0] == DONE
    stubs.add("squeue", "exit 1")
    assert call("cancel", path)[0] == TRY_AGAIN
    stubs.add("squeue")
    sent = len(stubs.calls("sbatch"))
    done = submit(study.layout.launches / "0002")
    assert done.returncode == USAGE
    (line,) = done.stderr.splitlines()
    assert "launch 0002 was cancelled; run `rlbhpc launch` again" in line
    assert len(stubs.calls("sbatch")) == sent
    code, result = call("launch", path, "--submit", "--shard-tokens", 150)
    assert code == DONE, result.output
    (new,) = study.layout.launches.glob("0003")
    assert (new / "submitted").exists() and not (new / "cancelled").exists()


def test_a_launch_that_is_cancelled_while_it_is_sent_sends_no_more(
    tmp_path: Path, stubs: Stubs
) -> None:
    path, _ = study_in(tmp_path / "s")
    launch = write_prepared(prepare(path))
    stubs.add("sbatch", "touch cancelled; echo 7")
    with pytest.raises(UserError, match="launch 0001 was cancelled"):
        launch.submit(say=lambda line: None)
    assert [words[-1] for words in stubs.calls("sbatch")] == ["sample.sbatch"]
    assert "sample 7\n" in (launch.folder / "submitted").read_text()


def test_what_is_cancelled_while_ask_waits_is_not_launched_again(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, study = study_in(tmp_path / "s")
    monkeypatch.setattr("rlbhpc.launch.ask.SECONDS_BETWEEN_LOOKS", 0.0)
    stubs.add("sinfo")
    stubs.add("squeue", "echo '1_0|RUNNING|None|me'")

    def end_all(line: str) -> None:
        if "in the queue" in line:
            assert call("cancel", path)[0] == DONE
            stubs.add("squeue")

    with pytest.raises(UserError, match="launch 0001 was cancelled") as stopped:
        make_results(path, end_all)
    assert stopped.value.code == TRY_AGAIN
    assert not (study.layout.launches / "0002").exists()


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda launch: (launch / "submitted").symlink_to("no/such"), "submitted: No such file"),
        (lambda launch: (launch / "launch.json").unlink(), "no launch in it"),
    ],
)
def test_what_stops_submit_sh_is_told_in_one_line(
    tmp_path: Path, stubs: Stubs, damage: Callable[[Path], None], told: str
) -> None:
    path, _ = study_in(tmp_path / "s")
    launch = write_prepared(prepare(path)).folder
    damage(launch)
    done = submit(launch)
    (line,) = done.stderr.splitlines()
    assert line.startswith("submit.sh: ") and told in line
    assert done.returncode in (USAGE, TRY_AGAIN)


def test_a_full_disk_is_worth_another_try(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = study_in(tmp_path / "s")
    launch = write_prepared(prepare(path))

    def refuse(file: Path, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(file))

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(UserError, match=r"ENOSPC.; nothing was submitted; free space") as full:
        launch.submit()
    assert full.value.code == TRY_AGAIN
