"""``rlbhpc sample`` on a laptop: sealed at its end, few files, nothing lost with the scratch."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import rlbhpc
from rlbhpc.errors import DONE, TRY_AGAIN
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import load_study
from tests.store import reading
from tests.store.test_faults import small_disk as small_disk  # a fixture
from tests.sweep.conftest import write_study

pytestmark = [pytest.mark.engine, pytest.mark.slow]
SMALL = 24_000  # bytes: fewer than the journal of one arm takes


def sample(study: Path, *words: str, before: Callable[[], None] | None = None) -> tuple[int, str]:
    """Exit code and standard error of the real command, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "rlbhpc", "sample", str(study), *words],
        capture_output=True, text=True, check=False, preexec_fn=before,
    )  # fmt: skip
    return done.returncode, done.stderr


def files(layout: Layout) -> list[Path]:
    return [path for path in layout.root.rglob("*") if path.is_file()]


@pytest.mark.parametrize("tokens", ["all", "none"])
def test_journals_are_sealed_by_the_policy_of_the_study(
    tmp_path: Path, tiny_model: Path, tokens: str
) -> None:
    study = write_study(tmp_path, tiny_model)
    layout = load_study(study).layout
    counts = []
    for n in (4, 8, 12):
        words = ("--set", f"storage.tokens={tokens}", "--set", f"arms.base.n={n}")
        assert sample(study, *words)[0] == DONE
        assert not [*layout.root.rglob("*.journal")]
        counts.append(len([*layout.root.rglob("*.parquet")]))
    assert max(counts) <= 4, "one part for each arm and time that its n was raised"
    rows = reading.rows(layout, "base", "countdown", ("token_ids", "n_tokens")).table
    kept = [ids is not None for ids in rows["token_ids"].to_pylist()]
    assert len(kept) == 6 * 12
    assert all(kept) if tokens == "all" else not any(kept)
    # A scratch file system takes away what nobody touched: what is derived, and old journals.
    before = rlbhpc.open_cube(layout.root)["base/countdown"].to_dataset().load()
    for folder in ("presence", "journals", "attempts"):
        shutil.rmtree(layout.root / folder, ignore_errors=True)
    after = rlbhpc.open_cube(layout.root)["base/countdown"].to_dataset().load()
    np.testing.assert_array_equal(after.verdict, before.verdict)
    assert (after.verdict >= 0).all()


def limit_file_size() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL, SMALL))


def test_a_full_disk_under_sample_is_one_line_and_loses_nothing(
    tmp_path: Path, tiny_model: Path
) -> None:
    study = write_study(tmp_path, tiny_model, problems=60)
    code, text = sample(study, "--arm", "base", before=limit_file_size)
    complaints = [line for line in text.splitlines() if line.startswith("rlbhpc:")]
    assert code == TRY_AGAIN, text
    assert "Traceback" not in text
    assert len(complaints) == 1, text
    assert "File too large (EFBIG)" in complaints[0]
    assert "samples are stored, good up to byte" in complaints[0]
    assert "free space" in complaints[0]
    stored = reading.rows(load_study(study).layout, "base", "countdown", ("digest",)).table
    assert stored.num_rows > 10
    # The same command, where there is room, goes on from there.
    assert sample(study, "--arm", "base")[0] == DONE
    assert (rlbhpc.open_cube(load_study(study).layout.root)["base/countdown"].verdict >= 0).all()


def test_a_small_file_system_that_fills_up_is_one_line(
    tmp_path: Path, tiny_model: Path, small_disk: Path
) -> None:
    study = write_study(tmp_path, tiny_model, problems=60)
    (small_disk / "ballast").write_bytes(bytes(848_000))
    code, text = sample(study, "--set", f"output={small_disk / 'run'}")
    complaints = [line for line in text.splitlines() if line.startswith("rlbhpc:")]
    assert code == TRY_AGAIN, text
    assert "Traceback" not in text
    assert len(complaints) == 1, text
    assert "No space left on device (ENOSPC)" in complaints[0]
