"""Whose texts are scored by whom, and the texts themselves."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from rlbhpc.engines.completion import Finish
from rlbhpc.errors import UserError
from rlbhpc.problems.pairs import read_pairs
from rlbhpc.problems.prompts import render
from rlbhpc.store import samples, tables
from rlbhpc.store.sources import Group
from rlbhpc.study.keys import fingerprint
from rlbhpc.study.schema import ScoreRequest
from rlbhpc.study.study import Study
from rlbhpc.verify.verdict import Status

# The problem set under which a file's texts stand; each line is a problem of its own.
TEXTS: Final = "texts"
# Problems whose responses are held in memory at a time.
BAND: Final = 64


class Condition(NamedTuple):
    """Texts of one source at one step under one model at one step."""

    score: str
    source: str
    set_name: str
    step: int
    model: str
    scorer_step: int

    @property
    def table(self) -> tuple[str, str, str]:
        """Where the scores are kept: source, problem set, scorer."""
        return self.source, self.set_name, self.model


class Text(NamedTuple):
    """A text to score; ``request`` is a fingerprint of it and its scorer."""

    problem: str
    sample: int
    prompt: str
    response: str
    ended: bool
    request: int


def conditions(study: Study, scores: Sequence[str]) -> list[Condition]:
    """Conditions of some entries under ``scores``.

    All steps of the scoring model score all steps of the arm, but of a line that scores its own
    responses each step scores those of the same step.
    """
    requested = []
    for name in scores:
        request = study.file.scores[name]
        model, steps = request.model, study.steps(request.model)
        if study.models[model].endpoint is not None:
            raise UserError(f"scores.{name}: {model} is an endpoint, which cannot score texts")
        if request.responses is None:
            source = _slug(study, request)
            requested += [Condition(name, source, TEXTS, 0, model, step) for step in steps]
            continue
        arm = study.arms[request.responses]
        for set_name in study.sets(arm.name):
            if problem := study.first_shown(set_name):
                raise UserError(
                    f"scores.{name}: {problem} has images, and answers are scored by their text "
                    "alone; name `responses` of an arm without images"
                )
        requested += [
            Condition(name, arm.name, set_name, step, model, scorer_step)
            for set_name in study.sets(arm.name)
            for step in arm.steps
            for scorer_step in steps
            if arm.model != model or step == scorer_step
        ]
    return requested


def _slug(study: Study, request: ScoreRequest) -> str:

    def slug(file: str) -> str:
        return re.sub(r"[^A-Za-z0-9._+-]+", "-", Path(file).stem).strip("-") or TEXTS

    assert request.texts is not None
    name = slug(request.texts)
    others = {r.texts for r in study.file.scores.values() if r.texts is not None} - {request.texts}
    if name in study.arms or name in map(slug, others):
        raise UserError(f"scores: {request.texts}: {name!r} names something else too; rename it")
    return name


class Wanted(NamedTuple):
    """Texts of a condition that should have a score, by (problem, sample)."""

    requests: dict[tuple[str, int], int]
    expected: int

    def missing(self, study: Study, condition: Condition) -> list[tuple[str, int]]:
        """Those that have none yet."""
        rows = tables.read_scores(study.layout, *condition.table)
        done = set(
            zip(
                *(rows[name].to_pylist() for name in ("problem", "sample", "step", "scorer_step")),
                rows["request"].to_pylist(),
                strict=True,
            )
        )
        cell = condition.step, condition.scorer_step
        return [key for key, print_ in self.requests.items() if (*key, *cell, print_) not in done]


def wanted(study: Study, condition: Condition) -> Wanted:
    """Find the texts to score: the lowest sample indices of each problem that are there.

    Each sample has a seed of its own that the study's seed and its key decide, so the lowest
    indices are a random choice that everyone can repeat.
    """
    request = study.file.scores[condition.score]
    scorer = study.digests[condition.model][condition.scorer_step]
    if request.texts is not None:
        digest = study.text_digests[request.texts]
        count = sum(1 for _ in read_pairs(Path(request.texts)))
        print_ = _print(digest, scorer)
        return Wanted({(f"{TEXTS}/{i}", 0): print_ for i in range(1, count + 1)}, count)
    arm, set_name, step = condition.source, condition.set_name, condition.step
    columns = ("problem", "sample", "fingerprint", "verdict")
    per_problem = min(request.per_problem, study.n(arm, set_name))
    group = Group(arm, set_name)
    rows = samples.rows(study.layout, group, columns, steps={step}, below=per_problem)
    block = study.block(arm, set_name, step)
    fingerprint_of = dict(zip(block.problems, block.fingerprints.tolist(), strict=True))
    prints = {print_: _print(print_, scorer) for print_ in fingerprint_of.values()}
    requests = {
        (row["problem"], row["sample"]): prints[row["fingerprint"]]
        for row in rows.to_pylist()
        if fingerprint_of.get(row["problem"]) == row["fingerprint"]
        and row["verdict"] != Status.FAILED
    }
    return Wanted(requests, per_problem * len(block.problems))


def _print(text: int | str, scorer: str) -> int:
    return fingerprint({"text": text, "scorer": scorer, "temperature": 1})


def texts(
    study: Study, condition: Condition, keys: Collection[tuple[str, int]], prints: Wanted
) -> Iterator[Text]:
    """Read the texts of some keys, a band of problems at a time."""
    request = study.file.scores[condition.score]
    if request.texts is not None:
        for number, (prompt, response) in enumerate(read_pairs(Path(request.texts)), 1):
            key = (f"{TEXTS}/{number}", 0)
            if key in keys:
                yield Text(*key, prompt, response, True, prints.requests[key])
        return
    arm, chosen = study.arms[condition.source], set(keys)
    problems = {p.id: p for p in study.problems(condition.set_name)}
    template = study.prompts[arm.prompt]
    names = iter(dict.fromkeys(problem for problem, _ in keys))
    columns = ("problem", "sample", "fingerprint", "finish", "text")
    while band := set(islice(names, BAND)):
        most = 1 + max(sample for problem, sample in chosen if problem in band)
        rows = samples.rows(
            study.layout, Group(arm.name, condition.set_name), columns,
            problems=band, steps={condition.step}, below=most,
        )  # fmt: skip
        for row in rows.to_pylist():
            key = (row["problem"], row["sample"])
            print_ = study.request_fingerprint(arm.name, condition.step, row["problem"])
            if key in chosen and row["fingerprint"] == print_:
                prompt = render(template, problems[row["problem"]])
                ended = row["finish"] == Finish.EOS
                yield Text(*key, prompt, row["text"], ended, prints.requests[key])
