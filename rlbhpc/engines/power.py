"""Samples of the sharpened model, whose responses x have probabilities in proportion to p(x)^α.

They are drawn by Metropolis–Hastings moves over suffixes (Karan and Du, Reasoning with Sampling,
arXiv 2510.14901): from a response of length L, pick one of its L places t, draw another suffix
from there, and accept the new response x′ with probability

    min(1, [p(x′)/p(x)]^α · [q(x_t:)/q(x′_t:)] · L/L′).

The proposal q is the model at temperature 1/α. L/L′ is there because the length changes with the
end token, and so does the chance of picking t. A response first grows block by block, with some
moves at each length; the target of the last block is the true one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Generator
from dataclasses import replace

import numpy as np

from rlbhpc.engines.completion import Completion, Finish, Request
from rlbhpc.engines.engine import failed_completion, too_long
from rlbhpc.engines.tokens import StopText
from rlbhpc.study.keys import Power, Sampling, follow_up_seed

#: A process that asks for a proposal, or more of them, and returns a response.
Proposing = Generator[Request, Completion, Completion]


def sample_power(
    request: Request, sampling: Sampling, stop: StopText, max_length: int
) -> Proposing:
    """Draw one sample of p^α; ``sampling.power`` says how, and ``stop`` reads its text.

    ``max_length``: tokens that the model holds of prompt and response together. A response that
    has ended needs no further growth, so its next block is the last.
    """
    assert sampling.power is not None
    reason = too_long(len(request.prompt_ids), sampling.max_tokens, max_length)
    if reason:
        return failed_completion(request, reason)
    chain = Chain(request, sampling.power)
    block_ends = range(sampling.power.block, sampling.max_tokens, sampling.power.block)
    for longest in (*block_ends, sampling.max_tokens):
        if not chain.has_ended:
            chain.response = yield from chain.propose(len(chain.response.token_ids), longest)
        elif longest < sampling.max_tokens:
            continue
        for _ in range(sampling.power.moves):
            yield from chain.move(longest)
    response = chain.response
    completion = stop.complete(request, response.token_ids, response.logprobs, response.entropies)
    return replace(completion, trace=json.dumps(chain.counts))


class Chain:
    """A response that changes by moves, and what they cost.

    Everything random follows from the seed of the request: each proposal has a seed of its own,
    and places and acceptances follow a stream of uniform numbers.
    """

    def __init__(self, request: Request, power: Power) -> None:
        """Begin with an empty response."""
        self.request = request
        self.alpha = power.alpha
        self.response = replace(failed_completion(request, ""), finish=Finish.LENGTH)
        self.n_proposals = 0
        # What the sample took, by the names that the store has for it.
        self.counts = {"n_tokens_drawn": 0, "n_moves": 0, "n_moves_accepted": 0}
        stream_seed = follow_up_seed(request.seed, 0)
        self._uniforms = np.random.Generator(np.random.Philox(key=stream_seed))

    @property
    def has_ended(self) -> bool:
        """Whether the response has an end token, so that it can't grow."""
        return self.response.finish is not Finish.LENGTH

    def propose(self, start: int, longest: int) -> Proposing:
        """Draw the tokens from ``start`` on anew; return the whole response that this makes.

        ``longest``: tokens that it may have.
        """
        self.n_proposals += 1
        kept_ids = self.response.token_ids[:start].tolist()
        suffix = yield replace(
            self.request,
            prompt_ids=(*self.request.prompt_ids, *kept_ids),
            seed=follow_up_seed(self.request.seed, self.n_proposals),
            max_tokens=longest - start,
        )
        self.counts["n_tokens_drawn"] += len(suffix.token_ids)
        return replace_suffix(self.response, start, suffix)

    def move(self, longest: int) -> Generator[Request, Completion, None]:
        """Propose another suffix, and accept or reject it."""
        start = int(self._uniforms.random() * len(self.response.token_ids))
        proposal = yield from self.propose(start, longest)
        self.counts["n_moves"] += 1
        if self._uniforms.random() < acceptance(self.response, proposal, start, self.alpha):
            self.response = proposal
            self.counts["n_moves_accepted"] += 1


def replace_suffix(response: Completion, start: int, suffix: Completion) -> Completion:
    """The first ``start`` tokens of a response, then those of ``suffix``, with their log-probs."""
    arrays = {}
    for name in ("token_ids", "logprobs", "entropies", "drawn_logprobs"):
        arrays[name] = np.concatenate([getattr(response, name)[:start], getattr(suffix, name)])
    return replace(suffix, **arrays)


def acceptance(current: Completion, proposal: Completion, start: int, alpha: float) -> float:
    """Probability to accept ``proposal``, which differs from ``current`` from ``start`` on.

    min(1, [p(x′)/p(x)]^α · [q(x_t:)/q(x′_t:)] · L/L′), with p from the log-probs of the model and
    q from those that the tokens were drawn with.
    """
    current_length = len(current.token_ids)
    proposal_length = len(proposal.token_ids)
    log_ratio = _log_weight(proposal, start, alpha) - _log_weight(current, start, alpha)
    log_ratio += math.log(current_length / proposal_length)
    return math.exp(min(0.0, log_ratio))


def _log_weight(response: Completion, start: int, alpha: float) -> float:
    """log(p^α / q) of the tokens from ``start`` on."""
    target = alpha * response.logprobs[start:].sum(dtype=np.float64)
    return float(target - response.drawn_logprobs[start:].sum(dtype=np.float64))
