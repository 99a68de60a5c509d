"""What states of Slurm and lines of a log mean for whoever has to act on them."""

from __future__ import annotations

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
