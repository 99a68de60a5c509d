"""From responses to the micro-batches that a model is run on.

A micro-batch is one line of tokens without padding. Responses to the same prompt that stand in it
share the prompt: it is read once, and its gradient is the sum of theirs. Only attention needs to
know which tokens make a response, so it alone is given rows (:mod:`rlbhpc.train.policy`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlbhpc.engines.completion import Prompt
from rlbhpc.verify.verdict import Verdict

# Rows of attention are cut into groups in which none is longer than so many times the shortest:
# each group is a call of its own, and within it rows are padded to the longest.
SPREAD = 1.5


@dataclass(frozen=True)
class Shown:
    """Images of a prompt, as files in the order in which the prompt shows them.

    ``places`` are the prompt's tokens that stand for them. Only these: a response may well sample
    the token that marks an image, and then it is a token like any other. ``positions`` say where
    all tokens of the prompt stand in time, height and width, shape (3, tokens).
    """

    images: tuple[bytes, ...]
    places: NDArray[np.int64]
    positions: NDArray[np.int64]


@dataclass(frozen=True)
class Response:
    """One response to train on: the very token ids that were sampled, never re-tokenised.

    In a prompt with images each of these is as many tokens as the model sees of it.
    """

    prompt_ids: tuple[int, ...]
    token_ids: NDArray[np.int32]
    shown: Shown | None = None

    @property
    def prompt(self) -> Prompt:
        """What the model is shown: the same for every response to a prompt."""
        return self.prompt_ids, () if self.shown is None else self.shown.images

    @property
    def size(self) -> int:
        """Tokens that are read to score it: the last one of a response predicts nothing."""
        return len(self.prompt_ids) + len(self.token_ids) - 1


@dataclass(frozen=True)
class Rollout:
    """One response of a rollout, ready to be trained on.

    ``reward`` is NaN where the response could not be scored: it is not learnt from, and no other's
    baseline counts it.
    """

    problem: str
    gold: str
    group: int
    response: Response
    sampler_logprobs: NDArray[np.float32]
    entropy_sum: float
    truncated: bool
    text: str
    verdict: Verdict
    reward: float
    greedy_reward: float = 0.0
    part: int = 0

    @property
    def correct(self) -> bool:
        """Whether the verifier found it right."""
        return self.verdict.right


@dataclass(frozen=True)
class MicroBatch:
    """One line of prompts and responses, and where in it each response's tokens are predicted.

    ``index`` says which b responses of the batch stand here. The model reads ``input_ids`` and
    ``positions``, shape (1, cells), or (3, 1, cells) where there are images. ``cells`` predict the
    response tokens ``targets``, one response after the other; responses to one prompt share the
    cell of its last token. ``rows`` are cells that attention sees together: one tensor (responses,
    width) for each group of responses of similar size, a row being a whole prompt with one
    response; what fills a row up on the right is seen by nothing. ``home`` is each cell's place in
    ``rows`` laid end to end. ``images`` stand in the line in this order, at the cells ``seen``.
    """

    index: Tensor
    input_ids: Tensor
    positions: Tensor
    cells: Tensor
    targets: Tensor
    lengths: Tensor
    rows: tuple[Tensor, ...]
    home: Tensor
    seen: Tensor
    images: tuple[bytes, ...] = ()

    def by_response(self, flat: Tensor) -> Tensor:
        """Spread values of response tokens into a (b, longest response) array, 0 elsewhere."""
        width = int(self.lengths.max())
        mask = torch.arange(width, device=flat.device) < self.lengths[:, None]
        out = flat.new_zeros(mask.shape)
        out[mask] = flat
        return out


def split(
    responses: Sequence[Response], token_budget: int, ranks: int = 1
) -> list[list[NDArray[np.int64]]]:
    """Which responses go into which micro-batch of which rank.

    Responses to the same prompt stay side by side, and cuts are placed so that all micro-batches
    are about equally large and none has more than ``token_budget`` tokens, shared prompts counted
    as if they were not. Every rank gets the same number of micro-batches, since ranks meet in
    collective operations in each of them; a rank that would have fewer gets empty ones.
    """
    first: dict[Prompt, int] = {}
    order = np.argsort([first.setdefault(r.prompt, i) for i, r in enumerate(responses)],
                       kind="stable")  # fmt: skip
    sizes = np.array([responses[i].size for i in order])
    middle = np.cumsum(sizes) - sizes / 2
    count = -(-int(sizes.sum()) // (token_budget * ranks)) * ranks
    while True:
        part = (middle * count // sizes.sum()).astype(np.int64)
        several = np.bincount(part) > 1
        if (np.bincount(part, weights=sizes)[several] <= token_budget).all():
            break
        count += max(1, count // (8 * ranks)) * ranks
    batches = [order[part == i] for i in np.unique(part)]
    batches += [order[:0]] * (-len(batches) % ranks)
    return [batches[rank::ranks] for rank in range(ranks)]


def assemble(responses: Sequence[Response], index: NDArray[np.int64]) -> MicroBatch:
    """Lay the responses ``index`` out in one line, a prompt before the first of its responses.

    The line stands on the device that is the current one.
    """
    chosen = [responses[i] for i in index]
    line: list[NDArray[np.int64]] = []
    positions: list[NDArray[np.int64]] = []
    prompts: dict[Prompt, NDArray[np.int64]] = {}
    images: list[bytes] = []
    seen: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    read: list[NDArray[np.int64]] = []
    used = 0
    for r in chosen:
        if r.shown is None:
            before = np.tile(np.arange(len(r.prompt_ids)), (3, 1))
        else:
            before = r.shown.positions
        behind = int(before.max()) + 1 + np.arange(len(r.token_ids) - 1)
        parts = [(r.token_ids[:-1], np.tile(behind, (3, 1)))]
        if r.prompt not in prompts:
            parts.insert(0, (np.array(r.prompt_ids), before))
            prompts[r.prompt] = np.arange(used, used + len(r.prompt_ids))
            if r.shown is not None:
                images += r.shown.images
                seen.append(used + r.shown.places)
        for ids, where in parts:
            line.append(ids.astype(np.int64))
            positions.append(where)
            used += len(ids)
        own = np.arange(used - len(r.token_ids) + 1, used)
        read.append(np.concatenate([prompts[r.prompt], own]))

    lengths = np.array([len(r.token_ids) for r in chosen])
    cells = np.concatenate([row[len(row) - n :] for row, n in zip(read, lengths, strict=True)])
    targets = np.concatenate([r.token_ids for r in chosen]).astype(np.int64)
    rows = _padded_rows(read)
    # A prompt's cells are the same in all its rows, and padding repeats a row's last cell: the
    # first place of a cell is always a true one.
    home = np.unique(np.concatenate([row.ravel() for row in rows]), return_index=True)[1]
    every = np.concatenate(positions, axis=1)
    return MicroBatch(
        index=torch.as_tensor(index),
        input_ids=torch.as_tensor(np.concatenate(line)[None]),
        positions=torch.as_tensor(every[:, None] if images else every[:1]),
        cells=torch.as_tensor(cells),
        targets=torch.as_tensor(targets),
        lengths=torch.as_tensor(lengths),
        rows=tuple(map(torch.as_tensor, rows)),
        home=torch.as_tensor(home),
        seen=torch.as_tensor(np.concatenate(seen)),
        images=tuple(images),
    )


def _padded_rows(read: Sequence[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """Cells of each response, in groups of similar size, padded to a group's longest."""
    longest_first = sorted(read, key=len, reverse=True)
    groups: list[list[NDArray[np.int64]]] = []
    for row in longest_first:
        if not groups or len(groups[-1][0]) > SPREAD * len(row):
            groups.append([])
        groups[-1].append(row)
    return [
        np.stack([np.pad(row, (0, len(group[0]) - len(row)), mode="edge") for row in group])
        for group in groups
    ]
