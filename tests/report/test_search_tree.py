"""The tree of responses: where they part, how probable each branch is, and the figure of a run."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from rlbhpc.engines.completion import Finish
from rlbhpc.store import tables
from rlbhpc.store.grid import Grid
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.sample_rows import Sample
from rlbhpc.study.keys import Cell, SampleKey
from rlbhpc.study.study import Study
from rlbhpc.verify.verdict import Status
from tests.report.made import MODELS, SET, make_study
from tests.report.scripts import FOLDER, script

TREE = script("search_tree")
# Tokens of the responses of each arm to each problem, and whether they are right.
RESPONSES = {
    "base": [[((1, 2, 3), True), ((1, 2, 4), True), ((5,), False)],
             [((7, 7), False), ((7, 8), False), ((7,), False)]],
    "rl": [[((1, 2, 4), False), ((1, 2, 4), False), ((1, 2), False)],
           [((7, 9), True), ((7, 9), True), ((7, 8), False)]],
}  # fmt: skip


def put_tokens(study: Study, arm: str) -> None:
    step = study.arms[arm].steps[-1]
    cells, rows = {}, []
    for i, responses in enumerate(RESPONSES[arm]):
        problem = f"{SET}/{i}"
        fingerprint = study.request_fingerprint(arm, step, problem)
        cells[Cell(arm, step, problem, fingerprint)] = len(responses)
        for j, (tokens, is_right) in enumerate(responses):
            status = Status.RIGHT if is_right else Status.WRONG
            logprobs = np.full(len(tokens), -0.5, np.float16)
            rows.append(
                Sample(
                    SampleKey(arm, step, problem, j), fingerprint, 1, status, Finish.EOS,
                    len(tokens), float(logprobs.sum()), 1.0,
                    token_ids=np.array(tokens, np.int32), logprobs=logprobs,
                    entropies=np.ones(len(tokens), np.float16),
                )
            )  # fmt: skip
    grid = Grid(MODELS[arm], provenance={"engine": "hf", "prompt": "p0"})
    grid.grown(cells).save(study.layout.grid(arm, SET))
    with JournalWriter(study.layout.journals(arm, SET), "made") as writer:
        for row in rows:
            writer.append(row)


@pytest.fixture
def tree_run(tmp_path: Path) -> Study:
    study = make_study(tmp_path / "run", 2, 3)
    for arm in RESPONSES:
        put_tokens(study, arm)
    return study


def response(arm: str, *tokens: int, is_right: bool = False) -> object:
    return TREE.Response(arm, 0, tokens, (-1.0,) * len(tokens), is_right, {})


def test_responses_part_where_their_tokens_do() -> None:
    root = TREE.grow([response("a", 1, 2, 3), response("b", 1, 2, 4), response("b", 1, 2)])
    assert (root.start, root.stop, root.count("a"), root.count("b")) == (0, 2, 1, 2)
    assert [(child.start, child.stop) for child in root.children] == [(2, 3), (2, 3)]
    assert root.log_probability("a") == -2
    assert root.children[0].log_probability("a") == -3
    assert np.isnan(root.children[0].log_probability("b")), "b never took it"
    rows = [child.row for child in root.children]
    assert rows == sorted(set(rows))


def test_the_tree_holds_every_response_once() -> None:
    rng = np.random.default_rng(0)
    made = [response("a", *rng.integers(0, 3, rng.integers(1, 9)).tolist()) for _ in range(60)]
    root = TREE.grow(made)
    ends = 0
    for branch in root.walk():
        inside = sum(len(child.responses) for child in branch.children)
        here = sum(len(each.tokens) == branch.stop for each in branch.responses)
        assert inside + here == len(branch.responses)
        assert all(child.start == branch.stop < child.stop for child in branch.children)
        ends += here
    assert ends == 60


def test_a_run_is_drawn_as_pdf_with_probabilities_under_both_models(
    tree_run: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, step = tree_run.layout, tree_run.arms["rl"].steps[-1]
    score = {"problem": f"{SET}/0", "sample": 0, "step": 0, "scorer_step": step, "n_tokens": 3,
             "logprob_sum": -9.0, "entropy_sum": 1.0, "request": 1}  # fmt: skip
    rows = pa.Table.from_pylist([score], tables.SCORE_ROWS)
    tables.add_scores(layout, "base", SET, "tuned", rows)
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["search_tree", str(layout.root), "-o", str(out)])
    runpy.run_path(str(FOLDER / "search_tree.py"), run_name="__main__")
    assert {path.suffix for path in out.iterdir()} == {".pdf", ".pgf", ".png", ".csv", ".json"}
    frame = pd.read_csv(out / f"search_tree-{SET}.csv")
    assert set(frame["problem"]) == {f"{SET}/0", f"{SET}/1"}
    lost = frame[frame["problem"] == f"{SET}/0"]
    assert lost["right_ends"].sum() == 2 and lost["wrong_ends"].sum() == 4
    shared = lost[(lost["base_responses"] == 2) & (lost["trained_responses"] == 3)]
    assert shared["base_log_probability"].tolist() == [-1.0]
    assert shared["trained_log_probability"].tolist() == [-1.0]
    only_base = lost[(lost["trained_responses"] == 0) & (lost["stop"] == 3)]
    assert only_base["trained_log_score"].tolist() == [-9.0]
    assert only_base["trained_log_probability"].isna().all()
