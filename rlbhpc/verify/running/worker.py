"""The child of :mod:`rlbhpc.verify.running.pool`: one function, called on JSON values.

Started as ``python -P -m rlbhpc.verify.running.worker module:function memory_bytes brought``.
Frames are four bytes of length and JSON, both ways. The kernel ends the process when a task has
used its processor time, so neither C code nor a caught exception can outlive it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import struct
import sys
import threading
import time
from typing import Any, BinaryIO, Final

HEADER: Final = struct.Struct(">I")
_READY: Final = b'{"ready":true}'


def main(target: str, memory: int, brought: str = "") -> None:
    """Serve tasks until the parent closes the pipe."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)  # whatever a library prints must not reach the frames
    module, _, name = target.partition(":")
    function = getattr(importlib.import_module(module), name)
    if brought:
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
        function = function(brought)
    else:
        _confine(memory)
    # What ends the process when its time is up must not be caught, ignored or blocked.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    _send(replies, _READY)
    own = os.getpid()
    while (task := _receive(requests)) is not None:
        signal.setitimer(signal.ITIMER_PROF, task["cpu"])
        reply = _call(function, task["payload"])
        if os.getpid() != own:
            os._exit(1)  # a child that the function forked: the parent's answer is the one
        signal.setitimer(signal.ITIMER_PROF, 0)
        _send(replies, reply)


def _confine(memory: int) -> None:
    """Limit memory, and forbid files: a written byte beyond zero is an error."""
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(3000)


def _end_with(parent: int) -> None:
    """End this process, and what it started, when the one that started it was killed."""
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(0, signal.SIGKILL)


def _call(function: Any, payload: Any) -> bytes:
    try:
        reply = {"value": function(payload)}
    except MemoryError:
        reply = {"limit": "memory"}
    except RecursionError:
        reply = {"limit": "recursion"}
    except Exception as error:
        reply = {"error": f"{type(error).__name__}: {error}"[:500]}
    return json.dumps(reply).encode()


def _receive(stream: BinaryIO) -> Any:
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (size,) = HEADER.unpack(header)
    return json.loads(stream.read(size))


def _send(stream: BinaryIO, reply: bytes) -> None:
    stream.write(HEADER.pack(len(reply)) + reply)
    stream.flush()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
