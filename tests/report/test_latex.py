"""LaTeX tables: every row of the report, nothing that LaTeX would act on."""

from __future__ import annotations

import re

from rlbhpc.report.aspect import Report
from rlbhpc.report.phrases import escape_latex, interval_text
from rlbhpc.report.write import latex


def test_what_latex_acts_on_is_escaped() -> None:
    assert escape_latex("a_b & 50 % of $x$ {#1} ~^\\") == (
        r"a\_b \& 50 \% of \$x\$ \{\#1\} \textasciitilde{}\textasciicircum{}\textbackslash{}"
    )
    assert "\x1b" not in escape_latex("\x1b[31m")


def test_tables_are_whole(report: Report) -> None:
    text = latex(report)
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 2
    for block in re.findall(r"\\toprule\n(.*?)\\bottomrule", text, re.S):
        rows = [line for line in block.splitlines() if line.endswith(r"\\")]
        cells = [len(re.findall(r"(?<!\\)&", row)) for row in rows if "multicolumn" not in row]
        assert len(cells) > 1 and len(set(cells)) == 1
    for one in report.measured_arms:
        assert one.curve is not None
        assert interval_text(one.curve.interval, 0).partition(" ")[0] in text
    (one,) = report.last_comparisons
    assert str(one.answer.word) in text
