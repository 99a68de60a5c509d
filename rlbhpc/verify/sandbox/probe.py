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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from rlbhpc.verify.sandbox import confine
from rlbhpc.verify.sandbox.box import Sandbox, SandboxError
from rlbhpc.verify.sandbox.job import Cause, Job, Limits, Outcome, Tier

_LIMITS: Final = Limits(cpu=0.3)

# Each tries something and prints "out" if it succeeds. CANARY, PORT and VERIFIER are filled in.
_HOSTILE_PROGRAMS: Final[dict[str, str]] = {
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
_HONEST_PROGRAM: Final = "import heapq, threading\nn = int(input())\nprint(n * n)"


class Probe(NamedTuple):
    """One thing that was tried."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class Report:
    """What a node offers.

    ``tier``: the best tier that passed, or the last that was tried. ``passed``: whether it passed.
    ``reason``: why no better tier passed. ``probes``: what was tried at ``tier``. ``seconds``: time
    of the whole test. ``machine``: kernel and architecture.
    """

    tier: Tier
    passed: bool
    reason: str
    probes: tuple[Probe, ...]
    seconds: float
    machine: str


def self_test(only_tier: Tier | None = None) -> Report:
    """Find the best tier that works on this node, or test ``only_tier`` alone, and report.

    A *tier* is how tightly a sandbox confines programs. It passes if hostile programs fail in it
    and an honest one works; each of those is a *probe*. Tiers are tried from the best down, and the
    first that passes is reported; ``passed`` is false if not even the lowest one does. ``reason``
    collects what failed at the tiers above.
    """
    start = time.perf_counter()
    failures: list[str] = []
    probes: list[Probe] = []
    passed = False
    tiers = _available_tiers() if only_tier is None else [only_tier]
    for tier in tiers:
        probes = []
        tier_failures = []
        try:
            with Sandbox(tier) as sandbox:
                # Keeps the probes that were made if a later one breaks the sandbox.
                probes.extend(_run_probes(sandbox))
        except SandboxError as error:
            tier_failures = [f"{tier.name}: {error}"]
        failed_probes = [probe for probe in probes if not probe.passed]
        tier_failures[:0] = [
            f"{tier.name}: {probe.name}: {probe.detail}" for probe in failed_probes
        ]
        failures += tier_failures
        passed = not tier_failures
        if passed:
            break
    return Report(
        tier=tier,
        passed=passed,
        reason="; ".join(failures),
        probes=tuple(probes),
        seconds=time.perf_counter() - start,
        machine=f"Linux {os.uname().release} {platform.machine()}",
    )


def _available_tiers() -> list[Tier]:
    """Tiers to try, best first."""
    version = confine.landlock_version()
    tiers = [Tier(landlock=version, namespaces=True)]
    if version:
        tiers.append(Tier(landlock=version))
    return [*tiers, Tier()]


def _run_probes(sandbox: Sandbox) -> Iterator[Probe]:
    """Run an honest program, every hostile one, and two that don't end; yield how each went.

    A hostile program tries to do harm and prints "out" if it succeeds. It gets a bait to try it on:
    a file with known content (``canary``), an open port, and the id of this process. It was held if
    it printed no "out" and the file and its folder are unchanged.
    """
    outcome = sandbox.run(Job(_HONEST_PROGRAM), b"12\n")
    yield Probe("run an honest program", outcome.stdout == b"144\n", _describe(outcome))
    with _lay_bait() as (canary, port):
        for name, template in _HOSTILE_PROGRAMS.items():
            program = template.replace("CANARY", repr(str(canary))).replace("PORT", str(port))
            program = program.replace("VERIFIER", str(os.getpid()))
            outcome = sandbox.run(Job(program), b"", _LIMITS)
            contents = [file.read_bytes() for file in canary.parent.iterdir()]
            was_held = b"out" not in outcome.stdout and contents == [_BAIT]
            yield Probe(name, was_held, _describe(outcome))
    outcome = sandbox.run(Job("while True: pass"), b"", _LIMITS)
    yield Probe("run for ever", outcome.cause is Cause.CPU, _describe(outcome))
    outcome = sandbox.run(Job("while True: print('y' * 9999)"), b"", _LIMITS)
    yield Probe("print for ever", outcome.cause is Cause.OUTPUT, _describe(outcome))


_BAIT: Final = b"secret"


@contextmanager
def _lay_bait() -> Iterator[tuple[Path, int]]:
    """Lay out a file that anyone may read and write, and a port that anyone may connect to.

    Yields the file's path and the port's number. Hostile programs are run against both: only the
    sandbox stands between them.
    """
    with tempfile.TemporaryDirectory(prefix="rlbhpc-bait-") as folder, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        Path(folder).chmod(0o777)
        canary = Path(folder, "canary")
        canary.write_bytes(_BAIT)
        canary.chmod(0o666)
        _, port = listener.getsockname()
        yield canary, port


def _describe(outcome: Outcome) -> str:
    """Cause, status and last line of standard error."""
    last_line = outcome.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return f"{outcome.cause} {outcome.status} {last_line}".strip()
