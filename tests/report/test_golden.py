"""Pages, tables, terminals, cards and LaTeX of small runs, whole."""

from __future__ import annotations

import json
import pkgutil
import shutil
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from rlbhpc.report import aspects
from rlbhpc.report.aspect import Report
from rlbhpc.report.aspects.robustness import lay_beside
from rlbhpc.report.claim import claim_card
from rlbhpc.report.gather import gather
from rlbhpc.report.page import page, pages
from rlbhpc.report.write import as_records, latex
from rlbhpc.study.layout import Layout
from tests.report.extra import make_extra, make_probe
from tests.report.golden import agree, frame_lines, page_lines, printed
from tests.report.made import frames_of, make_study, put_samples
from tests.report.rich import make_regraded, make_rich
from tests.report.scripts import ASPECTS as SCRIPTS
from tests.report.scripts import script, with_scripts


def test_a_run_with_everything(rich_run: Path, tmp_path: Path) -> None:
    """Nearly all that a report can show, and its samples under another grader."""
    rich = with_scripts(gather(rich_run))
    lay_beside(rich, make_regraded(tmp_path / "other", rich_run))
    agree("rich_page", page_lines("".join(pages(rich).values())))
    agree("rich_tables", frame_lines(frames_of(rich)))
    agree("rich_terminal", printed(rich, 120))
    agree("two_terminal", printed(replace(rich, last_comparisons=rich.last_comparisons[:2]), 120))
    agree("rich_figures", figures(rich))


@pytest.mark.parametrize("problems", [1, 2])
def test_everything_of_few_problems(tmp_path: Path, problems: int) -> None:
    run = make_rich(tmp_path / "run", problems).layout.root
    few = with_scripts(gather(run))
    lay_beside(few, make_regraded(tmp_path / "other", run, problems))
    agree(f"few_{problems}", page_lines("".join(pages(few).values())))


def test_arms_of_no_study_that_share_some_problems(tmp_path: Path) -> None:
    """Each problem stands at another place in the two; what judged them is known of one."""
    study = make_study(tmp_path / "run", 9, 16)
    rng = np.random.default_rng(8)
    ends = ((-0.1, 0.9), (1, -0.4))
    base, trained = (rng.random((8, 16)) < np.linspace(*rates, 8)[:, None] for rates in ends)
    imported = {"a.jsonl": {"sha256": "5f", "judged_by": "a script"}}
    put_samples(study, "base", base, provenance={"imported": imported})
    put_samples(study, "rl", trained, 100, provenance={"graders": []}, first=1)
    study.layout.study.unlink()
    some = gather(tmp_path / "run", [("base", "rl")])
    agree("some_page", page_lines(page(some)))
    tables = frames_of(some)
    agree("some_tables", frame_lines({n: tables[n] for n in ("coverage",)}))


def figures(report: Report) -> Iterator[str]:
    """What the scripts of ``analysis/`` draw: names, panels, legends and columns."""
    modules = [
        import_module(f"{aspects.__name__}.{m.name}")
        for m in pkgutil.iter_modules(aspects.__path__)
    ]
    for module in (*modules, *map(script, SCRIPTS)):
        for name in sorted(vars(module)):
            if not (name.endswith("charts") or name == "ablations") or name in ("charts_by_set",):
                continue
            for figure, chart in getattr(module, name)(report):
                titles = [(panel.title, len(panel.marks), panel.height) for panel in chart.panels]
                ends = [f"{end.y:.1f} {end.name}" for panel in chart.panels for end in panel.ends]
                keys = [(key.name, key.colour, key.dash) for key in chart.legend]
                yield f"{figure} {titles} {keys} {ends} {len(chart.frame)} {list(chart.frame)}"


def test_what_people_trainers_and_studies_add(tmp_path: Path) -> None:
    extra = make_extra(tmp_path)
    agree("extra_page", page_lines(page(extra)))
    agree("extra_tables", frame_lines(frames_of(extra)))
    agree("extra_terminal", printed(extra, 200, verbose=True))
    card = claim_card(extra).decode().replace(extra.study_hash, "HASH")  # of paths, too
    agree("extra_claim", card.split("\n"))


def test_a_probe_of_contamination(tmp_path: Path) -> None:
    probe = make_probe(tmp_path / "run")
    agree("probe_page", page_lines(page(probe)))
    agree("probe_tables", frame_lines(frames_of(probe)))
    agree("probe_terminal", printed(probe, 100, verbose=True, styled=True))


def test_a_run_with_gaps(report: Report) -> None:
    agree("gaps_page", page_lines(page(report)))
    agree("gaps_tables", frame_lines(frames_of(report)))
    agree("gaps_terminal", printed(report, 80, verbose=True))
    agree("gaps_records", as_records(report).split("\n"))
    agree("gaps_latex", latex(report).split("\n"))
    agree("gaps_narrow", printed(report, 40))


def test_problems_that_end_at_their_second_right_sample(tmp_path: Path) -> None:
    study = make_study(tmp_path / "run", 12, 16, sampling={"stop_after": 2})
    rng = np.random.default_rng(6)
    for arm, step, most in (("base", 0, 0.4), ("rl", 100, 0.7)):
        right = rng.random((12, 16)) < np.linspace(0, most, 12)[:, None]
        put_samples(study, arm, right, step, stop_after=2)
    stopped = with_scripts(gather(tmp_path / "run"), "graders")
    other = Layout(shutil.copytree(stopped.folder, tmp_path / "other"))
    other.regraded.write_text(json.dumps({"from": str(stopped.folder), "done": True}))
    lay_beside(stopped, other.root)
    agree("stopped_page", page_lines(page(stopped)))
    agree("stopped_tables", frame_lines(frames_of(stopped)))
