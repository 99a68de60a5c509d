"""Studies, clusters and stub commands for the tests of launching."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import yaml

from rlbhpc.launch.cluster import Cluster, load_cluster
from rlbhpc.launch.jobs import Job, jobs_of
from rlbhpc.launch.launches import write_launch
from rlbhpc.launch.script import Draft
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.plan import make_plan
from rlbhpc.sweep.presence import presence

ROOT = Path(__file__).parents[2]
SAMPLED = """
name: sampled
models:
  base: {path: model}
problem_sets:
  countdown: {subset: test, limit: 6}
arms:
  base: {model: base, prompt: countdown, temperature: 1.0, max_tokens: 12, n: 8}
engine: {name: hf, dtype: float32}
"""
TRAINED = """
name: trained
models:
  base: {path: model}
  rl: {train: {from: base, recipe: grpo}, steps: [10, 20]}
recipes:
  grpo: {algorithm: grpo, problems: learn, prompt: countdown, max_tokens: 12}
problem_sets:
  learn: {set: countdown, subset: train, limit: 6}
  countdown: {subset: test, limit: 6}
sampling: {prompt: countdown, temperature: 1.0, max_tokens: 12, n: 8}
arms:
  base: {model: base}
  rl: {model: rl}
engine: {name: hf, dtype: float32}
"""
CONFIG = {"model_type": "qwen2", "max_position_embeddings": 512}


def study_in(folder: Path, text: str = SAMPLED) -> tuple[Path, Study]:
    """Write a study with a model that has no weights to speak of, and load it."""
    folder.mkdir(parents=True)
    # A path in a study is one line; the study itself may lie in any folder.
    model = next(p for p in (folder, *folder.parents) if "\n" not in str(p)) / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    (model / "model.safetensors").write_bytes(b"weights")
    path = folder / "study.yaml"
    path.write_text(text.replace("path: model", f"path: {json.dumps(str(model))}"))
    return path, load_study(path)


def cluster_of(folder: Path, **keys: object) -> Cluster:
    path = folder / "site.yaml"
    path.write_text(yaml.safe_dump(keys))
    return load_cluster(path)


def jobs_in(
    folder: Path,
    cluster: Cluster,
    text: str = SAMPLED,
    shard_tokens: int = 150,
    options: dict[str, str] | None = None,
    width: int | None = None,
) -> tuple[Draft, list[Job]]:
    _, study = study_in(folder, text)
    plan = make_plan(study, presence(study.layout, list(study.blocks())), shard_tokens)
    plan.save(study.layout.plans)
    draft = Draft(study, plan.name, cluster, "site", options or {})
    return draft, jobs_of(study, plan, cluster, width)


def launch_in(folder: Path, cluster: Cluster, **keys: object) -> Path:
    return write_launch(*jobs_in(folder, cluster, **keys))  # type: ignore[arg-type]


class Stubs:
    """Commands that stand in for those of a site; each call is recorded with its arguments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls_file = folder / "calls"
        folder.mkdir()

    def add(self, name: str, body: str = "") -> None:
        """A command that records its call and then runs some lines of bash."""
        path = self.folder / name
        path.write_text(
            "#!/bin/bash\n"
            "{ printf '%s\\0' " + name + " \"$@\"; printf '\\n\\0'; } >>"
            f"'{self.calls_file}'\n{body}\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def calls(self, name: str) -> list[list[str]]:
        """Arguments of every call of one command, in order."""
        if not self.calls_file.exists():
            return []
        records = self.calls_file.read_text().split("\n\0")
        split = [record.split("\0")[:-1] for record in records]
        return [words[1:] for words in split if words and words[0] == name]

    def run(self, *command: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.folder}:/usr/bin:/bin", "HOME": str(self.folder),
            "PYTHONPATH": str(ROOT), **more,
        }  # fmt: skip
        return subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, check=False,
            timeout=60,
        )  # fmt: skip


def slurm_variables(folder: Path, task: int | None = None) -> dict[str, str]:
    found = {"SLURM_JOB_ID": "7", "SLURM_SUBMIT_DIR": str(folder), "TMPDIR": os.fspath(folder)}
    if task is not None:
        found |= {"SLURM_ARRAY_JOB_ID": "6", "SLURM_ARRAY_TASK_ID": str(task)}
    return found
