"""The page: self-contained, strict, and nothing that a model wrote becomes markup."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from rlbhpc.cli.report import report as command
from rlbhpc.errors import UserError
from rlbhpc.report.details import details
from rlbhpc.report.gather import Report, gather
from rlbhpc.report.markup import el
from rlbhpc.report.page import LIMIT, page
from rlbhpc.report.write import write_report
from tests.report.made import make_study, put_counts


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
    return page(report, details(report))


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
    first = html.index(str(report.final[0].conclusion.headline))
    assert first < html.index("<svg")
    shown = " ".join(parsed.texts["p"])
    for sentence in report.final[0].words:
        assert sentence in shown
    for note in report.notes:
        assert note in parsed.texts["li"]


def test_rarest_evidence_comes_first(parsed: Page) -> None:
    assert parsed.texts["summary"][0] == "math/0: 1 right of 32"


def test_files_beside_the_page(run: Path, report: Report, tmp_path: Path) -> None:
    paths = write_report(report, tmp_path / "out")
    assert paths[0].stat().st_size < LIMIT
    assert {p.name for p in (tmp_path / "out").iterdir()} == {p.name for p in paths}
    difference = pd.read_csv(tmp_path / "out" / "difference.csv")
    np.testing.assert_allclose(
        difference["difference"], report.final[0].curve.pointwise.estimate, atol=1e-15
    )
    coverage = pd.read_csv(tmp_path / "out" / "coverage.csv")
    assert report.final[0].solved is not None
    assert coverage.groupby("cell").size().to_dict() == {
        name: count for name, count in report.final[0].solved.counts.items() if count
    }
    again = write_report(report, tmp_path / "out")
    assert again == paths


def test_the_same_run_gives_the_same_bytes(run: Path, html: str) -> None:
    again = gather(run)
    assert page(again, details(again)) == html


def test_counts_alone_make_a_report(tmp_path: Path) -> None:
    study = make_study(tmp_path / "run", 24, 16, steps=(50, 100))
    put_counts(study, "base", np.arange(24) % 17, 16)
    put_counts(study, "rl", (np.arange(24) * 2) % 17, 16, 50)
    put_counts(study, "rl", (np.arange(24) * 3) % 17, 16, 100)
    found = gather(tmp_path / "run")
    text = page(found, details(found))
    assert "No problem with stored responses" in text
    assert "Over training steps" in text
    tally = pd.read_csv(write_report(found, tmp_path)[0].with_name("samples.csv"))
    assert tally["timeouts"].isna().all(), "what is not known is empty, not 0"


def test_json_of_the_conclusions(run: Path) -> None:
    done = CliRunner().invoke(command, [str(run), "--json"], standalone_mode=False)
    found = json.loads(done.output)
    assert found["conclusions"][0]["answer"] in {"shrinks", "undecided"}
    assert found["samples"][1]["missing"] == 64


def test_a_cube_by_itself_is_not_written_into(run: Path, report: Report, tmp_path: Path) -> None:
    from dataclasses import replace

    (tmp_path / "zarr.json").write_text("{}")
    with pytest.raises(UserError, match="say with -o"):
        write_report(replace(report, folder=tmp_path))


def test_elements_escape_text_and_attributes() -> None:
    from xml.etree.ElementTree import tostring

    hostile = '"><script>&'
    text = tostring(el("p", f"<b>&\u202e{hostile}", title=hostile), "unicode", method="html")
    read = Page(text)
    assert read.elements == [("p", {"title": hostile})]
    assert "".join(read.texts["p"]) == f"<b>&\N{REPLACEMENT CHARACTER}{hostile}"
