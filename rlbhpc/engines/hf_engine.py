"""The ``hf`` engine: seeded sampling and scoring with any transformers causal model."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import pad

from rlbhpc.engines.completion import Completion, Prompt, Request
from rlbhpc.engines.distribution import (
    entropy,
    invert,
    log_distribution,
    settle_vector_math,
    uniforms,
)
from rlbhpc.engines.engine import (
    IDLE_SECONDS,
    Ahead,
    Score,
    Shared,
    failed_completion,
    take_ready,
    too_long,
)
from rlbhpc.engines.folder import steady_length
from rlbhpc.engines.hf_model import (
    Backend,
    BatchCache,
    PrefilledPrompt,
    StepCache,
    columns_for,
    copy_weights,
    has_stacked_experts,
    load_module,
    round_up,
)
from rlbhpc.engines.tokens import StopText, Tokens
from rlbhpc.errors import UserError
from rlbhpc.study.keys import Sampling

# Response positions whose logits are computed together when scoring.
SCORED_TOGETHER = 256
# Below this many parameters an operation is too small to split over cores, and whole batches run
# side by side instead, one core each.
SMALL_MODEL = 30_000_000


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
        """Load the model and make the batches that sample from it.

        Small models on a CPU run one batch on each core, all others a single batch on the whole
        device. ``round_up`` gives whole multiples of sixteen rows. ``settle_vector_math`` lets two
        runs on the same CPU agree bit for bit.
        """
        settle_vector_math()
        folder = Path(model)
        self.max_length = steady_length(folder)
        self.tokens = Tokens(folder)
        module = load_module(folder, getattr(torch, dtype), torch.device(device))
        is_exact = device == "cpu" and dtype in ("float32", "float64")
        # An expert multiplies as many rows at once as the whole batch sends to it.
        self.deterministic = is_exact and not has_stacked_experts(module)
        self._backend = Backend(module)
        self.sees = self._backend.image_processor is not None
        self._cores = torch.get_num_threads()
        n_parameters = sum(parameter.numel() for parameter in module.parameters())
        n_batches = self._cores if device == "cpu" and n_parameters < SMALL_MODEL else 1
        # Each batch has its share of the rows, rounded up.
        batch_rows = round_up(-(-rows // n_batches))
        self._samplers = [
            BatchSampler(self._backend, batch_rows, self.max_length) for _ in range(n_batches)
        ]

    def generate(self, requests: Iterable[Request], sampling: Sampling) -> Iterator[Completion]:
        """Yield completions as they finish; see :class:`Engine`.

        Each sampler runs a batch in its own thread and takes new requests from the shared iterator.
        ``Ahead`` yields what they give: a failed completion, or the raw outcome of a row, of which
        ``stop`` makes a completion.
        """
        stop = StopText(self.tokens, sampling)
        shared = Shared(iter(requests))
        ahead = Ahead([self._run(sampler, shared, sampling, stop) for sampler in self._samplers])
        try:
            for item in ahead:
                yield item if isinstance(item, Completion) else stop.complete(*item)
        finally:
            ahead.close()
            torch.set_num_threads(self._cores)

    def _run(
        self, sampler: BatchSampler, requests: Iterator[Request], sampling: Sampling, stop: StopText
    ) -> Iterator[FinishedRow | Completion]:
        # Where several batches run side by side, each has one core for its operations.
        torch.set_num_threads(self._cores // len(self._samplers))
        yield from sampler.run(requests, sampling, stop)

    def score(
        self, texts: Iterable[tuple[tuple[int, ...], tuple[int, ...]]], temperature: float = 1.0
    ) -> Iterator[Score]:
        """Score responses given their prompts; see :class:`Engine`."""
        for prompt, response in texts:
            with torch.inference_mode():
                score = self._score_response(prompt, response, temperature)
            yield score

    def _score_response(
        self, prompt: tuple[int, ...], response: tuple[int, ...], temperature: float
    ) -> Score:
        """Log-probs and entropies of one response behind its prompt, all as token ids.

        ``prefill`` runs the whole text once. Logits are made of a few positions at a time, because
        those of all take much memory.
        """
        length = len(prompt) + len(response)
        if length > self.max_length:
            raise UserError(f"score: {length} tokens exceed the {self.max_length} of the model")
        hidden = self._backend.prefill(prompt + response).hidden
        # The state before each response token predicts it.
        predicting = hidden[len(prompt) - 1 : -1]
        targets = torch.tensor(response, device=hidden.device)
        logprobs, entropies = [], []
        for states, target_ids in zip(
            predicting.split(SCORED_TOGETHER), targets.split(SCORED_TOGETHER), strict=True
        ):
            # Whole strides of rows here too, for the same bits.
            n_padding = round_up(len(states)) - len(states)
            logits = self._backend.logits(pad(states, (0, 0, 0, n_padding)))
            distribution = log_distribution(logits[: len(states)], temperature)
            logprobs.append(distribution.gather(1, target_ids[:, None])[:, 0].cpu())
            entropies.append(entropy(distribution).cpu())
        return Score(torch.cat(logprobs).numpy(), torch.cat(entropies).numpy())

    def load_weights(self, weights: Path | Iterable[tuple[str, torch.Tensor]]) -> None:
        """Swap the weights in place; see :class:`Engine`."""
        try:
            copy_weights(self._backend.module, weights)
        finally:  # some may have been copied before one was refused
            self.rest()

    def rest(self) -> None:
        """Forget the prompts that were run; the weights stay."""
        for sampler in self._samplers:
            sampler.forget_prompts()

    def close(self) -> None:
        """Free the cache and the model."""
        self._samplers.clear()
        del self._backend


# ---- drawing tokens ------------------------------------------------------------------------------
# Penalties, temperature, truncation, inverse distribution function.
#
# Everything here works row by row on a batch of logits, so a row's outcome does not depend on its
# neighbours. Order and definitions are those of vLLM's sampler.


class DrawnTokens(NamedTuple):
    """Sampled tokens of a batch with what :class:`Completion` has for each of them."""

    tokens: torch.Tensor
    logprobs: torch.Tensor
    entropies: torch.Tensor
    drawn_logprobs: torch.Tensor | None


class TokenHistory(NamedTuple):
    """What each row has read and written.

    ``in_prompt`` says whether, and ``times_written`` how often, for each token of the vocabulary:
    both are ``[rows, vocabulary]``. ``n_written`` counts each row's tokens.
    """

    in_prompt: torch.Tensor
    times_written: torch.Tensor
    n_written: torch.Tensor


def draw_tokens(
    logits: torch.Tensor,
    uniform: torch.Tensor,
    sampling: Sampling,
    history: TokenHistory | None,
    end_tokens: torch.Tensor,
) -> DrawnTokens:
    """Draw one token per row of ``logits`` by inverting the distribution function at ``uniform``.

    ``uniform`` has one random number in [0, 1) for each row. Log-probs and entropies are those of
    the distribution at the sampling temperature, before penalties and truncation. A ``history``
    (what each row has read and written) is needed where the sampling setting has penalties or
    ``min_tokens``. ``end_tokens`` are the ids that end a response.
    """
    measured = log_distribution(logits, sampling.temperature)
    sampled_from = measured
    if sampling.power is not None:
        sampled_from = log_distribution(logits, sampling.drawing_temperature)
    if history is not None:
        penalised = penalise_logits(logits.float(), sampling, history, end_tokens)
        sampled_from = log_distribution(penalised, sampling.temperature)
    if sampling.temperature == 0:
        tokens = sampled_from.argmax(-1)
    else:
        # softmax works row by row, unlike exp: see engines.distribution.
        weights = torch.softmax(sampled_from, dim=-1)
        tokens = invert(truncate_weights(weights, sampling), uniform)
    logprobs = measured.gather(-1, tokens[:, None])[:, 0]
    drawn_logprobs = None
    if sampling.power is not None:
        drawn_logprobs = sampled_from.gather(-1, tokens[:, None])[:, 0]
    return DrawnTokens(tokens, logprobs, entropy(measured), drawn_logprobs)


def penalise_logits(
    logits: torch.Tensor, sampling: Sampling, history: TokenHistory, end_tokens: torch.Tensor
) -> torch.Tensor:
    """Logits in which end tokens have no chance before ``min_tokens``, then with the penalties.

    ``logits`` are (rows, vocabulary). ``history`` says which tokens stand in a row's prompt and how
    often each was written since. Penalties make such tokens less likely.
    """
    is_too_short = history.n_written < sampling.min_tokens
    logits = logits.clone()
    logits[:, end_tokens] = torch.where(is_too_short[:, None], -torch.inf, logits[:, end_tokens])
    if not sampling.penalises:
        return logits
    is_written = history.times_written > 0
    penalty = sampling.repetition_penalty
    repeated = torch.where(logits > 0, logits / penalty, logits * penalty)
    logits = torch.where(history.in_prompt | is_written, repeated, logits)
    logits = logits - sampling.frequency_penalty * history.times_written
    return logits - sampling.presence_penalty * is_written


def truncate_weights(weights: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Zero the weights of tokens that min-p, then top-k, then top-p leave out.

    ``weights`` (rows, vocabulary) are the probabilities of the next token. Min-p keeps the tokens
    with at least that share of the likeliest one's weight, top-k the k likeliest, and top-p the
    fewest likeliest that reach that mass.
    """
    if sampling.min_p > 0:
        threshold = sampling.min_p * weights.amax(-1, keepdim=True)
        weights = _normalise(weights * (weights >= threshold))
    if 0 < sampling.top_k < weights.shape[-1]:
        smallest_kept = weights.topk(sampling.top_k, dim=-1).values[:, -1:]
        weights = _normalise(weights * (weights >= smallest_kept))
    if sampling.top_p < 1:
        weights = keep_nucleus(weights, sampling.top_p)
    return weights


def keep_nucleus(weights: torch.Tensor, top_p: float) -> torch.Tensor:
    """Zero all but the smallest set of likeliest tokens whose mass reaches ``top_p``."""
    descending, order = weights.sort(dim=-1, descending=True, stable=True)
    # The mass of all likelier tokens.
    mass_before = descending.cumsum(-1, dtype=torch.float64) - descending
    kept = descending * (mass_before < top_p)
    return torch.zeros_like(weights).scatter_(-1, order, kept)


def _normalise(weights: torch.Tensor) -> torch.Tensor:
    """Scale each row to a sum of 1; a running sum, since a plain one may depend on the rows."""
    totals = weights.cumsum(-1, dtype=torch.float64)[:, -1:]
    return (weights / totals).to(weights.dtype)


# ---- batch ---------------------------------------------------------------------------------------


class FinishedRow(NamedTuple):
    """Raw outcome of one row, before it becomes a completion."""

    request: Request
    token_ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    entropies: NDArray[np.float32]
    drawn_logprobs: NDArray[np.float32]


class BatchState:
    """What each row of a batch has sampled so far; a row without a request is free.

    On the host, as int64: ``columns`` is the cache column of a row's latest token,
    ``rotary_offsets`` what to add to it for the rotary position, ``n_sampled`` the number of
    sampled tokens, ``n_allowed`` the most that it may have, and ``is_running`` 1 or 0. Free rows
    below the highest running one are computed along, at the start of their cache, so that the batch
    keeps its shape. What has an entry for each token is on the device; ``hidden`` is the state that
    predicts a row's next token.
    """

    def __init__(self, capacity: int, backend: Backend, sampling: Sampling) -> None:
        """Make the state of ``capacity`` rows, all of them free.

        A row samples one response. ``columns`` is the place of its latest token in the cache of
        keys and values, ``rotary_offsets`` what to add to that for the position in the text, and
        ``hidden`` the state that predicts its next token. ``uniforms`` are its random numbers, one
        for each token. ``in_prompt`` and ``times_written`` say which tokens of the vocabulary it
        has read, and how often it has written each.
        """
        self.capacity = capacity
        self.max_tokens = sampling.max_tokens
        self.device = backend.device
        # Only penalties ask what a row has read and written.
        self._keeps_history = sampling.penalises
        vocabulary = backend.config.vocab_size if sampling.penalises else 0
        self.requests = np.full(capacity, None)
        self.columns = np.zeros(capacity, np.int64)
        self.rotary_offsets = np.zeros(capacity, np.int64)
        self.n_sampled = np.zeros(capacity, np.int64)
        self.n_allowed = np.zeros(capacity, np.int64)
        self.is_running = np.zeros(capacity, np.int64)
        per_token = (capacity, self.max_tokens)
        with self.device:
            self.hidden = torch.zeros(capacity, backend.config.hidden_size, dtype=backend.dtype)
            self.uniforms = torch.zeros(per_token, dtype=torch.float64)
            self.tokens = torch.zeros(per_token, dtype=torch.int32)
            self.logprobs = torch.zeros(per_token)
            self.entropies = torch.zeros(per_token)
            # Only power sampling draws from another distribution than it measures.
            drawn_per_row = 0 if sampling.power is None else self.max_tokens
            self.drawn_logprobs = torch.zeros(capacity, drawn_per_row)
            self.in_prompt = torch.zeros(capacity, vocabulary, dtype=torch.bool)
            self.times_written = torch.zeros(capacity, vocabulary, dtype=torch.int32)

    def free_rows(self) -> list[int]:
        """Rows without a request, lowest first."""
        return np.flatnonzero(self.is_running == 0).tolist()

    def running_rows(self) -> list[int]:
        """Rows with a request, lowest first."""
        return np.flatnonzero(self.is_running).tolist()

    def n_computed(self) -> int:
        """Rows to compute: up to the highest running one, in whole strides."""
        running = self.running_rows()
        return min(self.capacity, round_up(running[-1] + 1)) if running else 0

    def to_device(self, numbers: NDArray[np.int64] | list[int]) -> torch.Tensor:
        """Copy numbers of the host to the device."""
        return torch.tensor(numbers, device=self.device)

    def admit(self, rows: list[int], requests: list[Request], prompt: PrefilledPrompt) -> None:
        """Start requests for the same prompt in free rows.

        ``prompt`` has been run: its last hidden state predicts the first token of each row. Each
        request brings the stream of random numbers of its own seed, one for each token. A cache
        column holds the keys and values of one token.
        """
        streams = np.stack([uniforms(request.seed, self.max_tokens) for request in requests])
        self.hidden[rows] = prompt.hidden[-1]
        self.uniforms[rows] = torch.from_numpy(streams).to(self.device)
        self.in_prompt[rows] = False
        self.times_written[rows] = 0
        self.columns[rows] = len(prompt.hidden) - 1
        self.rotary_offsets[rows] = prompt.rotary_offset
        self.n_allowed[rows] = [request.max_tokens or self.max_tokens for request in requests]
        self.is_running[rows] = 1
        self.requests[rows] = requests
        if self._keeps_history:
            for row, request in zip(rows, requests, strict=True):
                self.in_prompt[row, list(request.prompt_ids)] = True

    def next_uniforms(self, n_rows: int) -> torch.Tensor:
        """The uniform number for the next token of each of the first rows."""
        positions = self.to_device(self.n_sampled[:n_rows, None])
        return self.uniforms[:n_rows].gather(1, positions)[:, 0]

    def history(self, n_rows: int) -> TokenHistory:
        """What the first rows have read and written."""
        n_written = self.to_device(self.n_sampled[:n_rows])
        return TokenHistory(self.in_prompt[:n_rows], self.times_written[:n_rows], n_written)

    def append(self, drawn: DrawnTokens) -> None:
        """Append the drawn tokens to the first rows.

        Free rows among them are computed along, but count no token: ``is_running`` is 0 for them.
        """
        n_rows = len(drawn.tokens)
        positions = self.to_device(self.n_sampled[:n_rows, None])
        tokens = drawn.tokens[:, None]
        self.tokens[:n_rows].scatter_(1, positions, tokens.int())
        self.logprobs[:n_rows].scatter_(1, positions, drawn.logprobs[:, None])
        self.entropies[:n_rows].scatter_(1, positions, drawn.entropies[:, None])
        if drawn.drawn_logprobs is not None:
            self.drawn_logprobs[:n_rows].scatter_(1, positions, drawn.drawn_logprobs[:, None])
        is_running = self.is_running[:n_rows]
        if self._keeps_history:
            counts = self.to_device(is_running[:, None]).int()
            self.times_written[:n_rows].scatter_add_(1, tokens, counts)
        self.columns[:n_rows] += is_running
        self.n_sampled[:n_rows] += is_running

    def remove_finished(self, rows: list[int]) -> list[FinishedRow]:
        """Copy finished rows to the host and free them.

        The arrays are copied down to the longest row at once, since each transfer costs time.
        """
        longest = int(self.n_sampled[rows].max())
        tokens = self.tokens[rows, :longest].cpu().numpy()
        logprobs = self.logprobs[rows, :longest].cpu().numpy()
        entropies = self.entropies[rows, :longest].cpu().numpy()
        drawn_logprobs = self.drawn_logprobs[rows, :longest].cpu().numpy()
        finished = []
        for i, row in enumerate(rows):
            n = int(self.n_sampled[row])
            finished.append(
                FinishedRow(
                    request=self.requests[row],
                    token_ids=tokens[i, :n].copy(),
                    logprobs=logprobs[i, :n].copy(),
                    entropies=entropies[i, :n].copy(),
                    drawn_logprobs=drawn_logprobs[i, :n].copy(),
                )
            )
        self._free(rows)
        return finished

    def move_rows(self, sources: list[int], targets: list[int]) -> None:
        """Move running rows to free ones; each array of the state has one entry for each row."""
        for state in (
            self.requests, self.columns, self.rotary_offsets, self.n_sampled, self.n_allowed,
            self.is_running, self.hidden, self.uniforms, self.tokens, self.logprobs,
            self.entropies, self.drawn_logprobs, self.in_prompt, self.times_written,
        ):  # fmt: skip
            state[targets] = state[sources]
        self._free(sources)

    def _free(self, rows: list[int]) -> None:
        self.columns[rows] = 0
        self.n_sampled[rows] = 0
        self.is_running[rows] = 0
        self.requests[rows] = None


# ---- sampling loop -------------------------------------------------------------------------------

# New rows are admitted once this share of rows is free: a prefill costs about as much as a step
# whatever its size.
MIN_FREE_SHARE = 1 / 16
# Prompts stay prefilled for their next samples: one for so many rows.
ROWS_PER_KEPT_PROMPT = 4


class BatchSampler:
    """Samples requests in one batch of rows until there are none."""

    def __init__(self, backend: Backend, rows: int, max_length: int) -> None:
        self.backend = backend
        self.rows = rows
        self.max_length = max_length
        self._prefill = lru_cache(rows // ROWS_PER_KEPT_PROMPT)(backend.prefill)

    def forget_prompts(self) -> None:
        """Drop what was computed with the old weights."""
        self._prefill.cache_clear()

    @torch.inference_mode()
    def run(
        self, requests: Iterator[Request], sampling: Sampling, stop: StopText
    ) -> Iterator[FinishedRow | Completion]:
        """Yield rows as they finish, and completions for requests that cannot be run.

        A row of the batch samples one response. Each pass draws one token for every row and runs
        the model on it. Rows that have ended are yielded and freed; new requests are admitted once
        enough rows are free, since running their prompts costs about as much as a pass.
        """
        state = BatchState(self.rows, self.backend, sampling)
        cache = BatchCache(self.rows)
        end_tokens = torch.tensor(sorted(stop.ends), device=self.backend.device)
        has_more_requests = True
        while has_more_requests or state.running_rows():
            n_free = len(state.free_rows())
            arriving: list[Request] = []
            if has_more_requests and n_free >= self.rows * MIN_FREE_SHARE:
                arriving, has_more_requests = take_ready(requests, n_free)
                yield from self._admit(state, cache, arriving, sampling)
            if not arriving:
                _shrink_batch(state, cache)
            n_rows = state.n_computed()
            if not n_rows:
                time.sleep(IDLE_SECONDS)
                continue
            history = None
            if sampling.penalises or sampling.min_tokens:
                history = state.history(n_rows)
            logits = self.backend.logits(state.hidden[:n_rows])
            drawn = draw_tokens(logits, state.next_uniforms(n_rows), sampling, history, end_tokens)
            state.append(drawn)
            finished = _finished_rows(state, drawn, end_tokens, stop)
            if finished:
                yield from state.remove_finished(finished)
            if state.running_rows():
                self._decode(state, cache, drawn.tokens)

    def _decode(self, state: BatchState, cache: BatchCache, tokens: torch.Tensor) -> None:
        """Feed the drawn tokens of all rows up to the highest running one to the model.

        The cache has one column for each token of a row. The step sees the columns up to the
        longest row's and leaves in ``state.hidden`` what predicts each row's next token.
        """
        n_rows = state.n_computed()
        columns = state.columns[:n_rows]
        step_cache = StepCache(
            cache,
            token_columns=state.to_device(columns),
            n_columns=columns_for(int(columns.max()) + 1),
            rotary_offsets=state.to_device(state.rotary_offsets[:n_rows]),
        )
        state.hidden[:n_rows] = self.backend.decode(tokens[:n_rows], step_cache)

    def _admit(
        self, state: BatchState, cache: BatchCache, requests: list[Request], sampling: Sampling
    ) -> Iterator[Completion]:
        """Start requests in free rows, prefilling new prompts; yield those that cannot be run.

        To prefill is to run a whole prompt, which fills the cache with its keys and values. It is
        done once for all requests with the same prompt.
        """
        free_rows = iter(state.free_rows())
        admitted: dict[Prompt, list[tuple[int, Request]]] = {}
        for request in requests:
            try:
                expanded = self.backend.expand_images(request)
                max_tokens = request.max_tokens or sampling.max_tokens
                reason = too_long(len(expanded.prompt_ids), max_tokens, self.max_length)
            except UserError as error:
                reason = str(error)
            if reason:
                yield failed_completion(request, reason)
            else:
                admitted.setdefault(expanded.prompt, []).append((next(free_rows), expanded))
        for prompt, members in admitted.items():
            rows = [row for row, _ in members]
            prefilled = self._prefill(*prompt)
            longest = max(request.max_tokens or sampling.max_tokens for _, request in members)
            cache.ensure_columns(len(prefilled.hidden) + longest, prefilled.layers)
            cache.write_prompt(state.to_device(rows), prefilled.layers)
            state.admit(rows, [request for _, request in members], prefilled)


def _finished_rows(
    state: BatchState, drawn: DrawnTokens, end_tokens: torch.Tensor, stop: StopText
) -> list[int]:
    """Running rows whose latest token ends the response, by itself, its count or its text.

    ``end_tokens`` are the ids that end a response; ``stop`` looks for stop strings in its text.
    """
    n_rows = len(drawn.tokens)
    has_ended = (drawn.tokens[:, None] == end_tokens).any(1).cpu().numpy()
    has_ended |= state.n_sampled[:n_rows] >= state.n_allowed[:n_rows]
    return [
        row
        for row in state.running_rows()
        if has_ended[row] or stop.reached(state.tokens[row], int(state.n_sampled[row]))
    ]


def _shrink_batch(state: BatchState, cache: BatchCache) -> None:
    """Move rows down once half of the computed ones are free, so that fewer are computed.

    All rows up to the highest running one are computed, in multiples of sixteen, free or not.
    """
    running = state.running_rows()
    n_needed = round_up(len(running))
    if not running or n_needed > state.n_computed() // 2:
        return
    sources = [row for row in running if row >= n_needed]
    targets = state.free_rows()[: len(sources)]
    state.move_rows(sources, targets)
    cache.copy_rows(state.to_device(sources), state.to_device(targets))
