"""The report in a real browser: nothing spills over, everything is drawn, keys are enough."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rlbhpc.report.aspect import Report
from rlbhpc.report.aspects.robustness import lay_beside
from rlbhpc.report.gather import gather
from rlbhpc.report.write import write_report
from tests.report.browser import Browser, browser
from tests.report.rich import make_regraded, make_rich
from tests.report.scripts import with_scripts

pytestmark = pytest.mark.slow

# Elements that reach beyond the window and whose part there cannot be scrolled into view.
SPILLED = """[...document.querySelectorAll("body *")].filter(e =>
    e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, pre, svg")
).map(e => e.tagName + "." + e.className)"""
# Plots without a line, or of which a text lies outside of the window.
EMPTY = """[...document.querySelectorAll("svg.plot")].filter(svg =>
    svg.getBoundingClientRect().height < 50 || !svg.querySelector(".data path")
    || [...svg.querySelectorAll("text")].some(text => {
        const box = text.getBoundingClientRect();
        return box.left < 0 || box.right > innerWidth + 1;
    })
).length"""
OPEN = "document.querySelectorAll('details').forEach(fold => fold.open = true)"
# The least contrast of text to the page, by the formula of WCAG 2 (4.5 is legible).
CONTRAST = """(() => {
    const light = c => c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
        .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
    const paper = light(getComputedStyle(document.body).backgroundColor);
    return Math.min(...[...document.querySelectorAll("p, td, th, h1, h2, h3, li, figcaption, a")]
        .map(e => light(getComputedStyle(e).color))
        .map(ink => (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05)));
})()"""


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(scope="module")
def html(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(report, tmp_path_factory.mktemp("page"))[0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run that has something for every section."""
    folder = tmp_path_factory.mktemp("whole")
    make_rich(folder / "run")
    found = with_scripts(gather(folder / "run"))
    lay_beside(found, make_regraded(folder / "other", folder / "run"))
    return write_report(found, folder / "page")[0]


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1400, 400])
def test_everything_is_shown_and_nothing_spills(
    window: Browser, whole: Path, width: int, dark: bool, script: bool
) -> None:
    window.open(whole, width, dark=dark, script=script)
    window.ask(OPEN)
    assert window.complaints == []
    assert window.requested == [whole.as_uri()], "the page loads nothing"
    assert window.ask("document.documentElement.scrollWidth") <= width
    assert window.ask(SPILLED) == []
    assert window.ask("document.querySelectorAll('svg.plot').length") >= 20
    assert window.ask(EMPTY) == 0
    assert window.ask(CONTRAST) >= 4.5
    paper = window.ask("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(21, 24, 26)" if dark else "rgb(255, 255, 255)")


def test_every_part_has_its_place(window: Browser, whole: Path) -> None:
    window.open(whole, 1400)
    heads = window.ask("[...document.querySelectorAll('h3')].map(e => e.textContent)")
    for part in (
        "prompt sensitivity", "for a budget of response tokens", "for a budget of device-hours",
        "Another grader", "A checkpoint that the data chose", "what the conclusion hangs on",
    ):  # fmt: skip
        assert any(part in head for head in heads), part
    # The table of the metrics is folded, and opens.
    window.ask("document.querySelector('#methods').closest('details').open = true")
    fold = "[...document.querySelectorAll('#methods details')]"
    window.ask(f"{fold}[0].querySelector('summary').click()")
    rows = f"{fold}[0].querySelectorAll('tbody tr')"
    assert window.ask(f"{rows}.length") > 8
    assert window.ask("document.documentElement.scrollWidth") <= 1400


def test_a_pointer_finds_the_values(window: Browser, whole: Path) -> None:
    window.open(whole, 1400, script=False)
    spots = "document.querySelectorAll('svg.plot .spot')"
    assert window.ask(f"{spots}.length") > 300
    assert window.ask(f"[...{spots}].filter(e => !e.querySelector('title')).length") == 0
    # The first curve of the first figure: base at k = 1, where its table says the same.
    found = window.ask(f"{spots}[0].querySelector('title').textContent")
    row = "document.querySelector('#numbers tbody tr')"
    assert window.ask(f"{row}.cells[0].textContent") == "base"
    value = window.ask(f"{row}.cells[2].dataset.value")
    name, _, rest = found.partition(": ")
    assert name == "base" and rest.startswith("pass@k, % ") and rest.endswith(", k 1")
    assert round(float(rest.split()[2].rstrip(",")), 1) == float(value)
    # And the spot lies where the pointer would be: nothing is drawn over it.
    place = window.ask(
        f"(() => {{ const e = {spots}[3]; e.scrollIntoView(); const b = e.getBoundingClientRect();"
        " const x = b.x + b.width / 2, y = b.y + b.height / 2;"
        " return document.elementFromPoint(x, y).getAttribute('class'); })()"
    )
    assert place == "spot"


def test_a_problem_leads_to_its_responses(window: Browser, whole: Path) -> None:
    window.open(whole, 1400)
    window.ask(OPEN)
    link = "document.querySelector('#comparisons td a')"
    problem = window.ask(f"{link}.textContent")
    window.ask(f"{link}.focus()")
    window.press("Enter", "\r")
    # The link is followed after the key; two frames later it has been.
    window.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    case = "document.querySelector('details:has(> div:target)')"
    assert window.ask(f"{case}.querySelector('summary').textContent").startswith(f"{problem}:")
    assert window.ask(f"{case}.open")


def test_what_a_model_wrote_stays_text(window: Browser, html: Path) -> None:
    window.open(html, 1400)
    assert "<script>alert('x')</script>" in window.ask("document.body.textContent")
    assert window.ask("document.querySelectorAll('pre script, pre img').length") == 0
    assert window.ask("document.scripts.length") == 1
    # Even a script that got into the page would not run.
    window.ask(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        " document.body.append(s); })()"
    )
    assert window.ask("window.ran") is None


def test_keys_are_enough(window: Browser, html: Path) -> None:
    window.open(html, 400)
    window.ask(OPEN)
    seen: list[str] = []
    for _ in range(400):
        window.press("Tab")
        seen.append(window.ask("document.activeElement.tagName"))
        if seen[-1] == "BODY":
            break
        ring = window.ask("getComputedStyle(document.activeElement).outlineStyle")
        assert ring != "none", f"focus on {seen[-1]} cannot be seen"
    assert {"A", "BUTTON", "DIV", "SUMMARY"} <= set(seen)
    order = (
        "[...document.querySelector('table.sortable tbody').rows].map(r => r.cells[0].textContent)"
    )
    before = window.ask(order)
    window.ask("document.querySelector('table.sortable th button').focus()")
    for expected in (sorted(before), sorted(before, reverse=True)):
        window.press("Enter", "\r")
        assert window.ask(order) == expected
    window.ask("document.querySelector('summary').focus()")
    window.press("Enter", "\r")
    assert not window.ask("document.querySelector('details').open")
    window.ask(OPEN)
    # A region that is wider than the window scrolls by the arrow keys once it has the focus.
    wide = "[...document.querySelectorAll('.scroll')].find(e => e.scrollWidth > e.clientWidth)"
    window.ask(f"(window.wide = {wide}).focus()")
    window.press("ArrowRight")
    window.ask("new Promise(done => setTimeout(done, 500))")
    assert window.ask("wide.scrollLeft") > 0


def test_a_printed_page_shows_everything(window: Browser, html: Path) -> None:
    window.open(html, 1400)
    window.send("Emulation.setEmulatedMedia", media="print")
    assert window.ask("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert window.ask("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
    # What is folded on the screen is open on paper.
    fold = "document.querySelector('#methods p')"
    assert window.ask(f"{fold}.getBoundingClientRect().height") > 0
    pdf = window.send("Page.printToPDF", transferMode="ReturnAsBase64")["data"]
    assert len(pdf) > 50_000
    window.send("Emulation.setEmulatedMedia", media="")


def test_a_narrow_matrix_names_the_set_of_each_cell(window: Browser, whole: Path) -> None:
    cell = "document.querySelector('.matrix td')"
    window.open(whole, 400)
    assert window.ask(f"getComputedStyle({cell}, '::before').content") == '"math"'
    window.open(whole, 1400)
    assert window.ask(f"getComputedStyle({cell}, '::before').content") == "none"


def test_a_fold_opens_from_the_matrix(window: Browser, whole: Path) -> None:
    window.open(whole, 1400)
    window.ask("document.querySelector('.matrix a').focus()")
    window.press("Enter", "\r")
    window.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert window.ask("document.querySelector('#comparison-1').closest('details').open")


def test_letters_keep_their_size_at_any_width(window: Browser, whole: Path) -> None:
    size = (
        "[...document.querySelectorAll('#curves svg.plot text')]"
        ".map(e => e.getBoundingClientRect().height)"
    )
    heights = []
    for width in (1400, 400):
        window.open(whole, width)
        heights.append(window.ask(size))
    # A browser rounds places in the 64th of a pixel.
    assert heights[0] == pytest.approx(heights[1], abs=0.01) and min(heights[0]) > 10
