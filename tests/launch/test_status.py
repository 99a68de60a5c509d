"""Status, cancel and doctor: from a run's own files, with and without an answer of Slurm."""

from __future__ import annotations

import getpass
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import UsageError
from click.testing import CliRunner, Result

from rlbhpc.cli.main import cli
from rlbhpc.errors import DONE, INCOMPLETE, NOTHING_TO_DO, TRY_AGAIN, UserError
from rlbhpc.launch import doctor
from rlbhpc.launch.api import find
from rlbhpc.launch.cluster import load_cluster
from rlbhpc.launch.efficiency import efficiency
from rlbhpc.store import checked
from rlbhpc.study.keys import SampleKey
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.attempt import Attempt, read_attempts
from rlbhpc.sweep.plan import Plan
from rlbhpc.sweep.remember import remember
from tests.cli.test_store_verbs import printed
from tests.launch.made import TRAINED, Stubs, cluster_of, study_in
from tests.sweep.conftest import keys_of
from tests.sweep.test_plan import row, store

ME = getpass.getuser()

#: A study file, and the study of which one launch waits.
Run = tuple[Path, Study]


@pytest.fixture
def stubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stubs:
    """A site whose queue is empty and whose accounting knows nothing."""
    found = Stubs(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{found.folder}:/usr/bin:/bin")
    found.add("squeue")
    found.add("sacct")
    found.add("scancel")
    found.add(
        "sbatch", 'n=$(( $(cat "$0.n" 2>/dev/null || echo 0) + 1 )); echo $n >"$0.n"; echo $n'
    )
    return found


@pytest.fixture
def run(tmp_path: Path, stubs: Stubs) -> Run:
    """A run that was launched and submitted: four shards as job 1, then compact and report."""
    path, _ = study_in(tmp_path / "s")
    code, _ = call("launch", path, "--submit", "--shard-tokens", 150)
    assert code == DONE
    return path, load_study(path)


STATUS = """\
Samples
arm   problem_set  step  requested  present  missing  solved
base  countdown       0         48       16       32       0
Shards of launch 0001
state    shards  which
done          1  0
running       1  1
waiting       2  2-3
Queue: 2 pending (Resources), 1 running
"""
COST = """\
At 10 tokens/s and 5 s to load (as given):
  0.02 hours of a device, 26% of them loading; 39 s on 2 workers
  about 25 files, 0 MB, 3 sbatch calls
  a preemption without warning loses about 1,536 tokens
"""


def call(*words: object) -> tuple[int, Result]:
    result = CliRunner().invoke(cli, list(map(str, words)), standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.return_value, result


def status(path: Path) -> tuple[int, dict[str, Any]]:
    code, result = call("status", path, "--json")
    return code, json.loads(result.stdout)


def shards_of(found: dict[str, Any]) -> dict[str, list[int]]:
    (one,) = found["launches"]
    shards: dict[str, list[int]] = one["shards"]
    return shards


def plan_of(study: Study) -> Plan:
    (path,) = study.layout.plans.iterdir()
    return Plan.load(path)


def make(study: Study, shards: list[int]) -> None:
    """Store the samples of some shards."""
    keys = [
        SampleKey(span.arm, span.step, span.problem, index)
        for shard in plan_of(study).shards
        if shard.number in shards
        for span in shard.spans
        for index in range(span.start, span.stop)
    ]
    store(study, [row(study, key) for key in keys], f"attempt-{shards}")


def test_shards_by_state_follow_data_first_and_slurm_second(run: Run, stubs: Stubs) -> None:
    path, study = run
    stubs.add("squeue", "echo '1_[2-3%4]|PENDING|Resources|me'; echo '1_1|RUNNING|None|me'")
    make(study, [0])
    code, found = status(path)
    assert code == INCOMPLETE
    assert shards_of(found) == {"done": [0], "running": [1], "waiting": [2, 3]}
    assert found["queue"] == {"pending (Resources)": 2, "running": 1}
    (samples,) = found["samples"]
    assert printed(call("status", path)[1]) == STATUS
    done = plan_of(study).shards[0].samples
    assert (samples["present"], samples["requested"]) == (done, 48)


def test_a_job_that_is_gone_without_its_samples_is_stopped(run: Run) -> None:
    path, study = run
    make(study, [1, 3])
    assert shards_of(status(path)[1]) == {"stopped": [0, 2], "done": [1, 3]}


def test_an_exit_status_or_a_marker_makes_nothing_done(run: Run, stubs: Stubs) -> None:
    path, study = run
    stubs.add("sacct", "echo '1_0|COMPLETED|0:0|me'")
    Attempt(study.layout.attempts, plan_of(study).name, 0).end("done", samples=99, tokens=99)
    assert "done" not in shards_of(status(path)[1])


def test_without_an_answer_of_slurm_the_own_files_speak(run: Run, stubs: Stubs) -> None:
    path, study = run
    for name in ("squeue", "sacct"):
        stubs.add(name, "exit 1")
    Attempt(study.layout.attempts, plan_of(study).name, 2)
    make(study, [0])
    _, found = status(path)
    assert found["queue"] is None
    assert shards_of(found) == {"done": [0], "waiting": [1, 3], "begun": [2]}
    code, result = call("status", path)
    assert "Slurm does not answer" in result.stdout
    assert code == INCOMPLETE


def test_what_follows_the_samples_has_a_way_back(run: Run, stubs: Stubs) -> None:
    """All samples are there, and compact or report failed: launch again runs just these."""
    path, study = run
    make(study, [0, 1, 2, 3])
    code, found = status(path)
    assert (code, found["missing"], found["behind"]) == (INCOMPLETE, 0, ["compact", "report"])
    assert "the cube lags behind the samples" in call("status", path)[1].stdout
    assert call("launch", path, "--submit")[0] == DONE
    assert scripts(study, "0002") == ["compact", "report"]
    assert call("compact", study.layout.root, "--seal")[0] == DONE
    assert not list(study.layout.root.glob("journals/*/*/*")), "sealed and removed"
    assert status(path)[1]["behind"] == ["report"]
    assert call("launch", path)[0] == DONE
    assert scripts(study, "0003") == ["report"]
    study.layout.report.mkdir()
    (study.layout.report / "report.html").touch()
    assert status(path)[0] == DONE
    assert call("launch", path)[0] == NOTHING_TO_DO


def scripts(study: Study, launch: str) -> list[str]:
    return sorted(path.stem for path in (study.layout.launches / launch).glob("*.sbatch"))


def test_failures_are_told_by_cause_with_what_to_do(run: Run, stubs: Stubs) -> None:
    path, study = run
    stubs.add(
        "sacct",
        "echo '1_1|OUT_OF_MEMORY|0:125|me'; echo '1_2|CANCELLED by 7|0:0|me';"
        "echo '1_3|RUNNING|0:0|me'",
    )
    folder = next(study.layout.launches.iterdir()) / "failures"
    folder.mkdir()
    for job, cause, recovered in (
        ("1_0", "died of signal 11", False), ("1_3", "killed, most likely for its memory", True)
    ):  # fmt: skip
        record = {"stalls": 1, "recovered": recovered, "runs": [{"cause": cause}]}
        (folder / f"{job}.json").write_text(json.dumps(record))
    _, found = status(path)
    causes = {one["cause"]: one for one in found["failures"]}
    assert set(causes) == {"died of signal 11", "OUT_OF_MEMORY", "CANCELLED"}
    assert causes["OUT_OF_MEMORY"]["jobs"] == ["1_1"]
    assert "--mem" in causes["OUT_OF_MEMORY"]["action"]
    assert "restore" not in str(causes)
    assert any(word.startswith("--starttime=") for word in stubs.calls("sacct")[0])


@pytest.mark.parametrize(
    ("cause", "action"),
    [
        ("killed, most likely for its memory", "give jobs more memory (--mem)"),
        ("could not be started: a module is not there", "check `rlbhpc`, `container` and `setup`"),
        ("base-0 is not there", "restore the model's folder, then launch again"),
        ("could not be requeued: 1", "launch again: the site lets jobs neither requeue"),
        ("warned before it had made anything new", "give more time (-t), a smaller `warning`"),
        ("died of signal 11", "read"),
    ],
)
def test_each_cause_has_its_own_next_step(run: tuple[Path, Study], cause: str, action: str) -> None:
    path, study = run
    folder = study.layout.launches / "0001" / "failures"
    folder.mkdir()
    record = {"stalls": 1, "recovered": False, "runs": [{"cause": cause}]}
    (folder / "1_0.json").write_text(json.dumps(record))
    text = call("status", path)[1].stdout
    row = next(line for line in text.splitlines() if line.startswith(cause))
    assert row.removeprefix(cause).strip().startswith(f"1_0   {action}")


def test_a_launch_is_found_by_its_number(run: tuple[Path, Study], stubs: Stubs) -> None:
    path, _ = run
    assert call("launch", path)[0] == DONE
    assert [find(path, number).folder.name for number in (None, 1, 2)] == ["0002", "0001", "0002"]
    with pytest.raises(UserError, match="there is no launch 3"):
        find(path, 3)


def test_a_failure_that_was_made_good_is_told_no_more(run: Run) -> None:
    path, study = run
    folder = study.layout.launches / "0001" / "failures"
    folder.mkdir()
    record = {"stalls": 1, "recovered": False, "runs": [{"cause": "died of signal 11"}]}
    (folder / "1_0.json").write_text(json.dumps(record))
    make(study, [1])
    assert len(status(path)[1]["failures"]) == 1
    make(study, [0])
    assert status(path)[1]["failures"] == []
    assert call("doctor", path)[0] == DONE


def test_only_the_owner_of_a_held_job_is_told_to_release_it(run: Run, stubs: Stubs) -> None:
    me = getpass.getuser()
    stubs.add("squeue", f"echo '1_0|PENDING|JobHeldUser|{me}'; echo '1_1|PENDING|JobHeldUser|ann'")
    _, found = status(run[0])
    own, hers = (one["action"] for one in found["failures"])
    assert own.startswith("scontrol release 1;")
    assert "jobs of ann" in hers


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


def test_what_the_devices_did_is_one_line(tmp_path: Path) -> None:
    """Two GPUs: loaded for 36 s, killed, loaded again for 36 s, and 1,800 tokens in 288 s more."""
    whole = {"started": 100.0, "loaded": 136.0, "devices": ["0", "1"], "plan": "p", "shard": 0}
    layout = Layout(tmp_path)
    records = [
        {**whole, "ended": 136.0, "tokens": 0},
        {**whole, "started": 200.0, "loaded": 236.0},  # killed: it has no end
        {**whole, "started": 300.0, "loaded": 336.0, "ended": 624.0, "tokens": 1800},
        {**whole, "started": 300.0, "shard": 1},  # still at work
    ]
    for number, record in enumerate(records):
        checked.write(layout.attempts / f"{number}.json", record)
    (layout.attempts / "3.json.partial").write_text("{")
    assert str(efficiency(read_attempts(layout))) == (
        "0.2 device hours, 2 useful tokens per device second, 20% of the time on loading, 10% on "
        "loading again; attempts without an end, killed or still at work, are not counted: 2"
    )
    # Whether a killed shard was begun again says nothing about the time that it cost.
    (killed, *_) = (record for record in read_attempts(layout) if "ended" not in record)
    assert str(efficiency([killed])) == (
        "no attempt has ended; attempts without an end, killed or still at work, are not counted: 1"
    )
    assert efficiency([]) is None


@pytest.mark.parametrize("content", [b"", b"{}", b'{"plan": "p", "shard": 0, "started": 1.0}'])
def test_a_damaged_record_of_an_attempt_is_told(run: Run, content: bytes) -> None:
    path, study = run
    store(study, [row(study, key) for key in keys_of(study)], "whole")
    attempt = Attempt(study.layout.attempts, plan_of(study).name, 0)
    attempt.loaded()
    attempt.end("done", tokens=99)
    for damaged in (content, attempt.path.read_bytes().replace(b": 99", b": 98")):
        attempt.path.write_bytes(damaged)
        for verb in ("status", "plan", "report"):
            code, result = call(verb, path)
            assert code == INCOMPLETE, verb
            told = [line for line in result.stderr.splitlines() if str(attempt.path) in line]
            assert len(told) == 1, verb


def test_what_workers_without_a_gpu_did_is_not_told_in_device_hours() -> None:
    failed = {"started": 0.0, "ended": 20.0, "devices": [], "plan": "p", "shard": 0, "tokens": 0}
    assert str(efficiency([failed])) == "20 s of workers without a GPU, and no sample was stored"
    whole = {**failed, "started": 20.0, "loaded": 30.0, "ended": 60.0, "tokens": 6000}
    assert str(efficiency([failed, whole])) == (
        "1 min of workers without a GPU, 100 useful tokens per second, 50% of the time on loading, "
        "17% on loading again"
    )
    short = {**whole, "devices": ["0"], "started": 0.0, "shard": 1}
    assert str(efficiency([short])).startswith("1 min of device time, 100 useful tokens per device")


def test_slurm_is_asked_twice_and_never_in_a_hurry(run: Run, stubs: Stubs) -> None:
    path, _ = run
    before = len(stubs.calls("squeue"))
    status(path)
    assert len(stubs.calls("squeue")) == before + 1
    assert len(stubs.calls("sacct")) == 1
    with pytest.raises(Exception, match="59"):
        call("status", path, "--watch", 59)


def test_slurm_is_asked_when_jobs_would_start(tmp_path: Path, stubs: Stubs) -> None:
    path, _ = study_in(tmp_path / "s")
    stubs.add("sbatch", "echo 'sbatch: Job 9 to start at 2031-01-01T00:00:00' >&2")
    _, result = call("launch", path, "--test-only")
    assert "sample: Job 9 to start at 2031-01-01T00:00:00" in result.stdout
    assert all(words[0] == "--test-only" for words in stubs.calls("sbatch"))
    assert len(stubs.calls("sbatch")) == 3


def test_a_recipe_that_training_would_refuse_writes_nothing(tmp_path: Path, stubs: Stubs) -> None:
    path, study = study_in(tmp_path / "s", TRAINED.replace("algorithm: grpo", "algorithm: gprs"))
    with pytest.raises(UserError, match=r"recipes\.rl: .*gprs"):
        call("launch", path)
    assert not study.layout.launches.exists()


def test_paths_of_the_command_line_mean_the_same_in_a_job(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job has another current folder, and not every variable of the login node."""
    path, _ = study_in(tmp_path / "s", TRAINED)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("NIGHT", "one")
    changes = ("output=runs/$NIGHT", "arms.base.temperature=0.5", "arms.base.prompt=own.txt")
    Path("own.txt").write_text("{question}")
    code, _ = call("launch", path, *(f"--set={change}" for change in changes))
    assert code == DONE
    (folder,) = (tmp_path / "here/runs/one").glob("launches/*")
    path.unlink()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NIGHT")
    study = load_study(folder / "study.json")
    assert study.layout.root == tmp_path / "here/runs/one"
    assert study.arms["base"].sampling.temperature == 0.5
    assert study.prompts[study.arms["base"].prompt].text == "{question}"
    assert " train study.json rl" in (folder / "train-rl.sbatch").read_text()


def test_a_second_launch_of_ones_own_adds_nothing(run: Run, stubs: Stubs) -> None:
    path, study = run
    stubs.add("squeue", f"echo '1_[0-3]|PENDING|Priority|{ME}'")
    code, result = call("launch", path)
    assert code == NOTHING_TO_DO
    assert "launch 0001 is in the queue: 4 jobs, the first is 1" in result.stderr
    assert [p.name for p in study.layout.launches.iterdir()] == ["0001"]


@pytest.mark.parametrize("verb", ["launch", "status"])
def test_a_job_whose_id_a_kill_kept_from_us_is_found_by_its_name(
    run: Run, stubs: Stubs, verb: str
) -> None:
    path, study = run
    submitted = study.layout.launches / "0001" / "submitted"
    submitted.write_text("sample ?\n")
    stubs.add(
        "squeue",
        'case "$*" in *--name=*-sample*) echo 55;; '
        f"*=55*) echo '55_[0-3]|PENDING|None|{ME}';; esac",
    )
    code, result = call(verb, path)
    if verb == "launch":
        assert code == NOTHING_TO_DO
        assert "launch 0001 is in the queue: 4 jobs, the first is 55" in result.stderr
    else:
        assert "Queue: 4 pending" in result.stdout
    assert submitted.read_text() == "sample ?\nsample 55\n"
    assert not (study.layout.launches / "0002").exists()


def test_a_second_launch_makes_what_the_first_does_not(run: Run, stubs: Stubs) -> None:
    path, study = run
    stubs.add("squeue", f"echo '1_1|RUNNING|None|{ME}'; echo '1_[3]|PENDING|Priority|{ME}'")
    assert call("launch", path, "--shard-tokens", 150)[0] == DONE
    (plan,) = {p for p in study.layout.plans.iterdir() if p.stem != first_plan(study)}
    assert Plan.load(plan).samples == sum(shard.samples for shard in shards_in(study, [0, 2]))


def test_somebody_else_helps_with_what_no_job_has_begun(run: Run, stubs: Stubs) -> None:
    """With the same plan, so that a claim of a shard means the same to both."""
    path, study = run
    stubs.add("squeue", "echo '1_1|RUNNING|None|ann'; echo '1_[0,2-3%4]|PENDING|Priority|ann'")
    make(study, [2])
    code, result = call("launch", path)
    assert code == DONE
    assert "launch 0001 of ann is in the queue" in result.stderr
    record = json.loads((study.layout.launches / "0002/launch.json").read_text())
    assert record["plan"] == first_plan(study)
    assert sorted(s for task in record["jobs"]["sample"]["tasks"] for s in task) == [0, 3]


def test_a_model_is_trained_by_one_launch(tmp_path: Path, stubs: Stubs) -> None:
    path, _ = study_in(tmp_path / "s", TRAINED)
    assert call("launch", path, "--submit")[0] == DONE
    stubs.add("squeue", "echo '1|RUNNING|None|ann'")
    with pytest.raises(UserError, match=r"launch 0001 of ann .*job 1 trains rl\. Wait for it"):
        call("launch", path)


def first_plan(study: Study) -> str:
    record = json.loads((study.layout.launches / "0001/launch.json").read_text())
    return str(record["plan"])


def shards_in(study: Study, numbers: list[int]) -> list[Any]:
    plan = Plan.load(study.layout.plans / f"{first_plan(study)}.json")
    return [shard for shard in plan.shards if shard.number in numbers]


def test_squeue_that_cuts_an_array_off_ends_nothing(run: Run, stubs: Stubs) -> None:
    path, _ = run
    stubs.add("squeue", 'echo "$SLURM_BITSTR_LEN" >"$0.length"; echo "1_[0,...]|PENDING|None|me"')
    assert shards_of(status(path)[1]) == {"waiting": [0, 1, 2, 3]}
    assert (stubs.folder / "squeue.length").read_text() == "0\n"
    assert call("cancel", path)[0] == DONE


def test_jobs_are_found_by_their_ids_whoever_owns_them(run: Run, stubs: Stubs) -> None:
    """Also those of an older launch: a look at the newest alone said that nothing runs."""
    path, study = run
    stubs.add("squeue", "echo '1_1|RUNNING|None|ann'")
    make(study, [0])
    assert call("launch", path, "--submit", "--shard-tokens", 150)[0] == DONE
    _, found = status(path)
    assert [Path(one["launch"]).name for one in found["launches"]] == ["0001", "0002"]
    assert found["launches"][0]["shards"] == {"done": [0], "running": [1], "stopped": [2, 3]}
    asked = stubs.calls("squeue")[-1]
    assert "--all" in asked
    assert "--me" not in asked
    assert any(word.startswith("--jobs=1,2,3") for word in asked)


def test_a_launch_that_was_not_submitted_is_told(tmp_path: Path, stubs: Stubs) -> None:
    path, study = study_in(tmp_path / "s")
    folder = study.layout.launches / "0001"
    remember(study)
    assert "Nothing was launched." in call("status", path)[1].stdout
    # What is no option of this verb is one of sbatch.
    text = call("launch", path, "-p", "gpu", "--constraint=a100")[1].stdout
    assert text == (
        "48 samples to make, about 576 response tokens, 1 shards\n"
        f"3 scripts for cluster generic in {folder}\n"
        f"To submit them: {folder / 'submit.sh'}\n"
    )
    assert "#SBATCH --constraint=a100\n" in (folder / "sample.sbatch").read_text()
    text = call("status", path)[1].stdout
    assert f"Launch 0001 was not submitted: {study.layout.launches / '0001' / 'submit.sh'}" in text


def test_cancel_marks_first_and_asks_once(run: Run, stubs: Stubs) -> None:
    path, study = run
    (folder,) = study.layout.launches.iterdir()
    stubs.add("squeue", "echo '1_0|RUNNING|None|me'; echo '2|PENDING|Dependency|me'")
    stubs.add("scancel", f"[ -e '{folder}/cancelled' ] || exit 1")
    code, result = call("cancel", path)
    assert code == DONE
    assert result.stdout == "2 jobs cancelled; `rlbhpc launch` goes on from here.\n"
    assert stubs.calls("scancel") == [["1", "2"]]
    stubs.add("squeue")
    assert call("cancel", path)[0] == NOTHING_TO_DO
    stubs.add("squeue", "exit 1")
    assert call("cancel", path)[0] == TRY_AGAIN


def test_a_relaunch_plans_what_is_missing_alone(run: Run) -> None:
    path, study = run
    make(study, [0, 2])
    assert call("launch", path, "--shard-tokens", 150)[0] == DONE
    first, second = sorted(study.layout.launches.iterdir())
    assert (first.name, second.name) == ("0001", "0002")
    record = json.loads((second / "launch.json").read_text())
    left = Plan.load(study.layout.plans / f"{record['plan']}.json")
    assert left.samples == sum(plan.samples for plan in shards_in(study, [1, 3]))


def test_a_folder_without_a_run_is_told(tmp_path: Path) -> None:
    for verb in ("status", "cancel"):
        with pytest.raises(UserError, match="no run in it"):
            call(verb, tmp_path)
    (tmp_path / "counts.jsonl").write_text('{"problem": 1, "score": 1}\n')
    run = tmp_path / "theirs"
    assert call("import", run, tmp_path / "counts.jsonl", "--arm", "a", "--set", "s")[0] == DONE
    counts = tmp_path / "counts.csv"
    counts.write_text("problem,n,c\n1,4,2\n")
    assert call("import", tmp_path / "of", counts, "--arm", "a", "--set", "s")[0] == DONE
    for verb, folder in (("status", run), ("cancel", run), ("status", tmp_path / "of")):
        with pytest.raises(UserError, match="only results that were imported"):
            call(verb, folder)


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


def test_what_a_plan_costs_is_shown_with_a_rate(tmp_path: Path, stubs: Stubs) -> None:
    path, _ = study_in(tmp_path / "s")
    code, result = call("plan", path)
    assert printed(result) == (
        "Samples\n"
        "arm   problem_set  step  requested  present  missing  stale\n"
        "base  countdown       0         48        0       48      0\n"
        "48 samples to make, about 576 response tokens, 1 shards\n"
        "No rate was measured yet: give --tokens-per-second to see what that costs.\n"
    )
    for more, source in (((), 60), (("--startup", 5), 5)):
        text = call("plan", path, "--tokens-per-second", 10, *more, "--json")[1].stdout
        assert json.loads(text)["rates"] == {"tokens": 10, "start": source, "source": "as given"}
    with pytest.raises(UsageError, match="--budget goes with --until"):
        call("plan", path, "--budget", 9)
    words = ("--tokens-per-second", 10, "--startup", 5, "--width", 2, "--shard-tokens", 150)
    code, result = call("plan", path, *words, "--preemptions", 24, "--json")
    found = json.loads(result.stdout)
    assert code == DONE
    assert found["prediction"]["wall_seconds"] == pytest.approx(2 * (5 + 144 / 10))
    assert len(found["by_shards"]) > 3
    assert printed(call("plan", path, *words)[1]).partition("shards\n")[2] == COST
    assert call("plan", path, *words, "--preemptions", 24)[0] == DONE
    cluster_of(tmp_path, sample={"time": "0"})  # Slurm's word for no limit
    words = (*words, "--cluster", tmp_path / "site.yaml", "--preemptions", 24)
    assert call("plan", path, *words)[0] == DONE
