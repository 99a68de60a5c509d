"""The static KV cache: one slot per running row, allocated once, written in place.

A row's tokens lie left-aligned in its slot, position p in column p, whenever it was admitted and
whoever sits beside it. What a row sees is its own columns 0 … p; columns behind p are masked and
enter every sum as an exact zero. That is why a row's bits do not depend on the batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

# Columns are allocated and attended to in multiples of this.
STRIDE = 16
# And no fewer than this: processors with AVX-512 have kernels of their own for products of up to 16
# columns, which round differently, and a row would feel how long its neighbours are.
NARROWEST = 32

Layers = list[tuple[torch.Tensor, torch.Tensor]]


def round_up(n: int, multiple: int = STRIDE) -> int:
    """Smallest multiple that is at least ``n``."""
    return -(-n // multiple) * multiple


def width_for(n: int) -> int:
    """Columns that are allocated and attended to for rows of up to ``n`` tokens."""
    return max(NARROWEST, round_up(n))


class Slots:
    """Keys and values of every layer: ``[rows, kv heads, width, head dim]`` each."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.width = 0
        self.layers: Layers = []

    def reserve(self, width: int, like: Layers) -> None:
        """Make room for ``width`` columns, keeping what is there; shapes follow ``like``."""
        more = width_for(width) - self.width
        if more <= 0:
            return
        for i, pair in enumerate(like):
            if i == len(self.layers):
                empty = [t.new_zeros(self.rows, t.shape[1], 0, t.shape[3]) for t in pair]
                self.layers.append((empty[0], empty[1]))
            key, value = self.layers[i]
            self.layers[i] = pad(key, (0, 0, 0, more)), pad(value, (0, 0, 0, more))
        self.width += more

    def place(self, slots: torch.Tensor, prefix: Layers, which: torch.Tensor) -> None:
        """Copy row ``which[i]`` of a prefilled prefix into slot ``slots[i]``."""
        for mine, theirs in zip(self.layers, prefix, strict=True):
            for t, p in zip(mine, theirs, strict=True):
                t[slots, :, : p.shape[2]] = p[which]

    def move(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy rows to other slots."""
        for pair in self.layers:
            for t in pair:
                t[targets] = t[sources]


class Window:
    """One decoding step's view of the slots: where each row writes and what each row sees."""

    def __init__(
        self, slots: Slots, positions: torch.Tensor, width: int, shifts: torch.Tensor | int = 0
    ) -> None:
        self.slots = slots
        self.live = len(positions)
        self.width = width
        self.positions = positions
        # What a rotary embedding counts; an image takes more columns than turns.
        self.turns = positions + shifts
        self._index: dict[int, torch.Tensor] = {}
        self.columns = torch.arange(width, device=positions.device)

    def additive(self, dtype: torch.dtype, last: int | None = None) -> torch.Tensor:
        """Mask to add to attention scores, ``[rows, 1, width]``; only the ``last`` columns seen."""
        visible = self.columns <= self.positions[:, None]
        if last is not None:
            visible = visible & (self.columns > self.positions[:, None] - last)
        mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
        return mask.masked_fill_(~visible, torch.finfo(dtype).min)[:, None]

    def cells(self, heads: int) -> torch.Tensor:
        """Where each row and head writes, among the slots' columns laid end to end."""
        if heads not in self._index:
            device = self.positions.device
            first = torch.arange(self.live * heads, device=device) * self.slots.width
            self._index[heads] = first + self.positions.repeat_interleave(heads)
        return self._index[heads]


class _SlotLayer(CacheLayerMixin):
    """One layer of a :class:`Window`, as transformers' attention modules want to see it."""

    is_sliding = False

    def __init__(self, window: Window, layer: int) -> None:
        super().__init__()
        self.window, self.layer, self.is_initialized = window, layer, True

    def lazy_initialization(self, *_: Any) -> None: ...

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store this step's keys and values at their columns; give what the live rows may see."""
        window, (key, value) = self.window, self.window.slots.layers[self.layer]
        for t, new in ((key, key_states), (value, value_states)):
            flat = t.view(-1, t.shape[3])
            flat.index_copy_(0, window.cells(t.shape[1]), new[:, :, 0].reshape(-1, t.shape[3]))
        return key[: window.live, :, : window.width], value[: window.live, :, : window.width]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.window.width, 0

    def get_seq_length(self) -> int:
        return self.window.width - 1

    def get_max_length(self) -> int:
        return self.window.width


def as_cache(window: Window) -> Cache:
    """Show the window as a transformers cache, for one decoding step."""
    return Cache(layers=[_SlotLayer(window, i) for i in range(len(window.slots.layers))])


def prefix_layers(cache: DynamicCache) -> Layers:
    """Keys and values that a prefill left in a transformers cache."""
    return [(layer.keys, layer.values) for layer in cache.layers]
