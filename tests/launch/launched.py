"""A run that was launched, and the commands of a site that look after it."""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rlbhpc.cli.main import cli
from rlbhpc.errors import DONE
from rlbhpc.study.keys import SampleKey
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.plan import Plan
from tests.launch.made import Stubs, study_in
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


def call(*words: object) -> tuple[int, Result]:
    result = CliRunner().invoke(cli, list(map(str, words)), standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.return_value, result


def status(path: Path) -> tuple[int, dict[str, Any]]:
    code, result = call("status", path, "--json")
    return code, json.loads(result.stdout)


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


def shards_of(found: dict[str, Any]) -> dict[str, list[int]]:
    (one,) = found["launches"]
    shards: dict[str, list[int]] = one["shards"]
    return shards
