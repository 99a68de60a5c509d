"""Problems by how often an arm solves them, and a problem set of those alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlbhpc.cli.exchange import select
from rlbhpc.errors import UserError
from rlbhpc.study.layout import Layout
from rlbhpc.study.schema import ProblemSet
from rlbhpc.study.study import load_problems
from rlbhpc.verify.verdict import Status
from tests.store.made import ARM, SET, journal, problem, sample

# Right samples of 10 by problem, at steps 0 and 50.
RIGHT = {0: (0, 10), 1: (1, 0), 2: (2, 5), 3: (5, 5), 4: (9, 0), 5: (10, 10)}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    rows = [
        replace(sample(number, index, step), verdict=Status(index < right))
        for number, pair in RIGHT.items()
        for step, right in zip((0, 50), pair, strict=True)
        for index in range(10)
    ]
    journal(Layout(tmp_path), rows, "a")
    return tmp_path


def chosen(run: Path, *words: str) -> list[int]:
    done = CliRunner().invoke(
        select, [str(run), ARM, SET, *words], catch_exceptions=False, standalone_mode=False
    )
    return [int(line.rpartition("/")[2]) for line in done.output.split()]


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (["0-0"], [0]),
        (["0.1-0.9"], [1, 2, 3, 4]),
        (["0.5-0.5"], [3]),
        (["0-0", "--step", "50"], [1, 4]),
    ],
)
def test_problems_by_their_rate(run: Path, words: list[str], numbers: list[int]) -> None:
    assert chosen(run, *words) == numbers


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["half"], "allowed: two shares"),
        (["0.9-0.1"], "allowed: two shares"),
        (["0-1", "--step", "7"], "no step 7; there are 0, 50"),
    ],
)
def test_a_mistake_is_told(run: Path, words: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        chosen(run, *words)
    with pytest.raises(UserError, match=f"no samples of other/{SET}; there are {ARM}/{SET}"):
        CliRunner().invoke(
            select, [str(run), "other", SET, "0-1"], catch_exceptions=False, standalone_mode=False
        )


def test_a_set_of_a_study_keeps_what_was_selected(tmp_path: Path) -> None:
    whole = ProblemSet(set="countdown", limit=6)
    every = load_problems("easy", whole)
    ids = tmp_path / "ids.txt"
    # Written where the set had another name.
    ids.write_text("".join(f"other/{p.id.partition('/')[2]}\n" for p in every[1:3]))
    assert load_problems("easy", ProblemSet(set="countdown", limit=6, ids=str(ids))) == every[1:3]
    ids.write_text(f"{problem(1)}\n")
    with pytest.raises(UserError, match=r"ids\.txt: 1 of 1 ids are no problem"):
        load_problems("easy", ProblemSet(set="countdown", limit=6, ids=str(ids)))


def test_a_judge_stands_in_for_the_rules(tmp_path: Path) -> None:
    plain = load_problems("easy", ProblemSet(set="countdown", limit=2))
    judged = load_problems("easy", ProblemSet(set="countdown", limit=2, verifier="judge"))
    assert {p.verifier for p in judged} == {"judge"}
    assert plain[0].content_hash != judged[0].content_hash, "verdicts of the two never mix"
