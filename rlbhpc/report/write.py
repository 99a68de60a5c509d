"""Write a report: the page, and beside it its numbers in three formats and its claim card."""

from __future__ import annotations

import json
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rlbhpc import files
from rlbhpc.errors import UserError
from rlbhpc.report.aspect import Aspect, Report
from rlbhpc.report.aspects import aspects_of
from rlbhpc.report.aspects.conclusions import conclusions_frame
from rlbhpc.report.aspects.evidence import EVIDENCE_PAGE
from rlbhpc.report.aspects.samples import samples_frame
from rlbhpc.report.claim import CLAIM, claim_card
from rlbhpc.report.latex import latex
from rlbhpc.report.page import pages
from rlbhpc.report.phrases import figure
from rlbhpc.study.layout import Layout

LATEX = "tables.tex"
# Files that are written at the same time.
_AT_ONCE = 4


def as_records(report: Report) -> str:
    """Conclusions, samples and notes as JSON, missing numbers as null."""
    frames = {
        "conclusions": conclusions_frame(report),
        "samples": samples_frame(report.measured),
    }
    records = {
        name: json.loads(
            frame.to_json(orient="records", double_precision=15),
            parse_float=lambda text: figure(float(text)),
        )
        for name, frame in frames.items()
    }
    return json.dumps({"name": report.name, **records, "notes": report.notes}, indent=2)


def write_report(report: Report, folder: Path | None = None) -> list[Path]:
    """Write the page and the tables into a folder, the run's own where none is given.

    Files of an earlier report are replaced, each in one step. In the run's own folder, tables that
    this report has not are removed: what they say is of other data. The page comes first.
    """
    is_own = folder is None
    if folder is None:
        if (report.folder / "zarr.json").is_file():
            raise UserError(f"{report.folder} is a cube; say with -o where the report should go")
        folder = Layout(report.folder).report
    contents = {name: text.encode() for name, text in pages(report).items()}
    contents[LATEX] = latex(report).encode()
    contents[CLAIM] = claim_card(report)
    for aspect in aspects_of(report):
        contents |= _numbers(report, aspect)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        page, *others = contents
        files.put(folder / page, contents[page])
        # At the same time: most of it is waiting until a file is on the disk.
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            deque(pool.map(lambda name: files.put(folder / name, contents[name]), others), maxlen=0)
        if EVIDENCE_PAGE not in contents:  # of an earlier report
            (folder / EVIDENCE_PAGE).unlink(missing_ok=True)
        for old in folder.glob("*.parquet") if is_own else ():
            if old.name not in contents:
                old.unlink()
                old.with_suffix(".csv").unlink(missing_ok=True)
    except OSError as error:
        raise files.explain(error, folder, "; -o names another folder") from error
    return [folder / name for name in contents]


def _numbers(report: Report, aspect: Aspect) -> dict[str, bytes]:
    """The tables of an aspect as the files that they become, by name."""
    files_of: dict[str, bytes] = {}
    for name, frame in aspect.frames(report).items():
        text = frame.to_csv(
            index=False, lineterminator="\n", float_format=lambda value: repr(figure(value))
        )
        files_of[f"{name}.csv"] = text.encode()
        files_of[f"{name}.parquet"] = frame.to_parquet(index=False)
    return files_of
