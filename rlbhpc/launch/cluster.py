"""The noun *Cluster*: one site's limits, resources and habits, one file of the cluster table."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import socket
import sys
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from rlbhpc.errors import UserError
from rlbhpc.study.complaints import nearest, validated
from rlbhpc.study.fields import Entry, Text, Words
from rlbhpc.study.tree import load_tree
from rlbhpc.sweep.process import devices

# A word that Slurm and the shell take as it is: no blank, no quote, nothing that expands.
WORD: Final = r"^[A-Za-z0-9_.,:=@%+/\[\]*&|()-]{1,200}$"
WORD_CHARACTERS: Final = "letters, digits and _ . , : = @ % + / [ ] * & | ( ) -"
Word = Annotated[str, Field(pattern=WORD), Words(WORD_CHARACTERS)]
Span = Annotated[
    str,
    Field(pattern=r"^(\d+-)?\d{1,6}(:\d{2}){0,2}$"),
    Words("a time as sbatch takes it, in quotes: '90' minutes, '12:00:00' or '2-00:00:00'"),
]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]
Seconds = Annotated[int, Field(ge=1, le=65_535)]

# The table that comes along, of a checkout or of an installed wheel; a site's own files go first.
BUILT_IN: Final = (
    Path(__file__).parents[2] / "configs" / "clusters",
    Path(sys.prefix) / "share" / "rlbhpc" / "clusters",
)
DEFAULT: Final = "generic"
# This name stands for this machine.
HERE: Final = "local"


class Resources(Entry):
    """What one kind of job asks for."""

    partition: Word | None = None
    """Partition; when left out, the site's default."""
    time: Span = "04:00:00"
    """Time limit of one run of the job; a job that needs longer is requeued."""
    nodes: Annotated[int, Field(ge=1, le=4_096)] = 1
    """Nodes of one task, which fills all their GPUs."""
    gpus: Annotated[int, Field(ge=0, le=64)] = 0
    """GPUs per node."""
    gpu_type: Word | None = None
    """Type of these GPUs as Slurm calls it, such as a100; when left out, any."""
    cpus: Annotated[int, Field(ge=1, le=1_024)] = 4
    """CPUs per task."""
    memory: Word | None = None
    """Memory per node, such as 64G; when left out, the site's default."""
    options: dict[Word, Word] = Field(default_factory=dict)
    """More options of sbatch by their long names, such as constraint: a100."""


class Container(Entry):
    """How work runs inside an image."""

    image: Text
    """The SIF file. `$VARIABLE` and `~` are expanded where the launch is written."""
    command: Literal["apptainer", "singularity"] = "apptainer"
    """The program that runs it."""
    flags: list[Word] = Field(default_factory=list)
    """More options of `exec`, such as --nv."""
    binds: list[Text] = Field(default_factory=list)
    """Folders to show inside besides those that the study names."""


class Cluster(Entry):
    """One site. Every key has a default that suits a plain Slurm."""

    hosts: list[Text] = Field(default_factory=list)
    """Patterns of host names by which the site is recognised, such as login*.example.org."""
    account: Word | None = None
    """Account of all jobs."""
    sample: Resources = Resources(gpus=1, cpus=8)
    """A task that samples."""
    train: Resources = Resources(gpus=1, cpus=8)
    """A job that trains."""
    light: Resources = Resources(time="01:00:00", cpus=2)
    """Jobs without a GPU: compact, report."""
    gpu_memory: Annotated[int, Field(ge=1, le=1_024)] | None = None
    """GiB of memory of one GPU: `check`, `plan` and `launch` refuse models that it is too small
    for."""
    gpu_option: Literal["gres", "gpus-per-node"] = "gres"
    """How GPUs are asked for."""
    max_array_size: Annotated[int, Field(ge=1, le=4_000_000)] = 1_001
    """MaxArraySize of the site: an array's largest index is one less."""
    max_jobs: Annotated[int, Field(ge=1)] | None = None
    """Most jobs, array tasks counted one by one, that a user may have in the queue."""
    throttle: Annotated[int, Field(ge=1)] | None = None
    """Most array tasks of a launch that run at once."""
    warning: Seconds = 180
    """Seconds before the time limit at which a job is warned, to finish what is in flight."""
    kill_wait: Seconds = 30
    """Seconds between TERM and KILL at the time limit and on a preemption without warning."""
    setup: list[Text] = Field(default_factory=list)
    """Lines of shell before the work, such as module load apptainer."""
    python: Text | None = None
    """Python 3.9 or newer on the nodes, outside any container, for the parent of each job; when
    left out, the Python that launches."""
    rlbhpc: Annotated[list[Text], Field(min_length=1)] | None = None
    """The command of rlbhpc, in the container if there is one; when left out, `rlbhpc` there, and
    without a container that of the environment that launches."""
    environment: dict[Variable, str] = Field(default_factory=dict)
    """Environment variables of every job. Secrets do not belong here."""
    scratch: Annotated[str, Field(pattern=r"^[A-Za-z0-9_./${}:-]+$")] = (
        "${SLURM_TMPDIR:-${TMPDIR:-/tmp}}"
    )
    """A folder on the node itself, for compiler caches; shell variables are expanded there."""
    stage: Annotated[str, Field(pattern=r"^[A-Za-z0-9_./${}:-]+$")] | None = None
    """A folder on the node that outlives a job, to which models are copied once per node for all
    tasks; when left out, models are read from where the study names them."""
    container: Container | None = None
    """The image; when left out, `rlbhpc` is run as it is."""


def parent_python(cluster: Cluster) -> str:
    """The Python that runs the parents of jobs, outside any container."""
    return cluster.python or sys.executable


def rlbhpc_command(cluster: Cluster) -> list[str]:
    """The command of rlbhpc as jobs call it."""
    if cluster.rlbhpc is not None:
        return cluster.rlbhpc
    return ["rlbhpc"] if cluster.container else [sys.executable, "-m", "rlbhpc"]


def python_of(rlbhpc: list[str]) -> list[str]:
    """The Python of the environment that a command of rlbhpc belongs to."""
    if rlbhpc[-2:] == ["-m", "rlbhpc"]:
        return rlbhpc[:-2]
    *wrapper, program = rlbhpc
    bin_folder, slash, _ = program.rpartition("/")
    return [*wrapper, f"{bin_folder}{slash}python"]


def copies_per_task(cluster: Cluster, gpus_per_copy: int) -> int:
    """Copies of a model that the nodes of one sampling task hold."""
    return cluster.sample.nodes * max(1, cluster.sample.gpus // gpus_per_copy)


def load_cluster(path: Path) -> Cluster:
    """Read one file of the cluster table."""
    return validated(load_tree(path), Cluster)


def table_folders() -> list[Path]:
    """Where tables are looked for, the user's own before those that come along."""
    variable = os.environ.get("RLBHPC_CLUSTERS", "")
    named_folders = [Path(folder) for folder in variable.split(os.pathsep) if folder]
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser())
    return [*named_folders, config / "rlbhpc" / "clusters", *BUILT_IN]


def this_machine() -> Cluster:
    """Describe this machine as a cluster without a scheduler.

    Sampling takes all its GPUs, training one. `devices` lists the GPUs. A time limit of 100 days
    stands for none. ``kill_wait`` is the seconds that the work has to finish once it is told to
    end.
    """
    gpus = len(devices())
    return Cluster(
        sample=Resources(gpus=gpus, time="100-0"),
        train=Resources(gpus=min(1, gpus), time="100-0"),
        light=Resources(time="100-0"),
        kill_wait=120,
    )


def table() -> dict[str, Path]:
    """The file of every known cluster by its name; the first folder that has a name wins.

    The cluster table is several folders of YAML files, one file per cluster, named after it. The
    user's own folders come first.
    """
    paths: dict[str, Path] = {}
    for folder in table_folders():
        # A folder that may not be read, such as one of a home on another machine, has none.
        with contextlib.suppress(OSError):
            for path in sorted(folder.glob("*.yaml")):
                paths.setdefault(path.stem, path)
    return paths


def choose(name_or_file: str | None) -> tuple[str, Cluster]:
    """Name and entry of the cluster to launch on.

    The argument is a name of the cluster table, a path that ends in .yaml, or `HERE` for this
    machine; without one, the host's name decides. `DEFAULT` is a plain Slurm, for which no file is
    needed.
    """
    if name_or_file is None:
        return _choose_by_host()
    if name_or_file == HERE:
        return HERE, this_machine()
    if name_or_file.endswith(".yaml"):
        return Path(name_or_file).stem, load_cluster(Path(name_or_file))
    paths = table()
    if name_or_file in paths:
        return name_or_file, load_cluster(paths[name_or_file])
    if name_or_file == DEFAULT:
        return DEFAULT, Cluster()
    raise UserError(
        f"no cluster {name_or_file!r} in the table; there are {', '.join(paths)}"
        f"{nearest(name_or_file, paths)}; a cluster is one file, see docs/clusters.md"
    )


def _choose_by_host() -> tuple[str, Cluster]:
    """The first cluster whose patterns match this host's name, else the default one.

    A cluster's ``hosts`` are patterns such as login*.example.org.
    """
    host_names = [socket.gethostname(), socket.getfqdn()]
    for name, path in table().items():
        cluster = load_cluster(path)
        if any(fnmatch.filter(host_names, pattern) for pattern in cluster.hosts):
            return name, cluster
    return choose(DEFAULT)
