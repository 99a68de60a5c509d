"""Verdicts that need not be found twice: a cache on shared storage, without locks.

A verdict belongs to (grader fingerprint, problem content, canonical answer), so a re-run, another
checkpoint and another model share it. Each writer appends to a file of its own; a reader takes
every line whose checksum holds, in whatever state a crash left the file, and says how many it
skipped. Timeouts and errors are never kept: they say something of a machine, not of an answer.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
import zlib
from pathlib import Path
from typing import Final, Self

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.verdict import Status

KEPT: Final = frozenset((Status.RIGHT, Status.WRONG, Status.NO_ANSWER))

# A kept verdict: its status and the rule that decided.
Entry = tuple[Status, str]


class VerdictCache:
    """The verdicts of one grader under one folder.

    ``folder``: shared by all graders (``Layout.verdict_cache``); each has a folder of its own below
    it. ``fingerprint``: the grader's ``FINGERPRINT``.
    """

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.folder = folder / hashlib.blake2b(fingerprint.encode(), digest_size=8).hexdigest()
        self.skipped = 0
        self._known: dict[str, Entry] = {}
        self._fresh: list[str] = []
        self._file: int | None = None
        for path in sorted(self.folder.glob("*.verdicts")):
            self._load(path)

    def __len__(self) -> int:
        return len(self._known)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def key(gold: str, problem: Problem | None, form: str) -> str:
        """32 hex digits over the problem's content (or its gold answer alone) and an answer."""
        content = f"gold {gold}" if problem is None else f"problem {problem.content_hash} {gold}"
        digest = hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16)
        digest.update(b"\0" + form.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def get(self, key: str) -> Entry | None:
        """Return what is known of a pair."""
        return self._known.get(key)

    def put(self, key: str, status: Status, rule: str) -> None:
        """Keep a verdict; it reaches the disk with the next :meth:`flush`."""
        if status not in KEPT or key in self._known:
            return
        rule = " ".join(rule.split())[:200]
        self._known[key] = (status, rule)
        self._fresh.append(_line(f"{key} {int(status)} {rule}"))

    def flush(self) -> None:
        """Append what is new in one write, so that a kill leaves whole lines and one torn tail."""
        if not self._fresh:
            return
        if self._file is None:
            self._file = self._create()
        data = "".join(self._fresh).encode("utf-8", "replace")
        self._fresh.clear()
        while data:
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        """Flush, make it durable, and let go of the file."""
        self.flush()
        if self._file is not None:
            os.fsync(self._file)
            os.close(self._file)
            self._file = None

    def _create(self) -> int:
        """Open a file that nobody else writes; its first line names the grader."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}.verdicts"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        handle = os.open(self.folder / name, flags, 0o644)
        os.write(handle, _line(f"grader {self.fingerprint}").encode())
        return handle

    def _load(self, path: Path) -> None:
        lines = path.read_bytes().split(b"\n")
        if not lines or _checked(lines[0]) != f"grader {self.fingerprint}":
            self.skipped += len(lines)
            return
        for line in lines[1:]:
            text = _checked(line) if line else None
            if text is None:
                self.skipped += bool(line)
                continue
            key, status, rule = text.split(" ", 2)
            self._known.setdefault(key, (Status(int(status)), rule))


def _line(text: str) -> str:
    return f"{zlib.crc32(text.encode('utf-8', 'replace')):08x} {text}\n"


def _checked(line: bytes) -> str | None:
    """Return the text of a line whose checksum holds."""
    mark, _, body = line.partition(b" ")
    if len(mark) != 8 or mark != f"{zlib.crc32(body):08x}".encode():
        return None
    return body.decode("utf-8", "replace")
