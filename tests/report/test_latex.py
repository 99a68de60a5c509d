"""LaTeX tables: every row of the report, nothing that LaTeX would act on."""

from __future__ import annotations

import re

from rlbhpc.report.aspect import Report
from rlbhpc.report.phrases import bounds
from rlbhpc.report.write import escaped, latex


def test_what_latex_acts_on_is_escaped() -> None:
    assert escaped("a_b & 50 % of $x$ {#1} ~^\\") == (
        r"a\_b \& 50 \% of \$x\$ \{\#1\} \textasciitilde{}\textasciicircum{}\textbackslash{}"
    )
    assert "\x1b" not in escaped("\x1b[31m")


def test_tables_are_whole(report: Report) -> None:
    text = latex(report)
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 2
    for block in re.findall(r"\\begin\{tabular\}\{(l?r*)\}(.*?)\\end\{tabular\}", text, re.S):
        rows = [line for line in block[1].splitlines() if line.endswith(r"\\")]
        assert rows
        for row in rows:
            assert len(re.findall(r"(?<!\\)&", row)) == len(block[0]) - 1
    for one in report.measured:
        assert one.curve is not None
        assert escaped(bounds(one.curve.interval, 0)) in text
    (one,) = report.final
    assert str(one.answer.word) in text
