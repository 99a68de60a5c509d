"""State of the running rows: what each has sampled so far, on the device and on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rlbhpc.engines.completion import Request
from rlbhpc.engines.hf.draw import Drawn, Past
from rlbhpc.engines.hf.slots import round_up
from rlbhpc.engines.uniform import uniforms


class Finished(NamedTuple):
    """Raw outcome of one row, before it becomes a completion."""

    request: Request
    token_ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    entropies: NDArray[np.float32]


@dataclass
class Rows:
    """Slots of a running batch; ``requests[slot]`` is None where a slot is free.

    ``positions`` is the column at which a row's latest token goes, ``shifts`` what its rotary
    position differs from that by, ``counts`` the number of tokens that a row has sampled. Free
    slots below the highest used one run along as dummies, so that the batch keeps its shape.
    ``vocabulary`` is 0 unless a penalty needs to know which tokens a row has read and written.
    """

    capacity: int
    max_tokens: int
    hidden_size: int
    dtype: torch.dtype
    device: torch.device
    vocabulary: int = 0

    def __post_init__(self) -> None:
        shape = (self.capacity, self.max_tokens)
        self.requests: list[Request | None] = [None] * self.capacity
        self.hidden = torch.zeros(
            (self.capacity, self.hidden_size), dtype=self.dtype, device=self.device
        )
        self.positions = torch.zeros(self.capacity, dtype=torch.long, device=self.device)
        self.counts = torch.zeros(self.capacity, dtype=torch.long, device=self.device)
        self.shifts = torch.zeros(self.capacity, dtype=torch.long, device=self.device)
        # One where a request runs, so that a dummy stays at the start of its slot.
        self.active = torch.zeros(self.capacity, dtype=torch.long, device=self.device)
        self.lengths = np.zeros(self.capacity, np.int64)  # the host's copy of positions,
        self.sampled = np.zeros(self.capacity, np.int64)  # counts
        self.busy = np.zeros(self.capacity, np.int64)  # and active
        self.uniform = torch.zeros(shape, dtype=torch.float64, device=self.device)
        self.tokens = torch.zeros(shape, dtype=torch.int32, device=self.device)
        self.logprobs = torch.zeros(shape, device=self.device)
        self.entropies = torch.zeros(shape, device=self.device)
        tokens = (self.capacity, self.vocabulary)
        self.read = torch.zeros(tokens, dtype=torch.bool, device=self.device)
        self.written = torch.zeros(tokens, dtype=torch.int32, device=self.device)

    def free(self) -> list[int]:
        """Free slots, lowest first."""
        free: list[int] = np.flatnonzero(self.busy == 0).tolist()
        return free

    def used(self) -> list[int]:
        """Slots in use, lowest first."""
        used: list[int] = np.flatnonzero(self.busy).tolist()
        return used

    def live(self) -> int:
        """Rows of the batch: up to the highest used slot, in whole strides."""
        used = self.used()
        return min(self.capacity, round_up(used[-1] + 1)) if used else 0

    def admit(
        self, slots: list[int], requests: list[Request], hidden: torch.Tensor, shift: int
    ) -> None:
        """Put requests into slots; ``hidden`` is the state after their prompts' last tokens."""
        where = torch.tensor(slots, device=self.device)
        lengths = [len(request.prompt_ids) - 1 for request in requests]
        self.hidden[where] = hidden
        self.positions[where] = torch.tensor(lengths, device=self.device)
        self.shifts[where] = shift
        self.counts[where] = 0
        self.active[where] = 1
        self.busy[slots] = 1
        numbers = np.stack([uniforms(request.seed, self.max_tokens) for request in requests])
        self.uniform[where] = torch.from_numpy(numbers).to(self.device)
        self.read[where] = False
        self.written[where] = 0
        for slot, request, length in zip(slots, requests, lengths, strict=True):
            self.requests[slot] = request
            if self.vocabulary:
                self.read[slot, torch.tensor(request.prompt_ids, device=self.device)] = True
            self.lengths[slot], self.sampled[slot] = length, 0

    def next_uniform(self, live: int) -> torch.Tensor:
        """Each live row's uniform number for its next token."""
        return self.uniform[:live].gather(1, self.counts[:live, None])[:, 0]

    def past(self, live: int) -> Past:
        """What each live row has read and written."""
        return Past(self.read[:live], self.written[:live], self.counts[:live])

    def record(self, live: int, drawn: Drawn) -> None:
        """Append the drawn tokens to the live rows and advance their positions."""
        columns = self.counts[:live, None]
        self.tokens[:live].scatter_(1, columns, drawn.tokens[:, None].to(torch.int32))
        self.logprobs[:live].scatter_(1, columns, drawn.logprobs[:, None])
        self.entropies[:live].scatter_(1, columns, drawn.entropies[:, None])
        if self.vocabulary:
            self.written[:live].scatter_add_(
                1, drawn.tokens[:, None], self.active[:live, None].to(torch.int32)
            )
        self.counts[:live] += self.active[:live]
        self.positions[:live] += self.active[:live]
        self.lengths[:live] += self.busy[:live]
        self.sampled[:live] += self.busy[:live]

    def take(self, slots: list[int]) -> list[Finished]:
        """Copy finished rows to the host and free their slots."""
        where = torch.tensor(slots, device=self.device)
        longest = int(self.sampled[slots].max())
        host = [
            t[where, :longest].cpu().numpy() for t in (self.tokens, self.logprobs, self.entropies)
        ]
        out = []
        for i, slot in enumerate(slots):
            request, n = self.requests[slot], int(self.sampled[slot])
            assert request is not None
            tokens, logprobs, entropies = (a[i, :n].copy() for a in host)
            out.append(Finished(request, tokens, logprobs, entropies))
            self.requests[slot] = None
        self._rest(slots)
        return out

    def _rest(self, slots: list[int]) -> None:
        where = torch.tensor(slots, device=self.device)
        self.positions[where] = self.counts[where] = self.active[where] = 0
        self.lengths[slots] = self.sampled[slots] = self.busy[slots] = 0

    def move(self, sources: list[int], targets: list[int]) -> None:
        """Move running rows to free slots."""
        s = torch.tensor(sources, device=self.device)
        t = torch.tensor(targets, device=self.device)
        for state in (
            self.hidden, self.positions, self.shifts, self.counts, self.active, self.uniform,
            self.tokens, self.logprobs, self.entropies, self.read, self.written,
        ):  # fmt: skip
            state[t] = state[s]
        for host in (self.lengths, self.sampled, self.busy):
            host[targets] = host[sources]
        for source, target in zip(sources, targets, strict=True):
            self.requests[target], self.requests[source] = self.requests[source], None
        self._rest(sources)
