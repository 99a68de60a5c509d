"""Rows as people write them themselves: a CSV, a list of JSON objects, or JSON Lines."""

from __future__ import annotations

import csv
import gzip
import json
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError

_TABLES: Final = {".csv", ".tsv"}
# A response of 32,000 tokens is longer than what the reader allows by itself.
csv.field_size_limit(sys.maxsize)
_LONGEST_HEADER: Final = 1 << 13  # bytes


def fields(path: Path) -> list[str]:
    """Return the names of the fields in a file's first row; none where it has no rows.

    The file is a CSV, a list of JSON objects, or JSON Lines.
    """
    if file_ending(path) in _TABLES:
        with _open_table(path) as cells:
            return _header_names(cells)
    if not _is_json_list(path):
        return first_names(path)
    first = first_value(path)
    return list(first) if isinstance(first, dict) else []


def rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a file, each with its place for messages.

    The file is a CSV, a list of JSON objects, or JSON Lines. Cells of a CSV are texts, and its
    names are in lower case. What is empty or null is left out.
    """
    if file_ending(path) in _TABLES:
        yield from _read_table(path)
    elif _is_json_list(path):
        for number, row in entries(path):
            if not isinstance(row, dict):
                raise UserError(f"{path}: entry {number} is no object")
            yield f"{path}: object {number}", _drop_nulls(row)
    else:
        for place, row in json_lines(path):
            yield place, _drop_nulls(row)


def problem_id(row: dict[str, Any], place: str) -> str:
    """The id of a row's problem; one without would make one problem of several."""
    value = row.get("problem")
    # NaN, as pandas writes an empty cell, is not equal to itself.
    if value is None or value == "" or value != value:
        raise UserError(f"{place}: no id in the field 'problem'")
    return str(value)


def whole_number(value: Any) -> int:
    """Return a value as a whole number; ``16.0``, as pandas may write it, is one too.

    Raises :class:`ValueError` for any other value.
    """
    if value is None:
        raise ValueError("one is empty")
    try:
        return int(str(value))
    except ValueError:
        if not float(value).is_integer():
            raise
        return int(float(value))


def _read_table(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a CSV by name, without empty cells; refuse a cell behind the last name."""
    with _open_table(path) as cells:
        names = _header_names(cells)
        for row in cells:
            place = f"{path}:{cells.line_num}"
            stripped = [cell.strip() for cell in row]
            if any(stripped[len(names) :]):
                raise UserError(f"{place}: {len(row)} cells; the first line names {len(names)}")
            values = {name: cell for name, cell in zip(names, stripped, strict=False) if cell}
            if values:
                yield place, values


@contextmanager
def _open_table(path: Path) -> Iterator[Any]:
    """Open a CSV as rows of cells; the one of , ; and tab most frequent in its head separates."""
    with open_unpacked(path) as file:
        first_line = file.peek(_LONGEST_HEADER).partition(b"\n")[0]
        delimiter = max(b",;\t", key=first_line.count)
        text = TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
        yield csv.reader(text, delimiter=chr(delimiter))


def _header_names(cells: Iterator[list[str]]) -> list[str]:
    """The names in the first line, in lower case."""
    return [name.strip().lower() for name in next(cells, [])]


def _drop_nulls(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


class NotJsonError(UserError):
    """A file is no JSON."""


def file_ending(path: Path) -> str:
    """What a file's name ends with, in lower case; ``.jsonl`` of ``samples.jsonl.gz``."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


@contextmanager
def open_unpacked(path: Path) -> Iterator[gzip.GzipFile | BufferedReader]:
    """Open a file for reading bytes, unpacked if its name ends in .gz."""
    is_packed = path.suffix.lower() == ".gz"
    with gzip.open(path) if is_packed else path.open("rb") as file:
        try:
            yield file
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(f"{path}: not a whole gzip file ({error})") from error


def json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSON Lines file, each with its place for messages."""
    with open_unpacked(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            place = f"{path}:{number}"
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise NotJsonError(f"{place}: not JSON ({error}); one object per line") from error
            if not isinstance(value, dict):
                raise NotJsonError(f"{place}: a {type(value).__name__}; one object per line")
            yield place, value


@lru_cache(maxsize=1)
def _parse(path: Path, changed_at: int) -> Any:
    """Parse a JSON file whole; ``changed_at``: its time, by which the last one is known again."""
    with open_unpacked(path) as file:
        return json.loads(file.read())


def json_value(path: Path) -> Any:
    """Return the value of a JSON file, which the formats look at one after the other."""
    try:
        return _parse(path, path.stat().st_mtime_ns)
    except (ValueError, RecursionError) as error:
        raise NotJsonError(f"{path}: not JSON ({error})") from error


def entries(path: Path, within: str | None = None) -> Iterator[tuple[str, Any]]:
    """Yield what is in the list of a JSON file, each entry with its number as name.

    ``within``: name of a list or object in the file's object, whose entries are meant instead. A
    file without such a list has no entries.
    """
    values = json_value(path)
    if within is not None:
        values = values.get(within) if isinstance(values, dict) else None
        if isinstance(values, dict):
            yield from values.items()
            return
    if isinstance(values, list):
        for number, value in enumerate(values):
            yield str(number), value


def first_value(path: Path, within: str | None = None) -> Any:
    """Value of the first of :func:`entries`; None where there is none, or no ``.json``."""
    if file_ending(path) != ".json":
        return None
    with suppress(NotJsonError):  # it may be JSON Lines
        for _, value in entries(path, within):
            return value
    return None


def first_names(path: Path) -> list[str]:
    """Return the names in the first object of a file; none if it does not begin with an object.

    A JSON Lines file has an object a line.
    """
    value = None
    with suppress(NotJsonError):
        _, value = next(json_lines(path), ("", None))
    if value is None and file_ending(path) == ".json":
        with suppress(NotJsonError):
            value = json_value(path)
    return list(value) if isinstance(value, dict) else []


def _is_json_list(path: Path) -> bool:
    """Whether a file is one JSON list; else it holds JSON Lines, whatever its ending is."""
    if file_ending(path) != ".json":
        return False
    with suppress(NotJsonError):
        return isinstance(json_value(path), list)
    return False
