"""What a plan and a report keep in memory of each sample: a few bits, never a list of keys.

The peak of a process at one size is mostly that of the libraries. Between two sizes of one study
only what is kept of each sample differs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rlbhpc.study.layout import Layout
from tests.benchmarks.bench_store_scale import ARMS, PLAN, measured, study_of_arms
from tests.report.large import make_large

#: A key has 8 bytes; a list of those of one arm, of four, is 2 for each sample of all.
OF_A_PLAN = 3.0
#: Verdicts of all arms, and lengths, log-probabilities and entropies of one of them at a time.
OF_A_REPORT = 11.0
REPORT = """
from contextlib import redirect_stdout
from rlbhpc.cli.main import cli
def work():
    with redirect_stdout(sys.stderr):
        cli.main(["report", str(layout.root)], standalone_mode=False)
"""


def bytes_per_sample(small: tuple[Layout, int], large: tuple[Layout, int], body: str) -> float:
    """Growth of the peak of memory between two numbers of samples."""
    (less, peak), (more, higher) = (
        (samples, measured(layout, body)[1]) for layout, samples in (small, large)
    )
    return (higher - peak) * 2**20 / (more - less)


@pytest.mark.slow
def test_a_plan_keeps_bits_of_each_sample(tmp_path: Path) -> None:
    peaks = [
        measured(study_of_arms(tmp_path / str(n), 200, n).layout, PLAN.format(n=n))[1]
        for n in (2_000, 20_000)
    ]
    assert (peaks[1] - peaks[0]) * 2**20 / (ARMS * 200 * 18_000) < OF_A_PLAN


@pytest.mark.by_turns(3)
@pytest.mark.slow
def test_a_report_keeps_few_bytes_of_each_sample(tmp_path: Path) -> None:
    sizes = []
    for n in (512, 4_096):
        study = make_large(tmp_path / str(n), {"made": 100}, checkpoints=2, samples=n)
        sizes.append((study.layout, sum(b.n * len(b.problems) for b in study.blocks())))
    assert bytes_per_sample(*sizes, REPORT) < OF_A_REPORT
