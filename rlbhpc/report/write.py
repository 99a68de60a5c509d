"""Write a report: the page, and beside it its numbers, LaTeX tables and claim card."""

from __future__ import annotations

import json
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
from rlbhpc.report.aspects.coverage import EVIDENCE_PAGE
from rlbhpc.report.aspects.pass_at_k import spread_evenly
from rlbhpc.report.aspects.samples import samples_frame
from rlbhpc.report.claim import CLAIM, claim_card
from rlbhpc.report.measured import MeasuredArm, short_names
from rlbhpc.report.page import pages
from rlbhpc.report.phrases import escape_latex, file_number, interval_text, interval_texts
from rlbhpc.study.layout import Layout

LATEX: Final = "tables.tex"
#: The list of the tables beside the page.
INDEX: Final = "tables.csv"
# Columns of k in a table that fits a column of a paper.
_K_COLUMNS: Final = 3
# Files that are written at the same time: most of it is waiting until a file is on the disk.
_WRITERS: Final = 4


def as_records(report: Report) -> str:
    """Conclusions, samples and notes as JSON, missing numbers as null.

    A *frame* is a table; its rows become objects, and numbers are rounded as in the files.
    """
    frames = {
        "conclusions": conclusions_frame(report),
        "samples": samples_frame(report.measured_arms),
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

    A *cube* is a run's results by themselves, which have no folder for a report. ``contents``:
    bytes by file name. ``files.put`` replaces a file.
    """
    if folder is None:
        if (report.folder / "zarr.json").is_file():
            raise UserError(f"{report.folder} is a cube; say with -o where the report should go")
        folder = Layout(report.folder).report
    contents = {name: text.encode() for name, text in pages(report).items()}
    contents[LATEX] = latex(report).encode()
    contents[CLAIM] = claim_card(report)
    contents |= _tables(report)
    paths = [folder / name for name in contents]
    page, *others = contents.values()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        obsolete = _files_of_earlier_report(folder) - set(contents)
        files.put(paths[0], page)
        with ThreadPoolExecutor(_WRITERS) as pool:
            list(pool.map(files.put, paths[1:], others))
        for name in obsolete:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise files.explain(error, folder, "; -o names another folder") from error
    return paths


def _tables(report: Report) -> dict[str, bytes]:
    """All tables as CSV by file name, and ``tables.csv``, the list of them.

    ``aspects_of``: what a report shows; each aspect gives its tables by name.
    """
    frames = {
        f"{name}.csv": frame
        for aspect in aspects_of(report)
        for name, frame in aspect.frames(report).items()
    }
    rows = [len(frame) for frame in frames.values()]
    index = pd.DataFrame({"file": list(frames), "rows": rows})
    return {name: _csv(frame) for name, frame in {**frames, INDEX: index}.items()}


def _csv(frame: pd.DataFrame) -> bytes:
    text = frame.to_csv(
        index=False, lineterminator="\n", float_format=lambda value: repr(file_number(value))
    )
    return bytes(text.encode())


def _files_of_earlier_report(folder: Path) -> set[str]:
    """Pages and tables of an earlier report in a folder, and no other files that lie there."""
    names = {EVIDENCE_PAGE}
    index = folder / INDEX
    if index.is_file():
        names |= {Path(str(name)).name for name in pd.read_csv(index)["file"]}
    return names


def latex(report: Report) -> str:
    """Write pass@k of the compared arms, and the answers, as tables that fit a column of 3 in.

    ``report.by_set`` yields each problem set with the arms that were sampled on it.
    """
    tables = ["% Needs \\usepackage{array,booktabs}."]
    for set_name, arms in report.by_set(report.compared_arms):
        tables.append(_pass_at_k_table(report, set_name, [arm for arm in arms if arm.curve]))
    if report.last_comparisons:
        tables.append(_answers_table(report))
    return "\n".join(tables)


def _pass_at_k_table(report: Report, set_name: str, arms: Sequence[MeasuredArm]) -> str:
    """The LaTeX table of pass@k of some arms on one problem set, at a few k.

    ``reach``: the largest k of any arm. ``interval_texts`` are like ``31.2 [18.0, 45.0]``, or a
    dash.
    """
    reach = max(int(arm.curve.k[-1]) for arm in arms if arm.curve)
    sizes = spread_evenly(report.k(reach), _K_COLUMNS)
    rows = []
    for arm, name in zip(arms, short_names(arms), strict=True):
        assert arm.curve is not None
        rows.append([name, *interval_texts(sizes, arm.curve.k, arm.curve.interval)])
    level = f"{100 * report.settings.prob:g} %"
    caption = f"pass@k on {set_name}, percent, with {level} intervals over problems."
    heads = ["arm", *(f"k = {k:,}" for k in sizes)]
    return _latex_table(caption, heads, {"": rows}, f"{_wrapped_column(0.2)}rrr")


def _answers_table(report: Report) -> str:
    """The LaTeX table of the answer about each arm, by problem set and base.

    ``head``: a line above the rows of one set and base. ``only``: problems that only the base, and
    only the trained arm, solves. ``pair.reach``: K, at which ``pair.net`` is the difference.
    """
    rows: dict[str, list[list[str]]] = {}
    for pair in report.last_comparisons:
        head = f"{pair.problem_set}, against {pair.base.label}, K = {pair.reach:,}"
        only = f"{pair.answer.lost.count}/{pair.answer.gained.count}"
        net = interval_text(pair.net, sign=True)
        rows.setdefault(head, []).append([pair.trained.arm, pair.answer.headline, net, only])
    caption = (
        "Trained minus base pass@K in points, paired over problems, and how many problems only "
        "the base / only the trained model solves in K samples of each."
    )
    columns = f"{_wrapped_column(0.24)}{_wrapped_column(0.28)}rr"
    return _latex_table(caption, ["arm", "answer", "net", "only"], rows, columns)


def _wrapped_column(share: float) -> str:
    """The type of a column that breaks its lines at a share of the paper's column."""
    return rf">{{\raggedright\arraybackslash}}p{{{share:g}\columnwidth}}"


def _latex_table(
    caption: str,
    heads: Sequence[str],
    rows_of_head: Mapping[str, Sequence[Sequence[str]]],
    column_types: str,
) -> str:
    """Write a LaTeX table, its rows in groups.

    ``rows_of_head``: rows by what stands in a line above them; nothing above those of "".
    ``column_types``: as ``tabular`` takes them.
    """
    body = []
    for head, rows in rows_of_head.items():
        if head:
            text = rf"\textit{{{escape_latex(head)}}}"
            body.append(rf"\multicolumn{{{len(heads)}}}{{@{{}}l}}{{{text}}} \\")
        body += [" & ".join(map(_latex_cell, row)) + r" \\" for row in rows]
    lines = [
        r"\begin{table}",
        r"\centering\footnotesize\setlength{\tabcolsep}{2.5pt}",
        rf"\caption{{{escape_latex(caption)}}}",
        rf"\begin{{tabular}}{{@{{}}{column_types}@{{}}}}",
        r"\toprule",
        " & ".join(map(escape_latex, heads)) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_cell(text: str) -> str:
    """A cell with the interval behind a number in small letters."""
    number, bracket, bounds = text.partition(" [")
    if not bracket:
        return escape_latex(text)
    interval = escape_latex(bounds.replace(", ", ","))
    return rf"{escape_latex(number)} {{\tiny [{interval}}}"
