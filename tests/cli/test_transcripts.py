"""What verbs print for small runs, whole: every column, line and exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rlbhpc.cli.shared import print_table
from rlbhpc.store import checked
from rlbhpc.study.draft import template_menu
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import load_study
from rlbhpc.verify.verdict import Status
from tests.cli.transcript import expected, say
from tests.launch.launched import Run, make, plan_of, run, stubs
from tests.launch.made import Stubs
from tests.responses import sums_study, write_responses
from tests.store import made
from tests.store.test_scan import grid, right
from tests.study.folder import write_folder
from tests.sweep.conftest import keys_of
from tests.sweep.test_plan import row, store

__all__ = ["run", "stubs"]

STOPPING = """
name: stopping
models:
  base: {path: model}
  rl: {path: model}
problem_sets:
  gsm8k: {path: twice.jsonl, subset: test, duplicates: drop}
sampling: {prompt: qwen-boxed, temperature: 1, max_tokens: 64, n: 16}
arms:
  base: {model: base, stop_after: 2}
  rl: {model: rl}
analysis: {compare: [{base: base, trained: rl}]}
engine: {name: hf}
"""


def test_a_study_that_stops(tmp_path: Path, stubs: Stubs) -> None:
    """A record of its file stands there twice, and its base has stopped at one problem."""
    rows = [{"question": f"{n}?", "answer": f"#### {n}"} for n in (1, 2, 2)]
    (tmp_path / "twice.jsonl").write_text("\n".join(map(json.dumps, rows)))
    study = sums_study(tmp_path, STOPPING, 0)
    first, second = study.problems("gsm8k")
    rights = [f"\\boxed{{{first.gold}}}"] * 2
    write_responses(study, "base", {first.id: [*rights, "?", "?"], second.id: ["?"] * 5})
    file = tmp_path / "sums.yaml"
    texts = [
        say(tmp_path, "plan", file, "--until", "lost decided"),
        say(tmp_path, "plan", file, "--until", "lost decided", "--json"),
        say(tmp_path, "plan", file),
        say(tmp_path, "status", file),
        say(tmp_path, "check", file),
    ]
    assert "".join(texts) == expected("stopping")


def test_a_run_at_work(tmp_path: Path, run: Run, stubs: Stubs) -> None:
    """One shard is done, one failed for its memory, one has failed samples, one was never begun."""
    path, study = run
    make(study, [0])
    plan = plan_of(study)
    record = {"devices": ["0"], "plan": plan.name, "shard": 1, "tokens": 100}
    times = {"started": 0.0, "loaded": 10.0, "ended": 60.0}
    checked.write(study.layout.attempts / "0.json", record | times)
    (failing,) = (shard for shard in plan.shards if shard.number == 1)
    (span, *_) = failing.spans
    keys = [key for key in keys_of(study) if key.problem == span.problem][:2]
    store(study, [row(study, key, Status.FAILED) for key in keys], "failed")
    stubs.add("squeue", "echo '1_1|RUNNING|None|me'; echo '1_3|RUNNING|None|me'")
    stubs.add("sacct", "echo '1_0|OUT_OF_MEMORY|0:125|me'; echo '1_2|FAILED|1:0|me'")
    texts = [say(tmp_path, "status", path), say(tmp_path, "status", path, "--json")]
    stubs.add("squeue")
    texts += [say(tmp_path, "status", path), say(tmp_path, "doctor", path)]
    states = "; ".join(f"echo '1_{task}|FAILED|1:0|me'" for task in range(7))
    stubs.add("sacct", states)
    texts += [say(tmp_path, "doctor", path), say(tmp_path, "doctor", path, "--json")]
    texts += [say(tmp_path, "launch", path), say(tmp_path, "launch", path, "--json")]
    stubs.add("sacct")
    store(study, [row(study, key) for key in keys_of(study)], "whole")
    texts += [say(tmp_path, "status", path), say(tmp_path, "doctor", path)]
    stubs.add("squeue", "exit 1")
    texts += [say(tmp_path, "status", path), say(tmp_path, "cancel", path)]
    stubs.add("squeue", "echo '1_0|RUNNING|None|me'")
    stubs.add("scancel", "echo 'scancel: error: no permission' >&2; exit 1")
    texts += [say(tmp_path, "cancel", path)]
    stubs.add("squeue")
    texts += [say(tmp_path, "cancel", path)]
    assert "".join(texts) == expected("at_work")


def test_what_a_study_expands_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    file = write_folder(tmp_path / "study")
    head, _, tail = say(tmp_path, "check", file, "--json").partition('  "resolved"')
    texts = [say(tmp_path, "check", file, "--set", "sampling.top_k=5"), head]
    texts.append(tail.rpartition("  },\n")[2])
    study = load_study(file)
    study.layout.root.mkdir(parents=True)
    study.layout.study.write_text(study.to_json())
    (tmp_path / "me@home.py").write_text("def verify(gold, response, problem):\n    return True\n")
    graders = [f"problem_sets.math500.verifier={name}" for name in ("math-paper", "./me@home.py")]
    for change in ("seed=7", "arms.rl.temperature=0.9", *graders):
        texts.append(say(tmp_path, "check", file, "--set", change).partition("in all\n")[2])
    assert "".join(texts) == expected("checked")


def test_what_is_imported(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.csv").write_text("problem,correct\na,1\na,0\n")
    (tmp_path / "b.csv").write_text("problem,n,c\nb,4,2\n")
    (folder / "notes.json").write_text("{}")
    (tmp_path / "mine.py").write_text(
        "def verify(gold, text, problem): return 1 // (text == '2')\n"
    )
    (tmp_path / "text.jsonl").write_text('{"problem": "t", "text": "3", "gold": "2"}\n')
    words = ("import", tmp_path / "run", folder, "--set", "s", "--arm")
    judged = ("import", tmp_path / "run", tmp_path / "text.jsonl", "--set", "t", "--arm", "x")
    texts = [
        say(tmp_path, *words, "x"),
        say(tmp_path, *words, "x"),
        say(tmp_path, *words, "y", "--model", "z", "--json"),
        say(tmp_path, "import", tmp_path / "run", tmp_path / "b.csv", "--set", "s", "--arm", "c"),
        say(tmp_path, *judged),
        say(tmp_path, *judged, "--judge-again", tmp_path / "mine.py"),
        say(tmp_path, "show", tmp_path / "run"),
        say(tmp_path, "show", tmp_path / "run", "--problem", "t", "--arm", "x"),
        say(tmp_path, "show", tmp_path / "run", "--sample", 0, "--problem", "t"),
        say(tmp_path, "show", tmp_path / "run", "--json", "--arm", "y"),
        say(tmp_path, "export", tmp_path / "run", tmp_path / "out.csv"),
        say(tmp_path, "select", tmp_path / "run", "x", "s", "0.1-0.9"),
    ]
    assert "".join(texts) == expected("imported")


def test_what_looks_after_files(tmp_path: Path) -> None:
    """A problem is damaged in one journal, and another run of the study has a damaged file."""
    layout, other = Layout(tmp_path / "run"), Layout(tmp_path / "other")
    for each in (layout, other):
        grid(2).save(each.grid(made.ARM, made.SET))
    made.journal(layout, [right(0, i) for i in range(4)], "one")
    texts = [
        say(tmp_path, "compact", layout.root),
        say(tmp_path, "compact", layout.root),
        say(tmp_path, "export", layout.root, tmp_path / "out.parquet"),
        say(tmp_path, "export", other.root, tmp_path / "other.parquet"),
    ]
    twin = replace(right(1, 0), seed=right(0, 0).seed)
    made.journal(other, [twin, *(right(1, i) for i in range(1, 4))], "two")
    texts += [
        say(tmp_path, "gc", layout.root),
        say(tmp_path, "merge", layout.root, other.root),
        say(tmp_path, "merge", layout.root, other.root),
        say(tmp_path, "compact", layout.root),
        say(tmp_path, "seal", layout.root),
        say(tmp_path, "seal", layout.root, "--json"),
        say(tmp_path, "gc", layout.root),
        say(tmp_path, "gc", layout.root),
    ]
    changed = replace(twin, verdict=Status.WRONG)
    made.journal(other, [changed], "three")
    texts += [say(tmp_path, "merge", layout.root, other.root)]
    assert "".join(texts) == expected("files")


def test_a_line_of_a_pipe_is_wide(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("t", ["a"], [["x" * 250]])
    assert capsys.readouterr().out.split() == ["t", "a", "x" * 240, "x" * 10]


def test_init_asks_for_a_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert say(tmp_path, "init") == expected("menu")
    keyboard, terminal = os.openpty()
    os.write(keyboard, b"nonsense\ncode\n")
    words = [sys.executable, "-m", "rlbhpc", "init"]
    done = subprocess.run(words, stdin=terminal, capture_output=True, text=True, check=True)
    os.close(terminal)
    os.close(keyboard)
    assert done.stdout.partition("HUB\n")[2] == (
        "Template: Error: 'nonsense' is not one of "
        f"{', '.join(map(repr, template_menu()))}.\n"
        "Template: code.yaml written; edit it, then: rlbhpc check code.yaml\n"
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("run plan.json --shards 1,x", "--shards: found '1,x'; allowed: numbers such as 3,4"),
        ("stage", "name a set: "),
        ("stage --check", "data: nothing staged in it"),
        ("stage aime24 math500 --revision x", "--revision goes with one set to fetch"),
        ("stage aime24 --check --revision x", "--revision goes with one set to fetch"),
        ("report run --json --regraded other", "--regraded has nothing to add to --json; leave"),
        ("doctor . --write here", "/proc/none: No such file or directory; name a folder"),
    ],
)
def test_words_that_do_not_go_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLBHPC_CLUSTERS", "/proc/none")
    assert f"\nrefused: {complaint}" in say(tmp_path, *words.split())
