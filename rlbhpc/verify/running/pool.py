"""Worker processes that can be killed: for anything that may hang on what a model wrote.

A library's own timeout is none: an alarm fails off the main thread and cannot stop C code. Here
every task runs in a process under limits (address space, processor time, no files), watched from
outside. A task that hangs costs its deadline and one new process, never a slot. What comes back is
JSON of bounded size; nothing is unpickled. What a user brings is trusted, so its process has a
limit of time alone.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import json
import os
import pickle
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Literal, Self

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.study.plugin_check import first_call
from rlbhpc.verify.registry import KINDS, guarded, verifier, verify
from rlbhpc.verify.running.worker import HEADER
from rlbhpc.verify.sandbox.supervisor import Sleep
from rlbhpc.verify.verdict import Status, Verdict

MAX_REPLY: Final = 1 << 16
MAX_TRUSTED_REPLY: Final = 1 << 28
TASKS_PER_WORKER: Final = 10_000  # then a fresh one, against slow growth
RETRY_FACTOR: Final = 4
SECONDS: Final = 3.0
# Times a task's processor time after which a busy node is given up, without a verdict.
PATIENCE: Final = 100
_START_SECONDS: Final = 120.0
# Seconds from the end of a worker's pipe to its own end.
_DYING_SECONDS: Final = 2.0
# Seconds between looks at what a busy worker is doing.
_LOOK: Final = 0.1
_CHILD: Final = "rlbhpc.verify.running.worker"

Outcome = Literal["done", "timeout", "limit", "error"]


@dataclass(frozen=True)
class Result:
    """What became of one task.

    ``outcome`` is ``done`` (``value`` is the function's result), ``timeout``, ``limit`` (memory or
    recursion, named in ``value``) or ``error`` (the function raised, the worker died, or the node
    was too busy to tell).
    """

    outcome: Outcome
    value: Any = None


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    sleep: Sleep
    max_reply: int
    buffer: bytearray = field(default_factory=bytearray)
    task: int = -1
    deadline: float = 0.0
    last_deadline: float = 0.0
    most_sleep: float = 0.0
    served: int = 0


class Pool:
    """A few killable workers that all run one function.

    ``function``: ``"module:function"``, imported in the workers; it maps a JSON value to a JSON
    value. ``seconds``: processor time of one task; it may sleep three times that and two seconds
    more, and as long as it waits for a processor that others have, nothing counts. ``memory``:
    address space of one worker in bytes. ``brought``: what a user brings by this name, if anything;
    ``function`` then takes the name and gives the function to run.
    """

    def __init__(
        self, function: str, workers: int = 1, seconds: float = SECONDS, memory: int = 2 << 30,
        brought: str = "",
    ) -> None:  # fmt: skip
        self.function = function
        self.brought = brought
        self.size = workers
        self.seconds = seconds
        self.memory = memory
        self._workers: list[_Worker] = []
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self.started = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers."""
        if os.getpid() == self._owner:
            for worker in self._workers:
                _end(worker)
        self._workers.clear()

    def run(self, payloads: Sequence[Any]) -> list[Result]:
        """Run all tasks and return their results in order.

        Tasks that ran out of time are tried once more, one at a time, with four times the time:
        what only a busy machine made slow is not counted as a timeout.
        """
        with self._lock:
            if os.getpid() != self._owner:  # after a fork the workers belong to the parent
                self._workers, self._owner = [], os.getpid()
            results = self._pass(payloads, list(range(len(payloads))), self.seconds, self.size)
            late = [index for index, result in results.items() if result.outcome == "timeout"]
            results |= self._pass(payloads, late, self.seconds * RETRY_FACTOR, 1)
            return [results[index] for index in range(len(payloads))]

    # --- one pass --------------------------------------------------------------------------------

    def _pass(
        self, payloads: Sequence[Any], order: list[int], seconds: float, size: int
    ) -> dict[int, Result]:
        waiting = deque(order)
        results: dict[int, Result] = {}
        while waiting or any(worker.task >= 0 for worker in self._workers):
            busy = sum(worker.task >= 0 for worker in self._workers)
            for _ in range(min(size - busy, len(waiting))):
                index = waiting.popleft()
                self._assign(self._idle(), index, payloads[index], seconds)
            for worker in self._ready():
                result = self._collect(worker)
                if result is not None:
                    results[worker.task] = result
                    worker.task = -1
        return results

    def _idle(self) -> _Worker:
        for worker in [worker for worker in self._workers if worker.task < 0]:
            if worker.served < TASKS_PER_WORKER and worker.process.poll() is None:
                return worker
            self._drop(worker)
        worker = self._start()
        self._workers.append(worker)
        return worker

    def _start(self) -> _Worker:
        """Start a worker and wait until its imports are done."""
        root = str(Path(__file__).parents[3])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        names = os.environ if self.brought else ("PATH", "LANG", "LD_LIBRARY_PATH")
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", _CHILD, self.function, str(self.memory), self.brought],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if self.brought else subprocess.DEVNULL,
            bufsize=0,
            cwd=None if self.brought else "/",
            env={name: os.environ[name] for name in names if name in os.environ}
            | {
                "PYTHONPATH": path,
                "PYTHONHASHSEED": "0",
                "PYTHONDONTWRITEBYTECODE": "1",
                "OMP_NUM_THREADS": "1",
            },
            start_new_session=True,
        )
        self.started += 1
        max_reply = MAX_TRUSTED_REPLY if self.brought else MAX_REPLY
        deadline = time.monotonic() + _START_SECONDS
        worker = _Worker(process, Sleep(process.pid), max_reply, deadline=deadline)
        while True:
            with contextlib.suppress(_Dead):
                if _readable(worker) and _frame(worker) is not None:
                    return worker
            if process.poll() is not None or time.monotonic() > worker.deadline:
                _end(worker)
                raise UserError(
                    f"verification worker {self.function}: did not start (exit "
                    f"{process.returncode}); run `python -m {_CHILD} {self.function} "
                    f"{self.memory} {self.brought}` to see why"
                )

    def _assign(self, worker: _Worker, index: int, payload: Any, seconds: float) -> None:
        frame = json.dumps({"payload": payload, "cpu": seconds}).encode()
        worker.task, worker.served = index, worker.served + 1
        worker.sleep = Sleep(worker.process.pid)
        worker.most_sleep = wall_clock(seconds)
        worker.deadline = time.monotonic() + worker.most_sleep
        worker.last_deadline = worker.deadline + PATIENCE * seconds
        assert worker.process.stdin is not None
        try:
            worker.process.stdin.write(HEADER.pack(len(frame)) + frame)
        except BrokenPipeError:
            worker.deadline = 0.0

    def _ready(self) -> list[_Worker]:
        """Wait for a reply, a death or a deadline."""
        busy = [worker for worker in self._workers if worker.task >= 0]
        if not busy:
            return []
        with selectors.DefaultSelector() as selector:
            for worker in busy:
                assert worker.process.stdout is not None
                selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
            heard = [key.data for key, _ in selector.select(_LOOK)]
        late = [w for w in busy if w not in heard and _late(w)]
        return heard + late

    def _collect(self, worker: _Worker) -> Result | None:
        """Read what a worker has to say; None if its reply is not whole yet."""
        if time.monotonic() >= worker.deadline and not _readable(worker):
            starved = time.monotonic() >= worker.last_deadline
            self._drop(worker)
            return Result("error", "the node is too busy") if starved else Result("timeout")
        try:
            reply = _frame(worker)
        except _Dead:
            self._drop(worker)
            timed_out = worker.process.returncode in (-signal.SIGPROF, -signal.SIGXCPU)
            return Result("timeout" if timed_out else "error", "the process died")
        if reply is None:
            return None
        if "value" in reply:
            return Result("done", reply["value"])
        if "limit" in reply:
            self._drop(worker)
            return Result("limit", reply["limit"])
        return Result("error", reply.get("error"))

    def _drop(self, worker: _Worker) -> None:
        _end(worker)
        self._workers.remove(worker)


def wall_clock(seconds: float) -> float:
    """Seconds that a task may sleep that has so much processor time."""
    return 3 * seconds + 2


def _late(worker: _Worker) -> bool:
    """Whether a task has slept too long, or is given up."""
    slept = worker.sleep.seconds()
    now = time.monotonic()
    if slept is None or now >= worker.last_deadline:
        return now >= worker.deadline
    return slept > worker.most_sleep


class _Dead(Exception):  # noqa: N818 - an outcome, not a fault
    """The worker closed its pipe, or what it wrote is no frame."""


def _readable(worker: _Worker) -> bool:
    """Whether something arrives within a moment."""
    assert worker.process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(worker.process.stdout, selectors.EVENT_READ)
        return bool(selector.select(0.05))


def _frame(worker: _Worker) -> dict[str, Any] | None:
    """Read on; return the reply once it is whole."""
    assert worker.process.stdout is not None
    data = os.read(worker.process.stdout.fileno(), MAX_REPLY)
    if not data:
        with contextlib.suppress(subprocess.TimeoutExpired):  # it may live on without its pipe
            worker.process.wait(_DYING_SECONDS)
        raise _Dead
    worker.buffer += data
    if len(worker.buffer) < HEADER.size:
        return None
    (size,) = HEADER.unpack_from(worker.buffer)
    if size > worker.max_reply:
        raise _Dead
    if len(worker.buffer) < HEADER.size + size:
        return None
    body = bytes(worker.buffer[HEADER.size : HEADER.size + size])
    worker.buffer.clear()
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _Dead from error
    if not isinstance(reply, dict):
        raise _Dead
    return reply


def _end(worker: _Worker) -> None:
    """Kill a worker with all that it may have started, and reap it."""
    process = worker.process
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


_SHARED: dict[tuple[str, int, float, str], Pool] = {}


def shared_pool(
    function: str, workers: int = 1, seconds: float = SECONDS, brought: str = ""
) -> Pool:
    """Return this process's pool for a function; its workers start on first use."""
    key = (function, workers, seconds, brought)
    pool = _SHARED.get(key)
    if pool is None:
        pool = _SHARED[key] = Pool(function, workers, seconds, brought=brought)
        atexit.register(pool.close)
    return pool


# --- a verifier that a study brings, which may hang or end its process ---------------------------

# Responses in a row without a verdict, after which nothing more is expected of a verifier.
HOPELESS: Final = 3

_LOADED: Final = f"{__name__}:loaded"


class OwnProcess:
    """Calls one verifier in a process of its own, which is the same for all of one verifier.

    ``kind``: what stands in the study. ``grader``: fingerprint of the file as it was first read.
    ``seconds``: processor time of one response; see :class:`~rlbhpc.verify.running.pool.Pool`.
    """

    def __init__(self, kind: str, grader: str, seconds: float) -> None:
        self._grader = grader
        self._name = str(plugins.path_of(kind)) if plugins.is_file(kind) else kind
        self._pool: Pool = shared_pool(_LOADED, seconds=seconds, brought=kind)
        most = seconds * RETRY_FACTOR
        self._limit = (
            f"no verdict within {most:g} s of processor time or {wall_clock(most):g} s; a "
            "study's verification.timeout allows more"
        )
        self._in_a_row = 0

    def verdict(
        self, gold: str, response: str, problem: Problem | None, finish: str = ""
    ) -> Verdict:
        """Judge one response; without a verdict it is neither right nor wrong."""
        pickled = base64.b64encode(pickle.dumps(problem)).decode()
        (result,) = self._pool.run([[gold, response, pickled, finish]])
        if result.outcome == "done" and result.value["grader"] != self._grader:
            self._pool.close()  # it read the file before somebody edited it
            (result,) = self._pool.run([[gold, response, pickled, finish]])
        if result.outcome == "done":
            self._in_a_row = 0
            verdict = Verdict(**result.value | {"status": Status(result.value["status"])})
            if verdict.grader == self._grader:
                return verdict
            raise UserError(
                f"{self._name}: has changed since it was first read; start again to judge by it as "
                "it is now"
            )
        cause = self._limit if result.outcome == "timeout" else str(result.value)
        line = f"{self._name}: {problem.id if problem else repr(response[:80])}: {cause}"
        self._in_a_row += 1
        if self._in_a_row >= HOPELESS:
            raise UserError(f"{line} ({self._in_a_row} times in a row)")
        return Verdict(Status.ERROR, rule=line, grader=self._grader)


def verify_apart(
    problem: Problem, response: str, finish: str = "", seconds: float = SECONDS
) -> Verdict:
    """Judge one response to a problem; with a verifier that was brought, in its process."""
    if problem.verifier in KINDS:
        return verify(problem.verifier, problem.gold, response, problem, finish)
    return _process(problem.verifier, seconds).verdict(problem.gold, response, problem, finish)


@cache
def _process(kind: str, seconds: float) -> OwnProcess:
    return OwnProcess(kind, verifier(kind).FINGERPRINT, seconds)


def loaded(kind: str) -> Callable[[Any], Any]:
    """In the process: load a verifier, and give the function that calls it on JSON values."""
    module = verifier(kind)

    def judge(payload: Any) -> Any:
        gold, response, pickled, finish = payload
        # From the parent alone.
        problem = pickle.loads(base64.b64decode(pickled))  # noqa: S301
        verdict = guarded(module, module.verify, gold, response, problem, finish=finish)
        return asdict(verdict) | {"status": int(verdict.status), "seconds": 0.0}

    return judge


def refuse_what_raises(problem: Problem) -> None:
    """Refuse a verifier that cannot judge a problem's reference answer, or an empty response.

    What it says of them does not matter: a sample on which it raises is neither right nor wrong.
    """
    kind = problem.verifier
    named = str(plugins.path_of(kind)) if plugins.is_file(kind) else f"verifier {kind}"
    place = f"{named}: {problem.id}: judging"
    first_call(partial(_refuse_what_judge_raises, problem, place), f"{place} its reference answer")


def _refuse_what_judge_raises(problem: Problem, place: str) -> None:
    with plugins.isolated_plugin(problem.verifier) as kind:
        for what, response in (("its reference answer", problem.gold), ("an empty response", "")):
            verdict = verify(kind, problem.gold, response, problem)
            if verdict.status is Status.ERROR:
                raise UserError(f"{place} {what}, it {verdict.rule}")
