"""The verifier's ends of a run's descriptors: standard input, and what comes back, up to caps.

Input is a file, as under a judge: programs ask for its size, map it, go back in it. Output goes
into pipes, so that a flood stops at the pipe's size while it is being cut off.
"""

from __future__ import annotations

import fcntl
import json
import marshal
import os
import select
import socket
import time
from contextlib import suppress
from typing import Any, Self

from rlbhpc.verify.sandbox.job import CHUNK, STDERR_TAIL, Cause, Limits


class Pump:
    """Descriptors of one run; a context manager that closes them all."""

    def __init__(self, job: int, stdin: int, limits: Limits, takes_result: bool) -> None:
        """Open the pipes. ``job`` and ``stdin`` are descriptors that this object takes over."""
        self._caps: dict[int, int] = {}
        self._buffers: dict[int, bytearray] = {}
        self._out, out_end = os.pipe2(os.O_CLOEXEC)
        self._err, err_end = os.pipe2(os.O_CLOEXEC)
        self._result, result_end = os.pipe2(os.O_CLOEXEC)
        self.child_ends = [job, stdin, out_end, err_end, result_end]
        for descriptor, cap in (
            (self._out, limits.output),
            (self._err, limits.output),
            (self._result, limits.result if takes_result else 0),
        ):
            self._caps[descriptor] = cap
            self._buffers[descriptor] = bytearray()
        self._open = {self._out, self._err, self._result}
        self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close_child_ends()
        for descriptor in self._open:
            os.close(descriptor)

    def close_child_ends(self) -> None:
        """Close what the child has received, so that its end is seen."""
        for descriptor in self.child_ends:
            os.close(descriptor)
        self.child_ends = []

    @property
    def collected(self) -> tuple[bytes, bytes, bytes]:
        """Standard output, the tail of standard error, and the result."""
        out, err, result = (self._buffers[d] for d in (self._out, self._err, self._result))
        return bytes(out), bytes(err[-STDERR_TAIL:]), bytes(result)

    def collect(self, channel: socket.socket, run: int, patience: float) -> dict[str, Any]:
        """Move bytes until the supervisor reports the run's end; its report.

        A run that writes past a cap is ended; ``OSError`` when the supervisor itself falls silent.
        """
        stopped = False
        deadline = time.monotonic() + patience
        while True:
            ready = _ready([channel.fileno(), *self._open], deadline - time.monotonic())
            if not ready:
                raise TimeoutError("silent for longer than any run may take")
            for descriptor in self._open.intersection(ready):
                self._read(descriptor)
            if self._over and not stopped:
                stopped = True
                channel.send(marshal.dumps({"run": run, "stop": Cause.OUTPUT.value}))
            if channel.fileno() in ready:
                report = _report(channel)
                # The child is gone; what outlives it and writes on fills each pipe's cap at most.
                while rest := _ready(self._unfilled(), 0.0):
                    for descriptor in rest:
                        self._read(descriptor)
                if self._over:
                    report["cause"] = Cause.OUTPUT
                return report

    def _unfilled(self) -> list[int]:
        """Pipes of which more may be read: all, until one passes its cap."""
        return [d for d in self._open if not self._over or len(self._buffers[d]) < self._caps[d]]

    def _read(self, descriptor: int) -> None:
        """Take one chunk, of which what is past the cap is dropped."""
        chunk = os.read(descriptor, CHUNK)
        if not chunk:
            self._open.remove(descriptor)
            os.close(descriptor)
        buffer = self._buffers[descriptor]
        room = self._caps[descriptor] - len(buffer)
        buffer += chunk[:room]
        self._over |= len(chunk) > room


def input_pipe(content: bytes) -> int | None:
    """Return a pipe that holds all of ``content`` and ends after it; None where it doesn't fit.

    For programs that wait for events of standard input, which files have none of.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writer, False)
    with suppress(OSError):
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, max(len(content), CHUNK))
    written = os.write(writer, content)
    os.close(writer)
    if written == len(content):
        return reader
    os.close(reader)
    return None


def _ready(descriptors: list[int], timeout: float) -> list[int]:
    """Wait like :func:`select.select`, whose sets end at descriptor 1,023."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(max(0.0, timeout) * 1000)]


def _report(channel: socket.socket) -> dict[str, Any]:
    message = channel.recv(CHUNK)
    if not message:
        raise ConnectionError("the supervisor ended")
    report: dict[str, Any] = json.loads(message)
    return report
