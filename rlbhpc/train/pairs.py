"""What supervised training learns from: pairs in a file, a teacher's responses, worked traces."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rlbhpc.engines.completion import Finish
from rlbhpc.engines.tokens import Tokens
from rlbhpc.errors import UserError
from rlbhpc.problems.countdown import Rules, work_traces
from rlbhpc.problems.pairs import read_pairs
from rlbhpc.problems.prompts import render
from rlbhpc.problems.sets.countdown import read_rules
from rlbhpc.store import samples
from rlbhpc.store.sources import Group
from rlbhpc.study.options import from_options
from rlbhpc.study.recipe import Recipe, Teacher
from rlbhpc.study.study import Study
from rlbhpc.train.batch import Response
from rlbhpc.train.settings import Settings, Traces
from rlbhpc.verify.verdict import Status

# Texts that are handed to the tokeniser together.
BATCH = 4096


class Lesson(NamedTuple):
    """A prompt and the response to learn; ``ended`` unless the response was cut off."""

    prompt: str
    response: str
    ended: bool = True


def learning_pairs(
    study: Study, recipe: Recipe, tokens: Tokens, settings: Settings
) -> Iterator[Response]:
    """Prompt and response tokens of everything that a recipe learns from.

    A response ends with the token that ends the model's own. One that was cut off ends as it is:
    an end behind it would teach to stop in the middle of a thought.
    """
    if "traces" in recipe.options:
        lessons = _worked(study, recipe, settings)
    elif recipe.texts is not None:
        lessons = (Lesson(*pair) for pair in read_pairs(Path(recipe.texts)))
    else:
        assert recipe.teacher is not None
        lessons = _taught(study, recipe.teacher)
    while batch := list(islice(lessons, BATCH)):
        prompts = tokens.encode_all([lesson.prompt for lesson in batch])
        texts = [lesson.response for lesson in batch]
        ids = tokens.tokenizer(texts, add_special_tokens=False)["input_ids"]
        for lesson, prompt, response in zip(batch, prompts, ids, strict=True):
            end = [tokens.end] if lesson.ended else []
            learnt = np.array([*response, *end], np.int32)
            if len(learnt):  # an empty response that was cut off teaches nothing
                yield Response(prompt, learnt)


def _worked(study: Study, recipe: Recipe, settings: Settings) -> Iterator[Lesson]:
    """Worked Countdown traces by the rules of the recipe's set, of which a part hits the target.

    The set's own problems have no part in them.
    """
    assert recipe.problems is not None and recipe.prompt is not None
    entry = study.problem_sets[recipe.problems]
    rules = Rules() if entry.path is None else read_rules(Path(entry.path))
    traces = from_options(Traces, recipe.options["traces"], "traces")
    template = study.prompts[recipe.prompt]
    for worked in work_traces(recipe.problems, rules, traces.count, traces.hit, settings.seed):
        yield Lesson(render(template, worked.problem), worked.response)


def _taught(study: Study, teacher: Teacher) -> Iterator[Lesson]:
    """Stored responses of a teacher arm, each under the prompt that the teacher saw.

    Texts, not token ids: teacher and student may have different vocabularies.
    """
    template = study.prompts[study.arms[teacher.arm].prompt]
    columns = ("problem", "sample", "verdict", "finish", "text")
    for set_name in study.sets(teacher.arm):
        problems = {p.id: p for p in study.problems(set_name)}
        taken: dict[str, int] = {}
        # Rows come sorted by step, problem and sample.
        rows = samples.rows(study.layout, Group(teacher.arm, set_name), columns)
        for row in rows.to_pylist():
            name = row["problem"]
            if name in problems and problems[name].images:
                raise UserError(f"teacher {teacher.arm}: {name} has images, and sft shows none")
            right = row["verdict"] == Status.RIGHT or teacher.keep == "all"
            if right and name in problems and taken.get(name, 0) < teacher.per_problem:
                taken[name] = taken.get(name, 0) + 1
                ended = row["finish"] != Finish.LENGTH
                yield Lesson(render(template, problems[name]), row["text"], ended)
