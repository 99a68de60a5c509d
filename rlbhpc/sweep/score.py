"""Score texts under models: what perplexity is made of. Resumes from what is on disk.

First whose texts are scored by whom, and the texts themselves; then the scoring.
"""

from __future__ import annotations

import itertools
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import cache
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
from rlbhpc.sweep.load import load_engine
from rlbhpc.sweep.process import Drain
from rlbhpc.verify.verdict import Status

# The problem set under which a file's texts stand; each line is a problem of its own.
TEXTS: Final = "texts"
# Problems whose responses are held in memory at a time.
_MAX_PROBLEMS: Final = 64
# A kill loses what was scored since the last file: at most this many seconds of work.
_STORE_SECONDS: Final = 60.0

#: A problem, and the index of one of its samples.
TextKey = tuple[str, int]


class Condition(NamedTuple):
    """Texts of one source at one step under one model at one step.

    ``score``: name of the entry under ``scores``. ``source``: an arm, or the name of a file of
    texts.
    """

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

    def __str__(self) -> str:
        return (
            f"{self.source} on {self.set_name} at step {self.step}, by {self.model} at step "
            f"{self.scorer_step}"
        )


class Text(NamedTuple):
    """A text to score.

    ``ended``: whether the response ended by itself. ``request``: fingerprint of text and scorer.
    """

    problem: str
    sample: int
    prompt: str
    response: str
    ended: bool
    request: int


def conditions(study: Study, scores: Sequence[str]) -> list[Condition]:
    """Conditions of some entries under ``scores``.

    A *condition* is the texts of one source at one step, to be scored under one model at one step.
    The source is an arm's responses, or a file of texts. All steps of the scoring model score all
    steps of the arm, but of a line that scores its own responses each step scores those of the same
    step.
    """
    requested = []
    for name in scores:
        entry = study.file.scores[name]
        model = entry.model
        scorer_steps = study.steps(model)
        if study.models[model].endpoint is not None:
            raise UserError(f"scores.{name}: {model} is an endpoint, which cannot score texts")
        if entry.responses is None:
            source = _source_name(study, entry)
            requested += [Condition(name, source, TEXTS, 0, model, step) for step in scorer_steps]
            continue
        arm = study.arms[entry.responses]
        for set_name in study.sets(arm.name):
            problem = study.first_with_image(set_name)
            if problem:
                raise UserError(
                    f"scores.{name}: {problem} has images, and answers are scored by their text "
                    "alone; name `responses` of an arm without images"
                )
            for step, scorer_step in itertools.product(arm.steps, scorer_steps):
                if arm.model != model or step == scorer_step:
                    condition = Condition(name, arm.name, set_name, step, model, scorer_step)
                    requested.append(condition)
    return requested


def _source_name(study: Study, entry: ScoreRequest) -> str:
    """Name of a file of texts in the cube; it must be the name of nothing else.

    ``entry``: an entry under ``scores`` with a file of texts. The name stands where arms have
    theirs.
    """
    assert entry.texts is not None
    name = _file_label(entry.texts)
    all_files = {other.texts for other in study.file.scores.values() if other.texts is not None}
    other_names = {_file_label(file) for file in all_files - {entry.texts}}
    if name in study.arms or name in other_names:
        raise UserError(f"scores: {entry.texts}: {name!r} names something else too; rename it")
    return name


def _file_label(file: str) -> str:
    """Name of a file without what may not stand in a path of the cube."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", Path(file).stem).strip("-") or TEXTS


class RequestedTexts(NamedTuple):
    """Texts of a condition that should have a score.

    ``requests``: fingerprint of text and scorer, by text. ``expected``: texts that there will be
    when all samples are drawn.
    """

    requests: dict[TextKey, int]
    expected: int

    def unscored(self, study: Study, condition: Condition) -> list[TextKey]:
        """Keys (problem, sample) of the requested texts that have no score yet.

        A score counts only for the same step, scoring step and request, the fingerprint of text and
        scoring model: a text or model that has changed is scored again. ``condition``: texts of one
        source at one step, under one model at one step.
        """
        rows = tables.read_scores(study.layout, *condition.table)
        key_columns = ("problem", "sample", "step", "scorer_step", "request")
        scored = set(zip(*(rows[name].to_pylist() for name in key_columns), strict=True))
        return [
            (problem, sample)
            for (problem, sample), request in self.requests.items()
            if (problem, sample, condition.step, condition.scorer_step, request) not in scored
        ]


def requested_texts(study: Study, condition: Condition) -> RequestedTexts:
    """Texts that a condition asks to score: the lowest sample indices that each problem has.

    A *condition* is the texts of one source, an arm or a file, at one step under one model at one
    step. Each sample has a seed of its own that the study's seed and its key decide, so the lowest
    indices are a random choice that everyone can repeat. Samples that failed, or whose fingerprint
    is not that of today's request, are left out. Each text gets a fingerprint of itself and the
    model that scores it; ``expected`` is how many there will be when all samples are drawn.
    """
    entry = study.file.scores[condition.score]
    scorer_digest = study.digests[condition.model][condition.scorer_step]
    if entry.texts is not None:
        request = _request_fingerprint(study.text_digests[entry.texts], scorer_digest)
        count = sum(1 for _ in read_pairs(Path(entry.texts)))
        keys = [(f"{TEXTS}/{number}", 0) for number in range(1, count + 1)]
        return RequestedTexts(dict.fromkeys(keys, request), count)
    arm, set_name, step = condition.source, condition.set_name, condition.step
    columns = ("problem", "sample", "fingerprint", "verdict")
    per_problem = min(entry.per_problem, study.n(arm, set_name))
    rows = samples.read_rows(
        study.layout, Group(arm, set_name), columns, steps={step}, below=per_problem
    )
    block = study.block(arm, set_name, step)
    fingerprint_of = dict(zip(block.problems, block.fingerprints.tolist(), strict=True))
    requests: dict[TextKey, int] = {}
    for row in rows.to_pylist():
        is_current = fingerprint_of.get(row["problem"]) == row["fingerprint"]
        if is_current and row["verdict"] != Status.FAILED:
            request = _request_fingerprint(row["fingerprint"], scorer_digest)
            requests[row["problem"], row["sample"]] = request
    return RequestedTexts(requests, per_problem * len(block.problems))


@cache
def _request_fingerprint(text: int | str, scorer_digest: str) -> int:
    """Fingerprint of a score; ``text``: fingerprint of a request, or digest of a file of texts."""
    return fingerprint({"text": text, "scorer": scorer_digest, "temperature": 1})


def read_texts(
    study: Study, condition: Condition, keys: Sequence[TextKey], requested: RequestedTexts
) -> Iterator[Text]:
    """Read the texts of some keys (problem, sample index), those of some problems at a time.

    ``condition``: says of which arm, or file of texts, at which step. ``requested``: fingerprint of
    every text and its scorer, by key. The responses of at most a *band* of ``_MAX_PROBLEMS``
    problems are in memory. A sample whose fingerprint is not that of today's request is left out. A
    response counts as ended where it ended by itself, not at the length limit.
    """
    entry = study.file.scores[condition.score]
    chosen = set(keys)
    if entry.texts is not None:
        for number, (prompt, response) in enumerate(read_pairs(Path(entry.texts)), 1):
            key = (f"{TEXTS}/{number}", 0)
            if key in chosen:
                yield Text(*key, prompt, response, True, requested.requests[key])
        return
    arm = study.arms[condition.source]
    problems = {problem.id: problem for problem in study.problems(condition.set_name)}
    template = study.prompts[arm.prompt]
    problem_ids = list(dict.fromkeys(problem_id for problem_id, _ in keys))
    for first in range(0, len(problem_ids), _MAX_PROBLEMS):
        band = set(problem_ids[first : first + _MAX_PROBLEMS])
        last_sample = max(sample for problem_id, sample in chosen if problem_id in band)
        rows = samples.read_rows(
            study.layout,
            Group(arm.name, condition.set_name),
            ("problem", "sample", "fingerprint", "finish", "text"),
            problems=band,
            steps={condition.step},
            below=last_sample + 1,
        )
        for row in rows.to_pylist():
            key = (row["problem"], row["sample"])
            current = study.request_fingerprint(arm.name, condition.step, row["problem"])
            if key in chosen and row["fingerprint"] == current:
                prompt = render(template, problems[row["problem"]])
                ended = row["finish"] == Finish.EOS
                yield Text(*key, prompt, row["text"], ended, requested.requests[key])


class ScoreState(NamedTuple):
    """A condition, the texts that should have a score, and those that have none yet."""

    condition: Condition
    requested: RequestedTexts
    missing: list[TextKey]


def read_score_states(study: Study, scores: Sequence[str]) -> list[ScoreState]:
    """Compare what is asked for with what has been scored."""
    states = []
    for condition in conditions(study, scores):
        requested = requested_texts(study, condition)
        states.append(ScoreState(condition, requested, requested.unscored(study, condition)))
    return states


def score_all(
    study: Study, states: Sequence[ScoreState], drain: Drain, say: Callable[[str], None]
) -> int:
    """Score what is missing, each model loaded once; gives how many texts no model could hold.

    ``states``: conditions (texts of one source at one step, under one model at one step) with the
    keys that have no score. The last two fields of a condition are the model and its step, by which
    states are grouped. ``drain``: says when to stop. ``say``: tells the user what is done.
    ``_settle_table`` puts a condition's score files together and drops those of other texts or
    models.
    """
    states_by_model: dict[tuple[str, int], list[ScoreState]] = {}
    for state in sorted(states, key=lambda state: state.condition[-2:]):
        if state.missing:
            states_by_model.setdefault(state.condition[-2:], []).append(state)
    too_long = 0
    for (model, step), of_model in states_by_model.items():
        if drain.requested:
            break
        with closing(load_engine(study, study.file.engine.name, model, step)) as engine:
            for state in of_model:
                if not drain.requested:
                    too_long += _score_condition(study, engine, state, drain)
                    say(f"{state.condition.score}: {state.condition}")
    for table in dict.fromkeys(state.condition.table for state in states):
        _settle_table(study, table)
    return too_long


def _score_condition(study: Study, engine: Engine, state: ScoreState, drain: Drain) -> int:
    """Score the missing texts of one condition; gives how many texts the model cannot hold.

    ``state``: the condition (texts of one source at one step, under one model at one step) and its
    keys without a score. Scores come back in the order of the texts, so ``under_way`` keeps the
    texts in a queue. Rows are stored every ``_STORE_SECONDS``, so that a kill loses little. A
    response without tokens has a score of 0 without asking the model.
    """
    condition = state.condition
    under_way: deque[tuple[Text, int]] = deque()
    rows: list[dict[str, object]] = []
    too_long = 0

    def encoded_texts() -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Tokens of each prompt and response that the model can hold; notes what is under way."""
        nonlocal too_long
        for text in read_texts(study, condition, state.missing, state.requested):
            if drain.requested:
                return
            prompt_ids, response_ids = encode(engine, text)
            # One less than the model holds: vLLM must be able to sample a token behind the text.
            if len(prompt_ids) + len(response_ids) >= engine.max_length:
                too_long += 1
            elif response_ids:
                under_way.append((text, len(response_ids)))
                yield prompt_ids, response_ids
            else:
                rows.append(_score_row(condition, text, 0, 0.0, 0.0))

    last_stored = time.monotonic()
    for score in engine.score(encoded_texts()):
        text, n_tokens = under_way.popleft()
        logprob_sum = float(score.logprobs.sum(dtype=np.float64))
        entropy_sum = float(score.entropies.sum(dtype=np.float64))
        rows.append(_score_row(condition, text, n_tokens, logprob_sum, entropy_sum))
        if time.monotonic() - last_stored >= _STORE_SECONDS:
            _store_rows(study, condition, rows)
            rows.clear()
            last_stored = time.monotonic()
    _store_rows(study, condition, rows)
    return too_long


def _score_row(
    condition: Condition, text: Text, n_tokens: int, logprob_sum: float, entropy_sum: float
) -> dict[str, object]:
    """Row of a scores file: which text, under which model, and sums over its response tokens.

    ``condition`` gives the step of the text and that of the scoring model; ``request`` is the
    fingerprint of text and model.
    """
    return {
        "problem": text.problem,
        "sample": text.sample,
        "step": condition.step,
        "scorer_step": condition.scorer_step,
        "n_tokens": n_tokens,
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
    response_ids = tokens.tokenizer(text.response, add_special_tokens=False)["input_ids"]
    if text.ended:
        end_of_text = tokens.tokenizer.eos_token_id
        response_ids = [*response_ids, min(tokens.eos) if end_of_text is None else end_of_text]
    return tokens.encode(text.prompt), tuple(response_ids)


def _store_rows(study: Study, condition: Condition, rows: list[dict[str, object]]) -> None:
    """Write rows as a new scores file, if there are any."""
    if rows:
        table = pa.Table.from_pylist(rows, tables.SCORE_ROWS)
        tables.add_scores(study.layout, *condition.table, table)


def _settle_table(study: Study, table: tuple[str, str, str]) -> None:
    """Gather the files of a table and drop what belongs to another text or model than today's."""
    current: set[int] = set()
    for condition in conditions(study, list(study.file.scores)):
        if condition.table == table:
            current.update(requested_texts(study, condition).requests.values())
    tables.settle_scores(study.layout, *table, current)
