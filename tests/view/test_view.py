"""``rlbhpc view`` and ``report --open`` as they are called."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click
import pytest
from click.testing import CliRunner

from rlbhpc.cli.main import cli
from rlbhpc.store import tables
from rlbhpc.store.sample_rows import Sample
from rlbhpc.verify.verdict import Status
from rlbhpc.view.run import OpenRun
from rlbhpc.view.server import Server
from tests.report import made
from tests.report.made import SET, make_study
from tests.view.looked import Page, make_run


def test_a_run_is_served_until_it_is_interrupted(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    process = subprocess.Popen(
        [sys.executable, "-m", "rlbhpc", "view", str(tmp_path / "run")],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "USER": "ann"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout is not None
    address, tunnel = process.stdout.readline().strip(), process.stdout.readline()
    port = address.split(":")[2].split("/")[0]
    assert f"ssh -N -L {port}:127.0.0.1:{port} ann@" in tunnel
    with urllib.request.urlopen(address, timeout=60) as reply:
        assert Page(reply.read().decode()).tags["tr"] == 6
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_run_opens_at_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report names the command; the browser gets the page of that problem."""
    make_run(tmp_path / "run")
    opened: list[str] = []

    def look(redirect: str) -> None:
        opened.append(Path(redirect).read_text())

    def interrupted(server: Server) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(click, "launch", look)
    monkeypatch.setattr(Server, "serve_forever", interrupted)
    words = ["view", str(tmp_path / "run"), "--open", "--problem"]
    assert CliRunner().invoke(cli, [*words, f"{SET}/3"]).exception is None
    (redirect,) = opened
    assert redirect.endswith(f'/problem?{urlencode({"problem": f"{SET}/3"})}">')
    refused = CliRunner().invoke(cli, [*words, f"{SET}/33"])
    assert f"{SET}/33" in str(refused.exception) and f"{SET}/3" in str(refused.exception)
    assert CliRunner().invoke(cli, [*words, f"{SET}/3", "--problem", f"{SET}/4"]).exit_code == 2


def test_a_copy_has_the_chosen_problems(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    words = ["view", str(tmp_path / "run"), "-o", str(tmp_path / "web"), "--problem", f"{SET}/4"]
    assert CliRunner().invoke(cli, words).exception is None
    (page,) = tmp_path.glob("web/problem-*.html")
    shown = Page(page.read_text())
    # Three right responses and the one other, of both sides.
    assert shown.values("data-sample") == ["0", "1", "2", "3"] * 2
    refused = CliRunner().invoke(cli, [*words[:-1], "no/1"])
    assert "no/1" in str(refused.exception)


def test_a_run_of_counts_alone_has_a_table(tmp_path: Path) -> None:
    study = make_study(tmp_path / "run", 3, 4)
    for arm, step, right in (("base", 0, [0, 2, 4]), ("rl", 100, [1, 2, 0])):
        cells = {(step, f"{SET}/{i}"): (4, c) for i, c in enumerate(right)}
        tables.put_counts(study.layout, arm, SET, arm, cells)
    run = OpenRun(tmp_path / "run")
    assert run.by_difference(run.pair) == [f"{SET}/2", f"{SET}/0", f"{SET}/1"]
    assert run.verdict_codes(f"{SET}/2", run.pair.left) == ""


def test_problems_that_two_verdicts_tell_apart_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sample(*values: Any, **named: Any) -> Sample:
        one = Sample(*values, **named)
        is_lenient = one.key.arm == "rl" and one.key.sample == 3
        return replace(one, strict=one.verdict, lenient=Status.RIGHT if is_lenient else one.verdict)

    monkeypatch.setattr(made, "Sample", sample)
    make_run(tmp_path / "run")
    run = OpenRun(tmp_path / "run")
    assert {tally.disagreeing for tally in run.tallies(run.pair.left).values()} == {0}
    assert {tally.disagreeing for tally in run.tallies(run.pair.right).values()} == {1}
    assert all("strict ≠ lenient" in run.marks(name, run.pair) for name in run.strata)


def test_a_response_of_several_turns_is_a_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the pages, in `show` and in the report; a plain response beside it stays as it is."""
    segments = [["model", 3, "Let me compute."], ["python", 2, "<b>41</b>"], ["model", 4]]
    trace = json.dumps({"n_turns": 2, "segments": segments})

    def sample(*values: Any, **named: Any) -> Sample:
        one = Sample(*values, **named)
        return replace(one, trace=trace) if one.key.sample == 0 else one

    monkeypatch.setattr(made, "Sample", sample)
    texts = {(0, 0): "So it is 41.", (0, 1): "Plain."}
    make_run(tmp_path / "run", texts)
    words = [str(tmp_path / "run"), "--problem", f"{SET}/0"]
    assert CliRunner().invoke(cli, ["view", *words, "-o", str(tmp_path / "web")]).exception is None
    (page,) = tmp_path.glob("web/problem-*.html")
    shown = Page(page.read_text())
    assert shown.tags["figcaption"] == 2
    for turn in ("Let me compute.", "python", "<b>41</b>", "So it is 41."):
        assert turn in shown.text
    told = CliRunner().invoke(cli, ["show", *words, "--sample", "0", "--arm", "base"]).output
    assert told.endswith(
        "[model]\nLet me compute.\n\n[python]\n<b>41</b>\n\n[model]\nSo it is 41.\n\n"
    )
    plain = CliRunner().invoke(cli, ["show", *words, "--sample", "1", "--arm", "base"]).output
    assert plain.endswith("\n\nPlain.\n\n")
    report = CliRunner().invoke(cli, ["report", str(tmp_path / "run")])
    assert report.exception is None
    pages = "".join(path.read_text() for path in (tmp_path / "run" / "report").glob("*.html"))
    assert "Let me compute." in pages


def test_no_torch_is_imported() -> None:
    code = "import sys, rlbhpc.view.server, rlbhpc.view.pages; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_report_opens_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "run")
    opened: list[str] = []
    monkeypatch.setattr(click, "launch", opened.append)
    assert CliRunner().invoke(cli, ["report", str(tmp_path / "run"), "--open"]).exception is None
    assert [Path(page).name for page in opened] == ["report.html"]
    refused = CliRunner().invoke(cli, ["report", str(tmp_path / "run"), "--open", "--json"])
    assert refused.exit_code == 2
