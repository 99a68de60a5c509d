"""Work one shard: load a model once, sample what is still missing, verify and store as it comes.

The worker shares nothing with other workers but files. It asks the store again what is missing when
it starts, so a shard that somebody else has worked in the meantime costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from itertools import count

from rlbhpc.engines.completion import Completion, Finish, Request
from rlbhpc.engines.engine import Engine
from rlbhpc.errors import DONE, TRY_AGAIN, UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.prompts import render
from rlbhpc.store.parts import FAILED
from rlbhpc.store.sample import Sample
from rlbhpc.study.keys import SampleKey, sample_seed
from rlbhpc.study.study import Study
from rlbhpc.sweep.attempt import Attempt
from rlbhpc.sweep.drain import Drain
from rlbhpc.sweep.drawing import Drawing, Line
from rlbhpc.sweep.judge import Asked, Judge
from rlbhpc.sweep.load import refuse_unseen
from rlbhpc.sweep.plan import Plan, Shard, Span
from rlbhpc.sweep.presence import presence
from rlbhpc.sweep.progress import Progress
from rlbhpc.sweep.recorder import Recorder

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
    present = presence(study.layout, blocks, passed_over=passed_over)
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
    judge = Judge(job.problems, job.study.file.verification, layout.verdict_cache)

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
    pending: dict[int, tuple[Asked, Request]] = {}
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
        failed: list[tuple[Asked, Request]] = []
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
) -> Callable[[int, Line, int], tuple[Asked, Request]]:
    """Make requests of one arm by tag, problem and index; each prompt is tokenised once."""
    study = job.study
    prompt = study.prompts[study.arms[arm].prompt]

    @cache
    def shown(step: int, name: str) -> tuple[tuple[int, ...], tuple[bytes, ...], int]:
        problem = job.problems[name]
        prompt_ids = engine.tokens.encode(render(prompt, problem))
        return prompt_ids, problem.pictures, study.request_fingerprint(arm, step, name)

    def make(tag: int, line: Line, index: int) -> tuple[Asked, Request]:
        span = line.span
        prompt_ids, images, fingerprint = shown(span.step, span.problem)
        key = SampleKey(arm, span.step, span.problem, index)
        seed = sample_seed(study.seed, key)
        return Asked(key, seed, fingerprint), Request(tag, prompt_ids, seed, images)

    return make
