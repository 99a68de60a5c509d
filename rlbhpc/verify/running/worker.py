"""The child of :mod:`rlbhpc.verify.running.pool`: one function, called on JSON values.

Started as ``python -P -m rlbhpc.verify.running.worker module:function memory_bytes plugin``.
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


def main(target: str, memory: int, plugin: str = "") -> None:
    """Serve tasks until the parent closes the pipe.

    ``target``: ``module:function``, which is called on each task's JSON value. ``memory``: bytes of
    address space. ``plugin``: name of a verifier that the user brings; it is trusted, so nothing
    but its time is limited. Tasks come in on descriptor 0 and replies go out on 1, so both are
    moved away first, where the function doesn't meet them. A timer of processor time ends the
    process when a task takes too long.
    """
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    # What a library prints must not get between the frames.
    os.dup2(2, 1)
    module, _, name = target.partition(":")
    function = getattr(importlib.import_module(module), name)
    if plugin:
        threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
        function = function(plugin)
    else:
        _set_limits(memory)
    # The signal that ends the process when its time is up must not be caught, ignored or blocked.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    _send(replies, _READY)
    worker_pid = os.getpid()
    while (task := _receive(requests)) is not None:
        signal.setitimer(signal.ITIMER_PROF, task["cpu"])
        reply = _call(function, task["payload"])
        if os.getpid() != worker_pid:
            # The function forked, and this is the child: the parent will reply.
            os._exit(1)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _send(replies, reply)


def _set_limits(memory: int) -> None:
    """Limit memory, and forbid files: a written byte beyond zero is an error."""
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(3000)


def _end_with_parent(parent_pid: int) -> None:
    """End this process, and what it started, once the parent was killed."""
    while os.getppid() == parent_pid:
        time.sleep(1)
    os.killpg(0, signal.SIGKILL)


def _call(function: Any, payload: Any) -> bytes:
    """Call the function and return its result, or what it raised, as JSON.

    The reply has one key: ``value``, ``limit`` (memory or recursion was used up) or ``error``.
    """
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
    """Read the next task; None once the parent has closed the pipe."""
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
