"""Small parts of a report at their limits: tables, notes, what a study brings, what is read."""

from __future__ import annotations

import dataclasses
import pkgutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from xml.etree.ElementTree import tostring

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from rlbhpc import report as room
from rlbhpc.errors import UserError
from rlbhpc.report.aspect import Report, affordable_problems
from rlbhpc.report.aspects import aspects_of
from rlbhpc.report.aspects.perplexity import scored
from rlbhpc.report.aspects.robustness import lay_beside
from rlbhpc.report.aspects.samples import own_frame
from rlbhpc.report.gather import gather, read_pair
from rlbhpc.report.markup import el, table
from rlbhpc.report.measured import positions_of, powers_of_two, read_all_steps, take_rows
from rlbhpc.report.terminal import Printer
from rlbhpc.stats import Counts
from rlbhpc.store import tables
from rlbhpc.store.reader import open_cube
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Status
from tests.report.golden import agree
from tests.report.made import SET, make_study, put_counts, put_samples
from tests.report.scripts import script

# A panel is filled mark by mark.
GROW = {"<class 'rlbhpc.report.chart.Panel'>"}


def test_what_was_worked_out_cannot_be_changed() -> None:
    names = [m.name for m in pkgutil.walk_packages(room.__path__, "rlbhpc.report.")]
    parts = {
        kind
        for module in map(import_module, names)
        for kind in vars(module).values()
        if dataclasses.is_dataclass(kind) and getattr(kind, "__module__", "") == module.__name__
    }
    changing = {str(kind) for kind in parts if not vars(kind)["__dataclass_params__"].frozen}
    assert parts and changing == GROW


def test_every_kind_of_cell() -> None:
    rows = [
        ["a", 1, 0.123456, True, None, "3.5 [1.0, 6.0] ?", el("b", "x", " y"), "+1.0"],
        ["–", 12345, float("nan"), False, "", "–", el("b", "x", el("i", "y"), "z", "w"), "n/a 1"],
    ]
    heads = ["text", "int", "float", "bool", "none", "interval", "node", "mixed"]
    short = table("Two", heads[:2], [["1", 2]], last=True)
    drawn = [tostring(t, "unicode") for t in (table("One", heads, rows, wide=(6,)), short)]
    agree("cells", "".join(drawn).replace("><", ">\n<").split("\n"))


def test_a_table_fits_where_its_columns_do() -> None:
    columns = ["a", "bb", "c", "d"], [["ccc", "d", "e", "f"]]
    assert [Printer(Console(width=width)).fits(*columns) for width in (12, 13)] == [False, True]


def brought(folder: Path, text: str, kind: str, name: str = "") -> Report:
    (folder / "own.py").write_text(text)
    study = make_study(folder / "run", 3, 4, analysis={kind: [f"{folder}/own.py{name}"]})
    put_counts(study, "base", [0, 2, 4], 4)
    return gather(folder / "run")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("statistic = 3", "allowed: a file with a function statistic(n, c)"),
        ("def statistic(n, c): return 1 // 0", "it raised ZeroDivisionError: "),
        ("def statistic(n, c): return 'x'", "it raised ValueError: could not convert"),
        ("def statistic(n, c): return c / n + 0.01", "allowed: a value from 0 to 1 for each of 3"),
        ("def statistic(n, c): return c / n - 0.01", "allowed: a value from 0 to 1 for each of 3"),
        ("def statistic(n, c): return c[:2] / 4", "allowed: a value from 0 to 1 for each of 3"),
    ],
)
def test_a_statistic_that_is_none_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        own_frame(brought(tmp_path, text, "statistics"))
    assert "analysis.statistics: " in str(caught.value) and message in str(caught.value)


def test_a_statistic_goes_from_0_to_1(tmp_path: Path) -> None:
    frame = own_frame(brought(tmp_path, "def statistic(n, c): return c / n", "statistics"))
    assert frame["value"].tolist() == [0.5], "of 0, 2 and 4 right samples of 4"


def test_an_aspect_that_is_none_is_refused(tmp_path: Path) -> None:
    report = brought(tmp_path, "ASPECT = 3", "aspects")
    with pytest.raises(UserError, match=r"own.py: found 3; allowed: a file with an ASPECT"):
        aspects_of(report)


def notes_of(folder: Path) -> list[str]:
    return [*gather(folder).notes, ""]


def test_notes_say_what_cannot_be_compared(tmp_path: Path) -> None:
    more = make_study(tmp_path / "more", 6, 4)
    put_samples(more, "base", np.eye(6, 8, dtype=bool), verdicts={(0, 1): Status.ERROR})
    put_samples(more, "rl", np.eye(6, 3, dtype=bool), 100, missing=5)
    alike = make_study(tmp_path / "alike", 6, 4)
    for arm, step, other in (("base", 0, "b"), ("rl", 100, "c")):
        files = {"a.jsonl": {"sha256": "5f"}, f"{other}.jsonl": {"sha256": other}}
        right = np.eye(6, 4 + step // 100, dtype=bool)
        put_samples(alike, arm, right, step, provenance={"imported": files}, missing=step // 100)
    unequal = make_study(tmp_path / "unequal", 6, 4)
    put_counts(unequal, "base", [1, 2, 3, 4, 5, 6], 9)
    put_samples(unequal, "rl", np.eye(6, 4, dtype=bool), 100)
    cases = ("more", "alike", "unequal")
    agree("notes", [note for case in cases for note in (case, *notes_of(tmp_path / case))])


def test_only_answers_that_are_known_vote(tmp_path: Path) -> None:
    right = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], bool)
    none = {(i, j): "" for i in range(2) for j in range(4)}
    # A wrong sample may have none; where a right one has none, nobody knows what it votes for.
    cases = {"all": {}, "wrong": {(1, 3): ""}, "right": {(1, 0): ""}, "none": none}
    for name, answers in cases.items():
        study = make_study(tmp_path / name, 2, 4)
        put_samples(study, "base", right, answers=answers)
        put_samples(study, "rl", right & False, 100, answers=none)
        found = {
            vote.measured.arm: vote.majority.estimate[-1]
            for vote in script("majority").votes(gather(tmp_path / name))
        }
        assert found == ({"base": 0.5} if name in ("all", "wrong") else {})


def test_a_pair_has_two_names() -> None:
    assert read_pair("base:rl") == ("base", "rl")
    for text in ("base", "base:", ":rl", ""):
        with pytest.raises(UserError, match="write two arms, base first, as BASE:TRAINED"):
            read_pair(text)


def test_another_study_is_no_second_grader(report: Report, tmp_path: Path) -> None:
    study = make_study(tmp_path, 2, 4)
    put_counts(study, "base", [1, 2], 4)
    layout = Layout(tmp_path)
    layout.regraded.write_text("{}")
    with pytest.raises(UserError, match="is of another study; give one that was made from"):
        lay_beside(report, tmp_path)


def test_few_tokens_are_read_of_problems_spread_evenly(report: Report) -> None:
    arm = report.measured_arms[0]
    cost = np.full(len(arm.sampled_rows), 10.0)
    # A problem has 32 judged samples of 10 tokens, one of them 31.
    sizes = [len(affordable_problems(arm, cost, tokens)) for tokens in (1, 639, 641, 10**9)]
    assert sizes == [1, 1, 2, 40]
    ends = affordable_problems(arm, cost, 641)
    assert ends == [arm.problems[0], arm.problems[-1]]
    assert affordable_problems(arm, np.full(40, np.nan), 5) == [
        f"math/{i}" for i in (0, 10, 20, 29, 39)
    ]


def test_texts_without_a_stored_verdict_are_no_right_answers(tmp_path: Path) -> None:
    study = make_study(tmp_path, 3, 2)
    put_samples(study, "base", np.array([[1, 0], [1, 1], [0, 0]], bool))
    rows = [(f"{SET}/{p}", s, 0, 0, 10, -2.0 - s, 1.0, 0) for p in range(3) for s in range(3)]
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    table = pa.table(columns, names=tables.SCORE_ROWS.names)
    tables.add_scores(study.layout, "base", SET, "base", table)
    (scores,) = scored(gather(tmp_path))
    assert scores.right.tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 0]]


def test_rows_are_found_by_name_and_missing_ones_are_empty(report: Report) -> None:
    assert positions_of("abc", ["c", "a"]).tolist() == [1, -1, 0]
    values = np.array([[5, 6], [7, 8]], np.int8)
    assert take_rows(values, np.array([1, -1])).tolist() == [[7, 8], [-1, -1]]
    assert take_rows(values, np.array([1, 0])).tolist() == [[7, 8], [5, 6]]
    assert [powers_of_two(reach) for reach in (0, 1, 4, 5)] == [[], [1], [1, 2, 4], [1, 2, 4]]
    group = open_cube(report.folder)["base/math"].to_dataset()
    turned = read_all_steps(group.transpose("sample", "step", ...), "verdict")
    assert (turned == read_all_steps(group, "verdict")).all() and turned.shape == (1, 40, 32)


def test_a_thing_is_found_once(report: Report) -> None:
    again = replace(report)
    assert not again.memo and again.compared_arms == report.compared_arms
    assert again.compared_arms is again.compared_arms


@pytest.mark.parametrize(("problems", "n"), [(2, 2), (2, 1), (1, 2)])
def test_two_samples_of_two_problems_choose_a_checkpoint(
    tmp_path: Path, problems: int, n: int
) -> None:
    """Nothing is made of log-probabilities that are not there, nor of a set of no study."""
    study = make_study(tmp_path, problems, n, steps=(50, 100))
    for arm, step in (("base", 0), ("rl", 50), ("rl", 100)):
        right = np.ones((problems, n), bool)
        put_samples(study, arm, right, step, logprob_sum=lambda problem, sample: np.nan)
    tables.put_counts(study.layout, "base", "other", "base", {(0, "other/1"): (4, 1)})
    report = gather(tmp_path)
    assert bool(script("best_checkpoint").chosen_checkpoints(report)) == (problems == n == 2)
    assert script("sharpening").sharpenings(report) == []
    base = next(arm for arm in report.measured_arms if arm.group == f"base/{SET}")
    plain = report.study_arms["base"]
    arms = {"base": plain, "twin": replace(plain, prompt="boxed")}
    two = replace(report, measured_arms=[base, replace(base, arm="twin")], study_arms=arms)
    assert bool(script("best_prompt").prompts(two)) == (problems == 2)


@pytest.mark.parametrize(
    ("problems", "n", "parts"),
    [(1, 4, 0), (2, 3, 0), (2, 4, 1), (30, 29, 1), (30, 30, 2)],
)
def test_few_samples_predict_nothing_or_unchecked(
    report: Report, problems: int, n: int, parts: int
) -> None:
    counts = Counts.of(np.full(problems, n), 1 + np.arange(problems) % 3)
    predicted = script("extrapolation").prediction(counts, report.settings) or (None, None)
    assert sum(part is not None for part in predicted) == parts
