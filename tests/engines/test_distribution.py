"""Draws and what is measured of a distribution, against loops and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from rlbhpc.engines import distribution
from rlbhpc.engines.distribution import entropy, invert, log_distribution, uniforms
from rlbhpc.engines.hf_engine import (
    TokenHistory,
    draw_tokens,
    keep_nucleus,
    penalise_logits,
    truncate_weights,
)
from rlbhpc.engines.hf_model import BatchCache, StepCache, columns_for, round_up
from rlbhpc.study.keys import Sampling

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0, 2.0])
def test_log_probs_are_of_logits_over_the_temperature(temperature: float) -> None:
    logits = torch.tensor([[0.0, math.log(3)]])
    weights = np.array([1.0, 3.0 ** (1 / (temperature or 1.0))])
    expected = np.log(weights / weights.sum())
    assert log_distribution(logits, temperature)[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_entropies_are_exact_whatever_is_worked_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    logp = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.25, 0.5], [1.0, 0.0, 0.0]]).log()
    expected = [math.log(2), 1.5 * math.log(2), 0.0]
    whole, sizes = distribution._entropy, []
    monkeypatch.setattr(
        distribution, "_entropy", lambda part: sizes.append(len(part)) or whole(part)
    )
    for chunk, parts in ((1, [1, 1, 1]), (6, [2, 1]), (99, [3])):
        monkeypatch.setattr(distribution, "CHUNK", chunk)
        sizes.clear()
        assert entropy(logp).tolist() == pytest.approx(expected, abs=1e-6)
        assert sizes == parts


@pytest.mark.parametrize("size", [1, 3, 31, 32, 33, 64, 200])
def test_a_draw_is_the_first_whose_running_sum_exceeds_the_number(size: int) -> None:
    rng = np.random.default_rng(size)
    weight = rng.integers(0, 5, (60, size)).astype(np.float32)
    weight[:, rng.integers(size)] += 1024 - weight.sum(1)
    # Such numbers add up exactly, so that even one on a border has one answer.
    uniform = np.concatenate(
        [[0.0, 1 - 2.0**-53], rng.random(28), rng.integers(0, 1024, 30) / 1024]
    )
    expected = [
        int(np.searchsorted(np.cumsum(row, dtype=np.float64), number * row.sum(), side="right"))
        for row, number in zip(weight, uniform, strict=True)
    ]
    assert invert(torch.from_numpy(weight), torch.from_numpy(uniform)).tolist() == expected


def test_a_number_next_to_one_draws_the_last_that_can_be() -> None:
    weight = torch.tensor([[0.1, 0.2, 0.0, 0.0], [0.3, 0.3, 0.3, 0.1]])
    assert invert(weight, torch.tensor([1.0, 1.0]).double()).tolist() == [1, 3]


def test_streams_are_their_seeds() -> None:
    assert uniforms(1, 2).tolist() == [0.3035680343067586, 0.8487087496857769]
    assert uniforms(1, 5)[:2].tolist() == uniforms(1, 2).tolist()


def drawn(sampling: Sampling, past: TokenHistory | None = None) -> tuple[int, float, float]:
    logits = torch.tensor([[math.log(4), math.log(3), math.log(2), math.log(1)]])
    out = draw_tokens(logits, torch.tensor([0.75]).double(), sampling, past, torch.tensor([0]))
    return int(out.tokens), float(out.logprobs), float(out.entropies)


def test_what_is_measured_is_of_the_whole_distribution() -> None:
    p = np.array([0.4, 0.3, 0.2, 0.1])
    whole = -(p * np.log(p)).sum()
    written = TokenHistory(
        torch.tensor([[False] * 4]), torch.tensor([[9, 0, 0, 0]]), torch.tensor([9])
    )
    for sampling, past, token in (
        (Sampling(1.0, 1.0, 9), None, 2),
        (Sampling(0, 1.0, 9), None, 0),
        (Sampling(1.0, 1.0, 9, top_k=2), None, 1),
        (Sampling(1.0, 0.5, 9), None, 1),
        (Sampling(1.0, 1.0, 9, min_tokens=10), written, 2),
        (Sampling(0, 1.0, 9, min_tokens=10), written, 1),
        (Sampling(0, 1.0, 9, min_tokens=9), written, 0),
        (Sampling(0, 1.0, 9, frequency_penalty=0.1), written, 1),
        (Sampling(0, 1.0, 9, presence_penalty=0.1), written, 0),
    ):
        found, logprob, entropies = drawn(sampling, past)
        assert found == token, sampling
        assert logprob == pytest.approx(math.log(p[token]), abs=1e-6)
        assert entropies == pytest.approx(whole, abs=1e-6)


def test_penalties_are_those_of_what_was_read_and_written() -> None:
    """By hand: repetition divides above 0 and multiplies below, the others are taken off."""
    past = TokenHistory(
        torch.tensor([[True, False, False, True]]),
        torch.tensor([[0, 2, 0, 1]], dtype=torch.int32),
        torch.tensor([3]),
    )
    logits = torch.tensor([[1.0, -1.0, 3.0, 2.0]])
    sampling = Sampling(
        1.0, 1.0, 9, min_tokens=4, repetition_penalty=2.0, frequency_penalty=0.25,
        presence_penalty=0.5,
    )  # fmt: skip
    barred = penalise_logits(logits, sampling, past, torch.tensor([2]))
    assert barred.tolist() == [[0.5, -2 - 0.5 - 0.5, -math.inf, 1 - 0.25 - 0.5]]
    assert logits.tolist() == [[1, -1, 3, 2]], "what was given stays"
    plain = Sampling(1.0, 1.0, 9, min_tokens=3)
    assert penalise_logits(logits, plain, past, torch.tensor([2])).tolist() == logits.tolist()


WEIGHT = (0.1, 0.4, 0.2, 0.25, 0.05)


@pytest.mark.parametrize(
    ("cuts", "left"),
    [
        ({}, (0.1, 0.4, 0.2, 0.25, 0.05)),
        ({"min_p": 0.5}, (0, 0.4, 0.2, 0.25, 0)),
        ({"top_k": 1}, (0, 0.4, 0, 0, 0)),
        ({"top_k": 2}, (0, 0.4, 0, 0.25, 0)),
        ({"top_k": 5}, (0.1, 0.4, 0.2, 0.25, 0.05)),
        ({"top_k": 3, "min_p": 0.55}, (0, 0.4, 0, 0.25, 0)),
        ({"top_p": 0.6}, (0, 0.4, 0, 0.25, 0)),
        ({"top_p": 0.4}, (0, 0.4, 0, 0, 0)),
        ({"top_k": 3, "top_p": 0.75}, (0, 0.4, 0, 0.25, 0)),  # of the mass that top-k leaves
    ],
)
def test_cuts_leave_the_likeliest(cuts: dict[str, float], left: tuple[float, ...]) -> None:
    sampling = Sampling(**{"temperature": 1.0, "top_p": 1.0, "max_tokens": 9, **cuts})
    given = torch.tensor([WEIGHT])
    out = truncate_weights(given, sampling)[0]
    assert cuts or truncate_weights(given, sampling) is given, "what cuts nothing changes no bit"
    assert (out / out.sum()).tolist() == pytest.approx([x / sum(left) for x in left], abs=1e-6)


def test_of_equals_a_nucleus_takes_the_first() -> None:
    assert keep_nucleus(torch.full((1, 4), 0.25), 0.5).tolist() == [[0.25, 0.25, 0, 0]]


@pytest.mark.parametrize(
    ("n", "rounded", "width"), [(1, 16, 32), (16, 16, 32), (17, 32, 32), (33, 48, 48)]
)
def test_widths_are_whole_strides(n: int, rounded: int, width: int) -> None:
    assert (round_up(n), columns_for(n)) == (rounded, width)


def test_slots_keep_what_was_written_as_they_grow() -> None:
    """Keys of one head of size 2, values of two of size 1; three rows."""
    slots = BatchCache(3)
    prefix = [(torch.arange(1.0, 13).view(2, 1, 3, 2), torch.arange(1.0, 13).view(2, 2, 3, 1))]
    slots.ensure_columns(33, prefix)
    assert slots.columns == 48
    for slot, row in ((2, 0), (0, 1)):
        (pair,) = prefix
        slots.write_prompt(torch.tensor([slot]), [(pair[0][row : row + 1], pair[1][row : row + 1])])
    before = slots.layers[0]
    slots.ensure_columns(48, prefix)
    assert slots.columns == 48 and slots.layers[0] is before
    slots.ensure_columns(49, prefix)
    assert slots.columns == 64 and [t.shape[2] for t in slots.layers[0]] == [64, 64]
    window = StepCache(slots, torch.tensor([3, 0, 4]), 32, torch.tensor([0, 0, -2]))
    assert window.rotary_positions.tolist() == [3, 0, 2]
    new = torch.full((3, 1, 1, 2), 50.0), torch.full((3, 2, 1, 1), 60.0)
    key, value = window.update(*new, 0)
    assert key.shape == (3, 1, 32, 2) and value.shape == (3, 2, 32, 1)
    assert key[0, 0, :5].tolist() == [[7, 8], [9, 10], [11, 12], [50, 50], [0, 0]]
    assert key[1, 0, :2].tolist() == [[50, 50], [0, 0]]
    assert value[2, 1, :6, 0].tolist() == [4, 5, 6, 0, 60, 0]
    slots.copy_rows(torch.tensor([2]), torch.tensor([1]))
    assert torch.equal(slots.layers[0][0][1], slots.layers[0][0][2])
    assert window.get_seq_length() == 31


@pytest.mark.parametrize(
    ("last", "visible"), [(None, [[0, 1, 2], [0]]), (2, [[1, 2], [0]]), (1, [[2], [0]])]
)
def test_a_row_sees_its_own_columns_up_to_now(last: int | None, visible: list[list[int]]) -> None:
    window = StepCache(BatchCache(2), torch.tensor([2, 0]), 5, torch.tensor([0, 0]))
    mask = window.additive_mask(torch.float32, last)
    assert mask.shape == (2, 1, 1, 5)
    assert [torch.nonzero(row[0, 0] == 0)[:, 0].tolist() for row in mask] == visible
    assert mask.unique().tolist() == [torch.finfo(torch.float32).min, 0]
