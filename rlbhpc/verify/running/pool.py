"""Worker processes that can be killed: for anything that may hang on what a model wrote.

A library's own timeout doesn't help: an alarm fails off the main thread and can't stop C code. Here
every task runs in a process under limits (address space, processor time, no files) and is watched
from outside. A task that hangs costs its deadline and one new process, never a slot. A reply is
JSON of bounded size; nothing is unpickled. A verifier that the user brings is trusted, so its
process has a limit of time alone.
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
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, Self

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.verify.registry import KINDS, call_guarded, verifier, verify
from rlbhpc.verify.running.worker import HEADER
from rlbhpc.verify.sandbox.supervisor import SleepClock
from rlbhpc.verify.verdict import Status, Verdict

MAX_REPLY: Final = 1 << 16
MAX_TRUSTED_REPLY: Final = 1 << 28
# A worker is replaced after so many tasks, in case the library that it runs leaks memory.
TASKS_PER_WORKER: Final = 10_000
RETRY_FACTOR: Final = 4
SECONDS: Final = 3.0
# A task is given up without a verdict after this many times its processor time on a busy node.
BUSY_NODE_FACTOR: Final = 100
_START_SECONDS: Final = 120.0
# A worker closes its pipe this many seconds before it ends, at most.
_EXIT_SECONDS: Final = 2.0
# Seconds between looks at what busy workers are doing.
_POLL_SECONDS: Final = 0.1
_WORKER_MODULE: Final = "rlbhpc.verify.running.worker"
_PACKAGE_ROOT: Final = Path(__file__).parents[3]

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
    """One worker process and the task that it is busy with; ``task`` is None while it is idle.

    ``deadline`` and ``last_deadline`` are times of the monotonic clock, ``max_sleep`` is in
    seconds.
    """

    process: subprocess.Popen[bytes]
    sleep_clock: SleepClock
    max_reply: int
    received: bytearray = field(default_factory=bytearray)
    task: int | None = None
    deadline: float = 0.0
    last_deadline: float = 0.0
    max_sleep: float = 0.0
    tasks_served: int = 0

    @property
    def replies(self) -> int:
        """Descriptor of the pipe that its replies come from."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def give(self, task: int, payload: Any, seconds: float) -> None:
        """Send the worker a task that may use so many seconds of processor time.

        ``task``: its number. ``payload``: the JSON value that the worker's function gets. The sleep
        clock measures how long the process sleeps from now on. ``deadline``: the earliest time at
        which it can have slept for ``max_sleep`` seconds, which is too long. ``last_deadline``:
        when it is given up, however busy the node was. If its pipe is broken, the deadline counts
        as passed.
        """
        self.task = task
        self.tasks_served += 1
        self.sleep_clock = SleepClock(self.process.pid)
        self.max_sleep = max_sleep_seconds(seconds)
        self.deadline = time.monotonic() + self.max_sleep
        self.last_deadline = self.deadline + BUSY_NODE_FACTOR * seconds
        frame = json.dumps({"payload": payload, "cpu": seconds}).encode()
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(HEADER.pack(len(frame)) + frame)
        except BrokenPipeError:
            self.deadline = 0.0

    def is_late(self) -> bool:
        """Return whether its task has slept too long, or is given up on a busy node."""
        slept = self.sleep_clock.seconds()
        now = time.monotonic()
        # Where the node hides how long a process has slept, all time counts.
        if slept is None or now >= self.last_deadline:
            return now >= self.deadline
        return slept > self.max_sleep

    def has_reply(self) -> bool:
        """Return whether something arrives from it within a moment."""
        return bool(_wait_for_replies([self], seconds=0.05))

    def read_reply(self) -> dict[str, Any] | None:
        """Read what has arrived of the reply; return it once it is complete, else None.

        A reply is a frame: a header with its length, then a JSON object. Anything else, and the end
        of the pipe, means that the worker is broken or dead.
        """
        data = os.read(self.replies, MAX_REPLY)
        if not data:
            # A process may close its pipe and live on.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_EXIT_SECONDS)
            raise _WorkerDiedError
        self.received += data
        if len(self.received) < HEADER.size:
            return None
        (size,) = HEADER.unpack_from(self.received)
        if size > self.max_reply:
            raise _WorkerDiedError
        frame_end = HEADER.size + size
        if len(self.received) < frame_end:
            return None
        body = bytes(self.received[HEADER.size : frame_end])
        self.received.clear()
        try:
            reply = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise _WorkerDiedError from error
        if not isinstance(reply, dict):
            raise _WorkerDiedError
        return reply

    def kill(self) -> None:
        """Kill the process with everything that it may have started, and close its pipes."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


class _WorkerDiedError(Exception):
    """The worker closed its pipe, or wrote something that is no reply."""


def _wait_for_replies(workers: Sequence[_Worker], seconds: float) -> list[_Worker]:
    """Wait so long at most for replies; the workers that have written something."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.replies, selectors.EVENT_READ, worker)
        return [key.data for key, _ in selector.select(seconds)]


def max_sleep_seconds(cpu_seconds: float) -> float:
    """Seconds that a task may sleep if it may use so much processor time."""
    return 3 * cpu_seconds + 2


class Pool:
    """A few killable workers that all run one function.

    Parameters
    ----------
    function
        ``"module:function"``, imported in the workers. It maps a JSON value to a JSON value.
    workers
        Most workers at a time.
    seconds
        Processor time of one task. It may sleep for three times that and two seconds more. Time
        in which it waits for a processor that others have doesn't count.
    memory
        Address space of one worker in bytes.
    plugin
        Name of a verifier that the user brings, if this pool runs one. ``function`` then takes
        the name and returns the function to run.
    """

    def __init__(
        self, function: str, workers: int = 1, seconds: float = SECONDS, memory: int = 2 << 30,
        plugin: str = "",
    ) -> None:  # fmt: skip
        """Prepare a pool; its workers start when they are needed.

        ``function``: ``module:function``, called in the workers on one JSON value per task.
        ``workers``: most at a time. ``seconds``: processor time of a task. ``memory``: bytes of
        address space of a worker. ``plugin``: name of a verifier that the user brings, if the pool
        is for one. The pool belongs to the process that made it: after a fork the workers are the
        parent's.
        """
        self.function = function
        self.plugin = plugin
        self.size = workers
        self.seconds = seconds
        self.memory = memory
        self.started = 0
        self._workers: list[_Worker] = []
        self._lock = threading.Lock()
        self._owner_pid = os.getpid()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers."""
        if os.getpid() == self._owner_pid:
            for worker in self._workers:
                worker.kill()
        self._workers.clear()

    def run(self, payloads: Sequence[Any]) -> list[Result]:
        """Run the function on each payload and return the results in order.

        A payload is the JSON value that a task passes to the function. Tasks that ran out of time
        are tried once more, one at a time, with ``RETRY_FACTOR`` times the time: a task that only a
        busy machine made slow is no timeout.
        """
        with self._lock:
            if os.getpid() != self._owner_pid:
                # After a fork the workers belong to the parent.
                self._workers = []
                self._owner_pid = os.getpid()
            tasks = list(range(len(payloads)))
            results = self._run_tasks(payloads, tasks, self.seconds, self.size)
            late = [task for task in tasks if results[task].outcome == "timeout"]
            results |= self._run_tasks(payloads, late, self.seconds * RETRY_FACTOR, 1)
            return [results[task] for task in tasks]

    def _run_tasks(
        self, payloads: Sequence[Any], tasks: list[int], seconds: float, max_busy: int
    ) -> dict[int, Result]:
        """Run some tasks on at most ``max_busy`` workers at a time; return results by number.

        ``tasks``: numbers of the payloads to run. A payload is the JSON value that the function
        gets. ``seconds``: processor time of each.
        """
        waiting = deque(tasks)
        results: dict[int, Result] = {}
        while len(results) < len(tasks):
            while waiting and len(self._busy_workers()) < max_busy:
                task = waiting.popleft()
                self._find_idle_worker().give(task, payloads[task], seconds)
            for worker in self._wait_for_workers():
                result = self._collect_result(worker)
                if result is not None:
                    assert worker.task is not None
                    results[worker.task] = result
                    worker.task = None
        return results

    def _busy_workers(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.task is not None]

    def _find_idle_worker(self) -> _Worker:
        """Return a live worker without a task; a new one if there is none.

        Workers that have died, or that have served so many tasks that a leak may have filled their
        memory, are replaced.
        """
        for worker in [worker for worker in self._workers if worker.task is None]:
            if worker.tasks_served < TASKS_PER_WORKER and worker.process.poll() is None:
                return worker
            self._drop(worker)
        worker = self._start_worker()
        self._workers.append(worker)
        return worker

    def _start_worker(self) -> _Worker:
        """Start a worker process and wait until it says that its imports are done.

        A verifier that the user brings (``plugin``) is trusted: its process keeps our environment,
        folder and standard error. Any other gets a bare environment, ``/`` as its folder, and no
        standard error. The first reply says that the worker is ready.
        """
        is_trusted = bool(self.plugin)
        command = [sys.executable, "-P", "-m", _WORKER_MODULE]
        process = subprocess.Popen(
            [*command, self.function, str(self.memory), self.plugin],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if is_trusted else subprocess.DEVNULL,
            bufsize=0,
            cwd=None if is_trusted else "/",
            env=_worker_environment(is_trusted),
            start_new_session=True,
        )
        self.started += 1
        max_reply = MAX_TRUSTED_REPLY if is_trusted else MAX_REPLY
        worker = _Worker(process, SleepClock(process.pid), max_reply)
        deadline = time.monotonic() + _START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(_WorkerDiedError):
                if worker.has_reply() and worker.read_reply() is not None:
                    return worker
        worker.kill()
        raise UserError(
            f"verification worker {self.function}: did not start (exit {process.returncode}); run "
            f"`python -m {_WORKER_MODULE} {self.function} {self.memory} {self.plugin}` to see why"
        )

    def _wait_for_workers(self) -> list[_Worker]:
        """Wait a moment; the busy workers that have replied, died or run out of time."""
        busy = self._busy_workers()
        replied = _wait_for_replies(busy, _POLL_SECONDS)
        late = [worker for worker in busy if worker not in replied and worker.is_late()]
        return replied + late

    def _collect_result(self, worker: _Worker) -> Result | None:
        """Return the result of a worker's task; None if the reply isn't complete yet.

        Called for a worker that has written something, has died, or is late. One that is late, died
        or hit its limits is dropped, so a new one takes its place. A reply holds ``value``,
        ``limit`` (memory or recursion) or ``error``. The signals SIGPROF and SIGXCPU are how the
        kernel ends a process that has used up its processor time.
        """
        now = time.monotonic()
        if now >= worker.deadline and not worker.has_reply():
            self._drop(worker)
            if now >= worker.last_deadline:
                return Result("error", "the node is too busy")
            return Result("timeout")
        try:
            reply = worker.read_reply()
        except _WorkerDiedError:
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
        worker.kill()
        self._workers.remove(worker)


def _worker_environment(is_trusted: bool) -> dict[str, str]:
    """Return the environment of a worker: all of ours if it is trusted, else no secret.

    The added variables let it import this package, make runs repeatable, and keep it from writing
    bytecode and from starting threads.
    """
    names = os.environ if is_trusted else ("PATH", "LANG", "LD_LIBRARY_PATH")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    python_path = [str(_PACKAGE_ROOT)]
    if "PYTHONPATH" in os.environ:
        python_path.append(os.environ["PYTHONPATH"])
    environment["PYTHONPATH"] = os.pathsep.join(python_path)
    environment["PYTHONHASHSEED"] = "0"
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment["OMP_NUM_THREADS"] = "1"
    return environment


@cache
def shared_pool(
    function: str, workers: int = 1, seconds: float = SECONDS, plugin: str = ""
) -> Pool:
    """Return this process's pool of workers for a function, made on the first call.

    ``function``: ``module:function``. ``plugin``: name of a verifier that the user brings. The
    workers start on first use and end with this process.
    """
    pool = Pool(function, workers, seconds, plugin=plugin)
    atexit.register(pool.close)
    return pool


# --- a verifier that a study brings, which may hang or end its process ---------------------------

# After so many responses in a row without a verdict nothing more is expected of a verifier.
MAX_FAILURES_IN_A_ROW: Final = 3

_LOAD_VERIFIER: Final = f"{__name__}:load_verifier"


class OwnProcess:
    """Calls a verifier that the study brings in another process.

    Parameters
    ----------
    kind
        How the study names the verifier.
    fingerprint
        Fingerprint of the verifier's file when it was first read.
    seconds
        Processor time of one response; see :class:`Pool`.
    """

    def __init__(self, kind: str, fingerprint: str, seconds: float) -> None:
        """Prepare to call the verifier; its process starts with the first response.

        ``kind``: how the study names the verifier. ``fingerprint``: identifies its file by the
        bytes that were first read. ``seconds``: processor time of one response. The pool tries a
        response that took too long once more, with ``RETRY_FACTOR`` times the time, so that much is
        named in the message.
        """
        self._fingerprint = fingerprint
        self._name = _display_name(kind)
        self._pool: Pool = shared_pool(_LOAD_VERIFIER, seconds=seconds, plugin=kind)
        max_cpu_seconds = seconds * RETRY_FACTOR
        self._timeout_message = (
            f"no verdict within {max_cpu_seconds:g} s of processor time or "
            f"{max_sleep_seconds(max_cpu_seconds):g} s; a study's verification.timeout allows more"
        )
        self._failures_in_a_row = 0

    def verdict(
        self, gold: str, response: str, problem: Problem | None, finish: str = ""
    ) -> Verdict:
        """Judge one response in the verifier's process; without a verdict the status is ERROR.

        The *fingerprint* identifies the verifier's file by its bytes; a verdict names the one that
        it was made with as its ``grader``. If the file has changed since the process read it, the
        process is started again; if it differs from what was first read, that is an error of the
        user. So are several responses in a row without a verdict.
        """
        pickled_problem = base64.b64encode(pickle.dumps(problem)).decode()
        payload = [gold, response, pickled_problem, finish]
        (result,) = self._pool.run([payload])
        if result.outcome == "done" and result.value["grader"] != self._fingerprint:
            # The process read the file before somebody edited it.
            self._pool.close()
            (result,) = self._pool.run([payload])
        if result.outcome == "done":
            self._failures_in_a_row = 0
            status = Status(result.value["status"])
            verdict = Verdict(**result.value | {"status": status})
            if verdict.grader != self._fingerprint:
                raise UserError(
                    f"{self._name}: has changed since it was first read; start again to judge by "
                    "it as it is now"
                )
            return verdict
        reason = self._timeout_message if result.outcome == "timeout" else str(result.value)
        sample = problem.id if problem else repr(response[:80])
        message = f"{self._name}: {sample}: {reason}"
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
            raise UserError(f"{message} ({self._failures_in_a_row} times in a row)")
        return Verdict(Status.ERROR, rule=message, grader=self._fingerprint)


def _display_name(kind: str) -> str:
    return str(plugins.path_of(kind)) if plugins.is_file(kind) else kind


def verify_apart(
    problem: Problem, response: str, finish: str = "", seconds: float = SECONDS
) -> Verdict:
    """Judge one response to a problem; a verifier that the study brings runs in its own process.

    ``finish``: how the response ended, empty if nobody knows. ``seconds``: processor time for such
    a verifier. ``KINDS`` are the verifiers of this package, which are called directly.
    """
    if problem.verifier in KINDS:
        return verify(problem.verifier, problem.gold, response, problem, finish)
    process = _own_process(problem.verifier, seconds)
    return process.verdict(problem.gold, response, problem, finish)


@cache
def _own_process(kind: str, seconds: float) -> OwnProcess:
    return OwnProcess(kind, verifier(kind).FINGERPRINT, seconds)


def load_verifier(kind: str) -> Callable[[Any], Any]:
    """Return a function that calls the verifier of ``kind`` on JSON values; for the worker process.

    Its argument is the reference answer, the response, the problem (pickled, in base64) and how the
    response ended. It returns the fields of the verdict.
    """
    module = verifier(kind)

    def judge(payload: Any) -> Any:
        gold, response, pickled_problem, finish = payload
        # The pickle was written by the parent process alone.
        problem = pickle.loads(base64.b64decode(pickled_problem))  # noqa: S301
        verdict = call_guarded(module, module.verify, gold, response, problem, finish=finish)
        return asdict(verdict) | {"status": int(verdict.status), "seconds": 0.0}

    return judge


def reject_raising_verifier(problem: Problem) -> None:
    """Refuse a verifier that raises on a problem's reference answer, or on an empty response.

    Its verdicts don't matter here: a sample on which it raises is neither right nor wrong. A
    verdict of status ERROR has what was raised as its ``rule``. ``isolated_plugin`` gives the
    verifier a copy of its file in an empty folder, as jobs have it.
    """
    place = f"{_display_name(problem.verifier)}: {problem.id}: judging"
    if not plugins.is_file(problem.verifier):
        place = f"verifier {place}"
    responses = {"its reference answer": problem.gold, "an empty response": ""}
    with plugins.isolated_plugin(problem.verifier) as kind:
        for description, response in responses.items():
            verdict = verify(kind, problem.gold, response, problem)
            if verdict.status is Status.ERROR:
                raise UserError(f"{place} {description}, it {verdict.rule}")
