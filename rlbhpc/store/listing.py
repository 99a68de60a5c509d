"""What a part says about its own rows: their keys, their digest, a checksum per column."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlbhpc.store import schema
from rlbhpc.store.checksum import checksums
from rlbhpc.store.frames import DamagedError
from rlbhpc.store.sample import SCHEMA_VERSION
from rlbhpc.study.keys import Cell
from rlbhpc.verify.verdict import Status

#: Whose per-token values a part keeps; see :mod:`rlbhpc.store.tokens`.
TokenPolicy = Literal["none", "sampled", "all"]

#: Verdicts of samples that may be tried again.
FAILED: Final = (int(Status.FAILED), int(Status.ERROR))

#: How the list of keys begins, wherever in the footer it stands.
_MARK: Final = b'{"rlbhpc part":'
_SUMS: Final = "rlbhpc checksums"


class Group(NamedTuple):
    """One row group: samples of one cell, ascending, with their verdicts and tokens in all."""

    cell: int
    samples: NDArray[np.int32]
    verdicts: NDArray[np.int8]
    tokens: int


@dataclass
class Listing:
    """The keys of a part's rows.

    ``tokens``: whose per-token values the part keeps. ``cells, groups``: row group ``i`` has the
    samples ``groups[i].samples`` of ``cells[groups[i].cell]``. ``sums``: checksums by row group and
    column.
    """

    tokens: TokenPolicy
    cells: list[Cell] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    sums: list[NDArray[np.uint32]] = field(default_factory=list)

    def add(self, table: pa.Table) -> None:
        """Take in the next row group: all columns of one cell's samples."""
        cell = _cell(table)
        if not self.cells or self.cells[-1] != cell:
            self.cells.append(cell)
        samples, verdicts = table["sample"].to_numpy(), table["verdict"].to_numpy()
        tokens = int(table["n_tokens"].to_numpy().sum(dtype=np.int64))
        self.groups.append(Group(len(self.cells) - 1, samples, verdicts, tokens))
        self.sums.append(checksums(table.select(schema.ROWS.names), [table.num_rows])[0])

    @cached_property
    def rows(self) -> int:
        """Number of samples."""
        return sum(len(group.samples) for group in self.groups)

    def metadata(self) -> dict[str, str]:
        """Write it down for the footer."""
        fields = {
            "schema_version": SCHEMA_VERSION,
            "tokens": self.tokens,
            "cells": self.cells,
            "groups": [
                [group.cell, _runs(group.samples), _digits(group.verdicts), group.tokens]
                for group in self.groups
            ],
        }
        return {
            "rlbhpc part": json.dumps({"rlbhpc part": fields}, separators=(",", ":")),
            _SUMS: base64.b64encode(np.array(self.sums, "<u4").tobytes()).decode(),
        }


class Content:
    """What a part's name tells of its rows: keys, digests, token policy, schema version."""

    def __init__(self, tokens: TokenPolicy) -> None:
        self._hash = hashlib.sha256(f"{tokens} {SCHEMA_VERSION}".encode())

    def add(self, table: pa.Table) -> None:
        """Take in the next row group."""
        self._hash.update(json.dumps(_cell(table)).encode())
        self._hash.update(table["sample"].to_numpy().astype("<i4").tobytes())
        self._hash.update(table["digest"].to_numpy().astype("<i8").tobytes())

    def hex(self) -> str:
        """16 hex digits."""
        return self._hash.hexdigest()[:16]


def _cell(table: pa.Table) -> Cell:
    """Cell of rows that have only one."""
    return Cell(*(table[name][0].as_py() for name in Cell._fields))


def parse(footer: bytes) -> Listing:
    """Find the listing in a Parquet footer; the checksums are left out.

    The list is searched for in the bytes: parsing the whole footer as Parquet takes a hundred
    times longer, and the checksum in the part's name vouches for each byte.

    Raises :class:`DamagedError` when there is none, or a newer program wrote it.
    """
    position = footer.find(_MARK)
    if position < 0:
        raise DamagedError("a Parquet file without a list of samples")
    fields = json.JSONDecoder().raw_decode(footer[position:].decode("latin-1"))[0]["rlbhpc part"]
    if fields["schema_version"] != SCHEMA_VERSION:
        raise DamagedError(
            f"written with schema version {fields['schema_version']}, "
            f"this program knows {SCHEMA_VERSION}"
        )
    return Listing(
        fields["tokens"],
        [Cell(*cell) for cell in fields["cells"]],
        [
            Group(cell, _samples(runs), _verdicts(digits), tokens)
            for cell, runs, digits, tokens in fields["groups"]
        ],
    )


def sums(metadata: dict[bytes, bytes]) -> NDArray[np.uint32]:
    """Checksums by row group and column, of a Parquet file's metadata."""
    packed = base64.b64decode(metadata[_SUMS.encode()])
    return np.frombuffer(packed, "<u4").reshape(-1, len(schema.ROWS))


def _runs(samples: NDArray[np.int32]) -> list[int]:
    """Ascending samples as (first, count) of each run without a gap, one after the other."""
    starts = np.flatnonzero(np.diff(samples, prepend=samples[0] - 2) != 1)
    counts = np.diff(np.append(starts, len(samples)))
    return [int(x) for x in np.column_stack([samples[starts], counts]).ravel()]


def _samples(runs: list[int]) -> NDArray[np.int32]:
    pairs = zip(runs[::2], runs[1::2], strict=True)
    return np.concatenate([np.arange(a, a + n, dtype=np.int32) for a, n in pairs])


def _digits(verdicts: NDArray[np.int8]) -> str:
    """Write one digit per verdict: a resume scan then reads no column at all."""
    return (verdicts + ord("0")).astype(np.uint8).tobytes().decode()


def _verdicts(digits: str) -> NDArray[np.int8]:
    return np.frombuffer(digits.encode(), np.int8) - np.int8(ord("0"))
