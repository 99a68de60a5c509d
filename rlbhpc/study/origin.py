"""The noun *Origin*: what a checkpoint was made by, and what it was when it was whole.

A trained model's digest comes from the study's text, so that samples can be planned before the
model exists. The record beside the weights says which digest they were made for; what a study says
and what lies on disk are compared before anything is drawn.
"""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rlbhpc.errors import UserError
from rlbhpc.files import making, put
from rlbhpc.study.content import Mark, Stock, changed_content, stock_digest, take_stock

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
