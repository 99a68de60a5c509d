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
from typing import Any, Final, Self

from rlbhpc.verify.sandbox.job import STDERR_TAIL, Cause, Limits

_CHUNK: Final = 1 << 16
_SET_PIPE_SIZE: Final = 1031  # F_SETPIPE_SZ


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
            os.set_blocking(descriptor, False)
            self._caps[descriptor] = cap
            self._buffers[descriptor] = bytearray()
        self._open = {self._out, self._err, self._result}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close_child_ends()
        for descriptor in tuple(self._open):
            self._close(descriptor)

    def close_child_ends(self) -> None:
        """Close what the child has received, so that its end is seen."""
        for descriptor in self.child_ends:
            os.close(descriptor)
        self.child_ends = []

    def _close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.discard(descriptor)
            os.close(descriptor)

    @property
    def collected(self) -> tuple[bytes, bytes, bytes]:
        """Standard output, the tail of standard error, and the result."""
        out, err, result = (self._buffers[d] for d in (self._out, self._err, self._result))
        return bytes(out), bytes(err[-STDERR_TAIL:]), bytes(result)

    def collect(self, channel: socket.socket, run: int, patience: float) -> dict[str, Any]:
        """Move bytes until the supervisor reports the run's end; its report.

        A run that writes past a cap is ended; ``OSError`` when the supervisor itself falls silent.
        """
        stop: Cause | None = None
        deadline = time.monotonic() + patience
        while True:
            ready = _ready([channel.fileno(), *self._open], deadline - time.monotonic())
            if not ready:
                raise TimeoutError("silent for longer than any run may take")
            over = sum(self._read(d) for d in ready if d != channel.fileno()) > 0
            if over and stop is None:
                stop = Cause.OUTPUT
                channel.send(marshal.dumps({"run": run, "stop": stop.value}))
            if channel.fileno() in ready:
                report = _report(channel)
                # The child is gone, and with it every other holder of the pipes.
                over = sum(self._drain(d) for d in tuple(self._open)) > 0
                if (over or stop) and "cause" in report:
                    report["cause"] = Cause.OUTPUT
                return report

    def _read(self, descriptor: int) -> bool:
        """Take one chunk; whether the cap is passed."""
        try:
            chunk = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self._close(descriptor)
            return False
        buffer = self._buffers[descriptor]
        room = self._caps[descriptor] - len(buffer)
        buffer += chunk[: max(0, room)]
        return len(chunk) > room

    def _drain(self, descriptor: int) -> bool:
        over = False
        while descriptor in self._open and not over:
            before = len(self._buffers[descriptor])
            over = self._read(descriptor)
            if descriptor in self._open and len(self._buffers[descriptor]) == before:
                break
        return over


def input_pipe(content: bytes) -> int | None:
    """Return a pipe that holds all of ``content`` and ends after it; None where it doesn't fit.

    For programs that wait for events of standard input, which files have none of.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writer, False)
    with suppress(OSError):
        fcntl.fcntl(writer, _SET_PIPE_SIZE, max(len(content), _CHUNK))
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
    message = channel.recv(1 << 16)
    if not message:
        raise ConnectionError("the supervisor ended")
    report: dict[str, Any] = json.loads(message)
    return report
