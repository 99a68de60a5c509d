"""State of the running rows: what each has sampled so far."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rlbhpc.engines.completion import Request
from rlbhpc.engines.distribution import uniforms
from rlbhpc.engines.hf.backend import Backend
from rlbhpc.engines.hf.draw import Drawn, Past
from rlbhpc.engines.hf.slots import round_up
from rlbhpc.study.arm import Sampling


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
        self._release(slots)
        return out

    def move(self, sources: list[int], targets: list[int]) -> None:
        """Move running rows to free slots."""
        for state in (
            self.requests, self.lengths, self.shifts, self.sampled, self.busy, self.hidden,
            self.uniform, self.tokens, self.logprobs, self.entropies, self.read, self.written,
        ):  # fmt: skip
            state[targets] = state[sources]
        self._release(sources)

    def _release(self, slots: list[int]) -> None:
        self.lengths[slots] = self.sampled[slots] = self.busy[slots] = 0
        self.requests[slots] = None
