"""A real Slurm: limits, disturbances, and the very cube of a local run at the end."""

from __future__ import annotations

import hashlib
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rlbhpc.launch.slurm import Row
from rlbhpc.store.compact import compact
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import load_study
from tests.launch.site import IMAGE, NODES, STATE, USER, Site, site

__all__ = ["site"]
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(3600)]

STUDY = """
name: tiny
models:
  base: {path: model}
problem_sets:
  countdown: {subset: test, limit: 23}
arms:
  base: {model: base, prompt: countdown, temperature: 1.0, max_tokens: 12, n: SAMPLES}
engine: {name: hf, dtype: float32, options: {rows: 32}}
"""
TRAINED = """
name: tiny
models:
  base: {path: model}
  rl: {train: {from: base, recipe: grpo}, steps: [1, 2]}
recipes:
  grpo:
    algorithm: grpo
    problems: learn
    prompt: countdown
    prompts_per_step: 4
    samples_per_prompt: 4
    max_tokens: 12
    learning_rate: 1e-3
problem_sets:
  learn: {set: countdown, subset: train, limit: 8}
  countdown: {subset: test, limit: 8}
sampling: {prompt: countdown, temperature: 1.0, max_tokens: 12, n: SAMPLES}
arms:
  base: {model: base}
  rl: {model: rl}
engine: {name: hf, dtype: float32, options: {rows: 32}}
"""


def study_at(site: Site, samples: int, text: str = STUDY) -> Path:
    from rlbhpc.engines.tiny import make_tiny_model

    make_tiny_model(site.folder / "model", hidden_size=32)
    path = site.folder / "tiny.yaml"
    path.write_text(text.replace("SAMPLES", str(samples)))
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


def ids(site: Site, run: Path) -> list[str]:
    folder = sorted((run / "launches").iterdir())[-1]
    lines = (folder / "submitted").read_text().splitlines()
    return [line.split()[1] for line in lines if not line.endswith("?")]


def test_more_shards_than_an_array_may_have_end_in_the_local_cube(site: Site) -> None:
    study = study_at(site, samples=4)
    words = ("--cluster", str(site.cluster()), "--shard-tokens", shard_tokens(study, 23))
    site.rlbhpc("launch", str(study), *words, "--submit")
    run = site.folder / "runs" / "tiny"
    found = site.status(str(run))
    (launch,) = found["launches"]
    assert sorted(n for them in launch["shards"].values() for n in them) == list(range(23))
    assert len(ids(site, run)) == 5 + 2, "one sbatch per wave, one to compact, one to report"
    site.idle()
    assert site.status(str(run))["missing"] == 0
    assert digest((run / "cube.zarr").resolve()) == local_cube(site, study)
    assert (run / "report" / "report.html").is_file()
    assert len([p for p in run.rglob("*") if p.is_file() and "report" not in p.parts]) < 300
    site.rlbhpc("launch", str(study), *words, codes=(4,))


def test_training_and_sampling_in_one_launch(site: Site) -> None:
    study = study_at(site, samples=4, text=TRAINED)
    site.rlbhpc("launch", str(study), "--cluster", str(site.cluster()), "--submit")
    run = site.folder / "runs" / "tiny"
    scripts = {path.stem for path in (run / "launches" / "0001").glob("*.sbatch")}
    assert scripts == {"train-rl", "sample", "sample-rl-1", "sample-rl-2", "compact", "report"}
    site.idle()
    found = site.status(str(run))
    assert (found["missing"], found["failures"]) == (0, [])
    assert digest((run / "cube.zarr").resolve()) == local_cube(site, study)
    assert (run / "report" / "report.html").is_file()


def test_training_and_sampling_inside_an_image(site: Site) -> None:
    if not IMAGE.is_file():
        pytest.skip("no image here: make cluster-up")
    study = study_at(site, samples=2, text=TRAINED)
    stage = site.folder / "stage"
    table = site.cluster(**site.image(), stage=str(stage))
    site.rlbhpc("launch", str(study), "--cluster", str(table), "--submit")
    site.idle()
    run = site.folder / "runs" / "tiny"
    found = site.status(str(run))
    assert (found["missing"], found["failures"]) == (0, [])
    assert {path.name for path in stage.glob("*/*.safetensors")} == {"model.safetensors"}
    assert digest((run / "cube.zarr").resolve()) == local_cube(site, study)
    assert (run / "report" / "report.html").is_file()


def test_a_limit_of_the_queue_is_told_and_then_kept(site: Site) -> None:
    study = study_at(site, samples=2)
    done = site.root("sacctmgr", "-iQ", "modify", "user", USER, "set", "MaxSubmitJobs=3")
    assert done.returncode == 0, done.stderr
    tokens = ("--shard-tokens", shard_tokens(study, 23))
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
    study = study_at(site, samples=2)
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
    assert "not with this qos" in full.stderr
    site.rlbhpc("launch", *words)
    site.idle()
    assert site.status(str(site.folder / "runs" / "tiny"))["missing"] == 0


class Disturbances:
    """What goes wrong on clusters; each at a moment that nobody chose."""

    def __init__(self, site: Site, study: Path, words: tuple[str, ...], rng: random.Random) -> None:
        self.site, self.study, self.words, self.rng = site, study, words, rng
        self.run = site.folder / "runs" / "tiny"

    def running(self) -> list[Row]:
        return [row for row in self.site.queue() if row.state == "RUNNING" and row.task >= 0]

    def one(self) -> str:
        """The id of a task that runs; waits for one."""
        found: list[Row] = []

        def look() -> bool:
            found[:] = self.running() or ([] if self.site.queue() else [Row(0, 0, "", "")])
            return bool(found)

        self.site.until("a running task", look)
        row = self.rng.choice(found)
        return f"{row.job}_{row.task}" if row.job else ""

    def preempt(self) -> None:
        node = self.rng.choice(NODES)
        self.site.run(
            "sbatch", "-p", "high", "--exclusive", "-w", node, "-t", "1", "-o", "/dev/null",
            "--wrap", "sleep 3",
        )  # fmt: skip

    def time_limit(self) -> None:
        self.site.run("scontrol", "update", f"JobId={self.one()}", "TimeLimit=1")

    def warn(self) -> None:
        number = self.rng.choice(["USR1", "USR2", "TERM"])
        self.site.run("scancel", f"--signal={number}", "--batch", self.one())

    def requeue(self) -> None:
        self.site.run("scontrol", "requeue", self.one())

    def node_down(self) -> None:
        node = self.rng.choice(NODES)
        down = ("scontrol", "update", f"nodename={node}")
        self.site.root(*down, "state=down", "reason=test")
        # A node that comes back before its old jobs have ended is drained by Slurm, and they are
        # held: "Duplicate jobid".
        time.sleep(self.rng.uniform(12, 15))
        self.site.root(*down, "state=resume")

    def controller_restarts(self) -> None:
        self.site.daemons(f"stop {STATE}/pid/slurmctld.pid slurmctld")
        time.sleep(self.rng.uniform(0, 3))
        self.site.daemons("start_slurmctld")
        self.site.until("slurmctld", self.site.answers)

    def accounting_stops(self) -> None:
        self.site.daemons(f"stop {STATE}/pid/slurmdbd.pid slurmdbd")
        self.site.status(str(self.run))
        self.site.daemons("start_slurmdbd")

    def twice(self) -> None:
        folder = sorted((self.run / "launches").iterdir())[-1]
        script = self.rng.choice(sorted(folder.glob("sample*.sbatch")))
        done = self.site.run("sbatch", f"--chdir={folder}", str(script))
        assert done.returncode == 0, done.stderr

    def killed(self) -> None:
        found = subprocess.run(
            ["pgrep", "-u", USER, "-a", "-f", "rlbhpc run"], text=True, capture_output=True,
            check=False,
        ).stdout.splitlines()  # fmt: skip
        work = [line.split()[0] for line in found if " -m host " not in line]
        if work:
            subprocess.run(["kill", "-KILL", self.rng.choice(work)], check=False)

    def cancelled(self) -> None:
        if self.rng.random() < 0.5:
            self.site.rlbhpc("cancel", str(self.run), codes=(0, 4))
        else:
            self.site.run("scancel", f"--user={USER}")
        self.site.idle()
        self.launch()

    def launch(self) -> None:
        self.site.rlbhpc("launch", str(self.study), *self.words, "--submit", codes=(0, 4))

    def kinds(self) -> list[Callable[[], None]]:
        return [
            self.preempt, self.requeue, self.warn, self.node_down, self.controller_restarts,
            self.cancelled, self.time_limit, self.accounting_stops, self.twice, self.killed,
        ]  # fmt: skip


def test_disturbances_lose_and_double_nothing(site: Site, soak: bool) -> None:
    rng = random.Random(277)
    rounds = 10 if soak else 1
    for _ in range(rounds):
        disturbed(site, rng)
        for path in site.folder.iterdir():
            if path.name in ("runs", "local"):
                subprocess.run(["rm", "-r", str(path)], check=True)


def disturbed(site: Site, rng: random.Random) -> None:
    """One study with five disturbances of different kinds."""
    # Long enough that what goes wrong meets jobs at work.
    study = study_at(site, 250, STUDY.replace("max_tokens: 12", "max_tokens: 64"))
    words = ("--cluster", str(site.cluster()), "--shard-tokens", shard_tokens(study, 8))
    made = Disturbances(site, study, words, rng)
    made.launch()
    present = 0
    for disturb in rng.sample(made.kinds(), 5):
        time.sleep(rng.uniform(0, 5))
        before = len(made.running())
        disturb()
        now = sum(row["present"] for row in site.status(str(made.run))["samples"])
        assert now >= present, f"{disturb.__name__}: a sample that was stored is gone"
        present = now
        print(f"{disturb.__name__}: {present} samples, {before} tasks ran", flush=True)
    site.idle()
    assert not site.left_behind(), "a job is left behind"
    found = site.status(str(made.run))
    assert found["missing"] == 0, f"it went on by itself: {found}"
    site.rlbhpc("compact", str(made.run), codes=(0, 4))
    assert digest((made.run / "cube.zarr").resolve()) == local_cube(site, study)
