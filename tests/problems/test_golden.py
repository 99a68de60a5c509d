"""What comes out of the same records or seed, by digest: another one orphans stored samples."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rlbhpc.problems.countdown import Rules, work_traces
from rlbhpc.problems.problemset import digest
from rlbhpc.problems.registry import load_set
from tests.problems import shapes

RECORDS = {
    "gsm8k": "903278d1f0fdef89",
    "math": "f2e11034c8f9999d",
    "math500": "71130924ce2afb71",
    "minerva": "f868f58bed4a9c69",
    "olympiadbench": "57ac13e1599891a6",
    "aime24": "11c1466bd05cbab1",
    "aime25": "a70a4281978ebf67",
    "aime26": "1ea8ab2d69963904",
    "hmmt25": "c77222c446e700ce",
    "hmmt26": "69af514a03977cd3",
    "beyondaime": "d231a058b3fb55f0",
    "livemathbench": "1232d82c54bb0f40",
    "amc23": "d2cef81d3e038d92",
    "dapo-math": "8c597dd826a11818",
    "mmlu-pro": "a0cff835ddfdcc8d",
    "gpqa": "38291dc742f17547",
    "theoremqa": "7dcbbad89507808b",
    "webinstruct-verified": "205836aa8d57963d",
    "rlpr-train": "890686f7dba584d0",
    "omni-math-rule": "3478c4b77e240cfd",
    "humaneval+": "f6eb46945cdca1ca",
    "mbpp+": "a4a77c109b5de327",
    "livecodebench": "2326957d8126b70c",
    "geometry3k": "01c83ee33c19f528",
    "mathvista": "5e99ee530c1c1915",
    "mathvision": "93e24bc67d168d41",
}
GENERATED = {
    ("compose", None): "0b6cfebf77c85ca7",
    ("compose", "train"): "e8613c39b4c67c53",
    ("countdown", None): "94b9ca0687f9094d",
    ("countdown", "train"): "d367495bccbd9abc",
    ("program-tasks", None): "97f44eb5d1700d95",
    ("program-tasks", "train"): "1d662291dc9776a3",
    ("program-tasks", "identity"): "3c067242bcc21cc2",
}


@pytest.mark.parametrize("name", shapes.SHAPES)
def test_records_become_the_same_problems(name: str, tmp_path: Path) -> None:
    path = shapes.parquet(shapes.SHAPES[name][0], tmp_path)
    subset = {"livecodebench": "all", "math": "test"}.get(name)
    assert digest(load_set(name, path, subset)) == RECORDS[name]


@pytest.mark.parametrize(("name", "subset"), GENERATED)
def test_a_seed_gives_the_same_problems(name: str, subset: str | None) -> None:
    assert digest(load_set(name, None, subset, 12, 3)) == GENERATED[name, subset]


def test_a_seed_gives_the_same_traces() -> None:
    rules = Rules(counts=(3, 4), operations="+-*/")
    worked = list(work_traces("c", rules, 8, 0.5, 3))
    assert [(one.problem.fields["question"], one.response) for one in worked[:2]] == [
        ("1 1 4 11 -> 46", "1/1=1\n11*4=44\n44*1=44"),
        ("5 6 9 -> 59", "9*6=54\n54+5=59"),
    ]
    text = repr([(one.problem.id, one.response) for one in worked])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "79eabe57a25cab41"
