"""Functions that are called in a sandbox: what a job says of them, and what comes back."""

from __future__ import annotations

import resource
from typing import Any

import pytest

from rlbhpc.verify.code.programs import read_call_results
from rlbhpc.verify.sandbox.job import Job, Limits, Mode, Shape
from tests.verify.conftest import RecordingSandbox

MIB = 1 << 20
ADD = "def f(x):\n    return x + 1"
CLASS = "class S:\n    def __init__(self): self.n = 0\n    def f(self, x):\n        self.n += x\n"


@pytest.mark.parametrize(
    ("program", "settings", "arguments", "results"),
    [
        (ADD, {}, [1, 2.5], [2, 3.5]),
        (ADD, {}, ["a", 3], ["TypeError", 4]),
        (f"class {'E' * 150}(Exception): pass\ndef f(x): raise {'E' * 150}", {}, [1], ["E" * 100]),
        (CLASS + "        return self.n", {"entry": "S.f"}, [2, 3], [2, 5]),
        ("def f(x): return x", {"shape": Shape.SET}, [[1, 1], [2]], [{1}, {2}]),
        (
            "def f(x): return {0: None, 1: False, 2: True, 3: print}[x]",
            {"shape": Shape.NOT_NONE}, [0, 1, 2, 3], [False, False, True, True],
        ),
        ("def f(x): return n + x", {"before": "n = 5"}, [1], [6]),
        ("n = 7", {"before": "n = 5\ndef f(x): return n"}, [1], [7]),
        ("def f(x): return len(deque([x]))", {"contest": True}, [1], [1]),
        ("def f(x): return len(deque([x]))", {}, [1], ["NameError"]),
        (ADD + "\nThis works.", {}, [1], []),
        (ADD + "\nThis works.", {"forgiving": True}, [1], [2]),
        (ADD + "\nThis works." * 300, {"forgiving": True}, [1], [2]),
        ("def f(x): return x\nThis works.", {"forgiving": True}, [1], [1]),
        # Each cut takes one line off a heap of decorators.
        (ADD + "\n@f" * 199, {"forgiving": True}, [1], [2]),
        (ADD + "\n@f" * 200, {"forgiving": True}, [1], []),
        ("Here it is:\n" + ADD, {"forgiving": True}, [1], []),
        (ADD + "\nassert f(1) == 1", {}, [1], []),
        (ADD + "\nassert f(1) == 1", {"forgiving": True}, [1], [2]),
        ("1/0\n" + ADD, {"forgiving": True}, [1], []),
        ("1/0", {"forgiving": True, "before": "def f(x): pass"}, [1], []),
        # Annotations are evaluated.
        ("def f(x): return len(a)", {"before": "a = []\ndef g(x: a.append(1)): pass"}, [1], [1]),
        ("def f(x): return len(str(10**x))", {}, [5000], [5001]),
    ],
)  # fmt: skip
def test_calls(
    best: RecordingSandbox, program: str, settings: dict[str, Any], arguments: list[Any],
    results: list[Any],
) -> None:  # fmt: skip
    job = Job(program, Mode.CALL, **({"entry": "f"} | settings))
    outcome = best.run(job.with_calls([[one] for one in arguments]))
    returned = read_call_results(outcome.result, [99] * len(arguments))
    assert [result.raised or result.value for result in returned] == results
    assert (outcome.status == 0) == bool(results)
    assert all(result.cpu >= 0 for result in returned)
    assert sum(result.cpu for result in returned) < outcome.cpu


LIMITS = {
    "CPU": 5, "AS": 512 * MIB, "FSIZE": 16 * MIB, "NOFILE": 256, "CORE": 0, "MEMLOCK": 0,
    "MSGQUEUE": 0, "NICE": 0, "RTPRIO": 0, "SIGPENDING": 1024, "STACK": 128 * MIB,
}  # fmt: skip


def test_limits_of_a_program(best: RecordingSandbox) -> None:
    names = [f"RLIMIT_{name}" for name in LIMITS]
    program = f"import resource as r\nfor n in {names}: print(*r.getrlimit(getattr(r, n)))"
    usual = best.run(Job(program)).stdout.decode().splitlines()
    assert usual[:2] == ["8 8", f"{4096 * MIB} {4096 * MIB}"]
    output = best.run(Job(program), limits=Limits(cpu=3.5, memory=512 * MIB)).stdout.decode()
    hard = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1] for name in LIMITS}
    expected = {
        name: most if hard[name] == resource.RLIM_INFINITY else min(most, hard[name])
        for name, most in LIMITS.items()
    }
    assert output.splitlines() == [f"{most} {most}" for most in expected.values()]
