"""One job as a complete batch script that a person can read, edit and submit by hand."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rlbhpc import __version__
from rlbhpc.engines.staging import VARIABLE as STAGE
from rlbhpc.launch import container
from rlbhpc.launch.cluster import Cluster, Resources
from rlbhpc.launch.jobs import Job
from rlbhpc.launch.options import SIZES
from rlbhpc.study.study import Study

# Seconds of the warning that the parent keeps for itself: to kill, tidy up and requeue.
RESERVE = 10
# What samples are in flight get of the time before the work is killed.
SHARE = 0.8
# Caches of compilers; shared ones race and are slow on a cluster's file system.
CACHES = {
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "VLLM_CACHE_ROOT": "vllm",
    "XDG_CACHE_HOME": "cache",
}
# Nodes have no network; a home's own Python packages must not shadow those that were tested.
ALWAYS = {"HF_HUB_OFFLINE": "1", "PYTHONNOUSERSITE": "1", "PYTHONUNBUFFERED": "1"}
PORT = 29_500
IMAGE = "RLBHPC_IMAGE"


@dataclass(frozen=True)
class Launch:
    """What all scripts of one launch share.

    ``options`` are the sbatch options of the command line; ``study_words`` the study file and its
    overrides, as words of a command; ``image`` the SHA-256 of the image that jobs run in.
    """

    study: Study
    study_words: tuple[str, ...]
    plan: str
    number: str
    cluster: Cluster
    cluster_name: str
    options: dict[str, str]
    image: str = ""

    @property
    def prefix(self) -> str:
        """What the names of all its jobs begin with; the same in no other launch of the study."""
        return f"{self.study.name}-{self.plan[:6]}-{self.number}"


def script(launch: Launch, job: Job) -> str:
    """Text of the batch script of one job."""
    blocks = [_head(launch, job), _directives(launch, job), _set_up(launch, job)]
    if job.tasks:
        blocks.append(_table(job.tasks))
    blocks.append(_command(launch, job))
    return "\n\n".join(blocks) + "\n"


def _head(launch: Launch, job: Job) -> str:
    return (
        "#!/bin/bash\n"
        f"# Written by rlbhpc {__version__}: {job.name} of study {launch.study.name}"
        f" ({launch.study.hash}), plan {launch.plan},\n"
        f"# launch {launch.number}, cluster {launch.cluster_name}. Submit it with ./submit.sh. The"
        " same script starts, goes on\n# and is requeued: what is there already is not made again."
    )


def directives(launch: Launch, job: Job) -> dict[str, str]:
    """Options of sbatch for one job, by long name; those of the command line win."""
    asked, cluster = _resources(launch, job), launch.cluster
    found = {
        "comment": f"rlbhpc:{launch.prefix}",
        "cpus-per-task": str(asked.cpus),
        "job-name": f"{launch.prefix}-{job.name}",
        "nodes": str(asked.nodes),
        "ntasks-per-node": "1",
        "open-mode": "append",
        "output": "logs/%x-%A_%a.log" if job.tasks else "logs/%x-%j.log",
        "requeue": "",
        "signal": f"B:USR1@{cluster.warning}",
        "time": asked.time,
    }
    if asked.partition:
        found["partition"] = asked.partition
    if cluster.account:
        found["account"] = cluster.account
    if asked.memory:
        found["mem"] = asked.memory
    gpus = asked.gpus if job.gpu else 0
    if gpus:
        value = f"gpu:{gpus}" if cluster.gpu_option == "gres" else str(gpus)
        found[cluster.gpu_option] = value
    if job.tasks:
        throttle = min(cluster.throttle or len(job.tasks), len(job.tasks))
        found["array"] = f"0-{len(job.tasks) - 1}%{throttle}"
    found |= asked.options
    light = job.kind == "light"
    found |= {k: v for k, v in launch.options.items() if not (light and k in SIZES)}
    return found


def _resources(launch: Launch, job: Job) -> Resources:
    asked: Resources = getattr(launch.cluster, job.kind)
    if job.kind == "sample" and asked.gpus:
        # One task is one copy of the model, on the GPUs that share it.
        together = launch.study.file.engine.tensor_parallel
        asked = asked.model_copy(update={"gpus": max(asked.gpus, together)})
    return asked


def _directives(launch: Launch, job: Job) -> str:
    lines = sorted(directives(launch, job).items())
    return "\n".join(f"#SBATCH --{name}={value}" if value else f"#SBATCH --{name}"
                     for name, value in lines)  # fmt: skip


def _set_up(launch: Launch, job: Job) -> str:
    cluster = launch.cluster
    lines = ["set -u", 'cd "${SLURM_SUBMIT_DIR:-.}" || exit 64', *cluster.setup]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in
              sorted({**ALWAYS, **cluster.environment}.items())]  # fmt: skip
    lines.append(f'scratch="{cluster.scratch}/rlbhpc-${{SLURM_JOB_ID:-$$}}"')
    lines.append('export TMPDIR="$scratch"')
    lines += [f'export {name}="$scratch/{folder}"' for name, folder in CACHES.items()]
    staging = [STAGE] if cluster.stage is not None else []
    lines += [f'export {STAGE}="{cluster.stage}"; mkdir -p "${STAGE}"' for _ in staging]
    if cluster.container is not None:
        # Attempts record in which image they ran.
        lines.append(f"export {IMAGE}={launch.image or 'unknown'}")
        lines.append(container.exports([*ALWAYS, *cluster.environment, *CACHES, *staging, IMAGE]))
    if job.kind == "train" and _resources(launch, job).nodes > 1:
        lines.append('head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)')
    return "\n".join(lines)


def _table(tasks: Sequence[Sequence[int]]) -> str:
    """Shards of each array task, as an array of the shell."""
    words = [",".join(map(str, task)) for task in tasks]
    lines, line = [], "   "
    for word in words:
        if len(line) + len(word) > 98:
            lines.append(line)
            line = "   "
        line += f" {word}"
    return "\n".join(
        ["# Shards of the plan, one word per array task.", "shards=(", *lines, line, ")"]
    )


def _command(launch: Launch, job: Job) -> str:
    """Hand over to the parent, which runs the work."""
    cluster, study = launch.cluster, launch.study
    drain = max(1, cluster.warning - RESERVE)
    last = max(1, cluster.kill_wait - RESERVE // 2)
    lines = [f'exec {cluster.python} parent.py --drain {drain} --last {last} --scratch "$scratch"']
    if job.needs:
        lines.append(f"--needs {shlex.quote(str(study.folder(*job.needs) / 'config.json'))}")
    for model, step, name in job.releases:
        path = study.folder(model, step) / "config.json"
        lines.append(f"--release {shlex.quote(f'{path}={name}')}")
    lines[-1] += " --"
    if job.kind == "train" and cluster.train.nodes > 1:
        lines.append("srun --ntasks-per-node=1 --kill-on-bad-exit=1")
    lines += container.runner(launch)
    lines += _work(launch, job, round(drain * SHARE))
    return " \\\n    ".join(lines)


def _work(launch: Launch, job: Job, grace: int) -> list[str]:
    """The command of rlbhpc itself, in lines."""
    if job.kind == "train":
        assert job.model is not None
        return _training(launch, job.model)
    rlbhpc = shlex.join(launch.cluster.rlbhpc)
    if job.tasks:
        plan = shlex.quote(f"../../plans/{launch.plan}.json")
        shards = '--shards "${shards[$SLURM_ARRAY_TASK_ID]}"'
        return [f"{rlbhpc} run {plan} {shards} --grace {grace}"]
    words = [*job.words, *(launch.study_words if job.on_study else ())]
    return [f"{rlbhpc} {shlex.join(words)}"]


def _training(launch: Launch, model: str) -> list[str]:
    asked = launch.cluster.train
    words = shlex.join(["train", *launch.study_words[:1], model, *launch.study_words[1:]])
    if asked.nodes * asked.gpus <= 1:
        return [f"{shlex.join(launch.cluster.rlbhpc)} {words}"]
    torchrun = f"torchrun --nproc-per-node {asked.gpus}"
    if asked.nodes > 1:
        torchrun += (
            f' --nnodes {asked.nodes} --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID"'
            f' --rdzv-endpoint "$head:{PORT}"'
        )
    else:
        # Without an address, ranks look each other up by the node's name, which not every node can.
        torchrun += " --standalone --local-addr 127.0.0.1"
    return [torchrun, f"-m rlbhpc {words}"]
