"""On each node of a job that has several: run the work, and hand a warning on to it.

    srun python -m host.node SCRATCH [--deal 1,2,3,4] -- COMMAND...

`{share}` in the command stands for those of the dealt shards that are this node's. A signal to a
step of Slurm reaches every process in it. TERM would end srun, and USR1 the helper that mounts an
image below the work. The parent therefore sends URG, which all ignore but this.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from . import DONE

WARNING = signal.SIGURG


def main(words: list[str]) -> int:
    """Run the command with a scratch folder on this node; its exit code, as a shell gives it.

    ``--deal`` are the shards of a plan that the nodes of the job share: "{share}" in the command
    becomes those of this node.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("scratch", type=Path, help="folder of this job on the node")
    parser.add_argument("--deal", help="shards that the nodes share")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(words)
    command: list[str] = options.command
    if options.deal:
        share = choose_share(options.deal.split(","))
        if not share:
            return DONE
        command = [",".join(share) if word == "{share}" else word for word in command]
    options.scratch.mkdir(parents=True, exist_ok=True)
    work = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def warn_work(number: int, frame: FrameType | None) -> None:
        work.terminate()

    def ignore(number: int, frame: FrameType | None) -> None:
        """Slurm sends TERM to the work as well."""

    signal.signal(WARNING, warn_work)
    signal.signal(signal.SIGTERM, ignore)
    code = work.wait()
    return code if code >= 0 else 128 - code


def choose_share(shards: list[str]) -> list[str]:
    """Every nth shard, where n is the number of nodes; each node begins at its own number."""
    node = int(os.environ["SLURM_NODEID"])
    nodes = int(os.environ["SLURM_JOB_NUM_NODES"])
    return shards[node::nodes]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
