"""Score texts under models: what perplexity is made of. Resumes from what is on disk.

First whose texts are scored by whom, and the texts themselves; then the scoring.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from itertools import groupby, islice
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from rlbhpc.engines.completion import Finish
from rlbhpc.engines.engine import Engine
from rlbhpc.errors import UserError
from rlbhpc.problems.prompts import render
from rlbhpc.problems.record import read_pairs
from rlbhpc.store import samples, tables
from rlbhpc.store.sources import Group
from rlbhpc.study.keys import fingerprint
from rlbhpc.study.schema import ScoreRequest
from rlbhpc.study.study import Study
from rlbhpc.sweep.drain import Drain
from rlbhpc.sweep.load import load_engine
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
            if problem := study.first_with_image(set_name):
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


def wanted_texts(study: Study, condition: Condition) -> Wanted:
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
    rows = samples.read_rows(study.layout, group, columns, steps={step}, below=per_problem)
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
        rows = samples.read_rows(
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


# A kill loses what was scored since the last file: at most this many seconds of work.
SECONDS: Final = 60.0


class State(NamedTuple):
    """A condition with what is there of it."""

    condition: Condition
    wanted: Wanted
    missing: list[tuple[str, int]]


def state(study: Study, scores: Sequence[str]) -> list[State]:
    """Compare what is asked for with what has been scored."""
    states = []
    for condition in conditions(study, scores):
        texts = wanted_texts(study, condition)
        states.append(State(condition, texts, texts.missing(study, condition)))
    return states


def score_all(
    study: Study, states: Sequence[State], drain: Drain, say: Callable[[str], None]
) -> int:
    """Score what is missing, each model loaded once; how many texts no model could hold."""

    def loaded(s: State) -> tuple[str, int]:
        return s.condition.model, s.condition.scorer_step

    too_long = 0
    for (model, step), group in groupby(sorted(states, key=loaded), loaded):
        todo = [s for s in group if s.missing]
        if not todo or drain.requested:
            continue
        with closing(load_engine(study, study.file.engine.name, model, step)) as engine:
            for s in todo:
                if not drain.requested:
                    too_long += _score(study, engine, s, drain)
                    say(f"{s.condition.score}: {describe(s.condition)}")
    for table in dict.fromkeys(s.condition.table for s in states):
        _settle(study, table)
    return too_long


def describe(condition: Condition) -> str:
    """Say whose texts are scored by whom."""
    c = condition
    return f"{c.source} on {c.set_name} at step {c.step}, by {c.model} at step {c.scorer_step}"


def _score(study: Study, engine: Engine, s: State, drain: Drain) -> int:
    """Score one condition; how many texts the model cannot hold."""
    under_way: deque[tuple[Text, int]] = deque()
    rows: list[dict[str, object]] = []
    too_long = 0

    def pairs() -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        nonlocal too_long
        for text in texts(study, s.condition, s.missing, s.wanted):
            if drain.requested:
                return
            prompt, response = encode(engine, text)
            # One less than the model holds: vLLM must be able to sample a token behind the text.
            if len(prompt) + len(response) >= engine.max_length:
                too_long += 1
            elif response:
                under_way.append((text, len(response)))
                yield prompt, response
            else:
                rows.append(_row(s.condition, text, 0, 0.0, 0.0))

    last = time.monotonic()
    for score in engine.score(pairs()):
        text, length = under_way.popleft()
        sums = (float(v.sum(dtype=np.float64)) for v in (score.logprobs, score.entropies))
        rows.append(_row(s.condition, text, length, *sums))
        if time.monotonic() - last >= SECONDS:
            _store(study, s.condition, rows)
            last = time.monotonic()
    _store(study, s.condition, rows)
    return too_long


def _row(
    condition: Condition, text: Text, length: int, logprob_sum: float, entropy_sum: float
) -> dict[str, object]:
    return {
        "problem": text.problem,
        "sample": text.sample,
        "step": condition.step,
        "scorer_step": condition.scorer_step,
        "n_tokens": length,
        "logprob_sum": logprob_sum,
        "entropy_sum": entropy_sum,
        "request": text.request,
    }


def encode(engine: Engine, text: Text) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Tokens of a prompt and its response, the end-of-text included where the response ended.

    The response is tokenised anew from its text, so that it is the same tokens whether its own
    are kept or not, and whichever engine wrote it.
    """
    tokens = engine.tokens
    ids = tokens.tokenizer(text.response, add_special_tokens=False)["input_ids"]
    end = tokens.tokenizer.eos_token_id
    ends = (min(tokens.eos) if end is None else end,) if text.ended else ()
    return tokens.encode(text.prompt), (*ids, *ends)


def _store(study: Study, condition: Condition, rows: list[dict[str, object]]) -> None:
    if rows:
        table = pa.Table.from_pylist(rows, tables.SCORE_ROWS)
        tables.add_scores(study.layout, *condition.table, table)
        rows.clear()


def _settle(study: Study, table: tuple[str, str, str]) -> None:
    """Gather the files of a table and drop what belongs to another text or model than today's."""
    every = conditions(study, list(study.file.scores))
    mine = [wanted_texts(study, c).requests.values() for c in every if c.table == table]
    tables.settle_scores(study.layout, *table, {print_ for prints in mine for print_ in prints})
