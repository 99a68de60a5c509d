"""Requests, and the truth that engines are held against."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from rlbhpc.engines.completion import Completion, Request
from rlbhpc.engines.distribution import uniforms
from rlbhpc.engines.engine import Engine
from rlbhpc.study.keys import Sampling

# A byte that ends a response as well.
SECOND_END = 200


def requests(n: int, seed: int = 0, prompts: int = 10) -> list[Request]:
    """``n`` requests over a few prompts of different lengths."""
    rng = random.Random(seed)
    texts = [tuple(rng.randrange(256) for _ in range(rng.randrange(3, 40))) for _ in range(prompts)]
    return [Request(i, texts[i % prompts], rng.getrandbits(63)) for i in range(n)]


def by_tag(engine: Engine, asked: Sequence[Request], sampling: Sampling) -> dict[int, Completion]:
    """Completions by tag; every request exactly once."""
    done = list(engine.generate(iter(asked), sampling))
    assert sorted(c.tag for c in done) == sorted(r.tag for r in asked)
    return {c.tag: c for c in done}


def same(a: Completion, b: Completion) -> bool:
    """Bit for bit."""
    return (
        a.token_ids.tobytes() == b.token_ids.tobytes()
        and a.logprobs.tobytes() == b.logprobs.tobytes()
        and a.entropies.tobytes() == b.entropies.tobytes()
        and (a.text, a.finish) == (b.text, b.finish)
    )


class Truth:
    """Next-token distributions by a plain forward pass of transformers and a float64 softmax."""

    def __init__(self, folder: Path) -> None:
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        )

    def logp(
        self, prompt: Sequence[int], response: Sequence[int], temperature: float
    ) -> np.ndarray:
        """Log-probabilities ``[response, vocabulary]`` of what stands where each token stands."""
        logits = torch.from_numpy(self.logits(prompt, response)) / (temperature or 1.0)
        return torch.log_softmax(logits, -1).numpy()

    def logits(self, prompt: Sequence[int], response: Sequence[int]) -> np.ndarray:
        """Logits ``[response, vocabulary]`` of what stands where each token stands."""
        ids = torch.tensor([[*prompt, *response]])
        with torch.no_grad():
            return self.model(ids).logits[0, len(prompt) - 1 : -1].double().numpy()

    def check(self, request: Request, done: Completion, temperature: float) -> None:
        """Hold a completion's log-probs and entropies against the truth."""
        ids = done.token_ids.tolist()
        logp = self.logp(request.prompt_ids, ids, temperature)
        np.testing.assert_allclose(done.logprobs, logp[range(len(ids)), ids], atol=1e-4, rtol=0)
        entropies = -(np.exp(logp) * logp).sum(-1)
        np.testing.assert_allclose(done.entropies, entropies, atol=1e-5, rtol=0)


def nucleus(p: np.ndarray, top_p: float) -> np.ndarray:
    """The smallest set of likeliest tokens whose mass reaches ``top_p``, renormalised."""
    order = np.argsort(-p, kind="stable")
    size = int(np.searchsorted(np.cumsum(p[order]), top_p)) + 1
    kept = np.zeros_like(p)
    kept[order[:size]] = p[order[:size]]
    return kept / kept.sum()


def check_draws(
    truth: Truth, asked: Sequence[Request], done: dict[int, Completion], sampling: Sampling
) -> None:
    """Hold each token against its seed's number in the running sum of what may be drawn."""
    for request in asked:
        ids = done[request.tag].token_ids.tolist()
        numbers = uniforms(request.seed, len(ids))
        for p, token, number in zip(
            np.exp(truth.logp(request.prompt_ids, ids, sampling.temperature)),
            ids, numbers, strict=True,
        ):  # fmt: skip
            running = np.cumsum(nucleus(p, sampling.top_p))
            assert running[token - 1] * (token > 0) - 1e-4 <= number <= running[token] + 1e-4
