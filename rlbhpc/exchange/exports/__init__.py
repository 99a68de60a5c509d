"""Write results in formats that other tools read: one small file per format, and their registry.

To add one, write a function that fills a file or a folder and add it to :data:`FORMATS`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rlbhpc import files
from rlbhpc.errors import UserError
from rlbhpc.exchange.exports.every_eval_ever import write_every_eval_ever
from rlbhpc.exchange.exports.hub import write_hub
from rlbhpc.exchange.exports.tables import (
    write_csv,
    write_parquet,
    write_tensorboard,
)
from rlbhpc.study.layout import Layout


@dataclass(frozen=True)
class FileFormat:
    """One file; ``write`` gives how many ``things`` went into it."""

    write: Callable[[Layout, files.Sink], int]
    what: str
    things: str = "rows"


@dataclass(frozen=True)
class FolderFormat:
    """A folder of files; ``write`` fills it and gives how many ``things`` went into it."""

    write: Callable[[Layout, Path], int]
    what: str
    things: str = "rows"


#: Formats by the ending that names them.
FORMATS: Final[Mapping[str, FileFormat | FolderFormat]] = {
    ".parquet": FileFormat(write_parquet, "every sample with its text and per-token values"),
    ".csv": FileFormat(write_csv, "n and c per problem and step (rlbhpc import reads it)"),
    ".tensorboard": FolderFormat(write_tensorboard, "training curves as event files", "steps"),
    ".hub": FolderFormat(write_hub, "a folder for the Hugging Face Hub: card, Parquet, figures"),
    ".eee": FolderFormat(write_every_eval_ever, "a folder in the schema of Every Eval Ever"),
}


def export(layout: Layout, path: Path) -> str:
    """Write a run's results to a file or folder whose ending names the format.

    The result says how much was written, such as ``1,024 rows``; it is empty where the run has no
    results. What is written appears whole or not at all. ``layout`` gives the paths of the run's
    folder. `Sink` writes a file, ``publish`` renames it to its final name, and ``form.write`` gives
    how many things it wrote.
    """
    form = FORMATS.get(path.suffix.lower())
    if form is None:
        raise UserError(f"{path}: no format for this ending; there are {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise UserError(f"{path.parent}: no such folder; make it first")
    try:
        if isinstance(form, FolderFormat):
            count = _export_folder(form, layout, path)
        else:
            with files.temporary_path(path.parent) as partial:
                with files.Sink(partial) as sink:
                    count = form.write(layout, sink)
                files.publish(partial, path)
    except OSError as error:
        # An error of a rename has the final name behind the temporary one.
        place = error.filename2 or error.filename or path
        raise files.explain(error, Path(place)) from error
    return f"{count:,} {form.things}" if count else ""


def _export_folder(form: FolderFormat, layout: Layout, path: Path) -> int:
    """Fill a folder under a temporary name, and rename it when it is whole.

    The result is how many things went into it; an empty one is removed.
    """
    if path.exists():
        raise UserError(f"{path} exists; remove it, or choose another name")
    partial = files.partial_path(path.parent)
    partial.mkdir()
    try:
        count = form.write(layout, partial)
        if count:
            partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return count
