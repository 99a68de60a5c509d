"""Records of data files: one record with its place, the files it may be in, and its big fields."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError


@dataclass(frozen=True)
class Record:
    """The values of one record and where they stand.

    ``number`` counts from 1 within ``file``. ``offset`` is the byte at which the record's line
    begins, known for plain JSONL only; with it one huge record can be read again alone.
    """

    values: Mapping[str, Any]
    file: Path
    number: int
    offset: int | None = None

    @property
    def place(self) -> str:
        """File and record number, for messages."""
        return f"{self.file}, record {self.number}"

    def get(self, *names: str) -> Any:
        """Return the first of these fields that is there and not null, else ``None``."""
        for name in names:
            value = self.values.get(name)
            if value is not None:
                return value
        return None

    def need(self, *names: str) -> Any:
        """Return the first of these fields that is there and not null; refuse a record without any.

        The error is a `UserError`, because it is the user's file that has to be mended.
        """
        value = self.get(*names)
        if value is not None:
            return value
        wanted = " or ".join(f"`{name}`" for name in names)
        present = [
            f"{name} (null)" if self.values[name] is None else name for name in sorted(self.values)
        ]
        found = ", ".join(present) or "no fields at all"
        raise UserError(f"{self.place}: no field {wanted}; found: {found}")

    def text(self, *names: str) -> str:
        """Return the first of these fields as a string; `number_text` writes a number as one."""
        value = self.need(*names)
        if isinstance(value, str):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return number_text(value)
        fields = " or ".join(f"`{name}`" for name in names if self.values.get(name) is not None)
        kind = type(value).__name__
        raise UserError(f"{self.place}: field {fields} is a {kind}; a text or number belongs there")

    def optional_text(self, *names: str) -> str:
        """Like :meth:`text`, but empty where there is no such field."""
        return "" if self.get(*names) is None else self.text(*names)

    def texts(self, name: str) -> list[str]:
        """Return the items of a list as strings; none where the field is no list."""
        value = self.get(name)
        return [str(item) for item in value] if isinstance(value, list) else []

    def index(self) -> str:
        """Return verl's number of a record; empty where there is none."""
        number = (self.get("extra_info") or {}).get("index")
        return "" if number is None else str(number)

    def ground_truth(self) -> str | None:
        """Return the reference answer of a record in verl's form; None where there is none.

        It stands in ``reward_model``, under ``ground_truth``; of a list it must be the only item.
        """
        judged_by = self.get("reward_model")
        answer = judged_by.get("ground_truth") if isinstance(judged_by, Mapping) else None
        if isinstance(answer, list) and len(answer) == 1:
            answer = answer[0]
        if isinstance(answer, list | Mapping):
            # Any of them, or all of them? The files that the sets are made for hold one text.
            raise UserError(
                f"{self.place}: `ground_truth` is {answer!r:.80}; allowed: one text or number; "
                "write one answer there, or read the file with a set of your own"
            )
        return None if answer is None else str(answer)

    def images(self, *names: str) -> tuple[bytes, ...]:
        """Return the image or images in the first of these fields, as bytes."""
        value = self.need(*names)
        values = value if isinstance(value, list | tuple) else [value]
        return tuple(self._read_image(image) for image in values)

    def _read_image(self, value: Any) -> bytes:
        """Return the bytes of one image, in any of the forms that data files have for it.

        Those are bytes, an image struct of ``datasets``, or the path of a file beside this record's
        file.
        """
        if isinstance(value, Mapping):
            value = value.get("bytes") or value.get("path")
        if isinstance(value, bytes) and value:
            return value
        if not isinstance(value, str) or not value:
            raise UserError(
                f"{self.place}: an image is bytes, a struct with `bytes`, or the path of a file; "
                f"found a {type(value).__name__}"
            )
        root = self.file.parent.resolve()
        target = (root / value).resolve()
        # A record decides what is read and shown to a model, so it may only name its neighbours.
        if not target.is_relative_to(root):
            raise UserError(f"{self.place}: image path {value!r} leads out of {self.file.parent}")
        if not target.is_file():
            raise UserError(f"{self.place}: no image file {value!r} in {self.file.parent}")
        return target.read_bytes()


def number_text(value: float) -> str:
    """Write a number as a person does: 27.0 is 27, since a float column is a matter of storage."""
    if not isinstance(value, int) and abs(value) < 2**53 and value == int(value):
        return str(int(value))
    return str(value)


# ---- boxed ---------------------------------------------------------------------------------------
# The last balanced ``\boxed{…}`` of a reference solution.


_BOX: Final = re.compile(r"\\boxed|\\fbox")
# An escaped brace is text.
_BRACE: Final = re.compile(r"\\.|[{}]", re.DOTALL)


def last_boxed(record: Record, *names: str) -> str:
    """Gold answer in the last balanced box of the solution in the first of these fields."""
    content = last_balanced(record.text(*names))
    if not content:
        raise UserError(f"{record.place}: no balanced \\boxed{{…}} in field `{names[0]}`")
    return content


def last_balanced(text: str) -> str:
    r"""Return what is in the last ``\boxed{…}`` or ``\fbox{…}`` whose braces close; empty if none.

    Escaped braces (``\{``) are text. A box without braces, ``\boxed 5``, holds one token. Reference
    solutions are trusted and short; what models write is read by ``verify``.
    """
    ends = [match.end() for match in _BOX.finditer(text)]
    for end in reversed(ends):
        content = text[end:]
        if content.startswith("{"):
            in_braces = content_of_braces(content, 0)
            if in_braces is not None:
                return in_braces.strip()
        elif content.startswith(" ") and content.strip():
            return content.split()[0].strip("$.,")
    return ""


def content_of_braces(text: str, start: int) -> str | None:
    """Return what stands between the brace at ``start`` and its closing one; None without one."""
    depth = 0
    for brace in _BRACE.finditer(text, start):
        if brace[0] == "{":
            depth += 1
        elif brace[0] == "}":
            depth -= 1
        if depth == 0:
            return text[start + 1 : brace.start()]
    return None


def ends_in_box(text: str) -> bool:
    r"""Whether the last ``\boxed{`` of a text is never closed."""
    start = text.rfind("\\boxed{")
    return start >= 0 and content_of_braces(text, start + len("\\boxed")) is None


# ---- files ---------------------------------------------------------------------------------------
# Records out of the files a problem set may come in.
#
# Plain and gzipped JSONL, JSON (a list of records, records by id, or one record per file),
# Parquet, CSV with a line of names, and a folder that ``datasets`` wrote with ``save_to_disk``
# (Arrow files, read with pyarrow alone).


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
    """Yield the records of one file in file order, beginning with record number ``first``.

    The file's ending says how it is read. A record is a mapping that knows its file and number.
    """
    try:
        if file.name.endswith((".jsonl", ".jsonl.gz")):
            yield from _read_jsonl(file, first)
        elif file.suffix == ".json":
            yield from _read_json(file, first)
        elif file.suffix == ".parquet":
            yield from _read_parquet(file, first)
        elif file.suffix == ".arrow":
            yield from _read_arrow(file, first)
        elif file.suffix == ".csv":
            yield from _read_csv(file, first)
        else:
            raise UserError(f"{file}: not a data file; allowed are {', '.join(SUFFIXES)}")
    except OSError as error:
        raise UserError(f"{file}: {error.strerror or error}; fetch it again") from None


def read_again(file: Path, number: int, offset: int | None) -> Record:
    """Read one record a second time: record ``number`` of a file, or the line at byte ``offset``.

    Both are as :class:`Record` gave them. Plain JSONL is sought to; in the other formats what
    stands before is passed over unparsed as far as the format allows.
    """
    if offset is not None:
        with file.open("rb") as stream:
            stream.seek(offset)
            return _parse_line(file, number, offset, stream.readline())
    for record in read_records(file, number):
        return record
    raise UserError(f"{file}: no record {number} any more; the file has changed")


def data_files(path: Path) -> list[Path]:
    """Return the data files of ``path``: itself, or those below it in a stable order.

    Files and folders whose names begin with a dot are the business of whoever made them. A *slim*
    file holds all records without their large fields, so it is read alone.
    """
    if path.is_file():
        return [path]
    if not path.exists():
        raise UserError(f"{path}: no such file or folder; `rlbhpc stage` fills one")
    if (path / SLIM).is_file():
        return [path / SLIM]
    files = [
        file
        for file in _walk_files(path)
        if file.name.endswith(SUFFIXES)
        and file.name not in _NOT_DATA
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
        and file.is_file()
        and not _is_arrow_cache(file)
    ]
    if not files:
        raise UserError(f"{path}: no data file in it; looked for {', '.join(SUFFIXES)}")
    return sorted(files, key=lambda file: file.relative_to(path).as_posix())


def _is_arrow_cache(file: Path) -> bool:
    """Whether an Arrow file is only a cache that lies beside a saved data set.

    ``state.json`` lists the files that the data set itself was saved to.
    """
    state = file.with_name("state.json")
    if not file.name.endswith(".arrow") or not state.is_file():
        return False
    try:
        saved = {entry["filename"] for entry in json.loads(state.read_bytes())["_data_files"]}
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{state}: not what `datasets` writes with save_to_disk") from None
    return file.name not in saved


def _walk_files(folder: Path) -> Iterator[Path]:
    """Yield everything below a folder; one with too many files can't be the folder of one set."""
    for count, file in enumerate(folder.rglob("*")):
        if count >= MOST_ENTRIES:
            raise UserError(
                f"{folder}: more than {MOST_ENTRIES:,} files and folders in it; give the folder "
                "of the set alone"
            )
        yield file


def _read_jsonl(file: Path, first: int) -> Iterator[Record]:
    """Yield the records of a JSON Lines file from number ``first`` on.

    Each has the byte at which it begins, unless the file is packed.
    """
    is_packed = file.name.endswith(".gz")
    offset = 0
    number = 0
    with gzip.open(file, "rb") if is_packed else file.open("rb") as stream:
        try:
            for line in stream:
                if line.strip():
                    number += 1
                    if number >= first:
                        yield _parse_line(file, number, None if is_packed else offset, line)
                offset += len(line)
        except (EOFError, zlib.error) as error:
            raise UserError(f"{file}: broken after record {number} ({error})") from None


def _parse_line(file: Path, number: int, offset: int | None, line: bytes) -> Record:
    try:
        return _make_record(json.loads(line), file, number, offset)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file}, record {number}: not JSON ({error})") from None


def _read_json(file: Path, first: int) -> Iterator[Record]:
    """Yield the records of a JSON file from number ``first`` on.

    The file holds a list, an object of objects, or an object that is itself one record.
    """
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file}: not JSON ({error})") from None
    if isinstance(content, dict) and content:
        content = _records_of_object(content)
    if not isinstance(content, list):
        kind = type(content).__name__
        raise UserError(f"{file}: holds a {kind}; a list of records belongs there")
    for number, value in enumerate(content[first - 1 :], first):
        yield _make_record(value, file, number, None)


def _records_of_object(content: dict[str, Any]) -> list[Any]:
    """Return the records in the one object that a JSON file holds.

    They are its values if all are objects, the items of its only list, or else the object itself.
    """
    values = list(content.values())
    if all(isinstance(value, dict) for value in values):
        # Records by id, as MathVista publishes them; the key is the id where none is inside.
        return [{"id": key, **value} for key, value in content.items()]
    if len(values) == 1 and isinstance(values[0], list):
        return values[0]
    return [content]


def _read_parquet(file: Path, first: int) -> Iterator[Record]:
    """Yield the records of a Parquet file from number ``first`` on.

    A Parquet file is stored in groups of rows: those that end before ``first`` are not read.
    ``number`` counts the rows before the current batch. `_batch_records` makes the records of a
    batch.
    """
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
                    yield from _batch_records(batch, file, number, first)
                    number += batch.num_rows
    except ArrowException as error:
        raise UserError(f"{file}: not a whole Parquet file ({error}); fetch it again") from None


def _read_arrow(file: Path, first: int) -> Iterator[Record]:
    """Yield the records of an Arrow file from number ``first`` on.

    ``save_to_disk`` of ``datasets`` writes Arrow's streaming format. ``number`` counts the rows
    before the current batch.
    """
    from pyarrow import ArrowException, ipc, memory_map

    number = 0
    try:
        with memory_map(str(file)) as source, ipc.open_stream(source) as batches:
            for batch in batches:
                yield from _batch_records(batch, file, number, first)
                number += batch.num_rows
    except ArrowException as error:
        raise UserError(f"{file}: not a whole Arrow file ({error}); fetch it again") from None


def _read_csv(file: Path, first: int) -> Iterator[Record]:
    """Yield the records of a CSV file, whose first line has the names, from number ``first`` on."""
    with file.open(newline="", encoding="utf-8-sig") as stream:
        for number, row in enumerate(csv.DictReader(stream, strict=True), 1):
            if None in row or None in row.values():
                raise UserError(f"{file}, record {number}: not as many fields as the first line")
            if number >= first:
                yield _make_record(row, file, number, None)


def _batch_records(batch: Any, file: Path, earlier: int, first: int) -> Iterator[Record]:
    """Records of an Arrow batch from number ``first`` on; ``earlier`` records precede it."""
    # Records count from 1, rows of the batch from 0.
    for row in range(max(0, first - earlier - 1), batch.num_rows):
        values = batch.slice(row, 1).to_pylist()[0]
        yield _make_record(values, file, earlier + row + 1, None)


def _make_record(value: Any, file: Path, number: int, offset: int | None) -> Record:
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise UserError(f"{file}, record {number}: a {kind}; an object with named fields is needed")
    return Record(value, file, number, offset)


# ---- deferred ------------------------------------------------------------------------------------
# Fields of a record that are too big to hold for every problem: read again when needed.
#
# The private tests of LiveCodeBench v5 are gigabytes of text. A problem carries only where they
# stand and their digest, so it stays small, can be sent to a worker, and has the same content hash
# wherever the file lies.
#
# Even so, finding them means reading all of those gigabytes, which a hundred workers should not do
# at every start. ``rlbhpc stage`` therefore leaves a slim file beside such a set: the records
# without the big fields, each with a pointer to them. Where it is there, it is read instead.


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
            return cls._from_pointer(record, names, pointer)
        digest = _digest([record.need(name) for name in names])
        return cls(record.file.absolute(), record.number, record.offset, names, digest)

    @classmethod
    def _from_pointer(cls, record: Record, names: tuple[str, ...], pointer: Any) -> Deferred:
        """Make a deferred value from a record of a slim file.

        Such a record lacks its large fields and has a ``pointer`` to them instead: the file, the
        record's number and offset in it, the names of the fields, and a digest. The file must lie
        in the same folder.
        """
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
        """Read the fields from their file, by name; refuse them if they have changed since.

        `read_again` finds the record by its number or its offset in the file. `Record.need` gives a
        field, and refuses a record without it.
        """
        record = read_again(self.file, self.number, self.offset)
        values = {name: record.need(name) for name in self.names}
        if _digest(list(values.values())) != self.digest:
            raise UserError(
                f"{record.place}: changed since the problem set was loaded; load it again"
            )
        return values


def slim_lines(folder: Path, names: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of a slim file: the records of a folder without their large fields.

    ``names`` are these fields. In their place each record has a pointer to where they stand, and a
    digest of them, so that they can be read when they are needed.
    """
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


# ---- pairs ---------------------------------------------------------------------------------------
# Prompts with their responses, from a file: to learn from, or to score.


Pairs = Iterable[tuple[str, Any]]


def read_pairs(path: Path) -> Pairs:
    """Yield the prompts and responses of a JSONL file whose lines have these two fields.

    A response is a text, or a list of [writer, text] for the turns of an episode, whose writer is
    ``model`` or a tool.
    """
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                yield record["prompt"], record["response"]
            except (ValueError, KeyError, TypeError):
                raise UserError(
                    f'{path}:{number}: expected a line like {{"prompt": "…", "response": "…"}}; '
                    f"found {line.strip()[:60]!r}"
                ) from None
