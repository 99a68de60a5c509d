"""The sandbox: small programs a second and core with everything on, beside a fresh interpreter.

A core's second is a second of processor time, of the verifier, the supervisor and the program
together: on a shared machine the wall clock also measures the neighbours.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rlbhpc.verify.code import livecodebench
from rlbhpc.verify.running.batch import verify_many
from rlbhpc.verify.sandbox.box import Sandbox
from rlbhpc.verify.sandbox.job import Job, Limits
from rlbhpc.verify.sandbox.probe import self_test
from rlbhpc.verify.verdict import Status, Verdict
from tests.benchmarks import Row, in_loops
from tests.verify.busy import busy_processes
from tests.verify.hostile import OUTPUT, PROCESSES
from tests.verify.test_code_hostile import problem

RUNS, ROUNDS = 60, 7
LEAN = """
import sys, heapq
from collections import defaultdict
n = int(input())
count = defaultdict(int)
for x in map(int, input().split()):
    count[x] += 1
print(sum(heapq.nlargest(3, count)))
"""
WIDE = LEAN.replace("import sys", "import numpy as np")
INPUT, OUTPUT_EXPECTED = b"5\n1 2 3 4 5\n", b"12\n"


def _ticks(pid: int) -> float:
    """Processor time of a process and of its dead children, from ``/proc``."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _supervisors(sandbox: Sandbox) -> list[int]:
    """The supervisors: under a process namespace each is the only child of what was started."""
    found = []
    for supervisor in sandbox._supervisors.values():
        pid = supervisor._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        found += [int(child) for child in children] or [pid]
    return found


def _sandboxed(sandbox: Sandbox, text: str) -> tuple[float, float]:
    """Median processor time and wall time of one run."""
    job = Job(text)
    assert sandbox.run(job, INPUT).stdout == OUTPUT_EXPECTED
    cpu, wall = [], []
    for _ in range(ROUNDS):
        before = time.process_time() + sum(map(_ticks, _supervisors(sandbox)))
        start = time.perf_counter()
        for _ in range(RUNS):
            sandbox.run(job, INPUT)
        wall.append((time.perf_counter() - start) / RUNS)
        cpu.append((time.process_time() + sum(map(_ticks, _supervisors(sandbox))) - before) / RUNS)
    return statistics.median(cpu), statistics.median(wall)


def _fresh_interpreter(text: str, runs: int = 10) -> float:
    """Processor time of a fresh interpreter for the same program, without any confinement."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(runs):
        subprocess.run([sys.executable, "-c", text], input=INPUT, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) / runs


def _undisturbed(sandbox: Sandbox, neighbour: Sandbox, hostile: str) -> bool:
    """Whether an honest program keeps its verdict while a hostile one runs beside it."""
    over = threading.Event()

    def disturb() -> None:
        while not over.is_set():
            neighbour.run(Job(hostile), limits=Limits(cpu=1.0))

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        squares = problem([(str(n), str(n * n)) for n in range(40)])
        judged = livecodebench.judge("print(int(input()) ** 2)", squares, sandbox)
    finally:
        over.set()
        thread.join()
    return judged.status is Status.RIGHT


def _beside_busy_processes() -> list[Verdict]:
    """Verdicts on eight honest programs of a second each, on a node that is much too busy."""
    heavy = "import time\nn = int(input())\nwhile time.process_time() < 1: pass\nprint(n ** 2)"
    squares = problem([("3", "9")])
    items = [("", f"```python\n{heavy}  # {number}\n```", squares) for number in range(8)]
    with busy_processes(64):
        return verify_many("code", items, workers=8)


def run() -> list[Row]:
    """Measure at the best tier of this machine."""
    rows = []
    report = self_test()
    rows.append(in_loops("self-test", report.seconds, 50, report.tier.name))
    with Sandbox(report.tier) as sandbox, Sandbox(report.tier) as neighbour:
        for name, text, most in (("common modules", LEAN, 0.05), ("NumPy", WIDE, 0.07)):
            cpu, wall = _sandboxed(sandbox, text)
            fresh = _fresh_interpreter(text)
            rows += [
                in_loops(f"one run, {name}", cpu, most,
                         f"{1 / wall:.0f}/s by the wall clock of this machine"),
                Row(f"against a fresh interpreter, {name}", fresh / cpu, "×"),
            ]  # fmt: skip
        for name, text in (
            ("512 MB of output", OUTPUT["512 MB of output"]),
            ("fork bomb", PROCESSES["fork bomb"]),
        ):
            kept = _undisturbed(sandbox, neighbour, text)
            rows.append(Row(f"40 tests beside: {name}", float(kept), "right", "1", kept))
    start = time.perf_counter()
    verdicts = _beside_busy_processes()
    right = sum(verdict.right for verdict in verdicts)
    seconds = time.perf_counter() - start
    rows.append(Row("8 heavy programs beside 64 busy processes", right, "right", "8", right == 8,
                    f"{seconds:.0f} s"))  # fmt: skip
    return rows


def main(show: Callable[[str], object] = print) -> None:
    """Print the figures."""
    for row in run():
        show(f"{row.what}: {row.value:.3g} {row.unit} {row.target} {row.ok} {row.note}")


if __name__ == "__main__":
    main()
