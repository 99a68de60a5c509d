"""What people say of single responses: one line each in ``audit/judgements.jsonl`` of a run.

The question is whether the answer that a response gives is right, whatever its verdict.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from rlbhpc.errors import UserError
from rlbhpc.study.keys import SampleKey
from rlbhpc.study.layout import Layout

Word = Literal["right", "wrong", "unclear"]
WORDS: Final[tuple[Word, ...]] = get_args(Word)


@dataclass(frozen=True)
class Judgement:
    """What one reader says of one response."""

    key: SampleKey
    word: Word
    reader: str = ""
    note: str = ""


def store_judgement(layout: Layout, judgement: Judgement) -> None:
    """Append one line; of several on the same response the last one counts."""
    path = layout.judgements
    path.parent.mkdir(parents=True, exist_ok=True)
    record = judgement.key._asdict() | {
        "judgement": judgement.word,
        "reader": judgement.reader,
        "note": judgement.note,
    }
    line = json.dumps(record, ensure_ascii=False) + "\n"
    # A reader that was killed while writing may have left a line without its end.
    start = "" if _ends_a_line(path) else "\n"
    with path.open("a", encoding="utf-8", errors="surrogatepass") as file:
        file.write(start + line)


def _ends_a_line(path: Path) -> bool:
    if not path.exists() or not path.stat().st_size:
        return True
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def load_judgements(layout: Layout) -> dict[SampleKey, Judgement]:
    """Read the last judgement of every response; nothing where nobody has judged.

    A line that is no JSON was cut off by a kill: its response is shown again.
    """
    judgements: dict[SampleKey, Judgement] = {}
    for number, record in read_lines(layout.judgements):
        place = f"{layout.judgements}:{number}"
        try:
            key = SampleKey(
                str(record["arm"]), int(record["step"]), str(record["problem"]),
                int(record["sample"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError):
            raise UserError(
                f"{place}: names no response; needed are arm, step, problem and sample; "
                "mend or remove the line"
            ) from None
        word = checked_word(place, record.get("judgement"))
        judgements[key] = Judgement(
            key, word, str(record.get("reader", "")), str(record.get("note", ""))
        )
    return judgements


def read_lines(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Line number and content of each JSON object of a file; nothing where there is no file."""
    records = []
    if path.exists():
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                records.append((number, record))
    return records


def checked_word(place: str, word: object) -> Word:
    """A judgement as somebody wrote it, if it is one of the three words."""
    if word not in WORDS:
        raise UserError(f"{place}: judgement {word!r}; allowed: {', '.join(WORDS)}")
    return word
