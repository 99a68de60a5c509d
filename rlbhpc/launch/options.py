"""Options of sbatch on our command line: which pass through, and which fight what is generated."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from rlbhpc.errors import UserError
from rlbhpc.launch.cluster import WORD, WORD_CHARACTERS, Cluster, Resources
from rlbhpc.study.complaints import nearest

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
        options = merged(options, {name: value or ""})
    return options


def merged(options: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
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
