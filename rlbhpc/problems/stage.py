"""Fetch problem sets, and tell later whether they are still what was fetched.

Compute nodes have no network, and a data set on the hub can change under its name. So a set is
fetched once, at a revision, into a folder with a manifest: what was fetched from where, every
file's hash, and which problems come out of it. The manifest holds no times or hosts, so the same
revision gives the same manifest anywhere.
"""

from __future__ import annotations

import json
import shlex
import shutil
import socket
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.files import PARTIAL, put, sha256_of
from rlbhpc.problems.problemset import FileSet, Selection, Source, digest
from rlbhpc.problems.record import SLIM, slim_lines
from rlbhpc.problems.registry import get_set

MANIFEST: Final = "manifest.json"
# What of a model's folder is read; weights of other formats are left where they are.
MODEL_FILES: Final = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")
_CHUNK_BYTES: Final = 1 << 20
_TIMEOUT_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Manifest:
    """What a staged folder holds.

    ``source`` is ``repo`` and ``revision`` on the hub, or ``urls``; ``files`` map a path in the
    folder to ``bytes`` and ``sha256``, ``problems`` a subset to ``count`` and ``digest``.
    """

    set: str
    source: dict[str, Any]
    files: dict[str, dict[str, Any]]
    problems: dict[str, dict[str, Any]]


class _UnreachableError(Exception):
    """The place to fetch from does not answer."""


def stage(name: str, to: Path, revision: str | None = None) -> tuple[Manifest, bool]:
    """Download a problem set into ``to/<name>`` unless it is there already, unchanged.

    The result is the folder's manifest (source, hash of every file, digest of every subset), and
    whether anything was downloaded. The manifest stores ``revision`` (branch, tag or commit; the
    newest if missing) as a commit. A set with ``big`` fields gets a slim file: its records without
    these fields, for quick reading. `_fetch_source` does the download; ``put`` writes a file whole
    or not at all. ``TRY_AGAIN`` is the exit code for what may work later.
    """
    source = _file_set(name).source
    folder = to / name
    if revision is not None and not source.repo:
        raise UserError(f"{name} is fetched from a fixed address, which has no revision to choose")
    if (folder / MANIFEST).is_file():
        manifest = check(folder)
        held = str(manifest.source.get("revision", ""))
        if revision is not None and not held.startswith(revision):
            # Files of two revisions in one folder would be neither.
            raise UserError(
                f"{folder} holds revision {held}; remove it, or give another --to for {revision}"
            )
        return manifest, False
    try:
        origin = _fetch_source(source, folder, revision)
    except _UnreachableError as error:
        raise UserError(_offline_advice(name, to, revision, error), TRY_AGAIN) from None
    problem_set = _file_set(name)
    if problem_set.big:
        (folder / SLIM).unlink(missing_ok=True)
        put(folder / SLIM, "".join(slim_lines(folder, problem_set.big)).encode())
    manifest = Manifest(name, origin, _file_hashes(folder), _subset_digests(name, folder))
    text = json.dumps(asdict(manifest), indent=1, ensure_ascii=False) + "\n"
    put(folder / MANIFEST, text.encode())
    return manifest, True


def check(folder: Path) -> Manifest:
    """Compare a staged folder with its manifest: every file, by size and hash.

    The first file that is changed, missing or added is an error. ``MANIFEST`` is the name of the
    file that lists them.
    """
    try:
        manifest = Manifest(**json.loads((folder / MANIFEST).read_text(encoding="utf-8")))
        wanted = {path: (entry["bytes"], entry["sha256"]) for path, entry in manifest.files.items()}
    except FileNotFoundError:
        raise UserError(f"{folder}: no {MANIFEST} in it; `rlbhpc stage` did not fill it") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"{folder / MANIFEST}: no manifest ({error}); stage the set again"
        ) from None
    present = {path: (file["bytes"], file["sha256"]) for path, file in _file_hashes(folder).items()}
    for path in sorted(wanted.keys() | present.keys()):
        if wanted.get(path) != present.get(path):
            state = "changed"
            if path not in present:
                state = "missing"
            elif path not in wanted:
                state = "added"
            raise UserError(
                f"{folder / path}: {state} since {manifest.set} was staged; "
                f"remove {folder} and stage it again"
            )
    return manifest


def staged_set_names(to: Path) -> list[str]:
    """Names of the sets that were staged into a folder."""
    return sorted(file.parent.name for file in to.glob(f"*/{MANIFEST}"))


def _file_set(name: str) -> FileSet:
    problem_set = get_set(name)
    if not isinstance(problem_set, FileSet):
        raise UserError(f"{name} is generated; there is nothing to fetch")
    return problem_set


def _fetch_source(source: Source, folder: Path, revision: str | None) -> dict[str, Any]:
    """Bring the files of a source into the folder; gives what the manifest says of it."""
    if source.urls:
        for url in source.urls:
            _download_url(url, folder / urllib.parse.urlsplit(url).path.rpartition("/")[2])
        return {"urls": list(source.urls)}
    return {"repo": source.repo, "revision": _fetch_hub(source, folder, revision, "dataset")}


def stage_model(hub: str, folder: Path) -> bool:
    """Download a model, ``owner/name`` or ``owner/name@revision``; False if its folder is there.

    The folder appears when it is whole; what an interrupted download has brought is kept beside it.
    """
    if folder.is_dir():
        return False
    repo, _, revision = hub.partition("@")
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        _fetch_hub(Source(repo, MODEL_FILES), partial, revision or None, "model")
    except _UnreachableError as error:
        reason = " ".join(str(error).split())
        option = f" --revision {shlex.quote(revision)}" if revision else ""
        raise UserError(
            f"{hub}: no way to fetch it from here ({reason}); on a machine with a network run "
            f"`hf download {repo}{option} --local-dir {shlex.quote(folder.name)}` and copy the "
            f"folder to {folder.absolute()}",
            TRY_AGAIN,
        ) from None
    partial.rename(folder)
    return True


def _download_url(url: str, target: Path) -> None:
    """Download one file; it gets its name only when it is whole."""
    part = target.with_name(f"{target.name}.part")
    try:
        # The addresses are the registry's own, never a user's.
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:
            part.parent.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as out:
                shutil.copyfileobj(answer, out, _CHUNK_BYTES)
            length = answer.headers.get("Content-Length")
        if length is not None and part.stat().st_size != int(length):
            raise _UnreachableError(f"{url}: the connection ended early")
    except urllib.error.HTTPError as error:
        raise UserError(f"{url}: the server answered {error.code} {error.reason}") from None
    except OSError as error:
        raise _UnreachableError(f"{url}: {error}") from None
    part.replace(target)


def _fetch_hub(source: Source, folder: Path, revision: str | None, kind: str) -> str:
    """Fetch file by file, so that what can't be had is an error and never an old copy."""
    try:
        from huggingface_hub import HfApi, hf_hub_download
        from huggingface_hub import errors as hub
    except ImportError:
        raise UserError(
            "fetching from the hub needs the package huggingface_hub: "
            "in a checkout, pip install '.[stage]'; or run this where it is installed"
        ) from None
    try:
        info = HfApi().repo_info(
            source.repo,
            repo_type=kind,
            revision=revision,
            files_metadata=True,
            timeout=_TIMEOUT_SECONDS,
        )
        entries = info.siblings or []
        wanted = [entry for entry in entries if _matches(entry.rfilename, source.patterns)]
        if not wanted:
            raise UserError(
                f"{source.repo} at {info.sha}: no file like {', '.join(source.patterns)}; the "
                f"{kind} was rearranged, so name an older revision"
            )
        for entry in wanted:
            file = hf_hub_download(
                source.repo,
                entry.rfilename,
                repo_type=kind,
                revision=info.sha,
                local_dir=folder,
            )
            if entry.lfs is not None and sha256_of(Path(file)) != entry.lfs.sha256:
                Path(file).unlink()
                raise UserError(f"{file}: arrived damaged and was removed; stage again", TRY_AGAIN)
    except hub.HfHubHTTPError as error:
        if error.response is not None and error.response.status_code < 500:
            raise UserError(f"{source.repo}: {str(error).splitlines()[0]}") from None
        raise _UnreachableError(f"{source.repo}: {error}") from None
    except (OSError, getattr(hub, "HTTPError", OSError)) as error:
        # Older releases of the library stand on another HTTP client, whose errors are OSErrors.
        raise _UnreachableError(f"{source.repo}: {error}") from None
    return str(info.sha)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _offline_advice(name: str, to: Path, revision: str | None, error: _UnreachableError) -> str:
    """Say which commands to run where, when there is no network here."""
    reason = " ".join(str(error).split())
    option = f" --revision {shlex.quote(revision)}" if revision else ""
    folder = (to / name).absolute()
    target = shlex.quote(f"{socket.gethostname()}:{folder}/")
    return (
        f"{name}: no way to fetch it from here ({reason}); on a machine with a network run "
        f"`rlbhpc stage {name} --to data{option}` and then `rsync -a data/{name}/ {target}`, "
        f"and here `rlbhpc stage {name} --to {shlex.quote(str(to))} --check`"
    )


def _file_hashes(folder: Path) -> dict[str, dict[str, Any]]:
    """Return size and hash of every file, without the manifest, partial and hidden files."""
    files = {}
    for file in sorted(folder.rglob("*")):
        path = file.relative_to(folder)
        is_hidden = any(name.startswith(".") for name in path.parts)
        is_unfinished = file.suffix == PARTIAL
        if is_hidden or is_unfinished or path.as_posix() == MANIFEST:
            continue
        if file.is_file():
            files[path.as_posix()] = {"bytes": file.stat().st_size, "sha256": sha256_of(file)}
    return files


def _subset_digests(name: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Return, by subset, how many problems it has and a digest over them.

    Subsets are the set's splits and those that it defines; a set without any has the key ``all``.
    ``dropped=[]`` lets the set leave out repeated records.
    """
    problem_set = _file_set(name)
    subsets = (*problem_set.splits, *problem_set.subsets)
    # Patterns such as FROM..TO are no names.
    names = [subset for subset in subsets if subset.islower()]
    contents = {}
    for subset in names or (None,):
        # What is published with repeated records is staged as it is, and each counted once.
        problems = problem_set.load(Selection(name, folder, subset, dropped=[]))
        contents[subset or "all"] = {"count": len(problems), "digest": digest(problems)}
    return contents
