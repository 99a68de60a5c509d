"""What is missing of a launch, and until when: by job, by shard, and in seconds."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rlbhpc.errors import DONE, INCOMPLETE, UserError
from rlbhpc.launch.api import write_prepared
from rlbhpc.launch.launches import list_launches, open_launch
from rlbhpc.launch.prepare import prepare
from rlbhpc.launch.send import reject_missing
from rlbhpc.store import checked, cube
from rlbhpc.store.compact import compact
from rlbhpc.study.lineage import record_checkpoint
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.attempt import Attempt
from rlbhpc.sweep.remember import store_study
from tests.launch.launched import Run, call, make, plan_of, run, shards_of, status, stubs
from tests.launch.made import TRAINED, Stubs, study_in
from tests.studies import write_unloadable_model
from tests.sweep.conftest import keys_of
from tests.sweep.test_plan import row, store

__all__ = ["run", "stubs"]


def train(study: Study, *steps: int) -> None:
    for step in steps:
        folder = study.folder("rl", step)
        write_unloadable_model(folder)
        record_checkpoint(folder, study.digests["rl"][step], "one")


def report(study: Study) -> None:
    study.layout.report.mkdir(exist_ok=True)
    (study.layout.report / "report.html").touch()


def fail(study: Study, *jobs: str) -> None:
    folder = study.layout.launches / "0001" / "failures"
    folder.mkdir()
    record = {"stalls": 1, "recovered": False, "runs": [{"cause": "died of signal 11"}]}
    for job in jobs:
        (folder / f"{job}.json").write_text(json.dumps(record))


def failed(path: Path) -> list[str]:
    return [job for failure in status(path)[1]["failures"] for job in failure["jobs"]]


def test_a_job_has_failed_until_what_it_was_to_make_is_there(run: Run) -> None:
    path, study = run
    # The parent of a job that seals wrote down its end as well.
    (launch,) = list_launches(study.layout)
    launch.record_submission("compact", "9")
    fail(study, "1_0", "1_3", "2", "3", "9")
    store_study(study)
    assert failed(path) == ["1_0", "1_3", "2", "3", "9"]
    make(study, [3])
    assert failed(path) == ["1_0", "2", "3", "9"]
    make(study, [0, 1, 2])
    assert failed(path) == ["2", "3", "9"]
    compact(study.layout)
    assert failed(path) == ["3"]
    report(study)
    assert failed(path) == []
    # One who has written at the same moment as the other is not behind it.
    page = study.layout.report / "report.html"
    version = cube.current_version(study.layout)
    assert version is not None
    compacted = version.folder.stat().st_mtime_ns
    for late, behind in ((0, []), (-1_000_000_000, ["report"])):
        os.utime(page, ns=(compacted + late, compacted + late))
        assert status(path)[1]["behind"] == behind


def test_a_training_has_failed_until_all_its_steps_are_there(tmp_path: Path, stubs: Stubs) -> None:
    path, study = study_in(tmp_path / "s", TRAINED)
    assert call("launch", path, "--submit")[0] == DONE
    (launch,) = list_launches(study.layout)
    number = str(launch.submitted["train-rl"][0])
    fail(study, number)
    for steps in ((10,), (20,)):
        assert failed(path) == [number]
        train(study, *steps)


def test_without_its_plan_a_shard_is_not_known_to_be_made(run: Run, stubs: Stubs) -> None:
    path, study = run
    make(study, [0])
    fail(study, "1_0")
    first = plan_of(study)
    assert call("launch", path, "--submit", "--shard-tokens", 150)[0] == DONE
    (study.layout.plans / f"{first.name}.json").unlink()
    assert failed(path) == ["1_0"]


@pytest.mark.parametrize(
    ("made", "failures"),
    [([0], ["1_2", "2"]), ([0, 1, 2, 3], ["2"])],
)
def test_slurms_word_counts_for_what_is_not_there(
    run: Run, stubs: Stubs, made: list[int], failures: list[str]
) -> None:
    path, study = run
    stubs.add("squeue", "echo '1_1|PENDING|None|me'")
    stubs.add("sacct", "for task in 1_1 1_2 2; do echo \"$task|NODE_FAIL|0:0|me\"; done;"
              " echo '3|COMPLETED|0:0|me'")  # fmt: skip
    make(study, made)
    assert failed(path) == failures


def test_the_time_left_follows_the_rate_of_a_worker(run: Run, stubs: Stubs) -> None:
    """At 10 tokens a second once loaded, with two at work on what is left."""
    path, study = run
    ended = {"plan": plan_of(study).name, "shard": 0, "started": 100.0, "ended": 125.0}
    checked.write(study.layout.attempts / "a.json", {**ended, "loaded": 110.0, "tokens": 150})
    checked.write(study.layout.attempts / "b.json", {**ended, "loaded": 110.0, "tokens": 0})
    make(study, [0])
    running = "1_1|RUNNING|None|me"
    for queue, workers in ((running, 1), (f"{running}'; echo '1_2|RUNNING|None|me", 2), ("", 0)):
        stubs.add("squeue", f"echo '{queue}'; echo '1_3|PENDING|None|me'; echo '2|RUNNING|x|me'")
        found = status(path)[1]
        assert found["tokens_per_second_and_worker"] == 10.0
        left = sum(shard.tokens for shard in plan_of(study).shards if shard.number)
        assert found["seconds_left"] == (left / (10 * workers) if workers else None)
    (study.layout.attempts / "a.json").unlink()
    assert status(path)[1]["seconds_left"] is None


def test_of_several_shards_of_a_task_those_run_that_it_has_begun(
    tmp_path: Path, stubs: Stubs
) -> None:
    path, study = study_in(tmp_path / "s")
    words = ("--submit", "--shard-tokens", 150, "--width", 2)
    assert call("launch", path, *words)[0] == DONE
    Attempt(study.layout.attempts, plan_of(study).name, 1)
    stubs.add("squeue", "echo '1_0|RUNNING|None|me'; echo '1_1|COMPLETING|None|me'")
    assert shards_of(status(path)[1]) == {"running": [1], "waiting": [0, 2, 3]}
    stubs.add("squeue", "echo '1_0|PENDING|None|me'")
    assert shards_of(status(path)[1]) == {"waiting": [0, 1], "stopped": [2, 3]}
    # Somebody runs it on a machine whose processes nobody sees from here.
    stubs.add("squeue")
    sending = study.layout.launches / "sending.0"
    sending.write_text("local elsewhere 1 1 ann runs launch 0001\n")
    assert shards_of(status(path)[1]) == {"running": [1], "waiting": [0, 2, 3]}


def test_what_the_study_asks_for_no_more_is_missing_in_no_shard(run: Run) -> None:
    path, _ = run
    path.write_text(path.read_text().replace("limit: 6", "limit: 4"))
    fewer = load_study(path)
    store_study(fewer)
    store(fewer, [row(fewer, key) for key in keys_of(fewer)])
    found = status(path)[1]
    assert (found["missing"], shards_of(found)) == (0, {"done": [0, 1, 2, 3]})


def missing(launch: Path) -> str:
    with pytest.raises(UserError) as told:
        reject_missing(open_launch(launch))
    assert told.value.code == INCOMPLETE
    return str(told.value)


def test_a_launch_here_is_told_by_what_it_was_to_make(tmp_path: Path, stubs: Stubs) -> None:
    path, study = study_in(tmp_path / "s", TRAINED.replace("limit: 6", "limit: 2"))
    hint = f"; rlbhpc doctor {study.layout.root} says why"
    training, sampling, whole = (
        write_prepared(prepare(path, cluster="local", only=kind)).folder
        for kind in ("train", "sample", None)
    )
    assert missing(training) == f"training of rl has not ended{hint}"
    assert missing(sampling) == missing(whole) == f"48 samples are missing{hint}"
    store(study, [row(study, key) for key in keys_of(study)])
    reject_missing(open_launch(sampling))
    assert missing(whole) == f"training of rl has not ended{hint}"
    train(study, 10, 20)
    reject_missing(open_launch(training))
    assert missing(whole) == f"compact and report did not end well{hint}"
    compact(study.layout)
    assert missing(whole) == f"report did not end well{hint}"
    report(study)
    reject_missing(open_launch(whole))
