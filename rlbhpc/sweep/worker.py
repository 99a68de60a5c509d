"""Work one shard: load a model once, sample what is still missing, verify and store as it comes.

The worker shares nothing with other workers but files. It asks the store again what is missing when
it starts, so a shard that somebody else has worked in the meantime costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import groupby

from rlbhpc.engines.completion import Completion, Finish, Request
from rlbhpc.engines.engine import Engine
from rlbhpc.errors import DONE, TRY_AGAIN, UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.prompts import render
from rlbhpc.store.sample import Sample
from rlbhpc.study.keys import SampleKey, sample_seed
from rlbhpc.study.study import Study
from rlbhpc.sweep.attempt import Attempt
from rlbhpc.sweep.drain import Drain
from rlbhpc.sweep.judge import Asked, Judge
from rlbhpc.sweep.load import refuse_unseen
from rlbhpc.sweep.plan import Plan, Shard, Span
from rlbhpc.sweep.presence import presence
from rlbhpc.sweep.progress import Progress
from rlbhpc.sweep.recorder import Recorder

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


def still_missing(study: Study, plan: Plan, shard: Shard) -> list[Span]:
    """Those parts of a shard that nobody has stored since the plan was made.

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

    left: list[Span] = []
    present = presence(study.layout, blocks, partly=True, passed_over=passed_over)
    for found, problems in zip(present, spans.values(), strict=True):
        held = found.retrying() if shard.retries else found
        for index, first, last in held.gaps():
            for span in problems[held.block.problems[index]]:
                start, stop = max(first, span.start), min(last, span.stop)
                if start < stop:
                    left.append(span._replace(start=start, stop=stop))
    return sorted(left)


def work(job: Work, shard: Shard) -> int:
    """Work one shard to its end, or until drained. Returns an exit code."""
    spans = still_missing(job.study, job.plan, shard)
    job.progress.done += shard.samples - sum(span.size for span in spans)
    if not spans:
        return DONE
    layout = job.study.layout
    before, tokens_before = job.progress.done, job.progress.tokens
    attempt = Attempt(layout.attempts, job.plan.name, shard.number)
    outcome = "failed"
    judge = Judge(job.problems, job.study.file.verification, layout.verdict_cache)

    def on_stored(row: Sample) -> None:
        right = row.verdict == 1
        job.progress.add(row.key.arm, row.key.step, row.key.problem, row.n_tokens, right)

    try:
        engine = job.make_engine(shard)
        attempt.loaded()
        try:
            for arm in dict.fromkeys(span.arm for span in spans):
                arm_problems = [job.problems[span.problem] for span in spans if span.arm == arm]
                refuse_unseen(engine, arm, arm_problems)
                prompt = job.study.prompts[job.study.arms[arm].prompt]
                engine.tokens.check_prompt(prompt, render(prompt, arm_problems[0]))
            with Recorder(judge, layout.journals, attempt.name, on_stored) as recorder:
                for arm, group in groupby(spans, key=lambda span: span.arm):
                    _sample_arm(job, engine, recorder, arm, list(group))
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
        # Where the disk is full this record cannot be written either; the first error is told.
        with suppress(UserError) if outcome == "failed" else nullcontext():
            attempt.end(outcome, **figures)
    return TRY_AGAIN if outcome == "drained" else DONE


def _sample_arm(job: Work, engine: Engine, recorder: Recorder, arm: str, spans: list[Span]) -> None:
    """Sample all spans of one arm: everything together once, then what failed, alone."""
    sampling = job.study.arms[arm].sampling
    asked: dict[int, tuple[Asked, Request]] = {}

    def admitted() -> Iterator[Request]:
        for tag, (wanted, request) in enumerate(_requests(job, engine, arm, spans)):
            if job.drain.requested:
                return
            asked[tag] = wanted, request
            yield request

    failed: list[tuple[Asked, Request]] = []
    for done in job.drain.within(engine.generate(admitted(), sampling)):
        wanted, request = asked.pop(done.tag)
        if done.finish is Finish.ERROR:
            failed.append((wanted, request))
        else:
            recorder.put(wanted, done)
    for wanted, request in failed:
        if job.drain.requested:
            return
        recorder.put(wanted, _alone(engine, request, job, arm))


def _alone(engine: Engine, request: Request, job: Work, arm: str) -> Completion:
    """Try a request that failed by itself; what fails every time becomes a row that says so."""
    sampling = job.study.arms[arm].sampling
    for _ in range(TRIES - 1):
        (done,) = engine.generate([request], sampling)
        if done.finish is not Finish.ERROR:
            return done
    job.progress.failed += 1
    return done


def _requests(
    job: Work, engine: Engine, arm: str, spans: list[Span]
) -> Iterator[tuple[Asked, Request]]:
    """Requests of one arm in the order of its spans; each prompt is tokenised once."""
    study = job.study
    prompt = study.prompts[study.arms[arm].prompt]
    tag = 0
    for problem_id, group in groupby(spans, key=lambda span: (span.step, span.problem)):
        step, name = problem_id
        problem = job.problems[name]
        prompt_ids = engine.tokens.encode(render(prompt, problem))
        images = problem.pictures
        fingerprint = study.request_fingerprint(arm, step, name)
        for span in group:
            for index in range(span.start, span.stop):
                key = SampleKey(arm, step, name, index)
                seed = sample_seed(study.seed, key)
                yield Asked(key, seed, fingerprint), Request(tag, prompt_ids, seed, images)
                tag += 1
