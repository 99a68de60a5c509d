"""Status and launches again: from a run's own files, with and without an answer of Slurm."""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import Any

import pytest

from rlbhpc.errors import DONE, INCOMPLETE, NOTHING_TO_DO, UserError
from rlbhpc.launch.api import find
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.attempt import Attempt
from rlbhpc.sweep.plan import Plan
from tests.launch.launched import ME, Run, call, make, plan_of, run, shards_of, status, stubs
from tests.launch.made import TRAINED, Stubs, study_in

__all__ = ["run", "stubs"]


def test_a_job_that_is_gone_without_its_samples_is_stopped(run: Run) -> None:
    path, study = run
    make(study, [1, 3])
    assert shards_of(status(path)[1]) == {"stopped": [0, 2], "done": [1, 3]}


def test_an_exit_status_or_a_marker_makes_nothing_done(run: Run, stubs: Stubs) -> None:
    path, study = run
    stubs.add("sacct", "echo '1_0|COMPLETED|0:0|me'")
    Attempt(study.layout.attempts, plan_of(study).name, 0).record_end("done", samples=99, tokens=99)
    assert "done" not in shards_of(status(path)[1])


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
        ("could not be requeued: scontrol: No such file or directory", "let `setup`"),
        ("could not be requeued: 1", "launch again: the site lets jobs not requeue"),
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


@pytest.mark.parametrize(
    "held",
    [
        "PENDING|JobHeldUser",
        "REQUEUE_HOLD|launch failure limit exceeded requeued held",
        "PENDING|JobHoldMaxRequeue",
        "RESV_DEL_HOLD|ReservationDeleted",
    ],
)
def test_only_the_owner_of_a_held_job_is_told_to_release_it(
    run: Run, stubs: Stubs, held: str
) -> None:
    me = getpass.getuser()
    stubs.add("squeue", f"echo '1_0|{held}|{me}'; echo '1_1|{held}|ann'")
    _, found = status(run[0])
    own, hers = (one["action"] for one in found["failures"])
    assert own.startswith("scontrol release 1;")
    assert "jobs of ann" in hers


def test_slurm_is_asked_twice_and_never_in_a_hurry(run: Run, stubs: Stubs) -> None:
    path, _ = run
    before = len(stubs.calls("squeue"))
    status(path)
    assert len(stubs.calls("squeue")) == before + 1
    assert len(stubs.calls("sacct")) == 1
    with pytest.raises(Exception, match="59"):
        call("status", path, "--watch", 59)


def test_who_watches_is_told_when_no_job_is_left(
    run: Run, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused job leaves the queue without its samples, and the watch went on for ever."""
    path, study = run
    stubs.add("squeue", "echo '1_1|RUNNING|None|me'")
    looks: list[float] = []

    def refused(seconds: float) -> None:
        if seconds < 60:  # who waits for the stub
            return
        looks.append(seconds)
        stubs.add("squeue", *["exit 1"] * (len(looks) == 1))
        assert len(looks) <= 2, "it waits for nothing"

    monkeypatch.setattr("time.sleep", refused)
    make(study, [0, 2, 3])
    code, result = call("status", path, "--watch", 60)
    assert (code, looks) == (INCOMPLETE, [60, 60]), "Slurm did not answer once"
    assert result.stdout.count("No job is in the queue; `rlbhpc launch` again makes what is") == 1


def test_samples_of_a_job_that_ends_meanwhile_are_there(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were counted before the queue was looked at: a watch ended with 3, as if refused."""
    path, study = run

    def leave(_: Any) -> list[Any]:
        make(study, [0, 1, 2, 3])
        return []

    monkeypatch.setattr("rlbhpc.launch.launches.read_queue_of", leave)
    assert status(path)[1]["missing"] == 0


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


@pytest.mark.parametrize("private", ["none", "jobs,users"])
def test_hidden_jobs_of_somebody_else_are_neither_gone_nor_drawn_anew(
    run: Run, stubs: Stubs, private: str
) -> None:
    """What they make is left to them until somebody cancels the launch."""
    path, study = run
    record = study.layout.launches / "0001" / "launch.json"
    record.write_text(record.read_text().replace(f'"user": "{ME}"', '"user": "ann"'))
    stubs.add("scontrol", f"echo 'PrivateData             = {private}'")
    stubs.add("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    make(study, [2])
    is_hidden = private != "none"
    state = "hidden" if is_hidden else "stopped"
    assert shards_of(status(path)[1]) == {"done": [2], state: [0, 1, 3]}
    code, result = call("launch", path)
    assert code == (NOTHING_TO_DO if is_hidden else DONE)
    assert ("launch 0001 of ann" in result.stderr) == is_hidden
    assert call("cancel", path)[0] == NOTHING_TO_DO
    assert (study.layout.launches / "0001" / "cancelled").exists() == is_hidden
    assert call("launch", path)[0] == DONE


@pytest.mark.parametrize("verb", ["status", "doctor", "cancel", "launch"])
def test_a_study_does_not_get_the_results_of_another_one_of_its_name(run: Run, verb: str) -> None:
    path, study = run
    other = path.with_name("other.yaml")
    other.write_text(path.read_text().replace("base: {model: base,", "fresh: {model: base,"))
    assert set(load_study(other).arms) == {"fresh"}
    with pytest.raises(UserError) as refused:
        call(verb, other)
    assert all(word in str(refused.value) for word in (str(study.layout.root), "base", "`name`"))
    assert call("status", study.layout.root)[0] == INCOMPLETE


def test_a_model_is_trained_by_one_launch(tmp_path: Path, stubs: Stubs) -> None:
    path, study = study_in(tmp_path / "s", TRAINED)
    assert call("launch", path, "--submit")[0] == DONE
    stubs.add("squeue", "echo '1|RUNNING|None|ann'")
    told = r"launch 0001 of ann .*job 1 trains rl\. Wait for it, or end it: rlbhpc cancel "
    with pytest.raises(UserError, match=rf"{told}{study.layout.root}$"):
        call("launch", path)


def first_plan(study: Study) -> str:
    record = json.loads((study.layout.launches / "0001/launch.json").read_text())
    return str(record["plan"])


def shards_in(study: Study, numbers: list[int]) -> list[Any]:
    plan = Plan.load(study.layout.plans / f"{first_plan(study)}.json")
    return [shard for shard in plan.shards if shard.number in numbers]


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


def test_a_relaunch_plans_what_is_missing_alone(run: Run) -> None:
    path, study = run
    make(study, [0, 2])
    assert call("launch", path, "--shard-tokens", 150)[0] == DONE
    first, second = sorted(study.layout.launches.iterdir())
    assert (first.name, second.name) == ("0001", "0002")
    record = json.loads((second / "launch.json").read_text())
    left = Plan.load(study.layout.plans / f"{record['plan']}.json")
    assert left.samples == sum(plan.samples for plan in shards_in(study, [1, 3]))
