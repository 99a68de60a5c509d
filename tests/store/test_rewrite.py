"""Samples of a run with other verdicts, in the folder of another run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rlbhpc.errors import LeftOutWarning
from rlbhpc.store.parts import TokenPolicy
from rlbhpc.store.samples import rewrite, tables_by_cell
from rlbhpc.store.seal import seal
from rlbhpc.store.sources import Group
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Reading, Status, Verdict
from tests.store import kill_tasks, reading
from tests.store.made import ARM, SET, journal
from tests.store.test_scan import damage_part, grid

GROUP = Group(ARM, SET)


def judge(table: pa.Table) -> Sequence[Verdict | None]:
    """Of four samples: one stays, one is said again as it is, two are wrong now."""
    again = table.slice(1, 1).to_pylist()[0]
    wrong = Verdict(Status.WRONG, "zero", "0", "new rule", "new grader")
    same = Verdict(Status(again["verdict"]), "", again["answer"], again["rule"], again["grader"])
    return [None, same, wrong, wrong]


def expected(row: dict[str, Any], policy: TokenPolicy) -> dict[str, Any]:
    if row["sample"] > 1:
        text = repr((row["digest"], 0, 0, 0, "0", "new rule", "new grader")).encode()
        digest = int(hashlib.blake2b(text, digest_size=8).hexdigest(), 16) >> 1
        said = {
            "verdict": 0,
            "strict": 0,
            "lenient": 0,
            "answer": "0",
            "rule": "new rule",
            "grader": "new grader",
        }
        row = row | said | {"digest": digest}
    # The right ones of a problem that is rarely solved by the new verdicts.
    if policy == "none" or (policy == "sampled" and row["sample"] > 1):
        row |= dict.fromkeys(("token_ids", "logprobs", "entropies"))
    return row


@pytest.mark.parametrize("policy", ["none", "sampled", "all"])
def test_what_is_judged_anew_is_another_sample(tmp_path: Path, policy: TokenPolicy) -> None:
    layout, into = Layout(tmp_path / "run"), Layout(tmp_path / "again")
    drawn = [kill_tasks.sample(0, problem, i) for problem in (0, 1) for i in range(4)]
    right = dict.fromkeys(("verdict", "strict", "lenient"), int(Status.RIGHT))
    journal(layout, [replace(sample, **right) for sample in drawn], "a")
    assert rewrite(layout, into, GROUP, judge, policy) == 8
    parts = sorted(into.parts(ARM, SET).iterdir())
    before = reading.rows(layout, ARM, SET).table.to_pylist()
    after = reading.rows(into, ARM, SET).table.to_pylist()
    assert repr(after) == repr([expected(row, policy) for row in before])
    assert rewrite(layout, into, GROUP, judge, policy) == 8
    assert sorted(into.parts(ARM, SET).iterdir()) == parts
    texts = [table["text"].to_pylist() for table in tables_by_cell(into, GROUP, ["text"])]
    assert texts == [[sample.text for sample in drawn[i : i + 4]] for i in (0, 4)]


@pytest.mark.parametrize(("decides", "verdict"), [("strict", 2), ("lenient", 1)])
def test_both_verdicts_are_written_and_one_of_them_decides(
    tmp_path: Path, decides: Reading, verdict: int
) -> None:
    layout, into = Layout(tmp_path / "run"), Layout(tmp_path / "again")
    journal(layout, [kill_tasks.sample(0, 0, i) for i in range(4)], "a")
    unstated = Verdict(Status.RIGHT, "8", "8", "number", "grader", stated=False)
    rewrite(layout, into, GROUP, lambda table: [unstated] * len(table), "all", decides)
    rows = reading.rows(into, ARM, SET).table
    for name, value in (("verdict", verdict), ("strict", 2), ("lenient", 1)):
        assert rows[name].to_pylist() == [value] * 4


def test_what_cannot_be_read_is_told_and_not_written(tmp_path: Path) -> None:
    layout, into = Layout(tmp_path / "run"), Layout(tmp_path / "again")
    journal(layout, [kill_tasks.sample(0, 0, i) for i in range(4)], "a")
    (part,) = seal(layout, ARM, SET, grid(1), "all").made
    (layout.journals(ARM, SET) / "a.journal").unlink()
    damage_part(part)
    with pytest.warns(
        LeftOutWarning, match=rf"left out \(4 damaged\): {part}: skipped row group 0: "
    ):
        assert rewrite(layout, into, GROUP, lambda table: [], "all") == 0
    assert not into.parts(ARM, SET).exists()
