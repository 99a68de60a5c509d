"""Debug lines of one call: on the screen with ``--verbose``, and in a file of the run it works on.

Modules log to ``logging.getLogger(__name__)`` as usual. What comes before the run's folder is known
waits in memory. Environment variables, and so keys, are never logged.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Final

# A file takes no more than this, so that the logs of a large array fit any quota.
MOST_BYTES: Final = 1 << 20
FORMAT: Final = "%(asctime)s %(name)s: %(message)s"

_root = logging.getLogger("rlbhpc")


class _Lines(logging.Formatter):
    """Tracebacks without marks below the lines: to place those, Python compiles each line anew."""

    def formatException(self, ei: Any) -> str:  # noqa: N802, the library's name
        whole = traceback.TracebackException(*ei, compact=True)
        part: traceback.TracebackException | None = whole
        while part is not None:
            for frame in part.stack:
                frame.colno = None
            part = part.__cause__ or part.__context__
        return "".join(whole.format()).rstrip("\n")


class DebugLog(logging.Handler):
    """Where the lines of one call go while the block is open.

    ``screen`` is the level from which on they are shown on stderr.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(_Lines(FORMAT))
        self.screen = logging.WARNING
        self._waiting = b""
        self._path: Path | None = None
        self._fd = -1
        self._written = 0

    def __enter__(self) -> DebugLog:
        """Take the package's lines."""
        _root.addHandler(self)
        _root.setLevel(logging.DEBUG)
        _root.propagate = False  # libraries set the root logger up as they like
        return self

    def __exit__(self, *exc: object) -> None:
        _root.removeHandler(self)
        if not any(isinstance(handler, DebugLog) for handler in _root.handlers):
            _root.setLevel(logging.NOTSET)
            _root.propagate = True
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line to whatever wants it; a log must never be what ends the work."""
        line = self.format(record) + "\n"
        if record.levelno >= self.screen:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(line)
        data = line.encode("utf-8", "backslashreplace")
        if self._path is None:
            self._waiting = (self._waiting + data)[-MOST_BYTES:]
            return
        self._write(data)

    def keep(self, folder: Path, verb: str) -> None:
        """Write to a new file in ``folder`` from now on, beginning with what came before."""
        if self._path is not None or os.environ.get("RANK", "0") != "0":
            return
        host = platform.node().partition(".")[0]
        self._path = folder / f"{verb}-{time.strftime('%Y%m%dT%H%M%S')}-{host}-{os.getpid()}.log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(
                self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666
            )
        except OSError:
            return  # a folder that cannot be written to can still be read
        self._write(self._waiting)

    def drop(self) -> None:
        """Remove the file: the call found nothing to do."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _write(self, data: bytes) -> None:
        if self._fd < 0 or self._written > MOST_BYTES:
            return
        self._written += len(data)
        if self._written > MOST_BYTES:
            data = b"the log is full; no more is kept\n"
        try:
            os.write(self._fd, data)
        except OSError:
            self._written = MOST_BYTES + 1


def keep(folder: Path, verb: str, beside: Path | None = None) -> None:
    """Keep the lines of the call that is under way in ``folder``.

    ``beside`` is what a run has: where it is not, the user named another folder by mistake.
    """
    for handler in _root.handlers[-1:]:
        if isinstance(handler, DebugLog) and (beside is None or beside.exists()):
            handler.keep(folder, verb)
