"""Write a report: the page, and beside it its numbers in three formats and its claim card."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from rlbhpc import files
from rlbhpc.errors import UserError
from rlbhpc.report.aspect import Aspect, Report
from rlbhpc.report.aspects import aspects_of
from rlbhpc.report.aspects.answer import conclusions_frame
from rlbhpc.report.aspects.evidence import EVIDENCE_PAGE
from rlbhpc.report.aspects.samples import samples_frame
from rlbhpc.report.claim import CLAIM, claim_card
from rlbhpc.report.measured import Measured
from rlbhpc.report.page import pages
from rlbhpc.report.phrases import bounds, bounds_at, figure, p_value, percent, plain, signed
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


_SPECIAL: Final = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "−": "$-$", "–": "--", "≤": r"$\le$", "Δ": r"$\Delta$", "<": r"\textless{}",
    ">": r"\textgreater{}",
}  # fmt: skip


def latex(report: Report) -> str:
    """Write pass@k of all arms, and the comparisons, as two kinds of ``table`` environments."""
    parts = ["% Needs \\usepackage{booktabs}."]
    for set_name, set_arms in report.by_set([arm for arm in report.measured if arm.curve]):
        parts.append(_pass_at_k(report, set_name, set_arms))
    if report.final:
        parts.append(_comparisons(report))
    return "\n".join(parts)


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is; characters that cannot be seen are replaced."""
    return "".join(_SPECIAL.get(char, char) for char in plain(text))


def _pass_at_k(report: Report, set_name: str, set_arms: Sequence[Measured]) -> str:
    reach = max(int(arm.curve.k[-1]) for arm in set_arms if arm.curve)
    sizes = report.k(reach)
    rows = [
        [arm.label, str(len(arm.curve_rows)), *bounds_at(sizes, arm.curve.k, arm.curve.interval)]
        for arm in set_arms
        if arm.curve
    ]
    level = f"{100 * report.settings.prob:g} %"
    return _table(
        f"pass@k on {set_name}, percent, with {level} intervals over problems.",
        ["arm", "problems", *(f"k = {k}" for k in sizes)],
        rows,
    )


def _comparisons(report: Report) -> str:
    rows = []
    for pair in report.final:
        cells = pair.solved.counts if pair.solved else {}
        counts = "/".join(str(value) for value in cells.values()) or "–"
        first, last = pair.pointwise, pair.net
        rows.append(
            [
                pair.title,
                pair.answer.headline,
                bounds(first, 0, sign=True),
                bounds(last, sign=True),
                str(pair.reach),
                counts,
                p_value(pair.solved.p_value) if pair.solved else "–",
                f"{percent(float(pair.gap.estimate))} ({signed(float(pair.gap.lower))}, "
                f"{signed(float(pair.gap.upper))})",
            ]
        )
    heads = ["comparison", "answer", "pass@1, points", "pass@K, points", "K",
             "both/base/trained/neither", "McNemar p", "gap"]  # fmt: skip
    return _table("Trained minus base, paired over problems.", heads, rows)


def _table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [
        r"\begin{table}",
        rf"\caption{{{escaped(caption)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}",
        r"\toprule",
        " & ".join(map(escaped, heads)) + r" \\",
        r"\midrule",
        *(" & ".join(map(escaped, row)) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"
