"""The ``hf`` engine: seeded sampling and scoring with any transformers causal model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from rlbhpc.engines.ahead import Ahead, Shared
from rlbhpc.engines.completion import Completion, Request
from rlbhpc.engines.distribution import entropy, log_distribution
from rlbhpc.engines.engine import Score
from rlbhpc.engines.first_calls import settle_vector_math
from rlbhpc.engines.folder import steady_length
from rlbhpc.engines.hf.backend import Backend, copy_weights, load_module, round_up
from rlbhpc.engines.hf.sampler import Finished, Sampler
from rlbhpc.engines.stop import StopText
from rlbhpc.engines.tokens import Tokens
from rlbhpc.errors import UserError
from rlbhpc.study.keys import Sampling

# Response positions whose logits are computed together when scoring.
SCORED = 256
# Below this many parameters an operation is too small to split over cores, and whole batches run
# side by side instead, one core each.
SMALL = 30_000_000


class HfEngine:
    """Batched sampling with a static cache and continuous refill, on CPU or GPU.

    On the CPU in float32 a sample's tokens, log-probs and entropies depend only on (model,
    prompt, seed, sampling): cached columns are left-aligned, masked columns add exact zeros,
    batches are whole multiples of sixteen rows, and each row draws from a counter-based stream
    keyed by its seed. Only mixtures of experts depend on the batch. ``rows`` responses run side by
    side.
    """

    def __init__(
        self, model: str | Path, *, rows: int = 256, dtype: str = "float32", device: str = "cpu"
    ) -> None:
        settle_vector_math()
        folder = Path(model)
        self.max_length = steady_length(folder)
        self.tokens = Tokens(folder)
        module = load_module(folder, getattr(torch, dtype), torch.device(device))
        # An expert multiplies as many rows at once as the whole batch sends to it.
        experts = any(parameter.dim() == 3 for parameter in module.parameters())
        wide = device == "cpu" and dtype in ("float32", "float64")
        self.deterministic = wide and not experts
        self._backend = Backend(module)
        self.sees = self._backend.sight is not None
        small = sum(parameter.numel() for parameter in module.parameters()) < SMALL
        self._cores = torch.get_num_threads()
        batches = self._cores if small and device == "cpu" else 1
        share = round_up(-(-rows // batches))
        self._samplers = [Sampler(self._backend, share, self.max_length) for _ in range(batches)]

    def generate(self, requests: Iterable[Request], sampling: Sampling) -> Iterator[Completion]:
        """Yield completions as they finish; see :class:`Engine`."""
        stop = StopText(self.tokens, sampling)
        shared = Shared(iter(requests))
        ahead = Ahead([self._run(s, shared, sampling, stop) for s in self._samplers])
        try:
            for item in ahead:
                yield item if isinstance(item, Completion) else stop.complete(*item)
        finally:
            ahead.close()
            torch.set_num_threads(self._cores)

    def _run(
        self, sampler: Sampler, requests: Iterator[Request], sampling: Sampling, stop: StopText
    ) -> Iterator[Finished | Completion]:
        # Where several batches run side by side, each has one core for its operations.
        torch.set_num_threads(self._cores // len(self._samplers))
        yield from sampler.run(requests, sampling, stop)

    def score(
        self, texts: Iterable[tuple[tuple[int, ...], tuple[int, ...]]], temperature: float = 1.0
    ) -> Iterator[Score]:
        """Score responses given their prompts; see :class:`Engine`."""
        for prompt, response in texts:
            with torch.inference_mode():
                score = self._score(prompt, response, temperature)
            yield score

    def _score(
        self, prompt: tuple[int, ...], response: tuple[int, ...], temperature: float
    ) -> Score:
        length = len(prompt) + len(response)
        if length > self.max_length:
            raise UserError(f"score: {length} tokens exceed the {self.max_length} of the model")
        hidden = self._backend.prefill(prompt + response).hidden[len(prompt) - 1 : -1]
        logprobs, entropies = [], []
        given = torch.tensor(response, device=hidden.device)
        for start in range(0, len(response), SCORED):
            part = hidden[start : start + SCORED]
            # Whole multiples of sixteen rows here too, for the same bits.
            short = round_up(len(part)) - len(part)
            logits = self._backend.head(torch.nn.functional.pad(part, (0, 0, 0, short)))
            logp = log_distribution(logits[: len(part)], temperature)
            logprobs.append(logp.gather(1, given[start : start + SCORED, None])[:, 0].cpu())
            entropies.append(entropy(logp).cpu())
        return Score(torch.cat(logprobs).numpy(), torch.cat(entropies).numpy())

    def load_weights(self, weights: Path | Iterable[tuple[str, torch.Tensor]]) -> None:
        """Swap the weights in place; see :class:`Engine`."""
        try:
            copy_weights(self._backend.module, weights)
        finally:  # after weights that were refused on the way, too
            self.rest()

    def rest(self) -> None:
        """Forget the prompts: the weights stay, and responses leave nothing behind."""
        for sampler in self._samplers:
            sampler.forget()

    def close(self) -> None:
        """Free the cache and the model."""
        self._samplers.clear()
        del self._backend
