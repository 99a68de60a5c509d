"""Rows as people write them themselves: a CSV, a list of JSON objects, or JSON Lines."""

from __future__ import annotations

import csv
import gzip
import json
import re
import sys
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError

_TABLES: Final = {".csv", ".tsv"}
# A response of 32,000 tokens is longer than what the reader allows by itself.
csv.field_size_limit(sys.maxsize)


def fields(path: Path) -> list[str]:
    """Names that a file's first row has; none where it has no rows."""
    kind = file_ending(path)
    if kind in _TABLES:
        with _text(path) as file:
            return _header_names(csv.reader(file, delimiter=_delimiter(path)))
    if kind != ".json" or not is_list(path):  # JSON Lines, whatever the ending is
        return first_names(path)
    first = first_value(path)
    return list(first) if isinstance(first, dict) else []


def rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a file, each with its place for messages.

    Cells of a CSV are texts, and its names are in lower case. What is empty or null is left out.
    """
    kind = file_ending(path)
    if kind in _TABLES:
        yield from _read_table(path)
    elif kind != ".json" or not is_list(path):
        yield from ((place, _drop_nulls(row)) for place, row in json_lines(path))
    else:
        for number, row in entries(path):
            if not isinstance(row, dict):
                raise UserError(f"{path}: entry {number} is no object")
            yield f"{path}: object {number}", _drop_nulls(row)


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


def _read_table(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of a CSV; a cell behind the last name is refused."""
    with _text(path) as file:
        cells = csv.reader(file, delimiter=_delimiter(path))
        names = _header_names(cells)
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
    with open_unpacked(path) as file:
        yield TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")


def _delimiter(path: Path) -> str:
    """What separates cells: whichever of comma, semicolon and tab the first line has most of."""
    with _text(path) as file:
        return max(",;\t", key=file.readline().count)


def _header_names(cells: Iterator[list[str]]) -> list[str]:
    return [name.strip().lower() for name in next(cells, [])]


def _drop_nulls(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


# ---- json stream ---------------------------------------------------------------------------------
# Files that may be packed, and JSON files entry by entry: a file may be larger than memory.


#: Characters that are read at a time.
CHUNK = 1 << 20

_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_CLOSING: Final = {"[": "]", "{": "}"}
# A word such as -Infinity that the end of the text at hand cuts off is refused at its beginning.
_LONGEST_WORD: Final = 9


class NotJsonError(UserError):
    """A file is no JSON from some place on."""


def file_ending(path: Path) -> str:
    """What a file's name ends with, in lower case; ``.jsonl`` of ``samples.jsonl.gz``."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


@contextmanager
def open_unpacked(path: Path) -> Iterator[gzip.GzipFile | BufferedReader]:
    """The bytes of a file, unpacked if its name ends in .gz."""
    packed = path.suffix.lower() == ".gz"
    with gzip.open(path) if packed else path.open("rb") as file:
        try:
            yield file
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(f"{path}: not a whole gzip file ({error})") from error


def json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Objects of a JSON Lines file, each with its place for messages."""
    with open_unpacked(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            place = f"{path}:{number}"
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{place}: not JSON ({error}); one object per line") from error
            if not isinstance(value, dict):
                raise UserError(f"{place}: a {type(value).__name__}; one object per line")
            yield place, value


def entries(path: Path, within: str | None = None) -> Iterator[tuple[str, Any]]:
    """Yield what is in the list of a file, each entry with its number as name.

    ``within``: name of a list or object in the file's object, whose entries are meant instead. A
    file without such a list has no entries. One that ends early or is damaged is refused once the
    reader comes to that place.
    """
    with _open_json(path) as text:
        if within is None:
            if text.next() == "[":
                yield from text.entries()
                text.end()
            return
        if text.next() != "{":
            return
        present = False
        for name in text.names():
            if name == within and text.next() in _CLOSING:
                present = True
                yield from text.entries()
            else:
                text.skip()
        # Else it may be JSON Lines, of which only the first was looked at.
        if present:
            text.end()


def first_value(path: Path, within: str | None = None) -> Any:
    """Value of the first of :func:`entries`; None where there is none, or no ``.json``."""
    if file_ending(path) != ".json":
        return None
    return next((value for _, value in entries(path, within)), None)


def top_values(path: Path, names: Collection[str]) -> dict[str, Any]:
    """Values of some names in a file's object; what follows the last of them is not read."""
    values: dict[str, Any] = {}
    with _open_json(path) as text:
        text.next()
        for name in text.names():
            if name in names:
                values[name] = text.value()
            else:
                text.skip()
            if len(values) == len(names):
                break
    return values


def first_names(path: Path) -> list[str]:
    """Names in the first object of a file, as JSON Lines have one a line; none if it has none."""
    names = []
    with suppress(NotJsonError), _open_json(path) as text:
        if text.next() == "{":
            for name in text.names():
                names.append(name)
                text.skip()
            return names
    return []


def is_list(path: Path) -> bool:
    """Whether a file begins as a list does."""
    with _open_json(path) as text:
        return text.next() == "["


@contextmanager
def _open_json(path: Path) -> Iterator[_Text]:
    """The text of a JSON file, unpacked and decoded, to be read value by value."""
    with open_unpacked(path) as file:
        encoding = json.detect_encoding(file.peek(4))
        try:
            yield _Text(path, TextIOWrapper(file, encoding, "surrogatepass", newline=""))
        except UnicodeDecodeError as error:
            raise NotJsonError(f"{path}: not JSON ({error})") from error


class _Text:
    """A place in the text of a file; what lies before it is forgotten."""

    def __init__(self, path: Path, file: TextIOWrapper) -> None:
        self._path = path
        self._file = file
        self._text = ""
        self._at = 0
        self._ended = False
        # Of the beginning of the text at hand.
        self._line = 1
        self._column = 1

    def next(self) -> str:
        """The next character that is no space; empty at the end of the file."""
        while True:
            space = _SPACE.match(self._text, self._at)
            assert space is not None
            self._at = space.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._read_on()

    def value(self) -> Any:
        """Read the next value whole."""
        self.next()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._ended or not self._is_cut_off(error):
                    raise self._complaint(error.msg, error.pos) from None
            except RecursionError:
                raise self._complaint("nested too deep", self._at) from None
            except ValueError as error:
                raise self._complaint(str(error), self._at) from None
            else:
                # A number may go on in what is not read yet: 1 of 1e+5.
                if end + len("e+5") <= len(self._text) or self._ended:
                    self._at = end
                    return value
            self._read_on()

    def entries(self) -> Iterator[tuple[str, Any]]:
        """Read a list or an object entry by entry, each with its number or name."""
        if self.next() == "{":
            for name in self.names():
                yield name, self.value()
            return
        for number, _ in enumerate(self._walk_entries()):
            yield str(number), self.value()

    def names(self) -> Iterator[str]:
        """Read the names in an object; the caller reads the value after each."""
        for _ in self._walk_entries():
            name = self.value() if self.next() == '"' else None
            if name is None:
                raise self._complaint("expected a name in quotes", self._at)
            self._expect(":")
            yield name

    def skip(self) -> None:
        """Pass over the next value, which may be large."""
        if self.next() in _CLOSING:
            for _ in self.entries():
                pass
        else:
            self.value()

    def end(self) -> None:
        """Refuse what stands behind the last value."""
        if self.next():
            raise self._complaint("more after the end", self._at)

    def _walk_entries(self) -> Iterator[None]:
        """Go from entry to entry of a list or object, from its opening to its closing bracket."""
        closing = _CLOSING[self.next()]
        self._at += 1
        if self.next() != closing:
            yield
            while self.next() == ",":
                self._at += 1
                yield
        self._expect(closing)

    def _expect(self, expected: str) -> None:
        if self.next() != expected:
            alternatives = expected if expected == ":" else f", or {expected}"
            cause = f"expected {alternatives}" if self.next() else "the file ends"
            raise self._complaint(cause, self._at)
        self._at += 1

    def _is_cut_off(self, error: json.JSONDecodeError) -> bool:
        """Whether what follows may mend an error: nothing was wrong but that the text ends."""
        in_a_string = error.msg.startswith("Unterminated string")
        return in_a_string or error.pos > len(self._text) - _LONGEST_WORD

    def _read_on(self) -> None:
        """Read more text: as much as is at hand, so that a long value is tried few times."""
        read, self._text = self._text[: self._at], self._text[self._at :]
        self._line, self._column = self._position_after(read)
        self._at = 0
        more = self._file.read(max(CHUNK, len(self._text)))
        self._ended = not more
        self._text += more

    def _position_after(self, before: str) -> tuple[int, int]:
        """Line and character behind a piece of the text at hand."""
        breaks = before.count("\n")
        if not breaks:
            return self._line, self._column + len(before)
        return self._line + breaks, len(before) - before.rindex("\n")

    def _complaint(self, cause: str, at: int) -> UserError:
        line, column = self._position_after(self._text[:at])
        return NotJsonError(f"{self._path}: line {line}, character {column}: not JSON ({cause})")
