"""The static KV cache: one slot per running row, allocated once, written in place.

A row's tokens lie left-aligned in its slot, position p in column p, whenever it was admitted and
whoever sits beside it. What a row sees is its own columns 0 … p; columns behind p are masked and
enter every sum as an exact zero. That is why a row's bits do not depend on the batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad
from transformers.cache_utils import Cache

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

    def place(self, slots: torch.Tensor, prefix: Layers) -> None:
        """Copy a prefilled prompt into each of the slots."""
        for mine, theirs in zip(self.layers, prefix, strict=True):
            for t, p in zip(mine, theirs, strict=True):
                t[slots, :, : p.shape[2]] = p

    def move(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy rows to other slots."""
        for pair in self.layers:
            for t in pair:
                t[targets] = t[sources]


class Window(Cache):
    """One decoding step's view of the slots, as transformers' modules see a cache.

    It says where each row writes and what each row sees.
    """

    def __init__(
        self, slots: Slots, positions: torch.Tensor, width: int, shifts: torch.Tensor
    ) -> None:
        super().__init__(layers=[])
        self.slots = slots
        self.live = len(positions)
        self.width = width
        self.positions = positions
        # What a rotary embedding counts; an image takes more columns than turns.
        self.turns = positions + shifts
        self._rows = torch.arange(self.live, device=positions.device)

    def additive(self, dtype: torch.dtype, last: int | None = None) -> torch.Tensor:
        """Mask to add to scores, ``[rows, 1, 1, width]``; only the ``last`` columns are seen."""
        columns = torch.arange(self.width, device=self.positions.device)
        visible = columns <= self.positions[:, None]
        if last is not None:
            visible = visible & (columns > self.positions[:, None] - last)
        mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
        return mask.masked_fill_(~visible, torch.finfo(dtype).min)[:, None, None]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store one token's ``[rows, heads, 1, head dim]`` at the rows' columns; what rows see."""
        stored = self.slots.layers[layer_idx]
        for t, new in zip(stored, (key_states, value_states), strict=True):
            t[self._rows, :, self.positions] = new[:, :, 0]
        return stored[0][: self.live, :, : self.width], stored[1][: self.live, :, : self.width]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Columns before this step's."""
        return self.width - 1
