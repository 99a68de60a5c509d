"""Who gets a page, and what the server writes."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from rlbhpc.errors import UserError
from rlbhpc.study.keys import SampleKey
from rlbhpc.study.study import Study
from rlbhpc.verify.error_audit import load_judgements
from rlbhpc.view.run import OpenRun
from rlbhpc.view.server import Server, serve
from tests.report.made import SET, put_samples
from tests.view.looked import Page, make_run

PAIR = {"left": "base:0", "right": "rl:100"}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return make_run(tmp_path_factory.mktemp("served") / "run")


@pytest.fixture
def server(study: Study, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("USER", "ann")
    with serve(OpenRun(study.layout.root)) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield server
        server.shutdown()


class Reply:
    """What the server answered."""

    def __init__(self, reply: http.client.HTTPResponse) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self.text = reply.read().decode()


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request(method, path, headers=headers)
    reply = Reply(connection.getresponse())
    connection.close()
    return reply


def page(server: Server, name: str = "", method: str = "GET", **query: object) -> Reply:
    return ask(server, f"/{server.viewer.token}/{name}?{urlencode(query)}", method)


def test_only_who_knows_the_token_gets_a_page(server: Server) -> None:
    token = server.viewer.token
    assert len(token) >= 30 and server.server_address[0] == "127.0.0.1"
    assert page(server).status == 200
    for path in (
        "/", "", "/problem", f"/{token[:-1]}/", f"/{token}x/", f"/x/{token}/",
        f"/{token}", f"/{token}/../etc/passwd", f"/{token}/page.js", f"/{token}/nothing",
        f"/?{token}", "/%2e%2e/",
    ):  # fmt: skip
        reply = ask(server, path)
        assert (reply.status, reply.text) == (404, ""), path


def test_another_host_name_gets_nothing(server: Server) -> None:
    """A page elsewhere whose name was bound to this address is of another origin."""
    path = f"/{server.viewer.token}/"
    for host, status in {
        "127.0.0.1": 200, "localhost:8000": 200, "127.0.0.1:1": 200, "evil.example": 404,
        "127.0.0.1.evil.example": 404, "evil.example:80": 404, "": 404, "localhost@evil": 404,
    }.items():  # fmt: skip
        assert ask(server, path, Host=host).status == status, host
    judge = f"{path}judge?{urlencode({'problem': f'{SET}/0', 'sample': 0, 'word': 'right'})}"
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
        assert ask(server, judge, "POST", Origin=origin).status == 404
    assert not load_judgements(server.viewer.run.layout)


def test_every_page_is_closed_to_others(server: Server) -> None:
    for name, query in (
        ("", {}), ("problem", {"problem": f"{SET}/0"}), ("search", {"text": "plainly"})
    ):  # fmt: skip
        reply = page(server, name, **query)
        assert reply.status == 200
        assert reply.headers["Referrer-Policy"] == "no-referrer"
        assert reply.headers["X-Frame-Options"] == "DENY"
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in reply.headers
        policy = Page(reply.text).values("content")
        assert any("default-src 'none'" in value and "trusted-types" in value for value in policy)
        assert server.viewer.token not in reply.text


def test_the_table_has_the_problems_by_what_differs(server: Server) -> None:
    parsed = Page(page(server).text)
    rows = dict(zip(parsed.values("data-problem"), parsed.values("data-marks"), strict=True))
    assert list(rows)[:2] == [f"{SET}/0", f"{SET}/1"]
    marks = [set(rows[f"{SET}/{i}"].split(",")) - {"cut", ""} for i in range(5)]
    assert marks == [{"lost"}, {"gained"}, {"thin"}, {"wrong"}, set()]
    assert "cut" in rows[f"{SET}/3"].split(","), "one wrong sample of four reached the limit"
    assert "100.0" in parsed.values("data-value")


def test_a_problem_shows_both_sides_with_the_reference(server: Server) -> None:
    reply = page(server, "problem", problem=f"{SET}/0", **PAIR)
    parsed = Page(reply.text)
    assert parsed.tags["article"] == 2
    assert parsed.values("data-codes") == ["1111", "0000"]
    for text in ("Reference answer:", ", plainly?", "try 0: the answer is True", "seed", "tokens"):
        assert text in parsed.text
    chosen = Page(page(server, "problem", problem=f"{SET}/0", b=3, **PAIR).text)
    assert chosen.values("data-sample") == ["0", "3"]


def test_a_blind_page_names_no_arm_and_stores_the_right_one(server: Server) -> None:
    orders = set()
    for i in range(5):
        query = {"problem": f"{SET}/{i}", "blind": 1, **PAIR}
        parsed = Page(page(server, "problem", **query).text)
        sections = [attrs for tag, attrs in parsed.elements if tag == "section"]
        assert [attrs["aria-label"] for attrs in sections] == ["A", "B"]
        assert "journals/" not in parsed.text
        orders.add(tuple(parsed.values("data-codes")))
        stored = page(server, "judge", "POST", place="a", sample=2, word="unclear", **query)
        assert stored.status == 200
        left = parsed.values("data-codes")[0]
        judged = load_judgements(server.viewer.run.layout)
        arms = {key.arm for key in judged if key.problem == f"{SET}/{i}"}
        if i in {0, 1}:  # where the verdicts tell the arms apart
            assert arms == {"base" if left == ("1111", "0000")[i] else "rl"}
    assert orders


def test_a_judgement_is_kept_and_nothing_else_is_written(server: Server, study: Study) -> None:
    def files() -> dict[str, bytes]:
        root = study.layout.root
        return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    before = files()
    query = {"problem": f"{SET}/4", "place": "b", "sample": 1, **PAIR}
    for bad in (
        {"word": "yes"}, {"sample": "x"}, {"sample": -1}, {"sample": 99}, {"problem": "no/0"},
        {"left": "no:0"}, {"place": "c"},
    ):  # fmt: skip
        assert page(server, "judge", "POST", **{"word": "wrong", **query, **bad}).status == 400
    assert page(server, "judge", word="wrong", **query).status == 404, "only by POST"
    page(server), page(server, "problem", **query), page(server, "search", text="1")
    assert files() == before
    assert page(server, "judge", "POST", word="wrong", **query).status == 200
    changed = {name for name, content in files().items() if before.get(name) != content}
    assert changed == {str(study.layout.judgements)}
    judged = load_judgements(study.layout)[SampleKey("rl", 100, f"{SET}/4", 1)]
    assert (judged.word, judged.reader) == ("wrong", "ann")
    shown = Page(page(server, "problem", b=1, **query).text)
    pressed = [attrs for _, attrs in shown.elements if attrs.get("aria-pressed") == "true"]
    assert [attrs["data-word"] for attrs in pressed] == ["wrong"]


def test_a_search_finds_words_in_any_case(server: Server) -> None:
    for where, words, hits in (
        ("question", "PLAINLY", 5), ("answer", "31", 2), ("response", "TRY 3:", 10),
        ("response", "nowhere", 0), ("response", ".*", 0),
    ):  # fmt: skip
        parsed = Page(page(server, "search", text=words, where=where, **PAIR).text)
        assert parsed.tags["mark"] == hits, (where, words)


def test_what_is_wrong_in_an_address_is_told(server: Server) -> None:
    for query in ({"problem": "math/99"}, {"problem": f"{SET}/0", "a": "x"}, {"left": "rl:7"}):
        reply = page(server, "problem", **query)
        assert reply.status == 400 and "Traceback" not in reply.text
        assert reply.headers["Content-Type"].startswith("text/plain")


def test_a_run_that_grows_is_seen_with_the_next_table(tmp_path: Path) -> None:
    study = make_run(tmp_path / "run")
    run = OpenRun(study.layout.root)
    with serve(run) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        before = Page(page(server).text)
        put_samples(study, "rl", [[True] * 4] * 5, 0, model="tuned")
        after = Page(page(server).text)
        server.shutdown()
    options = [parsed.values("value").count("rl:0") for parsed in (before, after)]
    assert options == [0, 2]


def test_a_port_that_is_taken_is_named(study: Study) -> None:
    run = OpenRun(study.layout.root)
    with serve(run) as first, pytest.raises(UserError, match=str(first.server_port)):
        serve(run, first.server_port)
