"""The report for a terminal: readable at any width, in pipes, and without colours."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.cells import cell_len
from rich.console import Console

from rlbhpc.cli.report import report as command
from rlbhpc.report.aspect import Report
from rlbhpc.report.terminal import print_report


def text_of(report: Report, width: int, *, verbose: bool = True) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False)
    print_report(report, console, verbose=verbose)
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(report: Report, width: int) -> None:
    text = text_of(report, width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert "\x1b" not in text


def test_it_says_everything(report: Report) -> None:
    text = text_of(report, 100)
    (one,) = report.last_comparisons
    flat = " ".join(text.split())
    for sentence in one.words:
        assert sentence in flat
    assert "base only" in text and "McNemar's exact test, two-sided: p" in text
    assert "math/0" in flat
    assert "2 of 40 problems without any" in flat


def test_the_answer_is_short_and_says_what_it_leaves_out(report: Report) -> None:
    text = text_of(report, 100, verbose=False)
    assert len(text.splitlines()) < 25
    (pair,) = report.last_comparisons
    assert str(pair.answer.word) in text and "[" in text
    assert "2 of 40 problems without any" in " ".join(text.split())
    assert "McNemar" not in text


def test_exit_code_3_while_samples_are_missing(run: Path) -> None:
    done = CliRunner().invoke(command, [str(run), "--terminal"], standalone_mode=False)
    assert done.return_value == 3
    assert "Did the boundary move?" in done.output


@pytest.mark.parametrize("printed", [True, False])
def test_printed_and_written_at_once(run: Path, tmp_path: Path, printed: bool) -> None:
    words = [str(run), "-o", str(tmp_path / "out"), *["--terminal"] * printed]
    done = CliRunner().invoke(command, words, standalone_mode=False)
    assert ("Did the boundary move?" in done.output) == printed
    assert done.output.rstrip().endswith("beside it.")
    assert "Did the boundary move?" in (tmp_path / "out" / "report.html").read_text()


def test_an_arm_with_two_bases_has_two_rows(run: Path) -> None:
    """The matrix had one row an arm, and the second base took the place of the first."""
    words = [str(run), "--terminal", "--compare", "base:rl", "--compare", "rl:base"]
    done = CliRunner().invoke(command, words, standalone_mode=False)
    nets = {}
    for line in done.output.splitlines():
        for pair in ("rl against base", "base against rl"):
            if line.startswith(pair):
                nets[pair] = float(line.split()[-1])
    assert nets["rl against base"] == -nets["base against rl"] != 0


def test_a_wrong_pair_is_told(run: Path) -> None:
    done = CliRunner().invoke(command, [str(run), "--compare", "base,rl"], standalone_mode=False)
    assert "BASE:TRAINED" in str(done.exception)


def test_notes_that_are_left_out_are_counted_and_their_command_can_be_pasted(
    report: Report,
) -> None:
    folder = Path("my runs/math")
    for notes, words in ((7, "1 more note: "), (8, "2 more notes: ")):
        long = replace(report, folder=folder, notes=("x",) * notes)
        flat = " ".join(text_of(long, 300, verbose=False).split())
        assert f"· and {words}rlbhpc report 'my runs/math' --terminal -v" in flat
        assert "rlbhpc show 'my runs/math' --problem ID" in flat
