"""What states and reasons of Slurm and lines of a log mean for whoever has to act on them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

NO_ROOM: Final = "no room to write down why: the disk or a quota was full"
# What a state of Slurm means for whoever has to act on it.
ACTIONS: Final[Mapping[str, str]] = {
    "OUT_OF_MEMORY": "give jobs more memory (--mem), or the engine fewer rows at once",
    "TIMEOUT": "the job could not be requeued in time: raise `warning` or the time limit",
    "NODE_FAIL": "nothing; Slurm requeues it. If one node does it again: --exclude",
    "BOOT_FAIL": "nothing; Slurm requeues it. If one node does it again: --exclude",
    "DEADLINE": "launch again with a later --deadline, or none",
    "CANCELLED": "launch again when it shall go on",
    "FAILED": "read the end of its log (rlbhpc doctor RUN shows it), then launch again",
    "PREEMPTED": "launch again: the site does not requeue preempted jobs",
    NO_ROOM: "free space, then launch again",
}
# Why a job does not start by waiting for its turn alone, as squeue names the reason, and what would
# start it. The first that is found wins. What is in no row, such as Priority, passes by itself.
BLOCKED: Final = (
    ("held|JobH[eo]ld|ReservationDeleted", "scontrol release {jobs}; where Slurm denies that: "
     "rlbhpc cancel, then launch again"),
    ("^PartitionTimeLimit", "less time (-t) than the partition's MaxTime, or another partition "
     "(-p): rlbhpc cancel, then launch again; `rlbhpc doctor` shows MaxTime"),
    ("^Partition(?:Down|Inactive)", "nothing until the site opens the partition (sinfo -s), or "
     "another one (-p): rlbhpc cancel, then launch again"),
    ("^Partition(?:Config|NodeLimit|MaxNodes|MinNodes)|^MaxMemPerLimit|^BadConstraints",
     "a request that nodes of the partition meet (`nodes`, `cpus`, `memory`, `gpus`, `gpu_type`, "
     "constraint): rlbhpc cancel, then launch again; sinfo -o '%P %D %c %m %G %f' lists nodes"),
    ("^Invalid|NotAllowed$", "an account and a QOS that may use the partition (-A, -q): rlbhpc "
     "cancel, then launch again; sacctmgr show association user=$USER lists yours"),
    ("^DependencyNeverSatisfied", "nothing: rlbhpc cancel, then launch again without it"),
    ("^(?:Assoc|QOS)Grp(?!.*Run).*(?:Minutes|Wall)", "more budget of the account or QOS, or "
     "another one (-A, -q): rlbhpc cancel, then launch again"),
    ("^(?:Assoc|QOS)(?:Max|Min).*Per(?:Job|Node)|^QOSMinGRES", "less than the account or QOS "
     "allows one job (-t, -c, --gres, --mem), or another QOS (-q): rlbhpc cancel, then launch "
     "again"),
    ("^Assoc|^QOS|PerAccount$", "the end of other jobs of the account or QOS; if "
     "none runs, the job asks for more than all of them may have: less of it (-c, --gres, --mem), "
     "or another one (-A, -q)"),
    ("^ReqNodeNotAvail|^Node(?:s required|Down)|UnavailableNodes", "the return of nodes that are "
     "down or reserved (sinfo -R); before a maintenance also less time (-t)"),
)  # fmt: skip
# What a log says, what that means, and what to do; {run} is the run's folder. The first that is
# found wins, so causes stand before what follows from them.
SIGNS: Final = (
    (r"CUDA (?:[Ee]rror: )?out of memory|OutOfMemoryError", "the GPU's memory is full",
     "smaller `rows` or `memory` under engine.options, for a training smaller `micro_tokens` under "
     "the recipe's options, or a shorter max_tokens; then launch again"),
    (r"No available memory for the cache blocks|larger than the available KV cache memory",
     "the GPU has no room for one response beside the model",
     "a shorter max_tokens, or a larger `memory` under engine.options; then launch again"),
    (r"uncorrectable ECC error", "a GPU of the node is broken",
     "launch again with --exclude and the node's name, and tell the site"),
    (r"oom.kill|Out Of Memory|[Ee]xceeded .*memory|memory limit|MemoryError|an.{1,2}t allocate mem",
     "the job's memory is full", ACTIONS["OUT_OF_MEMORY"]),
    (r"Bus error|/dev/shm/.*No space left", "memory that a file backs was gone",
     "see whether /dev/shm or the scratch disk of the node is full, then launch again"),
    (r"No space left on device|Disk quota exceeded", "the disk or a quota is full",
     "free space, or rlbhpc compact {run} --seal; then launch again"),
    (r"FATAL: .*(?:image|\.sif)|could not open image", "the image cannot be opened",
     "correct `container` in the cluster's file: rlbhpc image verify FILE"),
    (r"FATAL: +.*", "the container does not start",
     "correct `container` or `rlbhpc` in the cluster's file, then launch again"),
    (r"version `\w+_[\d.]+' not found", "the node's system is older than what is installed",
     "work in a container, or install on a machine like the nodes"),
    (r"ModuleNotFoundError: .*|No module named .*", "a module is missing where the work runs",
     "install it there, or correct `rlbhpc` in the cluster's file; then launch again"),
    (r"parent: .*: No such file or directory", "a program is missing on the node",
     "correct `rlbhpc`, `container` or `setup` in the cluster's file, then launch again"),
    (r"DUE TO TIME LIMIT", "the time limit came before the job could be requeued",
     ACTIONS["TIMEOUT"]),
    (r"parent: /.*: (?:Permission denied|Read-only file system)",
     "the node denies a folder or a program",
     "correct `scratch` or `rlbhpc` in the cluster's file, then launch again"),
    (r"parent: .* is not there: what should make it", "what it needs was not made",
     "see the job before it in this list, then launch again"),
    (r"Unsupported CPU attention|head_size.* not supported|head size .* not supported",
     "vLLM cannot run this model here", "`engine: hf` in the study, then launch again"),
    (r"^rlbhpc: .*", "rlbhpc refused", "do what the line says, then launch again"),
    (r"collective operation timeout", "a rank waited in vain for the others",
     "launch again; if one node does it again: --exclude"),
    # torch warns of a driver where work goes on without a GPU, too.
    (r"No CUDA GPUs are available|NVIDIA driver on your system is too old",
     "the work finds no GPU that it can use",
     "ask for one (`gpus`), give a container --nv (`flags`), or install for the node's driver"),
    # With what vLLM and its processes put before a line; what only points to another line is none.
    (r"^(?:\[rank\d+\]: |(?:\(\w+ pid=\d+\) )*(?:ERROR [^]]*\] )?)[\w.]*(?:Error|Exception): "
     r"(?!Engine core init|WorkerProc init).*", "the work failed", ACTIONS["FAILED"]),
)  # fmt: skip


def what_starts(reason: str) -> str:
    """What would start a job that waits for a reason; empty where its turn will come."""
    return next((action for pattern, action in BLOCKED if re.search(pattern, reason)), "")
