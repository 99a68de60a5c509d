"""Submitting against an sbatch that is late, noisy, full or down, or that is killed at work."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from datetime import date, timedelta
from pathlib import Path

import pytest
import submitit

from rlbhpc.errors import TRY_AGAIN, USAGE, UserError
from rlbhpc.launch import send as sending
from rlbhpc.launch.api import write_launch
from rlbhpc.launch.launches import cancel
from rlbhpc.launch.script import read_options
from rlbhpc.launch.slurm import QueueWatcher, StudyJob
from rlbhpc.study.layout import Layout
from tests.launch.made import ROOT, TRAINED, Stubs, cluster_of, jobs_in, launch_in

# Hands out ids from 101 on, as `sbatch --parsable` on a federated site does.
ACCEPT = 'n=$(( $(cat "$HOME/n" 2>/dev/null || echo 100) + 1 )); echo $n >"$HOME/n"; echo "$n;site"'
# As sbatch prints why Slurm takes no job, behind the words of a site's plugin if it has one.
FAILED = "sbatch: error: Batch job submission failed: "
LATE = f"{FAILED}Socket timed out on send/recv operation"
# What Slurm says of every limit of an account or a QOS, behind a line that names the limit.
POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.fixture
def launch(tmp_path: Path) -> Path:
    return launch_in(tmp_path / "s", cluster_of(tmp_path, max_array_size=2), text=TRAINED)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(sending, "sleep", slept.append)
    return slept


@pytest.fixture
def stubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> Stubs:
    found = Stubs(tmp_path / "bin")
    found.add("sbatch", ACCEPT)
    found.add("squeue")
    found.add("sacct")
    monkeypatch.setenv("PATH", f"{found.folder}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(found.folder))
    return found


def lines(launch: Path) -> list[str]:
    text = (launch / "submitted").read_text()
    return [line for line in text.splitlines() if not line.endswith("?")]


def test_one_sbatch_per_script_in_an_order_that_has_all_ids(launch: Path, stubs: Stubs) -> None:
    done = stubs.run("bash", "submit.sh", cwd=launch)
    assert done.returncode == 0, done.stderr
    calls = stubs.calls("sbatch")
    scripts = [words[-1] for words in calls]
    assert sorted(scripts) == sorted(path.name for path in launch.glob("*.sbatch"))
    ids = dict(line.split() for line in lines(launch))
    by_script = {words[-1].removesuffix(".sbatch"): words[1:-1] for words in calls}
    assert by_script["train-rl"] == []
    assert by_script["sample-rl-10.000"] == [f"--dependency=afterany:{ids['train-rl']}"]
    assert by_script["report"] == [f"--dependency=afterany:{ids['compact']}"]
    assert len(by_script["compact"][0].split(":")) == len(calls) - 1


def test_again_submits_nothing_twice_and_gives_the_same_jobs(launch: Path, stubs: Stubs) -> None:
    jobs = sending.send(launch)
    first = lines(launch)
    again = sending.send(launch)
    assert len(stubs.calls("sbatch")) == len(first)
    assert lines(launch) == first
    ids = {name: [job.job_id for job in found] for name, found in jobs.items()}
    assert ids == {name: [job.job_id for job in found] for name, found in again.items()}
    assert ids["sample.000"] == ["102_0", "102_1"]
    assert ids["train-rl"] == ["101"]
    (log,) = (job.paths.stdout.name for job in jobs["train-rl"])
    prefix = json.loads((launch / "launch.json").read_text())["prefix"]
    assert log == f"{prefix}-train-rl-101.log"
    assert not list(launch.rglob("*.pkl"))


def test_noise_around_the_id_is_passed_over(launch: Path, stubs: Stubs) -> None:
    noise = "echo 'sbatch: job 12 core hours left'; echo 'Welcome 2 all'"
    stubs.add("sbatch", f"{noise}; {ACCEPT}; {noise}")
    sending.send(launch)
    assert lines(launch)[0] == "train-rl 101"


def test_a_number_that_a_wrapper_prints_is_no_id(launch: Path, stubs: Stubs) -> None:
    """Slurm says which of the numbers is the job."""
    prefix = json.loads((launch / "launch.json").read_text())["prefix"]
    name = f'"$n {prefix}-$(basename "${{@: -1}}" .sbatch)"'
    accept = ACCEPT.replace(";site", "")
    stubs.add("sbatch", f'{accept}\necho {name} >>"$HOME/names"; echo 4242')
    stubs.add(
        "squeue",
        'name=$(sed -n "s/^${2#--jobs=} //p" "$HOME/names"); [ ! "$name" ] || echo "$name"\n'
        '[ "$name" ] || { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }',
    )
    sending.send(launch)
    assert lines(launch)[0] == "train-rl 101"
    assert not [line for line in lines(launch) if "4242" in line]


def test_what_a_site_says_of_a_job_that_it_takes_is_told(launch: Path, stubs: Stubs) -> None:
    stubs.add("sbatch", f'case "$*" in *train*) echo "sbatch: charged double" >&2;; esac\n{ACCEPT}')
    said: list[str] = []
    sending.send(launch, said.append)
    assert said[:2] == ["sbatch: charged double", "train-rl: 101"]


def test_a_time_out_is_waited_for_longer_and_longer(
    launch: Path, stubs: Stubs, pauses: list[float]
) -> None:
    stubs.add(
        "sbatch",
        f'c=$(( $(cat "$HOME/c" 2>/dev/null || echo 0) + 1 )); echo $c >"$HOME/c"\n'
        f'if [ $c -le 3 ]; then echo "{LATE}" >&2; exit 1; fi\n{ACCEPT}',
    )
    sending.send(launch)
    assert pauses == [5, 15, 45]


def test_a_job_whose_answer_was_late_is_not_submitted_again(
    launch: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller takes it while we pause: only a look after the pause finds it."""
    stubs.add("sbatch", f'echo "{LATE}" >&2; exit 1')
    monkeypatch.setattr(sending, "sleep", lambda seconds: stubs.add("squeue", "echo 55; echo 55"))
    sending.send(launch)
    assert lines(launch)[0] == "train-rl 55"
    assert len(stubs.calls("sbatch")) == len(lines(launch))
    asked = stubs.calls("squeue")[0]
    assert any(word.startswith("--name=trained-") and word.endswith("-train-rl") for word in asked)


def test_nothing_is_submitted_again_while_the_queue_does_not_say_what_it_has(
    launch: Path, stubs: Stubs, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy controller takes the job, and answers neither sbatch nor the look after it."""
    stubs.add("sbatch", f'echo "{LATE}" >&2; exit 1')
    silent = "slurm_load_jobs error: Socket timed out on send/recv operation"
    stubs.add("squeue", f'echo "{silent}" >&2; exit 1')
    with pytest.raises(UserError, match="Slurm does not answer") as late:
        sending.send(launch)
    assert late.value.code == TRY_AGAIN
    assert pauses == [5, 15, 45, 120, 300]
    assert len(stubs.calls("sbatch")) == 1
    stubs.add("squeue", "echo 55")
    sending.send(launch)
    assert lines(launch)[0] == "train-rl 55"


def test_a_job_that_ended_before_its_answer_came_is_found_in_the_accounting(
    launch: Path, stubs: Stubs
) -> None:
    stubs.add("sbatch", f'echo "{LATE}" >&2; exit 1')
    stubs.add("sacct", "echo 56_0; echo '56_[1-3]'")
    sending.send(launch)
    assert lines(launch)[0] == "train-rl 56"


def test_a_kill_during_sbatch_submits_nothing_twice(launch: Path, stubs: Stubs) -> None:
    """The kill leaves sbatch at work, which hands the job over after its parent is dead."""
    stubs.add("sbatch", 'touch "$HOME/busy"; sleep 1; echo taken >>"$HOME/taken"; echo 101')
    environment = {"PATH": os.environ["PATH"], "HOME": str(stubs.folder), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(["bash", "submit.sh"], cwd=launch, env=environment)
    while not (stubs.folder / "busy").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (launch / "submitted").read_text() == "train-rl ?\n"
    stubs.add("sbatch", ACCEPT)
    stubs.add("squeue", '[[ "$*" == *-train-rl* ]] && cat "$HOME/taken" >/dev/null && echo 101')
    done = stubs.run("bash", "submit.sh", cwd=launch)
    assert done.returncode == 0, done.stderr
    assert lines(launch)[0] == "train-rl 101"
    assert "train-rl.sbatch" not in [words[-1] for words in stubs.calls("sbatch")[1:]]


@pytest.mark.parametrize(
    ("before", "error", "code", "advice"),
    [
        ("", POLICY, TRY_AGAIN, "max_jobs"),
        ("", "Invalid account or account/partition combination specified", USAGE, "cluster's file"),
        ("", "Invalid job array specification", USAGE, "max_array_size"),
        ("", "Unable to contact slurm controller (connect failure)", TRY_AGAIN, "later"),
        ("", "Socket timed out on send/recv operation", TRY_AGAIN, "later"),
        ("", "Resource temporarily unavailable", TRY_AGAIN, "later"),
        ("", "Zero Bytes were transmitted or received", TRY_AGAIN, "later"),
        ("", "Connection refused", TRY_AGAIN, "later"),
        ("", "Message receive failure", TRY_AGAIN, "later"),
        ("", "Slurm backup controller in standby mode", TRY_AGAIN, "later"),
        ("", "Rate limit exceeded, please retry momentarily", TRY_AGAIN, "later"),
        ("", "MaxJobCount limit reached", TRY_AGAIN, "later"),
        ("", "I/O error writing script/environment to file", TRY_AGAIN, "later"),
        ("", "Protocol authentication error", TRY_AGAIN, "later"),
        ("QOSMaxSubmitJobPerUserLimit", POLICY, TRY_AGAIN, "--width"),
        ("AssocMaxSubmitJobLimit", POLICY, TRY_AGAIN, "--width"),
        ("QOSMaxWallDurationPerJobLimit", POLICY, USAGE, "cluster's file"),
        ("QOSMinGRES", POLICY, USAGE, "cluster's file"),
        ("Jobs need a QOS: add --qos=standard", "Unspecified error", USAGE, "--qos=standard"),
        ("No room now. Please wait and try again.", "Unspecified error", USAGE, "Please wait"),
        ("authentication of your project failed", "Unspecified error", USAGE, "your project"),
    ],
)
def test_a_refusal_says_what_to_change_and_nothing_is_lost(
    launch: Path, stubs: Stubs, pauses: list[float], before: str, error: str, code: int,
    advice: str,
) -> None:  # fmt: skip
    """What a site says before Slurm's own line is shown, and never taken for Slurm's."""
    answer = "\n".join([*([f"sbatch: error: {before}"] if before else []), FAILED + error])
    stubs.add("sbatch", f'case "$*" in *compact*) echo "{answer}" >&2; exit 1;; esac\n{ACCEPT}')
    with pytest.raises(UserError, match=advice) as refused:
        sending.send(launch)
    assert refused.value.code == code
    assert pauses == ([5, 15, 45, 120, 300] if advice == "later" else [])
    assert advice == "later" or answer in str(refused.value)
    submitted = lines(launch)
    stubs.add("sbatch", ACCEPT)
    pauses.clear()
    sending.send(launch)
    assert pauses == [5], "sbatch may be at work still"
    assert lines(launch)[: len(submitted)] == submitted
    assert len(lines(launch)) == len(list(launch.glob("*.sbatch")))


def test_a_job_that_slurm_has_forgotten_is_no_longer_waited_for(launch: Path, stubs: Stubs) -> None:
    stubs.add(
        "sbatch",
        'case "$*" in *:101*) echo "'
        + FAILED
        + 'Job dependency problem" >&2; exit 1;; esac\n'
        + ACCEPT,
    )
    stubs.add("squeue", 'for n in 102 103 104 105 106 107; do echo "$n|PENDING|None|me"; done')
    sending.send(launch)
    compact = [words for words in stubs.calls("sbatch") if words[-1] == "compact.sbatch"][-1]
    assert ":101" not in compact[1]
    assert compact[1].startswith("--dependency=afterany:10")


def test_which_jobs_are_forgotten_is_asked_until_slurm_says(
    launch: Path, stubs: Stubs, pauses: list[float]
) -> None:
    stubs.add(
        "sbatch",
        'case "$*" in *:101*) echo "'
        + FAILED
        + 'Job dependency problem" >&2; exit 1;; esac\n'
        + ACCEPT,
    )
    stubs.add("squeue", "exit 1")
    with pytest.raises(UserError, match="Slurm does not answer") as late:
        sending.send(launch)
    assert late.value.code == TRY_AGAIN
    assert pauses == [5, 15, 45, 120, 300]


def test_variables_of_the_shell_do_not_win_over_the_scripts(
    launch: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do those of a job that launches; where Slurm is configured stays."""
    shell = {
        "SBATCH_ACCOUNT": "other", "SBATCH_TIMELIMIT": "1", "SLURM_MEM_PER_CPU": "1",
        "SLURM_ARRAY_TASK_ID": "3", "SLURM_CONF": "/etc/slurm.conf",
    }  # fmt: skip
    for name, text in shell.items():
        monkeypatch.setenv(name, text)
    stubs.add("sbatch", f'env >>"$HOME/env"; {ACCEPT}')
    sending.send(launch)
    seen = {line.split("=")[0] for line in (stubs.folder / "env").read_text().splitlines()}
    assert seen & set(shell) == {"SLURM_CONF"}
    assert os.environ["SBATCH_ACCOUNT"] == "other", "the caller's own stay as they were"


@pytest.mark.parametrize(
    ("script", "states"),
    [
        # One that waits, one that has ended, one of which nobody knows how it did.
        ("'102_0|PENDING|None|me'", ["PENDING", "FAILED", "ENDED", "COMPLETED"]),
        ("'102|PENDING|None|me'", ["PENDING", "PENDING", "ENDED", "COMPLETED"]),
    ],
)
def test_a_job_has_the_state_of_the_queue_then_of_the_accounting(
    launch: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch, script: str, states: list[str]
) -> None:
    monkeypatch.setattr(StudyJob, "watcher", QueueWatcher())
    jobs = sending.send(launch)
    stubs.add("squeue", f"echo {script}")
    stubs.add("sacct", "echo '102_1|FAILED|1:0|me'; echo '101|COMPLETED|0:0|me'")
    of_names = [*jobs["sample.000"], *jobs["report"], *jobs["train-rl"]]
    assert [job.state for job in of_names] == states
    assert [job.done() for job in of_names] == [state != "PENDING" for state in states]
    since = f"--starttime={date.today() - timedelta(days=90)}"
    assert since in stubs.calls("sacct")[0]
    assert of_names[3].result() == "COMPLETED"
    # Those that ended are asked for no more.
    asked = len(stubs.calls("squeue"))
    assert [job.state for job in of_names[2:]] == states[2:]
    assert len(stubs.calls("squeue")) == asked


def test_a_job_that_failed_shows_the_end_of_its_log(
    launch: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StudyJob, "watcher", QueueWatcher())
    (job,) = sending.send(launch)["train-rl"]
    stubs.add("sacct", "echo '101|FAILED|1:0|me'")
    assert job.paths.submission_file == launch / "train-rl.sbatch"
    assert job.paths.stderr == job.paths.stdout
    for text, last in (("", ["no log"]), ("".join(f"{n}\n" for n in range(50)), range(10, 50))):
        job.paths.stdout.write_text(text)
        told = "\n".join(["job 101 is FAILED", *map(str, last)])
        with pytest.raises(submitit.core.utils.UncompletedJobError, match=f"^{told}$"):
            job.result()


def test_what_keeps_sbatch_from_an_answer_is_told(
    launch: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs.add("sbatch", "exit 0")
    with pytest.raises(
        UserError, match=r"(?s)^train-rl was .* change train-rl\.sbatch or the"
    ) as odd:
        sending.send(launch)
    assert odd.value.code == USAGE
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match=r"^sbatch: No such file or directory; run this on"):
        sending.send(launch)


def test_a_dependency_of_the_users_holds_the_first_jobs_back(tmp_path: Path, stubs: Stubs) -> None:
    options = read_options(["--dependency=afterok:7", "--comment=mine", "--mail-user=a@b"])
    launch = launch_in(tmp_path / "s", cluster_of(tmp_path), options=options)
    sending.send(launch)
    calls = {words[-1]: words[1:-1] for words in stubs.calls("sbatch")}
    assert calls["sample.sbatch"] == ["--dependency=afterok:7"]
    assert calls["compact.sbatch"] == ["--dependency=afterany:101"]
    texts = {path.name: path.read_text() for path in launch.glob("*.sbatch")}
    assert all(",mine\n" in text for text in texts.values())
    # One mail when all is over, and none for each of a thousand tasks.
    assert [name for name, text in texts.items() if "--mail-user" in text] == ["report.sbatch"]


def test_jobs_of_several_clusters_are_asked_for_where_they_went(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CLUSTERS", "big")
    launch = launch_in(tmp_path / "s", cluster_of(tmp_path))
    assert "#SBATCH --clusters=big\n" in (launch / "report.sbatch").read_text()
    for program in ("squeue", "scancel"):
        stubs.add(program, '[ "$SLURM_CLUSTERS" = big ] && echo "101_0|RUNNING|None|me"')
    sending.send(launch)
    cancelled = cancel(Layout(launch.parents[1]))
    assert cancelled.rows and not cancelled.complaint
    monkeypatch.setenv("SLURM_CLUSTERS", "other")
    with pytest.raises(UserError, match="export SLURM_CLUSTERS=big"):
        cancel(Layout(launch.parents[1]))


def test_what_keeps_scancel_from_its_work_is_told(launch: Path, stubs: Stubs) -> None:
    sending.send(launch)
    stubs.add("squeue", "echo '101|RUNNING|None|me'")
    for code, told in ((1, "scancel: denied"), (0, "")):
        stubs.add("scancel", f"echo 'scancel: denied' >&2; exit {code}")
        assert cancel(Layout(launch.parents[1])).complaint == told
    assert stubs.calls("scancel") == [["101"]] * 2


def test_without_a_report_the_last_of_the_jobs_sends_the_mail(tmp_path: Path) -> None:
    options = read_options(["--mail-user=a@b"])
    draft, jobs = jobs_in(tmp_path / "s", cluster_of(tmp_path, max_array_size=2), options=options)
    sampling = [job for job in jobs if job.kind == "sample"]
    launch = write_launch(draft, sampling)
    mailing = [p.stem for p in launch.glob("*.sbatch") if "--mail-user" in p.read_text()]
    assert len(sampling) > 1 and mailing == [sampling[-1].name]


def test_a_throttle_holds_for_the_launch(tmp_path: Path, stubs: Stubs) -> None:
    launch = launch_in(
        tmp_path / "s", cluster_of(tmp_path, max_array_size=2, throttle=1), shard_tokens=80
    )
    sending.send(launch)
    calls = {words[-1]: words[1:-1] for words in stubs.calls("sbatch")}
    assert calls["sample.000.sbatch"] == []
    assert calls["sample.001.sbatch"] == ["--dependency=afterany:101"]
    assert calls["sample.002.sbatch"] == ["--dependency=afterany:102"]


def test_a_throttle_holds_for_arrays_of_several_checkpoints(tmp_path: Path, stubs: Stubs) -> None:
    site = cluster_of(tmp_path, throttle=1)
    text = TRAINED.replace(
        "  base: {model: base}\n  rl: {model: rl}", "  rl: {model: rl}\n  base: {model: base}"
    )
    sending.send(launch_in(tmp_path / "s", site, text=text))
    calls = {words[-1]: words[1:-1] for words in stubs.calls("sbatch")}
    arrays = [name for name in calls if name.startswith("sample")]
    numbers = {name: 101 + place for place, name in enumerate(calls)}
    for before, name in itertools.pairwise(arrays):
        waits = calls[name][-1].partition("afterany:")[2].split(":")
        assert str(numbers[before]) in waits, f"{name} runs beside {before}"
    assert arrays[0] == "sample.sbatch", "it waits for no training"
    assert len(arrays) == 3


def test_the_same_launch_has_the_same_bytes_and_an_edit_of_it_stays(
    tmp_path: Path, stubs: Stubs
) -> None:
    draft, jobs = jobs_in(tmp_path / "s", cluster_of(tmp_path))
    first = write_launch(draft, jobs)
    before = {path: path.read_bytes() for path in first.rglob("*") if path.is_file()}
    assert write_launch(draft, jobs) == first
    assert before == {path: path.read_bytes() for path in first.rglob("*") if path.is_file()}
    script = first / "sample.sbatch"
    script.write_text(script.read_text().replace("--time=04:00:00", "--time=08:00:00"))
    assert write_launch(draft, jobs) == first
    assert "--time=08:00:00" in script.read_text()
    sending.send(first)
    assert write_launch(draft, jobs).name == "0002"


def test_a_launch_records_what_its_jobs_call(tmp_path: Path) -> None:
    launch = launch_in(tmp_path / "s", cluster_of(tmp_path))
    record = json.loads((launch / "launch.json").read_text())
    assert record["jobs"]["compact"]["words"] == ["compact", "../..", "--seal"]
    python = shlex.quote(sys.executable)
    text = (launch / "sample.sbatch").read_text()
    assert f"\npython={python}\n" in text and '\nexec "$python" -m host ' in text
