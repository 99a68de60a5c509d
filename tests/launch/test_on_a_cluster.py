"""A real Slurm: limits, disturbances, and the very cube of a local run at the end."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from safetensors.torch import load_file

from rlbhpc.store.compact import compact
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import load_study
from rlbhpc.sweep.attempt import read_attempts
from tests.launch.made import tiny, tiny_trained
from tests.launch.site import IMAGE, NODES, SECOND, USER, Site, site
from tests.store import reading

__all__ = ["site"]
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(3600)]

# A reward from which weights move, and that takes long enough for a warning in the midst of steps.
SLOW = """
import time

def reward(judged):
    time.sleep(0.2)
    return float(judged.draw("coin") < 0.5)
"""


def study_at(site: Site, text: str) -> Path:
    from rlbhpc.engines.tiny import make_tiny_model

    make_tiny_model(site.folder / "model", hidden_size=32)
    path = site.folder / "tiny.yaml"
    path.write_text(text)
    site.own()
    return path


def digest(cube: Path) -> dict[str, str]:
    return {
        str(path.relative_to(cube)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(cube.rglob("*"))
        if path.is_file()
    }


def local_cube(site: Site, study: Path) -> dict[str, str]:
    """The cube of the same study, sampled by one process without any scheduler."""
    run = site.folder / "local"
    for verb in ("train", "sample"):
        done = subprocess.run(
            [site.python, "-m", "rlbhpc", verb, str(study), "--set", f"output={run}"],
            env=site.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode in (0, 4), done.stderr
    return digest(compact(Layout(run)).store)


def shard_tokens(study: Path, shards: int) -> str:
    loaded = load_study(study)
    total = sum(block.size for block in loaded.blocks())
    return str(round(total * loaded.arms["base"].sampling.max_tokens / shards))


def doubles(run: Path) -> int:
    """Samples that were drawn more than once, by the journals themselves."""
    drawn = Counter[tuple[object, ...]]()
    for path in (run / "journals").rglob("*.journal"):
        table = reading.read_journal(path, ["arm", "step", "problem", "sample"]).table
        drawn.update(tuple(row.values()) for row in table.to_pylist())
    return sum(count - 1 for count in drawn.values())


def ids(site: Site, run: Path) -> list[str]:
    folder = sorted((run / "launches").iterdir())[-1]
    lines = (folder / "submitted").read_text().splitlines()
    return [line.split()[1] for line in lines if not line.endswith("?")]


def test_more_shards_than_an_array_may_have_end_in_the_local_cube(site: Site) -> None:
    study = study_at(site, tiny(4))
    words = ("--cluster", str(site.cluster()), "--shard-tokens", shard_tokens(study, 11))
    site.rlbhpc("launch", str(study), *words, "--submit")
    run = site.folder / "runs" / "tiny"
    found = site.status(str(run))
    (launch,) = found["launches"]
    assert sorted(n for them in launch["shards"].values() for n in them) == list(range(11))
    assert len(ids(site, run)) == 3 + 2, "one sbatch per wave, one to compact, one to report"
    site.idle()
    assert site.status(str(run))["missing"] == 0
    assert digest((run / "cube.zarr").resolve()) == local_cube(site, study)
    assert (run / "report" / "report.html").is_file()
    assert len([p for p in run.rglob("*") if p.is_file() and "report" not in p.parts]) < 300
    site.rlbhpc("launch", str(study), *words, codes=(4,))


def test_one_study_has_one_cube_wherever_it_runs(site: Site) -> None:
    """On Slurm bare and in an image, and on this machine; edits while jobs wait change nothing."""
    if not IMAGE.is_file():
        pytest.skip("no image here: make cluster-up")
    study = study_at(site, tiny_trained(4))
    text = study.read_text()
    edited = tiny_trained(4, learning_rate=1e-5)
    runs = {name: site.folder / name for name in ("bare", "image", "local")}

    def launch(name: str, table: str, *words: str) -> subprocess.CompletedProcess[str]:
        run = f"output={runs[name]}"
        return site.run(
            site.python, "-m", "rlbhpc", "launch", str(study), "--set", run, "--cluster", table,
            *words,
        )  # fmt: skip

    for node in NODES:
        site.root("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    assert launch("bare", str(site.cluster()), "--submit").returncode == 0
    stage = site.folder / "stage"
    inside = site.cluster(**site.image(), stage=str(stage))
    assert launch("image", str(inside), "--submit").returncode == 0
    scripts = {path.stem for path in (runs["bare"] / "launches" / "0001").glob("*.sbatch")}
    assert scripts == {"train-rl", "sample", "sample-rl-1", "sample-rl-2", "compact", "report"}
    study.write_text(edited)
    waiting = launch("bare", str(site.cluster()))
    assert waiting.returncode == 64 and "trains rl" in waiting.stderr, waiting.stderr
    for node in NODES:
        site.root("scontrol", "update", f"nodename={node}", "state=resume")
    site.idle()
    refused = launch("bare", str(site.cluster()))
    assert refused.returncode == 64, refused.stdout
    made_by, study_says = re.findall(r"\b[0-9a-f]{12}\b", refused.stderr)
    assert made_by != study_says
    study.write_text(text)
    done = launch("local", "local", "--submit")
    assert done.returncode == 0, done.stderr
    cubes = {name: digest((run / "cube.zarr").resolve()) for name, run in runs.items()}
    for name, cube in cubes.items():
        assert cube == cubes["bare"], f"{name} differs from bare"
    for name in ("bare", "image"):
        status = site.status(str(runs[name]))
        assert (status["missing"], status["failures"]) == (0, [])
        assert (runs[name] / "report" / "report.html").is_file()
    assert {path.name for path in stage.glob("*/*.safetensors")} == {"model.safetensors"}


def test_a_task_on_two_nodes_deals_its_shards_to_them(site: Site) -> None:
    study = study_at(site, tiny(4))
    sample = {"partition": "low", "time": "10", "cpus": 1, "nodes": 2}
    words = ("--cluster", str(site.cluster(sample=sample)), "--width", "1", "--submit")
    site.rlbhpc("launch", str(study), *words, "--shard-tokens", shard_tokens(study, 4))
    site.idle()
    run = site.folder / "runs" / "tiny"
    assert site.status(str(run))["missing"] == 0, site.last_words()
    assert digest((run / "cube.zarr").resolve()) == local_cube(site, study)
    workers = Counter(attempt["pid"] for attempt in read_attempts(Layout(run)))
    assert sorted(workers.values()) == [2, 2]
    assert doubles(run) == 0


# What runs in the image holds all that runs outside of it, and each takes minutes.
PLACES = ["bare", "image"] if os.environ.get("RLBHPC_SOAK") == "1" else ["image"]


@pytest.mark.parametrize("place", PLACES)
def test_training_on_two_nodes_is_warned_killed_and_goes_on(site: Site, place: str) -> None:
    if place == "image" and not IMAGE.is_file():
        pytest.skip("no image here: make cluster-up")
    options = {"save_every": 1000, "rewards": {"./slow.py": 1.0}}
    study = study_at(site, tiny_trained(2, steps=[12], options=options))
    study.with_name("slow.py").write_text(SLOW)
    site.own()
    train = {"partition": "low", "time": "10", "cpus": 2, "nodes": 2, "gpus": 2}
    table = site.cluster(train=train, **(site.image() if place == "image" else {}))
    site.rlbhpc("launch", str(study), "--cluster", str(table), "--submit", "--only", "train")
    run = site.folder / "runs" / "tiny"
    (job,) = ids(site, run)
    dynamics = run / "training" / "rl" / "dynamics.jsonl"

    def steps() -> int:
        return len(dynamics.read_text().splitlines()) if dynamics.exists() else 0

    site.until("a first step", lambda: steps() >= 1)
    site.run("scancel", "--signal=USR1", "--batch", job)
    site.until("a requeue", lambda: site.restarts(job) == 1)
    assert list((run / "training" / "rl" / "state").iterdir()), "nothing else saves that early"
    before = steps()
    site.until("another step", lambda: steps() > before or not site.queue())
    assert steps() > before, site.last_words()
    site.kill({f"SLURM_JOB_ID={job}", "RANK=3"})
    site.idle()
    log = next((run / "launches" / "0001" / "logs").iterdir()).read_text()
    assert "Exited with exit code 75" in log.partition("restart 1")[0], "drained, and said so"
    assert site.restarts(job) == 2
    assert not list(Path("/tmp").glob(f"rlbhpc-{job}-*")), "every node removes its folder"
    done = site.run(site.python, "-m", "rlbhpc", "train", str(study), "--set", "output=one-node")
    assert done.returncode == 0, done.stderr
    several, single = (
        load_file(folder / "models" / "rl" / "step-12" / "model.safetensors")
        for folder in (run, site.folder / "one-node")
    )
    base = load_file(site.folder / "model" / "model.safetensors")
    assert max((base[name] - weights).abs().max() for name, weights in single.items()) > 2e-3
    for name, weights in single.items():
        # A key's bias has a gradient of little but rounding, and Adam moves it as far as any other.
        if not name.endswith("k_proj.bias"):
            assert (weights - several[name]).abs().max() < 1e-4, name


def test_a_limit_of_the_queue_is_told_and_then_kept(site: Site) -> None:
    study = study_at(site, tiny(2))
    done = site.root("sacctmgr", "-iQ", "modify", "user", USER, "set", "MaxSubmitJobs=3")
    assert done.returncode == 0, done.stderr
    tokens = ("--shard-tokens", shard_tokens(study, 11))
    table = str(site.cluster())
    refused = site.run(
        site.python, "-m", "rlbhpc", "launch", str(study), "--cluster", table, *tokens, "--submit"
    )
    assert refused.returncode == 75
    assert "max_jobs" in refused.stderr
    site.rlbhpc("cancel", str(study), codes=(0, 4))
    site.idle()
    table = str(site.cluster(max_jobs=3))
    site.rlbhpc("launch", str(study), "--cluster", table, *tokens, "--submit")
    site.idle()
    run = site.folder / "runs" / "tiny"
    assert site.status(str(run))["missing"] == 0
    assert digest((run / "cube.zarr").resolve()) == local_cube(site, study)


def test_a_qos_that_refuses_is_told_and_leaves_nothing_in_the_queue(site: Site) -> None:
    study = study_at(site, tiny(2))
    words = (str(study), "--cluster", str(site.cluster()), "--submit")

    def refused(qos: str) -> subprocess.CompletedProcess[str]:
        done = site.run(site.python, "-m", "rlbhpc", "launch", *words, "-q", qos)
        assert not site.queue()
        return done

    unknown = refused("no-such-qos")
    assert unknown.returncode == 64
    assert "Invalid qos" in unknown.stderr and "submit.sh again" in unknown.stderr
    site.root("sacctmgr", "-iQ", "add", "qos", "closed", "set", "MaxSubmitJobsPerUser=0")
    site.root("sacctmgr", "-iQ", "modify", "user", USER, "set", "qos+=closed")
    full = refused("closed")
    assert full.returncode == 75
    assert "QOSMaxSubmitJobPerUserLimit" in full.stderr and "--width" in full.stderr
    site.rlbhpc("launch", *words)
    site.idle()
    assert site.status(str(site.folder / "runs" / "tiny"))["missing"] == 0


@pytest.mark.parametrize("place", PLACES)
def test_the_rehearsal_brings_a_warned_task_back_and_no_cancelled_one(
    site: Site, place: str
) -> None:
    if place == "image" and not IMAGE.is_file():
        pytest.skip("no image here: make cluster-up")
    table = site.cluster(**(site.image() if place == "image" else {}))
    runs = str(site.folder / "runs")
    text = site.rlbhpc("doctor", runs, "--rehearse", "--cluster", str(table))
    # Why a job waits is told as long as it does; how long that is depends on the queue.
    told = [line for line in text.splitlines()[1:] if not line.startswith("in the queue: ")]
    assert told == [
        "it started, with rlbhpc in it",
        "it was warned, and drained",
        "it came back by itself",
        "it was cancelled, and drained",
        "it stays away",
    ]
    assert not list((site.folder / "runs").iterdir()), "its files are removed"


def test_the_rehearsal_finds_what_would_not_start(site: Site) -> None:
    table = str(site.cluster(rlbhpc=["/no/such"]))
    text = site.rlbhpc(
        "doctor", str(site.folder / "runs"), "--rehearse", "--cluster", table, codes=(3,)
    )
    assert "not: it started, with rlbhpc in it" in text


def test_an_ordinary_user_without_a_readable_home_launches(site: Site) -> None:
    study = study_at(site, tiny(2))
    home = site.folder / "home"
    home.mkdir(mode=0o000)
    site.environment["HOME"] = str(home)
    site.rlbhpc("launch", str(study), "--cluster", str(site.cluster()), "--submit")
    site.idle()
    assert site.status(str(site.folder / "runs" / "tiny"))["missing"] == 0
    (site.folder / "runs" / "tiny").chmod(0o700)
    colleague = site.run(
        site.python, "-m", "rlbhpc", "status", str(site.folder / "runs" / "tiny"), user=SECOND
    )
    assert colleague.returncode in (64, 75)
    assert len(colleague.stderr.splitlines()) == 1 and "not readable" in colleague.stderr
    entry = site.run(site.python, "-m", "rlbhpc", "doctor", str(site.folder), "--write", "here")
    assert entry.returncode == 64
    assert "Traceback" not in entry.stderr
    assert f"{home}/.config" in entry.stderr


def test_where_no_job_may_requeue_itself_another_launch_goes_on(site: Site) -> None:
    study = study_at(site, tiny(250, max_tokens=64))
    words = ("--cluster", str(site.cluster()), "--shard-tokens", shard_tokens(study, 3))
    site.rlbhpc("launch", str(study), *words, "--submit")
    run = site.folder / "runs" / "tiny"
    sampling, *_ = ids(site, run)

    def at_work() -> bool:
        logs = (run / "launches" / "0001" / "logs").glob(f"*-{sampling}_1.log")
        return any("parent: job" in log.read_text() for log in logs)

    site.until("a task at work", at_work)
    done = site.root("scontrol", "update", f"JobId={sampling}_1", "Requeue=0")
    assert done.returncode == 0, done.stderr
    site.run("scancel", "--signal=USR1", "--batch", f"{sampling}_1")
    site.idle()
    assert site.status(str(run))["missing"] > 0
    site.rlbhpc("launch", str(study), *words, "--submit")
    site.idle()
    assert site.status(str(run))["missing"] == 0
    assert digest((run / "cube.zarr").resolve()) == local_cube(site, study)


def test_a_job_that_took_too_much_memory_is_told_so(site: Site) -> None:
    """Slurm kills the whole job, its parent too, and calls that FAILED: only the log knows."""
    study = study_at(site, tiny(2))
    table = str(site.cluster())
    site.rlbhpc("launch", str(study), "--cluster", table, "--submit", "--mem=90M")
    site.idle()
    (cause,) = json.loads(site.rlbhpc("doctor", str(study), "--json", codes=(3,)))
    assert cause["cause"] == "the job's memory is full", f"{cause}\n{site.last_words()}"
    assert "memory limit" in cause["evidence"]  # of two lines that Slurm writes
    assert "--mem" in cause["action"]
