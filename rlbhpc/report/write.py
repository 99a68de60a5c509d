"""Write a report: the page, and beside it its numbers, LaTeX tables and claim card."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pandas as pd

from rlbhpc import files
from rlbhpc.errors import UserError
from rlbhpc.report.aspect import Report
from rlbhpc.report.aspects import aspects_of
from rlbhpc.report.aspects.answer import conclusions_frame
from rlbhpc.report.aspects.evidence import EVIDENCE_PAGE
from rlbhpc.report.aspects.pass_at_k import spread_evenly
from rlbhpc.report.aspects.samples import samples_frame
from rlbhpc.report.claim import CLAIM, claim_card
from rlbhpc.report.measured import Measured
from rlbhpc.report.page import pages
from rlbhpc.report.phrases import escape_latex, file_number, interval_text, interval_texts
from rlbhpc.study.layout import Layout

LATEX: Final = "tables.tex"
#: The tables beside the page.
INDEX: Final = "tables.csv"
# Columns of k in a table that fits a column of a paper.
_COLUMNS: Final = 3
# Files that are written at the same time.
_AT_ONCE: Final = 4


def as_records(report: Report) -> str:
    """Conclusions, samples and notes as JSON, missing numbers as null."""
    frames = {
        "conclusions": conclusions_frame(report),
        "samples": samples_frame(report.measured),
    }
    records = {
        name: json.loads(
            frame.to_json(orient="records", double_precision=15),
            parse_float=lambda text: file_number(float(text)),
        )
        for name, frame in frames.items()
    }
    return json.dumps({"name": report.name, **records, "notes": report.notes}, indent=2)


def write_report(report: Report, folder: Path | None = None) -> list[Path]:
    """Write the page and the tables into a folder, the run's own where none is given.

    Files of an earlier report are replaced, each in one step. Tables that only the earlier report
    had are removed: what they say is of other data. The page comes first.
    """
    if folder is None:
        if (report.folder / "zarr.json").is_file():
            raise UserError(f"{report.folder} is a cube; say with -o where the report should go")
        folder = Layout(report.folder).report
    contents = {name: text.encode() for name, text in pages(report).items()}
    contents[LATEX] = latex(report).encode()
    contents[CLAIM] = claim_card(report)
    tables = {
        f"{name}.csv": frame
        for aspect in aspects_of(report)
        for name, frame in aspect.frames(report).items()
    }
    contents |= {name: _csv(frame) for name, frame in tables.items()}
    sizes = {"file": list(tables), "rows": [len(frame) for frame in tables.values()]}
    contents[INDEX] = _csv(pd.DataFrame(sizes))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        earlier = _earlier(folder)
        page, *others = contents
        files.put(folder / page, contents[page])
        # At the same time: most of it is waiting until a file is on the disk.
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            deque(pool.map(lambda name: files.put(folder / name, contents[name]), others), maxlen=0)
        for name in earlier - set(contents):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise files.explain(error, folder, "; -o names another folder") from error
    return [folder / name for name in contents]


def _earlier(folder: Path) -> set[str]:
    """Files of an earlier report in a folder, and no others that lie there."""
    names = {EVIDENCE_PAGE}
    if (folder / INDEX).is_file():
        names |= {Path(str(name)).name for name in pd.read_csv(folder / INDEX)["file"]}
    # Before there was an index, each table stood there in two formats.
    twins = [path for path in folder.glob("*.parquet") if path.with_suffix(".csv").is_file()]
    return names | {path.with_suffix(end).name for path in twins for end in (".csv", ".parquet")}


def _csv(frame: pd.DataFrame) -> bytes:
    text = frame.to_csv(
        index=False, lineterminator="\n", float_format=lambda value: repr(file_number(value))
    )
    return bytes(text.encode())


def latex(report: Report) -> str:
    """Write pass@k of the compared arms, and the answers, as tables that fit a column of 3 in."""
    parts = ["% Needs \\usepackage{array,booktabs}."]
    for set_name, arms in report.by_set(report.compared):
        parts.append(_pass_at_k(report, set_name, [arm for arm in arms if arm.curve]))
    if report.final:
        parts.append(_answers(report))
    return "\n".join(parts)


def _pass_at_k(report: Report, set_name: str, arms: Sequence[Measured]) -> str:
    sizes = spread_evenly(
        report.k(max(int(arm.curve.k[-1]) for arm in arms if arm.curve)), _COLUMNS
    )
    several_steps = len({arm.arm for arm in arms}) < len(arms)
    rows = [
        [
            arm.label if several_steps else arm.arm,
            *interval_texts(sizes, arm.curve.k, arm.curve.interval),
        ]
        for arm in arms
        if arm.curve
    ]
    level = f"{100 * report.settings.prob:g} %"
    caption = f"pass@k on {set_name}, percent, with {level} intervals over problems."
    heads = ["arm", *(f"k = {k:,}" for k in sizes)]
    return _table(caption, heads, {"": rows}, f"{_wrapped(0.2)}rrr")


def _answers(report: Report) -> str:
    """What became of each arm, by set and base."""
    rows: dict[str, list[list[str]]] = {}
    for pair in report.final:
        head = f"{pair.problem_set}, against {pair.base.label}, K = {pair.reach:,}"
        only = f"{pair.answer.lost.count}/{pair.answer.gained.count}"
        net = interval_text(pair.net, sign=True)
        row = [pair.trained.arm, pair.answer.headline, net, only]
        rows.setdefault(head, []).append(row)
    caption = (
        "Trained minus base pass@K in points, paired over problems, and how many problems only "
        "the base / only the trained model solves in K samples of each."
    )
    columns = f"{_wrapped(0.24)}{_wrapped(0.28)}rr"
    return _table(caption, ["arm", "answer", "net", "only"], rows, columns)


def _wrapped(share: float) -> str:
    return rf">{{\raggedright\arraybackslash}}p{{{share:g}\columnwidth}}"


def _table(
    caption: str, heads: Sequence[str], rows: Mapping[str, Sequence[Sequence[str]]], columns: str
) -> str:
    """``rows``: by what stands in a line above them; ``columns``: as ``tabular`` takes them."""
    body = []
    for head, group in rows.items():
        if head:
            body.append(
                rf"\multicolumn{{{len(heads)}}}{{@{{}}l}}{{\textit{{{escape_latex(head)}}}}} \\"
            )
        body += [" & ".join(map(_cell, row)) + r" \\" for row in group]
    lines = [
        r"\begin{table}",
        r"\centering\footnotesize\setlength{\tabcolsep}{2.5pt}",
        rf"\caption{{{escape_latex(caption)}}}",
        rf"\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
        r"\toprule",
        " & ".join(map(escape_latex, heads)) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """An interval behind its number in small letters."""
    number, bracket, rest = text.partition(" [")
    interval = rest.replace(", ", ",")
    return (
        rf"{escape_latex(number)} {{\tiny [{escape_latex(interval)}}}"
        if bracket
        else escape_latex(text)
    )
