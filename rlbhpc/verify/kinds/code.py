"""Programs, judged by unit tests in a sandbox.

The expected outputs stay in this process. What runs sees a program and one input; what comes out
is bytes, read as plain data and compared here. No exit status is ever a verdict.

``verify`` may be called from several threads: each run has a sandbox to itself, and its thread
waits without holding up the others.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.verify.code import evalplus, livecodebench, programs
from rlbhpc.verify.code.programs import Format
from rlbhpc.verify.sandbox.box import Sandbox
from rlbhpc.verify.sandbox.job import Tier
from rlbhpc.verify.sandbox.probe import self_test
from rlbhpc.verify.verdict import Status, Verdict

if TYPE_CHECKING:
    FINGERPRINT: str

# Raised whenever a verdict could come out otherwise than before.
VERSION: Final = 3
FORMATS: Final[dict[str, Format]] = {"livecodebench": livecodebench, "evalplus": evalplus}
# Set where a study says `unsafe: true`, for this process and those it starts: run even where
# nothing confines a program.
UNSAFE: Final = "RLBHPC_UNSAFE_SANDBOX"

# verify() waits for processes, so threads run programs in parallel.
CONCURRENT: Final = True

# Sandboxes that nobody uses, by the module that each has loaded besides the library.
_idle_sandboxes: dict[str, list[Sandbox]] = {}


def __getattr__(name: str) -> Any:
    """Work the fingerprint out on first use, since it names the tier that this node reaches."""
    if name == "FINGERPRINT":
        versions = f"python {platform.python_version()}, numpy {np.__version__}"
        return f"code-sound {VERSION} ({versions}, sandbox {reached_tier().name})"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@lru_cache(maxsize=1)
def reached_tier() -> Tier:
    """Return the tier that this node passes the self-test at, or refuse.

    A *tier* says what confines a program in a sandbox here: filters on system calls, at best also a
    root of its own. Where nothing does, programs run only if the study accepts that (``unsafe:
    true``, which sets the variable ``UNSAFE``).
    """
    report = self_test()
    if report.passed:
        return report.tier
    if os.environ.get(UNSAFE) == "1":
        return Tier(seccomp=False)
    raise UserError(
        f"no safe way to run programs here: {report.reason}; run on another node, or accept that "
        "what a model wrote runs with all your rights: `verification: {unsafe: true}` in the study"
    )


@contextmanager
def lent_sandbox(preload: str = "") -> Iterator[Sandbox]:
    """Lend a sandbox that nobody else uses meanwhile; they are kept, since starting one is slow.

    ``preload``: a module that the sandbox has loaded, besides the library. The idle ones are kept
    apart by it. A sandbox whose user fails is not kept.
    """
    idle = _idle_sandboxes.setdefault(preload, [])
    try:
        sandbox = idle.pop()
    except IndexError:
        sandbox = Sandbox(reached_tier(), preload)
    yield sandbox
    idle.append(sandbox)


def distinct(response: str) -> str:
    """Return the part of a response that decides its verdict: its blocks of code."""
    return "\0".join(f"{block.language}\n{block.text}" for block in programs.code_blocks(response))


def verify(gold: str, response: str, problem: Problem | None = None) -> Verdict:
    """Extract the program from a response, run it on the problem's tests and judge it.

    ``gold`` is not used, since tests decide. ``extras["format"]`` of a problem names the format of
    its tests. ``FORMATS`` has a module for each, with functions to extract a program and to judge
    it. The program's digest stands for the answer.
    """
    if problem is None or problem.extras.get("format") not in FORMATS:
        formats = ", ".join(FORMATS)
        where = "no problem" if problem is None else f"problem {problem.id}"
        raise UserError(f"verifier code: {where} with tests; extras['format'] is one of {formats}")
    form = FORMATS[problem.extras["format"]]
    program = form.extract(response, problem).rstrip()
    if not program:
        return Verdict(Status.NO_ANSWER, rule="no block of code")
    with lent_sandbox() as sandbox:
        judgement = form.judge(program, problem, sandbox)
    digest = hashlib.sha256(program.encode("utf-8", "surrogatepass")).hexdigest()
    return Verdict(judgement.status, program, f"sha256:{digest}", judgement.reason)
