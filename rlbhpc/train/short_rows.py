"""Attention over short rows of bfloat16 on processors, by batched products.

PyTorch's fused attention takes every row and head by itself, in blocks that are made for long rows;
over short ones its products are too small to be fast. Here rows with all their heads are one
product, as many as a processor's cache holds and at least one. Scores and their gradients are made
in float32; probabilities, and gradients of scores, are rounded to bfloat16 where they are
multiplied and where probabilities wait for their gradient. Gradients of a prompt's keys and values
are added up over its responses in float32. Columns of a piece in which nobody looks at any query's
outcome, such as those of a prompt in all its rows but one, are not asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Rows of up to so many tokens are taken here: the probabilities that are kept grow with the square.
SHORT = 320
# Scores of a piece for each core: with what is made of them, they stay in the cache.
PIECE = 1 << 17
# Rows are filled up to a multiple: products of even sizes are faster, and fewer sizes are prepared.
EVEN = 8


class Piece(NamedTuple):
    """Rows that one product runs over."""

    # Cells of each row, (rows, width), and of the queries that are asked: some of its columns.
    cells: Tensor
    asked: Tensor
    # What is added to the scores of each row and head: −∞ where a query does not look.
    mask: Tensor
    # Which of the queries, row after row, are the ones that their cells are known by; and where.
    live: Tensor
    known: Tensor


def is_short(group: Tensor) -> bool:
    """Whether rows (rows, width) are taken here."""
    return group.shape[1] <= SHORT


@lru_cache(maxsize=2)  # layers ask for the same, or for a window and for none in turns
def cut(
    rows: tuple[Tensor, ...], home: Tensor, heads: int, window: int | None = None
) -> tuple[Piece, ...]:
    """Pieces of the groups ``rows`` that are short; ``home`` as in a micro-batch.

    A token looks back at ``window`` tokens, itself among them.
    """
    mask = _mask(max((group.shape[1] for group in rows if is_short(group)), default=0), window)
    sizes = [group.numel() for group in rows]
    lives = torch.zeros(sum(sizes), dtype=torch.bool).index_fill_(0, home, True)
    found: list[Piece] = []
    for group, flat in zip(rows, lives.split(sizes), strict=True):
        width = group.shape[1]
        live = flat.view(-1, width)
        most = max(1, PIECE * torch.get_num_threads() // (heads * width * width))
        # Rows that stand for their prompt ask from its first token on, the others after it.
        leads = live[:, 0]
        for chosen in (leads.nonzero().flatten(), (~leads).nonzero().flatten()):
            for some in chosen.split(most) if is_short(group) else ():
                columns = live[some].any(0).nonzero().flatten()
                if len(columns):
                    found.append(_piece(group[some], live[some], columns, mask))
    return tuple(found)


def _mask(longest: int, window: int | None) -> Tensor:
    at = torch.arange(longest + EVEN)
    back = at[:, None] - at
    seen = (back >= 0) & (back < (window or len(at)))
    return torch.zeros(seen.shape).masked_fill_(~seen, float("-inf"))


def _piece(cells: Tensor, live: Tensor, columns: Tensor, mask: Tensor) -> Piece:
    first, end = int(columns[0]), int(columns[-1]) + 1
    asked = cells[:, first:end].contiguous()
    alive = live[:, first:end].flatten().nonzero().flatten()
    # What a row is filled up with stands behind every query and is seen by none.
    width = -(-end // EVEN) * EVEN
    filled = cells[:, torch.arange(width).clamp_(max=end - 1)]
    return Piece(filled, asked, mask[first:end, :width], alive, asked.flatten()[alive])


class Attend(torch.autograd.Function):
    """softmax(s · q kᵀ + mask) v in the rows of some pieces.

    With p the probabilities and g the gradient of the outcome: that of v is pᵀ g, that of the
    scores is e = p · (g vᵀ − Σ p · g vᵀ), and those of q and k are s · e k and s · eᵀ q.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        pieces: Sequence[Piece],
        scale: float,
    ) -> Tensor:
        """From three tables (cells, heads, size) to one; cells of no piece come out as 0."""
        query, key, value = (table.contiguous() for table in (query, key, value))
        out = _table(query, (*query.shape[:2], value.shape[-1]), pieces)
        # Query heads that share a key head stand below each other, as if they were more tokens.
        shared = query.shape[1] // key.shape[1]
        kept: list[Tensor] = []
        for piece in pieces:
            q = _laid(query, piece.asked, shared)
            k, v = (_laid(table, piece.cells) for table in (key, value))
            seen = piece.mask.repeat(shared, 1)
            scores = torch.baddbmm(seen, q.float(), k.float().transpose(1, 2), alpha=scale)
            p = torch.softmax(scores, -1).to(value.dtype)
            _know(out, piece, torch.bmm(p, v))
            if any(ctx.needs_input_grad):
                kept += q, k, v, p
        ctx.save_for_backward(*kept)
        ctx.pieces, ctx.scale = pieces, scale
        ctx.shapes = [table.shape for table in (query, key, value)]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the tables."""
        kept = iter(ctx.saved_tensors)
        of_query = _table(gradient, ctx.shapes[0], ctx.pieces)
        shared = ctx.shapes[0][1] // ctx.shapes[1][1]
        places = [piece.cells.numel() for piece in ctx.pieces]
        gradient = gradient.contiguous()
        lines = [
            gradient.new_empty(sum(places), *shape[1:], dtype=torch.float32)
            for shape in ctx.shapes[1:]
        ]
        for piece, *parts in zip(ctx.pieces, *(line.split(places) for line in lines), strict=True):
            q, k, v, p = (next(kept) for _ in range(4))
            g = _laid(gradient, piece.asked, shared, piece.live)
            of_k, of_v = (_heads(part, piece.cells) for part in parts)
            of_v.copy_(torch.bmm(p.transpose(1, 2), g).view(of_v.shape))
            due = torch.bmm(g.float(), v.float().transpose(1, 2))
            wide = torch._softmax_backward_data(due, p.float(), -1, torch.float32)
            e = wide.mul_(ctx.scale).to(gradient.dtype)
            _know(of_query, piece, torch.bmm(e, k))
            of_k.copy_(torch.bmm(e.transpose(1, 2), q).view(of_k.shape))
        cells = torch.cat([piece.cells.flatten() for piece in ctx.pieces])
        count, dtype = len(gradient), gradient.dtype
        return of_query, *(_summed(line, cells, count).to(dtype) for line in lines), None, None


def _table(like: Tensor, shape: Sequence[int], pieces: Sequence[Piece]) -> Tensor:
    """A table to be filled by :func:`_know`; cells of no piece are 0."""
    whole = sum(len(piece.known) for piece in pieces) == shape[0]
    return like.new_empty(shape) if whole else like.new_zeros(shape)


def _heads(line: Tensor, cells: Tensor, shared: int = 1) -> Tensor:
    """View (rows, key heads, heads that share one, tokens, size) of a line of rows."""
    split = line.view(*cells.shape, -1, shared, line.shape[-1])
    return split.permute(0, 2, 3, 1, 4)


def _laid(table: Tensor, cells: Tensor, shared: int = 1, live: Tensor | None = None) -> Tensor:
    """Rows of a table, (rows · key heads, heads that share one · tokens, size)."""
    line = table.flatten(1).index_select(0, cells.flatten())
    if live is not None and len(live) < len(line):
        line = torch.zeros_like(line).index_copy_(0, live, line.index_select(0, live))
    split = _heads(line.view(-1, *table.shape[1:]), cells, shared)
    return split.reshape(-1, shared * cells.shape[1], table.shape[-1])


def _know(table: Tensor, piece: Piece, found: Tensor) -> None:
    """What was found for the queries of a piece, to the cells that are known by them."""
    rows, asked = piece.asked.shape
    split = found.view(rows, -1, asked, found.shape[-1]).transpose(1, 2)
    line = split.reshape(rows * asked, -1)
    if len(piece.live) < len(line):
        line = line.index_select(0, piece.live)
    table.flatten(1).index_copy_(0, piece.known, line)


def _summed(line: Tensor, cells: Tensor, count: int) -> Tensor:
    """What stands for each of ``count`` cells added up, in parallel and in a fixed order."""
    total = torch.ops.aten.embedding_dense_backward(line.flatten(1), cells, count, -1, False)
    return total.view(count, *line.shape[1:])
