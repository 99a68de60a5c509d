"""Running inside an image: what is bound, what of the environment is let in, and by which words.

The environment is cleaned and let in by name: a host's LD_LIBRARY_PATH or PYTHONPATH inside an
image breaks it in ways that take days to find.
"""

from __future__ import annotations

import os
import shlex
import textwrap
from collections.abc import Iterable
from pathlib import Path

from rlbhpc.engines.folder import VARIABLE as STAGE
from rlbhpc.errors import UserError
from rlbhpc.launch.cluster import Cluster, Container
from rlbhpc.study.study import Study

# Variables of Slurm and of the GPUs that the work reads.
LET_IN = (
    "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID",
    "SLURM_JOB_ID", "SLURM_NODEID", "SLURM_RESTART_COUNT", "TMPDIR",
)  # fmt: skip
# Characters that have a meaning in the value of --bind.
SPECIAL = frozenset(":,\"'\\\n")


def exports(names: Iterable[str]) -> str:
    """Shell lines that let variables into the container by name."""
    wanted = textwrap.wrap(" ".join(sorted({*names, *LET_IN})), 92)
    return (
        "for name in " + " \\\n    ".join(wanted) + "; do\n"
        '    [ -z "${!name+x}" ] || export "APPTAINERENV_$name=${!name}" '
        '"SINGULARITYENV_$name=${!name}"\ndone'
    )


def runner(cluster: Cluster, folders: Iterable[Path]) -> list[str]:
    """Lines of the command that all work of a job runs under; none without a container.

    The work reads or writes the ``folders``.
    """
    inside = cluster.container
    if inside is None:
        return []
    image = str(expanded(inside.image))
    words = [inside.command, "exec", "--cleanenv", "--no-home", *inside.flags]
    lines = [shlex.join(words) + ' --pwd "$PWD" --bind "$scratch"']
    if cluster.stage is not None:
        lines.append(f'--bind "${STAGE}"')
    lines += [f"--bind {shlex.quote(str(path))}" for path in _bound(inside, folders)]
    lines.append(shlex.quote(image))
    return lines


def folders_of(study: Study) -> list[Path]:
    """Folders that the work on a study reads or writes."""
    named: list[Path] = [study.layout.root]
    named += [Path(entry.path.partition("{step}")[0]) for entry in study.models.values()
              if entry.path]  # fmt: skip
    # Images lie beside the file of their problems.
    files = [entry.path for entry in study.problem_sets.values() if entry.path]
    return named + [Path(file).parent for file in (*files, *study.text_digests)]


def _bound(inside: Container, folders: Iterable[Path]) -> list[Path]:
    """Some folders, and those of the cluster table, as they are bound.

    Symbolic links are followed, since inside the image they would lead nowhere.
    """
    binds: list[Path] = []
    for path in (*folders, *map(expanded, inside.binds)):
        for folder in dict.fromkeys((path.absolute(), path.resolve())):
            if SPECIAL & set(str(folder)):
                raise UserError(
                    f"{folder}: a folder with one of : , \" ' \\ in its name cannot be bound into "
                    "a container; rename it, or link to it from a plain name"
                )
            binds.append(folder)
    kept: list[Path] = []
    for path in sorted(set(binds)):
        # What lies inside another one is bound with it.
        if not any(path.is_relative_to(parent) for parent in kept):
            kept.append(path)
    return kept


def expanded(text: str) -> Path:
    """A path of the cluster table with `$VARIABLE` and `~` filled in."""
    return Path(os.path.expandvars(text)).expanduser()
