"""Fields of a record that are too big to hold for every problem: read again when needed.

The private tests of LiveCodeBench v5 are gigabytes of text. A problem carries only where they
stand and their digest, so it stays small, can be sent to a worker, and has the same content hash
wherever the file lies.

Even so, finding them means reading all of those gigabytes, which a hundred workers should not do
at every start. ``rlbhpc stage`` therefore leaves a slim file beside such a set: the records
without the big fields, each with a pointer to them. Where it is there, it is read instead.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.problems.files import data_files, read_again, read_records
from rlbhpc.problems.record import Record

_POINTER: Final = "_deferred"


@dataclass(frozen=True)
class Deferred:
    """Some fields of one record, by place and digest.

    ``file``, ``number`` and ``offset`` are those of the :class:`Record`; ``names`` are the fields
    and ``digest`` is 16 hex digits over their values.
    """

    file: Path
    number: int
    offset: int | None
    names: tuple[str, ...]
    digest: str

    @classmethod
    def of(cls, record: Record, *names: str) -> Deferred:
        """Remember these fields of a record, all of which must be there."""
        if (pointer := record.values.get(_POINTER)) is not None:
            return cls._pointed(record, names, pointer)
        digest = _digest([record.need(name) for name in names])
        return cls(record.file.absolute(), record.number, record.offset, names, digest)

    @classmethod
    def _pointed(cls, record: Record, names: tuple[str, ...], pointer: Any) -> Deferred:
        """The same from a record of a slim file."""
        try:
            folder = record.file.parent.absolute()
            file = (folder / pointer["file"]).resolve()
            inside = file.is_relative_to(folder.resolve())
            number, offset = int(pointer["number"]), pointer["offset"]
            if not inside or tuple(pointer["names"]) != names:
                raise ValueError(pointer)
            return cls(file, number, offset, names, str(pointer["digest"]))
        except (ValueError, TypeError, KeyError):
            raise UserError(
                f"{record.place}: not what `rlbhpc stage` writes; remove {record.file}, the set is "
                "read without it too"
            ) from None

    @staticmethod
    def digest_of(value: Any) -> str:
        """What stands for a deferred value in a content hash: its digest, not its place."""
        if isinstance(value, Deferred):
            return value.digest
        kind = type(value).__name__
        raise UserError(f"a problem's extras may not hold a {kind}; write it as text in the file")

    def read(self) -> dict[str, Any]:
        """The fields by name, exactly as they were when the problem was loaded."""
        record = read_again(self.file, self.number, self.offset)
        values = {name: record.need(name) for name in self.names}
        if _digest(list(values.values())) != self.digest:
            raise UserError(
                f"{record.place}: changed since the problem set was loaded; load it again"
            )
        return values


def slim_lines(folder: Path, names: tuple[str, ...]) -> Iterator[str]:
    """Lines of a slim file for the records of a folder."""
    for file in data_files(folder):
        for record in read_records(file):
            big = Deferred.of(record, *names)
            small = {name: value for name, value in record.values.items() if name not in names}
            small[_POINTER] = {
                "file": file.relative_to(folder).as_posix(),
                "number": big.number,
                "offset": big.offset,
                "names": names,
                "digest": big.digest,
            }
            yield json.dumps(small, ensure_ascii=False, default=str) + "\n"


def _digest(values: list[Any]) -> str:
    digest = hashlib.sha256()
    for value in values:
        # Long strings are hashed as they stand; writing gigabytes as JSON first would be waste.
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        digest.update(hashlib.sha256(text.encode(errors="surrogatepass")).digest())
    return digest.hexdigest()[:16]
