"""``plan --until``: looks that decide, ask for samples, and are never forgotten."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import rlbhpc
from rlbhpc.cli.main import cli
from rlbhpc.errors import DONE, NOTHING_TO_DO, UserError
from rlbhpc.report.gather import gather
from rlbhpc.stats.joint import Finding, Verdict
from rlbhpc.store import checked
from rlbhpc.store.compact import compact
from rlbhpc.store.grid import Grid
from rlbhpc.store.snapshot import COMPLETED_FLAG, RIGHT_FLAG
from rlbhpc.study.keys import Block, SampleKey, sample_seed
from rlbhpc.study.layout import Layout
from rlbhpc.study.study import Study
from rlbhpc.sweep import looks
from rlbhpc.sweep.plan import Presence
from rlbhpc.sweep.until import Wave, _ask_for_more
from tests.sweep.replay import Replay, look, make_study, swept

ARMS = "\n  rl: {model: rl}"
PROBLEMS, N = 64, 16
LOST = "lost decided"


@pytest.mark.parametrize(
    ("until", "still_open"),
    [
        (looks.Until.LOST, [(True, False), (True, False), (False, False), (False, False)]),
        (looks.Until.GAINED, [(False, True), (False, False), (False, True), (False, False)]),
        (looks.Until.EITHER, [(True, True), (False, False), (False, False), (False, False)]),
        (looks.Until.BOTH, [(True, True), (True, False), (False, True), (False, False)]),
    ],
)
def test_what_is_to_be_decided_says_what_is_open(
    until: looks.Until, still_open: list[tuple[bool, bool]]
) -> None:
    undecided = Finding(Verdict.UNDECIDED, 0.1, 0.0, 0.2, 1, 10)
    decided = replace(undecided, verdict=Verdict.YES)
    pairs = product((undecided, decided), repeat=2)
    assert [until.still_open(lost, gained) for lost, gained in pairs] == still_open


def side(arm: str, right: list[int], stop_after: int = 0) -> Presence:
    """An arm with 8 samples of each of four problems."""
    zeros = np.zeros(4, np.int64)
    block = Block(arm, "s", 2, ("a", "b", "c", "d"), 8, zeros, stop_after)
    flags = np.zeros((4, max(8, *right)), np.uint8)
    flags[:, :8] = COMPLETED_FLAG
    for problem, count in enumerate(right):
        flags[problem, :count] = COMPLETED_FLAG | RIGHT_FLAG
    return Presence(block, np.full(4, 8), flags, zeros)


def test_what_a_look_asks_for_is_asked_of_its_cells_alone(tmp_path: Path) -> None:
    undecided = Finding(Verdict.UNDECIDED, 0.1, 0.0, 0.2, 1, 10)
    more = looks.More("rl", "s", 2, 16, ("a", "elsewhere"))
    taken = looks.LookRecord(
        ("base", 2), ("rl", 2), "s", 8, 0.0, 1, "", 0.5, undecided, undecided, "draw", (more,)
    )
    looks.write(Layout(tmp_path), [taken])
    blocks = [side(arm, [0, 0, 0, 0]).block for arm in ("base", "rl")]
    others = [replace(blocks[1], set_name="t"), replace(blocks[1], step=1)]
    wishes = [n.tolist() for n in looks.requested_counts(Layout(tmp_path), [*blocks, *others])]
    assert wishes == [[8] * 4, [16, 8, 8, 8], [8] * 4, [8] * 4]


LEAST_CLEAR = ((("base", "s", 2), 16, ("a", "c")), (("rl", "s", 2), 16, ("c",)))


@pytest.mark.parametrize(
    ("budget", "stop_after", "outcome", "asked"),
    [
        # The first has 15 right answers of the base, of which 16 are enough, and 16 of the other.
        (np.inf, 0, "draw", LEAST_CLEAR),
        (24, 0, "draw", LEAST_CLEAR),
        (23, 0, "draw", (LEAST_CLEAR[0],)),
        (8, 0, "draw", ((("base", "s", 2), 16, ("a",)),)),
        (7, 0, "budget", ()),
        # Where problems stop at one right sample, one is enough.
        (np.inf, 1, "draw", ((("base", "s", 2), 16, ("c",)), (("rl", "s", 2), 16, ("c",)))),
    ],
)
def test_the_least_clear_problems_are_asked_for_within_the_budget(
    budget: float, stop_after: int, outcome: str, asked: tuple[Any, ...]
) -> None:
    base, trained = (
        side("base", [15, 16, 0, 0], stop_after),
        side("rl", [16, 20, 0, 0], stop_after),
    )
    chances = np.array([[0.5, 0.9, 0.3, 0.5], [0.9, 0.5, 0.9, 0.5]])
    is_open = np.array([True, True, True, False])
    view = SimpleNamespace(chances=chances, open_problems=lambda lost, gained: is_open)
    wave = Wave(budget, {})
    said, more = _ask_for_more((base, trained), view, (True, False), wave)  # type: ignore[arg-type]
    assert said == outcome
    assert [((m.arm, m.set_name, m.step), m.n, m.problems) for m in more] == list(asked)
    # Another comparison with the same base asks for the same samples, which cost nothing then.
    left = wave.budget_left
    for place, n, problems in asked:
        assert all(wave.ask(place, problem, 8, n) for problem in problems)
    assert wave.budget_left == left
    closed = SimpleNamespace(chances=chances, open_problems=lambda lost, gained: is_open & False)
    assert _ask_for_more((base, trained), closed, (True, False), wave) == ("nothing open", ())  # type: ignore[arg-type]


def every(i: int, period: int) -> bool:
    """Right in one sample of ``period``, evenly."""
    return i % period == period - 1


def verdict(arm: str, problem: int, index: int) -> bool:
    """Most problems are easy; of the others the trained model is slower at half, and lost half."""
    if problem >= 16:
        return every(index, 2)
    if arm == "base":
        return every(index, 5)
    return problem >= 8 and every(index, 12)


@dataclass
class Case:
    """A study of which the first n samples are there."""

    file: Path
    study: Study
    engine: Replay

    def draw(self) -> int:
        before = self.engine.drawn
        swept(self.study, self.engine)
        return self.engine.drawn - before

    def call(self, *words: str) -> Result:
        return CliRunner().invoke(cli, [*words, str(self.file)], standalone_mode=False)

    def plan(self, until: str, *more: str) -> dict[str, Any]:
        result = self.call("plan", "--json", "--until", until, *more)
        return json.loads(result.stdout)["looks"][0] | {"code": result.return_value}


@pytest.fixture
def case(tmp_path: Path) -> Case:
    study = make_study(tmp_path, PROBLEMS, N, 0, ARMS)
    right = {
        sample_seed(study.seed, SampleKey(arm, 0, problem, i)): verdict(arm, p, i)
        for arm in ("base", "rl")
        for p, problem in enumerate(study.problem_ids("math500"))
        for i in range(64 * N if p < 16 else N)
    }
    return Case(tmp_path / "replayed.yaml", study, Replay(right))


def shown(case: Case) -> list[str]:
    """Cells of the one row of looks."""
    text = case.call("plan", "--until", LOST).stdout
    row = text.partition("Looks\n")[2].splitlines()[1]
    assert ("Draw what is missing with `rlbhpc launch " in text) == ("samples" in row)
    return re.split(r" {2,}", row.rstrip())


def test_a_look_is_shown_with_what_comes_next(case: Case) -> None:
    case.draw()
    row = ["base", "rl", "math500", "1", "16", "undecided (at most 22.6 %)"]
    row.append("undecided (at most 3.9 %)")
    assert shown(case) == [*row, "more samples of 16 problems"]
    assert shown(case) == [*row, "512 samples are missing; no look was taken"]


def test_looks_draw_what_can_change_the_answer_until_it_is_decided(case: Case) -> None:
    full = case.draw()
    assert full == 2 * PROBLEMS * N
    first = case.plan(LOST)
    assert (first["number"], first["outcome"], first["k"]) == (1, "draw", N)
    assert first["lost"]["verdict"] == "undecided"
    asked = {problem for more in first["more"] for problem in more["problems"]}
    assert asked <= set(case.study.problem_ids("math500")[:16]), "nobody doubts the easy ones"
    # What a look asks for is missing for every verb, and drawn by the ordinary path.
    assert first["code"] == DONE
    assert "Nothing is missing" not in case.call("plan").output
    looked = first
    while looked["outcome"] == "draw":
        assert case.draw() > 0
        looked = case.plan(LOST)
    assert looked["lost"]["verdict"] == "yes"
    assert looked["code"] == NOTHING_TO_DO
    assert shown(case)[3:] == [
        "3", "16", "yes (12.0 %, 3.3 to 28.5)", "undecided (at most 6.2 %)", "decided"
    ]  # fmt: skip
    assert case.engine.drawn < 1.6 * full
    assert [taken.number for taken in looks.read(case.study.layout)] == list(
        range(1, looked["number"] + 1)
    )
    # The report tells what the looks decided, and no second decision beside it.
    compact(case.study.layout)
    root = case.study.layout.root
    CliRunner().invoke(cli, ["report", str(root)], catch_exceptions=False)
    last = looks.read(case.study.layout)[-1]
    page = next((root / "report").glob("*.html")).read_text()
    assert f"those of look {last.number} of" in page
    assert "lost, gains open" in page
    for arm in ("base", "rl"):
        grid = Grid.load(case.study.layout.grid(arm, "math500"))
        assert grid is not None
        asked_of_all = grid.provenance["looks"]
        assert asked_of_all["n"] == N
        assert {more["arm"] for more in asked_of_all["more"]} == {arm}
    # Who has more samples was chosen by results: the cube counts those that all have.
    group = rlbhpc.open_cube(root)["base/math500"].to_dataset()
    assert group.sizes["sample"] > N
    assert (group.rlb.counts()["n"] == N).all()
    assert group.rlb.pass_at_k(2 * N).isnull().all()
    with pytest.raises(UserError, match=f"behind the first {N} exist where earlier ones say so"):
        group.isel(sample=slice(N, None)).rlb.counts()
    assert f"{100 * last.lost.estimate:.1f} [{100 * last.lost.low:.1f}" in page


def test_a_second_look_at_the_same_data_costs_nothing_and_none_is_forgotten(case: Case) -> None:
    case.draw()
    first = case.plan(LOST, "--budget", str(2 * PROBLEMS * N))
    assert first["outcome"] == "budget"
    # A larger budget, the same data: the same look.
    again = case.plan(LOST, "--budget", str(2 * PROBLEMS * N + 100))
    assert (again["number"], again["lost"]) == (1, first["lost"])
    assert again["outcome"] == "draw"
    assert sum(arm.missing for arm in look(case.study)) <= 100
    # While samples are missing no look is taken, but the last one is shown.
    waiting = case.plan(LOST)
    assert waiting["outcome"] == "samples are missing"
    assert waiting["last"]["number"] == 1
    assert len(looks.read(case.study.layout)) == 1
    case.draw()
    assert case.plan(LOST)["number"] == 2


def test_a_look_that_holds_a_forecast_is_still_read(case: Case) -> None:
    case.draw()
    case.plan(LOST)
    layout = case.study.layout
    taken = looks.read(layout)
    rows = [looks.as_row(record) for record in taken]
    for row in rows:
        row["lost"]["more"] = row["gained"]["more"] = 3.2  # as versions before 0.1.0 wrote
    checked.write(layout.looks, {"looks": rows})
    assert [repr(record) for record in looks.read(layout)] == [repr(record) for record in taken]


def test_a_look_is_kept_before_anybody_sees_it(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.draw()
    # Killed right after the look was written: the next call finds it.
    write = checked.write

    def dies(path: Path, values: Mapping[str, Any]) -> None:
        write(path, values)
        if path == case.study.layout.looks:
            raise InterruptedError

    monkeypatch.setattr(checked, "write", dies)
    result = case.call("plan", "--until", LOST)
    assert isinstance(result.exception, InterruptedError)
    assert not result.stdout
    monkeypatch.undo()
    assert [taken.number for taken in looks.read(case.study.layout)] == [1]
    assert case.plan(LOST)["outcome"] == "samples are missing"


def test_damaged_looks_are_refused(case: Case) -> None:
    case.draw()
    case.plan(LOST)
    path = case.study.layout.looks
    path.write_text(path.read_text().replace('"number": 1', '"number": 0'))
    with pytest.raises(UserError, match="how much of the error is used up"):
        case.draw()


def test_a_condition_or_budget_that_makes_no_sense_is_refused(case: Case) -> None:
    assert "'lost or gained decided'" in str(case.call("plan", "--until", "soon").exception)
    assert "goes with --until" in str(case.call("plan", "--budget", "9").exception)


def test_looks_of_one_grader_say_nothing_about_the_verdicts_of_another(
    case: Case, tmp_path: Path
) -> None:
    case.draw()
    case.plan(LOST)
    other = tmp_path / "other"
    words = ["verify", str(case.study.layout.root), "--grader", "math-paper"]
    CliRunner().invoke(cli, [*words, "--into", str(other)], catch_exceptions=False)
    assert [pair.look for pair in gather(case.study.layout.root).last_comparisons] != [None]
    assert [pair.look for pair in gather(other).last_comparisons] == [None]
    refused = case.call("plan", "--until", LOST, "--set", f"output={other}").exception
    assert "judged by another grader" in str(refused)
