"""Doctor: what ended the jobs of a run, and what a site can do."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from rlbhpc.errors import DONE, INCOMPLETE, UserError
from rlbhpc.launch import doctor
from rlbhpc.launch.cluster import load_cluster
from rlbhpc.launch.doctor import Finding
from tests.launch.launched import ME, Run, call, run, stubs
from tests.launch.made import PARTITION, Stubs, shown

__all__ = ["run", "stubs"]
# Last lines that say nothing of the cause.
ENGINE = (
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
)
NOT_STARTED = (
    "2026-11-27T10:00:00 parent: the work could not be started: the command, the container or a"
    " module is not there"
)
AFTERWARDS = (ENGINE, NOT_STARTED, "Killed")


@pytest.mark.parametrize(
    ("log", "cause", "action"),
    [
        ("slurmstepd: error: Exceeded job memory limit\nKilled", "the job's memory", "--mem"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried", "the GPU's memory", "`micro_tokens`"),
        ("RuntimeError: CUDA error: out of memory", "the GPU's memory", "rows"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "GPU", "--exclude"),
        ("x\nOSError: [Errno 28] No space left on device", "the disk or a quota", "--seal"),
        ("slurm_script: line 45: exec: /p/python3: cannot execute: No such file or directory",
         "no Python 3.9", "`python`"),
        ("SyntaxError: future feature annotations is not defined", "no Python 3.9", "`python`"),
        ("FATAL:   While checking image: could not open image /i.sif", "image", "apptainer"),
        ("/usr/bin/python3: No module named rlbhpc", "a module is missing", "`rlbhpc`"),
        ("rlbhpc: study.json: no such problem set", "rlbhpc refused", "what the line says"),
        ("/tmp/rlbhpc-3: line 5: 38 Bus error", "a file backs was gone", "/dev/shm"),
        ("[rank0]: RuntimeError: Unsupported CPU attention configuration: head_dim=16",
         "vLLM cannot run", "`engine: hf`"),
        ("[rank2]: RuntimeError: CUDA Error: out of memory at /w/csrc/cumem_allocator.cpp:62",
         "the GPU's memory", "`micro_tokens`"),
        ("[rank1]: ValueError: broken", "the work failed", "log"),
        ("nothing that is known", "died of signal 11", "log"),
        ("(EngineCore_DP0 pid=17374) ERROR 09-28 15:47:24 [core.py:718] ValueError: Free memory on "
         "device (3.22/4.0 GiB) on startup is less than desired GPU memory utilization (0.9, 3.6 "
         f"GiB).\n{ENGINE}", "the work failed", "log"),
        ("(EngineCore_DP0 pid=6804) ValueError: No available memory for the cache blocks. Try "
         f"increasing `gpu_memory_utilization` when initializing the engine.\n{ENGINE}",
         "no room for one response", "larger `memory`"),
        ("RuntimeError: No CUDA GPUs are available", "finds no GPU", "--nv"),
        ("MemoryError", "the job's memory", "--mem"),
        ("RuntimeError: [enforce fail at alloc_cpu.cpp:119] err == 0. DefaultCPUAllocator: can't "
         "allocate memory: you tried to allocate 26214400000 bytes.", "the job's memory", "--mem"),
        ("n1:97:176 [0] misc/shmutils.cc:132 NCCL WARN Error while creating shared memory segment "
         "/dev/shm/nccl-WU88OE (size 9637888), error: No space left on device (28)",
         "a file backs was gone", "/dev/shm"),
        ("[rank1]:[E ProcessGroupNCCL.cpp:1182] [Rank 1] NCCL watchdog thread terminated with "
         "exception: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=880)",
         "waited in vain", "--exclude"),
        ("/env/bin/python: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by "
         "/env/bin/python)", "system is older", "container"),
        ("FATAL:   container creation failed: mount hook function failure: mount /nope->/nope "
         f"error: while mounting /nope: mount source /nope doesn't exist\n{NOT_STARTED}",
         "the container does not start", "`container`"),
        (f"2026-11-27T10:00:00 parent: /run/user/1000: Permission denied\n{NOT_STARTED}",
         "denies a folder", "`scratch`"),
        ("parent: /m/config.json is not there: what should make it has not ended well",
         "was not made", "the job before"),
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
    line = next(line for line in reversed(log.splitlines()) if line not in AFTERWARDS)
    assert found["evidence"] == f"sampled-x-0001-sample-1_0.log: {line}"
    assert f"next: {found['action']}" in call("doctor", path)[1].stdout


def test_doctor_reads_the_log_of_a_task_that_the_accounting_names_by_its_array(
    run: Run, stubs: Stubs
) -> None:
    """Slurm's accounting may have lost the task's number of one that ended at once."""
    path, study = run
    stubs.add("squeue", "echo '1_1|RUNNING|None|me'")
    rows = ("1_0|COMPLETED|0:0|me", "1|FAILED|0:9|me", "1_3|COMPLETED|0:0|me", "2|FAILED|1:0|me")
    stubs.add("sacct", "; ".join(f"echo '{row}'" for row in rows))
    log = next(study.layout.launches.iterdir()) / "logs" / "sampled-x-0001-sample-1_2.log"
    log.write_text("slurmstepd: error: Exceeded job memory limit\n")
    full, other = json.loads(call("doctor", path, "--json")[1].stdout)
    assert (full["cause"], full["jobs"]) == ("the job's memory is full", ["1_2"])
    assert full["evidence"] == f"{log.name}: slurmstepd: error: Exceeded job memory limit"
    assert (other["cause"], other["jobs"]) == ("FAILED", ["2"])


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
    assert found["exclusive create"]["verdict"] == "ok"
    assert code == DONE
    assert not list((tmp_path / "runs").iterdir()), "what was tried out is removed"
    entry = load_cluster(tables / "here.yaml")
    assert (entry.account, entry.max_jobs, entry.max_array_size) == ("proj", 30, 1001)
    assert entry.sample.partition == "gpu"
    assert entry.light.partition == "cpu"
    refusals = {
        "here": rf"{tables}/here\.yaml exists; choose another name",
        "a/b": r"without '/', or a path that ends in \.yaml; got 'a/b'",
        f"{tables}/here.yaml/x.yaml": rf"{tables}/here\.yaml: File exists; name a folder",
    }
    for name, message in refusals.items():
        with pytest.raises(UserError, match=message):
            call("doctor", tmp_path / "runs", "--write", name)
    call("doctor", tmp_path / "runs", "--write", tmp_path / "new" / "mine.yaml")
    assert load_cluster(tmp_path / "new" / "mine.yaml") == entry


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
        assert (kind.partition, kind.gpus) == ("all", gpus)


@pytest.mark.parametrize(
    ("limit", "times"),
    [("00:30:00", ("00:30:00", "00:30:00")), ("2-00:00:00", ("04:00:00", "01:00:00")),
     ("UNLIMITED", ("04:00:00", "01:00:00"))],
)  # fmt: skip
def test_no_job_asks_for_more_than_its_partition_has(
    tmp_path: Path, stubs: Stubs, limit: str, times: tuple[str, str]
) -> None:
    partition = shown(PARTITION, MaxTime=limit, Default="YES", TotalCPUs=12, TotalNodes=3)
    stubs.add("scontrol", f"echo 'GresTypes = gpu'; echo '{partition}'")
    doctor.write_entry(tmp_path / "here.yaml")
    entry = load_cluster(tmp_path / "here.yaml")
    assert (entry.sample.time, entry.light.time) == times
    assert (entry.sample.cpus, entry.train.cpus, entry.light.cpus) == (4, 4, 2)


REASONS = [
    ("PartitionTimeLimit", "-t"), ("AssocMaxWallDurationPerJobLimit", "-t"),
    ("QOSMaxCpuPerJobLimit", "-q"), ("AssocGrpCpuLimit", "other jobs"),
    ("QOSMaxJobsPerUserLimit", "other jobs"), ("MaxGRESPerAccount", "other jobs"),
    ("AssocGrpCPURunMinutesLimit", "other jobs"), ("AssocGrpCPUMinutesLimit", "budget"),
    ("QOSGrpGRESMinutes", "budget"), ("PartitionDown", "-p"), ("PartitionNodeLimit", "`nodes`"),
    ("BadConstraints", "sinfo"), ("InvalidAccount", "-A"), ("InvalidQOS", "-q"),
    ("DependencyNeverSatisfied", "launch again"), ("JobHeldAdmin", "scontrol release 1"),
    ("ReqNodeNotAvail, UnavailableNodes:n[1-3]", "sinfo -R"),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "starter"), REASONS)
def test_what_would_start_a_job_that_cannot_is_told(
    run: Run, stubs: Stubs, reason: str, starter: str
) -> None:
    """By the run's doctor and by status, whatever an earlier run of the job has left in its log."""
    path, study = run
    log = next(study.layout.launches.iterdir()) / "logs" / "sampled-x-0001-sample-1_0.log"
    log.write_text("slurmstepd: error: Exceeded job memory limit\n")
    stubs.add("squeue", f"echo '1_[0-3]|PENDING|{reason}|{ME}'")
    code, result = call("doctor", path, "--json")
    (cause,) = json.loads(result.stdout)
    assert code == INCOMPLETE
    # A limit passes by itself once other jobs have ended.
    waits = cause["cause"].startswith("waits")
    assert waits == (starter == "other jobs") and reason in cause["cause"]
    assert starter in cause["action"]
    assert cause["jobs"] == ["1"] and not cause["evidence"]
    assert starter in " ".join(call("status", path)[1].stdout.split())


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
        (finding,) = doctor.examine_python()
        assert finding.verdict == verdict
    assert os.environ["PATH"] == str(tmp_path / "bin")


SITE = f"""case "$*" in 'show config') cat <<'END'{CONFIG}END
;; *) cat <<'END'
PartitionName=gpu Default=NO MaxTime=1-00:00:00 GraceTime=300 PreemptMode=REQUEUE QoS=N/A TRES=gpu=8
PartitionName=cpu Default=YES MaxTime=12:00:00
PartitionName=gpu2 Default=NO TRES=gpu=9
AnotherLine
END
esac"""
KIND = CONFIG.replace("= 0", "= 1").replace("(null)", "a,preempt_send_user_signal=1")
PARTITIONS = [
    Finding("partition gpu", "MaxTime 1-00:00:00, GraceTime 300, PreemptMode REQUEUE, QoS N/A"),
    Finding("partition cpu", "MaxTime 12:00:00"),
    Finding("partition gpu2", ""),
    Finding("account proj", "qos -, submits at most 30, runs any number"),
]
NOTES = [
    Finding("requeue", "off by default", "note",
            "jobs can still requeue themselves if the site allows it: doctor --rehearse"),
    Finding("accounting", "off", "note", "status tells causes by our own records alone"),
    Finding("warning before preemption", "none", "note",
            "a preempted job gets TERM and GraceTime only; keep in-flight responses short"),
]  # fmt: skip


def in_order(config: str) -> list[Finding]:
    """Settings as they are told: in the order of what depends on them."""
    pairs = [line.split("=", 1) for line in config.strip().splitlines()]
    settings = [Finding(name.strip(), value.strip()) for name, value in pairs]
    return sorted(settings, key=lambda setting: doctor.SETTINGS.index(setting.what))


@pytest.mark.parametrize(
    ("sbatch", "scontrol", "findings"),
    [
        ("exit 1", SITE, [Finding("Slurm", "no sbatch here", "bad", "run this on a login node")]),
        (
            "echo slurm 23",
            "exit 1",
            [
                Finding("Slurm", "slurm 23"),
                Finding("Slurm's settings", "scontrol does not answer", "bad", "try again later"),
            ],
        ),
        (
            "echo slurm 23",
            SITE,
            [Finding("Slurm", "slurm 23"), *in_order(CONFIG), *NOTES, *PARTITIONS],
        ),
        (
            "echo slurm 23",
            SITE.replace(CONFIG, KIND.replace("accounting_storage/none", "slurmdbd")),
            [
                Finding("Slurm", "slurm 23"),
                *in_order(KIND.replace("accounting_storage/none", "slurmdbd")),
                *PARTITIONS,
            ],
        ),
    ],
)  # fmt: skip
def test_what_slurm_says_of_itself_is_told_with_what_it_means(
    stubs: Stubs, sbatch: str, scontrol: str, findings: list[Finding]
) -> None:
    stubs.add("sbatch", sbatch)
    stubs.add("scontrol", scontrol)
    stubs.add("sacctmgr", "echo 'proj||30|'; echo 'no row'")
    assert list(doctor.examine_slurm()) == findings


@pytest.mark.parametrize(
    ("accounts", "config", "program", "entry"),
    [
        ("echo 'proj||30|'", CONFIG, True,
         {"account": "proj", "max_jobs": 30, "max_array_size": 1001, "kill_wait": 30}),
        ("echo 'proj|||'", "MaxArraySize = 0\nKillWait = 1 sec\n", False,
         {"account": "proj", "kill_wait": 1}),
        ("echo 'proj||30|'; echo 'other||30|'", "MaxArraySize = none\n", False, {}),
        ("exit 1", "", False, {}),
    ],
)  # fmt: skip
def test_the_first_entry_of_a_site_has_what_slurm_tells(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch, accounts: str, config: str,
    program: bool, entry: dict[str, object],
) -> None:  # fmt: skip
    stubs.add("scontrol", SITE.replace(CONFIG, f"\n{config.lstrip()}"))
    stubs.add("sacctmgr", accounts)
    monkeypatch.setattr(socket, "gethostname", lambda: "login07.site2")
    if program:
        stubs.add("rlbhpc")
    monkeypatch.setenv("PATH", f"{stubs.folder}:/bin")
    path = tmp_path / "tables" / "deep" / "one.yaml"
    doctor.write_entry(path)
    doctor.write_entry(path.with_name("two.yaml"))
    head, text = path.read_text().split("\n", 1)
    assert head == "# Written by rlbhpc doctor; see docs/clusters.md for every key."
    assert yaml.safe_load(text) == {
        "hosts": ["login*.site*"],
        **entry,
        "sample": {"partition": "gpu", "time": "04:00:00", "gpus": 1, "cpus": 8},
        "train": {"partition": "gpu", "time": "04:00:00", "gpus": 1, "cpus": 8},
        "light": {"partition": "cpu", "time": "01:00:00", "cpus": 2},
        "rlbhpc": [str(stubs.folder / "rlbhpc")] if program else [sys.executable, "-m", "rlbhpc"],
    }


@pytest.mark.parametrize(
    ("prints", "found", "verdict"),
    [("3.9", "3.9", "ok"), ("3.8", "3.8", "bad"), ("Hi; 3.10 ", "3.10", "ok"), ("", "none", "bad")],
)
def test_the_python_of_jobs_is_new_enough(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch, prints: str, found: str,
    verdict: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("RLBHPC_CLUSTERS", str(tmp_path))
    stubs.add("python-of-site", f"echo '{prints}'")
    (tmp_path / "0.yaml").write_text("hosts: ['*']\npython: python-of-site\n")
    (finding,) = doctor.examine_python()
    assert (finding.what, finding.found) == ("python of jobs", f"{found} at python-of-site")
    assert (finding.verdict, "3.9 or newer" in finding.advice) == (verdict, verdict == "bad")
    (tmp_path / "0.yaml").write_text("hsots: ['*']\n")
    (finding,) = doctor.examine_python()
    assert (finding.what, finding.verdict) == ("cluster", "bad")
    assert "0.yaml:1: hsots: unknown key" in finding.advice


@pytest.mark.parametrize(
    ("name", "body", "version"),
    [("apptainer", "echo 'one 1.3'", "one 1.3"), ("singularity", "exit 1", "does not start")],
)
def test_what_runs_images_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, body: str, version: str
) -> None:
    stubs = Stubs(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(stubs.folder))
    (none,) = doctor.examine_containers()
    assert (none.what, none.found, none.verdict) == ("apptainer", "not here", "note")
    stubs.add(name, body)
    assert list(doctor.examine_containers()) == [
        Finding(name, f"{version} at {stubs.folder / name}")
    ]


@pytest.mark.parametrize(
    ("unshare", "modules", "found"),
    [("", "lockdown,landlock,yama\n", ("yes", "ok", "yes")),
     ("exit 1", "lockdown\n", ("no", "note", "not listed"))],
)  # fmt: skip
def test_what_confines_the_programs_of_a_model_is_told(
    stubs: Stubs, monkeypatch: pytest.MonkeyPatch, unshare: str, modules: str,
    found: tuple[str, str, str],
) -> None:  # fmt: skip
    stubs.add("unshare", unshare)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", lambda path: modules)
        spaces, landlock = doctor.examine_confinement()
    assert (spaces.found, spaces.verdict, landlock.found) == found
    assert stubs.calls("unshare") == [["-Ur", "true"]]


NO = ("no", "bad", "keep runs on another file system")


def refuse(*words: object) -> bool:
    raise OSError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize(
    ("part", "name", "fault", "what", "found"),
    [
        (doctor, "create_claim", lambda path, holder: True, "exclusive create", NO),
        (doctor, "create_claim", lambda path, holder: False, "exclusive create", NO),
        (doctor, "create_claim", refuse, "writing", ("Operation not permitted", *NO[1:])),
        (time, "time", lambda now=time.time: now() + 6.0, "clock against the file server", None),
    ],
)
def test_a_file_system_that_will_not_do_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: object, name: str, fault: object,
    what: str, found: tuple[str, str, str] | None,
) -> None:  # fmt: skip
    monkeypatch.setattr(part, name, fault)
    bad = {one.what: one for one in doctor.examine_files(tmp_path)}.pop(what)
    if found is None:
        assert bad.verdict == "note" and re.fullmatch(r"[56]\.\d s", bad.found)
    else:
        assert (bad.found, bad.verdict, bad.advice) == found


def test_a_file_system_that_will_do_keeps_nothing_of_what_was_tried(tmp_path: Path) -> None:
    for _ in range(2):
        good = list(doctor.examine_files(tmp_path / "deep" / "er"))
        assert [one.what for one in good] == [
            "exclusive create", "clock against the file server", "room",
        ]  # fmt: skip
        assert {one.verdict for one in good} == {"ok"}
        assert list((tmp_path / "deep" / "er").iterdir()) == []


def test_room_and_a_folder_that_cannot_be_made_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for count, told in ((1, "12,345 files"), (0, "no count of files")):
        space = SimpleNamespace(f_files=count, f_favail=12_345, f_bavail=10**6, f_frsize=4096)
        monkeypatch.setattr(os, "statvfs", lambda folder, space=space: space)
        *_, room = doctor.examine_files(tmp_path)
        assert room == Finding("room", f"4 GB, {told}")
    (tmp_path / "file").touch()
    (finding,) = doctor.examine_files(tmp_path / "file" / "in")
    advice = "choose another one"
    assert finding == Finding(
        f"folder {tmp_path / 'file' / 'in'}", "Not a directory", "bad", advice
    )
