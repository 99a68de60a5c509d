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
from typing import Final

from rlbhpc.engines.folder import VARIABLE as STAGE_VARIABLE
from rlbhpc.errors import UserError
from rlbhpc.launch.cluster import Cluster, Container
from rlbhpc.study.study import Study

# Variables of Slurm and of the GPUs that the work reads.
PASSED_VARIABLES: Final = (
    "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID",
    "SLURM_JOB_ID", "SLURM_NODEID", "SLURM_RESTART_COUNT", "TMPDIR",
)  # fmt: skip
# Bash expands these to the names of the variables by which a site sets up its network.
PASSED_PREFIXES: Final = ("${!NCCL_@}", "${!UCX_@}", "${!FI_@}")
# Characters that have a meaning in the value of --bind.
SPECIAL_CHARACTERS: Final = frozenset(":,\"'\\\n")
LINE_WIDTH: Final = 92


def export_lines(variables: Iterable[str]) -> str:
    """Shell lines that let variables into the container by name.

    A container starts with a clean environment. Apptainer sets NAME inside from APPTAINERENV_NAME
    outside, Singularity from SINGULARITYENV_NAME. The lines do that for each variable that is set:
    ``variables``, and those of Slurm, the GPUs and the network that all work reads.
    """
    names = " ".join([*sorted({*variables, *PASSED_VARIABLES}), *PASSED_PREFIXES])
    name_lines = " \\\n    ".join(textwrap.wrap(names, LINE_WIDTH))
    # In bash ${!name} is the value of the variable that $name names, and ${!name+x} is empty where
    # that is not set.
    return (
        f"for name in {name_lines}; do\n"
        '    [ -z "${!name+x}" ] || export "APPTAINERENV_$name=${!name}" '
        '"SINGULARITYENV_$name=${!name}"\ndone'
    )


def exec_lines(cluster: Cluster, folders: Iterable[Path]) -> list[str]:
    """Lines of the shell command that starts a container; none where the cluster has no container.

    All work of a job runs under it. ``folders`` are those that the work reads or writes: with the
    scratch folder and the staging folder of the node, they are bound, which makes them visible
    inside.
    """
    settings = cluster.container
    if settings is None:
        return []
    words = [settings.command, "exec", "--cleanenv", "--no-home", *settings.flags]
    lines = [shlex.join(words) + ' --pwd "$PWD" --bind "$scratch"']
    if cluster.stage is not None:
        lines.append(f'--bind "${STAGE_VARIABLE}"')
    lines += [f"--bind {shlex.quote(str(folder))}" for folder in _bound_folders(settings, folders)]
    lines.append(shlex.quote(str(expand_path(settings.image))))
    return lines


def study_folders(study: Study) -> list[Path]:
    """Folders that the work on a study reads or writes.

    These are the folder of its results and those of its models, problem files and texts. A model's
    path has `{step}` in it where it stands for a line of checkpoints: the folder above is then
    taken.
    """
    folders: list[Path] = [study.layout.root]
    model_paths = [model.path for model in study.models.values() if model.path]
    folders += [Path(path.partition("{step}")[0]) for path in model_paths]
    # Images lie beside the file of their problems.
    set_files = [entry.path for entry in study.problem_sets.values() if entry.path]
    folders += [Path(file).parent for file in (*set_files, *study.text_digests)]
    return folders


def _bound_folders(settings: Container, folders: Iterable[Path]) -> list[Path]:
    """The folders to bind into the container, sorted, none inside another one.

    ``settings`` name more folders than ``folders``, as the cluster's file has them. A folder is
    bound under its own name and, where symbolic links lead to it, under its real one too, since
    inside the image the links would lead nowhere.
    """
    paths: set[Path] = set()
    for folder in (*folders, *map(expand_path, settings.binds)):
        paths |= {folder.absolute(), folder.resolve()}
    bound: list[Path] = []
    for path in sorted(paths):
        if SPECIAL_CHARACTERS & set(str(path)):
            raise UserError(
                f"{path}: a folder with one of : , \" ' \\ in its name cannot be bound into "
                "a container; rename it, or link to it from a plain name"
            )
        # What lies inside another one is bound with it.
        if not any(path.is_relative_to(parent) for parent in bound):
            bound.append(path)
    return bound


def expand_path(text: str) -> Path:
    """A path of the cluster table with `$VARIABLE` and `~` filled in."""
    return Path(os.path.expandvars(text)).expanduser()
