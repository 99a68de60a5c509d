"""Counts, scores and training curves: stored, merged, refused where they contradict, shown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import rlbhpc
from rlbhpc.errors import UserError
from rlbhpc.store import tables
from rlbhpc.store.compact import compact
from rlbhpc.store.schema_check import validate_cube
from rlbhpc.study.layout import Layout
from tests.store.made import contents, journal, put_training, samples


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def scores(rows: list[tuple[str, int, int, int, float]]) -> pa.Table:
    names = ("problem", "sample", "step", "scorer_step", "logprob_sum")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    more = {"n_tokens": [7] * len(rows), "entropy_sum": [np.nan] * len(rows)}
    more["request"] = [row[3] for row in rows]
    return pa.table({n: pa.array(v) for n, v in (columns | more).items()}).select(
        tables.SCORE_ROWS.names
    )


def fill(layout: Layout) -> None:
    tables.put_counts(layout, "pub", "math", "m", {(0, "math/10"): (8, 3), (0, "math/9"): (4, 0)})
    put_training(layout, "m-rl", [1, 2, 5], {"reward": [0.1, 0.2, np.nan], "kl": [0, 1, 2]})
    tables.add_scores(layout, "rl", "math", "base", scores([("math/1", 0, 50, 0, -3.5)]))
    tables.add_scores(layout, "rl", "math", "base", scores([("math/0", 2, 100, 0, -2.0)]))


def test_each_kind_has_its_group_before_and_after_compaction(layout: Layout) -> None:
    fill(layout)
    live = rlbhpc.open_cube(layout.root)
    assert compact(layout).new
    cube = rlbhpc.open_cube(layout.root)
    for path in ("pub/math", "training/m-rl", "scores/rl/math/base"):
        assert live[path].to_dataset().identical(cube[path].to_dataset().load())
    counts = cube["pub/math"]
    assert list(counts.problem.values) == ["math/9", "math/10"]
    assert counts.n.values.tolist() == [[4], [8]]
    assert counts.to_dataset().rlb.pass_at_k(2).values.tolist() == [
        [0.0],
        [pytest.approx(1 - 10 / 28)],
    ]
    assert [node.path for node in cube.rlb.counts().leaves] == ["/pub/math"]
    assert not cube.rlb.counts("paper").children
    training = cube["training/m-rl"]
    assert training.train_step.values.tolist() == [1, 2, 5]
    assert np.array_equal(training.reward, [0.1, 0.2, np.nan], equal_nan=True)
    scored = cube["scores/rl/math/base"]
    assert scored.logprob_sum.dims == ("problem", "sample", "step", "scorer_step")
    assert (
        scored.logprob_sum.sel(problem="math/0", step=100, scorer_step=0).values.tolist()[2] == -2
    )
    assert int(scored.logprob_sum.notnull().sum()) == 2
    assert dict(scored.sizes) == {"problem": 2, "sample": 3, "step": 2, "scorer_step": 1}
    chunks = scored.logprob_sum.encoding["preferred_chunks"]
    assert chunks == {"problem": 1024, "sample": 64, "step": 1, "scorer_step": 1}
    assert validate_cube(layout.root) == []


def test_the_same_again_changes_nothing(layout: Layout) -> None:
    fill(layout)
    compact(layout)
    before = contents(layout.cube)
    fill(layout)
    assert not compact(layout).new
    compact(layout, rebuild=True)
    assert contents(layout.cube) == before
    # What the cube was made from is not read again to look at it.
    for path in layout.tables(tables.SCORES).rglob("*.parquet"):
        path.write_bytes(b"damaged")
    scored = rlbhpc.open_cube(layout.root)["scores/rl/math/base"]
    assert int(scored.logprob_sum.notnull().sum()) == 2


def test_a_grown_curve_replaces_the_one_before(layout: Layout) -> None:
    fill(layout)
    compact(layout)
    put_training(layout, "m-rl", [1, 2, 5, 6], {"reward": [0.1, 0.2, 0.3, 0.4]})
    compact(layout)
    training = rlbhpc.open_cube(layout.root)["training/m-rl"]
    assert training.reward.values.tolist() == [0.1, 0.2, 0.3, 0.4]
    assert "kl" not in training


def test_counts_add_up_and_what_has_none_has_zero(layout: Layout) -> None:
    first = {(0, "math/0"): (8, 3), (5, "math/0"): (8, 4)}
    assert tables.put_counts(layout, "pub", "math", "m", first) == 2
    assert tables.put_counts(layout, "pub", "math", "m", {**first, (5, "math/1"): (2, 1)}) == 1
    assert tables.put_counts(layout, "pub", "math", "m", first) == 0
    group = rlbhpc.open_cube(layout.root)["pub/math"]
    assert group.step.values.tolist() == [0, 5]
    assert group.n.values.tolist() == [[8, 8], [0, 2]]
    assert group.c.values.tolist() == [[3, 4], [0, 1]]


def test_contradictions_are_refused(layout: Layout) -> None:
    fill(layout)
    with pytest.raises(UserError, match=r"math/9 at step 0: counts \(4, 0\) are stored, \(4, 1\)"):
        tables.put_counts(layout, "pub", "math", "m", {(0, "math/9"): (4, 1)})
    with pytest.raises(UserError, match="of model 'm', the new ones of 'other'"):
        tables.put_counts(layout, "pub", "math", "other", {})
    tables.add_scores(layout, "rl", "math", "base", scores([("math/1", 0, 50, 0, -3.6)]))
    with pytest.raises(UserError, match="scored a text twice"):
        compact(layout)


def test_an_arm_has_samples_or_counts_but_not_both(layout: Layout) -> None:
    journal(layout, samples([0], 2), "a")
    tables.put_counts(layout, "base", "math", "m", {(0, "math/0"): (4, 1)})
    with pytest.raises(UserError, match="has samples and imported counts"):
        compact(layout)


def test_damaged_tables_are_found(layout: Layout) -> None:
    fill(layout)
    for path in sorted(p for p in (layout.root / "tables").rglob("*") if p.is_file()):
        whole = path.read_bytes()
        for at in range(0, len(whole), max(1, len(whole) // 20)):
            data = bytearray(whole)
            data[at] ^= 8
            path.write_bytes(data)
            # A flip between two values of the JSON's layout may be harmless.
            if path.suffix == ".json" and data.split() == whole.split():
                continue
            with pytest.raises((UserError, UnicodeDecodeError), match="damaged"):
                compact(layout)
        path.write_bytes(whole)
    assert compact(layout).new


def test_settled_scores_are_one_file_without_what_is_no_longer_asked_for(layout: Layout) -> None:
    one, two = ("math/1", 0, 50, 0, -3.5), ("math/0", 2, 100, 7, -2.0)
    tables.add_scores(layout, "rl", "math", "base", scores([one]))
    tables.add_scores(layout, "rl", "math", "base", scores([one, two]))
    tables.settle_scores(layout, "rl", "math", "base", {0, 7})
    assert tables.read_scores(layout, "rl", "math", "base").num_rows == 2
    (file,) = layout.root.rglob("*.parquet")
    tables.settle_scores(layout, "rl", "math", "base", {0, 7})
    assert list(layout.root.rglob("*.parquet")) == [file]
    tables.settle_scores(layout, "rl", "math", "base", {7})
    assert tables.read_scores(layout, "rl", "math", "base")["problem"].to_pylist() == ["math/0"]
    tables.settle_scores(layout, "rl", "math", "base", set())
    assert tables.read_scores(layout, "rl", "math", "base").num_rows == 0
