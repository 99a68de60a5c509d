"""Records out of the files a problem set may come in.

Plain and gzipped JSONL, JSON (a list of records, records by id, or one record per file), Parquet,
CSV with a line of names, and a folder that ``datasets`` wrote with ``save_to_disk`` (Arrow files,
read with pyarrow alone).
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.problems.record import Record

SUFFIXES: Final = (".jsonl", ".jsonl.gz", ".json", ".parquet", ".arrow", ".csv")
# Somebody's whole home folder given by mistake would otherwise be read for hours.
MOST_ENTRIES: Final = 50_000
# Records without their big fields, which `rlbhpc stage` leaves beside some sets; see deferred.py.
SLIM: Final = "slim.jsonl"
# What `datasets`, the hub and `rlbhpc stage` put beside the data.
_NOT_DATA: Final = {
    "dataset_info.json", "dataset_dict.json", "dataset_infos.json", "state.json", "manifest.json",
}  # fmt: skip


def read_records(file: Path, first: int = 1) -> Iterator[Record]:
    """Stream the records of one file in file order, beginning with record number ``first``."""
    readers = {
        ".jsonl": _jsonl,
        ".jsonl.gz": _jsonl,
        ".json": _json,
        ".parquet": _parquet,
        ".arrow": _arrow,
        ".csv": _csv,
    }
    for suffix, reader in readers.items():
        if file.name.endswith(suffix):
            try:
                yield from reader(file, first)
            except OSError as error:
                raise UserError(f"{file}: {error.strerror or error}; fetch it again") from None
            return
    raise UserError(f"{file}: not a data file; allowed are {', '.join(SUFFIXES)}")


def read_again(file: Path, number: int, offset: int | None) -> Record:
    """Read one record a second time, by the place that :class:`Record` gave.

    Plain JSONL is sought to; in the other formats what stands before is passed over unparsed as
    far as the format allows.
    """
    if offset is not None:
        with file.open("rb") as stream:
            stream.seek(offset)
            return _line(file, number, offset, stream.readline())
    for record in read_records(file, number):
        return record
    raise UserError(f"{file}: no record {number} any more; the file has changed")


def data_files(path: Path) -> list[Path]:
    """List the data files of ``path``: itself, or those below it in a stable order.

    Files and folders whose names begin with a dot are the business of whoever made them.
    """
    if path.is_file():
        return [path]
    if not path.exists():
        raise UserError(f"{path}: no such file or folder; `rlbhpc stage` fills one")
    if (path / SLIM).is_file():
        return [path / SLIM]
    files = [
        file
        for file in _below(path)
        if file.name.endswith(SUFFIXES)
        and file.name not in _NOT_DATA
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
        and file.is_file()
        and not _leftover(file)
    ]
    if not files:
        raise UserError(f"{path}: no data file in it; looked for {', '.join(SUFFIXES)}")
    return sorted(files, key=lambda file: file.relative_to(path).as_posix())


def _leftover(file: Path) -> bool:
    """Whether an Arrow file is a cache beside a saved data set, not part of it."""
    state = file.with_name("state.json")
    if not file.name.endswith(".arrow") or not state.is_file():
        return False
    try:
        saved = {entry["filename"] for entry in json.loads(state.read_bytes())["_data_files"]}
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{state}: not what `datasets` writes with save_to_disk") from None
    return file.name not in saved


def _below(folder: Path) -> Iterator[Path]:
    """Everything below a folder, as long as it can be the folder of one set."""
    for count, file in enumerate(folder.rglob("*")):
        if count >= MOST_ENTRIES:
            raise UserError(
                f"{folder}: more than {MOST_ENTRIES:,} files and folders in it; give the folder "
                "of the set alone"
            )
        yield file


def _jsonl(file: Path, first: int) -> Iterator[Record]:
    zipped = file.name.endswith(".gz")
    offset = number = 0
    with gzip.open(file, "rb") if zipped else file.open("rb") as stream:
        try:
            for line in stream:
                if line.strip():
                    number += 1
                    if number >= first:
                        yield _line(file, number, None if zipped else offset, line)
                offset += len(line)
        except (EOFError, zlib.error) as error:
            raise UserError(f"{file}: broken after record {number} ({error})") from None


def _line(file: Path, number: int, offset: int | None, line: bytes) -> Record:
    try:
        return _record(json.loads(line), file, number, offset)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file}, record {number}: not JSON ({error})") from None


def _json(file: Path, first: int) -> Iterator[Record]:
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file}: not JSON ({error})") from None
    if isinstance(content, dict) and content:
        values = list(content.values())
        if all(isinstance(value, dict) for value in values):
            # Records by id, as MathVista publishes them; the key is the id where none is inside.
            content = [{"id": key, **value} for key, value in content.items()]
        elif len(values) == 1 and isinstance(values[0], list):
            content = values[0]
        else:
            content = [content]
    if not isinstance(content, list):
        kind = type(content).__name__
        raise UserError(f"{file}: holds a {kind}; a list of records belongs there")
    for number, value in enumerate(content[first - 1 :], first):
        yield _record(value, file, number, None)


def _parquet(file: Path, first: int) -> Iterator[Record]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    number = 0
    try:
        with ParquetFile(file) as table:
            for group in range(table.num_row_groups):
                rows = table.metadata.row_group(group).num_rows
                if number + rows < first:
                    number += rows
                    continue
                # Small batches: a row may hold an image or a hundred megabytes of tests.
                for batch in table.iter_batches(batch_size=16, row_groups=[group]):
                    yield from _rows(batch, file, number, first)
                    number += batch.num_rows
    except ArrowException as error:
        raise UserError(f"{file}: not a whole Parquet file ({error}); fetch it again") from None


def _arrow(file: Path, first: int) -> Iterator[Record]:
    """``save_to_disk`` writes Arrow's streaming format."""
    from pyarrow import ArrowException, ipc, memory_map

    number = 0
    try:
        with memory_map(str(file)) as source, ipc.open_stream(source) as batches:
            for batch in batches:
                yield from _rows(batch, file, number, first)
                number += batch.num_rows
    except ArrowException as error:
        raise UserError(f"{file}: not a whole Arrow file ({error}); fetch it again") from None


def _csv(file: Path, first: int) -> Iterator[Record]:
    with file.open(newline="", encoding="utf-8-sig") as stream:
        for number, row in enumerate(csv.DictReader(stream, strict=True), 1):
            if None in row or None in row.values():
                raise UserError(f"{file}, record {number}: not as many fields as the first line")
            if number >= first:
                yield _record(row, file, number, None)


def _rows(batch: Any, file: Path, before: int, first: int) -> Iterator[Record]:
    """Records of one Arrow batch that ``before`` records precede."""
    for row in range(max(0, first - before - 1), batch.num_rows):
        values = batch.slice(row, 1).to_pylist()[0]
        yield _record(values, file, before + row + 1, None)


def _record(value: Any, file: Path, number: int, offset: int | None) -> Record:
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise UserError(f"{file}, record {number}: a {kind}; an object with named fields is needed")
    return Record(value, file, number, offset)
