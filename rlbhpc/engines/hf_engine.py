"""The ``hf`` engine: seeded sampling and scoring with any transformers causal model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rlbhpc.engines.completion import Completion, Prompt, Request
from rlbhpc.engines.distribution import (
    entropy,
    invert,
    log_distribution,
    settle_vector_math,
    uniforms,
)
from rlbhpc.engines.engine import Ahead, Score, Shared, failed_completion, too_long
from rlbhpc.engines.folder import steady_length
from rlbhpc.engines.hf_model import (
    Backend,
    Slots,
    Window,
    copy_weights,
    load_module,
    round_up,
    width_for,
)
from rlbhpc.engines.tokens import StopText, Tokens
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
                score = self._score_one(prompt, response, temperature)
            yield score

    def _score_one(
        self, prompt: tuple[int, ...], response: tuple[int, ...], temperature: float
    ) -> Score:
        """Log-probs and entropies of one response behind its prompt."""
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


# ---- draw ----------------------------------------------------------------------------------------
# Draw next tokens: penalties, temperature, cuts, inverse distribution function.
#
# Everything here works row by row on a batch of logits, so a row's outcome does not depend on its
# neighbours. Order and definitions are those of vLLM's sampler.


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
        weight = _normalise_mass(
            weight * (weight >= sampling.min_p * weight.amax(-1, keepdim=True))
        )
    if 0 < sampling.top_k < weight.shape[-1]:
        least = weight.topk(sampling.top_k, dim=-1).values[:, -1:]
        weight = _normalise_mass(weight * (weight >= least))
    return nucleus(weight, sampling.top_p) if sampling.top_p < 1 else weight


def nucleus(weight: torch.Tensor, top_p: float) -> torch.Tensor:
    """Zero all but the smallest set of likeliest tokens whose mass reaches ``top_p``."""
    ordered, order = weight.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1, dtype=torch.float64) - ordered
    return torch.zeros_like(weight).scatter_(-1, order, ordered * (before < top_p))


def _normalise_mass(weight: torch.Tensor) -> torch.Tensor:
    """Scale each row to a mass of 1; a running sum, since a plain one may depend on the rows."""
    return (weight / weight.cumsum(-1, dtype=torch.float64)[:, -1:]).to(weight.dtype)


# ---- rows ----------------------------------------------------------------------------------------
# State of the running rows: what each has sampled so far.


class Finished(NamedTuple):
    """Raw outcome of one row, before it becomes a completion."""

    request: Request
    token_ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    entropies: NDArray[np.float32]


class Rows:
    """Slots of a running batch; ``requests[slot]`` is None where a slot is free.

    ``lengths`` is the column at which a row's latest token goes, ``shifts`` what its rotary
    position differs from that by, ``sampled`` the number of tokens that a row has sampled, and
    ``busy`` 1 where a request runs: free slots below the highest used one run along as dummies,
    which stay at the start of their slot, so that the batch keeps its shape. These are the host's;
    what has a cell for each token is on the device.
    """

    def __init__(self, capacity: int, backend: Backend, sampling: Sampling) -> None:
        self.capacity = capacity
        self.max_tokens = sampling.max_tokens
        # What a row has read and written is of use to penalties alone.
        self._penalises = sampling.penalises
        vocabulary = backend.config.vocab_size if sampling.penalises else 0
        self.device = backend.device
        self.requests = np.full(capacity, None)
        self.lengths = np.zeros(capacity, np.int64)
        self.shifts = np.zeros(capacity, np.int64)
        self.sampled = np.zeros(capacity, np.int64)
        self.busy = np.zeros(capacity, np.int64)
        with self.device:
            self.hidden = torch.zeros(capacity, backend.config.hidden_size, dtype=backend.dtype)
            self.uniform = torch.zeros(capacity, self.max_tokens, dtype=torch.float64)
            self.tokens = torch.zeros(capacity, self.max_tokens, dtype=torch.int32)
            self.logprobs = torch.zeros(capacity, self.max_tokens)
            self.entropies = torch.zeros(capacity, self.max_tokens)
            self.read = torch.zeros(capacity, vocabulary, dtype=torch.bool)
            self.written = torch.zeros(capacity, vocabulary, dtype=torch.int32)

    def free(self) -> list[int]:
        """Free slots, lowest first."""
        return np.flatnonzero(self.busy == 0).tolist()

    def used(self) -> list[int]:
        """Slots in use, lowest first."""
        return np.flatnonzero(self.busy).tolist()

    def live(self) -> int:
        """Rows of the batch: up to the highest used slot, in whole strides."""
        used = self.used()
        return min(self.capacity, round_up(used[-1] + 1)) if used else 0

    def on_device(self, numbers: NDArray[np.int64] | list[int]) -> torch.Tensor:
        """A copy of the host's numbers."""
        return torch.tensor(numbers, device=self.device)

    def admit(
        self, slots: list[int], requests: list[Request], hidden: torch.Tensor, shift: int
    ) -> None:
        """Put requests into slots; ``hidden`` is the state after their prompts' last tokens."""
        numbers = np.stack([uniforms(request.seed, self.max_tokens) for request in requests])
        self.hidden[slots] = hidden
        self.uniform[slots] = torch.from_numpy(numbers).to(self.device)
        self.read[slots] = False
        self.written[slots] = 0
        self.shifts[slots] = shift
        self.busy[slots] = 1
        self.requests[slots] = requests
        for slot, request in zip(slots, requests, strict=True):
            self.lengths[slot] = len(request.prompt_ids) - 1
            if self._penalises:
                self.read[slot, list(request.prompt_ids)] = True

    def next_uniform(self, live: int) -> torch.Tensor:
        """Each live row's uniform number for its next token."""
        return self.uniform[:live].gather(1, self.on_device(self.sampled[:live, None]))[:, 0]

    def past(self, live: int) -> Past:
        """What each live row has read and written."""
        lengths = self.on_device(self.sampled[:live])
        return Past(self.read[:live], self.written[:live], lengths)

    def record(self, live: int, drawn: Drawn) -> None:
        """Append the drawn tokens to the live rows and advance their positions."""
        columns = self.on_device(self.sampled[:live, None])
        tokens = drawn.tokens[:, None]
        self.tokens[:live].scatter_(1, columns, tokens.int())
        self.logprobs[:live].scatter_(1, columns, drawn.logprobs[:, None])
        self.entropies[:live].scatter_(1, columns, drawn.entropies[:, None])
        if self._penalises:
            busy = self.on_device(self.busy[:live, None]).int()
            self.written[:live].scatter_add_(1, tokens, busy)
        self.lengths[:live] += self.busy[:live]
        self.sampled[:live] += self.busy[:live]

    def take(self, slots: list[int]) -> list[Finished]:
        """Copy finished rows to the host and free their slots."""
        longest = int(self.sampled[slots].max())
        host = [
            t[slots, :longest].cpu().numpy() for t in (self.tokens, self.logprobs, self.entropies)
        ]
        out = []
        for i, slot in enumerate(slots):
            n = int(self.sampled[slot])
            out.append(Finished(self.requests[slot], *(a[i, :n].copy() for a in host)))
        self._release_slots(slots)
        return out

    def move(self, sources: list[int], targets: list[int]) -> None:
        """Move running rows to free slots."""
        for state in (
            self.requests, self.lengths, self.shifts, self.sampled, self.busy, self.hidden,
            self.uniform, self.tokens, self.logprobs, self.entropies, self.read, self.written,
        ):  # fmt: skip
            state[targets] = state[sources]
        self._release_slots(sources)

    def _release_slots(self, slots: list[int]) -> None:
        self.lengths[slots] = self.sampled[slots] = self.busy[slots] = 0
        self.requests[slots] = None


# ---- sampler -------------------------------------------------------------------------------------
# The sampling loop: admit, draw, step; a finished row's slot is refilled at once.


# The share of slots that must be free before new rows are admitted: a prefill costs about as much
# as a step whatever its size, so rows are let in by the handful.
HANDFUL = 16
# The share of prompts whose cache is kept for their next sample, of as many as there are slots.
KEPT = 4


class Sampler:
    """One batch of rows that samples requests until there are none."""

    def __init__(self, backend: Backend, rows: int, max_length: int) -> None:
        self.backend = backend
        self.rows = rows
        self.max_length = max_length
        self._prefill = lru_cache(rows // KEPT)(backend.prefill)

    def forget(self) -> None:
        """Drop what was computed with the old weights."""
        self._prefill.cache_clear()

    @torch.inference_mode()
    def run(
        self, requests: Iterator[Request], sampling: Sampling, stop: StopText
    ) -> Iterator[Finished | Completion]:
        """Yield rows as they finish, and completions for requests that cannot be run."""
        backend = self.backend
        rows = Rows(self.rows, backend, sampling)
        needs_past = sampling.penalises or bool(sampling.min_tokens)
        slots = Slots(self.rows)
        ends = torch.tensor(sorted(stop.ends), device=backend.device)
        waiting = True
        while waiting or rows.used():
            free = rows.free()
            if waiting and len(free) * HANDFUL >= self.rows:
                fresh = list(islice(requests, len(free)))
                waiting = len(fresh) == len(free)
                yield from self._admit_requests(rows, slots, fresh, sampling)
            else:
                _close_ranks(rows, slots)
            live = rows.live()
            if not live:
                continue
            past = rows.past(live) if needs_past else None
            logits = backend.head(rows.hidden[:live])
            drawn = draw(logits, rows.next_uniform(live), sampling, past, ends)
            rows.record(live, drawn)
            ended = (drawn.tokens[:, None] == ends).any(1).cpu().numpy()
            ended |= rows.sampled[:live] >= sampling.max_tokens
            done = [
                slot
                for slot in rows.used()
                if ended[slot] or stop.reached(rows.tokens[slot], int(rows.sampled[slot]))
            ]
            if done:
                yield from rows.take(done)
            live = rows.live()
            if live:
                width = width_for(int(rows.lengths[:live].max()) + 1)
                positions, shifts = (rows.on_device(x[:live]) for x in (rows.lengths, rows.shifts))
                window = Window(slots, positions, width, shifts)
                rows.hidden[:live] = backend.step(drawn.tokens[:live], window)

    def _admit_requests(
        self, rows: Rows, slots: Slots, requests: list[Request], sampling: Sampling
    ) -> Iterator[Completion]:
        """Prefill what has not been seen lately, fill free slots; yield what cannot be run."""
        fits: list[Request] = []
        for request in requests:
            try:
                expanded = self.backend.expand(request)
                why = too_long(len(expanded.prompt_ids), sampling, self.max_length)
            except UserError as error:
                why = str(error)
            if why:
                yield failed_completion(request, why)
            else:
                fits.append(expanded)
        slots_of: dict[Prompt, list[tuple[int, Request]]] = {}
        for slot, request in zip(rows.free(), fits, strict=False):
            slots_of.setdefault(request.prompt, []).append((slot, request))
        for prompt, group in slots_of.items():
            chosen, admitted = (list(x) for x in zip(*group, strict=True))
            hidden, layers, shift = self._prefill(*prompt)
            slots.reserve(len(hidden) + sampling.max_tokens, layers)
            slots.place(rows.on_device(chosen), layers)
            rows.admit(chosen, admitted, hidden[-1], shift)


def _close_ranks(rows: Rows, slots: Slots) -> None:
    """Shrink the batch whenever half of it stands empty, as it may with nothing left to admit."""
    used, live = rows.used(), rows.live()
    target = round_up(len(used))
    if not used or target > live // 2:
        return
    sources = [slot for slot in used if slot >= target]
    targets = rows.free()[: len(sources)]
    rows.move(sources, targets)
    slots.move(rows.on_device(sources), rows.on_device(targets))
