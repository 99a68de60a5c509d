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
from rlbhpc.engines.folder import VARIABLE as STAGE_VARIABLE
from rlbhpc.errors import UserError
from rlbhpc.launch import container
from rlbhpc.launch.cluster import (
    WORD,
    WORD_CHARACTERS,
    Cluster,
    Resources,
    parent_python,
    python_of,
    rlbhpc_command,
)
from rlbhpc.launch.host.task import span_seconds
from rlbhpc.launch.jobs import REPORT, Job
from rlbhpc.launch.slurm import CLUSTERS_VARIABLE
from rlbhpc.study.complaints import nearest
from rlbhpc.study.study import Study

SHORT_OPTIONS: Final[Mapping[str, str]] = {
    "-A": "account", "-C": "constraint", "-G": "gpus", "-L": "licenses",
    "-c": "cpus-per-task", "-d": "dependency", "-p": "partition", "-q": "qos",
    "-t": "time", "-w": "nodelist", "-x": "exclude",
}  # fmt: skip
# Every job inherits these; a helper job without the account would be refused.
SHARED_OPTIONS: Final = frozenset(
    "account partition qos reservation licenses exclude begin deadline nice mail-type "
    "mail-user oversubscribe wckey time-min hint".split()
)
# These size the work, so jobs that only compact or report keep their own.
SIZE_OPTIONS: Final = frozenset(
    "time cpus-per-task cpus-per-gpu gpus gpus-per-node gpus-per-task gpu-bind gres mem "
    "mem-per-cpu mem-per-gpu constraint nodelist exclusive tmp distribution switches "
    "tres-per-task".split()
)
FLAG_OPTIONS: Final = frozenset({"exclusive", "oversubscribe"})
# Added to what a launch says itself.
ADDED_OPTIONS: Final = frozenset({"comment", "dependency"})
# Ways to say the same; Slurm refuses some pairs and adds others up.
RIVAL_OPTIONS: Final = (
    frozenset({"mem", "mem-per-cpu", "mem-per-gpu"}),
    frozenset({"cpus-per-task", "cpus-per-gpu"}),
    frozenset({"gres", "gpus", "gpus-per-node", "gpus-per-task", "tres-per-task"}),
    frozenset({"exclusive", "oversubscribe"}),
)
GPU_OPTIONS: Final = RIVAL_OPTIONS[2] | {"gpu-bind", "mem-per-gpu", "cpus-per-gpu"}
# What a launch decides itself, with the reason that a user is told.
REFUSED_OPTIONS: Final[Mapping[str, str]] = {
    "array": "the plan decides it; use --width for fewer tasks",
    "chdir": "scripts run in the launch's folder",
    "clusters": "export SLURM_CLUSTERS=NAME in your shell, so that every verb asks there",
    "dry-run": "without --submit, rlbhpc launch only writes scripts for you to read",
    "error": "logs go to the launch's folder",
    "export": "the cluster's `environment` decides it",
    "input": "jobs read no input",
    "job-name": "status and cancel find jobs by it",
    "nodes": "the cluster's `nodes` of `sample` and `train` decides it",
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
REFUSED_SHORT_OPTIONS: Final[Mapping[str, str]] = {
    "-a": "array", "-D": "chdir", "-e": "error", "-J": "job-name",
    "-n": "ntasks", "-N": "nodes", "-o": "output", "-M": "clusters", "-i": "input", "-W": "wait",
}  # fmt: skip


def read_options(words: Sequence[str]) -> dict[str, str]:
    """Long names and values of the sbatch options among ``words``; refuse what cannot be given.

    Those in `REFUSED_OPTIONS` a launch decides itself. A flag is an option that needs no value. For
    one that is given in two words, such as -p gpu, the value is the next word.
    """
    options: dict[str, str] = {}
    waiting_words = list(words)
    while waiting_words:
        word = waiting_words.pop(0)
        name, value = _split_option(word)
        if name in REFUSED_OPTIONS:
            raise UserError(f"{word.partition('=')[0]}: {REFUSED_OPTIONS[name]}")
        if name not in SHARED_OPTIONS | SIZE_OPTIONS | ADDED_OPTIONS:
            raise _unknown_option_error(word, name)
        if value is None and name not in FLAG_OPTIONS:
            if not waiting_words:
                raise UserError(f"{word}: a value is missing, as in {word} VALUE")
            value = waiting_words.pop(0)
        if value is not None and not re.fullmatch(WORD, value):
            raise UserError(f"{word}: found {value!r}; allowed: {WORD_CHARACTERS}")
        options = merge_options(options, {name: value or ""})
    return options


def _split_option(word: str) -> tuple[str, str | None]:
    """Long name of an option, and its value if that stands in the same word.

    Examples: --time=1:00 and -t1:00 have a value, --time and -t have none.
    """
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        return name, value if equals else None
    long_names = {**SHORT_OPTIONS, **REFUSED_SHORT_OPTIONS}
    letter = word[:2]
    if letter not in long_names:
        raise UserError(f"{word!r}: not an option; rlbhpc launch takes one study")
    value = word[2:].removeprefix("=")
    return long_names[letter], value or None


def _unknown_option_error(word: str, name: str) -> UserError:
    """An error that lists the options that a launch passes on, with the nearest one to ``name``."""
    passed_options = SHARED_OPTIONS | SIZE_OPTIONS | ADDED_OPTIONS
    allowed = [f"--{option}" for option in sorted(passed_options)]
    return UserError(
        f"{word}: not an option of rlbhpc launch, and none of sbatch that it passes on; passed on"
        f" are {', '.join(allowed)}{nearest(f'--{name}', allowed)}"
    )


def merge_options(options: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Options of sbatch by long name, with those of ``more`` in place of the ones they replace.

    Rivals are options that say the same, such as mem and mem-per-cpu. Slurm refuses some pairs and
    adds others up, so one in ``more`` also removes its rivals.
    """
    replaced = set(more)
    for rivals in RIVAL_OPTIONS:
        if rivals & replaced:
            replaced |= rivals
    kept = {name: value for name, value in options.items() if name not in replaced}
    return kept | dict(more)


def with_requested_gpus(cluster: Cluster, options: Mapping[str, str]) -> Cluster:
    """The cluster with as many GPUs a node as options ask for, such as --gres=gpu:a100:4.

    ``options`` are those of sbatch by long name. The number goes into what sampling and training
    jobs ask for, from which it is worked out how many copies of a model a job holds.
    """
    for name in ("gres", "gpus", "gpus-per-node", "gpus-per-task"):
        # --gres also names what is no GPU, such as lscratch:100.
        prefix = "(?:^|,)gpu:" if name == "gres" else "^"
        count = re.search(rf"{prefix}(?:[^,:]+:)?(\d+)(?:,|$)", options.get(name, ""))
        if count is None:
            continue
        for kind in ("sample", "train"):
            resources: Resources = getattr(cluster, kind)
            gpus = int(count[1])
            if name == "gpus":  # of all nodes
                gpus //= resources.nodes
            resources = resources.model_copy(update={"gpus": gpus})
            cluster = cluster.model_copy(update={kind: resources})
    return cluster


# Seconds of the warning that the parent keeps for itself: to kill, tidy up and requeue.
RESERVE_SECONDS: Final = 10
# The share of the time before the work is killed in which samples in flight may still end.
GRACE_SHARE: Final = 0.8
# Caches of compilers, each in a folder of the scratch: shared ones race, and are slow on a
# cluster's file system.
CACHE_FOLDERS: Final = {
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "VLLM_CACHE_ROOT": "vllm",
    "XDG_CACHE_HOME": "cache",
}
# Nodes have no network; a home's own Python packages must not shadow those that were tested.
COMMON_VARIABLES: Final = {
    "HF_HUB_OFFLINE": "1", "PYTHONNOUSERSITE": "1", "PYTHONUNBUFFERED": "1",
}  # fmt: skip
# torchrun kills its ranks so many seconds after TERM.
SHUTDOWN_VARIABLE: Final = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
IMAGE_VARIABLE: Final = "RLBHPC_IMAGE"
# Width of the table of shards in a script.
TABLE_WIDTH: Final = 95
NANOSECONDS_PER_SECOND: Final = 10**9
# Ranks of several nodes meet at a port that Linux does not hand out by itself, so that no other
# program holds it. A job that comes back must not meet what is left of its run before: each
# restart takes another port.
RENDEZVOUS_PORT: Final = "$((20000 + (SLURM_JOB_ID + 97 * ${SLURM_RESTART_COUNT:-0}) % 12000))"


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
    last: str = REPORT
    counted: tuple[str, ...] = ()

    @property
    def number(self) -> str:
        """The launch's number, which is the name of its folder."""
        return self.folder.name

    @property
    def prefix(self) -> str:
        """What the names of all its jobs begin with; the same in no other launch of the study."""
        return f"{self.study.name}-{self.plan[:6]}-{self.number}"


def script_of(draft: Draft, job: Job) -> str:
    """The batch script of one job, as text."""
    comment = (
        f"# Written by rlbhpc {__version__}: {job.name} of study {draft.study.name}"
        f" ({draft.study.hash}), plan {draft.plan},\n"
        f"# launch {draft.number}, cluster {draft.cluster_name}. Submit it with ./submit.sh. The"
        " same script starts, goes on\n# and is requeued: what is there already is not made again."
    )
    options = sbatch_options(draft, job)
    return script_text(comment, options, setup_lines(draft, job), job_command(draft, job))


def script_text(comment: str, options: Mapping[str, str], setup: list[str], command: str) -> str:
    """A whole batch script: a comment, sbatch's options, shell lines of set-up, and the command.

    ``options`` have long names; an option without a value, a flag, has an empty one.
    """
    directives = []
    for name, value in sorted(options.items()):
        assignment = f"={shlex.quote(value)}" if value else ""
        directives.append(f"#SBATCH --{name}{assignment}")
    lines = ["#!/bin/bash", "", comment, "", *directives]
    lines += ["", "# setup", *setup, "", "# command", command]
    return "\n".join(lines) + "\n"


def sbatch_options(draft: Draft, job: Job) -> dict[str, str]:
    """Options of sbatch for one job, by long name; those of the command line win.

    ``job.tasks`` are the tasks of an array, empty for a job that is none. The throttle is the most
    tasks that run at once. The signal is sent to the script's shell, "B:", ``warning`` seconds
    before the time limit. ``resources.options`` are further ones from the cluster's file.
    """
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
        task_count = len(job.tasks)
        throttle = min(cluster.throttle or task_count, task_count)
        options["array"] = f"0-{task_count - 1}%{throttle}"
    options = merge_options(options, resources.options)
    options = merge_options(options, _command_line_options(draft, job))
    if not job.gpu:
        options = {name: value for name, value in options.items() if name not in GPU_OPTIONS}
    if "comment" in draft.options:
        options["comment"] += f",{draft.options['comment']}"
    _reject_short_time(job, options["time"], cluster.warning)
    return options


def resource_options(cluster: Cluster, resources: Resources) -> dict[str, str]:
    """Options of sbatch for the hardware and time that a kind of job asks for.

    ``resources`` is one of the cluster's three requests: to sample, to train, or for light jobs.
    Options that the cluster's file adds by name are not among these.
    """
    options = {
        "cpus-per-task": str(resources.cpus),
        "nodes": str(resources.nodes),
        "time": resources.time,
    }
    shell_clusters = os.environ.get(CLUSTERS_VARIABLE)
    if shell_clusters:
        # sbatch would not see it.
        options["clusters"] = shell_clusters
    if resources.partition:
        options["partition"] = resources.partition
    if cluster.account:
        options["account"] = cluster.account
    if resources.memory:
        options["mem"] = resources.memory
    if resources.gpus:
        gpus = str(resources.gpus)
        if resources.gpu_type:
            gpus = f"{resources.gpu_type}:{gpus}"
        # --gres says what it counts, as in gpu:a100:4; --gpus-per-node does not, as in a100:4.
        options[cluster.gpu_option] = f"gpu:{gpus}" if cluster.gpu_option == "gres" else gpus
    return options


def _command_line_options(draft: Draft, job: Job) -> dict[str, str]:
    """Those options of the command line that apply to this job; they replace the cluster's.

    Jobs of the kind "light" only compact or report: options that size the work are not for them.
    ``draft.last`` is the name of the job that ends the launch.
    """
    options = {}
    for name, value in draft.options.items():
        is_for_large_jobs = name in SIZE_OPTIONS and job.kind == "light"
        # One mail when all is over, and none for each of a thousand tasks.
        is_for_last_job = name.startswith("mail-") and job.name != draft.last
        if name not in ADDED_OPTIONS and not is_for_large_jobs and not is_for_last_job:
            options[name] = value
    return options


def _reject_short_time(job: Job, time_limit: str, warning_seconds: int) -> None:
    if span_seconds(time_limit) <= warning_seconds:
        raise UserError(
            f"time of {job.name}: found {time_limit}, which is no longer than the cluster's"
            f" `warning` of {warning_seconds} s, so a job would be warned before it has begun; give"
            " more time with -t, or a smaller `warning`"
        )


def resources_of(draft: Draft, job: Job) -> Resources:
    """The hardware and time that a job asks for, from the cluster's request for its kind.

    The kinds are "sample", "train" and "light". Sampling jobs are arrays, which have tasks; a
    scoring job is of the same kind and has none. A copy of a model takes ``tensor_parallel`` GPUs.
    """
    resources: Resources = getattr(draft.cluster, job.kind)
    if not job.gpu:
        return resources.model_copy(update={"gpus": 0, "nodes": 1})
    if job.kind == "sample" and not job.tasks:
        resources = resources.model_copy(update={"nodes": 1})
    if job.kind == "sample" and resources.gpus:
        # A task that samples holds as many copies of the model as fit its GPUs; scoring takes one.
        gpus = resources.gpus if job.tasks else 1
        gpus = max(gpus, draft.study.file.engine.tensor_parallel)
        return resources.model_copy(update={"gpus": gpus})
    return resources


def setup_lines(draft: Draft, job: Job) -> list[str]:
    """Lines of shell before a script's command: variables, caches, checks, and the table of shards.

    ``variables`` collects the names that the container must let in, since it starts with a clean
    environment. Caches of compilers go to the node's scratch folder. ``cluster.stage`` is a folder
    on the node to which models are copied, where the site has one.
    """
    cluster = draft.cluster
    lines = [*site_setup_lines(cluster, draft.folder), 'export TMPDIR="$scratch"']
    for variable, folder in CACHE_FOLDERS.items():
        lines.append(f'export {variable}="$scratch/{folder}"')
    variables = [*COMMON_VARIABLES, *cluster.environment, *CACHE_FOLDERS]
    if job.kind == "train":
        lines.append(f"export {SHUTDOWN_VARIABLE}={_drain_seconds(cluster)}")
        variables.append(SHUTDOWN_VARIABLE)
    if cluster.stage is not None:
        folder = f'"${STAGE_VARIABLE}"'
        lines.append(f'export {STAGE_VARIABLE}="{cluster.stage}"; mkdir -p {folder}')
        variables.append(STAGE_VARIABLE)
    if cluster.container is not None:
        # Attempts record in which image they ran.
        lines.append(f"export {IMAGE_VARIABLE}={draft.image.get('sha256', 'unknown')}")
        lines += _check_image_lines(draft.image)
        variables.append(IMAGE_VARIABLE)
        # An endpoint's key is in a variable; the scripts themselves hold no secret.
        endpoints = [model.endpoint for model in draft.study.models.values() if model.endpoint]
        variables += [endpoint.key_env for endpoint in endpoints if endpoint.key_env]
        lines.append(container.export_lines(variables))
    lines.append(f"python={shlex.quote(parent_python(cluster))}")
    if job.tasks:
        words = " ".join(",".join(map(str, shards)) for shards in job.tasks)
        table = textwrap.wrap(words, TABLE_WIDTH, break_long_words=False, break_on_hyphens=False)
        lines += ["", "# Shards of the plan, one word per array task.", "shards=("]
        lines += [*(f"    {line}" for line in table), ")"]
    return lines


def site_setup_lines(cluster: Cluster, folder: Path) -> list[str]:
    """Lines of shell that every job of a site begins with, in the launch's ``folder``.

    ``cluster.setup`` are lines of the site's own, such as module load; ``cluster.scratch`` is a
    folder on the node, in which each job makes one of its own.
    """
    lines = [f"cd {shlex.quote(str(folder))} || exit 64"]
    if cluster.setup:
        # The parent calls Slurm, which `module purge` may take out of PATH.
        lines.append("scontrol=$(command -v scontrol)")
        lines += [*cluster.setup, '[ -z "$scontrol" ] || PATH="$PATH:${scontrol%/*}"']
    # What a site's lines source, such as conda's activation, reads variables that nobody has set.
    lines.append("set -u")
    for variable, value in sorted({**COMMON_VARIABLES, **cluster.environment}.items()):
        lines.append(f"export {variable}={shlex.quote(value)}")
    lines.append(f'scratch="{cluster.scratch}/rlbhpc-${{SLURM_JOB_ID:-0}}-$$"')
    return lines


def _check_image_lines(image: Mapping[str, Any]) -> list[str]:
    """Lines that end the job where another image lies in the place of the one that was launched.

    ``image`` has the path, size, time and SHA-256 of the container image as it was. Images have
    gigabytes: one of the same size and time is not read. sha256sum reads lines of DIGEST, two
    blanks, FILE.
    """
    if "sha256" not in image:
        return []
    change_seconds = image["mtime_ns"] // NANOSECONDS_PER_SECOND
    return [
        f"image={shlex.quote(image['path'])}",
        f"""[ "$(stat -Lc '%s %Y' "$image")" = "{image["size"]} {change_seconds}" ] ||""",
        f"""    echo "${IMAGE_VARIABLE}  $image" | sha256sum --check --status || {{""",
        '    echo "rlbhpc: $image is not the image that this launch has recorded: cancel what waits'
        ' and launch again" >&2',
        "    exit 64",
        "}",
    ]


def _drain_seconds(cluster: Cluster) -> int:
    """Seconds that the work has after a warning."""
    return max(1, cluster.warning - RESERVE_SECONDS)


def job_command(draft: Draft, job: Job) -> str:
    """The last lines of a script: they hand over to the parent, which runs the work.

    The parent is the program `host`. It gives the work ``drain`` seconds to finish after a warning
    and ``last`` after a TERM. It replaces "{}" by the shards that the task works; where a job has
    several nodes, `host.node` shares them out, and "{share}" is those of one node. ``job.needs`` is
    the checkpoint without which a job has nothing to do.
    """
    cluster = draft.cluster
    drain = _drain_seconds(cluster)
    # Between TERM and KILL, too, the parent keeps some seconds to tidy up.
    last = max(1, cluster.kill_wait - RESERVE_SECONDS // 2)
    lines = [f'exec "$python" -m host --drain {drain} --last {last} --scratch "$scratch"']
    if job.tasks:
        lines.append(f'--plan {draft.plan} --shards "${{shards[$SLURM_ARRAY_TASK_ID]}}"')
    lines += [f"--progress {shlex.quote(pattern)}" for pattern in job.grows]
    if job.needs:
        needed_file = draft.study.folder(*job.needs) / "config.json"
        lines.append(f"--needs {shlex.quote(str(needed_file))}")
    lines[-1] += " --"
    words = rlbhpc_words(draft, job)
    if resources_of(draft, job).nodes > 1:
        # To end all nodes with the first would hide what the others say: saved, or nothing to do.
        cpus = sbatch_options(draft, job).get("cpus-per-task")
        # Slurm's steps do not take the cores of their job by themselves.
        cores = f" --cpus-per-task={cpus}" if cpus else ""
        lines.append(f"srun --ntasks-per-node=1{cores} --kill-on-bad-exit=0 --wait={drain}")
        if job.tasks:
            lines.append('"$python" -m host.node "$scratch" --deal {} --')
            words = ["{share}" if word == "{}" else word for word in words]
        else:
            lines.append('"$python" -m host.node "$scratch" --')
    lines += container.exec_lines(cluster, container.study_folders(draft.study))
    lines.append(_work_command(draft, job, words))
    return " \\\n    ".join(lines)


def rlbhpc_words(draft: Draft, job: Job) -> list[str]:
    """Arguments of rlbhpc for one job; ``{}`` stands for the shards of a task."""
    if not job.tasks:
        return list(job.words)
    grace = round(_drain_seconds(draft.cluster) * GRACE_SHARE)
    return ["run", f"../../plans/{draft.plan}.json", "--shards", "{}", "--grace", str(grace)]


def _work_command(draft: Draft, job: Job, rlbhpc_arguments: list[str]) -> str:
    """The command of rlbhpc itself, under torchrun where several ranks train.

    A rank is a process of a training, one for each GPU. Ranks of several nodes meet at an address,
    the rendezvous. "{head}" is filled in by the job's parent, with the name of its first node.
    """
    resources = draft.cluster.train
    rlbhpc = rlbhpc_command(draft.cluster)
    # What the parent fills in needs no quotes.
    words = re.sub(r"'(\{\w*\})'", r"\1", shlex.join(rlbhpc_arguments))
    ranks_per_node = max(1, resources.gpus)
    if job.kind != "train" or resources.nodes * ranks_per_node <= 1:
        return f"{shlex.join(rlbhpc)} {words}"
    if resources.nodes > 1:
        rendezvous = (
            f"--nnodes {resources.nodes} --rdzv-backend c10d"
            ' --rdzv-id "$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"'
            f' --rdzv-endpoint "{{head}}:{RENDEZVOUS_PORT}"'
        )
    else:
        # Without an address, ranks look each other up by the node's name, which not every node can.
        rendezvous = "--standalone --local-addr 127.0.0.1"
    python = shlex.join(python_of(rlbhpc))
    return (
        f"{python} -m rlbhpc.train.ranks --nproc-per-node {ranks_per_node} {rendezvous}"
        f" \\\n    -m rlbhpc {words}"
    )
