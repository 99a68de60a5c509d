"""What is in a checkpoint folder: a digest of everything that decides its answers, and its limits.

Only bytes are read, never a tensor, so this runs on a login node. A digest is kept in the user's
cache folder under (path, size, times of change) of each file: the first one of a 7B model takes
as long as reading 15 GB, every later one a few milliseconds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from rlbhpc.errors import UserError
from rlbhpc.files import making, put, sha256_of

WEIGHTS: Final = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
# Configuration, tokenizer and preprocessor files: each can change an answer.
SETTINGS: Final = (
    "*.json",
    "*.jinja",
    "*.model",
    "*.tiktoken",
    "merges.txt",
    "vocab.txt",
    "*.py",
)
# Training state and notes, of no effect on an answer.
WITHOUT_EFFECT: Final = (
    "optimizer.*",
    "scheduler.*",
    "rng_state*",
    "training_args.*",
    "trainer_state.json",
    "zero_to_fp32.py",
    "manifest.json",
    "origin.json",
)
# DeepSpeed's optimizer states hold the float32 weights too, which count where there are no others.
STATES: Final = ("*optim_states*",)
READY: Final = ("*.safetensors", "*.bin", "*.gguf")
# Bytes that a pointer of Git LFS does not reach.
POINTER: Final = 200
# Kept apart from the weights in use: other formats of the same model.
OTHER_FORMATS: Final = ("original", "onnx", "runs", "logs")


class Mark(NamedTuple):
    """One file as it was when it was read: size, times in nanoseconds, SHA-256."""

    size: int
    modified: int
    changed: int
    sha256: str


Stock = dict[str, Mark]
"""The files of a checkpoint that count, by their path in it."""


def content_digest(folder: Path) -> str:
    """32 hex digits over names, sizes and contents of all files that decide a model's answers."""
    return stock_digest(take_stock(folder))


def take_stock(folder: Path) -> Stock:
    """Read all files of a checkpoint that count."""
    files = content_files(folder)
    if not any(_matches(file.name, WEIGHTS) for file in files):
        raise UserError(
            f"{folder}: no weights in it ({', '.join(WEIGHTS)}); give the folder of a checkpoint"
        )
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        marks = list(pool.map(_mark, files))
    pointers = [
        file
        for file, mark in zip(files, marks, strict=True)
        if mark.size < POINTER and file.read_bytes().startswith(b"version https://git-lfs")
    ]
    # One format of the weights is enough; Mistral's own is beside the one that is read.
    formats = {file.suffix for file in files if _matches(file.name, WEIGHTS)}
    left_out = {file.suffix for file in pointers if not file.name.startswith("consolidated")}
    if pointers and formats <= left_out:
        raise UserError(f"{pointers[0]}: a pointer of Git LFS; run `git lfs pull` there")
    return {file.relative_to(folder).as_posix(): m for file, m in zip(files, marks, strict=True)}


def stock_digest(stock: Stock) -> str:
    """The digest of a checkpoint by its files."""
    lines = [f"{name}\0{mark.size}\0{mark.sha256}" for name, mark in stock.items()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def changed_content(folder: Path, stock: Stock) -> str | None:
    """Digest of a checkpoint that is not what it was; None where it is.

    While sizes and times are those of the stock, no file is read: 15 GB cost a few milliseconds.
    """
    files = {file.relative_to(folder).as_posix(): file for file in content_files(folder)}
    if files.keys() == stock.keys() and all(
        _times(files[name]) == mark[:3] for name, mark in stock.items()
    ):
        return None
    digest = content_digest(folder)
    return None if digest == stock_digest(stock) else digest


def _mark(file: Path) -> Mark:
    times = _times(file)
    return Mark(*times, file_digest(file))


def _times(file: Path) -> tuple[int, int, int]:
    try:
        status = file.stat()
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def content_files(folder: Path) -> list[Path]:
    """Return the files of a checkpoint that count, in a stable order."""
    files = []
    for parent, folders, names in os.walk(folder, followlinks=False):
        # A folder with a configuration of its own is another checkpoint, saved below this one.
        folders[:] = [
            d
            for d in folders
            if d not in OTHER_FORMATS
            and not d.startswith(".")
            and not Path(parent, d, "config.json").exists()
        ]
        files += [
            Path(parent, name)
            for name in names
            if _matches(name, WEIGHTS + SETTINGS) and not _matches(name, WITHOUT_EFFECT)
        ]
    if any(_matches(file.name, READY) for file in files):
        files = [file for file in files if not _matches(file.name, STATES)]
    return sorted(files, key=lambda file: file.relative_to(folder).as_posix())


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def file_digest(file: Path) -> str:
    """SHA-256 of one file, from the cache where the file has not changed since."""
    try:
        status = file.stat()
        kept = _cache_entry(file, status)
        if kept is not None and len(stored_digest := _kept(kept)) == 64:
            return stored_digest
        digest = sha256_of(file)
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None
    if kept is not None:
        _keep(kept, digest)
    return digest


def _cache_entry(file: Path, status: os.stat_result) -> Path | None:
    """Where the digest of a file is kept; None for small files, which are quicker to read."""
    if status.st_size < 1 << 16:
        return None
    identity = [str(file.resolve()), status.st_size, status.st_mtime_ns]
    # The inode's own time cannot be set back, unlike the time of modification that `cp -p` keeps.
    identity += [status.st_ctime_ns, status.st_ino]
    name = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:40]
    return _cache_folder() / name[:2] / name[2:]


@cache
def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "rlbhpc" / "digests"


def _kept(entry: Path) -> str:
    """A digest of the cache; empty where there is none, or where the home cannot be read."""
    try:
        return entry.read_text()
    except OSError:
        return ""


def _keep(entry: Path, digest: str) -> None:
    """Write a cache entry whole or not at all; a cache that cannot be written is no failure."""
    with contextlib.suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        with making(entry.parent) as partial:
            partial.write_text(digest)
            partial.replace(entry)


def model_config(folder: Path) -> dict[str, Any]:
    """Return ``config.json``; empty where there is none (an adapter, a ZeRO folder)."""
    file = folder / "config.json"
    try:
        config = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file}: not readable as JSON ({error})") from None
    if not isinstance(config, dict):
        raise UserError(f"{file}: holds no object; a model configuration is one")
    return config


def stated_length(config: dict[str, Any]) -> int | None:
    """Most tokens, prompt and response together, that a configuration states; None without any.

    Of a model with images it is its language model's. Rotary scaling adds nothing: transformers and
    vLLM take the stated length as the one that the scaling reaches.
    """
    names = (
        "max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len",
        "seq_length",
    )  # fmt: skip
    config = _of_language(config)
    return next((config[name] for name in names if isinstance(config.get(name), int)), None)


def steady_length(config: dict[str, Any]) -> int | None:
    """Tokens that a model can hold before its rotary frequencies become others for all of them.

    With LongRoPE (Phi-3, Phi-4-mini) they depend on the longest text of a batch, so ``hf`` and
    training hold no more.
    """
    length = stated_length(config)
    config = _of_language(config)
    scaling = config.get("rope_parameters") or config.get("rope_scaling")
    if length is None or not isinstance(scaling, dict):
        return length
    if scaling.get("rope_type", scaling.get("type")) not in ("longrope", "su"):
        return length
    name = "original_max_position_embeddings"
    return min(length, config.get(name) or scaling.get(name) or length)


def _of_language(config: dict[str, Any]) -> dict[str, Any]:
    text = config.get("text_config")
    return {**config, **text} if isinstance(text, dict) else config


# The noun *Origin*: what a checkpoint was made by, and what it was when it was whole.
#
# A trained model's digest comes from the study's text, so that samples can be planned before the
# model exists. The record beside the weights says which digest they were made for; what a study
# says and what lies on disk are compared before anything is drawn.


NAME = "origin.json"
# Hex digits of a digest that a message shows.
SHORT = 12


@dataclass(frozen=True)
class Origin:
    """A record beside weights or training state.

    ``made_by`` is the digest of what they are made from: base, recipe, data and, of a checkpoint,
    step. A training that starts from nothing gets a new name, ``run``. ``files`` are those of the
    checkpoint when they were whole; empty for training state.
    """

    made_by: str
    run: str
    files: Stock = field(default_factory=dict)

    def changed(self, folder: Path) -> str | None:
        """Digest of the files in ``folder`` if they are no longer those of the record."""
        return changed_content(folder, self.files)

    @property
    def content(self) -> str:
        """Digest of the files when they were whole."""
        return stock_digest(self.files)


def read_origin(folder: Path) -> Origin | None:
    """The record of a folder; None where there is none."""
    return read_record(folder / NAME)


def read_record(path: Path) -> Origin | None:
    """The record in a file; None where there is none."""
    try:
        record = json.loads(path.read_bytes())
        files = {name: Mark(*mark) for name, mark in record["files"].items()}
        return Origin(str(record["made_by"]), str(record["run"]), files)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UserError(f"{path}: not a record of where a checkpoint comes from") from None


def record_checkpoint(folder: Path, made_by: str, run: str) -> None:
    """Write down what a checkpoint was made by; all its other files are there."""
    _put(folder / NAME, Origin(made_by, run, take_stock(folder)))


def record_content(path: Path, digest: str, folder: Path) -> None:
    """Write down what the files of a model are to which a study gives the digest."""
    _put(path, Origin(digest, "", take_stock(folder)))


def begin_run(folder: Path, made_by: str) -> Origin:
    """The record of a training folder, which the first of all ranks writes."""
    with making(folder) as draft:
        _put(draft, Origin(made_by, uuid.uuid4().hex))
        try:
            os.link(draft, folder / NAME)  # whole or not at all, and by one of the ranks
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            draft.replace(folder / NAME)
    origin = read_origin(folder)
    assert origin is not None
    return origin


def _put(path: Path, origin: Origin) -> None:
    put(path, json.dumps(asdict(origin), indent=1).encode())
