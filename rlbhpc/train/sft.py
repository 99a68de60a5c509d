"""Supervised fine-tuning: pre-training of toy bases, and distillation from a teacher.

It learns from pairs in a file, a teacher's responses, or worked traces.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch.distributed as dist

from rlbhpc.engines.completion import MODEL, Finish
from rlbhpc.engines.tokens import Tokens
from rlbhpc.errors import DONE, TRY_AGAIN, UserError
from rlbhpc.problems.countdown import Rules, read_rules, work_traces
from rlbhpc.problems.prompts import render
from rlbhpc.problems.record import read_pairs
from rlbhpc.store import samples
from rlbhpc.store.sources import Group
from rlbhpc.study.complaints import from_options
from rlbhpc.study.schema import Recipe, Teacher
from rlbhpc.study.study import Study
from rlbhpc.sweep.process import Drain
from rlbhpc.train import checkpoint
from rlbhpc.train import deepspeed_engine as ds
from rlbhpc.train.algorithms.algorithm import Algorithm
from rlbhpc.train.batch import Response
from rlbhpc.train.dynamics import Progress, StepLog
from rlbhpc.train.learner import Learner
from rlbhpc.train.mixture import draw_order
from rlbhpc.train.rollout import Export
from rlbhpc.train.settings import Settings, Traces
from rlbhpc.verify.verdict import Status

# Texts that are handed to the tokeniser together.
TOKENISED_TOGETHER = 4096


@dataclass(frozen=True)
class Distillation:
    """One fine-tuning run.

    ``settings.prompts_per_step`` × ``settings.samples_per_prompt`` is the number of pairs per
    optimiser step; the loss is the mean negative log-likelihood of their response tokens at
    temperature 1. Prompts are read and never learnt.
    """

    name: str
    base: Path
    folder: Path
    exports: dict[int, Export]
    settings: Settings
    pairs: Sequence[Response]

    @property
    def identity(self) -> str:
        """Digest of what must stay the same for a run to go on.

        A pair is a prompt with the response to learn. Settings that do not change the result, such
        as the size of a micro-batch, are left out.
        """
        digest = hashlib.sha256((self.base / "config.json").read_bytes())
        s = self.settings
        rate = (s.learning_rate, s.warmup_steps, s.half_life)
        digest.update(repr((s.seed, *rate, s.weight_decay)).encode())
        digest.update(repr((s.prompts_per_step, s.samples_per_prompt, s.zero_stage)).encode())
        if s.lora_rank:  # left out at its default, so that no run from before it is another now
            digest.update(repr(s.lora_rank).encode())
        for pair in self.pairs:
            digest.update(repr(pair.prompt_ids).encode() + pair.token_ids.tobytes())
            if pair.model_mask is not None:
                digest.update(pair.model_mask.tobytes())
        return digest.hexdigest()[:16]


def fine_tune(run: Distillation, drain: Drain, progress: Progress) -> int:
    """Train to the last step, or until drained; return an exit code.

    A further call goes on from the last saved state. ``drain`` tells whether the job was asked to
    stop. ``pairs`` are prompts with the responses to learn; ``draw_order`` gives the indices of a
    step's pairs in shuffled passes over all of them.
    """
    s = run.settings
    # Supervised training has no algorithm; one that does nothing stands in.
    learner = Learner(run.base, s, Algorithm())
    saved = checkpoint.load_state(learner, run.folder / "state", run.identity) or {}
    step = int(saved.get("step", 0))
    dynamics = StepLog(run.folder / "dynamics.jsonl", step) if dist.get_rank() == 0 else None
    per_step = s.prompts_per_step * s.samples_per_prompt
    checkpoint.export_model(learner, run.base, run.exports.get(step))
    while step < s.steps:
        drawn = draw_order(s.seed, len(run.pairs), step * per_step, per_step)
        step += 1
        metrics = learner.imitate([run.pairs[i] for i in drawn], step)
        if dynamics is not None:
            dynamics.append(step, metrics)
        stopping = ds.any_rank(drain.requested)
        if step % s.save_every == 0 or step == s.steps or stopping:
            state = {"identity": run.identity}
            checkpoint.save_state(learner, run.folder / "state", step, state)
        checkpoint.export_model(learner, run.base, run.exports.get(step))
        progress(step, metrics)
        if stopping and step < s.steps:
            return TRY_AGAIN
    return DONE


class Lesson(NamedTuple):
    """A prompt and the response to learn; ``ended`` unless the response was cut off.

    ``problem`` is the id of what a teacher answered.

    ``response`` are its segments by turns, each with its writer: ``model`` or a tool.
    """

    prompt: str
    response: Sequence[tuple[str, str]]
    ended: bool = True
    problem: str = ""


def learning_pairs(
    study: Study, recipe: Recipe, tokens: Tokens, settings: Settings
) -> Iterator[Response]:
    """Prompt and response tokens of everything that a recipe learns from.

    A lesson is a prompt and a response as text, from worked traces, a file or a teacher's stored
    responses. A response ends with the token that ends the model's own. One that was cut off ends
    as it is: an end behind it would teach to stop in the middle of a thought.
    """
    if "traces" in recipe.options:
        lessons = _trace_lessons(study, recipe, settings)
    elif recipe.texts is not None:
        lessons = _text_lessons(Path(recipe.texts))
    else:
        assert recipe.teacher is not None
        lessons = teacher_lessons(study, recipe.teacher)
    while batch := list(islice(lessons, TOKENISED_TOGETHER)):
        prompts = tokens.encode_all([lesson.prompt for lesson in batch])
        texts = [text for lesson in batch for _, text in lesson.response]
        segments = iter(tokens.tokenizer(texts, add_special_tokens=False)["input_ids"])
        for lesson, prompt_ids in zip(batch, prompts, strict=True):
            token_ids: list[int] = []
            by_model: list[bool] = []
            for writer, _ in lesson.response:
                segment = next(segments)
                token_ids += segment
                by_model += [writer == MODEL] * len(segment)
            if lesson.ended:
                token_ids.append(tokens.end)
                by_model.append(True)
            if any(by_model):  # an empty response that was cut off teaches nothing
                mask = None if all(by_model) else np.array(by_model)
                yield Response(
                    prompt_ids, np.array(token_ids, np.int32), prompt_images=None, model_mask=mask
                )


def _text_lessons(path: Path) -> Iterator[Lesson]:
    """Prompts and responses of a file; a response is a text, or a list of (writer, text)."""
    for number, (prompt, response) in enumerate(read_pairs(path), 1):
        segments = [(MODEL, response)] if isinstance(response, str) else response
        try:
            yield Lesson(prompt, [(str(writer), str(text)) for writer, text in segments])
        except (TypeError, ValueError):
            raise UserError(
                f"{path}:{number}: response: found {str(response)[:60]!r}; allowed: a text, or "
                'turns such as [["model", "…"], ["tool", "…"]]'
            ) from None


def _trace_lessons(study: Study, recipe: Recipe, settings: Settings) -> Iterator[Lesson]:
    """Worked Countdown traces by the rules of the recipe's set, of which a part hits the target.

    A trace combines given numbers by random operations, one step a line. ``hit`` is the share of
    traces that reach the target. The set's own problems have no part in them.
    """
    assert recipe.problems is not None and recipe.prompt is not None
    entry = study.problem_sets[recipe.problems]
    rules = Rules() if entry.path is None else read_rules(Path(entry.path))
    traces = from_options(Traces, recipe.options["traces"], "traces")
    template = study.prompts[recipe.prompt]
    for worked in work_traces(recipe.problems, rules, traces.count, traces.hit, settings.seed):
        yield Lesson(render(template, worked.problem), [(MODEL, worked.response)])


def teacher_lessons(study: Study, teacher: Teacher) -> Iterator[Lesson]:
    """Stored responses of a teacher arm, each under the prompt that the teacher saw.

    An arm is a model that the study samples in one way and whose responses it stores. At most
    ``per_problem`` of them are taken for each problem, right ones alone unless ``keep`` is "all".
    Texts, not token ids: teacher and student may have different vocabularies. A ``Group`` names the
    stored rows of one arm on one problem set.
    """
    arm = study.arms[teacher.arm]
    if arm.sampling.turns is not None:
        raise UserError(f"teacher {teacher.arm}: its responses take turns, and sft learns one")
    template = study.prompts[arm.prompt]
    columns = ("problem", "sample", "verdict", "finish", "text")
    for set_name in study.sets(teacher.arm):
        problems = {problem.id: problem for problem in study.problems(set_name)}
        n_kept: Counter[str] = Counter()
        # Rows come sorted by step, problem and sample.
        rows = samples.read_rows(study.layout, Group(teacher.arm, set_name), columns)
        for row in rows.to_pylist():
            problem = problems.get(row["problem"])
            if problem is None:
                continue
            if problem.images:
                raise UserError(
                    f"teacher {teacher.arm}: {problem.id} has images, and sft shows none"
                )
            is_wanted = teacher.keep == "all" or row["verdict"] == Status.RIGHT
            if is_wanted and n_kept[problem.id] < teacher.per_problem:
                n_kept[problem.id] += 1
                ended = row["finish"] != Finish.LENGTH
                response = [(MODEL, row["text"])]
                yield Lesson(render(template, problem), response, ended, problem.id)
