"""Ask a server until it answers: one connection, back-off with jitter, and what never to retry.

The standard library's client is enough: a request waits for its answer for seconds to minutes, so a
thread with a connection of its own serves one at a time, and a login node needs nothing installed.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import random
import socket
import threading
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from rlbhpc import __version__
from rlbhpc.errors import UserError

log = logging.getLogger(__name__)

# What passes by itself: busy, too many requests, and whatever a server or proxy stumbled over.
PASSING: Final = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529))
# What is wrong with every request alike, so that going on makes no sense.
FOR_GOOD: Final = {
    401: "it does not accept the key",
    403: "the key may not use this model",
    404: "there is no such address or model",
}
FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 60.0
SHOWN: Final = 300


class RefusedError(Exception):
    """The server will not answer this request, or did not in all tries; the reason is its text."""


class StoppedError(Exception):
    """The client was stopped while it waited."""


class Client:
    """One connection to a server, which opens itself again after it was closed.

    ``url`` goes up to and with ``/v1``. ``key`` is sent as a bearer token and never enters a
    message. A try is given up after ``timeout`` seconds without a byte. ``stop`` is set from
    outside and ends waiting.
    """

    def __init__(
        self, url: str, key: str | None, tries: int, timeout: float, stop: threading.Event
    ) -> None:
        self._url = url.rstrip("/")
        self._key = key
        self._tries = tries
        self._stop = stop
        parts = urlsplit(self._url)
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        port = parts.port or kind.default_port
        self._connection = kind(parts.hostname or "", port, timeout=timeout)
        self._path = parts.path

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request until it is answered, and return the answer."""
        data = json.dumps(body).encode()
        reason = ""
        for attempt in range(self._tries):
            try:
                status, headers, answer = self._once(path, data)
            except (OSError, http.client.HTTPException) as error:
                # Refused, reset, timed out, or closed before the whole answer had come.
                reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                self.close()
                self._pause(attempt, reason, None)
                continue
            reply = None
            with contextlib.suppress(ValueError, RecursionError):  # as after a cut connection
                reply = json.loads(answer)
            if status == 200 and isinstance(reply, dict):
                return reply
            reason = self._reason(status, answer)
            if status in FOR_GOOD:
                raise UserError(f"endpoint {self._url}: {FOR_GOOD[status]} (status {status})")
            if status != 200 and status not in PASSING:
                raise RefusedError(reason)
            self._pause(attempt, reason, headers.get("Retry-After"))
        raise RefusedError(f"no answer in {self._tries} tries; the last: {reason}")

    def stop(self) -> None:
        """End a request that is being waited for, from another thread."""
        sock = self._connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def _once(self, path: str, data: bytes) -> tuple[int, http.client.HTTPMessage, bytes]:
        if self._stop.is_set():
            raise StoppedError
        headers = {"Content-Type": "application/json", "User-Agent": f"rlbhpc/{__version__}"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        self._connection.request("POST", f"{self._path}{path}", data, headers)
        response = self._connection.getresponse()
        return response.status, response.headers, response.read()

    def _pause(self, attempt: int, reason: str, retry_after: str | None) -> None:
        """Wait before the next try: longer each time, and not in step with other clients."""
        longest = min(LONGEST_DELAY, FIRST_DELAY * 2.0**attempt)
        delay = random.uniform(0, longest)
        if retry_after is not None and retry_after.strip().isdigit():
            delay += min(float(retry_after), LONGEST_DELAY)
        log.debug("try %d: %s; the next in %.1f s", attempt + 1, reason, delay)
        if attempt + 1 < self._tries and self._stop.wait(delay):
            raise StoppedError

    def _reason(self, status: int, answer: bytes) -> str:
        text = " ".join(answer.decode("utf-8", "replace").split())
        if self._key is not None:
            text = text.replace(self._key, "[key]")
        return f"status {status}: {text[:SHOWN]}"


def key_of(variable: str | None) -> str | None:
    """Read the key from the environment, the only place where it is looked for."""
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UserError(f"endpoint: the environment variable {variable} is not set; export the key")
    if not key.isascii() or not key.isprintable():
        raise UserError(f"endpoint: {variable} holds characters that no key has; export it again")
    return key
