"""What a script asks for and calls: of each kind of job, in an image and outside."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rlbhpc.launch import container
from rlbhpc.launch.script import job_command, read_options, resources_of, sbatch_options
from tests.launch.made import SAMPLED, TRAINED, cluster_of, jobs_in

RANKS = f"{sys.executable} -m rlbhpc.train.ranks --nproc-per-node"
ALONE = "--standalone --local-addr 127.0.0.1"
TOGETHER = (
    "--nnodes 2 --rdzv-backend c10d"
    ' --rdzv-id "$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}" --rdzv-endpoint'
    ' "{head}:$((20000 + (SLURM_JOB_ID + 97 * ${SLURM_RESTART_COUNT:-0}) % 12000))"'
)
STEP = "srun --ntasks-per-node=1"


@pytest.mark.parametrize(
    ("keys", "words", "step", "ranks"),
    [
        ({"gpus": 0}, [], None, None),
        ({"gpus": 1}, [], None, None),
        ({"gpus": 2}, [], None, f"{RANKS} 2 {ALONE}"),
        ({"gpus": 0, "nodes": 2}, [], f"{STEP} --cpus-per-task=4", f"{RANKS} 1 {TOGETHER}"),
        ({"gpus": 1, "nodes": 2}, [], f"{STEP} --cpus-per-task=4", f"{RANKS} 1 {TOGETHER}"),
        ({"gpus": 1, "nodes": 2}, ["--cpus-per-gpu=3"], STEP, f"{RANKS} 1 {TOGETHER}"),
    ],
)
def test_a_training_is_called_as_its_gpus_and_nodes_need(
    tmp_path: Path, keys: dict[str, int], words: list[str], step: str | None, ranks: str | None
) -> None:
    cluster = cluster_of(tmp_path, train=keys, warning=60, kill_wait=20)
    draft, jobs = jobs_in(tmp_path / "s", cluster, TRAINED, options=read_options(words))
    (job,) = (job for job in jobs if job.kind == "train")
    lines = job_command(draft, job).split(" \\\n    ")
    assert lines[0] == 'exec "$python" -m host --drain 50 --last 15 --scratch "$scratch"'
    words = [line.split()[0] for line in lines[1:4]]
    assert words == ["--progress", "--progress", "--needs"]
    assert lines[3].endswith("/config.json --")
    command = lines[4:]
    if step is not None:
        assert command.pop(0) == f"{step} --kill-on-bad-exit=0 --wait=50"
        assert command.pop(0) == '"$python" -m host.node "$scratch" --'
    called = f"{sys.executable} -m rlbhpc train study.json rl"
    assert command == ([called] if ranks is None else [ranks, "-m rlbhpc train study.json rl"])


def test_whoever_is_ended_soon_has_a_second_at_least(tmp_path: Path) -> None:
    draft, jobs = jobs_in(tmp_path / "s", cluster_of(tmp_path, warning=10, kill_wait=5))
    assert " --drain 1 --last 1 " in job_command(draft, jobs[0])
    assert job_command(draft, jobs[0]).endswith(" --grace 1")


@pytest.mark.parametrize(("gpus", "asked"), [(0, [0, 0]), (1, [2, 1]), (4, [4, 4])])
def test_a_task_that_samples_has_the_gpus_of_one_copy(
    tmp_path: Path, gpus: int, asked: list[int]
) -> None:
    kind = {"gpus": gpus}
    cluster = cluster_of(tmp_path, sample=kind, train=kind)
    text = TRAINED.replace("name: hf", "name: vllm, tensor_parallel: 2")
    draft, jobs = jobs_in(tmp_path / "s", cluster, text)
    by_kind = {job.kind: resources_of(draft, job).gpus for job in jobs}
    assert [by_kind["sample"], by_kind["train"]] == asked
    assert by_kind["light"] == 0


@pytest.mark.parametrize(("throttle", "array"), [(None, "0-3%4"), (3, "0-3%3"), (9, "0-3%4")])
def test_no_more_tasks_run_at_once_than_there_are(
    tmp_path: Path, throttle: int | None, array: str
) -> None:
    keys = {} if throttle is None else {"throttle": throttle}
    memory = {"memory": "8G", "gpus": 1}
    cluster = cluster_of(tmp_path, sample=memory, **keys)
    draft, jobs = jobs_in(tmp_path / "s", cluster, options=read_options(["--mail-type=END"]))
    options = [sbatch_options(draft, job) for job in jobs]
    assert [one.get("array") for one in options] == [array, None, None]
    assert [one.get("mem") for one in options] == ["8G", None, None]
    assert [one.get("mail-type") for one in options] == [None, None, "END"]
    assert [one["output"] for one in options] == ["logs/%x-%A_%a.log", *["logs/%x-%j.log"] * 2]


def test_an_image_sees_the_folders_of_a_study_as_they_are_called_and_where_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once, and none that lies inside another one."""
    monkeypatch.setenv("SITE", str(tmp_path / "site"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("real", "site"):
        (tmp_path / name / "in").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    inside = {"image": "$SITE/i.sif", "command": "singularity", "flags": ["--nv", "--rocm"],
              "binds": ["$SITE/in", "~/own", "~/own/in"]}  # fmt: skip
    cluster = cluster_of(tmp_path, container=inside, stage="/local")
    draft, _ = jobs_in(tmp_path / "s", cluster, SAMPLED)
    folders = [tmp_path / "link" / "in", tmp_path / "link", *container.study_folders(draft.study)]
    assert container.exec_lines(cluster, folders) == [
        'singularity exec --cleanenv --no-home --nv --rocm --pwd "$PWD" --bind "$scratch"',
        '--bind "$RLBHPC_STAGE"',
        *(f"--bind {tmp_path / name}"
          for name in ("home/own", "link", "real", "s/model", "s/runs/sampled", "site/in")),
        f"{tmp_path / 'site' / 'i.sif'}",
    ]  # fmt: skip
    assert container.exec_lines(cluster_of(tmp_path), folders) == []
