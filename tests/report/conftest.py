"""One run of whole samples, shared: reading never changes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlbhpc.report.aspect import Report
from rlbhpc.report.gather import gather
from rlbhpc.verify.verdict import Status
from tests.report.made import make_study, put_samples, rates
from tests.report.rich import make_rich

PROBLEMS, N = 40, 32
HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)> & \x1b[31m 7"


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a lost boundary, two unsampled problems, a timeout, a failed generation."""
    folder = tmp_path_factory.mktemp("report") / "run"
    rng = np.random.default_rng(1)
    study = make_study(folder, PROBLEMS, N)
    base, trained = (
        rng.random((PROBLEMS, N)) < p[:, None] for p in rates("shrinks", PROBLEMS, rng)
    )
    base[0], trained[0] = False, False
    base[0, 0] = True  # the rarest correct answer of all, and only the base's
    put_samples(
        study, "base", base, texts={(0, 0): HOSTILE},
        verdicts={(3, 4): Status.TIMEOUT, (5, 6): Status.FAILED, (7, 8): Status.NO_ANSWER},
    )  # fmt: skip
    put_samples(study, "rl", trained, 100, missing=2)
    return folder


@pytest.fixture(scope="session")
def report(run: Path) -> Report:
    return gather(run)


@pytest.fixture(scope="session")
def rich_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of :mod:`tests.report.rich`."""
    return make_rich(tmp_path_factory.mktemp("rich") / "run").layout.root
