"""Launching from Python: what is refused, and the plain executor of a site."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlbhpc import launch
from rlbhpc.errors import UserError
from rlbhpc.launch.prepare import prepare
from rlbhpc.store.compact import compact
from rlbhpc.sweep.remember import store_study
from tests.launch.launched import ME, Run, run, stubs
from tests.launch.made import Stubs, study_in
from tests.sweep.conftest import keys_of
from tests.sweep.test_plan import row, store

__all__ = ["run", "stubs"]


def test_what_has_nothing_to_launch_says_why(tmp_path: Path, stubs: Stubs) -> None:
    path, study = study_in(tmp_path / "s")
    store_study(study)
    for number, told in ((None, "nothing was launched"), (1, "there is no launch 1")):
        with pytest.raises(UserError, match=f"^{study.layout.root}: {told}$"):
            launch.find(path, number)
    store(study, [row(study, key) for key in keys_of(study)])
    compact(study.layout)
    study.layout.report.mkdir()
    (study.layout.report / "report.html").touch()
    with pytest.raises(UserError, match=f"^{path}: nothing is missing$"):
        launch.write(path)


def test_jobs_in_the_queue_are_named_by_what_is_refused(run: Run, stubs: Stubs) -> None:
    path, _ = run
    stubs.add("squeue", f"echo '1_[0-3]|PENDING|Priority|{ME}'")
    with pytest.raises(UserError, match=r"^launch 0001 is in the queue: 4 jobs, the first is 1$"):
        launch.write(path)
    jobs = launch.find(path).jobs()
    assert {name: [job.job_id for job in of_name] for name, of_name in jobs.items()} == {
        "sample": ["1_0", "1_1", "1_2", "1_3"], "compact": ["2"], "report": ["3"],
    }  # fmt: skip


def test_what_a_kill_left_half_written_is_no_launch(run: Run) -> None:
    path, study = run
    for name, text in (("0002", "{"), ("0003", None)):
        (study.layout.launches / name).mkdir()
        if text is not None:
            (study.layout.launches / name / "launch.json").write_text(text)
    found = launch.find(path)
    assert found.folder.name == "0001"
    with pytest.raises(UserError, match=r"0002: no launch in it, or one that was not written to "):
        launch.Launch(study.layout.launches / "0002").jobs()


def test_weights_are_not_moved_away_under_jobs(run: Run, stubs: Stubs) -> None:
    path, study = run
    assert prepare(path, throttle=2).draft.cluster.throttle == 2
    assert prepare(path, retrain=True).notes == ()
    stubs.add("squeue", "echo '1_[0-3]|PENDING|Priority|ann'")
    told = (
        "^launch 0001 of ann is in the queue: 4 jobs, the first is 1; --retrain would move weights"
        f" away under it. Wait for it, or end it: rlbhpc cancel {study.layout.root}$"
    )
    with pytest.raises(UserError, match=told):
        prepare(path, retrain=True)


def test_only_what_is_public_is_there() -> None:
    with pytest.raises(AttributeError, match=r"'rlbhpc\.launch' has no attribute 'lunch'"):
        _ = launch.lunch
