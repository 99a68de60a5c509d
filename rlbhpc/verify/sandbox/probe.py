"""What holds on this node: a self-test of a few seconds that runs hostile programs and honest ones.

Nothing is assumed from a kernel's version. The best tier that starts and passes is the node's;
``rlbhpc doctor`` prints the report.
"""

from __future__ import annotations

import os
import platform
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from rlbhpc.verify.sandbox import confine
from rlbhpc.verify.sandbox.box import Sandbox, SandboxError
from rlbhpc.verify.sandbox.job import Cause, Job, Limits, Outcome, Tier

_LIMITS: Final = Limits(cpu=0.3)

# Each tries something and prints "out" if it succeeds. CANARY and PORT are filled in.
_ATTEMPTS: Final[dict[str, str]] = {
    "read a file": "open(CANARY).read(); print('out')",
    "write a file": "open(CANARY, 'a').write('x'); print('out')",
    "remove a file": "import os; os.unlink(CANARY); print('out')",
    "change a file's mode": "import os; os.chmod(CANARY, 0); print('out')",
    "truncate a file": "import os; os.truncate(CANARY, 0); print('out')",
    "list a folder": "import os; os.listdir(os.path.dirname(CANARY)); print('out')",
    "look into the verifier": "open('/proc/VERIFIER/environ').read(); print('out')",
    "start a process": "import os; os.fork(); print('out')",
    "become another program": "import os; os.execv('/bin/echo', ['echo', 'out'])",
    "signal the supervisor": "import os; os.kill(os.getppid(), 9); print('out')",
    "signal everyone": "import os; os.kill(-1, 0); print('out')",
    "connect": "import socket; socket.create_connection(('127.0.0.1', PORT), 1); print('out')",
    "raise a limit": "import resource as r; r.setrlimit(r.RLIMIT_CPU, (99, 99)); print('out')",
    "take much memory": "bytearray(1 << 33); print('out')",
}
_HONEST: Final = "import heapq, threading\nn = int(input())\nprint(n * n)"


class Probe(NamedTuple):
    """One thing that was tried."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class Report:
    """What a node offers.

    ``tier``: the best tier that passed, or the last that was tried. ``passed``: whether it passed.
    ``reason``: why not, or why no better one. ``probes``: what was tried at ``tier``. ``seconds``:
    time of the whole test. ``machine``: kernel and architecture.
    """

    tier: Tier
    passed: bool
    reason: str
    probes: tuple[Probe, ...]
    seconds: float
    machine: str


def self_test(at: Tier | None = None) -> Report:
    """Find the best tier that works here; or test one tier alone.

    ``passed`` is false if not even the floor holds.
    """
    start = time.perf_counter()
    refusals: list[str] = []
    probes: tuple[Probe, ...] = ()
    reached: Tier | None = None
    tiers = _tiers() if at is None else [at]
    for tier in tiers:
        tried: list[Probe] = []
        broken = ""
        try:
            with Sandbox(tier) as sandbox:
                tried.extend(_probes(sandbox))  # what was tried stays if the rest breaks
                grouped = sandbox.in_group
        except SandboxError as error:
            broken = f"{tier.name}: {error}"
        probes = tuple(tried)
        failed = [probe for probe in probes if not probe.passed]
        if not failed and not broken:
            reached = Tier(tier.seccomp, tier.landlock, tier.namespaces, grouped)
            break
        refusals += [f"{tier.name}: {probe.name}: {probe.detail}" for probe in failed]
        refusals += [broken] if broken else []
    seconds = time.perf_counter() - start
    machine = f"Linux {os.uname().release} {platform.machine()}"
    last = reached or tiers[-1]
    return Report(last, reached is not None, "; ".join(refusals), probes, seconds, machine)


def _tiers() -> list[Tier]:
    """All tiers that may be had, best first. A control group is tried wherever there might be."""
    version = confine.landlock_version()
    return [
        Tier(landlock=version, namespaces=True, cgroup=True),
        *([Tier(landlock=version)] if version else []),
        Tier(),
    ]


def _probes(sandbox: Sandbox) -> Iterator[Probe]:
    honest = sandbox.run(Job(_HONEST), b"12\n")
    yield Probe("run an honest program", honest.stdout == b"144\n", _told(honest))
    with _bait() as (canary, port):
        for name, attempt in _ATTEMPTS.items():
            text = attempt.replace("CANARY", repr(str(canary))).replace("PORT", str(port))
            outcome = sandbox.run(Job(text.replace("VERIFIER", str(os.getpid()))), b"", _LIMITS)
            untouched = [file.read_bytes() for file in canary.parent.iterdir()] == [b"secret"]
            held = b"out" not in outcome.stdout and untouched
            yield Probe(name, held, _told(outcome))
    for name, text, ends in _ENDLESS:
        outcome = sandbox.run(Job(text), b"", _LIMITS)
        yield Probe(name, ends(outcome), _told(outcome))


_ENDLESS: Final[tuple[tuple[str, str, Callable[[Outcome], bool]], ...]] = (
    ("run for ever", "while True: pass", lambda outcome: outcome.cause is Cause.CPU),
    ("print for ever", "while True: print('y' * 9999)", lambda o: o.cause is Cause.OUTPUT),
)


@contextmanager
def _bait() -> Iterator[tuple[Path, int]]:
    """Lay out a file that anyone may read and write, and a port that anyone may connect to."""
    with tempfile.TemporaryDirectory(prefix="rlbhpc-bait-") as folder, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        Path(folder).chmod(0o777)
        canary = Path(folder, "canary")
        canary.write_bytes(b"secret")
        canary.chmod(0o666)
        yield canary, listener.getsockname()[1]


def _told(outcome: Outcome) -> str:
    last = outcome.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return f"{outcome.cause} {outcome.status} {last}".strip()
