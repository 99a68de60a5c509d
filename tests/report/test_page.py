"""The page: self-contained, strict, and nothing that a model wrote becomes markup."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import tostring

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from rlbhpc.cli.report import report as command
from rlbhpc.errors import UserError
from rlbhpc.report import aspects
from rlbhpc.report.aspect import Aspect, Part, Report
from rlbhpc.report.aspects import coverage as shown
from rlbhpc.report.aspects.coverage import EVIDENCE_PAGE, cases, evidence
from rlbhpc.report.gather import gather
from rlbhpc.report.markup import el, table
from rlbhpc.report.page import page
from rlbhpc.report.write import write_report
from tests.report.golden import agree, page_lines
from tests.report.made import make_study, put_counts, put_samples


def test_tables_of_an_earlier_report_do_not_stay(tmp_path: Path) -> None:
    study = make_study(tmp_path, 4, 8)
    put_counts(study, "base", [1, 2, 3, 4], 8)
    put_counts(study, "rl", [2, 3, 4, 5], 8, 100)
    folder = write_report(gather(tmp_path))[0].parent
    assert (folder / "conclusions.csv").is_file()
    (folder / "notes.csv").write_text("mine")
    (folder / "coverage.csv").unlink()
    study.layout.study.unlink()
    written = write_report(gather(tmp_path))
    assert sorted(folder.iterdir()) == sorted([*written, folder / "notes.csv"])


class Page(HTMLParser):
    """Elements with their attributes, and text by the element around it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._stack: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._stack and self._stack.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._stack:
            self.texts.setdefault(self._stack[-1], []).append(data)


@pytest.fixture(scope="session")
def html(report: Report) -> str:
    return page(report)


@pytest.fixture(scope="session")
def parsed(html: str) -> Page:
    return Page(html)


def test_what_a_model_wrote_is_shown_as_text(html: str, parsed: Page) -> None:
    shown = "".join(parsed.texts["pre"])
    assert "<script>alert('x')</script><img src=x onerror=alert(1)> & " in shown
    assert "\x1b" not in html, "an escape character acts where the page is printed on a terminal"
    tags = [tag for tag, _ in parsed.elements]
    assert tags.count("script") == 1 and "img" not in tags


def test_nothing_is_loaded_and_nothing_else_may_run(html: str, parsed: Page) -> None:
    assert not re.search(r"(https?:)?//[a-z]", html.replace("// Sort", ""))
    for tag, attributes in parsed.elements:
        assert not {"style", "src"} & attributes.keys(), tag
        assert not [name for name in attributes if name.startswith("on")]
        assert (attributes.get("href") or "#").startswith("#")
    policy = next(a["content"] for _, a in parsed.elements if "http-equiv" in a)
    assert policy is not None and "unsafe" not in policy
    assert policy.startswith("default-src 'none'") and policy.count("'sha256-") == 2


def test_references_inside_figures_lead_somewhere(html: str, parsed: Page) -> None:
    ids = [a["id"] for _, a in parsed.elements if "id" in a]
    assert len(ids) == len(set(ids)), "two elements of one page share an id"
    wanted = set(re.findall(r'href="#([^"]+)"', html)) | set(re.findall(r"url\(#([^)]+)\)", html))
    assert wanted and wanted <= set(ids)


def test_it_opens_with_the_answer(html: str, report: Report, parsed: Page) -> None:
    first = html.index(str(report.last_comparisons[0].answer.word))
    assert first < html.index("<svg") < html.index("<details")
    shown = " ".join(parsed.texts["p"])
    for sentence in report.last_comparisons[0].words:
        assert sentence in shown
    for note in report.notes:
        assert note in parsed.texts["li"]


def test_rarest_evidence_comes_first(parsed: Page) -> None:
    assert "math/0: 1 right of 32" in parsed.texts["summary"]


def test_files_beside_the_page(run: Path, report: Report, tmp_path: Path) -> None:
    paths = write_report(report, tmp_path / "deep" / "out")
    assert paths[0].name == "report.html"
    assert {p.name for p in (tmp_path / "deep" / "out").iterdir()} == {p.name for p in paths}
    difference = pd.read_csv(tmp_path / "deep" / "out" / "difference.csv")
    np.testing.assert_allclose(
        difference["difference"], report.last_comparisons[0].curve.pointwise.estimate, rtol=1e-5
    )
    coverage = pd.read_csv(tmp_path / "deep" / "out" / "coverage.csv")
    assert report.last_comparisons[0].solved is not None
    assert coverage.groupby("cell").size().to_dict() == {
        name: count for name, count in report.last_comparisons[0].solved.counts.items() if count
    }
    index = pd.read_csv(tmp_path / "deep" / "out" / "tables.csv")
    for name, rows in index.itertuples(index=False):
        assert len(pd.read_csv(tmp_path / "deep" / "out" / name)) == rows
    again = write_report(report, tmp_path / "deep" / "out")
    assert again == paths


def test_cases_stand_beside_what_the_other_side_wrote(html: str, parsed: Page) -> None:
    assert {"base, right", "rl, step 100, wrong"} <= set(parsed.texts["h4"])
    anchors = [a["id"] for tag, a in parsed.elements if a.get("class") == "pair"]
    assert anchors == [f"case-{i + 1}" for i in range(len(anchors))] and anchors
    links = re.findall(r'href="#(case-\d+)"', html)
    assert set(links) == set(anchors), "every case is linked from the coverage table"
    # The first case is the rarest: its responses are of that problem, on both sides.
    first = html[html.index('id="case-1"') : html.index('id="case-2"')]
    assert "<script>" not in first and "alert(" in first
    assert "Problem 0, try 0: the answer is False." in first


def test_the_problem_itself_is_shown_where_it_can_be_read(report: Report) -> None:
    shown = evidence(report)
    case = shown[0].cases[0]
    assert case.question == "", "the file of this set is not there"
    known = [replace(shown[0], cases=(replace(case, question="What is <b>2</b> + 2?"),))]
    text = "".join(tostring(node, "unicode") for node in cases(report, known) if node != "")
    assert "What is &lt;b&gt;2&lt;/b&gt; + 2?" in text


def test_printed_numbers_sort_by_value() -> None:
    rows = [["a", "+1.0 [-2.2, +4.3] ?"], ["b", "–"], ["c", "-12.5 [-20.0, -3.1]"]]
    read = Page(tostring(table("t", ["arm", "points"], rows), "unicode", method="html"))
    cells = [a for tag, a in read.elements if tag == "td"]
    assert [cell.get("data-value") for cell in cells[1::2]] == ["+1.0", None, "-12.5"]
    assert [cell["class"] for cell in cells[:2]] == ["text", "number"]


def test_the_same_run_gives_the_same_bytes(run: Path, html: str) -> None:
    again = gather(run)
    assert page(again) == html


def test_counts_alone_make_a_report(tmp_path: Path) -> None:
    study = make_study(tmp_path / "run", 24, 16, steps=(50, 100))
    put_counts(study, "base", np.arange(24) % 17, 16)
    put_counts(study, "rl", (np.arange(24) * 2) % 17, 16, 50)
    put_counts(study, "rl", (np.arange(24) * 3) % 17, 16, 100)
    found = gather(tmp_path / "run")
    text = page(found)
    assert "No problem with stored responses" in text
    assert "Over training steps" in text
    tally = pd.read_csv(write_report(found, tmp_path)[0].with_name("samples.csv"))
    assert tally["timeouts"].isna().all(), "what is not known is empty, not 0"


def test_counts_of_one_arm_meet_samples_of_the_other(tmp_path: Path) -> None:
    study = make_study(tmp_path / "run", 24, 16)
    put_counts(study, "base", np.arange(24) * 2 % 65, 64)
    put_samples(study, "rl", np.random.default_rng(0).random((24, 16)) < 0.5, 100)
    found = gather(tmp_path / "run")
    text = page(found)
    assert found.last_comparisons[0].solved is None, "64 counted samples cannot be cut to 16"
    assert "Coverage is not known" in text and "No problem with stored responses" in text


def test_json_of_the_conclusions(run: Path) -> None:
    done = CliRunner().invoke(command, [str(run), "--json"], standalone_mode=False)
    found = json.loads(done.output)
    assert found["conclusions"][0]["answer"] in {"lost, gains open", "undecided"}
    assert found["samples"][1]["missing"] == 64


def test_a_cube_by_itself_is_not_written_into(run: Path, report: Report, tmp_path: Path) -> None:
    (tmp_path / "zarr.json").write_text("{}")
    with pytest.raises(UserError, match="say with -o"):
        write_report(replace(report, folder=tmp_path))
    with pytest.raises(UserError, match=r"zarr.json.*; -o names another folder"):
        write_report(report, tmp_path / "zarr.json")


def test_elements_escape_text_and_attributes() -> None:
    hostile = '"><script>&'
    text = tostring(el("p", f"<b>&\u202e{hostile}", title=hostile), "unicode", method="html")
    read = Page(text)
    assert read.elements == [("p", {"title": hostile})]
    assert "".join(read.texts["p"]) == f"<b>&\N{REPLACEMENT CHARACTER}{hostile}"


@pytest.mark.parametrize(
    ("base", "trained", "n"),
    [
        ([0] * 5, [0] * 5, 16),
        ([16] * 5, [16] * 5, 16),
        ([0, 1, 0, 1], [1, 1, 0, 1], 1),
        ([0, 1, 3], [1, 2, 0], 3),
        ([0, 1], [1, 1], 4),
        ([0, 1] * 6, [0, 1] * 5 + [1, 0], 1),
    ],
    ids=["none right", "all right", "one sample", "three samples", "two problems", "a fit of one"],
)
def test_thin_runs_have_a_page(tmp_path: Path, base: list[int], trained: list[int], n: int) -> None:
    study = make_study(tmp_path / "run", len(base), n)
    for arm, right, step in (("base", base, 0), ("rl", trained, 100)):
        put_samples(study, arm, np.arange(n) < np.array(right)[:, None], step)
    paths = write_report(gather(tmp_path / "run"))
    html = paths[0].read_text()
    agree(f"thin_{len(base)}_{sum(trained)}", page_lines(html))
    read = Page(html)
    word = "undecided" if any(base + trained) else "nothing solved"
    assert word in read.texts["a"]
    for tag in ("td", "p", "figcaption"):
        assert not re.search(r"\bnan\b", " ".join(read.texts[tag]))
    for path in paths:
        if path.suffix == ".csv":
            assert len(pd.read_csv(path)) > 0


def test_long_evidence_has_a_page_of_its_own(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown, "_INLINE_CHARACTERS", 100)
    paths = write_report(gather(run), tmp_path)
    assert tmp_path / EVIDENCE_PAGE in paths
    main, beside = (Page((tmp_path / name).read_text()) for name in (paths[0].name, EVIDENCE_PAGE))
    assert "<script>alert('x')</script>" in "".join(beside.texts["pre"])
    links = {a["href"] for tag, a in main.elements if tag == "a" and EVIDENCE_PAGE in a["href"]}
    anchors = {f"{EVIDENCE_PAGE}#{a['id']}" for _, a in beside.elements if "id" in a}
    assert links - {EVIDENCE_PAGE} == anchors and anchors
    # A later report whose evidence is short leaves no old page behind.
    monkeypatch.setattr(shown, "_INLINE_CHARACTERS", 10**9)
    write_report(gather(run), tmp_path)
    assert not (tmp_path / EVIDENCE_PAGE).exists()


def test_a_table_of_a_study_takes_the_place_of_one_of_the_same_name(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody checks the types of a plugin."""
    metrics: Any = ["accuracy histogram"]
    frame = pd.DataFrame({"own": [1]})
    own = Aspect(Part.MORE, tables=lambda _: {"coverage": frame}, metrics=metrics)
    monkeypatch.setattr(aspects, "ASPECTS", (*aspects.ASPECTS, own))
    write_report(gather(run), tmp_path)
    assert list(pd.read_csv(tmp_path / "coverage.csv")) == ["own"]
