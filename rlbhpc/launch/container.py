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
from rlbhpc.engines.folder import VARIABLE as STAGE
from rlbhpc.errors import UserError
from rlbhpc.files import sha256_of
from rlbhpc.launch import slurm
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


# Build and check Apptainer images.


ROOT: Final = Path(__file__).parents[2]
KINDS: Final = ("gpu", "cpu", "verify")
DEBIAN: Final = "http://deb.debian.org/debian"
# Apptainer colours its messages, and switches back on a line of its own.
_COLOUR: Final = re.compile(r"\x1b\[[\d;]*m")


def program() -> str:
    """The program that builds and runs images here."""
    for name in ("apptainer", "singularity"):
        if shutil.which(name):
            return name
    raise UserError(
        "neither apptainer nor singularity is here; load its module (module load apptainer), or "
        "build on another machine and copy the .sif here"
    )


def build(kind: str, target: Path) -> Path:
    """Build an image from `containers/` of a checkout into ``target``.

    The file appears under its name when it is whole.
    """
    definition = ROOT / "containers" / f"{kind}.def"
    if not definition.is_file():
        raise UserError(f"{definition} is not there: images are built from a checkout of rlbhpc")
    partial = target.with_name(f"{target.name}.partial")
    partial.unlink(missing_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [
        program(), "build",
        "--build-arg", f"revision={revision()}",
        "--build-arg", f"version={__version__}",
        "--build-arg", f"mirror={mirror()}",
        str(partial.absolute()), str(definition),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode != 0:
        partial.unlink(missing_ok=True)
        raise UserError(
            f"{' '.join(command)}: exit code {done.returncode}. Where images cannot be built "
            "(no root, no user namespaces), build on another machine and copy the .sif here"
        )
    partial.replace(target)
    return target


def mirror() -> str:
    """The Debian mirror that this machine takes its own packages from, else Debian's."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    mirrors = [line.rstrip("/") for line in (slurm.ask(*command) or "").splitlines()]
    return next((line for line in mirrors if line.endswith("/debian")), DEBIAN)


def revision() -> str:
    """The checkout's git revision, marked when files were changed since."""
    git = ("git", "-C", str(ROOT))
    head = slurm.ask(*git, "rev-parse", "HEAD")
    if head is None:
        return "unknown"
    # Where git does not answer in time, nobody knows that nothing was changed.
    changes = slurm.ask(*git, "status", "--porcelain", "--untracked-files=no")
    return head.strip() if changes == "" else f"{head.strip()}-changed"


def verify(path: Path) -> dict[str, Any]:
    """Labels and digest of an image, and the version of the rlbhpc that starts in it."""
    if not path.is_file():
        raise UserError(f"{path}: no such image; build it with `rlbhpc image build`")
    labels = _labels(path)
    if "rlbhpc.version" not in labels:
        raise UserError(f"{path}: not an image of rlbhpc; it has no label rlbhpc.version")
    command = [program(), "exec", "--cleanenv", str(path), "rlbhpc", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = [line for line in _COLOUR.sub("", done.stderr).splitlines() if line.strip()]
        last = said[-1] if said else f"exit code {done.returncode}"
        raise UserError(f"{path}: rlbhpc does not start in it: {last}; see `rlbhpc doctor`")
    return {
        "sif": str(path),
        "sha256": sha256_of(path),
        "rlbhpc": done.stdout.strip(),
        "labels": labels,
    }


def _labels(path: Path) -> dict[str, str]:
    command = [program(), "inspect", "--json", "--labels", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        labels = json.loads(done.stdout)["data"]["attributes"]["labels"]
    except (ValueError, LookupError, TypeError):
        raise UserError(f"{path}: cannot be read as an image: {done.stderr.strip()}") from None
    return {str(key): str(value) for key, value in (labels or {}).items()}
