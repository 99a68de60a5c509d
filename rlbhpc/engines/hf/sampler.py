"""The sampling loop: admit, draw, step; a finished row's slot is refilled at once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import torch

from rlbhpc.engines.completion import Completion, Prompt, Request
from rlbhpc.engines.engine import failed, too_long
from rlbhpc.engines.hf.backend import Backend
from rlbhpc.engines.hf.draw import draw
from rlbhpc.engines.hf.rows import Finished, Rows
from rlbhpc.engines.hf.slots import Layers, Slots, Window, round_up, width_for
from rlbhpc.engines.stop import StopText
from rlbhpc.engines.tokens import Tokens
from rlbhpc.errors import UserError
from rlbhpc.study.arm import Sampling

# Prompt tokens that one prefill pass runs together, prompts whose cache is kept for their next
# sample and the tokens of them all, and the share of slots that must be free before new rows are
# admitted: a prefill costs about as much as a step whatever its size, so rows are let in by the
# handful.
PREFILL_TOKENS = 2048
KEPT_PROMPTS = 64
KEPT_TOKENS = 2**15
HANDFUL = 16


class Prefix(NamedTuple):
    """A prompt that has been run: row ``row`` of states and a cache that it may share."""

    ends: torch.Tensor
    layers: Layers
    row: int
    shift: int


class Sampler:
    """One batch of rows that samples requests until there are none."""

    def __init__(self, backend: Backend, tokens: Tokens, rows: int, max_length: int) -> None:
        self.backend = backend
        self.tokens = tokens
        self.rows = rows
        self.max_length = max_length
        self._kept: OrderedDict[Prompt, Prefix] = OrderedDict()

    def forget(self) -> None:
        """Drop what was computed with the old weights."""
        self._kept.clear()

    def run(
        self, requests: Iterator[Request], sampling: Sampling
    ) -> Iterator[Finished | Completion]:
        """Yield rows as they finish, and completions for requests that cannot be run."""
        with torch.inference_mode():
            yield from self._run(requests, sampling)

    def _run(
        self, requests: Iterator[Request], sampling: Sampling
    ) -> Iterator[Finished | Completion]:
        backend = self.backend
        rows = Rows(
            self.rows,
            sampling.max_tokens,
            backend.config.hidden_size,
            backend.dtype,
            backend.device,
            backend.config.vocab_size if sampling.penalises else 0,
        )
        needs_past = sampling.penalises or sampling.min_tokens > 0
        slots = Slots(self.rows)
        stop = StopText(self.tokens, sampling)
        ends = torch.tensor(sorted(stop.ends), device=backend.device)
        waiting = True
        while waiting or rows.used():
            free = rows.free()
            if waiting and len(free) * HANDFUL >= self.rows:
                fresh = list(islice(requests, len(free)))
                waiting = len(fresh) == len(free)
                yield from self._admit(rows, slots, fresh, sampling)
            elif not waiting:
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
            done = [slot for slot in rows.used() if ended[slot] or _stopped(stop, rows, slot)]
            if done:
                yield from rows.take(done)
            live = rows.live()
            if live:
                width = width_for(int(rows.lengths[:live].max()) + 1)
                window = Window(slots, rows.positions[:live], width, rows.shifts[:live])
                rows.hidden[:live] = backend.step(drawn.tokens[:live], window)

    def _admit(
        self, rows: Rows, slots: Slots, requests: list[Request], sampling: Sampling
    ) -> Iterator[Completion]:
        """Prefill what has not been seen lately, fill free slots; yield what cannot be run."""
        fits: list[Request] = []
        for request in requests:
            try:
                prompt = self.backend.expand(request)
            except UserError as error:
                yield failed(request, str(error))
                continue
            why = too_long(len(prompt.prompt_ids), sampling, self.max_length)
            if why:
                yield failed(request, why)
            else:
                fits.append(prompt)
        where = dict(zip(map(id, fits), rows.free(), strict=False))
        prefixes = self._prefixes({request.prompt for request in fits})
        together: dict[int, list[Request]] = {}
        for request in fits:
            together.setdefault(id(prefixes[request.prompt].layers), []).append(request)
        for group in together.values():
            hidden, layers, _, shift = prefixes[group[0].prompt]
            which = torch.tensor(
                [prefixes[request.prompt].row for request in group], device=hidden.device
            )
            longest = max(len(request.prompt_ids) for request in group)
            slots.reserve(max(longest + sampling.max_tokens, layers[0][0].shape[2]), layers)
            chosen = [where[id(request)] for request in group]
            slots.place(torch.tensor(chosen, device=hidden.device), layers, which)
            rows.admit(chosen, group, hidden[which], shift)

    def _prefixes(self, prompts: set[Prompt]) -> dict[Prompt, Prefix]:
        """Look up or compute the final state and cache of each prompt."""
        out = {prompt: self._kept[prompt] for prompt in prompts if prompt in self._kept}
        by_length: dict[int, list[tuple[int, ...]]] = {}
        for prompt in sorted(prompts - set(out)):
            ids, images = prompt
            if images:
                hidden, layers, shift = self.backend.prefill_shown(ids, images)
                out[prompt] = Prefix(hidden[:, len(ids) - 1].clone(), layers, 0, shift)
            else:
                by_length.setdefault(round_up(len(ids)), []).append(ids)
        for length, group in by_length.items():
            size = max(1, PREFILL_TOKENS // length)
            for start in range(0, len(group), size):
                out.update(self._prefill(group[start : start + size], length))
        for prompt, prefix in out.items():
            self._kept[prompt] = prefix
            self._kept.move_to_end(prompt)
        tokens = sum(len(ids) for ids, _ in self._kept)
        while len(self._kept) > KEPT_PROMPTS or tokens > KEPT_TOKENS:
            (ids, _), _ = self._kept.popitem(last=False)
            tokens -= len(ids)
        return out

    def _prefill(
        self, prompts: list[tuple[int, ...]], length: int
    ) -> Iterator[tuple[Prompt, Prefix]]:
        ids = torch.zeros((len(prompts), length), dtype=torch.long)
        for i, prompt in enumerate(prompts):
            ids[i, : len(prompt)] = torch.tensor(prompt)
        hidden, layers = self.backend.prefill(ids.to(self.backend.device))
        last = torch.tensor([len(prompt) - 1 for prompt in prompts], device=hidden.device)
        ends = hidden[torch.arange(len(prompts), device=hidden.device), last]
        return (((prompt, ()), Prefix(ends, layers, i, 0)) for i, prompt in enumerate(prompts))


def _stopped(stop: StopText, rows: Rows, slot: int) -> bool:
    """Whether a row has written a stop string; a look at its tokens costs more than the rest."""
    return bool(stop.stop) and stop.reached(rows.tokens[slot], int(rows.sampled[slot]))


def _close_ranks(rows: Rows, slots: Slots) -> None:
    """With nothing left to admit, shrink the batch whenever half of it stands empty."""
    used, live = rows.used(), rows.live()
    target = round_up(len(used))
    if not used or target > live // 2:
        return
    sources = [slot for slot in used if slot >= target]
    targets = [slot for slot in rows.free() if slot < target][: len(sources)]
    rows.move(sources, targets)
    device = rows.positions.device
    slots.move(torch.tensor(sources, device=device), torch.tensor(targets, device=device))
