"""Running inside an image: what is bound, what of the environment is let in, and by which words.

The environment is cleaned and let in by name: a host's LD_LIBRARY_PATH or PYTHONPATH inside an
image breaks it in ways that take days to find.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from rlbhpc import __version__
from rlbhpc.engines.folder import VARIABLE as STAGE_VARIABLE
from rlbhpc.errors import UserError
from rlbhpc.files import sha256_of
from rlbhpc.launch.cluster import Cluster, Container
from rlbhpc.launch.slurm import query
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


# Build and check Apptainer images.


CHECKOUT: Final = Path(__file__).parents[2]
IMAGE_KINDS: Final = ("gpu", "cpu", "verify")
DEBIAN_MIRROR: Final = "http://deb.debian.org/debian"
# Apptainer colours its messages, and switches back on a line of its own.
_COLOUR_CODE: Final = re.compile(r"\x1b\[[\d;]*m")


def find_program() -> str:
    """The program that builds and runs images here."""
    for name in ("apptainer", "singularity"):
        if shutil.which(name):
            return name
    raise UserError(
        "neither apptainer nor singularity is here; load its module (module load apptainer), or "
        "build on another machine and copy the .sif here"
    )


def build_image(kind: str, target: Path) -> Path:
    """Build a container image into ``target``, and return that path.

    ``kind`` names a definition file in `containers/` of the source checkout. The file appears under
    its name only when it is whole: it is built as `.partial` and renamed.
    """
    definition = CHECKOUT / "containers" / f"{kind}.def"
    if not definition.is_file():
        raise UserError(f"{definition} is not there: images are built from a checkout of rlbhpc")
    partial = target.with_name(f"{target.name}.partial")
    partial.unlink(missing_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [
        find_program(), "build",
        "--build-arg", f"revision={read_revision()}",
        "--build-arg", f"version={__version__}",
        "--build-arg", f"mirror={find_debian_mirror()}",
        str(partial.absolute()), str(definition),
    ]  # fmt: skip
    process = subprocess.run(command, cwd=CHECKOUT, check=False)
    if process.returncode != 0:
        partial.unlink(missing_ok=True)
        raise UserError(
            f"{' '.join(command)}: exit code {process.returncode}. Where images cannot be built "
            "(no root, no user namespaces), build on another machine and copy the .sif here"
        )
    partial.replace(target)
    return target


def find_debian_mirror() -> str:
    """The URL of the Debian mirror that this machine takes its own packages from, else Debian's.

    The answer of `query` is the command's output, None where it fails or is not there.
    """
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    for line in (query(*command) or "").splitlines():
        url = line.rstrip("/")
        if url.endswith("/debian"):
            return url
    return DEBIAN_MIRROR


def read_revision() -> str:
    """The git revision of the checkout, with "-changed" behind it when files were changed since.

    `query` gives a command's output, None where git fails or is too slow.
    """
    git = ("git", "-C", str(CHECKOUT))
    head = query(*git, "rev-parse", "HEAD")
    if head is None:
        return "unknown"
    changes = query(*git, "status", "--porcelain", "--untracked-files=no")
    # Where git does not answer in time, nobody knows that nothing was changed.
    is_unchanged = changes == ""
    return head.strip() if is_unchanged else f"{head.strip()}-changed"


def verify_image(path: Path) -> dict[str, Any]:
    """Path, digest and labels of an image, and the version of the rlbhpc that starts in it.

    Refuses a file that is no image of rlbhpc, and one in which rlbhpc does not start. Labels are
    what the build wrote into the image.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such image; build it with `rlbhpc image build`")
    labels = _read_labels(path)
    if "rlbhpc.version" not in labels:
        raise UserError(f"{path}: not an image of rlbhpc; it has no label rlbhpc.version")
    command = [find_program(), "exec", "--cleanenv", str(path), "rlbhpc", "--version"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        error_lines = _COLOUR_CODE.sub("", process.stderr).strip().splitlines()
        reason = error_lines[-1] if error_lines else f"exit code {process.returncode}"
        raise UserError(f"{path}: rlbhpc does not start in it: {reason}; see `rlbhpc doctor`")
    return {
        "sif": str(path),
        "sha256": sha256_of(path),
        "rlbhpc": process.stdout.strip(),
        "labels": labels,
    }


def _read_labels(path: Path) -> dict[str, str]:
    """Names and values of the labels that an image was built with.

    `find_program` gives the command that runs images here, apptainer or singularity.
    """
    command = [find_program(), "inspect", "--json", "--labels", str(path)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        labels = json.loads(process.stdout)["data"]["attributes"]["labels"]
    except (ValueError, LookupError, TypeError):
        reason = process.stderr.strip()
        raise UserError(f"{path}: cannot be read as an image: {reason}") from None
    return {str(name): str(value) for name, value in (labels or {}).items()}
