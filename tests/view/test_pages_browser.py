"""The pages in a real browser: by keys alone, at both widths, light and dark, whatever is shown."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rlbhpc.store.samples import StoredSample
from rlbhpc.verify.error_audit import load_judgements
from rlbhpc.view.pages import Site, problem_page, write_copy
from rlbhpc.view.run import OpenRun
from rlbhpc.view.server import serve
from tests.report.browser import Browser, browser
from tests.report.made import SET
from tests.report.test_browser import CONTRAST, SPILLED
from tests.view.hostile import texts
from tests.view.looked import make_run

pytestmark = pytest.mark.slow

PATH = "location.pathname.split('/').pop() + location.search"


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> OpenRun:
    study = make_run(tmp_path_factory.mktemp("seen") / "run")
    return OpenRun(study.layout.root)


@pytest.fixture(scope="module")
def address(run: OpenRun) -> Iterator[str]:
    with serve(run) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield f"http://127.0.0.1:{server.server_port}/{server.viewer.token}/"
        server.shutdown()


@pytest.mark.parametrize("name", ["", f"problem?problem={SET}/0", "search?text=plainly"])
def test_nothing_spills_at_any_width(window: Browser, address: str, name: str) -> None:
    for width in (1400, 400):
        for dark in (False, True):
            window.open(address + name, width, dark=dark)
            assert window.complaints == []
            assert window.ask("document.documentElement.scrollWidth") <= width
            assert window.ask(SPILLED) == []
            assert window.ask(CONTRAST) >= 4.5


def test_keys_are_enough(window: Browser, address: str, run: OpenRun) -> None:
    window.open(address, 1400)
    for _ in range(2):
        window.press("j", "j")
    assert window.ask("document.activeElement.textContent") == f"{SET}/1"
    window.follow("Enter", "\r")
    assert f"problem={SET}%2F1" in window.ask(PATH)
    window.follow("j", "j")
    assert "b=1" in window.ask(PATH)
    window.press("w", "w")
    window.wait_until("document.querySelector('[aria-pressed=true]') !== null")
    pressed = "[...document.querySelectorAll('[aria-pressed=true]')].map(e => e.dataset.word)"
    assert window.ask(pressed) == ["wrong"]
    assert [(key.arm, key.sample) for key in load_judgements(run.layout)] == [("rl", 1)]
    window.press("?", "?")
    assert window.ask("document.querySelector('dialog').open")
    window.press("Escape")
    assert not window.ask("document.querySelector('dialog').open")
    window.follow("n", "n")
    assert "%2F1" not in window.ask(PATH)
    window.follow("t", "t")
    window.press("/", "/")
    assert window.ask("document.activeElement.type") == "search"


def test_filters_and_a_sent_link(window: Browser, address: str) -> None:
    window.open(address, 1400)
    window.ask("document.querySelector('[data-mark=gained]').click()")
    shown = "[...document.querySelectorAll('tbody tr:not([hidden])')].map(e => e.dataset.problem)"
    assert window.ask(shown) == [f"{SET}/1"]
    window.arrive(f"location.hash = '#problem={SET}/4&sample=2'")
    chosen = "[...document.querySelectorAll('article')].map(e => e.dataset.sample)"
    assert window.ask("document.querySelector('h1').textContent") == f"{SET}/4"
    assert window.ask(chosen) == ["2", "2"]


def test_no_hostile_text_acts(window: Browser, run: OpenRun, tmp_path: Path) -> None:
    found = run.read(f"{SET}/0", run.pair.left, {0})[0].sample
    every = [
        StoredSample(replace(found, text=text, answer=text, rule=text), text) for text in texts()
    ]
    page = problem_page(Site("x", is_copy=True), run, run.pair, f"{SET}/0", [every, every[:1]])
    path = tmp_path / "hostile.html"
    path.write_text(page, encoding="utf-8")
    window.open(path, 1400)
    window.ask("document.querySelectorAll('details').forEach(fold => fold.open = true)")
    assert window.complaints == []
    assert window.requested == [path.as_uri()]
    assert window.ask("window.ran") is None
    assert window.ask("document.querySelectorAll('article').length") == len(every) + 1
    assert window.ask("document.scripts.length") == 1


def test_a_copy_opens_from_the_disk(window: Browser, run: OpenRun, tmp_path: Path) -> None:
    pages = write_copy(run, tmp_path / "copy")
    assert pages[0].name == "index.html" and len(pages) == 3
    for page in pages:
        window.open(page, 1400)
        assert window.complaints == []
    assert window.ask("document.querySelectorAll('article').length") >= 2
    assert window.ask("document.querySelectorAll('form, .judge, .strip').length") == 0
