"""A rehearsal against stubs of Slurm: what is asked of it, and what each answer means."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.launch import doctor
from rlbhpc.launch.doctor import rehearse
from tests.launch.made import Stubs, cluster_of

STEPS = [
    "it started, with rlbhpc in it",
    "it was warned, and drained",
    "it came back by itself",
    "it was cancelled, and drained",
    "it stays away",
]
STARTS = "echo started >events; echo 7; "
# Where the task writes what it does; each signal of scancel is answered at once.
WARNED = 'd=$(ls -d "$HOME"/runs/rehearsal-*); case "$*" in *USR1*) echo drained >>$d/events; '
CAME_BACK = f"{WARNED}echo started >>$d/events;; "
GOOD = f"{CAME_BACK}7_0) echo drained >>$d/events;; esac"
# In the queue until it was cancelled.
QUEUED = "[ $(grep -cs drained \"$HOME\"/runs/*/events) = 2 ] || echo '7_0|RUNNING|None|me'"
SILENT = "no log of its task; see RUNS"


@pytest.fixture
def stubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stubs:
    found = Stubs(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{found.folder}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    # Nobody waits: each look at the clock is a minute after the one before.
    clock = itertools.count(0.0, 60.0)
    naps = found.folder / "naps"
    time = SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda seconds: naps.touch())
    monkeypatch.setattr(doctor, "time", time)
    found.add("squeue")
    return found


@pytest.mark.parametrize(
    ("sbatch", "scancel", "squeue", "told"),
    [
        (STARTS, GOOD, QUEUED, STEPS),
        (STARTS, GOOD.replace("drained >>$d/events;; esac", "'drained started' >>$d/events;; esac"),
         QUEUED, [*STEPS[:4], f"not: {STEPS[4]}: {SILENT}"]),
        (STARTS, GOOD, "echo '7_0|RUNNING|None|me'", [*STEPS[:4], f"not: {STEPS[4]}: {SILENT}"]),
        (STARTS, f"{CAME_BACK}esac", "", [*STEPS[:3], f"not: {STEPS[3]}: {SILENT}"]),
        (f"printf 'one\\nlast\\n' >log; {STARTS}", f"{WARNED};; esac", "",
         [*STEPS[:2], f"not: {STEPS[2]}: last; see RUNS"]),
        ("echo 7", "", "echo '7_0|RUNNING|None|me'", [f"not: {STEPS[0]}: {SILENT}"]),
        ("echo broken >events; echo 7", "", "", [f"not: {STEPS[0]}: {SILENT}"]),
    ],
)  # fmt: skip
def test_each_step_of_a_rehearsal_is_told_until_one_does_not_come(
    tmp_path: Path, stubs: Stubs, sbatch: str, scancel: str, squeue: str, told: list[str]
) -> None:
    stubs.add("sbatch", sbatch)
    stubs.add("scancel", scancel)
    stubs.add("squeue", squeue)
    lines: list[str] = []
    works = rehearse(tmp_path / "runs", cluster_of(tmp_path), {}, lines.append)
    (place,) = re.findall(r"job 7 is in the queue; its files are in (.*)", lines[0])
    assert [line.replace(place, "RUNS") for line in lines[1:]] == told
    assert works == (told == STEPS)
    assert Path(place).exists() == (told != STEPS), "one that worked leaves nothing"
    signals = [["--signal=USR1", "--batch", "7_0"]] if len(told) > 1 else []
    cancels = [["7_0"]] if len(told) > 3 else []
    # Whatever came of it, no job is left in the queue.
    assert stubs.calls("scancel") == [*signals, *cancels, ["7"]]


def test_a_rehearsal_asks_for_as_little_as_a_light_job(tmp_path: Path, stubs: Stubs) -> None:
    stubs.add("sbatch", "exit 1")
    keys = {"light": {"partition": "small", "options": {"qos": "dev"}}, "account": "proj"}
    container = {"image": "/i.sif", "binds": ["/data"]}
    cluster = cluster_of(tmp_path, container=container, stage="/local", rlbhpc=["rl bhpc"], **keys)
    with pytest.raises(UserError, match="the rehearsal was not taken"):
        rehearse(tmp_path / "runs", cluster, {"account": "mine", "time": "9"}, print)
    (folder,) = (tmp_path / "runs").iterdir()
    text = (folder / "rehearsal.sbatch").read_text()
    assert [line for line in text.splitlines() if line.startswith("#SBATCH")] == [
        f"#SBATCH --{option}"
        for option in (
            "account=mine", "array=0", f"chdir={folder}", "cpus-per-task=1",
            "job-name=rlbhpc-rehearsal", "nodes=1", "ntasks=1", "open-mode=append",
            "output=log", "partition=small", "qos=dev", "requeue", "time=5",
        )
    ]  # fmt: skip
    assert "SINGULARITYENV_" in text
    assert text.endswith(
        'exec "$python" -m host --drain 20 --last 10 --scratch "$scratch" -- \\\n'
        "    bash work.sh \\\n"
        '    apptainer exec --cleanenv --no-home --pwd "$PWD" --bind "$scratch" \\\n'
        f"    --bind /data \\\n    --bind {folder} \\\n    /i.sif \\\n    'rl bhpc'\n"
    )


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, stubs: Stubs) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file/in: Not a directory; choose another folder"):
        rehearse(tmp_path / "file" / "in", cluster_of(tmp_path), {}, print)
    deep = tmp_path / "deep" / "er"
    for _ in range(2):
        with pytest.raises(UserError, match=r"the rehearsal was not taken: .*sbatch"):
            rehearse(deep, cluster_of(tmp_path), {}, print)
    assert len(list(deep.iterdir())) == 2


def test_a_rehearsal_waits_in_the_queue_for_as_long_as_that_takes(
    tmp_path: Path, stubs: Stubs
) -> None:
    """Here for an hour, of which each reason is told once."""
    stubs.add("sbatch", "echo 7")
    stubs.add("scancel", GOOD)
    stubs.add(
        "squeue",
        f"""n=$(( $(cat "$0.n" 2>/dev/null || echo 0) + 1 )); echo $n >"$0.n"
    reason=$([ $n -lt 30 ] && echo Priority || echo Resources)
    [ $n -lt 60 ] && {{ echo "7_0|PENDING|$reason|me"; exit; }}
    [ $n = 60 ] && (cd "$HOME"/runs/rehearsal-*; echo started >events)
    {QUEUED}""",
    )
    lines: list[str] = []
    assert rehearse(tmp_path / "runs", cluster_of(tmp_path), {}, lines.append)
    assert [line.rpartition(" ")[2] for line in lines[1:3]] == ["Priority", "Resources"]
    assert lines[3:] == STEPS


@pytest.mark.parametrize("reason", ["PartitionDown", "PartitionTimeLimit", "JobHeldUser"])
def test_a_rehearsal_that_cannot_start_says_so_at_once(
    tmp_path: Path, stubs: Stubs, reason: str
) -> None:
    stubs.add("sbatch", "echo 7")
    stubs.add("scancel")
    stubs.add("squeue", f"echo '7_[0]|PENDING|{reason}|me'")
    with pytest.raises(UserError, match=f"{reason}; ") as blocked:
        rehearse(tmp_path / "runs", cluster_of(tmp_path), {}, print)
    assert blocked.value.code == TRY_AGAIN
    assert not (stubs.folder / "naps").exists()
    assert stubs.calls("scancel") == [["7"]] and not list((tmp_path / "runs").iterdir())
