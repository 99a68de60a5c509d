"""The parent of a job, on the oldest Python there is; stubs print what Slurm prints."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlbhpc.launch import host
from rlbhpc.launch.api import write_host
from rlbhpc.launch.host.__main__ import describe_exit_code
from rlbhpc.launch.host.claims import host_name, start_tick
from tests.launch.made import JOB, Stubs, shown

SOURCE = Path(host.__file__).parent
# A child says this once it listens, then waits for what the test does.
READY = "touch ready; "


def old_python() -> str:
    """Python 3.9 where there is one; the parent may not need more."""
    named = ["python3.9", *Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9"), sys.executable]
    for one in filter(None, map(shutil.which, named)):
        # A version manager's name for it may be there without it.
        if subprocess.run([one, "-c", ""], capture_output=True, check=False).returncode == 0:
            return one
    raise AssertionError("no Python")


class Run:
    """One parent in a folder of its own."""

    def __init__(self, folder: Path, stubs: Stubs) -> None:
        self.folder, self.stubs = folder, stubs
        self.process: subprocess.Popen[str] | None = None

    def start(self, *words: str, job: bool = True, restarts: int = 0, **variables: str) -> None:
        slurm = {
            "SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2",
            "SLURM_RESTART_COUNT": str(restarts),
        }  # fmt: skip
        self.process = subprocess.Popen(
            [old_python(), "-E", "-S", "-m", "host", *words],
            cwd=self.folder, text=True, stderr=subprocess.PIPE,
            env={"PATH": f"{self.stubs.folder}:/usr/bin:/bin", "HOME": str(self.stubs.folder),
                 **(slurm if job else {}), **variables},
        )  # fmt: skip

    def ended(self) -> tuple[int, str]:
        assert self.process is not None
        _, text = self.process.communicate(timeout=300)
        return self.process.returncode, text

    def once_ready(self, *signals: int) -> None:
        assert self.process is not None
        while not (self.folder / "ready").exists():
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.02)
        for number in signals:
            self.process.send_signal(number)

    def call(self, script: str, *words: str, **more: object) -> tuple[int, str]:
        more_words = words or ("--drain", "20", "--last", "20")
        self.start(*more_words, "--", "bash", "-c", script, **more)  # type: ignore[arg-type]
        return self.ended()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    stubs = Stubs(tmp_path / "bin")
    # As Slurm does: it ends the job that is requeued.
    stubs.add("scontrol", f'[ "$1" = requeue ] && kill -TERM $PPID; echo "{JOB}"')
    folder = tmp_path / "run" / "launches" / "0001"
    folder.mkdir(parents=True)
    write_host(folder / "host")
    made = Run(folder, stubs)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()


def test_a_node_without_slurms_commands_is_told_at_once(run: Run) -> None:
    """Nothing comes after a minute that was not there before."""
    (run.stubs.folder / "scontrol").unlink()
    for name in ("bash", "sleep", "touch"):
        (run.stubs.folder / name).symlink_to(f"/usr/bin/{name}")
    path = str(run.stubs.folder)
    begun = time.monotonic()
    run.start("--drain", "20", "--last", "20", "--", "bash", "-c", "exit 75", PATH=path)
    _, said = run.ended()
    assert said.count("scontrol: No such file") == 1
    assert "scontrol: No such file" in failures(run)["runs"][-1]["cause"]
    assert time.monotonic() - begun < 20, "a second try alone would come after two"


def requeues(run: Run) -> int:
    calls = [words for words in run.stubs.calls("scontrol") if words[0] == "requeue"]
    assert all(words == ["requeue", "7_2"] for words in calls), "the whole array would restart"
    return len(calls)


def failures(run: Run) -> dict[str, Any]:
    (path,) = (run.folder / "failures").glob("*.json")
    assert path.stem == "7_2"
    record: dict[str, Any] = json.loads(path.read_text())
    return record


def test_it_is_written_in_python_3_9_with_the_standard_library() -> None:
    names = set()
    for source in SOURCE.glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text(), feature_version=(3, 9))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            if isinstance(node, ast.ImportFrom) and not node.level:
                names.add(str(node.module))
    tops = {name.split(".")[0] for name in names}
    assert tops <= sys.stdlib_module_names


@pytest.mark.parametrize(("child", "code"), [(0, 0), (4, 0), (3, 3)])
def test_an_end_is_handed_on(run: Run, child: int, code: int) -> None:
    assert run.call(f"exit {child}")[0] == code
    assert requeues(run) == 0
    assert not (run.folder / "failures").exists()


def test_again_is_a_requeue(run: Run) -> None:
    assert run.call("exit 75")[0] == 75
    assert requeues(run) == 1


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM])
def test_a_warning_becomes_one_term_to_the_child_and_a_requeue(run: Run, number: int) -> None:
    script = "trap 'echo told >>told; exit 75' TERM; " + READY + "while :; do sleep 0.1; done"
    run.start("--drain", "20", "--last", "20", "--", "bash", "-c", script)
    run.once_ready(number, number)
    assert run.ended()[0] == 75
    assert (run.folder / "told").read_text() == "told\n"
    assert requeues(run) == 1


def test_a_child_that_does_not_listen_is_killed_with_all_its_own(run: Run) -> None:
    script = "trap '' TERM; sleep 300 & echo $! >own; " + READY + "wait; sleep 300"
    run.start("--drain", "300", "--last", "0.3", "--", "bash", "-c", script)
    run.once_ready(signal.SIGUSR1, signal.SIGTERM)
    assert run.ended()[0] == 75
    own = int((run.folder / "own").read_text())
    state = Path(f"/proc/{own}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"
    assert requeues(run) == 1
    (end,) = failures(run)["runs"]
    assert end["cause"] == "warned before it had made anything new"


def test_helpers_that_outlive_the_child_are_ended(run: Run) -> None:
    run.call("sleep 300 & echo $! >own")
    own = Path(f"/proc/{(run.folder / 'own').read_text().strip()}/stat")
    assert not own.exists() or own.read_text().split()[2] == "Z"


@pytest.mark.parametrize(
    ("child", "last", "cause"),
    [
        ("exit 9", 9, "ended with exit code 9"),
        ("exit 75", 75, "ended with exit code 75"),
    ],
)
def test_three_runs_without_anything_new_are_the_end(
    run: Run, child: str, last: int, cause: str
) -> None:
    """Whether they failed or stopped by themselves, as on a full disk."""
    codes = [run.call(child, restarts=n)[0] for n in range(3)]
    assert codes == [75, 75, last]
    assert requeues(run) == 2
    ends = [(one["code"], one["cause"]) for one in failures(run)["runs"]]
    assert ends == [(last, cause)] * 3


@pytest.mark.parametrize(
    ("preempted", "ends"),
    [
        ("2026-11-24T08:07:14", False),
        # In an earlier run: this one was warned by its own time limit.
        ("2026-11-24T08:05:00", True),
        ("None", True),
    ],
)
def test_only_a_preemption_does_not_count_as_a_run_without_anything_new(
    run: Run, preempted: str, ends: bool
) -> None:
    """As of a job that is warned while its model loads, and that still runs for Slurm."""
    line = shown(PreemptTime=preempted)
    run.stubs.add("scontrol", f'[ "$1" = requeue ] && kill -TERM $PPID; echo "{line}"')
    script = "trap 'exit 75' TERM; " + READY + "while :; do sleep 0.1; done"
    for restarts in range(4):
        (run.folder / "ready").unlink(missing_ok=True)
        run.start("--drain", "20", "--last", "20", "--", "bash", "-c", script, restarts=restarts)
        run.once_ready(signal.SIGUSR1)
        assert run.ended()[0] == 75
    assert requeues(run) == (2 if ends else 4)


def test_a_run_that_made_something_new_starts_the_count_anew(run: Run) -> None:
    words = ("--drain", "20", "--last", "20", "--progress", "../../made/*")
    script = 'mkdir -p ../../made; [ "$SLURM_RESTART_COUNT" = 2 ] && echo x >>../../made/x; exit 9'
    codes = [run.call(script, *words, restarts=n)[0] for n in range(6)]
    assert codes == [75, 75, 75, 75, 75, 9]


def test_a_failure_that_was_got_over_is_recovered(run: Run) -> None:
    run.call("exit 9")
    assert not failures(run)["recovered"]
    run.call("exit 0", restarts=1)
    assert failures(run)["recovered"]


@pytest.mark.parametrize(("makes_something", "code"), [(False, 9), (True, 75)])
def test_a_run_that_nobody_can_count_comes_back_if_it_made_something_new(
    run: Run, makes_something: bool, code: int
) -> None:
    """Else a job on a full disk would come back for ever."""
    (run.folder / "failures").write_text("in the way, as a full disk is")
    words = ("--drain", "20", "--last", "20", "--progress", "new")
    script = "echo x >new; exit 9" if makes_something else "exit 9"
    ended, text = run.call(script, *words)
    assert (ended, requeues(run)) == (code, int(makes_something))
    assert "parent: failures/7_2.json: " in text


@pytest.mark.parametrize("refusal", ["{} for job 7_2", "7_2: {}"])
@pytest.mark.parametrize(
    "reason",
    [
        "Requested operation is presently disabled", "Access/permission denied",
        "Invalid job id specified",
    ],
)  # fmt: skip
def test_where_no_job_may_requeue_itself_that_is_recorded(
    run: Run, refusal: str, reason: str
) -> None:
    answer = f'[ "$1" != requeue ] || {{ echo "{refusal.format(reason)}" >&2; exit 1; }}'
    run.stubs.add("scontrol", answer)
    assert run.call("exit 75")[0] == 75
    assert requeues(run) == 1, "another try is of no use"
    assert reason in failures(run)["runs"][-1]["cause"]


def test_what_is_refused_is_not_tried_again(run: Run) -> None:
    assert run.call("exit 64")[0] == 64
    assert requeues(run) == 0


def test_a_command_that_is_not_there(run: Run) -> None:
    run.start("--drain", "1", "--last", "1", "--", "no-such-command", job=False)
    code, text = run.ended()
    assert code == 127
    assert "could not be started" in text


@pytest.mark.parametrize(
    ("text", "comes_back"),
    [
        (shown(JobState="COMPLETING"), 0),
        (shown(JobState="CANCELLED"), 0),
        (JOB, 1),
        # Preempted in a partition that cancels: nobody else brings it back.
        (shown(JobState="COMPLETING", PreemptTime="2026-11-24T08:07:14"), 1),
        (shown(JobState="COMPLETING", RunTime="00:05:00"), 1),
        (shown(JobState="PENDING"), 0),
        (shown(JobState="SUSPENDED"), 1),
        (shown(JobState="COMPLETING", RunTime="1-00:00:01", TimeLimit="1-00:00:00"), 1),
        (shown(JobState="COMPLETING", TimeLimit="UNLIMITED"), 0),
        # Slurm has requeued it: it comes back without us.
        (shown(JobState="COMPLETING", Restarts=1), 0),
        # Newer ones leave out what never happened.
        (shown(JobState="COMPLETING").replace("PreemptTime=None ", ""), 0),
    ],
)
def test_what_somebody_ended_stays_away(run: Run, text: str, comes_back: int) -> None:
    run.stubs.add("scontrol", f'[ "$1" = requeue ] && kill -TERM $PPID; echo "{text}"')
    script = "trap 'exit 75' TERM; " + READY + "while :; do sleep 0.1; done"
    run.start("--drain", "20", "--last", "20", "--", "bash", "-c", script)
    run.once_ready(signal.SIGTERM)
    assert run.ended()[0] == 75
    assert requeues(run) == comes_back


def test_a_cancelled_launch_runs_nothing(run: Run) -> None:
    (run.folder / "cancelled").touch()
    assert run.call("touch ran")[0] == 75
    assert not (run.folder / "ran").exists()


def test_a_requeue_is_tried_until_the_controller_answers(run: Run) -> None:
    run.stubs.add(
        "scontrol",
        '[ "$1" = requeue ] || exit 0\n'
        '[ -e "$HOME/once" ] || { touch "$HOME/once"; echo "Unable to contact"; exit 1; }\n'
        "kill -TERM $PPID",
    )
    assert run.call("exit 75")[0] == 75
    assert requeues(run) == 2


def test_a_job_that_slurm_has_requeued_itself_is_left_at_once(run: Run) -> None:
    run.stubs.add(
        "scontrol",
        '[ "$1" = requeue ] || exit 0; echo "Job is pending execution for job 7_2"; exit 1',
    )
    assert run.call("exit 75")[0] == 75
    assert requeues(run) == 1
    assert "could not" not in failures(run)["runs"][-1]["cause"]


def test_the_folder_on_the_node_is_made_and_removed(run: Run) -> None:
    scratch = run.folder / "deep" / "er"
    words = ("--drain", "1", "--last", "1", "--scratch", str(scratch))
    run.stubs.add("srun")
    for _ in range(2):
        assert run.call(f"test -d '{scratch}' && touch '{scratch}/x'", *words)[0] == 0
        assert not scratch.exists()
        scratch.mkdir()  # as a run before it that was killed has left it
    assert run.stubs.calls("srun") == [], "it is the only node"


def test_what_killed_parents_left_on_the_node_is_removed_and_nothing_else(run: Run) -> None:
    place = run.folder / "tmp"
    lives = f"local {host_name()} {os.getpid()} {start_tick(str(os.getpid()))}"
    owners = {
        "rlbhpc-3-11": f"local {host_name()} 4194305 1",
        "rlbhpc-4-12": lives,
        "rlbhpc-5-13": "local elsewhere 4194305 1",
        "rlbhpc-6-14": None,
        "other-7-15": f"local {host_name()} 4194305 1",
    }
    for name, owner in owners.items():
        (place / name / "cache").mkdir(parents=True)
        if owner is not None:
            (place / name / ".owner").write_text(f"{owner}\n")
    words = ("--drain", "1", "--last", "1", "--scratch", str(place / "rlbhpc-9-16"))
    assert run.call("true", *words)[0] == 0
    assert {path.name for path in place.iterdir()} == owners.keys() - {"rlbhpc-3-11"}


def test_the_folder_of_a_parent_that_is_killed_is_removed_by_the_next(run: Run) -> None:
    place = run.folder / "tmp"
    words = ("--drain", "1", "--last", "1", "--scratch")
    run.start(*words, str(place / "rlbhpc-8-1"), "--", "bash", "-c", READY + "sleep 300")
    run.once_ready(signal.SIGKILL)
    run.ended()
    assert (place / "rlbhpc-8-1").is_dir()
    assert run.call("true", *words, str(place / "rlbhpc-9-1"))[0] == 0
    assert not list(place.iterdir())


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (-9, "killed, most likely for its memory"),
        (137, "killed, most likely for its memory"),
        (64, "refused: the log says what to change"),
        *((code, "could not be started: the command, the container or a module is not there")
          for code in (126, 127, 255)),
        (1, "ended with exit code 1"),
        (-11, "died of signal 11"),
    ],
)  # fmt: skip
def test_an_exit_code_is_said_in_words(code: int, cause: str) -> None:
    assert describe_exit_code(code) == cause


def test_a_script_that_is_run_by_hand_ends_as_its_work_did(run: Run) -> None:
    for script, code in (("kill -KILL $$", 137), ("exit 9", 9)):
        assert run.call(script, job=False)[0] == code
    assert not run.stubs.calls("scontrol")


def test_work_does_not_outlive_a_parent_that_is_killed(run: Run) -> None:
    run.start(
        "--drain",
        "1",
        "--last",
        "1",
        "--",
        "bash",
        "-c",
        "echo $$ >own; " + READY + "cat; sleep 99",
    )
    run.once_ready(signal.SIGKILL)
    run.ended()
    own = Path(f"/proc/{(run.folder / 'own').read_text().strip()}/stat")
    until = time.monotonic() + 300
    while own.exists() and own.read_text().split()[2] != "Z" and time.monotonic() < until:
        time.sleep(0.02)
    assert not own.exists() or own.read_text().split()[2] == "Z"
