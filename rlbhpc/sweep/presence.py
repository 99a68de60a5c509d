"""Which samples are there: read from the data, never from markers, exit codes or file names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlbhpc.stats.counts import Counts
from rlbhpc.store import inventory, left_out
from rlbhpc.store.inventory import Holding
from rlbhpc.store.left_out import Note
from rlbhpc.study.keys import Block
from rlbhpc.study.layout import Layout
from rlbhpc.sweep.looks import requested

# Samples whose bits are unpacked together.
_CELLS: Final = 1 << 23


@dataclass(frozen=True)
class Presence:
    """What the store holds of one block.

    ``n``: samples that are requested of each problem; looks make it ragged. Of one that has enough
    right samples, those up to the last of them. ``stopped``: problems that have enough right
    samples. ``bits``: which samples exist, a packed row per problem. A sample whose prompt, model,
    sampling setting or problem text has changed since does not count. ``right``: samples per
    problem that were verified as right, of all that exist. ``count``: samples per problem that
    exist and did not fail, also beyond the n that is requested now. ``tokens``: response tokens per
    problem of those samples. ``failures``: problem and sample of which there is nothing but a row
    that says they failed. They count as there, so that a sweep comes to its end; ``rlbhpc sample
    --retry-failed`` tries again. ``stale``: stored samples that answer another request than
    today's.
    """

    block: Block
    n: NDArray[np.int64]
    bits: NDArray[np.uint8]
    right: NDArray[np.int64]
    count: NDArray[np.int64]
    tokens: NDArray[np.int64]
    failures: NDArray[np.int64]
    stale: int
    stopped: int

    @property
    def requested(self) -> int:
        """Samples that are requested."""
        return int(self.n.sum())

    @property
    def present(self) -> int:
        """Requested samples that exist."""
        return int(self._present.sum())

    @property
    def missing(self) -> int:
        """Requested samples that do not exist."""
        return self.requested - self.present

    @property
    def failed(self) -> int:
        """Requested samples of which there is only a failure."""
        problem, sample = self.failures.T
        return int(np.count_nonzero(sample < self.n[problem]))

    def counts(self) -> Counts:
        """All samples of each problem that have a verdict; of one that stopped, those up to there.

        Samples beyond the stop are left out: whether they exist is a matter of scheduling.
        """
        stop_after = self.block.stop_after
        if not stop_after:
            return Counts.of(self.count, self.right)
        n = np.minimum(self.count, self.n)
        return Counts.of(n, np.minimum(self.right, np.minimum(n, stop_after)), stop_after, self.n)

    def lacking(self, problem: int, start: int, stop: int) -> int:
        """How many samples of a problem, from ``start`` to before ``stop``, do not exist."""
        row = np.unpackbits(self.bits[problem, start >> 3 : (stop + 7) >> 3], bitorder="little")
        return stop - start - int(row[start & 7 :][: stop - start].sum())

    def counting(self, spans: Iterable[tuple[str, int, int]]) -> Presence:
        """The same with more samples counted as there: (problem, first, behind the last)."""
        bits = self.bits.copy()
        row_of = {problem: i for i, problem in enumerate(self.block.problems)}
        for problem, start, stop in spans:
            if problem in row_of:
                row = np.unpackbits(bits[row_of[problem]], bitorder="little")
                row[start:stop] = 1
                bits[row_of[problem]] = np.packbits(row, bitorder="little")
        return replace(self, bits=bits)

    def retrying(self) -> Presence:
        """The same with failed samples counted as missing."""
        bits = self.bits.copy()
        problem, sample = self.failures.T
        np.bitwise_and.at(bits, (problem, sample >> 3), ~(1 << (sample & 7)).astype(np.uint8))
        return replace(self, bits=bits)

    def gaps(self) -> Iterator[tuple[int, int, int]]:
        """Runs of missing samples: (problem's index in the block, first, behind the last)."""
        incomplete = np.flatnonzero(self._present < self.n)
        rows = max(1, _CELLS // max(1, 8 * self.bits.shape[1]))
        for first in range(0, len(incomplete), rows):
            problems = incomplete[first : first + rows]
            lacking = ~self._unpacked(problems)
            lacking &= np.arange(lacking.shape[1]) < self.n[problems, None]
            edges = np.diff(np.pad(lacking, ((0, 0), (1, 1))).astype(np.int8), axis=1)
            starts, stops = np.argwhere(edges == 1), np.argwhere(edges == -1)
            for (row, start), (_, stop) in zip(starts.tolist(), stops.tolist(), strict=True):
                yield int(problems[row]), start, stop

    @cached_property
    def _present(self) -> NDArray[np.int64]:
        """Requested samples of each problem that exist."""
        counts = np.zeros(len(self.n), np.int64)
        for n in np.unique(self.n).tolist():
            rows = self.n == n
            mask = np.packbits(np.arange(8 * self.bits.shape[1]) < n, bitorder="little")
            bits = self.bits if rows.all() else self.bits[rows]
            counts[rows] = np.bitwise_count(bits & mask).sum(axis=1, dtype=np.int64)
        return counts

    def _unpacked(self, problems: NDArray[np.intp]) -> NDArray[np.bool_]:
        most = int(self.n.max(initial=0))
        rows = np.unpackbits(self.bits[problems], axis=1, count=most, bitorder="little")
        return rows.view(np.bool_)


def presence(
    layout: Layout,
    blocks: list[Block],
    *,
    strict: bool = True,
    passed_over: Callable[[str], bool] | None = None,
) -> list[Presence]:
    """Compare blocks with what is stored; each arm and problem set is read once.

    ``strict``: raise what keeps a file from being read; else it is left out, and told.
    ``passed_over``: says of a journal's name that it holds nothing of these blocks.
    """
    comparisons: dict[int, Presence] = {}
    notes: list[Note] = []
    requests = requested(layout, blocks)
    for group in dict.fromkeys((b.arm, b.set_name) for b in blocks):
        of_group = [i for i, b in enumerate(blocks) if (b.arm, b.set_name) == group]
        stock = inventory.take(layout, *group, strict=strict, passed_over=passed_over)
        notes += stock.notes
        for i in of_group:
            block = blocks[i]
            holding = stock.of(block.step, block.problems, block.fingerprints)
            comparisons[i] = _compare(block, requests[i], holding)
    left_out.tell(layout.root, notes)
    return [comparisons[i] for i in range(len(blocks))]


def _compare(block: Block, n: NDArray[np.int64], holding: Holding) -> Presence:
    ends = _ends(block.stop_after, holding) if block.stop_after else n
    stopped = ends < n
    n = np.minimum(n, ends)
    width = -(-int(n.max(initial=0)) // 8)
    bits = holding.bits
    if bits.shape[1] < width:
        bits = np.pad(bits, ((0, 0), (0, width - bits.shape[1])))
    return Presence(
        block=block,
        n=n,
        bits=bits,
        right=holding.right,
        count=holding.measured,
        tokens=holding.tokens.round().astype(np.int64),
        failures=holding.failed,
        stale=holding.stale,
        stopped=int(stopped.sum()),
    )


def _ends(stop_after: int, holding: Holding) -> NDArray[np.int64]:
    """Samples of each problem up to its ``stop_after``-th right one; very many where it has fewer.

    Whatever is missing before that one is still needed: what counts is in the order of the index.
    """
    ends = np.full(len(holding.right), np.iinfo(np.int64).max)
    for row in np.flatnonzero(holding.right >= stop_after).tolist():
        right = np.flatnonzero(np.unpackbits(holding.right_bits[row], bitorder="little"))
        ends[row] = right[stop_after - 1] + 1
    return ends
