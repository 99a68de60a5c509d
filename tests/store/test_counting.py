"""What counts of a problem's samples: up to its stop, those that all have, the even ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import rlbhpc
import rlbhpc.xarray
from rlbhpc.errors import LeftOutWarning, UserError
from rlbhpc.stats.pass_at_k import pass_at_k
from rlbhpc.store import accessor, samples
from rlbhpc.store.compact import compact
from rlbhpc.store.sources import Group
from rlbhpc.study.layout import Layout
from tests.store import made
from tests.store.made import ARM, SET
from tests.store.test_scan import damage
from tests.store.test_strata import dataset


@pytest.mark.parametrize("stop_after", [0, 1, 3])
def test_samples_count_up_to_the_last_right_one_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    monkeypatch.setattr(accessor, "_CELLS_AT_ONCE", 9 * 7)  # read seven problems at a time
    codes = [-1, 0, 1, 1, 1, 2, 3, 4, 5]
    verdicts = np.random.default_rng(0).choice(codes, (60, 9))
    cube = dataset(verdicts, stop_after=stop_after)
    counts = cube.rlb.counts()
    taken = []
    for row in verdicts.tolist():
        taken.append([])
        for verdict in row:
            if stop_after and (verdict == -1 or taken[-1].count(1) == stop_after):
                break
            taken[-1].append(verdict)
    assert counts.n.values.tolist() == [[sum(0 <= v <= 3 for v in row)] for row in taken]
    assert counts.c.values.tolist() == [[row.count(1)] for row in taken]
    one = cube.isel(sample=0).rlb.counts()
    most = [int(c.coords.get("n_max", 0)) for c in (counts, one)]
    assert most == ([9, 1] if stop_after else [0, 0])
    rule = (stop_after, 9) if stop_after else ()
    found = cube.rlb.pass_at_k([1, 2], ragged=True).values[:, 0]
    expected = pass_at_k(counts.n.values, counts.c.values, [1, 2], *rule)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("sizes", "chunks", "tiles"),
    [
        (
            {"problem": 7, "sample": 6, "step": 2},
            {"problem": 3},
            [((0, 6), (0, 1)), ((0, 6), (1, 2)), ((6, 12), (0, 1)), ((6, 12), (1, 2))],
        ),
        ({"problem": 4, "sample": 100}, {"problem": 3}, [((0, 3),), ((3, 6),)]),
        ({"problem": 2, "sample": 50}, {}, [((0, 1),), ((1, 2),)]),
        ({"problem": 49}, {"problem": 3}, [((0, 48),), ((48, 96),)]),
        ({"sample": 9}, {}, [()]),
    ],
)
def test_verdicts_are_read_in_tiles_of_whole_chunks(
    monkeypatch: pytest.MonkeyPatch,
    sizes: dict[str, int],
    chunks: dict[str, int],
    tiles: list[tuple[tuple[int, int], ...]],
) -> None:
    monkeypatch.setattr(accessor, "_CELLS_AT_ONCE", 50)
    verdicts = np.zeros([*sizes.values()], np.int8)
    variable = xr.Variable([*sizes], verdicts, encoding={"preferred_chunks": chunks})
    places = [place.values() for place in accessor._tiles(variable)]
    assert [tuple((part.start, part.stop) for part in place) for place in places] == tiles


@pytest.mark.parametrize(
    ("verdicts", "paper", "refused"),
    [
        ([1, 1, -1, -1], [1, 0, -1, -1], True),
        ([1, 1, -1, -1], [1, 1, -1, -1], False),
        ([0, 1, 0, 1], [0, 1, 0, 0], False),  # all that it may have are there
        ([0, 1, 0, -1], [0, 0, 0, -1], False),  # more of it will come
    ],
)
def test_a_grader_that_ended_no_problem_has_no_rule_for_it(
    verdicts: list[int], paper: list[int], refused: bool
) -> None:
    cube = dataset(np.array([verdicts, [0, 0, 0, 0]]), stop_after=2)
    other = np.array([paper, [0, 0, 0, 0]], np.int8)
    cube["paper"] = (cube.verdict.dims, other[..., None])
    if not refused:
        assert cube.rlb.counts("paper").c.values.tolist() == [[paper.count(1)], [0]]
        return
    with pytest.raises(UserError) as error:
        cube.rlb.counts("paper")
    assert str(error.value) == (
        "paper: 1 problems ended at 2 samples that are right by 'verdict' and have fewer by "
        "'paper': that is no rule for these; take the first 2 of each, `isel(sample=slice(2))`"
    )


def test_both_verdicts_are_counted_and_none_where_a_sample_has_none() -> None:
    cube = dataset(np.array([[1, 0, 2, -1], [2, 2, 1, 0]]))
    lenient = np.array([[1, 0, 1, -1], [1, 2, 1, 0]], np.int8)
    cube["lenient"] = (cube.verdict.dims, lenient[..., None])
    counts = cube.rlb.counts("lenient")
    assert counts.n.values.tolist() == [[3], [4]]
    assert counts.c.values.tolist() == [[2], [2]]
    cube["lenient"][1, 0] = -1
    with pytest.raises(UserError, match="lenient: 1 samples were not judged"):
        cube.rlb.counts("lenient")


@pytest.mark.parametrize(
    ("chosen", "n"),
    [(slice(4), 4), (slice(5), 4), ([1, 3], 2), (3, 1), ([1, 4], None), (4, None)],
)
def test_what_looks_asked_for_counts_only_where_all_have_it(chosen: object, n: int | None) -> None:
    cube = dataset(np.ones((2, 6)), {"n": 4, "more": []}).isel(sample=chosen)
    if n is not None:
        assert cube.rlb.counts().n.values.tolist() == [[n], [n]]
        return
    with pytest.raises(UserError, match="a/s: samples behind the first 4 exist where earlier ones"):
        cube.rlb.counts()


def test_a_tree_without_samples_has_no_curves() -> None:
    with pytest.raises(UserError, match="the tree has no group with samples or counts"):
        xr.DataTree().rlb.curves(1)


def test_rows_graders_and_texts_of_a_choice(tmp_path: Path) -> None:
    layout, group = Layout(tmp_path), Group(ARM, SET)
    made.journal(layout, made.samples(range(3), 4, (0, 50)), "a")
    columns = ["problem", "sample", "step"]
    rows = samples.read_rows(
        layout, group, columns, problems=[made.problem(1)], steps={50}, below=2
    )
    assert rows.to_pylist() == [
        {"step": 50, "problem": "math/1", "sample": 0},
        {"step": 50, "problem": "math/1", "sample": 1},
    ]
    wanted = {made.problem(0): [3], made.problem(2): None}
    matches = samples.find_samples(layout, group, wanted, {0})
    assert [match.sample.key[2:] for match in matches] == [
        ("math/0", 3), *(("math/2", i) for i in range(4))
    ]  # fmt: skip
    assert {match.origin for match in matches} == {f"journals/{ARM}/{SET}/a.journal"}
    answers = samples.read_current_rows(layout, group, 50, {made.problem(1)}, ["text"])
    assert answers["text"].to_pylist() == [made.sample(1, i, 50).text for i in range(4)]
    assert not samples.count_graders(layout, group)
    cube = rlbhpc.open_cube(tmp_path)[f"{ARM}/{SET}"].to_dataset()
    with pytest.raises(UserError, match="the responses stand beside the cube, in the folder"):
        cube.drop_encoding().rlb.texts(made.problem(0))
    damage(layout.journals(ARM, SET) / "a.journal", 0)
    with pytest.warns(LeftOutWarning):
        judged = samples.read_current_rows(layout, group, 0, {made.problem(0)}, ["verdict"])
    assert judged["verdict"].to_pylist() == [made.sample(0, i).verdict for i in range(1, 4)]


def test_all_samples_are_one_table(tmp_path: Path) -> None:
    made.journal(Layout(tmp_path / "run"), made.samples(range(3), 4, (0, 50)), "a")
    tree = rlbhpc.open_cube(tmp_path / "run")
    table = tree.rlb.samples()
    assert table.column_names[:7] == [
        "run", "arm", "problem_set", "step", "problem", "sample", "verdict",
    ]  # fmt: skip
    assert len(table) == 3 * 4 * 2
    verdict = tree[f"base/{made.SET}"]["verdict"]
    right = [word == "right" for word in table["verdict"].to_pylist()]
    assert sum(right) == int((verdict == 1).sum())
    row = table.slice(5, 1).to_pylist()[0]
    assert (row["run"], row["arm"], row["problem_set"]) == ("run", "base", made.SET)
    both = rlbhpc.open_cube([tmp_path / "run", _copy(tmp_path)]).rlb.samples(texts=True)
    assert set(both["run"].to_pylist()) == {"run", "copy"}
    assert both["text"].to_pylist()[0] == next(iter(made.samples([0], 1))).text
    compact(Layout(tmp_path / "run"))
    cube_alone = rlbhpc.open_cube(tmp_path / "run" / "cube.zarr")
    with pytest.raises(UserError, match="beside the cube"):
        cube_alone.rlb.samples()


def _copy(folder: Path) -> Path:
    return Path(shutil.copytree(folder / "run", folder / "copy"))
