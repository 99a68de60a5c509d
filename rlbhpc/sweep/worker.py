"""Work one shard: load a model once, sample what is still missing, verify and store as it comes.

The worker shares nothing with other workers but files. It asks the store again what is missing
when it starts, so a shard that somebody else has worked in the meantime costs nothing.
"""

from __future__ import annotations

import logging
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final

from rlbhpc.engines.completion import Completion, Finish, Request
from rlbhpc.engines.driver import draw
from rlbhpc.engines.engine import Engine
from rlbhpc.engines.episode import Tools
from rlbhpc.errors import DONE, TRY_AGAIN, UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.prompts import render
from rlbhpc.store.cube_schema import JUDGED
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.parts import FAILED
from rlbhpc.store.sample_rows import Sample
from rlbhpc.study.keys import SampleKey, Sampling, sample_seed
from rlbhpc.study.study import Study
from rlbhpc.sweep.attempt import Attempt
from rlbhpc.sweep.judge import Judge, SampleRequest
from rlbhpc.sweep.load import load_engine, reject_unseen_images
from rlbhpc.sweep.plan import Plan, Shard, Span, read_presence
from rlbhpc.sweep.process import Drain, Progress, devices, shares
from rlbhpc.verify.tools import open_tools
from rlbhpc.verify.verdict import Status

log = logging.getLogger(__name__)

# Tries before a sample is stored as failed: the first beside others, the rest alone, so that one
# poisonous prompt cannot take its neighbours along.
_MAX_TRIES: Final = 3
# How long to wait for verdicts before looking whether storing them has failed.
_WAIT_SECONDS: Final = 0.2


@dataclass(frozen=True)
class Work:
    """What a worker needs to know, apart from its shard."""

    study: Study
    plan: Plan
    problems: Mapping[str, Problem]
    make_engine: Callable[[Shard], Engine]
    drain: Drain
    progress: Progress


def load_all_problems(study: Study, shards: tuple[Shard, ...]) -> dict[str, Problem]:
    """Read the problem sets that some shards need; problems by id."""
    set_names = dict.fromkeys(span.set_name for shard in shards for span in shard.spans)
    return {problem.id: problem for name in set_names for problem in study.problems(name)}


def still_missing(study: Study, plan: Plan, shard: Shard) -> list[ProblemQueue]:
    """The samples of a shard that nobody has stored since the plan was made, a queue per problem.

    A *shard* is the part of a plan that one worker takes: *spans*, ranges of samples of one
    problem. A *block* is all samples of one arm, problem set and step; ``read_presence`` tells what
    the store holds of each, and ``missing_runs`` gives the ranges that it lacks. What is both
    missing and in the shard is to be drawn. ``shard.retries``: samples stored as failed count as
    missing.
    """
    spans_by_block: dict[tuple[str, str, int], dict[str, list[Span]]] = {}
    for span in shard.spans:
        spans_of_block = spans_by_block.setdefault((span.arm, span.set_name, span.step), {})
        spans_of_block.setdefault(span.problem, []).append(span)
    blocks = [study.block(*block, tuple(spans)) for block, spans in spans_by_block.items()]
    shard_prefix = f"{plan.name}-{shard.number:05d}-"

    def is_of_other_shard(journal: str) -> bool:
        """Other shards of the plan have no samples of this one."""
        return journal.startswith(f"{plan.name}-") and not journal.startswith(shard_prefix)

    queues: list[ProblemQueue] = []
    presences = read_presence(study.layout, blocks, passed_over=is_of_other_shard)
    for presence, spans_of_problem in zip(presences, spans_by_block.values(), strict=True):
        if shard.retries:
            presence = presence.with_failures_missing()
        missing_spans: dict[int, list[Span]] = {}
        for run in presence.missing_runs():
            for span in spans_of_problem[presence.block.problems[run.problem]]:
                start = max(run.start, span.start)
                stop = min(run.stop, span.stop)
                if start < stop:
                    missing_span = span._replace(start=start, stop=stop)
                    missing_spans.setdefault(run.problem, []).append(missing_span)
        for problem, spans in missing_spans.items():
            queue_of_problem = ProblemQueue(
                spans=sorted(spans),
                stop_after=presence.block.stop_after,
                completed=int(presence.count[problem]),
                right=int(presence.right[problem]),
            )
            queues.append(queue_of_problem)
    return sorted(queues, key=lambda problem_queue: problem_queue.first_span)


def work(job: Work, shard: Shard) -> int:
    """Work one shard to its end, or until drained. Returns an exit code."""
    queues = still_missing(job.study, job.plan, shard)
    missing = sum(len(problem_queue.indices) for problem_queue in queues)
    job.progress.done += shard.samples - missing
    log.debug("shard %d: %d of %d samples are missing", shard.number, missing, shard.samples)
    if not queues:
        return DONE
    queues_by_arm: dict[str, list[ProblemQueue]] = {}
    for problem_queue in queues:
        queues_by_arm.setdefault(problem_queue.first_span.arm, []).append(problem_queue)
    arm_queues = {arm: ArmQueue(of_arm) for arm, of_arm in queues_by_arm.items()}
    layout = job.study.layout
    samples_before = job.progress.done
    tokens_before = job.progress.tokens
    attempt = Attempt(layout.attempts, job.plan.name, shard.number)
    outcome = "failed"
    judge = Judge(job.problems, job.study.file.verification)

    def note_stored(row: Sample) -> None:
        """Learn of a stored sample: tell its queue, and count it in the progress.

        ``note_stored`` of the queue gives how many samples need not be drawn any more, since the
        problem has enough right ones; they come off the total.
        """
        key = row.key
        job.progress.total -= arm_queues[key.arm].note_stored(row)
        is_right = row.verdict == Status.RIGHT
        job.progress.add(key.arm, key.step, key.problem, row.n_tokens, is_right)
        if row.verdict in FAILED:
            job.progress.failed(row.error or row.rule)

    try:
        engine = job.make_engine(shard)
        attempt.record_loaded()
        try:
            for arm, of_arm in queues_by_arm.items():
                _check_prompts(job, engine, arm, of_arm)
            with Recorder(judge, layout.journals, attempt.name, note_stored) as recorder:
                for arm, arm_queue in arm_queues.items():
                    with open_tools(job.study.arms[arm].sampling) as tools:
                        _sample_arm(job, engine, recorder, arm, arm_queue, tools)
        finally:
            if not job.drain.abandoned:
                engine.close()
        outcome = "drained" if job.drain.requested else "done"
    finally:
        figures = {
            "samples": job.progress.done - samples_before,
            "tokens": job.progress.tokens - tokens_before,
            "verification": judge.close(),
        }
        log.debug("shard %d: %s, %s", shard.number, outcome, figures)
        # Where the disk is full this record cannot be written either; the first error is told.
        with suppress(UserError) if outcome == "failed" else nullcontext():
            attempt.record_end(outcome, **figures)
    return TRY_AGAIN if outcome == "drained" else DONE


def _check_prompts(job: Work, engine: Engine, arm: str, queues: Sequence[ProblemQueue]) -> None:
    """Refuse problems and prompts that the model of an arm cannot be shown."""
    problems = [job.problems[problem_queue.first_span.problem] for problem_queue in queues]
    reject_unseen_images(engine, arm, problems)
    prompt = job.study.prompts[job.study.arms[arm].prompt]
    engine.tokens.check_prompt(prompt, render(prompt, problems[0]))


def _sample_arm(
    job: Work,
    engine: Engine,
    recorder: Recorder,
    arm: str,
    arm_queue: ArmQueue,
    tools: Tools | None,
) -> None:
    """Sample all of one arm, then what failed, each request alone.

    ``arm_queue`` hands out the keys of the samples to draw, or None while no problem may have more
    under way. ``recorder`` verifies and stores completions in another thread. ``pending`` holds
    what is under way by its tag, by which a completion is matched to its request. ``job.drain``
    says when to stop. ``tools``: what responses may call, if the arm has turns.

    Where problems stop after some right samples, nobody knows yet which have enough when all of
    them have as many samples under way as they may. Then the engine finishes those, and the next
    round begins when their verdicts are there.
    """
    sampling = job.study.arms[arm].sampling
    make_request = _make_requests(job, engine, arm)
    pending: dict[int, tuple[SampleRequest, Request]] = {}
    tags = count()

    def requests() -> Iterator[Request]:
        """Requests of samples that may be drawn now, until there is none or the job is to stop."""
        while not job.drain.requested:
            next_key = arm_queue.next()
            if next_key is None:
                return
            tag = next(tags)
            pending[tag] = make_request(tag, next_key)
            yield pending[tag][1]

    while arm_queue.is_open:
        log.debug("arm %s: a round begins", arm)
        failed: list[tuple[SampleRequest, Request]] = []
        for completion in job.drain.within(draw(engine, requests(), sampling, tools)):
            sample_request, request = pending.pop(completion.tag)
            if completion.finish is Finish.ERROR:
                log.debug("arm %s: a request failed: %s", arm, completion.error)
                failed.append((sample_request, request))
            else:
                recorder.put(sample_request, completion)
        for sample_request, request in failed:
            if job.drain.requested:
                return
            recorder.put(sample_request, _retry_alone(engine, request, sampling, tools))
        # The next round needs the verdicts of this one.
        while arm_queue.is_open and not job.drain.abandoned:
            if arm_queue.wait_until_stored(_WAIT_SECONDS):
                break
            recorder.raise_error()
        if job.drain.requested:
            return


def _retry_alone(
    engine: Engine, request: Request, sampling: Sampling, tools: Tools | None
) -> Completion:
    """Try a request that failed by itself; the last failure if it fails every time."""
    for _ in range(_MAX_TRIES - 1):
        (completion,) = draw(engine, [request], sampling, tools)
        if completion.finish is not Finish.ERROR:
            return completion
    return completion


def _make_requests(
    job: Work, engine: Engine, arm: str
) -> Callable[[int, SampleKey], tuple[SampleRequest, Request]]:
    """Make a function that gives the requests for a sample of one arm, by tag and key.

    It gives two: what is stored beside the response (key, seed, fingerprint of all that determines
    the sample), and what the engine is asked (tag, prompt tokens, seed, images). Each prompt is
    tokenised once.
    """
    study = job.study
    prompt = study.prompts[study.arms[arm].prompt]

    @cache
    def encode_prompt(problem_id: str) -> tuple[tuple[int, ...], tuple[bytes, ...]]:
        problem = job.problems[problem_id]
        return engine.tokens.encode(render(prompt, problem)), problem.pictures

    @cache
    def fingerprint_of(step: int, problem_id: str) -> int:
        return study.request_fingerprint(arm, step, problem_id)

    def make_request(tag: int, key: SampleKey) -> tuple[SampleRequest, Request]:
        seed = sample_seed(study.seed, key)
        prompt_ids, images = encode_prompt(key.problem)
        request = Request(tag, prompt_ids, seed, images)
        return SampleRequest(key, seed, fingerprint_of(key.step, key.problem)), request

    return make_request


# --- which sample to draw next -------------------------------------------------------------------
#
# Where the study stops a problem at its r-th right sample, a worker may have only so many of its
# samples under way as it will surely or probably need: all that are still missing to r, or half of
# what the rate so far says it takes, whichever is more. The rest of the engine's rows go to other
# problems. Simulated on problems like MATH500 that draws 3 to 5 % more than is needed; with all
# instead of half it is 6 to 8 %, with a quarter the engine runs dry more often.


# Share of the samples that a problem is expected to take that may be under way.
_SHARE_UNDER_WAY: Final = 0.5


@dataclass
class ProblemQueue:
    """The missing samples of one problem, lowest index first.

    ``spans``: the missing samples. ``stop_after``: right samples at which it ends; 0 draws all of
    them. ``completed, right``: samples that have a verdict, and right ones among them.
    ``under_way``: samples that were handed out and are not stored yet.
    """

    spans: Sequence[Span]
    stop_after: int
    completed: int
    right: int
    under_way: int = 0
    indices: deque[int] = field(init=False)

    def __post_init__(self) -> None:
        self.indices = deque()
        for span in self.spans:
            self.indices.extend(range(span.start, span.stop))
        if self.right >= self.stop_after:
            # Only holes before the last right sample are missing: they are all needed.
            self.stop_after = 0

    @property
    def first_span(self) -> Span:
        """The first span; all have the same arm, step and problem."""
        return self.spans[0]

    @property
    def may_have_more_under_way(self) -> bool:
        """Whether one more sample of this problem may be handed out before the others are stored.

        Where the problem ends at its ``stop_after``-th right sample, at most as many may be under
        way as are surely needed (all right ones that are lacking), or half of what its rate so far
        says it takes, whichever is more: more would often be drawn in vain. Where it does not end
        early, there is no limit.
        """
        if not self.stop_after:
            return True
        right_needed = self.stop_after - self.right
        # Half a right sample is added, so that a problem without one is not expected to take
        # infinitely many.
        samples_per_right = (self.completed + 1) / (self.right + 0.5)
        expected_samples = right_needed * samples_per_right
        return self.under_way < max(right_needed, int(_SHARE_UNDER_WAY * expected_samples))

    def pop_key(self) -> SampleKey:
        """Hand out the next sample."""
        self.under_way += 1
        span = self.first_span
        return SampleKey(span.arm, span.step, span.problem, self.indices.popleft())


class ArmQueue:
    """Hands out the samples of some problems, and learns which were right.

    Samples are handed out in the engine's thread and come back in the recorder's.
    """

    def __init__(self, queues: Iterable[ProblemQueue]) -> None:
        """Take the queues of one arm: each holds the missing samples of a problem at one step.

        Queues are found by step and problem when a sample comes back. Only those with samples to
        hand out are open. The lock is for the engine's and the recorder's thread.
        """
        self._queue_of_problem = {
            (queue.first_span.step, queue.first_span.problem): queue for queue in queues
        }
        open_queues = [queue for queue in self._queue_of_problem.values() if queue.indices]
        self._open_queues = deque(open_queues)
        self._lock = threading.Condition()

    @property
    def is_open(self) -> bool:
        """Whether there is more to hand out, now or when verdicts have come."""
        return bool(self._open_queues)

    def next(self) -> SampleKey | None:
        """Hand out a sample; None where no problem may have more under way for now.

        The first open queue that may hand out keeps its turn; one that may not is put at the end.
        Each is asked once. A queue that has nothing left to hand out is closed.
        """
        with self._lock:
            for _ in range(len(self._open_queues)):
                queue = self._open_queues[0]
                if queue.may_have_more_under_way:
                    key = queue.pop_key()
                    if not queue.indices:
                        self._open_queues.popleft()
                    return key
                self._open_queues.rotate(-1)
        return None

    def note_stored(self, row: Sample) -> int:
        """Learn of a stored sample. Returns how many others need not be drawn any more.

        A problem that has its ``stop_after`` right samples gives up what it has not handed out.
        ``JUDGED``: verdicts that say something of the response; only these samples count as
        completed.
        """
        with self._lock:
            queue = self._queue_of_problem[row.key.step, row.key.problem]
            queue.under_way -= 1
            queue.completed += row.verdict in JUDGED
            queue.right += row.verdict == Status.RIGHT
            spared = 0
            has_enough = queue.stop_after and queue.right >= queue.stop_after
            if has_enough and queue.indices:
                spared = len(queue.indices)
                queue.indices.clear()
                self._open_queues.remove(queue)
            self._lock.notify_all()
            return spared

    def wait_until_stored(self, seconds: float) -> bool:
        """Wait until all that was handed out is stored; False where that takes longer."""
        queues = self._queue_of_problem.values()
        with self._lock:
            return self._lock.wait_for(
                lambda: not any(queue.under_way for queue in queues), timeout=seconds
            )


# --- verifying and storing beside the engine -----------------------------------------------------


# Completions that may wait for verification. Each is some kilobytes; when verification is slower
# than sampling for so long, the engine has to wait after all, or memory would grow without end.
_MAX_WAITING: Final = 4096
# Completions that are verified as one batch.
_BATCH: Final = 256


class Recorder:
    """Verifies and journals completions in the background; closing it flushes everything.

    An error on the recording side (a full disk) is raised to the sampling side at its next
    ``put``, so a sweep never goes on sampling what it cannot keep.
    """

    def __init__(
        self,
        judge: Judge,
        folder_of: Callable[[str, str], Path],
        attempt: str,
        on_stored: Callable[[Sample], None],
    ) -> None:
        """Prepare the thread that verifies completions and appends them to journals.

        ``judge``: verifies completions. ``folder_of``: folder of the journals of an arm on a
        problem set. ``attempt``: name of this worker's run, which its journals bear. ``on_stored``:
        called for each stored sample. The queue is bounded, so that the engine waits when
        verification is too slow.
        """
        self._judge = judge
        self._folder_of = folder_of
        self._attempt = attempt
        self._on_stored = on_stored
        self._writers: dict[tuple[str, str], JournalWriter] = {}
        self._waiting: queue.Queue[tuple[SampleRequest, Completion] | None] = queue.Queue(
            _MAX_WAITING
        )
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def __enter__(self) -> Recorder:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait until all that was put is stored, and raise what went wrong with it.

        None in the queue tells the thread to end. ``kind, error, trace``: what ended the block, if
        an error did.
        """
        self._waiting.put(None)
        self._thread.join()
        # What was sampled and is not stored matters more than why sampling stopped.
        if self._error is not None and self._error is not error:
            raise self._error from error

    def put(self, request: SampleRequest, completion: Completion) -> None:
        """Hand over one completion."""
        self.raise_error()
        self._waiting.put((request, completion))

    def raise_error(self) -> None:
        """Raise what went wrong with recording, if anything did."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        """Store batch after batch until the recorder is closed. Runs in the thread.

        ``_next_batch`` waits for completions and tells whether they are the last. ``_keep_error``
        calls a function and keeps its error for the sampling side. Journals are closed in any case.
        """
        is_closing = False
        while not is_closing:
            batch, is_closing = self._next_batch()
            # After an error the queue is still emptied, or the sampling side would block on it.
            if self._error is None:
                self._keep_error(partial(self._store, batch))
        for writer in self._writers.values():
            self._keep_error(writer.close)

    def _keep_error(self, action: Callable[[], None]) -> None:
        """Call a function and keep its error for the sampling side; the first error counts."""
        try:
            action()
        except BaseException as error:
            self._error = self._error or error

    def _store(self, batch: list[tuple[SampleRequest, Completion]]) -> None:
        """Verify some completions and append them to their journals."""
        for row in self._judge.samples(batch):
            self._writer(row.key.arm, row.key.set_name).append(row)
            self._on_stored(row)
        for writer in self._writers.values():
            writer.sync_if_due()

    def _next_batch(self) -> tuple[list[tuple[SampleRequest, Completion]], bool]:
        """Everything that waits, at least one and at most a batch; and whether it was the last.

        The first item is waited for; None in the queue says that no more will come.
        """
        batch: list[tuple[SampleRequest, Completion]] = []
        item = self._waiting.get()
        while item is not None:
            batch.append(item)
            if len(batch) >= _BATCH or self._waiting.empty():
                return batch, False
            item = self._waiting.get()
        return batch, True

    def _writer(self, arm: str, set_name: str) -> JournalWriter:
        """The journal of an arm on a problem set; it is made at its first sample."""
        if (arm, set_name) not in self._writers:
            folder = self._folder_of(arm, set_name)
            self._writers[arm, set_name] = JournalWriter(folder, self._attempt)
        return self._writers[arm, set_name]


# ---- local ---------------------------------------------------------------------------------------
# Run a plan on this machine: one worker per device, no scheduler.


_POLL_SECONDS = 0.5


def run_plan(
    study: Study,
    plan: Plan,
    path: Path,
    drain: Drain,
    workers: int | None = None,
    *,
    backwards: bool = False,
) -> int:
    """Work all shards of a plan, by default in a process for each copy that the GPUs hold.

    A *plan* is missing samples, cut into shards, each the work of one worker. ``path``: the plan's
    file. ``drain``: says when to stop. ``workers``: processes; by default ``shares`` tells how many
    copies of the model fit onto the GPUs. ``backwards``: begin with the last shard, where another
    process begins with the first. Each shard looks what is there by then. Returns an exit code.
    """
    gpus_per_copy = study.file.engine.tensor_parallel
    worker_count = workers or max(1, len(shares(devices(), gpus_per_copy)))
    shards = plan.shards[::-1] if backwards else plan.shards
    if worker_count == 1:
        return run_here(study, plan, shards, drain)
    numbers = [shard.number for shard in shards]
    return run_workers(path, numbers, worker_count, drain, gpus_per_copy)


def run_here(study: Study, plan: Plan, shards: Sequence[Shard], drain: Drain) -> int:
    """Work shards one after the other in this process. Returns an exit code.

    A *shard* is a part of a plan: missing samples for one worker with one model. ``drain`` says
    when to stop; the code then says that the rest is to be tried again.
    """
    progress = Progress(sum(shard.samples for shard in shards))
    job = Work(
        study=study,
        plan=plan,
        problems=load_all_problems(study, tuple(shards)),
        make_engine=lambda shard: load_engine(study, shard.engine, shard.model, shard.step),
        drain=drain,
        progress=progress,
    )
    exit_code = DONE
    for shard in shards:
        if drain.requested:
            log.debug("asked to stop before shard %d", shard.number)
            exit_code = TRY_AGAIN
            break
        exit_code = max(exit_code, work(job, shard))
    progress.finish()
    return exit_code


def run_workers(
    plan: Path, shards: Sequence[int], workers: int, drain: Drain, gpus_per_copy: int = 1
) -> int:
    """Work shards in ``workers`` processes, each with the GPUs of one copy of the model.

    ``plan``: the plan's file. ``shards``: numbers of its shards, dealt to the workers in turn.
    ``shares`` gives the GPUs of each copy; a worker beyond these sees no GPU. A warning to this
    process is handed on to the workers, which drain by themselves within ``drain.grace`` seconds.
    Returns the largest exit code.
    """
    gpus_of_copies = shares(devices(), gpus_per_copy)
    processes = []
    for number in range(min(workers, len(shards))):
        environment = dict(os.environ)
        if gpus_of_copies:
            gpus = gpus_of_copies[number] if number < len(gpus_of_copies) else ""
            environment["CUDA_VISIBLE_DEVICES"] = gpus
        shards_of_worker = ",".join(str(shard) for shard in shards[number::workers])
        command = [sys.executable, "-P", "-m", "rlbhpc", "run", str(plan)]
        command += ["--shards", shards_of_worker, "--grace", str(drain.grace)]
        log.debug("worker %d: %s", number, command)
        processes.append(subprocess.Popen(command, env=environment))
    was_warned = False
    while any(process.poll() is None for process in processes):
        if drain.requested and not was_warned:
            was_warned = True
            for process in processes:
                process.terminate()
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_POLL_SECONDS)
    return max((_exit_code(process) for process in processes), default=DONE)


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    """Exit code of a process, as a shell tells it where the process died of a signal.

    So the parent of a job sees a failure, such as of memory, and not that all have drained.
    """
    code: int = process.returncode
    return 128 - code if code < 0 else code
