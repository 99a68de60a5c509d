"""Review sheets on disk: a folder per sheet with the page, its facts and each reader's file."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rlbhpc.errors import UserError
from rlbhpc.verify.audit.review import (
    FORMAT,
    Chain,
    Judgements,
    Sheet,
    read_json,
    read_judgements,
    write_sheet,
)

_PAGE: Final = "sheet.html"
_FACTS: Final = "sheet.json"
_OF_A_READER: Final = "judgements-*.json"


@dataclass(frozen=True)
class Kept:
    """A sheet, what it is of (arm, problem set and step, in words), and its folder."""

    sheet: Sheet
    title: str
    folder: Path

    @property
    def page(self) -> Path:
        """The file to open and read."""
        return self.folder / _PAGE

    def judgements(self) -> list[Judgements]:
        """Read what every reader said, in the order of their files."""
        return [
            read_judgements(path, self.sheet) for path in sorted(self.folder.glob(_OF_A_READER))
        ]


def keep(folder: Path, sheet: Sheet, title: str) -> Kept:
    """Write a sheet into its folder below ``folder``; the same sheet again is the same folder."""
    place = folder / sheet.id
    place.mkdir(parents=True, exist_ok=True)
    write_sheet(place / _PAGE, sheet, title)
    facts = {"title": title, **asdict(sheet)}
    (place / _FACTS).write_text(json.dumps(facts, ensure_ascii=False, indent=1), encoding="utf-8")
    return Kept(sheet, title, place)


def kept(folder: Path) -> Iterator[Kept]:
    """Read every sheet below ``folder``."""
    for path in sorted(folder.glob(f"*/{_FACTS}")):
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            counts = {name: (n, right) for name, (n, right) in facts["counts"].items()}
            chains = tuple(Chain(**chain) for chain in facts["chains"])
            found = Kept(Sheet(facts["id"], counts, chains), facts["title"], path.parent)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise UserError(f"{path}: damaged ({error}); write the sheet again") from None
        yield found


def take(folder: Path, given: Path) -> tuple[Kept, Judgements]:
    """Check a file that a reader saved and store it beside its sheet.

    The same reader again replaces what was said before.
    """
    record = read_json(given)
    sheet_id = record.get("sheet") if isinstance(record, dict) else None
    sheets = {page.sheet.id: page for page in kept(folder)}
    if not isinstance(sheet_id, str) or sheet_id not in sheets:
        names = ", ".join(sheets) or "none"
        raise UserError(f"{given}: made on sheet {sheet_id!r}; the sheets in {folder} are {names}")
    judged = read_judgements(given, sheets[sheet_id].sheet)
    shutil.copyfile(given, sheets[sheet_id].folder / _file_of(judged))
    return sheets[sheet_id], judged


def add(page: Kept, judged: Judgements) -> None:
    """Store judgements that no page was needed for, in the form that the page saves."""
    record = {
        "format": FORMAT,
        "sheet": judged.sheet,
        "reviewer": judged.reviewer,
        "judgements": dict(judged.words),
        "notes": dict(judged.notes),
        "by_model": judged.by_model,
    }
    text = json.dumps(record, ensure_ascii=False, indent=1)
    (page.folder / _file_of(judged)).write_text(text, encoding="utf-8")


def _file_of(judged: Judgements) -> str:
    """One file per reader; the digest keeps apart whom a file name cannot."""
    label = re.sub(r"\W+", "-", judged.reviewer).strip("-")[:40]
    who = repr((judged.reviewer, judged.by_model)).encode()
    return f"judgements-{label}-{hashlib.sha256(who).hexdigest()[:8]}.json"
