"""Jobs and limits: every shard in exactly one task, and never more than a site takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbhpc.errors import UserError
from rlbhpc.launch import cluster as clusters
from rlbhpc.launch import slurm
from rlbhpc.launch.cluster import choose, load_cluster, table
from rlbhpc.launch.options import REFUSED, read_options
from rlbhpc.launch.script import directives
from tests.launch.made import SAMPLED, TRAINED, cluster_of, jobs_in


@given(
    array=st.integers(1, 30),
    limit=st.none() | st.integers(6, 60),
    width=st.none() | st.integers(1, 40),
    tokens=st.integers(10, 600),
    trained=st.booleans(),
)
@settings(max_examples=40)
def test_every_shard_is_in_one_task_and_no_limit_is_passed(
    tmp_path_factory: pytest.TempPathFactory, array: int, limit: int | None, width: int | None,
    tokens: int, trained: bool,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("s")
    keys = {} if limit is None else {"max_jobs": limit}
    cluster = cluster_of(folder, max_array_size=array, **keys)
    text = TRAINED if trained else SAMPLED
    _, jobs = jobs_in(folder / "s", cluster, text, tokens, width=width)
    shards = sorted(shard for job in jobs for task in job.tasks for shard in task)
    assert shards == list(range(len(shards)))
    assert shards
    assert all(len(job.tasks) <= array for job in jobs)
    count = sum(len(job.tasks) or 1 for job in jobs)
    if limit is not None:
        assert count <= limit
    if width is not None:
        assert sum(len(job.tasks) for job in jobs) <= max(width, 3)
    before: set[str] = set()
    for job in jobs:
        assert set(job.after) <= before, "a job is submitted after those it waits for"
        before.add(job.name)


def test_a_limit_that_no_launch_fits_into_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="`max_jobs` is 2"):
        jobs_in(tmp_path / "s", cluster_of(tmp_path, max_jobs=2))


def test_options_of_sbatch_pass_with_their_meaning(tmp_path: Path) -> None:
    words = ["-p", "gpu", "-Aproj", "--time=30", "-t", "40", "--gres", "gpu:a100:2", "--exclusive"]
    options = read_options(words)
    assert options == {
        "partition": "gpu", "account": "proj", "time": "40", "gres": "gpu:a100:2", "exclusive": "",
    }  # fmt: skip
    one, jobs = jobs_in(tmp_path / "s", cluster_of(tmp_path, account="other"), options=options)
    by_kind = {job.kind: directives(one, job) for job in jobs}
    assert by_kind["sample"]["gres"] == "gpu:a100:2"
    assert by_kind["sample"]["time"] == "40"
    for found in by_kind.values():
        assert (found["account"], found["partition"]) == ("proj", "gpu")
    assert "gres" not in by_kind["light"]
    assert by_kind["light"]["time"] == "01:00:00"


@pytest.mark.parametrize("name", REFUSED)
def test_options_that_fight_generated_ones_are_refused_by_name(name: str) -> None:
    with pytest.raises(UserError, match=f"--{name}: "):
        read_options([f"--{name}=1"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--parttion=x"], "did you mean --partition"),
        (["-J", "x"], "status and cancel"),
        (["-p"], "a value is missing"),
        (["-p", "a b"], "allowed: letters"),
        (["-p", "a\n#SBATCH --wrap=x"], "allowed: letters"),
        (["other.yaml"], "takes one study"),
    ],
)
def test_other_options_are_told_apart(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_options(words)


def test_every_cluster_of_the_table_can_be_read() -> None:
    known = table()
    assert {"generic", "dev"} <= set(known)
    assert len(known) >= 5
    for path in known.values():
        load_cluster(path)


def test_a_cluster_is_found_by_name_file_and_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.yaml").write_text("hosts: ['login*.here']\nmax_jobs: 9\n")
    monkeypatch.setenv("RLBHPC_CLUSTERS", str(tmp_path))
    assert choose(None, "login3.here") == choose("mine")
    assert choose(str(tmp_path / "mine.yaml"))[1].max_jobs == 9
    assert choose(None, "elsewhere")[0] == "generic"
    with pytest.raises(UserError, match="did you mean mine"):
        choose("mien")
    monkeypatch.setattr(clusters, "BUILT_IN", tmp_path / "none")
    assert choose(None, "elsewhere") == ("generic", clusters.Cluster())


def test_a_mistake_in_a_table_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("sample:\n  partitoin: gpu\n")
    with pytest.raises(UserError, match=r"bad\.yaml:2: sample\.partitoin: unknown key.*partition"):
        load_cluster(path)
    path.write_text("account: 'a b; rm -rf'\n")
    with pytest.raises(UserError, match="allowed: letters"):
        load_cluster(path)


def test_ids_of_squeue_and_states_of_sacct() -> None:
    text = (
        "12_[3,5-8%4]|PENDING|Resources\n12_1|RUNNING|None\n9|CANCELLED by 1000|0:0\n"
        "13_2|OUT_OF_ME+|0:125\nnonsense\n9.batch|FAILED|1:0\n"
    )
    rows = slurm.read_rows(text)
    assert [(r.job, r.task) for r in rows] == [
        (12, 3), (12, 5), (12, 6), (12, 7), (12, 8), (12, 1), (9, -1), (13, 2),
    ]  # fmt: skip
    assert [r.state for r in rows[-2:]] == ["CANCELLED", "OUT_OF_MEMORY"]


@given(st.lists(st.integers(0, 60)))
def test_ranges_and_numbers_are_inverses(found: list[int]) -> None:
    assert slurm.numbers(slurm.ranges(found)) == sorted(set(found))
