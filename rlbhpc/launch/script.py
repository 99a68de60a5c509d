"""One job as a complete batch script: its options of sbatch, set-up, parameters and command."""

from __future__ import annotations

import os
import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rlbhpc import __version__
from rlbhpc.engines.folder import VARIABLE as STAGE
from rlbhpc.errors import UserError
from rlbhpc.launch import container, slurm
from rlbhpc.launch.cluster import (
    WORD,
    WORD_CHARACTERS,
    Cluster,
    Resources,
    command,
    parent_python,
    python_of,
)
from rlbhpc.launch.host.task import seconds
from rlbhpc.launch.jobs import LAST, Job
from rlbhpc.study.complaints import nearest
from rlbhpc.study.study import Study

SHORT: Final[Mapping[str, str]] = {
    "-A": "account", "-C": "constraint", "-G": "gpus", "-L": "licenses",
    "-M": "clusters", "-c": "cpus-per-task", "-d": "dependency", "-p": "partition", "-q": "qos",
    "-t": "time", "-w": "nodelist", "-x": "exclude",
}  # fmt: skip
# Every job inherits these; a helper job without the account would be refused.
SHARED: Final = frozenset(
    "account partition qos reservation licenses exclude begin clusters deadline nice mail-type "
    "mail-user oversubscribe wckey time-min hint".split()
)
# These size the work, so jobs that only compact or report keep their own.
SIZES: Final = frozenset(
    "time cpus-per-task cpus-per-gpu gpus gpus-per-node gpus-per-task gpu-bind gres mem "
    "mem-per-cpu mem-per-gpu constraint nodelist exclusive tmp distribution switches "
    "tres-per-task".split()
)
FLAGS: Final = frozenset({"exclusive", "oversubscribe"})
# Added to what a launch says itself.
ADDED: Final = frozenset({"comment", "dependency"})
# Ways to say the same; Slurm refuses some pairs and adds others up.
RIVALS: Final = (
    frozenset({"mem", "mem-per-cpu", "mem-per-gpu"}),
    frozenset({"cpus-per-task", "cpus-per-gpu"}),
    frozenset({"gres", "gpus", "gpus-per-node", "gpus-per-task", "tres-per-task"}),
    frozenset({"exclusive", "oversubscribe"}),
)
GPUS: Final = RIVALS[2] | {"gpu-bind", "mem-per-gpu", "cpus-per-gpu"}
# What a launch decides itself, with the reason that a user is told.
REFUSED: Final[Mapping[str, str]] = {
    "array": "the plan decides it; use --width for fewer tasks",
    "chdir": "scripts run in the launch's folder",
    "error": "logs go to the launch's folder",
    "export": "the cluster's `environment` decides it",
    "input": "jobs read no input",
    "job-name": "status and cancel find jobs by it",
    "nodes": "sampling takes one; the cluster's `nodes` of `train` decides it for training",
    "no-requeue": "a job that was preempted must come back",
    "ntasks": "one task runs one shard at a time",
    "ntasks-per-node": "one task runs one shard at a time",
    "open-mode": "logs of requeued jobs are appended",
    "output": "logs go to the launch's folder",
    "parsable": "submit.sh reads sbatch's answer",
    "requeue": "it is always on",
    "signal": "the cluster's `warning` decides it",
    "wait": "submitting does not wait; see rlbhpc status",
    "wrap": "the script is generated",
}
_SHORT_REFUSED: Final[Mapping[str, str]] = {
    "-a": "array", "-D": "chdir", "-e": "error", "-J": "job-name",
    "-n": "ntasks", "-N": "nodes", "-o": "output", "-i": "input", "-W": "wait",
}  # fmt: skip


def read_options(words: Sequence[str]) -> dict[str, str]:
    """Long names and values of the sbatch options among ``words``; refuse what cannot be given."""
    options: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, value = _split(word)
        if name in REFUSED:
            raise UserError(f"{word.partition('=')[0]}: {REFUSED[name]}")
        if name not in SHARED | SIZES | ADDED:
            allowed_options = [f"--{passed}" for passed in sorted(SHARED | SIZES | ADDED)]
            raise UserError(
                f"{word}: not an option of rlbhpc launch, and none of sbatch that it passes on; "
                f"passed on are {', '.join(allowed_options)}{nearest(f'--{name}', allowed_options)}"
            )
        if value is None and name not in FLAGS:
            if not rest:
                raise UserError(f"{word}: a value is missing, as in {word} VALUE")
            value = rest.pop(0)
        if value is not None and not re.fullmatch(WORD, value):
            raise UserError(f"{word}: found {value!r}; allowed: {WORD_CHARACTERS}")
        options = merge_options(options, {name: value or ""})
    return options


def merge_options(options: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Options with ``more`` of them, which win; what they rival goes."""
    rivals = {name for group in RIVALS for name in group if group & set(more)}
    return {name: text for name, text in options.items() if name not in rivals} | dict(more)


def with_gpus(cluster: Cluster, options: Mapping[str, str]) -> Cluster:
    """The cluster with as many GPUs a node as options ask for, such as --gres=gpu:a100:4."""
    for name in ("gres", "gpus", "gpus-per-node", "gpus-per-task"):
        # --gres also names what is no GPU, such as lscratch:100.
        kind_of_gpu = "(?:^|,)gpu:" if name == "gres" else "^"
        count = re.search(rf"{kind_of_gpu}(?:[^,:]+:)?(\d+)(?:,|$)", options.get(name, ""))
        if count is None:
            continue
        for kind in ("sample", "train"):
            resources: Resources = getattr(cluster, kind)
            gpus = int(count[1]) // (resources.nodes if name == "gpus" else 1)
            resources = resources.model_copy(update={"gpus": gpus})
            cluster = cluster.model_copy(update={kind: resources})
    return cluster


def _split(word: str) -> tuple[str, str | None]:
    """Long name of an option, and its value if that stands in the same word."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        return name, value if equals else None
    short = {**SHORT, **_SHORT_REFUSED}
    if word[:2] in short:
        return short[word[:2]], word[2:].removeprefix("=") or None
    raise UserError(f"{word!r}: not an option; rlbhpc launch takes one study")


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
# torchrun kills its ranks so long after TERM.
SHUTDOWN = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
IMAGE = "RLBHPC_IMAGE"
# On each node of several: makes the folder, which the parent removes, and hands on the parent's
# warning to the one process that it has started. The parent leaves a file, since whatever signal
# srun passes on reaches every process of the step, one that has an image mounted among them. Where
# Slurm sent TERM, all have it already.
ON_EACH_NODE = """\
mkdir -p "$0"
warned=
trap "warned=yes" TERM
"$@" & work=$!
while [ -z "$warned" ] && kill -0 $work 2>/dev/null; do
    [ ! -e "warned-$SLURM_JOB_ID" ] || { kill $work; warned=yes; }
    sleep 1
done
until wait $work; code=$?; [ $code -le 128 ] || ! kill -0 $work 2>/dev/null; do :; done
exit $code"""


@dataclass(frozen=True)
class Draft:
    """What all scripts of one launch share.

    ``options`` are the sbatch options of the command line; ``image`` has path, size, time and
    SHA-256 of the image that jobs run in, where it is known here; ``folder`` is where the scripts
    will lie; ``last`` is the job that sends mail.
    ``counted`` are the scripts of other launches whose jobs the plan has counted.
    """

    study: Study
    plan: str
    cluster: Cluster
    cluster_name: str
    options: dict[str, str]
    folder: Path = Path()
    image: Mapping[str, Any] = field(default_factory=dict)
    last: str = LAST
    counted: tuple[str, ...] = ()

    @property
    def number(self) -> str:
        """The launch's number, which is the name of its folder."""
        return self.folder.name

    @property
    def prefix(self) -> str:
        """What the names of all its jobs begin with; the same in no other launch of the study."""
        return f"{self.study.name}-{self.plan[:6]}-{self.number}"


def head(draft: Draft, job: Job) -> str:
    """Comment that a script begins with."""
    return (
        f"# Written by rlbhpc {__version__}: {job.name} of study {draft.study.name}"
        f" ({draft.study.hash}), plan {draft.plan},\n"
        f"# launch {draft.number}, cluster {draft.cluster_name}. Submit it with ./submit.sh. The"
        " same script starts, goes on\n# and is requeued: what is there already is not made again."
    )


def script_text(head: str, options: Mapping[str, str], set_up: list[str], command: str) -> str:
    """A whole batch script, with options of sbatch by their long names."""
    flags = [
        f"#SBATCH --{name}" + (f"={shlex.quote(text)}" if text else "")
        for name, text in sorted(options.items())
    ]
    lines = ["#!/bin/bash", "", head, "", *flags, "", "# setup", *set_up, "", "# command", command]
    return "\n".join(lines) + "\n"


def directives(draft: Draft, job: Job) -> dict[str, str]:
    """Options of sbatch for one job, by long name; those of the command line win."""
    cluster = draft.cluster
    resources = resources_of(draft, job)
    options = {
        "chdir": str(draft.folder),
        "comment": f"rlbhpc:{draft.prefix}",
        "job-name": f"{draft.prefix}-{job.name}",
        "ntasks-per-node": "1",
        "open-mode": "append",
        "output": "logs/%x-%A_%a.log" if job.tasks else "logs/%x-%j.log",
        "requeue": "",
        "signal": f"B:USR1@{cluster.warning}",
    }
    options |= resource_options(cluster, resources)
    if job.tasks:
        throttle = min(cluster.throttle or len(job.tasks), len(job.tasks))
        options["array"] = f"0-{len(job.tasks) - 1}%{throttle}"
    options = merge_options(options, resources.options)
    return _with_command_line(draft, job, options)


def resource_options(cluster: Cluster, resources: Resources) -> dict[str, str]:
    """Options of sbatch for what a kind of job asks for, without those that the site adds."""
    options = {
        "cpus-per-task": str(resources.cpus),
        "nodes": str(resources.nodes),
        "time": resources.time,
    }
    if clusters := os.environ.get(slurm.CLUSTERS):
        # sbatch would not see it, and status looks from any shell.
        options["clusters"] = clusters
    if resources.partition:
        options["partition"] = resources.partition
    if cluster.account:
        options["account"] = cluster.account
    if resources.memory:
        options["mem"] = resources.memory
    if resources.gpus:
        count = f"{resources.gpu_type}:{resources.gpus}" if resources.gpu_type else resources.gpus
        options[cluster.gpu_option] = f"gpu:{count}" if cluster.gpu_option == "gres" else str(count)
    return options


def _with_command_line(draft: Draft, job: Job, options: dict[str, str]) -> dict[str, str]:
    """Options with those of the command line that concern this job."""
    given = {name: text for name, text in draft.options.items() if name not in ADDED}
    if job.kind == "light":
        given = {name: text for name, text in given.items() if name not in SIZES}
    if job.name != draft.last:
        # One mail when all is over, and none for each of a thousand tasks.
        given = {name: text for name, text in given.items() if not name.startswith("mail-")}
    options = merge_options(options, given)
    if not job.gpu:
        options = {name: text for name, text in options.items() if name not in GPUS}
    if "comment" in draft.options:
        options["comment"] += f",{draft.options['comment']}"
    limit = options["time"]
    if seconds(limit) <= draft.cluster.warning:
        raise UserError(
            f"time of {job.name}: found {limit}, which is no longer than the cluster's `warning` of"
            f" {draft.cluster.warning} s, so a job would be warned before it has begun; give more"
            " time with -t, or a smaller `warning`"
        )
    return options


def resources_of(draft: Draft, job: Job) -> Resources:
    """What a job asks for."""
    resources: Resources = getattr(draft.cluster, job.kind)
    if not job.gpu:
        return resources.model_copy(update={"gpus": 0})
    if job.kind == "sample" and resources.gpus:
        # A task that samples holds as many copies of the model as fit its GPUs; scoring takes one.
        gpus_per_copy = draft.study.file.engine.tensor_parallel
        gpus = max(resources.gpus if job.tasks else 1, gpus_per_copy)
        resources = resources.model_copy(update={"gpus": gpus})
    return resources


def set_up(draft: Draft, job: Job) -> list[str]:
    """Lines of shell before the command."""
    cluster = draft.cluster
    lines = [*site_set_up(cluster, draft.folder), 'export TMPDIR="$scratch"']
    lines += [f'export {name}="$scratch/{folder}"' for name, folder in CACHES.items()]
    names = [*ALWAYS, *cluster.environment, *CACHES]
    if job.kind == "train":
        lines.append(f"export {SHUTDOWN}={_drain(cluster)}")
        names.append(SHUTDOWN)
    if cluster.stage is not None:
        lines.append(f'export {STAGE}="{cluster.stage}"; mkdir -p "${STAGE}"')
        names.append(STAGE)
    if cluster.container is not None:
        # Attempts record in which image they ran.
        lines.append(f"export {IMAGE}={draft.image.get('sha256', 'unknown')}")
        lines += _check_image(draft.image)
        # Endpoints find their keys in variables; the scripts themselves hold no secret.
        endpoints = [entry.endpoint for entry in draft.study.models.values() if entry.endpoint]
        names += [endpoint.key_env for endpoint in endpoints if endpoint.key_env]
        lines.append(container.exports([*names, IMAGE]))
    lines += check_python(cluster)
    if job.tasks:
        words = " ".join(",".join(map(str, task)) for task in job.tasks)
        table = textwrap.wrap(words, 95, break_long_words=False, break_on_hyphens=False)
        lines += ["", "# Shards of the plan, one word per array task.", "shards=("]
        lines += [*(f"    {line}" for line in table), ")"]
    return lines


def site_set_up(cluster: Cluster, folder: Path) -> list[str]:
    """Lines of shell that every job of a site begins with."""
    variables = sorted({**ALWAYS, **cluster.environment}.items())
    lines = [f"cd {shlex.quote(str(folder))} || exit 64"]
    if cluster.setup:
        # The parent calls Slurm, which `module purge` may take out of PATH.
        lines.append("scontrol=$(command -v scontrol)")
        lines += [*cluster.setup, '[ -z "$scontrol" ] || PATH="$PATH:${scontrol%/*}"']
    # What a site's lines source, such as conda's activation, reads variables that nobody has set.
    lines.append("set -u")
    lines += [f"export {name}={shlex.quote(text)}" for name, text in variables]
    return [*lines, f'scratch="{cluster.scratch}/rlbhpc-${{SLURM_JOB_ID:-0}}-$$"']


def check_python(cluster: Cluster, before: str = "") -> list[str]:
    """Lines that end the job where the node lacks the Python of the parent, which cannot say so."""
    what = "no Python 3.9 or newer at $python on $(uname -n); name one of the nodes"
    return [
        f"python={shlex.quote(parent_python(cluster))}",
        """"$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || {""",
        f'    echo "rlbhpc: {what}" \\',
        r"""        "under \`python\` in the cluster's file, then launch again" >&2""",
        f"    {before}exit 64",
        "}",
    ]


def _check_image(image: Mapping[str, Any]) -> list[str]:
    """Lines that end the job where another image lies in the place of the one that was launched.

    Images have gigabytes: one of the same size and time is not read.
    """
    if "sha256" not in image:
        return []
    seconds_of_change = image["mtime_ns"] // 10**9
    return [
        f"image={shlex.quote(image['path'])}",
        f"""[ "$(stat -Lc '%s %Y' "$image")" = "{image["size"]} {seconds_of_change}" ] ||""",
        f"""    echo "${IMAGE}  $image" | sha256sum --check --status || {{""",
        '    echo "rlbhpc: $image is not the image that this launch has recorded: cancel what waits'
        ' and launch again" >&2',
        "    exit 64",
        "}",
    ]


def _drain(cluster: Cluster) -> int:
    """Seconds that the work has after a warning."""
    return max(1, cluster.warning - RESERVE)


def call(draft: Draft, job: Job) -> str:
    """Hand over to the parent, which runs the work."""
    cluster = draft.cluster
    last = max(1, cluster.kill_wait - RESERVE // 2)
    lines = [f'exec "$python" -m host --drain {_drain(cluster)} --last {last} --scratch "$scratch"']
    if job.tasks:
        lines.append(f'--plan {draft.plan} --shards "${{shards[$SLURM_ARRAY_TASK_ID]}}"')
    lines += [f"--progress {shlex.quote(pattern)}" for pattern in job.grows]
    if job.needs:
        needed = draft.study.folder(*job.needs) / "config.json"
        lines.append(f"--needs {shlex.quote(str(needed))}")
    for model, step, name in job.releases:
        path = draft.study.folder(model, step) / "config.json"
        lines.append(f"--release {shlex.quote(f'{path}={name}')}")
    lines[-1] += " --"
    if job.kind == "train" and cluster.train.nodes > 1:
        # To end all nodes with the first would hide what the others say: saved, or nothing to do.
        # Slurm's own steps do not take the cores of their job.
        cores = directives(draft, job).get("cpus-per-task")
        share = f" --cpus-per-task={cores}" if cores else ""
        wait = _drain(cluster)
        lines.append(f"srun --ntasks-per-node=1{share} --kill-on-bad-exit=0 --wait={wait}")
        lines.append(f'bash -c {shlex.quote(ON_EACH_NODE)} "$scratch"')
    lines += container.runner(cluster, container.folders_of(draft.study))
    lines.append(_work(draft, job))
    return " \\\n    ".join(lines)


def words_of(draft: Draft, job: Job) -> list[str]:
    """Arguments of rlbhpc for one job; ``{}`` stands for the shards of a task."""
    if not job.tasks:
        return list(job.words)
    grace = round(_drain(draft.cluster) * SHARE)
    return ["run", f"../../plans/{draft.plan}.json", "--shards", "{}", "--grace", str(grace)]


def _work(draft: Draft, job: Job) -> str:
    resources = draft.cluster.train
    rlbhpc = command(draft.cluster)
    words = shlex.join(words_of(draft, job)).replace("'{}'", "{}")
    ranks = max(1, resources.gpus)
    if job.kind != "train" or resources.nodes * ranks <= 1:
        return f"{shlex.join(rlbhpc)} {words}"
    # Without an address, ranks look each other up by the node's name, which not every node can.
    meeting = "--standalone --local-addr 127.0.0.1"
    if resources.nodes > 1:
        # A job that comes back soon must not meet what is left of its run before: another place,
        # below the ports that Linux hands out by itself, which another program may hold.
        port = "$((20000 + (SLURM_JOB_ID + 97 * ${SLURM_RESTART_COUNT:-0}) % 12000))"
        meeting = (
            f"--nnodes {resources.nodes} --rdzv-backend c10d"
            ' --rdzv-id "$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"'
            f' --rdzv-endpoint "{{head}}:{port}"'
        )
    python = shlex.join(python_of(rlbhpc))
    return (
        f"{python} -m rlbhpc.train.ranks --nproc-per-node {ranks} {meeting}"
        f" \\\n    -m rlbhpc {words}"
    )
