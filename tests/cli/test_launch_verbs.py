"""What plan, launch, status and cancel print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click import UsageError

from rlbhpc.errors import DONE, INCOMPLETE, NOTHING_TO_DO, TRY_AGAIN, UserError
from rlbhpc.sweep.attempt import Attempt
from rlbhpc.sweep.remember import store_study
from tests.cli.test_store_verbs import printed
from tests.launch.launched import Run, call, make, plan_of, run, shards_of, status, stubs
from tests.launch.made import Stubs, study_in
from tests.sweep.conftest import keys_of
from tests.sweep.test_plan import row, store

__all__ = ["run", "stubs"]

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


@pytest.mark.parametrize("content", [b"", b"{}", b'{"plan": "p", "shard": 0, "started": 1.0}'])
def test_a_damaged_record_of_an_attempt_is_told(run: Run, content: bytes) -> None:
    path, study = run
    store(study, [row(study, key) for key in keys_of(study)], "whole")
    attempt = Attempt(study.layout.attempts, plan_of(study).name, 0)
    attempt.record_loaded()
    attempt.record_end("done", tokens=99)
    for damaged in (content, attempt.path.read_bytes().replace(b": 99", b": 98")):
        attempt.path.write_bytes(damaged)
        for verb in ("status", "plan"):
            code, result = call(verb, path)
            assert code == INCOMPLETE, verb
            told = [line for line in result.stderr.splitlines() if str(attempt.path) in line]
            assert len(told) == 1, verb


def test_a_launch_that_was_not_submitted_is_told(tmp_path: Path, stubs: Stubs) -> None:
    path, study = study_in(tmp_path / "s")
    folder = study.layout.launches / "0001"
    store_study(study)
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
    words = ("--tokens-per-second", 10, "--shard-tokens", 150)
    code, result = call("plan", path, *words, "--json")
    record = json.loads(result.stdout)
    assert code == DONE
    assert record["rates"] == {"tokens": 10, "start": 60, "source": "as given"}
    assert record["gpu_hours"] == pytest.approx(4 * (60 + 144 / 10) / 3600)
    assert "0.08 hours of a device" in printed(call("plan", path, *words)[1])
    with pytest.raises(UsageError, match="--budget goes with --until"):
        call("plan", path, "--budget", 9)
