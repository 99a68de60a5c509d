"""Logs of runs that did not end well: what is lacking is said wherever their samples are counted.

The files have the keys and entries that inspect_ai 0.3 writes on an error, on an interrupt, on a
kill and with ``fail_on_error=False``.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rlbhpc.cli.main import cli
from rlbhpc.report.gather import gather
from rlbhpc.store.grid import Grid
from rlbhpc.study.layout import Layout
from tests.exchange.made import cube_of, take_in

PROBLEMS, EPOCHS = 4, 2
ALL = PROBLEMS * EPOCHS


def inspect_log(path: Path, status: str, drawn: int, failed: int) -> Path:
    """A log of ``drawn`` of 8 samples, the last of which failed; "started" has no header."""
    evaluation = {
        # What `--limit` left of more.
        "dataset": {"samples": 90, "sample_ids": [f"q{n}" for n in range(PROBLEMS)]},
        "config": {"epochs": EPOCHS},
    }
    samples: list[dict[str, Any]] = []
    for number in range(drawn):
        sample: dict[str, Any] = {
            "id": f"q{number % PROBLEMS}", "epoch": number // PROBLEMS + 1,
            "input": f"What is {number % PROBLEMS}?", "target": "4",
            "output": {"choices": []}, "scores": None,
        }  # fmt: skip
        if number >= drawn - failed:
            sample["error"] = {"message": "RuntimeError('endpoint said 500')"}
        else:
            message = {"content": "4"}
            sample["output"] = {"choices": [{"message": message, "stop_reason": "stop"}]}
            sample["scores"] = {"match": {"value": "C", "answer": "4"}}
        samples.append(sample)
    header = {"version": 2, "status": status, "eval": evaluation}
    if path.suffix == ".json":
        path.write_text(json.dumps(header | {"samples": samples}))
        return path
    with zipfile.ZipFile(path, "w") as archive:
        start = {"version": 2, "eval": evaluation, "plan": {}}
        archive.writestr("_journal/start.json", json.dumps(start))
        for sample in samples:
            name = f"samples/{sample['id']}_epoch_{sample['epoch']}.json"
            archive.writestr(name, json.dumps(sample))
        if status != "started":
            archive.writestr("header.json", json.dumps(header))
    return path


@pytest.mark.parametrize("ending", ["eval", "json"])
@pytest.mark.parametrize(
    ("status", "drawn", "failed", "facts"),
    [
        ("success", ALL, 0, set()),
        ("success", ALL, 5, {"5 of 8"}),
        ("error", 4, 1, {"error", "4 of 8", "1 of 4"}),
        ("cancelled", 3, 0, {"cancelled", "3 of 8"}),
        ("started", 2, 0, {"started", "2 of 8"}),
    ],
)
def test_what_a_log_lacks_of_its_run_is_said(
    tmp_path: Path, ending: str, status: str, drawn: int, failed: int, facts: set[str]
) -> None:
    done = take_in(tmp_path / "run", inspect_log(tmp_path / f"a.{ending}", status, drawn, failed))
    assert (done.samples, done.failed) == (drawn, failed)
    assert bool(done.shortfalls) == bool(facts)
    assert all(fact in done.shortfalls[0] for fact in facts)


def test_the_terminal_its_json_and_show_tell_of_failed_samples(tmp_path: Path) -> None:
    log = inspect_log(tmp_path / "a.eval", "error", ALL, 5)
    run = str(tmp_path / "run")
    command = ["import", run, str(log), "--arm", "base", "--set", "sums"]
    first = CliRunner().invoke(cli, command)
    assert "8 samples, 5 of them failed" in first.stdout
    assert "log status: error; 5 of 8 failed" in first.stderr
    again = json.loads(CliRunner().invoke(cli, [*command, "--json"]).stdout)
    assert (again["samples"], again["known"], len(again["shortfalls"])) == (0, ALL, 1)
    shown = json.loads(CliRunner().invoke(cli, ["show", run, "--json"]).stdout)
    assert [row["n"] for row in shown] == [1, 1, 1, 0]
    assert [row["failed"] for row in shown] == [1, 1, 1, 2]


def test_a_report_says_why_it_left_problems_out(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for arm, drawn, status in (("base", ALL, "success"), ("rl", 3, "cancelled")):
        log = inspect_log(tmp_path / f"{arm}.eval", status, drawn, 0)
        command = ["import", str(run), str(log), "--arm", arm, "--set", "sums"]
        assert CliRunner().invoke(cli, command).exit_code == 0
    notes = gather(run, [("base", "rl")]).notes
    (left_out,) = (note for note in notes if "left out" in note)
    assert "rl.eval: log status: cancelled; 3 of 8" in left_out
    assert any(note.startswith("rl/sums") and "cancelled" in note for note in notes)


@pytest.mark.parametrize(("status", "drawn", "failed"), [("cancelled", 3, 0), ("error", ALL, 5)])
def test_a_log_that_is_whole_now_lacks_nothing(
    tmp_path: Path, status: str, drawn: int, failed: int
) -> None:
    """The same log again, once its run has gone on to the end."""
    run = tmp_path / "run"
    take_in(run, inspect_log(tmp_path / "a.eval", status, drawn, failed))
    done = take_in(run, inspect_log(tmp_path / "a.eval", "success", ALL, 0))
    assert (done.samples, done.known) == (ALL - drawn + failed, drawn - failed)
    grid = Grid.load(Layout(run).grid("theirs", "set"))
    assert grid is not None
    (origin,) = grid.provenance["imported"].values()
    assert "shortfall" not in origin
    assert cube_of(run).n.values.tolist() == [[EPOCHS]] * PROBLEMS
