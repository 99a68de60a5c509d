"""What a worker may be asked to do to its pool."""

from __future__ import annotations

import os
import pickle
import signal
import struct
import threading
import time
from pathlib import Path


def act(task):
    kind = task["do"]
    if kind == "echo":
        return task["value"]
    if kind == "spin":
        while True:
            pass
    if kind == "deaf":
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
        time.sleep(3600)
    if kind == "burn":
        threads = task.get("threads", 0)
        share = task["seconds"] / (threads or 1)
        for _ in range(threads):
            thread = threading.Thread(target=burn, args=(share,))
            thread.start()
            thread.join()
        if not threads:
            burn(share)
        return "burnt"
    if kind == "memory":
        return len(bytearray(8 << 30))
    if kind == "recursion":
        return act(task)
    if kind == "raise":
        raise ValueError("no")
    if kind == "exit":
        os._exit(0)
    if kind == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "flood":
        return "x" * (1 << 20)
    if kind == "file":
        with Path("/tmp/rlbhpc-pool-must-not-write").open("w") as file:
            file.write("x")
            file.flush()
        return "written"
    if kind == "forge":
        return forge(task["kind"])
    if kind == "print":
        os.write(1, b"noise")
        print("noise", flush=True)
        return "printed"
    if kind == "environment":
        return " ".join(os.environ)
    return None


def burn(seconds):
    """Use so much processor time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def forge(kind):
    """Write a reply of one's own on every descriptor that takes it, and die."""
    body = {
        "length": struct.pack(">I", 1 << 31) + b"x",
        "json": struct.pack(">I", 4) + b"{{{{",
        "list": struct.pack(">I", 2) + b"[]",
        "pickle": struct.pack(">I", 40) + pickle.dumps(Touch()).ljust(40, b"."),
    }[kind]
    for descriptor in range(3, 12):
        try:
            os.write(descriptor, body)
        except OSError:
            continue
    os._exit(0)


def busy_second(task):
    """Take a second of processor time to find two answers equal."""
    end = time.process_time() + 1
    while time.process_time() < end:
        pass
    return {"equal": True, "why": "busy"}


class Touch:
    def __reduce__(self):
        return (os.system, ("touch forged",))


def always_equal(payload: object) -> str:
    """A second reader that says yes to everything."""
    return "right"
