"""From responses to the micro-batches that a model is run on.

A micro-batch is one packed sequence of tokens without padding. Responses to the same prompt share
it: the prompt is read once, and its gradient is the sum of theirs. Only attention needs to know
which tokens make a response, so it alone is given rows (:mod:`rlbhpc.train.policy`).
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

# Attention rows are padded to the longest of their group, which is at most so many times as long
# as the shortest. Each group is one call of attention.
MAX_LENGTH_RATIO = 1.5


@dataclass(frozen=True)
class PromptImages:
    """Images of a prompt, as files in the order in which the prompt shows them.

    ``token_indices`` are the prompt's tokens that stand for them. They are listed because a
    response may sample the image token too, and there it is an ordinary token. ``positions`` has
    the position of every prompt token in time, height and width, shape (3, tokens).
    """

    images: tuple[bytes, ...]
    token_indices: NDArray[np.int64]
    positions: NDArray[np.int64]


@dataclass(frozen=True)
class Response:
    """One response to train on: the very token ids that were sampled, never re-tokenised.

    An image of the prompt is as many tokens as the model sees of it. ``model_mask`` tells which of
    ``token_ids`` the model wrote, None for all of them. The others are a tool's: the model reads
    them, and nothing is predicted or learnt there.
    """

    prompt_ids: tuple[int, ...]
    token_ids: NDArray[np.int32]
    prompt_images: PromptImages | None = None
    model_mask: NDArray[np.bool_] | None = None

    @property
    def model_ids(self) -> NDArray[np.int32]:
        """Tokens that the model wrote: those that are scored and learnt."""
        return self.token_ids if self.model_mask is None else self.token_ids[self.model_mask]

    @property
    def prompt(self) -> Prompt:
        """Tokens and images of the prompt: equal for all responses to it."""
        images = () if self.prompt_images is None else self.prompt_images.images
        return self.prompt_ids, images

    @property
    def prompt_positions(self) -> NDArray[np.int64]:
        """Position of each prompt token in time, height and width, shape (3, tokens)."""
        if self.prompt_images is not None:
            return self.prompt_images.positions
        return np.tile(np.arange(len(self.prompt_ids)), (3, 1))

    @property
    def size(self) -> int:
        """Tokens that the model reads to score it. The last one is predicted and never read."""
        return len(self.prompt_ids) + len(self.token_ids) - 1


@dataclass(frozen=True)
class Rollout:
    """One sampled and judged response, ready to be trained on.

    ``reward`` is NaN where the response could not be scored: then nothing is learnt from it, and
    it enters no baseline. ``group`` numbers the prompts of a run in the order in which they were
    drawn. ``part`` is the algorithm's own division of a batch. ``n_turns`` counts the model's turns
    of an episode; it is 0 for a plain response.
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
    n_turns: int = 0

    @property
    def correct(self) -> bool:
        """Whether the verifier found it right."""
        return self.verdict.right


@dataclass(frozen=True)
class MicroBatch:
    """A packed sequence of prompts and responses, and where each response token is predicted.

    A cell is a place in the packed sequence. ``response_indices`` are the b responses of the whole
    batch that are packed here. The model reads ``input_ids`` and ``positions``, shape (1, cells),
    or (3, 1, cells) where there are images. The output at ``predicting_cells`` predicts
    ``targets``, the response tokens, one response after the other; responses to one prompt share
    the cell of its last token. A tool's tokens are read and are no targets. ``lengths`` counts the
    targets of each response.

    A row of ``attention_rows`` lists the cells of one whole prompt and response, which attention
    sees together. Rows of similar length form one tensor (responses, width), padded on the right,
    where no token looks. ``row_slots`` has each cell's index into all rows laid end to end.
    ``images`` are the images in the order of the cells that stand for them, ``image_cells``.
    """

    response_indices: Tensor
    input_ids: Tensor
    positions: Tensor
    predicting_cells: Tensor
    targets: Tensor
    lengths: Tensor
    attention_rows: tuple[Tensor, ...]
    row_slots: Tensor
    image_cells: Tensor
    images: tuple[bytes, ...] = ()

    def pad_by_response(self, token_values: Tensor) -> Tensor:
        """Values of all response tokens as a (b, longest response) array, 0 in the padding."""
        longest = int(self.lengths.max())
        mask = torch.arange(longest, device=token_values.device) < self.lengths[:, None]
        padded = token_values.new_zeros(mask.shape)
        padded[mask] = token_values
        return padded


def split_into_micro_batches(
    responses: Sequence[Response], token_budget: int, ranks: int = 1
) -> list[list[NDArray[np.int64]]]:
    """Deal the responses out to ranks and cut each rank's share into micro-batches.

    Returns, for each rank, one array of response indices per micro-batch. A micro-batch is what the
    model reads in one forward pass. Responses to the same prompt stay side by side. All
    micro-batches are about equally large, and none with several responses has more than
    ``token_budget`` tokens, where a shared prompt counts once for each of its responses. Every rank
    gets the same number of micro-batches, because the ranks wait for each other in each of them;
    some may be empty.
    """
    order = _order_by_prompt(responses)
    sizes = np.array([responses[i].size for i in order])
    total_tokens = int(sizes.sum())
    # Where the middle of each response lies if all are laid end to end.
    midpoints = np.cumsum(sizes) - sizes / 2
    # The quotient rounded up, times the ranks: every rank gets equally many.
    n_batches = -(-total_tokens // (token_budget * ranks)) * ranks
    while True:
        # A response belongs to the batch in whose equal share of all tokens its middle lies.
        batch_numbers = (midpoints * n_batches // total_tokens).astype(np.int64)
        has_several = np.bincount(batch_numbers) > 1
        batch_tokens = np.bincount(batch_numbers, weights=sizes)
        if (batch_tokens[has_several] <= token_budget).all():
            break
        n_batches += max(1, n_batches // (8 * ranks)) * ranks  # an eighth more
    batches = [order[batch_numbers == number] for number in np.unique(batch_numbers)]
    while len(batches) % ranks:
        batches.append(order[:0])
    return [batches[rank::ranks] for rank in range(ranks)]


def _order_by_prompt(responses: Sequence[Response]) -> NDArray[np.int64]:
    """Indices of responses, those to one prompt side by side, in the order of first mention."""
    first_index: dict[Prompt, int] = {}
    keys = [first_index.setdefault(r.prompt, i) for i, r in enumerate(responses)]
    return np.argsort(keys, kind="stable")


def pack_responses(responses: Sequence[Response], indices: NDArray[np.int64]) -> MicroBatch:
    """Pack the responses ``indices`` into one token sequence, on PyTorch's default device.

    A *cell* is a place in this sequence. Each prompt stands there once, before the first of its
    responses. The cells of one prompt and one response form an *attention row*: those that may
    attend to each other. ``sequence.response_cells`` has one such array per response. The model's
    output at a cell predicts the next token, so the last cells of a row predict the response (its
    own last token is never read). A *slot* is an index into all padded rows laid end to end;
    ``row_slots`` says for each cell from which slot to take its attention output.
    """
    sequence = _PackedSequence()
    chosen = [responses[i] for i in indices]
    for response in chosen:
        sequence.append_response(response)
    predicting_cells = []
    for response, cells in zip(chosen, sequence.response_cells, strict=True):
        # As many as the response has tokens: the prompt's last cell, then all of the response's.
        preceding_cells = cells[-len(response.token_ids) :]
        if response.model_mask is not None:
            preceding_cells = preceding_cells[response.model_mask]
        predicting_cells.append(preceding_cells)
    targets = np.concatenate([response.model_ids for response in chosen])
    attention_rows = _pad_in_groups(sequence.response_cells)
    # A prompt's cells are the same in all its rows, and padding repeats a row's last cell, so the
    # first slot in which a cell occurs is always a true one.
    all_slots = np.concatenate([rows.ravel() for rows in attention_rows])
    _, row_slots = np.unique(all_slots, return_index=True)
    positions = np.concatenate(sequence.positions, axis=1)
    return MicroBatch(
        response_indices=torch.as_tensor(indices),
        input_ids=torch.as_tensor(np.concatenate(sequence.token_ids)[None]),
        # Without images time, height and width are equal, and one of them is enough.
        positions=torch.as_tensor(positions[:, None] if sequence.images else positions[:1]),
        predicting_cells=torch.as_tensor(np.concatenate(predicting_cells)),
        targets=torch.as_tensor(targets.astype(np.int64)),
        lengths=torch.as_tensor(np.array([len(response.model_ids) for response in chosen])),
        attention_rows=tuple(torch.as_tensor(rows) for rows in attention_rows),
        row_slots=torch.as_tensor(row_slots),
        # The empty array is there because nothing at all cannot be concatenated.
        image_cells=torch.as_tensor(np.concatenate([np.zeros(0, np.int64), *sequence.image_cells])),
        images=tuple(sequence.images),
    )


class _PackedSequence:
    """Prompts and responses one after the other, each prompt before the first of its responses.

    ``response_cells`` has the cells of each response behind those of its prompt.
    """

    def __init__(self) -> None:
        """Begin an empty sequence; a *cell* is a place in it.

        Each list gets an array for every piece that is appended. ``response_cells`` has the cells
        of each response behind those of its prompt, ``_prompt_cells`` those of each prompt that
        stands there.
        """
        self.token_ids: list[NDArray[np.int64]] = []
        self.positions: list[NDArray[np.int64]] = []
        self.response_cells: list[NDArray[np.int64]] = []
        self.images: list[bytes] = []
        self.image_cells: list[NDArray[np.int64]] = []
        self._prompt_cells: dict[Prompt, NDArray[np.int64]] = {}
        self._length = 0

    def append_response(self, response: Response) -> None:
        """Add a response, and its prompt if no earlier response has brought it.

        A cell is a place in the packed sequence. ``response_cells`` gets the cells of the prompt
        followed by those of the response. Positions count on from the prompt; they have three equal
        rows (time, height, width), which differ only for images.
        """
        if response.prompt not in self._prompt_cells:
            self._append_prompt(response)
        # The last token is only predicted.
        read_ids = response.token_ids[:-1]
        first_position = int(response.prompt_positions.max()) + 1
        positions = first_position + np.arange(len(read_ids))
        cells = self._append_tokens(read_ids, np.tile(positions, (3, 1)))
        prompt_cells = self._prompt_cells[response.prompt]
        self.response_cells.append(np.concatenate([prompt_cells, cells]))

    def _append_prompt(self, response: Response) -> None:
        cells = self._append_tokens(np.array(response.prompt_ids), response.prompt_positions)
        self._prompt_cells[response.prompt] = cells
        if response.prompt_images is not None:
            self.images += response.prompt_images.images
            self.image_cells.append(cells[response.prompt_images.token_indices])

    def _append_tokens(
        self, token_ids: NDArray[np.integer], positions: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Add tokens at the end and return their cells, which are their places in the sequence.

        ``positions`` are the tokens' positions in time, height and width, shape (3, tokens).
        """
        cells = np.arange(self._length, self._length + len(token_ids))
        self.token_ids.append(token_ids.astype(np.int64))
        self.positions.append(positions)
        self._length += len(token_ids)
        return cells


def _pad_in_groups(rows: Sequence[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """Sort rows into groups of similar length and pad each row to the longest of its group.

    A row lists the places in the packed sequence that attend to each other. Each group becomes one
    array (rows, width) and one call of attention. Padding repeats a row's last entry.
    """
    groups: list[list[NDArray[np.int64]]] = []
    for row in sorted(rows, key=len, reverse=True):
        if not groups or len(groups[-1][0]) > MAX_LENGTH_RATIO * len(row):
            groups.append([])
        groups[-1].append(row)
    padded_groups = []
    for group in groups:
        longest = len(group[0])
        padded = [np.pad(row, (0, longest - len(row)), mode="edge") for row in group]
        padded_groups.append(np.stack(padded))
    return padded_groups
