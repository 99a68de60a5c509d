"""A sweep that is killed again and again ends with the very cube of one that was not."""

from __future__ import annotations

import hashlib
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import rlbhpc
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import DONE, INCOMPLETE, NOTHING_TO_DO, TRY_AGAIN, USAGE
from rlbhpc.store.compact import compact
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.plan import read_presence
from tests.children import Child
from tests.store import reading
from tests.sweep.conftest import keys_of, write_study

pytestmark = [pytest.mark.engine, pytest.mark.slow]
# Before the first sample there is nothing to seal, which is refused.
SEALER_ENDS = (-signal.SIGKILL, DONE, INCOMPLETE, NOTHING_TO_DO, USAGE)


def sample_in_child(study: Path, shard_tokens: int) -> Child:
    return Child("sample", str(study), "--shard-tokens", str(shard_tokens), "--grace", "20")


def seal_in_child(study: Study) -> Child:
    return Child("compact", str(study.layout.root), "--seal")


def cube_digest(study: Study) -> dict[str, str]:
    store = compact(study.layout).store
    return {
        str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(store.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def make_study(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path
) -> Callable[[], tuple[Path, Study]]:
    def make() -> tuple[Path, Study]:
        # A sample by power sampling takes many requests, and is drawn again as a whole.
        power = {"alpha": 3, "moves": 4, "block": 8}
        powered = {"temperature": 1.0, "top_p": 1.0, "n": 2, "power": power}
        folder = tmp_path_factory.mktemp("run")
        path = write_study(folder, tiny_model, arms={"powered": powered})
        return path, load_study(path)

    return make


@pytest.fixture(scope="module")
def undisturbed(make_study: Callable[[], tuple[Path, Study]]) -> tuple[dict[str, str], float]:
    path, study = make_study()
    # The first child waits for the server that all are forked from.
    Child("--version").ended()
    start = time.monotonic()
    assert sample_in_child(path, 10**9).ended() == DONE
    return cube_digest(study), time.monotonic() - start


def test_a_finished_sweep_has_nothing_to_do(make_study: Callable[[], tuple[Path, Study]]) -> None:
    path, _ = make_study()
    assert sample_in_child(path, 300).ended() == DONE
    assert sample_in_child(path, 300).ended() == NOTHING_TO_DO


@pytest.mark.core
@pytest.mark.timeout(1800)
def test_killed_sweeps_end_with_the_same_cube(
    make_study: Callable[[], tuple[Path, Study]],
    undisturbed: tuple[dict[str, str], float],
    soak: bool,
) -> None:
    expected, duration = undisturbed
    rng = random.Random(20)
    kills_wanted = 100 if soak else 10
    kills = 0
    while kills < kills_wanted:
        path, study = make_study()
        seen: set[tuple[str, str, int]] = set()
        while True:
            child = sample_in_child(path, rng.choice([150, 300, 700, 10**9]))
            # A moment anywhere in the run, start-up and shut-down included.
            half = rng.uniform(0, 0.55 * duration)
            child.wait(half)
            sealer = seal_in_child(study)  # as jobs of a launch do beside those that sample
            child.wait(half)
            number = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
            child.send(number)
            if rng.random() < 0.5:
                sealer.send(signal.SIGKILL)
            code = child.ended()
            assert sealer.ended() in SEALER_ENDS
            kills += code in (-signal.SIGKILL, TRY_AGAIN)
            now = stored(study)
            assert seen <= now, "a sample that was stored is gone"
            seen = now
            if code in (DONE, NOTHING_TO_DO):
                break
        assert cube_digest(study) == expected


@pytest.mark.timeout(3600)
def test_killed_sweeps_of_an_engine_that_never_repeats_itself_keep_every_sample(
    tmp_path_factory: pytest.TempPathFactory, soak: bool
) -> None:
    """With vLLM a sample that is drawn again is another one, so none may be lost or redrawn."""
    model = make_tiny_model(tmp_path_factory.mktemp("model") / "tiny")
    rng = random.Random(5)
    kills_wanted, kills = (30 if soak else 3), 0
    in_the_middle = 0
    while kills < kills_wanted:
        path = write_study(tmp_path_factory.mktemp("run"), model, problems=60, engine="vllm")
        study = load_study(path)
        seen: dict[tuple[object, ...], dict[str, object]] = {}
        while True:
            child = sample_in_child(path, rng.choice([1000, 3000, 10**9]))
            if rng.random() < 0.2:  # while it starts up
                time.sleep(rng.uniform(0, 5))
            else:  # while it samples, or just after
                written(study, child, journal_bytes(study))
                time.sleep(rng.uniform(0, 0.7))
            child.send(rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
            code = child.ended()
            assert code in (-signal.SIGKILL, -signal.SIGTERM, TRY_AGAIN, DONE, NOTHING_TO_DO)
            kills += code in (-signal.SIGKILL, TRY_AGAIN)
            now = whole_rows(study)
            in_the_middle += seen.keys() < now.keys() and code not in (DONE, NOTHING_TO_DO)
            assert {key: now.get(key) for key in seen} == seen, "a stored sample is gone or changed"
            seen = now
            if code in (DONE, NOTHING_TO_DO):
                break
        asked = [(key.arm, *key[1:]) for key in keys_of(study)]
        assert sorted(seen) == sorted(asked)  # type: ignore[type-var]
        for arm in study.arms:
            counts = rlbhpc.open_cube(study.layout.root)[f"{arm}/countdown"]
            assert (counts.n == study.arms[arm].n).all()
    assert in_the_middle, "no kill fell into the sampling"


def journal_bytes(study: Study) -> int:
    return sum(path.stat().st_size for path in study.layout.root.glob("journals/*/*/*"))


def written(study: Study, child: Child, before: int) -> None:
    """Wait until the child has stored something, or has ended."""
    while child.running() and journal_bytes(study) <= before:
        time.sleep(0.01)


def whole_rows(study: Study) -> dict[tuple[object, ...], dict[str, object]]:
    """Every stored sample with all that is known of it; no key twice with different samples."""
    found: dict[tuple[object, ...], dict[str, object]] = {}
    for arm in study.arms:
        rows = reading.rows(study.layout, arm, "countdown")
        assert not rows.conflicts
        for row in rows.table.to_pylist():
            key = (row["arm"], row["step"], row["problem"], row["sample"])
            assert key not in found
            found[key] = row
    return found


def stored(study: Study) -> set[tuple[str, str, int]]:
    return {
        (p.block.arm, p.block.problems[i], s)
        for p in read_presence(study.layout, list(study.blocks()))
        for i, s in np.argwhere(p.flags).tolist()
    }


def test_two_workers_on_one_shard_lose_and_double_nothing(
    make_study: Callable[[], tuple[Path, Study]], undisturbed: tuple[dict[str, str], float]
) -> None:
    path, study = make_study()
    children = [sample_in_child(path, 10**9) for _ in range(2)]
    assert {child.ended() for child in children} <= {DONE, NOTHING_TO_DO}
    assert cube_digest(study) == undisturbed[0]
