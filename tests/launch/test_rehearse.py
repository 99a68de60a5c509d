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
    "both tasks started, with rlbhpc in them",
    "the warned task drained",
    "it came back by itself, and ended",
    "the cancelled task drained",
    "it stays away",
]
BOTH_START = "echo started >events.0; echo started >events.1; echo 7; "
# Where tasks write what they do; each signal of scancel is answered at once, as by the real ones.
WARNED = 'd=$(ls -d "$HOME"/runs/rehearsal-*); case "$*" in *USR1*) '
DRAINED = "echo drained >>$d/events.0; "
CAME_BACK = f"{WARNED}{DRAINED}echo resumed >>$d/events.0;; "
GOOD = f"{CAME_BACK}*) echo drained >>$d/events.1;; esac"
SILENT = "no log of its tasks; see RUNS"


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
        (BOTH_START, GOOD, "", STEPS),
        (BOTH_START, GOOD.replace("drained >>$d/events.1", "drained resumed >>$d/events.1"), "",
         [*STEPS, "but it came back all the same; see RUNS"]),
        (BOTH_START, GOOD, "echo '7_1|RUNNING|None|me'",
         [*STEPS[:4], f"not {STEPS[4]}: {SILENT}"]),
        (BOTH_START, f"{CAME_BACK}esac", "", [*STEPS[:3], f"not {STEPS[3]}: {SILENT}"]),
        (f"echo first >log.0; printf 'one\\nlast\\n' >log.1; {BOTH_START}",
         f"{WARNED}{DRAINED};; esac", "", [*STEPS[:2], f"not {STEPS[2]}: last; see RUNS"]),
        ("echo started >events.0; echo 7", "", "", [f"not {STEPS[0]}: {SILENT}"]),
        ("echo broken >events.1; echo 7", "", "", [f"not {STEPS[0]}: {SILENT}"]),
        ("echo broken >events.0; echo 7", "", "", [f"not {STEPS[0]}: {SILENT}"]),
    ],
)  # fmt: skip
def test_each_step_of_a_rehearsal_is_told_until_one_does_not_come(
    tmp_path: Path, stubs: Stubs, sbatch: str, scancel: str, squeue: str, told: list[str]
) -> None:
    stubs.add("sbatch", sbatch)
    stubs.add("scancel", scancel)
    stubs.add("squeue", squeue)
    lines: list[str] = []
    whole = rehearse(tmp_path / "runs", cluster_of(tmp_path), {}, lines.append)
    (place,) = re.findall(r"job 7 is in the queue; its files are in (.*)", lines[0])
    assert [line.replace(place, "RUNS") for line in lines[1:]] == told
    assert whole == (told == STEPS)
    assert Path(place).exists() == (told != STEPS), "who worked it leaves nothing"
    has_waited = (stubs.folder / "naps").exists()
    assert has_waited == (told[-1].startswith("not ") and "broken" not in sbatch)
    signals = [["--signal=USR1", "--batch", "7_0"]] if len(told) > 1 else []
    ends = [["7_1"]] if len(told) > 3 else []
    # What did not come to its end is taken away.
    ends += [["7"]] if told[-1].startswith("not ") else []
    assert stubs.calls("scancel") == [*signals, *ends]


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
            "account=mine", "array=0-1", f"chdir={folder}", "cpus-per-task=1",
            "job-name=rlbhpc-rehearsal", "nodes=1", "ntasks=1", "open-mode=append",
            "output=log.%a", "partition=small", "qos=dev", "requeue", "time=5",
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


@pytest.mark.parametrize(("options", "shell"), [({"clusters": "big"}, "other"), ({}, "big")])
def test_a_rehearsal_is_looked_for_on_the_cluster_that_it_went_to(
    tmp_path: Path,
    stubs: Stubs,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    shell: str,
) -> None:
    monkeypatch.setenv("SLURM_CLUSTERS", shell)
    stubs.add("sbatch", f"grep '^#SBATCH --clusters=big$' rehearsal.sbatch || exit 1; {BOTH_START}")
    stubs.add("scancel", GOOD)
    assert rehearse(tmp_path / "runs", cluster_of(tmp_path), options, lambda line: None)
    calls = [*stubs.calls("squeue"), *stubs.calls("scancel")]
    assert len(calls) == 3 and all(words[0] == "--clusters=big" for words in calls)


def test_a_rehearsal_waits_in_the_queue_for_as_long_as_that_takes(
    tmp_path: Path, stubs: Stubs
) -> None:
    """Here for an hour, of which each reason is told once; then a call goes on where one ended."""
    stubs.add("sbatch", "echo 7")
    stubs.add("scancel", GOOD)
    squeue = """n=$(( $(cat "$0.n" 2>/dev/null || echo 0) + 1 )); echo $n >"$0.n"
    reason=$([ $n -lt 30 ] && echo Priority || echo Resources)
    echo "7_[0-1]|PENDING|$reason|me"; """
    interrupt = "[ $n -lt 60 ] || kill -INT $PPID; "
    stubs.add("squeue", squeue + interrupt)
    lines: list[str] = []
    runs = tmp_path / "runs"
    with pytest.raises(UserError, match="scancel 7") as interrupted:
        rehearse(runs, cluster_of(tmp_path), {}, lines.append)
    assert interrupted.value.code == TRY_AGAIN
    assert [line.rpartition(" ")[2] for line in lines[1:]] == ["Priority", "Resources"]
    assert not stubs.calls("scancel")
    (place,) = runs.iterdir()
    began = f"[ $n -lt 65 ] || {{ cd '{place}'; echo started >events.0; echo started >events.1; }}"
    # The cancelled task is gone once it has drained.
    stubs.add("squeue", f"grep -qs drained '{place}/events.1' && exit 0\n{squeue}{began}")
    assert rehearse(runs, cluster_of(tmp_path), {}, lines.append)
    assert lines[-len(STEPS) :] == STEPS
    assert len(stubs.calls("sbatch")) == 1


@pytest.mark.parametrize("reason", ["PartitionDown", "PartitionTimeLimit", "JobHeldUser"])
def test_a_rehearsal_that_cannot_start_says_so_at_once(
    tmp_path: Path, stubs: Stubs, reason: str
) -> None:
    stubs.add("sbatch", "echo 7")
    stubs.add("squeue", f"echo '7_[0-1]|PENDING|{reason}|me'")
    with pytest.raises(UserError, match=f"{reason}; .* 7") as blocked:
        rehearse(tmp_path / "runs", cluster_of(tmp_path), {}, print)
    assert blocked.value.code == TRY_AGAIN
    assert not (stubs.folder / "naps").exists()
