"""What `rlbhpc score` says of a condition that is scored in part."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from rlbhpc.cli.scoring import score_row
from rlbhpc.store import tables
from rlbhpc.sweep.score import read_score_states
from tests.responses import sums_study, write_responses

STUDY = """
name: scored
models: {base: {path: model}}
problem_sets: {gsm8k: {path: sums.jsonl, subset: test}}
sampling: {prompt: qwen-boxed, temperature: 1, max_tokens: 64, n: 3}
arms: {base: {model: base}}
scores: {own: {model: base, responses: base, per_problem: 2}}
engine: {name: hf}
"""


def test_texts_that_are_not_drawn_yet_are_missing_like_those_without_a_score(
    tmp_path: Path,
) -> None:
    study = sums_study(tmp_path, STUDY, 2)
    first, second = study.problems("gsm8k")
    write_responses(study, "base", {first.id: ["4", "5", "6"], second.id: ["7"]})
    (before,) = read_score_states(study, ["own"])
    assert before.missing == [(first.id, 0), (first.id, 1), (second.id, 0)]
    scored = (first.id, 1, 0, 0, 10, -2.0, 1.0, before.requested.requests[first.id, 1])
    columns = [pa.array([value]) for value in scored]
    table = pa.table(columns, names=tables.SCORE_ROWS.names)
    tables.add_scores(study.layout, *before.condition.table, table)
    assert [score_row(study, after) for after in read_score_states(study, ["own"])] == [
        {
            "score": "own", "texts_of": "base", "problem_set": "gsm8k", "step": 0,
            "scorer": "base", "scorer_step": 0, "scored": 1, "missing": 3,
            "median_perplexity": 1.2214,
        }
    ]  # fmt: skip
