"""Score texts under models: what perplexity is made of. Resumes from what is on disk."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from rlbhpc.engines.engine import Engine
from rlbhpc.store import tables
from rlbhpc.study.study import Study
from rlbhpc.sweep.conditions import Condition, Text, Wanted, conditions, texts, wanted
from rlbhpc.sweep.drain import Drain
from rlbhpc.sweep.load import load_engine

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
        texts = wanted(study, condition)
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
    mine = [wanted(study, c).requests.values() for c in every if c.table == table]
    tables.settle_scores(study.layout, *table, {print_ for prints in mine for print_ in prints})
