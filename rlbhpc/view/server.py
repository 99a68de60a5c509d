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
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import numpy as np

from rlbhpc.errors import UserError
from rlbhpc.study.keys import SampleKey
from rlbhpc.verify.error_audit import Judgement, check_word, store_judgement
from rlbhpc.verify.verdict import Status
from rlbhpc.view.pages import Site, problem_page, search_page, table_page
from rlbhpc.view.run import OpenRun, Pair, Side, read_files_state

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
_CONNECTION_SECONDS: Final = 60

Query = dict[str, str]
#: The two columns of a page with a problem.
_COLUMNS: Final = ("a", "b")


class Viewer:
    """What the server answers, by page. It writes nothing but judgements."""

    def __init__(self, run: OpenRun, reader: str) -> None:
        """Show a run; judgements are stored under the name of their ``reader``."""
        self.token = secrets.token_urlsafe(24)
        self.run = run
        self._reader = reader
        self._site = Site(run.folder.resolve().name)
        self._opening = threading.Lock()

    def table(self, query: Query) -> str:
        """Return the page with all problems, of the run as it is now.

        ``query``: the parameters of the address; it may name the two sides to compare. If files
        with samples have changed, the run is opened anew; the lock keeps two requests from doing
        that at once.
        """
        with self._opening:
            if read_files_state(self.run.layout) != self.run.files_state:
                self.run = OpenRun(self.run.folder)
        run = self.run
        pair = _read_pair(run, query)
        return table_page(self._site, run, pair, run.by_difference(pair))

    def problem(self, query: Query) -> str:
        """Return the page of one problem with a response of both sides.

        ``query``: the parameters of the address. They name the problem, the two *sides* (each an
        arm at a training step), and under ``a`` and ``b`` the number of the sample to show in each
        column, by default the first right one. A blind page shows the sides in a random order
        without their names.
        """
        run = self.run
        pair = _read_pair(run, query)
        problem = _read_problem(run, query)
        blind_pair = self._blind_pair(pair, query)
        responses = []
        for column, side in zip(_COLUMNS, blind_pair or pair, strict=True):
            if query.get(column):
                sample: int | None = _parse_number(query[column])
            else:
                sample = first_sample(run, problem, side)
            responses.append([] if sample is None else run.read(problem, side, {sample}))
        return problem_page(self._site, run, pair, problem, responses, blind_pair)

    def search(self, query: Query) -> str:
        """Return the page with what a search found.

        ``query``: the parameters of the address: the words, where to look for them, the sides to
        compare, and the number of the problem to begin with.
        """
        run = self.run
        pair = _read_pair(run, query)
        words = query.get("text", "")
        where = query.get("where", "question")
        first_problem = _parse_number(query.get("first", "0"))
        hits, next_problem = run.search(words, where, pair, first_problem)
        return search_page(self._site, run, pair, words, where, hits, next_problem)

    def judge(self, query: Query) -> str:
        """Store what a reader says of a response (right, wrong or unclear), and return that word.

        ``query``: the parameters of the request. ``place`` is the column of the page that shows the
        response, ``a`` or ``b``. On a blind page the sides stand in a random order, so the column
        is looked up in the order that was shown. A *side* is an arm at a training step.
        """
        run = self.run
        pair = _read_pair(run, query)
        shown_pair = self._blind_pair(pair, query) or pair
        column = query.get("place", "")
        if column not in _COLUMNS:
            raise UserError(f"{column!r} is no side of a page; there are a and b")
        side = shown_pair[_COLUMNS.index(column)]
        problem = _read_problem(run, query)
        sample = _parse_number(query.get("sample", ""))
        word = check_word("judge", query.get("word"))
        if not run.read(problem, side, {sample}):
            raise UserError(f"{problem}: no sample {sample} of {side.label}")
        key = SampleKey(side.arm, side.step, problem, sample)
        store_judgement(run.layout, Judgement(key, word, self._reader))
        return word

    def _blind_pair(self, pair: Pair, query: Query) -> Pair | None:
        """The sides in the order in which they are shown without their names, if that is asked."""
        if query.get("blind") != "1":
            return None
        return pair.shuffle(query.get("problem", ""), secret=self.token)


def _read_pair(run: OpenRun, query: Query) -> Pair:
    """The sides that a query names; those of the run where it names none."""
    left = run.side(query["left"]) if query.get("left") else run.pair.left
    right = run.side(query["right"]) if query.get("right") else run.pair.right
    return Pair(left, right)


def _read_problem(run: OpenRun, query: Query) -> str:
    problem = query.get("problem", "")
    if problem not in run.strata:
        raise UserError(f"no problem {problem!r} in this run")
    return problem


def _parse_number(text: str) -> int:
    max_digits = 9
    if not (text.isascii() and text.isdigit()):
        raise UserError(f"{text!r} is no number of a sample or problem")
    return int(text[:max_digits])


def first_sample(run: OpenRun, problem: str, side: Side) -> int | None:
    """The first right sample of a problem, else its first; None where there is none."""
    verdicts = run.verdicts(problem, side)
    for is_candidate in (verdicts == Status.RIGHT, verdicts != Status.MISSING):
        if is_candidate.any():
            return int(np.argmax(is_candidate))
    return None


class _Handler(BaseHTTPRequestHandler):
    """One request: who asks is checked before anything is looked at."""

    protocol_version = "HTTP/1.1"
    timeout = _CONNECTION_SECONDS
    server: Server

    def do_GET(self) -> None:
        """Give a page."""
        viewer = self.server.viewer
        pages = {"": viewer.table, "problem": viewer.problem, "search": viewer.search}
        self._answer(pages, "text/html")

    def do_POST(self) -> None:
        """Take a judgement."""
        # The body isn't read, so the next request couldn't be found behind it.
        self.close_connection = True
        self._answer({"judge": self.server.viewer.judge}, "text/plain")

    def _answer(self, pages: Mapping[str, Callable[[Query], str]], content_type: str) -> None:
        """Send the page that the address names: an empty 404 to strangers, errors as a text.

        ``pages``: by name, functions that take the parameters of the address and return the page.
        Every address begins with the server's secret token.
        """
        address = urlsplit(self.path)
        page_name = address.path.removeprefix(f"/{self.server.viewer.token}/")
        if not self._is_allowed(address.path) or page_name not in pages:
            self._send(HTTPStatus.NOT_FOUND, content_type, "")
            return
        query = dict(parse_qsl(address.query))
        try:
            self._send(HTTPStatus.OK, content_type, pages[page_name](query))
        except UserError as error:
            self._send(HTTPStatus.BAD_REQUEST, "text/plain", str(error))
        except (OSError, MemoryError) as error:
            log.debug("refused", exc_info=True)
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"try again: {error}")

    def _is_allowed(self, path: str) -> bool:
        """Return whether a request has the token, and comes from a page of this very server.

        The token is compared in constant time. A page elsewhere, whose name was bound to this
        machine, would send another ``Host`` or ``Origin``.
        """
        expected_start = f"/{self.server.viewer.token}/".encode()
        path_start = path.encode(errors="replace")[: len(expected_start)]
        has_token = hmac.compare_digest(path_start, expected_start)
        host = self.headers.get("Host", "")
        is_own_host = urlsplit(f"//{host}").hostname in _HOSTS
        is_same_origin = self.headers.get("Origin") in {None, f"http://{host}"}
        return has_token and is_own_host and is_same_origin

    def _send(self, status: HTTPStatus, content_type: str, text: str) -> None:
        """Send a whole response: status, headers and text."""
        body = text.encode(errors="replace")
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{content_type}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """Hide which versions of Python and the server these are."""
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
        """Print errors, but not that a browser has gone away in the middle."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def serve(run: OpenRun, port: int = 0) -> Server:
    """Open a server that shows a run to this user; the caller starts it by ``serve_forever``.

    ``port``: 0 takes a free one. One that is taken or forbidden is an error of the user.
    """
    reader = os.environ.get("USER", "")
    try:
        return Server(Viewer(run, reader), port)
    except OSError as error:
        if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
            raise
        raise UserError(f"--port {port}: {error.strerror}; leave it out for a free one") from None
