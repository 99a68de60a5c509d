"""Doctor: what ended the jobs of a run, and what a site can do."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from rlbhpc.errors import DONE, INCOMPLETE, UserError
from rlbhpc.launch import doctor
from rlbhpc.launch.cluster import load_cluster
from tests.launch.launched import Run, call, run, stubs
from tests.launch.made import Stubs

__all__ = ["run", "stubs"]


@pytest.mark.parametrize(
    ("log", "cause", "action"),
    [
        ("slurmstepd: error: Exceeded job memory limit\nKilled", "the job's memory", "--mem"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried", "the GPU's memory", "rows"),
        ("x\nOSError: [Errno 28] No space left on device", "the disk or a quota", "--seal"),
        ("rlbhpc: no Python 3.9 or newer at /p on n1; name one", "refused", "what the line says"),
        ("FATAL:   While checking image: could not open image /i.sif", "image", "image verify"),
        ("/usr/bin/python3: No module named rlbhpc", "a module is missing", "`rlbhpc`"),
        ("rlbhpc: study.json: no such problem set", "rlbhpc refused", "what the line says"),
        ("/tmp/rlbhpc-3: line 5: 38 Bus error", "a file backs was gone", "/dev/shm"),
        ("[rank0]: RuntimeError: Unsupported CPU attention configuration: head_dim=16",
         "vLLM cannot run", "`engine: hf`"),
        ("[rank1]: ValueError: broken", "the work failed", "log"),
        ("nothing that is known", "died of signal 11", "log"),
    ],
)  # fmt: skip
def test_doctor_names_the_cause_the_line_and_the_next_step(
    run: Run, log: str, cause: str, action: str
) -> None:
    path, study = run
    folder = next(study.layout.launches.iterdir())
    (folder / "failures").mkdir()
    record = {"stalls": 1, "recovered": False, "runs": [{"cause": "died of signal 11"}]}
    (folder / "failures" / "1_0.json").write_text(json.dumps(record))
    (folder / "logs" / "sampled-x-0001-sample-1_0.log").write_text(f"begin\n{log}\n")
    code, result = call("doctor", path, "--json")
    (found,) = json.loads(result.stdout)
    assert code == INCOMPLETE
    assert cause in found["cause"]
    assert action in found["action"]
    assert found["jobs"] == ["1_0"]
    last_line = f"sampled-x-0001-sample-1_0.log: {log.splitlines()[-1]}"
    assert found["evidence"] == last_line or "memory limit" in found["evidence"]
    assert f"next: {found['action']}" in call("doctor", path)[1].stdout


def test_doctor_of_a_run_without_a_failure(run: Run, stubs: Stubs) -> None:
    path, _ = run
    stubs.add("squeue", "echo '1_[0-3]|PENDING|Priority|me'")
    code, result = call("doctor", path)
    assert code == DONE
    assert "ended badly. 4 jobs are in the queue." in result.stdout


CONFIG = """
MaxArraySize            = 1001
KillWait                = 30 sec
JobRequeue              = 0
SlurmctldParameters     = (null)
AccountingStorageType   = accounting_storage/none
"""


def test_doctor_reads_a_site_and_writes_an_entry_that_can_be_used(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs.add(
        "scontrol",
        f"case \"$*\" in 'show config') cat <<'END'\n{CONFIG}END\n;;\n"
        "*) echo 'PartitionName=gpu Default=NO MaxTime=1-00:00:00 GraceTime=300 TRES=gres/gpu=8'\n"
        "   echo 'PartitionName=cpu Default=YES MaxTime=12:00:00';; esac",
    )
    stubs.add("sacctmgr", "echo 'proj|normal|30|'")
    tables = tmp_path / "tables"
    monkeypatch.setenv("RLBHPC_CLUSTERS", str(tables))
    code, result = call("doctor", tmp_path / "runs", "--write", "here", "--json")
    found = {one["what"]: one for one in json.loads(result.stdout)}
    assert found["MaxArraySize"]["found"] == "1001"
    assert found["accounting"]["verdict"] == "note"
    assert found["rename replaces whole files"]["verdict"] == "ok"
    assert code == DONE
    assert not list((tmp_path / "runs").iterdir()), "what was tried out is removed"
    entry = load_cluster(tables / "here.yaml")
    assert (entry.account, entry.max_jobs, entry.max_array_size) == ("proj", 30, 1001)
    assert entry.sample.partition == "gpu"
    assert entry.light.partition == "cpu"
    with pytest.raises(UserError, match="exists"):
        call("doctor", tmp_path / "runs", "--write", "here")


@pytest.mark.parametrize(("types", "gpus"), [("(null)", 0), ("gpu", 1)])
def test_jobs_ask_for_gpus_unless_the_site_has_none(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch, types: str, gpus: int
) -> None:
    """Its partitions tell their GPUs only where the site counts them."""
    partition = "PartitionName=all Default=YES MaxTime=12:00:00"
    stubs.add("scontrol", f"echo 'GresTypes = {types}'; echo '{partition}'")
    stubs.add("sacctmgr", "echo 'proj|normal||'")
    monkeypatch.setenv("RLBHPC_CLUSTERS", str(tmp_path / "tables"))
    result = call("doctor", tmp_path / "runs", "--write", "here")[1]
    assert "submits any number, runs any number" in " ".join(result.stdout.split())
    entry = load_cluster(tmp_path / "tables" / "here.yaml")
    assert entry.light.partition == "all"
    for kind in (entry.sample, entry.train):
        assert (kind.partition, kind.gpus) == (None if gpus else "all", gpus)


def test_doctor_without_slurm_says_where_to_run_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs = Stubs(tmp_path / "bin")
    stubs.add("python3", "echo 3.6")  # that of the system, which runs no job
    (stubs.folder / "unshare").symlink_to("/usr/bin/unshare")
    monkeypatch.setenv("PATH", str(stubs.folder))
    code, result = call("doctor", tmp_path / "runs")
    assert code == INCOMPLETE
    assert "run this on a login node" in result.stdout
    assert "3.6" not in result.stdout and not stubs.calls("python3")
    (tmp_path / "tables").mkdir()
    monkeypatch.setenv("RLBHPC_CLUSTERS", str(tmp_path / "tables"))
    for python, verdict in (("chatty", "ok"), ("silent", "bad")):
        table = {"hosts": ["*"], "python": str(stubs.folder / python)}
        (tmp_path / "tables" / "0.yaml").write_text(yaml.safe_dump(table))
        stubs.add(python, {"chatty": "echo Loading python/3.11; echo 3.11"}.get(python, ""))
        (finding,) = doctor.of_python()
        assert finding.verdict == verdict
    assert os.environ["PATH"] == str(tmp_path / "bin")
