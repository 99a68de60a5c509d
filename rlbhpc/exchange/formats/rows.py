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


# Files that may be packed, and JSON files entry by entry: a file may be larger than memory.
#
# Python's own tools write NaN and Infinity, and numbers of any length, into what they call JSON. So
# the values are read by Python's decoder, from as much of the text as is at hand.


#: Characters that are read at a time.
CHUNK = 1 << 20

_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_CLOSING: Final = {"[": "]", "{": "}"}
# A word such as -Infinity that the end of the text at hand cuts off is refused at its beginning.
_LONGEST_WORD: Final = 9
# What may follow a number that seems to be whole: 1 of 1e+5.
_LONGEST_EXPONENT: Final = len("e+5")


class NotJsonError(UserError):
    """A file is no JSON from some place on."""


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
                raise UserError(f"{place}: not JSON ({error}); one object per line") from error
            if not isinstance(value, dict):
                raise UserError(f"{place}: a {type(value).__name__}; one object per line")
            yield place, value


def entries(path: Path, within: str | None = None) -> Iterator[tuple[str, Any]]:
    """Yield what is in the list of a JSON file, each entry with its number as name.

    ``within``: name of a list or object in the file's object, whose entries are meant instead. A
    file without such a list has no entries. One that ends early or is damaged is refused once the
    reader comes to that place. ``text`` is a position in the file, from which values are read one
    by one; `peek` gives the next character.
    """
    with _open_json(path) as text:
        if within is None:
            if text.peek() == "[":
                yield from text.read_entries()
                text.expect_end()
            return
        if text.peek() != "{":
            return
        is_present = False
        for name in text.read_names():
            if name == within and text.peek() in _CLOSING:
                is_present = True
                yield from text.read_entries()
            else:
                text.skip_value()
        # Else it may be JSON Lines, of which only the first was looked at.
        if is_present:
            text.expect_end()


def first_value(path: Path, within: str | None = None) -> Any:
    """Value of the first of :func:`entries`; None where there is none, or no ``.json``."""
    if file_ending(path) != ".json":
        return None
    for _, value in entries(path, within):
        return value
    return None


def top_values(path: Path, names: Collection[str]) -> dict[str, Any]:
    """Return the values of some names in a file's object; what follows the last is not read.

    ``text`` is a position in the file, from which values are read one by one.
    """
    values: dict[str, Any] = {}
    with _open_json(path) as text:
        for name in text.read_names():
            if name in names:
                values[name] = text.read_value()
            else:
                text.skip_value()
            if len(values) == len(names):
                break
    return values


def first_names(path: Path) -> list[str]:
    """Return the names in the first object of a file; none if it does not begin with an object.

    A JSON Lines file has an object a line. ``text`` is a position in the file, from which values
    are read one by one. The names up to a place that is no JSON are lost.
    """
    names = []
    with suppress(NotJsonError), _open_json(path) as text:
        if text.peek() != "{":
            return []
        for name in text.read_names():
            names.append(name)
            text.skip_value()
        return names
    return []


def _is_json_list(path: Path) -> bool:
    """Whether a file is one JSON list; else it holds JSON Lines, whatever its ending is."""
    if file_ending(path) != ".json":
        return False
    with _open_json(path) as text:
        return text.peek() == "["


@contextmanager
def _open_json(path: Path) -> Iterator[_JsonText]:
    """Open a JSON file, unpacked and decoded, to be read value by value."""
    with open_unpacked(path) as file:
        encoding = json.detect_encoding(file.peek(4))
        try:
            yield _JsonText(path, TextIOWrapper(file, encoding, "surrogatepass", newline=""))
        except UnicodeDecodeError as error:
            raise NotJsonError(f"{path}: not JSON ({error})") from error


class _JsonText:
    """A position in the text of a file, of which only the part at hand is in memory."""

    def __init__(self, path: Path, file: TextIOWrapper) -> None:
        """Begin at the start of a file, with nothing read yet.

        The *text at hand* is the part of the file that is in memory; ``_position`` is the next
        character in it that is not yet used, and ``_line`` and ``_column`` say where it begins in
        the file.
        """
        self._path = path
        self._file = file
        self._text = ""
        self._position = 0
        self._is_complete = False
        # Of the beginning of the text at hand.
        self._line = 1
        self._column = 1

    def peek(self) -> str:
        """Return the next character that is no space; empty at the end of the file.

        Only a part of the file is in memory; more is read as it runs out.
        """
        while True:
            space = _SPACE.match(self._text, self._position)
            assert space is not None
            self._position = space.end()
            if self._position < len(self._text):
                return self._text[self._position]
            if self._is_complete:
                return ""
            self._read_more()

    def read_value(self) -> Any:
        """Read the next value whole.

        Only a part of the file is in memory (``_text``). A value that does not parse may just be
        cut off at its end, and so may a number that does, as 1 of 1e+5. Then more is read and the
        value is tried again.
        """
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._position)
            except json.JSONDecodeError as error:
                if self._is_complete or not self._may_be_cut_off(error):
                    raise self._complaint(error.msg, error.pos) from None
            except RecursionError:
                raise self._complaint("nested too deep", self._position) from None
            except ValueError as error:
                raise self._complaint(str(error), self._position) from None
            else:
                # Enough text follows the value to be sure that it ends there.
                if self._is_complete or end + _LONGEST_EXPONENT <= len(self._text):
                    self._position = end
                    return value
            self._read_more()

    def read_entries(self) -> Iterator[tuple[str, Any]]:
        """Yield a list or an object entry by entry, each with its number or name.

        `_walk_entries` goes to the beginning of each entry in turn.
        """
        if self.peek() == "{":
            for name in self.read_names():
                yield name, self.read_value()
            return
        for number, _ in enumerate(self._walk_entries()):
            yield str(number), self.read_value()

    def read_names(self) -> Iterator[str]:
        """Yield the names in an object; the caller must read the value after each."""
        for _ in self._walk_entries():
            if self.peek() != '"':
                raise self._complaint("expected a name in quotes", self._position)
            name = self.read_value()
            self._expect(":")
            yield name

    def skip_value(self) -> None:
        """Pass over the next value, which may be large."""
        if self.peek() in _CLOSING:
            for _ in self.read_entries():
                pass
        else:
            self.read_value()

    def expect_end(self) -> None:
        """Refuse what stands behind the last value."""
        if self.peek():
            raise self._complaint("more after the end", self._position)

    def _walk_entries(self) -> Iterator[None]:
        """Go from entry to entry of a list or object; the caller reads the entry at each stop.

        It begins at the opening bracket and ends behind the closing one.
        """
        closing = _CLOSING[self.peek()]
        self._position += 1
        if self.peek() != closing:
            yield
            while self.peek() == ",":
                self._position += 1
                yield
        self._expect(closing)

    def _expect(self, character: str) -> None:
        if self.peek() != character:
            alternatives = character if character == ":" else f", or {character}"
            cause = f"expected {alternatives}" if self.peek() else "the file ends"
            raise self._complaint(cause, self._position)
        self._position += 1

    def _may_be_cut_off(self, error: json.JSONDecodeError) -> bool:
        """Whether an error may be due to the end of the text at hand alone."""
        is_in_string = error.msg.startswith("Unterminated string")
        return is_in_string or error.pos > len(self._text) - _LONGEST_WORD

    def _read_more(self) -> None:
        """Drop the text that is used, and read as much again as is left, but at least a chunk.

        So the text at hand doubles while one long value is read, and that value is tried few times.
        """
        self._line, self._column = self._line_and_column(self._position)
        self._text = self._text[self._position :]
        self._position = 0
        more = self._file.read(max(CHUNK, len(self._text)))
        self._is_complete = not more
        self._text += more

    def _line_and_column(self, position: int) -> tuple[int, int]:
        """Line and character in the file of a position in the text at hand."""
        line_breaks = self._text.count("\n", 0, position)
        if not line_breaks:
            return self._line, self._column + position
        return self._line + line_breaks, position - self._text.rindex("\n", 0, position)

    def _complaint(self, cause: str, position: int) -> UserError:
        line, column = self._line_and_column(position)
        return NotJsonError(f"{self._path}: line {line}, character {column}: not JSON ({cause})")
