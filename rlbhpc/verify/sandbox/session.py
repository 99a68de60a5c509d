"""Sessions: programs that come block by block and keep their names, each in a sandbox of its own.

A *nursery* is a process that has loaded the library once and forks a supervisor for each session.
So hundreds of sessions share its memory, and each still has a supervisor, a scratch folder and,
where the node allows it, namespaces of its own: nothing of one is seen by another.
"""

from __future__ import annotations

import importlib.util
import json
import marshal
import os
import resource
import select
import socket
import time
from typing import Final

from rlbhpc.verify.sandbox.box import OutputPipe, SandboxError, Supervisor
from rlbhpc.verify.sandbox.confine import MIB
from rlbhpc.verify.sandbox.job import CHUNK_BYTES, Job, Mode, Tier
from rlbhpc.verify.sandbox.program import BLOCK_HEAD
from rlbhpc.verify.sandbox.syscalls import memory_file

#: Bytes of output after which a block is stopped.
MAX_OUTPUT: Final = 1 * MIB
# A pipe holds so much, so that sending a block never waits for the program.
_MAX_CODE: Final = 60_000
_MEMORY: Final = 1024 * MIB
_THREADS: Final = 32
# A session waits for its calls as long as it likes: each call has its own limit.
_NO_LIMIT: Final = 1e9
# A block is given up after ten times its processor time and so many seconds: other sessions may
# keep the processor busy.
_SPARE_SECONDS: Final = 10.0
_PRELOADED: Final = "sympy"


class SessionEnd(Exception):  # noqa: N818  the end of a program, and no error here
    """A session is over, for the reason given; ``output``: what its last block printed."""

    def __init__(self, reason: str, output: str = "") -> None:
        super().__init__(reason)
        self.output = output


class Nursery(Supervisor):
    """The process that sessions are forked from."""

    def __init__(self, tier: Tier) -> None:
        """Load the library, and SymPy where it is installed, for sessions at one tier."""
        preload = _PRELOADED if importlib.util.find_spec(_PRELOADED) else ""
        super().__init__(tier, wide=True, preload=preload, nursery=True)
        # Each session takes four descriptors of this process.
        _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))

    def fork(self) -> socket.socket:
        """Fork a supervisor; the socket to it."""
        channel, supervisor_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with supervisor_end:
            socket.send_fds(self._channel, [b"fork"], [supervisor_end.fileno()])
        answer = json.loads(channel.recv(CHUNK_BYTES) or '{"failed": "the supervisor ended"}')
        if "failed" in answer:
            channel.close()
            raise SandboxError(answer["failed"])
        return channel


class Session:
    """One program that blocks of code are sent to, until one does not answer as it should."""

    def __init__(self, nursery: Nursery, seconds: float) -> None:
        """Start the program; ``seconds``: processor time of a block, after which it is stopped."""
        self._channel = nursery.fork()
        self._seconds = seconds
        self._longest_wall = 10 * seconds + _SPARE_SECONDS
        self._output = OutputPipe(MAX_OUTPUT)
        self._result = OutputPipe(MAX_OUTPUT)
        stdin, self._blocks = os.pipe2(os.O_CLOEXEC)
        job = memory_file([Job("", Mode.SESSION).encode()])
        request = {
            "run": 0, "cpu": _NO_LIMIT, "wall": _NO_LIMIT, "longest_wall": _NO_LIMIT,
            "memory": _MEMORY, "threads": _THREADS, "is_session": True,
        }  # fmt: skip
        output = self._output.child_end
        child_ends = [job, stdin, output, output, self._result.child_end]
        socket.send_fds(self._channel, [marshal.dumps(request)], child_ends)
        for descriptor in set(child_ends):
            os.close(descriptor)

    def run(self, code: str) -> tuple[str, bool]:
        """Run a block; what it printed, and whether it raised nothing.

        Raises :class:`SessionEnd` where the program has ended, printed too much or does not answer.
        """
        block = code.encode("utf-8", "replace")
        if len(block) > _MAX_CODE:
            return f"code of more than {_MAX_CODE} bytes", False
        self._output.content.clear()
        self._result.content.clear()
        try:
            os.write(self._blocks, BLOCK_HEAD.pack(len(block), self._seconds) + block)
            self._read_until_result()
        except OSError:
            raise SessionEnd("the session ended") from None
        return self._text, self._result.content.startswith(b"0")

    @property
    def _text(self) -> str:
        return self._output.content.decode("utf-8", "replace")

    def _read_until_result(self) -> None:
        """Read output until the block has run; raise if the program ends or does not get there."""
        deadline = time.monotonic() + self._longest_wall
        while not self._result.content:
            if not self._read(deadline - time.monotonic()):
                raise SessionEnd(f"no answer within {self._longest_wall:.0f} s", self._text)
        # What was printed before the result is in its pipe by now.
        while self._read(0):
            pass

    def _read(self, timeout_seconds: float) -> bool:
        """Read what comes first; False if nothing comes in time."""
        poll = select.poll()
        for source in (self._output.reader, self._result.reader, self._channel.fileno()):
            poll.register(source, select.POLLIN)
        events = dict(poll.poll(max(0.0, timeout_seconds) * 1000))
        for pipe in (self._output, self._result):
            if pipe.reader in events:
                pipe.read_chunk()
            if pipe.has_overflowed:
                raise SessionEnd(f"more than {MAX_OUTPUT} bytes of output", self._text)
        # A pipe is closed, and the supervisor reports, only when the program has ended.
        is_over = not (self._output.is_open and self._result.is_open)
        if is_over or self._channel.fileno() in events:
            raise SessionEnd("the session ended", self._text)
        return bool(events)

    def close(self) -> None:
        """End the program, and with it all that it has left."""
        self._channel.close()
        self._output.close()
        self._result.close()
        os.close(self._blocks)
