"""Micro-batches: every response once, every token predicted from what stood before it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbhpc.train.batch import Response, pack_responses, split_into_micro_batches
from rlbhpc.train.mixture import draw_order

pytestmark = pytest.mark.engine

SIZES = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 40)), min_size=1, max_size=30)


def responses(sizes: list[tuple[int, int]]) -> list[Response]:
    rng = np.random.default_rng(0)
    return [
        Response(tuple(rng.integers(1, 99, p).tolist()), rng.integers(1, 99, n).astype(np.int32))
        for p, n in sizes
    ]


@given(sizes=SIZES, budget=st.integers(1, 400), ranks=st.integers(1, 4))
@settings(max_examples=60)
def test_every_response_is_in_one_micro_batch_and_ranks_stay_together(
    sizes: list[tuple[int, int]], budget: int, ranks: int
) -> None:
    every = responses(sizes)
    shares = split_into_micro_batches(every, budget, ranks)
    assert len({len(share) for share in shares}) == 1
    parts = [part.tolist() for share in shares for part in share]
    assert sorted(i for part in parts for i in part) == list(range(len(sizes)))
    for part in parts:
        assert len(part) < 2 or sum(every[i].size for i in part) <= budget


def test_micro_batches_are_about_equally_large() -> None:
    every = responses([(4, 60)] * 64)
    cut = [
        [len(part) for part in share] for share in split_into_micro_batches(every, 46 * 63, ranks=2)
    ]
    assert cut == [[32], [32]]


def test_responses_to_one_prompt_stay_together() -> None:
    asked, other = responses([(9, 1), (7, 1)])
    every = [Response(r.prompt_ids, np.arange(1, 6, dtype=np.int32)) for r in (asked, other) * 4]
    together, rest = (
        part.tolist() for (part,) in split_into_micro_batches(every, 4 * every[0].size, ranks=2)
    )
    assert [together, rest] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert pack_responses(every, np.array(together)).input_ids.shape == (1, 9 + 4 * 4)


@given(sizes=SIZES, copies=st.integers(1, 3))
@settings(max_examples=60)
def test_every_token_is_predicted_by_what_stood_before_it(
    sizes: list[tuple[int, int]], copies: int
) -> None:
    every = [
        Response(r.prompt_ids, np.roll(r.token_ids, i)) for r in responses(sizes)
        for i in range(copies)
    ]  # fmt: skip
    batch = pack_responses(every, np.arange(len(every)))
    ids, positions = batch.input_ids[0], batch.positions[0]
    places = torch.cat([row.flatten() for row in batch.attention_rows])
    assert torch.equal(places[batch.row_slots], torch.arange(len(ids)))
    # What attention puts before a cell, where its output is taken from: the row up to there.
    columns = torch.cat(
        [torch.arange(row.shape[1]).repeat(len(row)) for row in batch.attention_rows]
    )
    start = 0
    for r in every:
        cells = batch.predicting_cells[start : start + len(r.token_ids)]
        assert batch.targets[start : start + len(r.token_ids)].tolist() == r.token_ids.tolist()
        start += len(r.token_ids)
        first = len(r.prompt_ids) - 1
        assert positions[cells].tolist() == list(range(first, first + len(r.token_ids)))
        read = (*r.prompt_ids, *r.token_ids.tolist())
        for n, cell in enumerate(cells.tolist()):
            place = int(batch.row_slots[cell])
            before = places[place - int(columns[place]) : place + 1]
            assert tuple(ids[before].tolist()) == read[: first + n + 1]


def test_attention_pads_little_where_lengths_differ() -> None:
    batch = pack_responses(responses([(4, 60)] + [(4, 4)] * 8), np.arange(9))
    assert [tuple(row.shape) for row in batch.attention_rows] == [(1, 63), (8, 7)]


def test_by_response_spreads_and_masks() -> None:
    batch = pack_responses(responses([(2, 3), (1, 1)]), np.arange(2))
    out = batch.pad_by_response(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert out.tolist() == [[1, 2, 3], [4, 0, 0]]


@given(start=st.integers(0, 100), count=st.integers(1, 50), size=st.integers(1, 17))
def test_the_order_of_prompts_needs_no_state(start: int, count: int, size: int) -> None:
    whole = draw_order(3, size, 0, start + count)
    assert draw_order(3, size, start, count) == whole[start:]
    for epoch in range(len(whole) // size):
        assert sorted(whole[epoch * size : (epoch + 1) * size]) == list(range(size))
