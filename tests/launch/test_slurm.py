"""What is asked of Slurm, and what its answers mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlbhpc.launch import slurm
from rlbhpc.launch.host.task import launching_environment
from rlbhpc.launch.slurm import QueueRow
from tests.launch.made import Stubs

FORGOTTEN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"


@pytest.fixture
def stubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stubs:
    found = Stubs(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{found.folder}:/usr/bin:/bin")
    return found


@pytest.mark.parametrize(
    ("body", "answer"),
    [("echo yes", "yes\n"), ("echo yes; exit 1", None), (FORGOTTEN, ""), (None, None)],
)
def test_an_answer_is_what_a_command_prints_if_it_succeeds(
    stubs: Stubs, body: str | None, answer: str | None
) -> None:
    if body is not None:
        stubs.add("squeues", body)
    assert slurm.query("squeues", "-h") == answer
    assert stubs.calls("squeues") == ([["-h"]] if body is not None else [])


def test_jobs_are_asked_for_together_and_nothing_of_none(
    stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CLUSTERS", "big")
    stubs.add("squeue", "echo '12_[1-2]|PENDING|None|me'")
    stubs.add("sacct", "exit 1")
    waiting = [QueueRow(12, task, "PENDING", "None", "me") for task in (1, 2)]
    assert slurm.read_queue([13, 12, 12]) == waiting
    assert slurm.read_accounting([12], "2026-01-02") is None
    assert slurm.read_queue([]) == slurm.read_accounting([], "2026-01-02") == []
    assert stubs.calls("squeue") == [
        ["--all", "--noheader", "--format=%i|%T|%r|%u", "--jobs=12,13"]
    ]
    columns = "--format=JobID,State,ExitCode,User"
    assert stubs.calls("sacct") == [
        ["--clusters=big", "--allocations", "--noheader", "--parsable2", columns,
         "--starttime=2026-01-02", "--jobs=12"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("squeue", "sacct", "number"),
    [("echo 55; echo 56_1", "echo 57", "56"), ("exit 1", "echo 57_0; echo '57_[1-3]'", "57"),
     ("", "echo 58; echo batch", "58"), ("", "exit 1", ""), ("exit 1", "", None)],
)  # fmt: skip
def test_a_job_has_the_id_that_the_queue_or_the_accounting_says(
    stubs: Stubs, squeue: str, sacct: str, number: str | None
) -> None:
    stubs.add("squeue", squeue)
    stubs.add("sacct", sacct)
    assert slurm.find_job_by_name("tiny-1-sample", "ann") == number
    asked = ["--user=ann", "--noheader", "--name=tiny-1-sample", "--format=%F"]
    assert stubs.calls("squeue") == [asked]


def test_of_several_clusters_one_knows_the_job(stubs: Stubs) -> None:
    """squeue prints what one has, and fails because the others have no such job."""
    error = "slurm_load_jobs error: {}"
    unknown = error.format("Invalid job id specified")
    silent = error.format("Unable to contact slurm controller (connect failure)")
    parsing = "squeue: error: _parse_next_key: Parsing error at unrecognized key: NodeSet"
    for errors, rows in (
        ([parsing, unknown], [QueueRow(5, -1, "RUNNING", "None", "ann")]),
        ([parsing], None),
        ([unknown], [QueueRow(5, -1, "RUNNING", "None", "ann")]),
        ([unknown, silent], None),
    ):
        lines = "; ".join(f"echo '{line}' >&2" for line in errors)
        stubs.add("squeue", f"{lines}; echo '5|RUNNING|None|ann'; exit 1")
        assert slurm.read_queue([5]) == rows


def test_the_shell_leaves_nothing_out_of_an_answer(
    stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """squeue(1): SQUEUE_STATES and others are options that its command line has not."""
    for name in ("SQUEUE_STATES", "SQUEUE_USERS", "SACCT_FORMAT", "SLURM_CLUSTERS", "SLURM_CONF"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("SQUEUE_FEDERATION", "x")  # which leaves nothing out
    stubs.add("squeue", "env | sed -n 's/=x$//p' | sort")
    stubs.add("sinfo", "env | sed -n 's/=x$//p' | sort")
    assert slurm.query("squeue") == "SLURM_CLUSTERS\nSLURM_CONF\nSQUEUE_FEDERATION\n"
    assert slurm.query("sinfo") == "SLURM_CLUSTERS\nSLURM_CONF\nSQUEUE_FEDERATION\n"
    environment = launching_environment()
    assert not {"SQUEUE_STATES", "SACCT_FORMAT", "SLURM_CLUSTERS"} & environment.keys()
    assert environment["SLURM_CONF"] == "x"


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("12", [(12, -1)]),
        ("12_0", [(12, 0)]),
        ("x_[1,...]", []),
        ("12.batch", []),
        ("", []),
    ],
)
def test_what_is_no_id_names_no_job(name: str, ids: list[tuple[int, int]]) -> None:
    assert slurm.parse_ids(name) == ids
