"""The sampling loop: admit, draw, step; a finished row's slot is refilled at once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

import torch

from rlbhpc.engines.completion import Completion, Prompt, Request
from rlbhpc.engines.engine import failed, too_long
from rlbhpc.engines.hf.backend import Backend
from rlbhpc.engines.hf.draw import draw
from rlbhpc.engines.hf.rows import Finished, Rows
from rlbhpc.engines.hf.slots import Slots, Window, round_up, width_for
from rlbhpc.engines.stop import StopText
from rlbhpc.errors import UserError
from rlbhpc.study.arm import Sampling

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
                why = too_long(len(expanded.prompt_ids), sampling, self.max_length)
            except UserError as error:
                why = str(error)
            if why:
                yield failed(request, why)
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
