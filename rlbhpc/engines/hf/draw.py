"""Draw next tokens: penalties, temperature, cuts, inverse distribution function.

Everything here works row by row on a batch of logits, so a row's outcome does not depend on its
neighbours. Order and definitions are those of vLLM's sampler.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from rlbhpc.engines.distribution import entropy, invert, log_distribution
from rlbhpc.study.arm import Sampling


class Drawn(NamedTuple):
    """Sampled tokens of a batch with their log-probs and the entropies of what they came from."""

    tokens: torch.Tensor
    logprobs: torch.Tensor
    entropies: torch.Tensor


class Past(NamedTuple):
    """What each row has read and written: prompt tokens (yes or no) and how often it wrote each.

    Both are ``[rows, vocabulary]``; ``lengths`` counts the tokens written.
    """

    prompt: torch.Tensor
    counts: torch.Tensor
    lengths: torch.Tensor


def draw(
    logits: torch.Tensor,
    uniform: torch.Tensor,
    sampling: Sampling,
    past: Past | None,
    ends: torch.Tensor,
) -> Drawn:
    """Draw one token per row of ``logits`` by inverting the distribution function at ``uniform``.

    Log-probs and entropies are those of the distribution at the sampling temperature before a
    penalty or a cut changes it. ``past`` is needed where the sampling setting has penalties or
    ``min_tokens``.
    """
    logp = log_distribution(logits, sampling.temperature)
    changed = logp
    if past is not None:
        changed = log_distribution(bar(logits.float(), sampling, past, ends), sampling.temperature)
    if sampling.temperature == 0:
        tokens = changed.argmax(-1)
    else:
        weight = torch.softmax(changed, dim=-1)  # row by row, unlike exp: see engines.distribution
        tokens = invert(cut(weight, sampling), uniform)
    return Drawn(tokens, logp.gather(-1, tokens[:, None])[:, 0], entropy(logp))


def bar(logits: torch.Tensor, sampling: Sampling, past: Past, ends: torch.Tensor) -> torch.Tensor:
    """Logits with the end tokens barred below ``min_tokens``, then with the penalties."""
    is_short = past.lengths < sampling.min_tokens
    logits = logits.clone()
    logits[:, ends] = torch.where(is_short[:, None], -torch.inf, logits[:, ends])
    if not sampling.penalises:
        return logits
    is_written = past.counts > 0
    penalty = sampling.repetition_penalty
    repeated = torch.where(logits > 0, logits / penalty, logits * penalty)
    logits = torch.where(past.prompt | is_written, repeated, logits)
    logits = logits - sampling.frequency_penalty * past.counts
    return logits - sampling.presence_penalty * is_written


def cut(weight: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Zero the tokens that min-p, then top-k, then top-p leave out."""
    if sampling.min_p > 0:
        weight = _whole(weight * (weight >= sampling.min_p * weight.amax(-1, keepdim=True)))
    if 0 < sampling.top_k < weight.shape[-1]:
        least = weight.topk(sampling.top_k, dim=-1).values[:, -1:]
        weight = _whole(weight * (weight >= least))
    return nucleus(weight, sampling.top_p) if sampling.top_p < 1 else weight


def nucleus(weight: torch.Tensor, top_p: float) -> torch.Tensor:
    """Zero all but the smallest set of likeliest tokens whose mass reaches ``top_p``."""
    ordered, order = weight.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1, dtype=torch.float64) - ordered
    return torch.zeros_like(weight).scatter_(-1, order, ordered * (before < top_p))


def _whole(weight: torch.Tensor) -> torch.Tensor:
    """Scale each row to a mass of 1; a running sum, since a plain one may depend on the rows."""
    return (weight / weight.cumsum(-1, dtype=torch.float64)[:, -1:]).to(weight.dtype)
