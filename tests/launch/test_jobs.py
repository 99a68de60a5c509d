"""Jobs and limits: every shard in exactly one task, and never more than a site takes."""

from __future__ import annotations

import inspect
import re
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbhpc.cli.jobs import launch
from rlbhpc.errors import UserError
from rlbhpc.launch import cluster as clusters
from rlbhpc.launch import slurm
from rlbhpc.launch.cluster import choose, load_cluster, table
from rlbhpc.launch.launches import reject_namesake
from rlbhpc.launch.prepare import prepare
from rlbhpc.launch.script import REFUSED_OPTIONS, read_options, sbatch_options, setup_lines
from rlbhpc.study.load import load_study
from rlbhpc.sweep.remember import store_study
from tests.launch.made import SAMPLED, TRAINED, cluster_of, jobs_in, study_in
from tests.studies import trained


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


GRPO = {"algorithm": "grpo", "problems": "learn", "prompt": "countdown"}
TAUGHT = trained(
    "taught", [], {},
    recipes={"grpo": GRPO, "pupil": {"algorithm": "sft", "teacher": {"arm": "big"}}},
    models={
        "base": {"path": "model"},
        "big": {"train": {"from": "base", "recipe": "grpo"}, "steps": [5, 10]},
        "small": {"train": {"from": "big", "recipe": "pupil"}, "steps": [20]},
        "other": {"train": {"from": "base", "recipe": "grpo"}, "steps": [5]},
    },
    arms={
        "base": {"model": "base"}, "big": {"model": "big"}, "other": {"model": "other"},
        "small": {"model": "small", "steps": [0, 20]},
    },
)  # fmt: skip


def test_a_pupil_waits_for_its_base_and_its_teachers_samples(tmp_path: Path) -> None:
    """Each job comes after those that it waits for, and step 0 of a line is its base's last."""
    _, jobs = jobs_in(tmp_path / "s", cluster_of(tmp_path), TAUGHT)
    taught = ("train-big", "sample", "sample-big-5", "sample-big-10")
    after = {job.name: job.after for job in jobs}
    assert list(after.items())[:-2] == [
        ("train-big", ()),
        ("sample", ()),
        ("train-other", ()),
        ("sample-big-5", ("train-big",)),
        ("sample-big-10", ("train-big",)),
        ("sample-small-0", ("train-big",)),
        ("sample-other-5", ("train-other",)),
        ("train-small", taught),
        ("sample-small-20", ("train-small",)),
    ]
    assert after["report"] == ("compact",)
    assert sorted(after["compact"]) == sorted(after.keys() - {"compact", "report"})
    needs = {job.name: job.needs for job in jobs if job.kind == "train"}
    assert needs == {
        "train-big": ("base", 0),
        "train-other": ("base", 0),
        "train-small": ("big", 10),
    }


def test_options_of_sbatch_that_the_help_names_are_passed_on() -> None:
    """Options of its own are listed further down; what stands in the text is sbatch's."""
    text = inspect.cleandoc(launch.help or "").partition("Options that sbatch")[2]
    options = re.findall(r"(?<!\S)--?[A-Za-z][\w-]*", text)
    assert len(options) > 3
    for option in options:
        assert list(read_options([option, "1"]).values()) == ["1"]


@pytest.mark.parametrize(
    ("site", "words", "gpus_per_copy", "tasks"),
    [
        ({"gpus": 5}, [], 1, [5]),  # two shards would do; each copy has one
        ({"gpus": 8}, [], 3, [2]),
        ({"gpus": 1}, ["--gres=gpu:a100:4"], 1, [4]),
        ({"gpus": 1}, ["--gres=lscratch:100,gpu:a100:2"], 1, [2]),
        ({"gpus": 1}, ["--gpus-per-task=2"], 1, [2]),
        ({"gpus": 1}, ["-G", "2"], 1, [2]),
        ({"gpus": 1}, [], 1, [1, 1]),
        ({"gpus": 0}, [], 1, [1, 1]),
    ],
)
def test_a_task_has_a_shard_for_each_copy_that_its_gpus_hold(
    tmp_path: Path, site: dict[str, int], words: list[str], gpus_per_copy: int, tasks: list[int]
) -> None:
    path, _ = study_in(tmp_path / "s")
    cluster_of(tmp_path, sample=site)
    prepared = prepare(
        path, [f"engine.tensor_parallel={gpus_per_copy}"], cluster=str(tmp_path / "site.yaml"),
        options=read_options(words), shard_tokens=300,
    )  # fmt: skip
    (sample,) = (job for job in prepared.jobs if job.kind == "sample")
    assert [len(shards) for shards in sample.tasks] == tasks
    assert sorted(number for shards in sample.tasks for number in shards) == list(range(sum(tasks)))


def test_a_saved_step_of_a_training_is_something_new(tmp_path: Path) -> None:
    draft, jobs = jobs_in(tmp_path / "s", cluster_of(tmp_path), TRAINED)
    (training,) = [job for job in jobs if job.kind == "train"]
    folder = draft.study.layout.launches / "0001"
    folder.mkdir(parents=True)
    for new in (draft.study.layout.states("rl"), draft.study.layout.checkpoints("rl")):
        before = [path for pattern in training.grows for path in folder.glob(pattern)]
        (new / "step-00000002").mkdir(parents=True)
        after = [path for pattern in training.grows for path in folder.glob(pattern)]
        assert len(after) == len(before) + 1


def test_a_limit_that_no_launch_fits_into_is_told(tmp_path: Path) -> None:
    told = r"this launch has 3 jobs at least and the cluster's `max_jobs` is 2; train first"
    with pytest.raises(UserError, match=told):
        jobs_in(tmp_path / "s", cluster_of(tmp_path, max_jobs=2))
    _, jobs = jobs_in(tmp_path / "t", cluster_of(tmp_path, max_jobs=3))
    assert [len(job.tasks) for job in jobs] == [1, 0, 0]
    scored = SAMPLED + "scores:\n  own: {model: base, responses: base}\n"
    with pytest.raises(UserError, match="this launch has 4 jobs at least"):
        jobs_in(tmp_path / "u", cluster_of(tmp_path, max_jobs=3), scored)


def test_options_of_sbatch_pass_with_their_meaning(tmp_path: Path) -> None:
    words = ["-p", "gpu", "-Aproj", "--time=30", "-t", "40", "--gres", "gpu:a100:2", "--exclusive"]
    options = read_options(words)
    assert options == {
        "partition": "gpu", "account": "proj", "time": "40", "gres": "gpu:a100:2", "exclusive": "",
    }  # fmt: skip
    one, jobs = jobs_in(tmp_path / "s", cluster_of(tmp_path, account="other"), options=options)
    by_kind = {job.kind: sbatch_options(one, job) for job in jobs}
    assert by_kind["sample"]["gres"] == "gpu:a100:2"
    assert by_kind["sample"]["time"] == "40"
    for found in by_kind.values():
        assert (found["account"], found["partition"]) == ("proj", "gpu")
    assert "gres" not in by_kind["light"]
    assert by_kind["light"]["time"] == "01:00:00"


@pytest.mark.parametrize(
    ("keys", "words", "there", "gone"),
    [
        ({"memory": "8G"}, ["--mem-per-cpu=2G"], "mem-per-cpu", "mem"),
        ({"memory": "8G", "options": {"mem-per-gpu": "9G"}}, [], "mem-per-gpu", "mem"),
        ({"gpus": 2}, ["-G", "4"], "gpus", "gres"),
        ({"gpus": 2}, ["--gpus-per-node=a100:2"], "gpus-per-node", "gres"),
        ({"gpus": 2, "options": {"gpus-per-task": "1"}}, [], "gpus-per-task", "gres"),
        ({"gpus": 2}, ["--cpus-per-gpu=4"], "cpus-per-gpu", "cpus-per-task"),
        ({}, ["--mem=1G", "--mem-per-cpu=2G"], "mem-per-cpu", "mem"),
    ],
)
def test_an_option_removes_its_rivals(
    tmp_path: Path, keys: dict[str, object], words: list[str], there: str, gone: str
) -> None:
    cluster = cluster_of(tmp_path, sample={"gpus": 1, **keys})
    draft, jobs = jobs_in(tmp_path / "s", cluster, options=read_options(words))
    (options,) = (sbatch_options(draft, job) for job in jobs if job.name == "sample")
    assert there in options
    assert gone not in options


def test_gpus_of_a_type_are_asked_for_in_the_sites_way(tmp_path: Path) -> None:
    for option, value in (("gres", "gpu:a100:2"), ("gpus-per-node", "a100:2")):
        folder = tmp_path / option
        folder.mkdir()
        kind = {"gpus": 2, "gpu_type": "a100"}
        draft, jobs = jobs_in(folder / "s", cluster_of(folder, sample=kind, gpu_option=option))
        assert sbatch_options(draft, jobs[0])[option] == value


def test_jobs_that_ask_a_server_ask_for_no_gpu_and_get_their_key(tmp_path: Path) -> None:
    endpoint = "{url: 'http://h/v1', model: m, key_env: MY_KEY}"
    text = SAMPLED.replace("{path: model}", f"{{endpoint: {endpoint}}}")
    kind = {"gpus": 1, "options": {"gres": "gpu:1", "cpus-per-gpu": "4"}}
    cluster = cluster_of(tmp_path, sample=kind, container={"image": "/i.sif"})
    draft, jobs = jobs_in(tmp_path / "s", cluster, text)
    (job,) = (job for job in jobs if job.kind == "sample")
    assert job.name == "sample-endpoint"
    assert not [name for name in sbatch_options(draft, job) if "gpu" in name or name == "gres"]
    assert "MY_KEY" in " ".join(setup_lines(draft, job))


@pytest.mark.parametrize("limit", ["3", "3:00", "0:03:00", "0-0:3"])
def test_a_job_that_would_be_warned_before_it_begins_is_refused(tmp_path: Path, limit: str) -> None:
    draft, jobs = jobs_in(tmp_path / "s", cluster_of(tmp_path, warning=180))
    options = read_options(["-t", limit])
    with pytest.raises(UserError, match=r"time of sample: found .*`warning` of 180 s"):
        sbatch_options(replace(draft, options=options), jobs[0])
    sbatch_options(replace(draft, options={"time": "4"}), jobs[0])


def test_minutes_may_be_many(tmp_path: Path) -> None:
    assert cluster_of(tmp_path, sample={"time": "2880"}).sample.time == "2880"


def test_the_environment_that_launches_is_that_of_the_jobs(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path)
    assert clusters.parent_python(cluster) == sys.executable
    assert clusters.rlbhpc_command(cluster) == [sys.executable, "-m", "rlbhpc"]
    assert clusters.rlbhpc_command(cluster_of(tmp_path, container={"image": "/i"})) == ["rlbhpc"]
    pythons = {
        ("/v/bin/rlbhpc",): ["/v/bin/python"],
        ("rlbhpc",): ["python"],
        ("uv", "run", "rlbhpc"): ["uv", "run", "python"],
        ("/v/bin/python3", "-m", "rlbhpc"): ["/v/bin/python3"],
    }
    assert {words: clusters.python_of(list(words)) for words in pythons} == pythons


def test_a_home_that_may_not_be_read_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    monkeypatch.setattr(Path, "glob", _denied(Path.glob))
    assert {"generic", "dev"} <= set(table())


def _denied(glob: Callable[..., Iterator[Path]]) -> Callable[..., Iterator[Path]]:
    def look(folder: Path, pattern: str) -> Iterator[Path]:
        if "nowhere" in str(folder):
            raise PermissionError(13, "Permission denied", str(folder))
        return glob(folder, pattern)

    return look


@pytest.mark.parametrize("name", REFUSED_OPTIONS)
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
    assert load_cluster(known["generic"]) == clusters.Cluster()
    assert len(known) >= 5
    for path in known.values():
        load_cluster(path)


def test_a_cluster_is_found_by_name_file_and_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.yaml").write_text("hosts: ['login*.here']\nmax_jobs: 9\n")
    monkeypatch.setenv("RLBHPC_CLUSTERS", str(tmp_path))
    monkeypatch.setattr(socket, "getfqdn", lambda: "login3.here")
    assert choose(None) == choose("mine")
    assert choose(str(tmp_path / "mine.yaml"))[1].max_jobs == 9
    monkeypatch.setattr(socket, "getfqdn", lambda: "elsewhere")
    assert choose(None)[0] == "generic"
    with pytest.raises(UserError, match="did you mean mine"):
        choose("mien")
    monkeypatch.setattr(clusters, "BUILT_IN", ())
    assert choose(None) == ("generic", clusters.Cluster())


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
        "12_[3,5-8%4]|PENDING|Resources|me\n12_1|RUNNING|None|me\n9|CANCELLED by 1000|0:0|me\n"
        "13_2|OUT_OF_MEMORY|0:125|me\nnonsense\n9.batch|FAILED|1:0|me\n"
    )
    rows = slurm.parse_rows(text)
    assert [(r.job, r.task) for r in rows] == [
        (12, 3), (12, 5), (12, 6), (12, 7), (12, 8), (12, 1), (9, -1), (13, 2),
    ]  # fmt: skip
    assert [r.state for r in rows[-2:]] == ["CANCELLED", "OUT_OF_MEMORY"]


@given(st.sets(st.integers(0, 60), min_size=1))
def test_ranges_are_what_squeue_writes(numbers: set[int]) -> None:
    ids = slurm.parse_ids(f"7_[{slurm.format_ranges(numbers)}]")
    assert ids == [(7, number) for number in sorted(numbers)]


def test_a_study_of_the_same_name_and_arms_with_other_models_is_refused(tmp_path: Path) -> None:
    path, study = study_in(tmp_path / "s")
    store_study(study)
    reject_namesake(study)
    for weights in (tmp_path / "s" / "model").glob("*.safetensors"):
        weights.write_bytes(b"other weights")
    with pytest.raises(UserError) as refused:
        reject_namesake(load_study(path))
    assert "sampled" in str(refused.value) and "`name`" in str(refused.value)
