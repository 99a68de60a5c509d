"""The parent of a job: run on the oldest Python there is, with stub commands of Slurm."""

from __future__ import annotations

import ast
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlbhpc.launch import parent
from tests.launch.made import Stubs

SOURCE = Path(parent.__file__)
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

    def start(self, *words: str, job: bool = True, restarts: int = 0) -> None:
        slurm = {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": str(restarts)} if job else {}
        self.process = subprocess.Popen(
            [old_python(), "-I", "-S", str(SOURCE), *words],
            cwd=self.folder, text=True, stderr=subprocess.PIPE,
            env={"PATH": f"{self.stubs.folder}:/usr/bin:/bin", "HOME": str(self.stubs.folder),
                 **slurm},
        )  # fmt: skip

    def ended(self) -> tuple[int, str]:
        assert self.process is not None
        _, text = self.process.communicate(timeout=60)
        return self.process.returncode, text

    def once_ready(self, *signals: int) -> None:
        assert self.process is not None
        until = time.monotonic() + 30
        while not (self.folder / "ready").exists() and time.monotonic() < until:
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
    stubs.add("scontrol", '[ "$1" = requeue ] && kill -TERM $PPID; echo "JobState=RUNNING"')
    folder = tmp_path / "launch"
    folder.mkdir()
    made = Run(folder, stubs)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()


def requeues(run: Run) -> int:
    return len([words for words in run.stubs.calls("scontrol") if words[0] == "requeue"])


def test_it_is_written_in_python_3_9_and_the_standard_library() -> None:
    tree = ast.parse(SOURCE.read_text(), feature_version=(3, 9))
    names = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert {str(name).split(".")[0] for name in names} <= sys.stdlib_module_names


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


def test_helpers_that_outlive_the_child_are_ended(run: Run) -> None:
    run.call("sleep 300 & echo $! >own")
    own = Path(f"/proc/{(run.folder / 'own').read_text().strip()}/stat")
    assert not own.exists() or own.read_text().split()[2] == "Z"


def test_a_failure_is_written_down_and_tried_again_twice(run: Run) -> None:
    codes = [run.call("exit 9", restarts=n)[0] for n in range(3)]
    assert codes == [75, 75, 9]
    assert requeues(run) == 2
    (record,) = (run.folder / "failures").glob("*.json")
    assert [one["code"] for one in json.loads(record.read_text())["runs"]] == [9, 9, 9]


def test_what_is_refused_is_not_tried_again(run: Run) -> None:
    assert run.call("exit 64")[0] == 64
    assert requeues(run) == 0


def test_a_command_that_is_not_there(run: Run) -> None:
    run.start("--drain", "1", "--last", "1", "--", "no-such-command", job=False)
    code, text = run.ended()
    assert code == 127
    assert "could not be started" in text


def test_a_cancelled_job_does_not_come_back(run: Run) -> None:
    run.stubs.add("scontrol", 'echo "JobId=7 JobState=CANCELLED Reason=None"')
    script = "trap 'exit 75' TERM; " + READY + "while :; do sleep 0.1; done"
    run.start("--drain", "20", "--last", "20", "--", "bash", "-c", script)
    run.once_ready(signal.SIGTERM)
    assert run.ended()[0] == 75
    assert requeues(run) == 0


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
        "scontrol", '[ "$1" = requeue ] || exit 0; echo "Job is pending execution"; exit 1'
    )
    assert run.call("exit 75")[0] == 75
    assert requeues(run) == 1
    assert not (run.folder / "failures").exists()


def test_the_folder_on_the_node_is_made_and_removed(run: Run) -> None:
    scratch = run.folder / "deep" / "er"
    words = ("--drain", "1", "--last", "1", "--scratch", str(scratch))
    assert run.call(f"test -d '{scratch}' && touch '{scratch}/x'", *words)[0] == 0
    assert not scratch.exists()


def test_a_checkpoint_lets_those_start_that_wait_for_it(run: Run) -> None:
    (run.folder / "submitted").write_text("train 1\nsample-rl-10 33\n")
    words = ("--drain", "1", "--last", "1", "--release", "made=sample-rl-10",
             "--release", "never=sample-rl-10")  # fmt: skip
    assert run.call("touch made", *words)[0] == 0
    assert run.stubs.calls("scontrol") == [["update", "JobId=33", "Dependency="]]


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
    until = time.monotonic() + 10
    while own.exists() and own.read_text().split()[2] != "Z" and time.monotonic() < until:
        time.sleep(0.02)
    assert not own.exists() or own.read_text().split()[2] == "Z"
