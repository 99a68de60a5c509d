"""The main tables of a report as LaTeX, with rules of the booktabs package."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rlbhpc.report.aspect import Report
from rlbhpc.report.measured import Measured
from rlbhpc.report.phrases import bounds, bounds_at, p_value, percent, plain, signed

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
