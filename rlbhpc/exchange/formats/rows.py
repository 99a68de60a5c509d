"""Rows as people write them themselves: a CSV, a list of JSON objects, or JSON Lines."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.exchange.formats.json_stream import (
    ending,
    entries,
    first_names,
    first_value,
    is_list,
    json_lines,
    opened,
)

_TABLES: Final = {".csv", ".tsv"}
# A response of 32,000 tokens is longer than what the reader allows by itself.
csv.field_size_limit(sys.maxsize)


def fields(path: Path) -> list[str]:
    """Names that a file's first row has; none where it has no rows."""
    kind = ending(path)
    if kind in _TABLES:
        with _text(path) as file:
            return _names(csv.reader(file, delimiter=_delimiter(path)))
    if kind != ".json" or not is_list(path):  # JSON Lines, whatever the ending is
        return first_names(path)
    first = first_value(path)
    return list(first) if isinstance(first, dict) else []


def rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a file, each with its place for messages.

    Cells of a CSV are texts, and its names are in lower case. What is empty or null is left out.
    """
    kind = ending(path)
    if kind in _TABLES:
        yield from _table(path)
    elif kind != ".json" or not is_list(path):
        yield from ((place, _filled(row)) for place, row in json_lines(path))
    else:
        for number, row in entries(path):
            if not isinstance(row, dict):
                raise UserError(f"{path}: entry {number} is no object")
            yield f"{path}: object {number}", _filled(row)


def problem_id(row: dict[str, Any], place: str) -> str:
    """The id of a row's problem; one without would make one problem of several."""
    value = row.get("problem")
    # NaN, as pandas writes an empty cell, is not equal to itself.
    if value is None or value == "" or value != value:
        raise UserError(f"{place}: no id in the field 'problem'")
    return str(value)


def whole_number(value: Any) -> int:
    """A whole number; pandas writes ``16.0`` where a column has an empty cell.

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


def _table(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with _text(path) as file:
        cells = csv.reader(file, delimiter=_delimiter(path))
        names = _names(cells)
        for row in cells:
            place = f"{path}:{cells.line_num}"
            stripped = [cell.strip() for cell in row]
            if any(stripped[len(names) :]):
                raise UserError(f"{place}: {len(row)} cells; the first line names {len(names)}")
            yielded = {name: cell for name, cell in zip(names, stripped, strict=False) if cell}
            if yielded:
                yield place, yielded


@contextmanager
def _text(path: Path) -> Iterator[TextIOWrapper]:
    with opened(path) as file:
        yield TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")


def _delimiter(path: Path) -> str:
    """What separates cells: whichever of comma, semicolon and tab the first line has most of."""
    with _text(path) as file:
        return max(",;\t", key=file.readline().count)


def _names(cells: Iterator[list[str]]) -> list[str]:
    return [name.strip().lower() for name in next(cells, [])]


def _filled(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}
