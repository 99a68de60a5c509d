"""Work one shard: load a model once, sample what is still missing, verify and store as it comes.

The worker shares nothing with other workers but files. It asks the store again what is missing
when it starts, so a shard that somebody else has worked in the meantime costs nothing.
"""

from __future__ import annotations

import logging
import queue
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
from rlbhpc.engines.engine import Engine
from rlbhpc.errors import DONE, TRY_AGAIN, UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.prompts import render
from rlbhpc.store.cube_schema import JUDGED
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.parts import FAILED
from rlbhpc.store.sample import Sample
from rlbhpc.study.keys import SampleKey, sample_seed
from rlbhpc.study.study import Study
from rlbhpc.sweep.attempt import Attempt
from rlbhpc.sweep.drain import Drain
from rlbhpc.sweep.judge import Judge, SampleRequest
from rlbhpc.sweep.load import refuse_unseen
from rlbhpc.sweep.plan import Plan, Shard, Span, read_presence
from rlbhpc.sweep.progress import Progress
from rlbhpc.verify.verdict import Status

log = logging.getLogger(__name__)

# Tries before a sample is stored as failed: the first beside others, the rest alone, so that one
# poisonous prompt cannot take its neighbours along.
TRIES = 3


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
    """Read the problem sets that some shards need."""
    sets = dict.fromkeys(span.set_name for shard in shards for span in shard.spans)
    return {p.id: p for set_name in sets for p in study.problems(set_name)}


def still_missing(study: Study, plan: Plan, shard: Shard) -> list[Line]:
    """Those parts of a shard that nobody has stored since the plan was made, by problem.

    No more is read than may hold samples of the shard: other shards of its plan have none.
    """
    spans: dict[tuple[str, str, int], dict[str, list[Span]]] = {}
    for span in shard.spans:
        block = spans.setdefault((span.arm, span.set_name, span.step), {})
        block.setdefault(span.problem, []).append(span)
    blocks = [study.block(*key, tuple(problems)) for key, problems in spans.items()]
    own = f"{plan.name}-{shard.number:05d}-"

    def passed_over(journal: str) -> bool:
        return journal.startswith(f"{plan.name}-") and not journal.startswith(own)

    lines: list[Line] = []
    present = read_presence(study.layout, blocks, passed_over=passed_over)
    for cell, problems in zip(present, spans.values(), strict=True):
        held = cell.retrying() if shard.retries else cell
        spans_left: dict[int, list[Span]] = {}
        for index, first, last in held.gaps():
            for span in problems[held.block.problems[index]]:
                start, stop = max(first, span.start), min(last, span.stop)
                if start < stop:
                    spans_left.setdefault(index, []).append(span._replace(start=start, stop=stop))
        lines += [
            Line(sorted(spans), held.block.stop_after, int(held.count[i]), int(held.right[i]))
            for i, spans in spans_left.items()
        ]
    return sorted(lines, key=lambda line: line.span)


def work(job: Work, shard: Shard) -> int:
    """Work one shard to its end, or until drained. Returns an exit code."""
    lines = still_missing(job.study, job.plan, shard)
    missing = sum(len(line.indices) for line in lines)
    job.progress.done += shard.samples - missing
    log.debug("shard %d: %d of %d samples are missing", shard.number, missing, shard.samples)
    if not lines:
        return DONE
    by_arm: dict[str, list[Line]] = {}
    for line in lines:
        by_arm.setdefault(line.span.arm, []).append(line)
    drawings = {arm: Drawing(arm_lines) for arm, arm_lines in by_arm.items()}
    layout = job.study.layout
    before, tokens_before = job.progress.done, job.progress.tokens
    attempt = Attempt(layout.attempts, job.plan.name, shard.number)
    outcome = "failed"
    judge = Judge(job.problems, job.study.file.verification)

    def on_stored(row: Sample) -> None:
        right = row.verdict == 1
        job.progress.total -= drawings[row.key.arm].stored(row)
        job.progress.add(row.key.arm, row.key.step, row.key.problem, row.n_tokens, right)
        if row.verdict in FAILED:
            job.progress.failed(row.error or row.rule)

    try:
        engine = job.make_engine(shard)
        attempt.loaded()
        try:
            for arm, arm_lines in by_arm.items():
                arm_problems = [job.problems[line.span.problem] for line in arm_lines]
                refuse_unseen(engine, arm, arm_problems)
                prompt = job.study.prompts[job.study.arms[arm].prompt]
                engine.tokens.check_prompt(prompt, render(prompt, arm_problems[0]))
            with Recorder(judge, layout.journals, attempt.name, on_stored) as recorder:
                for arm, drawing in drawings.items():
                    _sample_arm(job, engine, recorder, arm, drawing)
        finally:
            if not job.drain.abandoned:
                engine.close()
        outcome = "drained" if job.drain.requested else "done"
    finally:
        figures = {
            "samples": job.progress.done - before,
            "tokens": job.progress.tokens - tokens_before,
            "verification": judge.close(),
        }
        log.debug("shard %d: %s, %s", shard.number, outcome, figures)
        # Where the disk is full this record cannot be written either; the first error is told.
        with suppress(UserError) if outcome == "failed" else nullcontext():
            attempt.end(outcome, **figures)
    return TRY_AGAIN if outcome == "drained" else DONE


def _sample_arm(job: Work, engine: Engine, recorder: Recorder, arm: str, drawing: Drawing) -> None:
    """Sample all of one arm, then what failed, alone.

    Where problems stop, nobody knows yet which have enough when all of them have as many samples
    under way as they may. Then the engine finishes those, and the next round begins.
    """
    sampling = job.study.arms[arm].sampling
    request_of = _requests(job, engine, arm)
    pending: dict[int, tuple[SampleRequest, Request]] = {}
    tags = count()

    def admitted() -> Iterator[Request]:
        while not job.drain.requested:
            drawn = drawing.next()
            if drawn is None:
                return
            tag = next(tags)
            pending[tag] = request_of(tag, *drawn)
            yield pending[tag][1]

    while drawing.is_open:
        log.debug("arm %s: a round begins", arm)
        failed: list[tuple[SampleRequest, Request]] = []
        for done in job.drain.within(engine.generate(admitted(), sampling)):
            requests, request = pending.pop(done.tag)
            if done.finish is Finish.ERROR:
                log.debug("arm %s: a request failed: %s", arm, done.error)
                failed.append((requests, request))
            else:
                recorder.put(requests, done)
        for requests, request in failed:
            if job.drain.requested:
                return
            recorder.put(requests, _alone(engine, request, job, arm))
        # The next round needs the verdicts of this one.
        while drawing.is_open and not job.drain.abandoned and not drawing.settled(0.2):
            recorder.check()
        if job.drain.requested:
            return


def _alone(engine: Engine, request: Request, job: Work, arm: str) -> Completion:
    """Try a request that failed by itself; what fails every time becomes a row that says so."""
    sampling = job.study.arms[arm].sampling
    for _ in range(TRIES - 1):
        (done,) = engine.generate([request], sampling)
        if done.finish is not Finish.ERROR:
            return done
    return done


def _requests(
    job: Work, engine: Engine, arm: str
) -> Callable[[int, Line, int], tuple[SampleRequest, Request]]:
    """Make requests of one arm by tag, problem and index; each prompt is tokenised once."""
    study = job.study
    prompt = study.prompts[study.arms[arm].prompt]

    @cache
    def shown(step: int, name: str) -> tuple[tuple[int, ...], tuple[bytes, ...], int]:
        problem = job.problems[name]
        prompt_ids = engine.tokens.encode(render(prompt, problem))
        return prompt_ids, problem.pictures, study.request_fingerprint(arm, step, name)

    def make(tag: int, line: Line, index: int) -> tuple[SampleRequest, Request]:
        span = line.span
        prompt_ids, images, fingerprint = shown(span.step, span.problem)
        key = SampleKey(arm, span.step, span.problem, index)
        seed = sample_seed(study.seed, key)
        return SampleRequest(key, seed, fingerprint), Request(tag, prompt_ids, seed, images)

    return make


# --- which sample to draw next -------------------------------------------------------------------
#
# Where the study stops a problem at its r-th right sample, a worker may have only so many of its
# samples under way as it will surely or probably need: all that are still missing to r, or half of
# what the rate so far says it takes, whichever is more. The rest of the engine's rows go to other
# problems. Simulated on problems like MATH500 that draws 3 to 5 % more than is needed; with all
# instead of half it is 6 to 8 %, with a quarter the engine runs dry more often.


# Share of the samples that a problem is expected to take that may be under way.
_AHEAD: Final = 0.5


@dataclass
class Line:
    """What is missing of one problem, lowest index first.

    ``spans``: the missing samples. ``stop_after``: right samples at which it ends; 0 draws all of
    them. ``judged, right``: samples that have a verdict, and right ones among them.
    """

    spans: Sequence[Span]
    stop_after: int
    judged: int
    right: int
    under_way: int = 0
    indices: deque[int] = field(init=False)

    def __post_init__(self) -> None:
        self.indices = deque(i for span in self.spans for i in range(span.start, span.stop))
        if self.right >= self.stop_after:
            # Only holes before the last right sample are missing: they are all needed.
            self.stop_after = 0

    @property
    def span(self) -> Span:
        """The first span, for arm, step and problem."""
        return self.spans[0]

    @property
    def has_room(self) -> bool:
        """Whether one more sample may be under way."""
        if not self.stop_after:
            return True
        needed = self.stop_after - self.right
        expected = needed * (self.judged + 1) / (self.right + 0.5)
        return self.under_way < max(needed, int(_AHEAD * expected))


class Drawing:
    """Hands out the samples of some problems, and learns which were right.

    Samples are handed out in the engine's thread and come back in the recorder's.
    """

    def __init__(self, lines: Iterable[Line]) -> None:
        lines = list(lines)
        self._open = deque(line for line in lines if line.indices)
        self._by_problem = {(line.span.step, line.span.problem): line for line in lines}
        self._lock = threading.Condition()

    @property
    def is_open(self) -> bool:
        """Whether there is more to hand out, now or when verdicts have come."""
        return bool(self._open)

    def next(self) -> tuple[Line, int] | None:
        """Hand out a sample; None where no problem may have more under way for now."""
        with self._lock:
            for _ in range(len(self._open)):
                line = self._open[0]
                if line.has_room:
                    line.under_way += 1
                    index = line.indices.popleft()
                    if not line.indices:
                        self._open.popleft()
                    return line, index
                self._open.rotate(-1)
        return None

    def stored(self, row: Sample) -> int:
        """Learn of a stored sample. Returns how many others need not be drawn any more."""
        with self._lock:
            line = self._by_problem[row.key.step, row.key.problem]
            line.under_way -= 1
            line.judged += row.verdict in JUDGED
            line.right += row.verdict == Status.RIGHT
            spared = 0
            if line.stop_after and line.right >= line.stop_after and line.indices:
                spared = len(line.indices)
                line.indices.clear()
                self._open.remove(line)
            self._lock.notify_all()
            return spared

    def settled(self, seconds: float) -> bool:
        """Wait until all that was handed out is stored; False where that takes longer."""
        with self._lock:
            return self._lock.wait_for(
                lambda: not any(line.under_way for line in self._by_problem.values()), seconds
            )


# --- verifying and storing beside the engine -----------------------------------------------------


# Completions that may wait for verification. Each is some kilobytes; when verification is slower
# than sampling for so long, the engine has to wait after all, or memory would grow without end.
WAITING = 4096
# Completions that are verified as one batch.
BATCH = 256


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
        self._judge = judge
        self._folder_of = folder_of
        self._attempt = attempt
        self._on_stored = on_stored
        self._writers: dict[tuple[str, str], JournalWriter] = {}
        self._queue: queue.Queue[tuple[SampleRequest, Completion] | None] = queue.Queue(WAITING)
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
        self._queue.put(None)
        self._thread.join()
        # What was sampled and is not stored matters more than why sampling stopped.
        if self._error is not None and self._error is not error:
            raise self._error from error

    def put(self, request: SampleRequest, done: Completion) -> None:
        """Hand over one completion."""
        self.check()
        self._queue.put((request, done))

    def check(self) -> None:
        """Raise what went wrong with recording, if anything did."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        closing = False
        while not closing:
            batch, closing = self._take()
            # After an error the queue is still emptied, or the sampling side would block on it.
            if self._error is None:
                self._trying(partial(self._store, batch))
        for writer in self._writers.values():
            self._trying(writer.close)

    def _trying(self, step: Callable[[], None]) -> None:
        """Take a step and keep its error for the sampling side; the first error counts."""
        try:
            step()
        except BaseException as error:
            self._error = self._error or error

    def _store(self, batch: list[tuple[SampleRequest, Completion]]) -> None:
        for row in self._judge.samples(batch):
            self._writer(row.key.arm, row.key.set_name).append(row)
            self._on_stored(row)
        for writer in self._writers.values():
            writer.tick()

    def _take(self) -> tuple[list[tuple[SampleRequest, Completion]], bool]:
        """Everything that waits, at least one and at most a batch; and whether it was the last."""
        batch: list[tuple[SampleRequest, Completion]] = []
        item = self._queue.get()
        while item is not None:
            batch.append(item)
            if len(batch) >= BATCH or self._queue.empty():
                return batch, False
            item = self._queue.get()
        return batch, True

    def _writer(self, arm: str, set_name: str) -> JournalWriter:
        if (arm, set_name) not in self._writers:
            folder = self._folder_of(arm, set_name)
            self._writers[arm, set_name] = JournalWriter(folder, self._attempt)
        return self._writers[arm, set_name]
