"""Debug lines of one call: on the screen with ``--verbose``, and in a file of the run it works on.

Modules log to ``logging.getLogger(__name__)`` as usual. Until the run's folder is known, lines are
kept in memory. Environment variables, and so keys, are never logged.
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
MAX_BYTES: Final = 1 << 20
FORMAT: Final = "%(asctime)s %(name)s: %(message)s"

_package_logger = logging.getLogger("rlbhpc")


class _PlainTracebackFormatter(logging.Formatter):
    """Formats tracebacks without marks below the lines.

    To place the marks, Python compiles each line anew.
    """

    def formatException(self, ei: Any) -> str:  # noqa: N802, the library's name
        """Format a traceback, and those of its causes, without marks below the lines.

        Without the number of its column, a frame gets no mark.
        """
        exception = traceback.TracebackException(*ei, compact=True)
        in_chain: traceback.TracebackException | None = exception
        while in_chain is not None:
            for frame in in_chain.stack:
                frame.colno = None
            in_chain = in_chain.__cause__ or in_chain.__context__
        return "".join(exception.format()).rstrip("\n")


class DebugLog(logging.Handler):
    """Takes all lines of the package while the block is open.

    ``screen_level``: lines of this level and above are shown on stderr.
    """

    def __init__(self) -> None:
        """Take nothing yet; lines are taken while the object is used as a context manager.

        ``_early_lines``: lines that come before it is known to which file they belong.
        """
        super().__init__()
        self.setFormatter(_PlainTracebackFormatter(FORMAT))
        self.screen_level = logging.WARNING
        self._early_lines = b""
        self._path: Path | None = None
        self._descriptor: int | None = None
        self._written_bytes = 0

    def __enter__(self) -> DebugLog:
        _package_logger.addHandler(self)
        _package_logger.setLevel(logging.DEBUG)
        # Libraries set the root logger up as they like.
        _package_logger.propagate = False
        return self

    def __exit__(self, *exc: object) -> None:
        _package_logger.removeHandler(self)
        if not any(isinstance(handler, DebugLog) for handler in _package_logger.handlers):
            _package_logger.setLevel(logging.NOTSET)
            _package_logger.propagate = True
        self._close_file()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line to the screen and the file; a failure to write it is ignored.

        Until the file is known, lines are kept in memory, the last ones if there are too many.
        """
        line = self.format(record) + "\n"
        if record.levelno >= self.screen_level:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(line)
        data = line.encode("utf-8", "backslashreplace")
        if self._path is None:
            self._early_lines = (self._early_lines + data)[-MAX_BYTES:]
        else:
            self._write(data)

    def keep(self, folder: Path, verb: str) -> None:
        """Write to a new file in ``folder`` from now on, beginning with the lines so far.

        ``verb``: name of the command, with which the file's name begins. Does nothing if there is a
        file already, or in a process of a training that is not the first.
        """
        # Of several processes of a training the first one logs.
        is_first_rank = os.environ.get("RANK", "0") == "0"
        if self._path is not None or not is_first_rank:
            return
        host = platform.node().partition(".")[0]
        self._path = folder / f"{verb}-{time.strftime('%Y%m%dT%H%M%S')}-{host}-{os.getpid()}.log"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        # A folder that can't be written to can still be read by the command.
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, flags, 0o666)
        self._write(self._early_lines)

    def drop(self) -> None:
        """Remove the file: the call found nothing to do."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _write(self, data: bytes) -> None:
        """Append a line to the file, if there is one.

        A file that would grow too large ends with a line that says so, and is closed.
        """
        if self._descriptor is None:
            return
        self._written_bytes += len(data)
        is_full = self._written_bytes > MAX_BYTES
        if is_full:
            data = b"the log is full; no more is kept\n"
        try:
            os.write(self._descriptor, data)
        except OSError:
            is_full = True
        if is_full:
            self._close_file()

    def _close_file(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def keep(folder: Path, verb: str, run_marker: Path | None = None) -> None:
    """Keep the lines of the call that is under way in ``folder``.

    ``run_marker``: a path that exists in every run. Where it is missing, the user named another
    folder by mistake, and nothing is written there.
    """
    if run_marker is not None and not run_marker.exists():
        return
    for handler in _package_logger.handlers[-1:]:
        if isinstance(handler, DebugLog):
            handler.keep(folder, verb)
