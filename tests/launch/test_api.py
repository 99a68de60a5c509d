"""Launching from Python: what is refused, and the plain executor of a site."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import submitit

from rlbhpc import launch
from rlbhpc.errors import UserError
from rlbhpc.launch.prepare import prepare
from rlbhpc.store.compact import compact
from rlbhpc.sweep.remember import store_study
from tests.launch.launched import ME, Run, run, stubs
from tests.launch.made import Stubs, cluster_of, study_in
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


def test_a_throttle_of_the_call_wins(run: Run) -> None:
    path, _ = run
    assert prepare(path, throttle=2).draft.cluster.throttle == 2


def test_the_executor_of_this_machine_needs_no_slurm(tmp_path: Path) -> None:
    assert isinstance(launch.executor("local", folder=tmp_path), submitit.LocalExecutor)


@pytest.fixture
def sbatch(tmp_path: Path, stubs: Stubs) -> Callable[[submitit.Executor], dict[str, str]]:
    """Options of the script that an executor hands to sbatch."""
    stubs.add("srun")
    stubs.add("sbatch", 'cp "$1" "$0.script"; echo Submitted batch job 12')

    def options_of(executor: submitit.Executor) -> dict[str, str]:
        (job,) = executor.map_array(pow, [2], [5])
        assert job.job_id == "12"
        lines = (stubs.folder / "sbatch.script").read_text().splitlines()
        words = [line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")]
        options = dict(word.partition("=")[::2] for word in words)
        assert len(options) == len(words)
        places = {"output", "error", "job-name", "open-mode", "wckey"}
        return {name: value for name, value in options.items() if name not in places}

    return options_of


def test_a_plain_site_has_a_plain_executor(
    tmp_path: Path, sbatch: Callable[[submitit.Executor], dict[str, str]]
) -> None:
    assert sbatch(launch.executor("generic", folder=tmp_path / "jobs")) == {
        "cpus-per-task": "2", "nodes": "1", "time": "01:00:00", "signal": "USR2@180",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("parameters", "options"),
    [
        (
            {"time": 5, "partition": "debug", "nodes": 1, "gpus_per_node": 1, "mem": "8G"},
            {"time": "5", "partition": "debug", "nodes": "1", "gpus-per-node": "1", "mem": "8G"},
        ),
        ({"mem_per_cpu": "2G"}, {"mem-per-cpu": "2G", "gres": "gpu:8", "nodes": "4"}),
        (
            {"additional_parameters": {"gpus": 2}, "cpus_per_task": 3},
            {"gpus": "2", "cpus-per-task": "3", "mem": "1500G", "qos": "long"},
        ),
    ],
)
def test_what_the_user_of_an_executor_sets_wins_over_the_site(
    tmp_path: Path, sbatch: Callable[[submitit.Executor], dict[str, str]],
    parameters: dict[str, Any], options: dict[str, str],
) -> None:  # fmt: skip
    train = {"partition": "gpu", "time": "24:00:00", "nodes": 4, "gpus": 8, "memory": "1500G"}
    cluster_of(tmp_path, train=train | {"options": {"qos": "long"}})
    executor = launch.executor(str(tmp_path / "site.yaml"), "train", tmp_path / "jobs")
    executor.update_parameters(**parameters)
    written = sbatch(executor)
    assert options.items() <= written.items()
    rivals = {"gres", "gpus", "gpus-per-node"}, {"mem", "mem-per-cpu"}
    assert all(len(written.keys() & group) == 1 for group in rivals)
    executor.update_parameters(time=7)  # what was set before stays
    assert sbatch(executor) == written | {"time": "7"}


def test_only_what_is_public_is_there() -> None:
    with pytest.raises(AttributeError, match=r"'rlbhpc\.launch' has no attribute 'lunch'"):
        _ = launch.lunch
