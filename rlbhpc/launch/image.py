"""Build and check Apptainer images."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rlbhpc import __version__
from rlbhpc.errors import UserError

ROOT: Final = Path(__file__).parents[2]
KINDS: Final = ("gpu", "cpu", "verify")
PROGRAMS: Final = ("apptainer", "singularity")
DEBIAN: Final = "http://deb.debian.org/debian"
# Apptainer colours its messages, and switches back on a line of its own.
_COLOUR: Final = re.compile(r"\x1b\[[\d;]*m")


@dataclass(frozen=True)
class Image:
    """A SIF file that was looked into."""

    path: Path
    sha256: str
    labels: dict[str, str]
    rlbhpc: str


def program() -> str:
    """The program that builds and runs images here."""
    for name in PROGRAMS:
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
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return DEBIAN
    mirrors = [line.rstrip("/") for line in done.stdout.splitlines()]
    return next((line for line in mirrors if line.endswith("/debian")), DEBIAN)


def revision() -> str:
    """The checkout's git revision, marked when files were changed since."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    head = git("rev-parse", "HEAD") or "unknown"
    return f"{head}-changed" if git("status", "--porcelain", "--untracked-files=no") else head


def verify(path: Path) -> Image:
    """Look into an image: its labels, its digest, and whether rlbhpc starts in it."""
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
    return Image(path, digest(path), labels, done.stdout.strip())


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _labels(path: Path) -> dict[str, str]:
    command = [program(), "inspect", "--json", "--labels", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        labels = json.loads(done.stdout)["data"]["attributes"]["labels"]
    except (ValueError, LookupError, TypeError):
        raise UserError(f"{path}: cannot be read as an image: {done.stderr.strip()}") from None
    return {str(key): str(value) for key, value in (labels or {}).items()}
