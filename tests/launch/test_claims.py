"""Claims of shards: who works one, whether that job is still there, and who may take it over."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from rlbhpc.launch.host.claims import host_name, is_alive, start_tick
from tests.launch.test_host import Run, run

__all__ = ["run"]


def claim_words(shards: str) -> tuple[str, ...]:
    return ("--drain", "1", "--last", "1", "--plan", "abc", "--shards", shards)


def claims(run: Run) -> dict[str, str]:
    return {p.name: p.read_text().strip() for p in (run.folder / "../../claims").glob("*")}


def work_on(run: Run, shards: str, code: int = 0) -> tuple[int, str]:
    run.start(*claim_words(shards), "--", "bash", "-c", f'echo "$0" >>worked; exit {code}', "{}")
    return run.ended()


def test_shards_that_another_job_has_claimed_are_its_own(run: Run) -> None:
    folder = run.folder / "../../claims"
    folder.mkdir()
    (folder / "abc-00001.0").write_text("slurm 5_1\n")
    (folder / "abc-00002.0").write_text("slurm 6_1\n")
    (folder / "abc-00003.0").write_text("slurm 7_2\n")
    run.stubs.add(
        "squeue",
        'case "$*" in *--jobs=5_1*) echo RUNNING;;'
        ' *) echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1;; esac',
    )
    code, text = work_on(run, "0,1,2,3")
    assert code == 0
    assert "abc-00001 is worked by slurm 5_1" in text
    assert (run.folder / "worked").read_text() == "0,2,3\n"
    # Who ended gives back what is its own, and leaves what is not.
    assert claims(run) == {"abc-00001.0": "slurm 5_1", "abc-00002.0": "slurm 6_1"}


def test_the_claim_of_a_local_job_ends_with_its_process_not_with_its_number(run: Run) -> None:
    folder = run.folder / "../../claims"
    folder.mkdir()
    pid = str(os.getpid())
    alive = f"local {host_name()} {pid} {start_tick(pid)}"
    (folder / "abc-00001.0").write_text(f"{alive}\n")
    # The number of a job that ended went to another process, which is this one.
    (folder / "abc-00002.0").write_text(f"local {host_name()} {pid} 7\n")
    code, text = work_on(run, "1,2")
    assert code == 0
    assert f"abc-00001 is worked by {alive}" in text
    assert (run.folder / "worked").read_text() == "2\n"


@pytest.mark.parametrize(("age", "worked"), [(0.0, False), (400.0, True)])
def test_the_claim_of_another_host_ends_when_nothing_is_heard_of_it(
    run: Run, age: float, worked: bool
) -> None:
    """A launch on a login node was killed with all its jobs: Slurm must not skip its shards."""
    folder = run.folder / "../../claims"
    folder.mkdir()
    claim = folder / "abc-00001.0"
    claim.write_text("local elsewhere 71 1\n")
    os.utime(claim, (time.time() - age,) * 2)
    assert work_on(run, "1")[0] == 0
    assert (run.folder / "worked").exists() == worked
    assert not list(folder.glob("*.partial"))


# As Slurm 22.05 says it of a job that it has forgotten, and of one that it hides.
UNSEEN = 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1'


@pytest.mark.parametrize(
    ("private", "silence", "worked"),
    [("jobs,usage", 0.0, False), ("jobs,usage", 400.0, True), ("none", 0.0, True)],
)
def test_the_claim_of_a_hidden_job_ends_when_nothing_is_heard_of_it(
    run: Run, private: str, silence: float, worked: bool
) -> None:
    code = run.folder / "host" / "claims.py"
    code.write_text(code.read_text().replace("os.getuid()", "os.getuid() + 1"))
    run.stubs.add("squeue", UNSEEN)
    run.stubs.add("scontrol", f'echo "PrivateData             = {private}"')
    claim = run.folder / "../../claims/abc-00001.0"
    claim.parent.mkdir()
    claim.write_text("slurm 5_1\n")
    os.utime(claim, (time.time() - silence,) * 2)
    assert work_on(run, "1")[0] == 0
    assert (run.folder / "worked").exists() == worked


def test_a_job_without_shards_shows_signs_of_life_and_takes_them_back(run: Run) -> None:
    assert run.call("cat ../../claims/job-7_2.0 >seen")[0] == 0
    assert (run.folder / "seen").read_text() == "slurm 7_2\n"
    assert not claims(run)


def test_a_process_of_another_pid_namespace_is_judged_by_its_silence() -> None:
    """It cannot be seen from there, and is alive."""
    code = "import sys; from rlbhpc.launch.host.claims import host_name, is_alive, start_tick; "
    apart = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c"]
    if subprocess.run([*apart, "pass"], capture_output=True, check=False).returncode:
        pytest.skip("no other PID namespace can be made here")
    own = f"local {host_name()} {os.getpid()} {start_tick(str(os.getpid()))}"
    seen = "print(is_alive(sys.argv[1], True), 'local', host_name(), 1, start_tick('1'))"
    done = subprocess.run([*apart, code + seen, own], text=True, capture_output=True, check=True)
    words = done.stdout.strip().partition(" local ")
    assert words[0] == "None"
    assert is_alive("local " + words[2], is_ours=True) is None


def test_a_job_keeps_its_claims_fresh(run: Run) -> None:
    work = run.folder / "host" / "__main__.py"
    work.write_text(
        work.read_text().replace("SECONDS_BETWEEN_LOOKS = 60.0", "SECONDS_BETWEEN_LOOKS = 0.05")
    )
    until_fresh = "until [ ../../claims/abc-00001.0 -nt old ]; do sleep 0.05; done"
    run.start(*claim_words("1"), "--", "bash", "-c", f"touch old; {until_fresh}", "{}")
    assert run.ended()[0] == 0


@pytest.mark.parametrize("unreadable", ["a folder", "no text"])
def test_a_claim_that_cannot_be_read_is_somebody_elses(run: Run, unreadable: str) -> None:
    """As one of a colleague whose umask is 077: the shard is left alone, in one line."""
    folder = run.folder / "../../claims"
    folder.mkdir()
    claim = folder / "abc-00001.0"
    if unreadable == "a folder":
        claim.mkdir()
    else:
        claim.write_bytes(b"\xff\xfe")
    code, text = work_on(run, "1,2")
    assert code == 0
    (line,) = [line for line in text.splitlines() if "abc-00001 " in line]
    assert "abc-00001.0" in line and "remove it if nobody works" in line
    assert "Traceback" not in text
    assert (run.folder / "worked").read_text() == "2\n"


def test_everybody_may_read_who_works_a_shard(run: Run) -> None:
    run.stubs.add("squeue", "echo RUNNING")
    before = os.umask(0o077)
    try:
        assert work_on(run, "4", code=75)[0] == 75
    finally:
        os.umask(before)
    (claim,) = (run.folder / "../../claims").iterdir()
    assert claim.stat().st_mode & 0o777 == 0o644


def test_a_claim_is_kept_over_a_requeue_and_while_slurm_does_not_answer(run: Run) -> None:
    assert work_on(run, "4", code=75)[0] == 75
    assert claims(run) == {"abc-00004.0": "slurm 7_2"}
    (run.folder / "../../claims/abc-00004.0").write_text("slurm 5_1\n")
    run.stubs.add("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    assert work_on(run, "4")[0] == 0
    assert (run.folder / "worked").read_text() == "4\n", "the second run had nothing to do"


@pytest.mark.parametrize(
    ("variables", "child", "code", "runs"),
    [
        ({}, 3, 3, 1),
        ({}, 64, 64, 1),
        # On this machine what failed starts again, until it has failed too often.
        ({"RLBHPC_LOCAL_JOB": "1"}, 9, 9, 3),
        ({"RLBHPC_LOCAL_JOB": "1"}, 75, 75, 1),
        ({"RLBHPC_LOCAL_JOB": "1"}, 64, 64, 1),
    ],
)
def test_who_does_not_come_back_gives_back_its_shards(
    run: Run, variables: dict[str, str], child: int, code: int, runs: int
) -> None:
    words = (*claim_words("4"), "--", "bash", "-c", f"echo >>ran; exit {child}", "{}")
    run.start(*words, job=not variables, **variables)
    assert run.ended()[0] == code
    assert (run.folder / "ran").read_text() == runs * "\n"
    assert not claims(run)
    assert not [words for words in run.stubs.calls("scontrol") if words[0] == "requeue"]


def test_a_task_works_without_claims_where_none_can_be_written(run: Run) -> None:
    (run.folder / "../../claims").resolve().write_text("a file")
    code, text = work_on(run, "4")
    assert code == 0
    assert "abc-00004: " in text
    assert (run.folder / "worked").read_text() == "4\n"
