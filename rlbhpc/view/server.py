"""Serve the pages of a run to the user who started it, and to nobody else on the node.

Any user of a node can connect to a port of its loopback. So every address begins with a random
token; what comes without it, or under another host's name (a page elsewhere whose name was bound to
127.0.0.1), gets an empty 404. The standard library's server is enough: it listens on the loopback
only, serves one person, and has no files to give.
"""

from __future__ import annotations

import errno
import hmac
import logging
import os
import secrets
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import numpy as np

from rlbhpc.errors import UserError
from rlbhpc.study.keys import SampleKey
from rlbhpc.verify.error_audit import WORDS, Judgement, store_judgement
from rlbhpc.verify.verdict import Status
from rlbhpc.view.pages import Site, problem_page, search_page, table_page
from rlbhpc.view.run import OpenRun, Pair, Side, state_of

log = logging.getLogger(__name__)

LOOPBACK: Final = "127.0.0.1"
_HOSTS: Final = {LOOPBACK, "localhost"}
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_PATIENCE_SECONDS: Final = 60

Query = dict[str, str]


class Viewer:
    """What the server answers, by page. It writes nothing but judgements."""

    def __init__(self, run: OpenRun, reader: str) -> None:
        self.token = secrets.token_urlsafe(24)
        self.run = run
        self._reader = reader
        self._site = Site(run.folder.resolve().name)
        self._opening = threading.Lock()

    def table(self, query: Query) -> str:
        """The table of problems, of the run as it is now."""
        with self._opening:
            if state_of(self.run.layout) != self.run.state:
                self.run = OpenRun(self.run.folder)
        run = self.run
        pair = _pair(run, query)
        return table_page(self._site, run, pair, run.by_difference(pair))

    def problem(self, query: Query) -> str:
        """One problem with a response of both sides."""
        run = self.run
        pair = _pair(run, query)
        problem = _problem(run, query)
        hidden = self._hidden(pair, query)
        responses = []
        for place, side in zip("ab", hidden or pair, strict=True):
            number = query.get(place)
            sample = _number(number) if number else first_sample(run, problem, side)
            responses.append([] if sample is None else run.read(problem, side, {sample}))
        return problem_page(self._site, run, pair, problem, responses, hidden)

    def search(self, query: Query) -> str:
        """What a search found."""
        run = self.run
        pair = _pair(run, query)
        words, where = query.get("text", ""), query.get("where", "question")
        hits, following = run.search(words, where, pair, _number(query.get("first", "0")))
        return search_page(self._site, run, pair, words, where, hits, following)

    def judge(self, query: Query) -> str:
        """Store what a reader says of a response."""
        run = self.run
        pair = _pair(run, query)
        sides = dict(zip("ab", self._hidden(pair, query) or pair, strict=True))
        place = query.get("place", "")
        if place not in sides:
            raise UserError(f"{place!r} is no side of a page; there are a and b")
        side = sides[place]
        problem, word = _problem(run, query), query.get("word", "")
        number = _number(query.get("sample", ""))
        if word not in WORDS:
            raise UserError(f"{word!r}: allowed are {', '.join(WORDS)}")
        if not run.read(problem, side, {number}):
            raise UserError(f"{problem}: no sample {number} of {side.label}")
        key = SampleKey(side.arm, side.step, problem, number)
        store_judgement(run.layout, Judgement(key, word, self._reader))
        return word

    def _hidden(self, pair: Pair, query: Query) -> Pair | None:
        """The sides in the order in which they are shown without their names, if that is asked."""
        if query.get("blind") != "1":
            return None
        return pair.hidden(query.get("problem", ""), self.token)


def _pair(run: OpenRun, query: Query) -> Pair:
    sides = {name: run.side(query[name]) for name in Pair._fields if query.get(name)}
    return run.pair._replace(**sides)


def _problem(run: OpenRun, query: Query) -> str:
    problem = query.get("problem", "")
    if problem not in run.strata:
        raise UserError(f"no problem {problem!r} in this run")
    return problem


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise UserError(f"{text!r} is no number of a sample or problem")
    return int(text[:9])


def first_sample(run: OpenRun, problem: str, side: Side) -> int | None:
    """The first right sample of a problem, else its first; None where there is none."""
    verdicts = run.verdicts(problem, side)
    for chosen in (verdicts == Status.RIGHT, verdicts != Status.MISSING):
        if chosen.any():
            return int(np.argmax(chosen))
    return None


class _Handler(BaseHTTPRequestHandler):
    """One request: who asks is checked before anything is looked at."""

    protocol_version = "HTTP/1.1"
    timeout = _PATIENCE_SECONDS
    server: Server

    def do_GET(self) -> None:
        """Give a page."""
        viewer = self.server.viewer
        pages = {"": viewer.table, "problem": viewer.problem, "search": viewer.search}
        self._answer(pages, "text/html")

    def do_POST(self) -> None:
        """Take a judgement."""
        self.close_connection = True  # what a body would hold is not read
        self._answer({"judge": self.server.viewer.judge}, "text/plain")

    def _answer(self, pages: dict[str, Any], kind: str) -> None:
        address = urlsplit(self.path)
        page = pages.get(address.path.removeprefix(f"/{self.server.viewer.token}/"))
        if not self._is_ours(address.path) or page is None:
            self._send(HTTPStatus.NOT_FOUND, kind, "")
            return
        query = dict(parse_qsl(address.query))
        try:
            self._send(HTTPStatus.OK, kind, page(query))
        except UserError as error:
            self._send(HTTPStatus.BAD_REQUEST, "text/plain", str(error))
        except (OSError, MemoryError) as error:
            log.debug("refused", exc_info=True)
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"try again: {error}")

    def _is_ours(self, path: str) -> bool:
        """Whether the token is right, and neither name of host nor origin are those of others."""
        start = f"/{self.server.viewer.token}/".encode()
        given = path.encode(errors="replace")[: len(start)]
        host = self.headers.get("Host", "")
        origin = self.headers.get("Origin")
        is_named_so = urlsplit(f"//{host}").hostname in _HOSTS
        is_same_origin = origin in {None, f"http://{host}"}
        return hmac.compare_digest(given, start) and is_named_so and is_same_origin

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode(errors="replace")
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """Say nothing of versions to those who only knock."""
        return "rlbhpc"

    def log_message(self, *args: Any) -> None:
        """Keep the lines, which hold the token, out of every log."""


class Server(ThreadingHTTPServer):
    """Listens on the loopback for one viewer."""

    daemon_threads = True

    def __init__(self, viewer: Viewer, port: int) -> None:
        self.viewer = viewer
        super().__init__((LOOPBACK, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle is no error worth a line."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def serve(run: OpenRun, port: int = 0) -> Server:
    """Open a server of a run; ``port``: 0 takes a free one. It answers from ``serve_forever``."""
    reader = os.environ.get("USER", "")
    try:
        return Server(Viewer(run, reader), port)
    except OSError as error:
        if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
            raise
        raise UserError(f"--port {port}: {error.strerror}; leave it out for a free one") from None
