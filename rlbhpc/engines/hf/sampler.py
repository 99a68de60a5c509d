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
from rlbhpc.errors import UserError
from rlbhpc.study.arm import Sampling

# Prompt tokens that one prefill pass runs together, those of prompts whose cache is kept for their
# next sample, and the share of slots that must be free before new rows are admitted: a prefill
# costs about as much as a step whatever its size, so rows are let in by the handful.
PREFILL_TOKENS = 2048
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

    def __init__(self, backend: Backend, rows: int, max_length: int) -> None:
        self.backend = backend
        self.rows = rows
        self.max_length = max_length
        self._kept: OrderedDict[Prompt, Prefix] = OrderedDict()

    def forget(self) -> None:
        """Drop what was computed with the old weights."""
        self._kept.clear()

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
                yield from self._admit(rows, slots, fresh, sampling)
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

    def _admit(
        self, rows: Rows, slots: Slots, requests: list[Request], sampling: Sampling
    ) -> Iterator[Completion]:
        """Prefill what has not been seen lately, fill free slots; yield what cannot be run."""
        fits: list[Request] = []
        for request in requests:
            try:
                expanded = self.backend.expand(request)
            except UserError as error:
                yield failed(request, str(error))
                continue
            why = too_long(len(expanded.prompt_ids), sampling, self.max_length)
            if why:
                yield failed(request, why)
            else:
                fits.append(expanded)
        prefixes = self._prefixes({request.prompt for request in fits})
        together: dict[int, list[tuple[int, Request]]] = {}
        for slot, request in zip(rows.free(), fits, strict=False):
            group = together.setdefault(id(prefixes[request.prompt].layers), [])
            group.append((slot, request))
        for group in together.values():
            chosen, admitted = (list(x) for x in zip(*group, strict=True))
            hidden, layers, _, shift = prefixes[admitted[0].prompt]
            which = rows.on_device([prefixes[request.prompt].row for request in admitted])
            longest = max(len(request.prompt_ids) for request in admitted)
            slots.reserve(longest + sampling.max_tokens, layers)
            slots.place(rows.on_device(chosen), layers, which)
            rows.admit(chosen, admitted, hidden[which], shift)

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
            size = PREFILL_TOKENS // length or 1
            for start in range(0, len(group), size):
                out.update(self._prefill(group[start : start + size], length))
        for prompt, prefix in out.items():
            self._kept[prompt] = prefix
            self._kept.move_to_end(prompt)
        tokens = sum(len(ids) for ids, _ in self._kept)
        while tokens > KEPT_TOKENS:
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
        ends = hidden[list(range(len(prompts))), [len(prompt) - 1 for prompt in prompts]]
        return (((prompt, ()), Prefix(ends, layers, i, 0)) for i, prompt in enumerate(prompts))


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
