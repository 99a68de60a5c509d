"""Sampling that stops: through the real planner, worker and store, with an engine that replays."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import rlbhpc
from rlbhpc.cli.exchange import select
from rlbhpc.cli.main import cli
from rlbhpc.errors import UserError
from rlbhpc.report.measured import read_arms
from rlbhpc.stats import Counts
from rlbhpc.store import derive
from rlbhpc.store.compact import compact
from rlbhpc.study.keys import SampleKey, sample_seed
from rlbhpc.study.study import Study
from tests.sweep.replay import (
    FULL_RL,
    Preempted,
    Replay,
    full_samples,
    look,
    make_study,
    swept,
)


def ideal(right: NDArray[np.bool_], stop_after: int) -> Counts:
    """The prefix of each problem, counted one by one."""
    n, c = [], []
    for row in right.tolist():
        total = 0
        for drawn, hit in enumerate(row, 1):  # noqa: B007
            total += hit
            if total == stop_after:
                break
        n.append(drawn)
        c.append(total)
    return Counts.of(n, c, stop_after, right.shape[1])


def test_what_counts_ends_at_a_right_sample_or_before_a_missing_one() -> None:
    verdict = np.array([[1, 0, 1, 1], [0, -1, 1, 1], [0, 0, 2, 0], [4, 1, 0, 1]], np.int8)
    assert derive.up_to_stop(verdict, 2).tolist() == [
        [1, 0, 1, -1], [0, -1, -1, -1], [0, 0, 2, 0], [4, 1, 0, 1],
    ]  # fmt: skip
    assert derive.up_to_stop(verdict, 0) is verdict


@pytest.mark.parametrize("tasks", [1, 32])
def test_a_replayed_study_draws_little_beyond_its_prefixes(
    tmp_path: Path, tasks: int, soak: bool
) -> None:
    problems, n, stop_after = (500, 1024, 16) if soak else (64, 256, 8)
    study = make_study(tmp_path, problems, n, stop_after)
    right, by_seed = full_samples(study, n)
    needed = ideal(right, stop_after)
    # A preempted array: some task or other dies again and again, with all that it has under way.
    engine = Replay(by_seed, dies_after=1 << 60)
    if tasks > 1:
        engine = Preempted(by_seed, every=max(600, int(needed.n.sum()) // 40))
    swept(study, engine, tasks)
    spent = engine.begun / int(needed.n.sum())
    print(f"{tasks} tasks: {engine.begun:,} drawn, {spent:.3f} of the ideal prefixes, ", end="")
    print(f"{engine.begun / right.size:.3f} of the full study")
    assert spent <= (1.15 if tasks == 1 else 1.3)
    if soak:
        assert engine.begun <= 0.2 * right.size
    compact(study.layout)
    group = rlbhpc.open_cube(study.layout.root)["base/math500"].to_dataset()
    counts = group.rlb.counts()
    assert (counts["n"].values[:, 0] == needed.n).all()
    assert (counts["c"].values[:, 0] == needed.c).all()
    assert (int(counts["stop_after"]), int(counts["n_max"])) == (stop_after, n)
    k = np.array([1, 16, n])
    assert np.allclose(group.rlb.pass_at_k(k).values[:, 0], needed.pass_at_k(k))
    # Overdraw is kept.
    assert int((group["verdict"].values >= 0).sum()) >= int(needed.n.sum())
    assert look(study)[0].stopped == int(needed.stopped.sum())


def test_raising_the_rule_or_n_keeps_every_sample(tmp_path: Path) -> None:
    study = make_study(tmp_path, 12, 64, 4)
    _, by_seed = full_samples(study, 128)
    first = Replay(by_seed)
    swept(study, first)
    prints = [block.fingerprints.tolist() for block in study.blocks()]
    for n, stop_after in ((64, 8), (128, 8), (128, 0)):
        study = make_study(tmp_path, 12, n, stop_after)
        assert [block.fingerprints.tolist() for block in study.blocks()] == prints
        more = Replay(by_seed)
        held = int(look(study)[0].count.sum())
        swept(study, more)
        assert int(look(study)[0].count.sum()) == held + more.drawn
    assert look(study)[0].missing == 0
    assert held + more.drawn == 12 * 128
    # And back: what is there is more than enough.
    assert look(make_study(tmp_path, 12, 128, 4))[0].missing == 0
    # So many right ones are all samples: no rule, and nothing that has no value for one.
    assert make_study(tmp_path, 12, 128, 128).stop_after("base", "math500") == 0
    assert make_study(tmp_path, 12, 128, 127).stop_after("base", "math500") == 127


def prefixes(study: Study) -> dict[str, NDArray[np.int8]]:
    """Verdicts that count, by arm; what was drawn beyond them may differ from run to run."""
    compact(study.layout)
    tree = rlbhpc.open_cube(study.layout.root)
    return {
        arm: derive.up_to_stop(
            tree[f"{arm}/math500"]["verdict"].values[:, :, 0], study.stop_after(arm, "math500")
        )
        for arm in study.arms
    }


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_tasks_end_with_the_same_prefixes(tmp_path: Path, soak: bool) -> None:
    (tmp_path / "whole").mkdir()
    whole = make_study(tmp_path / "whole", 24, 96, 5)
    swept(whole, Replay(full_samples(whole, 96)[1], rows=16))
    expected = prefixes(whole)
    rng = random.Random(3)
    kills_wanted, kills, run = (60 if soak else 6), 0, 0
    while kills < kills_wanted:
        folder = tmp_path / str(run)
        folder.mkdir()
        run += 1
        study = make_study(folder, 24, 96, 5)
        while True:
            child = subprocess.Popen([sys.executable, "-m", "tests.sweep.replay", str(folder)])
            begun = stored_bytes(study)
            while child.poll() is None and stored_bytes(study) <= begun:
                time.sleep(0.02)
            time.sleep(rng.uniform(0, 0.5))
            child.kill()
            if child.wait() == 0:
                break
            kills += 1
        assert all((prefixes(study)[arm] == verdicts).all() for arm, verdicts in expected.items())


def stored_bytes(study: Study) -> int:
    return sum(path.stat().st_size for path in study.layout.root.glob("journals/*/*/*"))


def test_a_stopped_arm_and_a_full_one_go_through_every_verb(tmp_path: Path) -> None:
    study = make_study(tmp_path, 24, 64, 4, FULL_RL)
    by_seed = full_samples(study, 64)[1] | full_samples(study, 64, 1, "rl")[1]
    swept(study, Replay(by_seed))
    file, run = str(tmp_path / "replayed.yaml"), str(study.layout.root)
    said = {}
    for verb, target in (
        ("check", file), ("plan", file), ("compact", run), ("status", run), ("report", run),
    ):  # fmt: skip
        said[verb] = CliRunner().invoke(cli, [verb, target], catch_exceptions=False)
    assert "stop after" in said["check"].output
    assert "at the most" in said["check"].output
    assert "Nothing is missing" in said["plan"].output
    assert "stopped" in said["status"].output
    assert said["report"].exit_code == 0
    page = next((study.layout.root / "report").glob("*.html")).read_text()
    assert "the samples of a problem end at 4 right ones" in page
    assert page.count("takes the first r, which all have") == 1
    # Summaries name the rule that their values know; a table of n and c could not.
    out = tmp_path / "out.eee"
    CliRunner().invoke(cli, ["export", run, str(out)], catch_exceptions=False)
    rules = {p: '"stop_after": ' in p.read_text() for p in out.rglob("*.json")}
    assert sorted(rules.values()) == [False, True]
    refused = CliRunner().invoke(cli, ["export", run, "n.csv"], standalone_mode=False).exception
    assert "which n and c alone cannot say" in str(refused)
    # Rows of samples name the rule under which they were drawn.
    rows = tmp_path / "rows.parquet"
    CliRunner().invoke(cli, ["export", run, str(rows)], catch_exceptions=False)
    exported = pq.read_table(rows, columns=["arm", "stop_after"]).to_pydict()
    assert set(zip(*exported.values(), strict=True)) == {("base", 4), ("rl", 0)}


def test_a_cube_of_problems_that_stop_counts_what_is_fair_or_refuses(tmp_path: Path) -> None:
    study = make_study(tmp_path, 24, 64, 4, FULL_RL)
    by_seed = full_samples(study, 64)[1] | full_samples(study, 64, 1, "rl")[1]
    swept(study, Replay(by_seed))
    compact(study.layout)
    tree = rlbhpc.open_cube(study.layout.root)
    base = tree["base/math500"].to_dataset().isel(step=0)
    # A stopped arm and a full one stand in one table.
    curves = tree.rlb.curves([1, 64]).isel(problem_set=0, step=0)
    each = base.rlb.pass_at_k([1, 64]).mean("problem")
    assert np.allclose(curves.pass_at_k.sel(arm="base"), each)
    # The first samples, as many as one likes, or any of those that every problem has.
    assert int(base.isel(sample=slice(10)).rlb.counts()["n"].max()) == 10
    assert (base.isel(sample=[3, 1]).rlb.counts()["n"] == 2).all()
    assert (base.isel(sample=2).rlb.counts()["n"] == 1).all()
    for chosen in (slice(8, 16), slice(None, None, 2), 5):
        with pytest.raises(UserError, match="behind the first 4 exist where earlier ones say so"):
            base.isel(sample=chosen).rlb.counts()
    full = tree["rl/math500"].to_dataset().isel(step=0, sample=slice(8, 16))
    assert (full.rlb.counts()["n"] == 8).all()


def test_verdicts_of_a_grader_that_did_not_end_the_samples(tmp_path: Path) -> None:
    study = make_study(tmp_path, 24, 64, 4)
    swept(study, Replay(full_samples(study, 64)[1]))
    compact(study.layout)
    base = rlbhpc.open_cube(study.layout.root)["base/math500"].to_dataset()
    # A lenient grader would have ended them earlier, and what it ends is there.
    verdict = base["verdict"]
    lenient = base.assign(paper=verdict.where(verdict != 0, 1).astype("int8"))
    assert (lenient.rlb.counts("paper")["n"] == 4).all()
    never = base.assign(paper=verdict.where(verdict < 0, 0).astype("int8"))
    with pytest.raises(UserError, match="fewer by 'paper'"):
        never.rlb.counts("paper")
    assert (never.isel(sample=slice(4)).rlb.counts("paper")["n"] == 4).all()


def test_a_run_that_a_stricter_grader_judged_counts_what_all_problems_have(tmp_path: Path) -> None:
    study = make_study(tmp_path, 24, 64, 4)
    swept(study, Replay(full_samples(study, 64)[1]))
    compact(study.layout)
    group = rlbhpc.open_cube(study.layout.root)["base/math500"].to_dataset()
    (whole,) = read_arms(group, study, regraded=True)
    assert (whole.depth, whole.stop_after, whole.counts.reach) == (64, 4, 64)
    stricter = group.assign(verdict=group["verdict"].where(group["verdict"] != 1, 0))
    (first,) = read_arms(stricter, study, regraded=True)
    assert (first.depth, first.stop_after, first.counts.reach) == (4, 0, 4)
    assert (first.counts.n == 4).all()


def test_problems_are_selected_by_their_unbiased_rates(tmp_path: Path) -> None:
    study = make_study(tmp_path, 2, 64, 4)
    # Right in samples 1, 2, 3 and 7 of eight, all that is drawn; and every time.
    by_seed = {
        sample_seed(study.seed, SampleKey("base", 0, problem, i)): i in (1, 2, 3, 7) or row == 1
        for row, problem in enumerate(study.problem_ids("math500"))
        for i in range(64)
    }
    swept(study, Replay(by_seed))
    for low, high, chosen in (
        (0.42, 0.44, ["math500/p0"]),
        (0.49, 0.51, []),
        (1, 1, ["math500/p1"]),
    ):
        words = [str(study.layout.root), "base", "math500", f"{low}-{high}"]
        result = CliRunner().invoke(select, words, catch_exceptions=False)
        assert result.output.split() == chosen
