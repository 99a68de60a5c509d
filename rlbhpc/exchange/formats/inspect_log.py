"""Logs of inspect_ai: ``.eval`` (a zip of one JSON file per sample) and ``.json``."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from rlbhpc.engines.completion import Finish
from rlbhpc.errors import UserError
from rlbhpc.exchange.formats.form import (
    Form,
    Imported,
    LogState,
    as_verdict,
    choose_score,
    last_user_text,
    message_text,
    row_of,
    single_reference,
)
from rlbhpc.exchange.formats.rows import entries, file_ending, first_value, json_value
from rlbhpc.verify.verdict import Status

_ZSTD: Final = 93  # the number of this compression in zip files; Python's zipfile lacks it
_LOCAL_HEADER_BYTES: Final = 30
_SUCCESS: Final = "success"
# What a log holds from its beginning; the header is written at its end.
_BEGUN: Final = "_journal/start.json"
_FINISH: Final = {
    "stop": Finish.EOS,
    "max_tokens": Finish.LENGTH,
    "model_length": Finish.LENGTH,
}


class InspectLog(Form):
    """One sample per problem and epoch; the epoch numbers the responses."""

    name = "inspect log (.eval or .json)"

    def fits(self, path: Path) -> bool:
        """By the ending; ``.json`` by what is in it."""
        return file_ending(path) == ".eval" or isinstance(first_value(path, "samples"), dict)

    def records(self, path: Path) -> Iterator[tuple[str, Any]]:
        """The samples of all epochs."""
        if file_ending(path) == ".json":
            for number, row in entries(path, "samples"):
                yield f"{path}: sample {number}", row
        else:
            yield from _read_archive(path)

    def state(self, path: Path) -> LogState:
        """Return how the run that wrote a log ended, and how many samples it was to draw.

        A finished log has a header with both; a run that was killed left a log that says it has
        begun. Samples are problems times epochs, inspect's word for repetitions.
        """
        if file_ending(path) == ".json":
            header = json_value(path)
        else:
            with _open_archive(path) as archive:
                name = "header.json" if "header.json" in archive.namelist() else _BEGUN
                entry = archive.getinfo(name)
                header = {"status": "started"} | json.loads(_extract(path, archive, entry))
        with row_of(self.name, str(path)):
            evaluation = header.get("eval") or {}
            # Not `samples` beside it, which are those of the data set before `--limit`.
            problems = (evaluation.get("dataset") or {}).get("sample_ids") or []
            epochs = (evaluation.get("config") or {}).get("epochs") or 1
            status = str(header.get("status", _SUCCESS))
            return LogState("" if status == _SUCCESS else status, len(problems) * int(epochs))

    def responses(self, row: Any, metric: str | None, place: str) -> Iterator[Imported]:
        """Yield the response of a sample; ``metric`` names the scorer whose score decides.

        A sample that ended in an error is a failed one. An epoch is a repetition; it numbers the
        responses from 1. An `Imported` is one response with its problem, verdict and number;
        ``place`` says where the record stands, for messages.
        """
        output = row.get("output", {})
        choices = output.get("choices") or [{}]
        choice: dict[str, Any] = choices[0]
        verdict: Status | str = Status.FAILED
        answer = ""
        if not row.get("error"):
            try:
                score = choose_score(row.get("scores") or {}, metric, place)
            except UserError as error:
                verdict = str(error)
            else:
                verdict = as_verdict(score["value"], place)
                answer = str(score.get("answer") or "")
        yield Imported(
            str(row["id"]),
            verdict,
            int(row["epoch"]) - 1,
            text=message_text(choice.get("message", {}).get("content", "")),
            answer=answer,
            finish=_FINISH.get(choice.get("stop_reason", ""), -1),
            n_tokens=int((output.get("usage") or {}).get("output_tokens", -1)),
            gold=single_reference(row.get("target")),
            question=_question(row.get("input") or ""),
        )


def _question(sample_input: str | list[dict[str, Any]]) -> str:
    """What the user asked: a text, or the last of the user's messages."""
    return sample_input if isinstance(sample_input, str) else last_user_text(sample_input)


def _read_archive(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with _open_archive(path) as archive:
        for entry in archive.infolist():
            if entry.filename.startswith("samples/") and entry.filename.endswith(".json"):
                place = f"{path}: {entry.filename}"
                yield place, json.loads(_extract(path, archive, entry))


@contextmanager
def _open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a log that is a zip file; a damaged one is refused by name."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    # RuntimeError: it says that it is encrypted, or in a way of packing that nobody has.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OSError) as error:
        raise UserError(f"{path}: not a whole .eval file ({error or 'it ends early'})") from error


def _extract(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """Return the bytes of one entry of a zip file, also if it is compressed by zstd.

    Python's zipfile lacks zstd, so these bytes are found by the entry's header in the file. Its
    last four bytes are the lengths of the name and of the extra field, which stand before the data.
    """
    if entry.compress_type != _ZSTD:
        return archive.read(entry)
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        header = file.read(_LOCAL_HEADER_BYTES)
        # The name and the extra field stand before the data.
        name_length = int.from_bytes(header[26:28], "little")
        extra_length = int.from_bytes(header[28:30], "little")
        file.seek(name_length + extra_length, os.SEEK_CUR)
        stored = file.read(entry.compress_size)
    data: bytes = pa.decompress(stored, entry.file_size, codec="zstd", asbytes=True)
    return data
