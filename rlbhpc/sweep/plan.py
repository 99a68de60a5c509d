"""Which samples are missing, and the nouns *Plan* and *Shard*: what is missing, in even pieces.

What is there is read from the data, never from markers, exit codes or file names.

A plan is made anew at every launch from what is missing then, and is never changed afterwards: a
task that still waits in a queue keeps the plan it was launched with. How work is cut has no part
in which samples there are.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbhpc import files
from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts
from rlbhpc.store import inventory, left_out
from rlbhpc.store.inventory import Holding
from rlbhpc.store.left_out import Note
from rlbhpc.study.keys import Block
from rlbhpc.study.layout import Layout
from rlbhpc.study.study import Study
from rlbhpc.sweep.looks import requested_counts

# --- what is there -------------------------------------------------------------------------------


# Samples whose bits are unpacked together.
_UNPACKED_CELLS: Final = 1 << 23


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

    def count_missing(self, problem: int, start: int, stop: int) -> int:
        """How many samples of a problem, from ``start`` to before ``stop``, do not exist."""
        row = np.unpackbits(self.bits[problem, start >> 3 : (stop + 7) >> 3], bitorder="little")
        return stop - start - int(row[start & 7 :][: stop - start].sum())

    def with_samples_present(self, spans: Iterable[tuple[str, int, int]]) -> Presence:
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
        rows = max(1, _UNPACKED_CELLS // max(1, 8 * self.bits.shape[1]))
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


def read_presence(
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
    requests = requested_counts(layout, blocks)
    for group in dict.fromkeys((b.arm, b.set_name) for b in blocks):
        of_group = [i for i, b in enumerate(blocks) if (b.arm, b.set_name) == group]
        stock = inventory.take(layout, *group, strict=strict, passed_over=passed_over)
        notes += stock.notes
        for i in of_group:
            block = blocks[i]
            holding = stock.of(block.step, block.problems, block.fingerprints)
            comparisons[i] = _compare(block, requests[i], holding)
    left_out.warn_left_out(layout.root, notes)
    return [comparisons[i] for i in range(len(blocks))]


def _compare(block: Block, n: NDArray[np.int64], holding: Holding) -> Presence:
    ends = _last_right_samples(block.stop_after, holding) if block.stop_after else n
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


def _last_right_samples(stop_after: int, holding: Holding) -> NDArray[np.int64]:
    """Samples of each problem up to its ``stop_after``-th right one; very many where it has fewer.

    Whatever is missing before that one is still needed: what counts is in the order of the index.
    """
    ends = np.full(len(holding.right), np.iinfo(np.int64).max)
    for row in np.flatnonzero(holding.right >= stop_after).tolist():
        right = np.flatnonzero(np.unpackbits(holding.right_bits[row], bitorder="little"))
        ends[row] = right[stop_after - 1] + 1
    return ends


# --- cutting what is missing ---------------------------------------------------------------------


# Samples of one problem that stay together: enough for a shared prompt cache to pay, few enough
# that hard problems spread over all shards.
SPAN = 64
# Spans of a plan beside those that the gaps make; a plan of 10⁹ samples has longer ones.
_SPANS: Final = 1 << 18


# Places at which a distribution of rates is looked at.
_QUANTILES: Final = (np.arange(64) + 0.5) / 64


class Span(NamedTuple):
    """Samples ``start`` … ``stop`` − 1 of one problem."""

    arm: str
    set_name: str
    step: int
    problem: str
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of samples."""
        return self.stop - self.start


#: Spans for one worker, and their expected tokens.
Piece = tuple[list[Span], float]


@dataclass(frozen=True)
class Shard:
    """Work for one worker with one model loaded.

    ``engine``, ``model`` and ``step`` say what to load; ``tokens`` is the expected cost. With
    ``retries``, samples that are stored as failed are tried again.
    """

    number: int
    engine: str
    model: str
    step: int
    tokens: int
    spans: tuple[Span, ...]
    retries: bool = False

    @property
    def samples(self) -> int:
        """Samples to make."""
        return sum(span.size for span in self.spans)


@dataclass(frozen=True)
class Plan:
    """All that was missing at one moment, in shards. ``study`` is the study's hash.

    On disk a line says how long each shard's line below it is, and its digest, so that a worker
    reads its own shards and no others.
    """

    study: str
    shards: tuple[Shard, ...]
    stored_as: str | None = field(default=None, compare=False)

    @property
    def samples(self) -> int:
        """Samples to make."""
        return sum(shard.samples for shard in self.shards)

    @property
    def tokens(self) -> int:
        """Expected response tokens."""
        return sum(shard.tokens for shard in self.shards)

    @property
    def name(self) -> str:
        """12 hex digits of the plan's content; its file is called so."""
        return self.stored_as or _digest(self._lines[0])

    @cached_property
    def _lines(self) -> list[bytes]:
        shards = [_json(vars(shard)) for shard in self.shards]
        head = {"study": self.study, "lines": [[len(line), _digest(line)] for line in shards]}
        return [_json(head), *shards]

    def save(self, folder: Path) -> Path:
        """Write the plan under its own name; the same plan again is the same file."""
        path = folder / f"{self.name}.json"
        if not path.is_file():
            files.put(path, b"".join(self._lines))
        return path

    @classmethod
    def load(cls, path: Path, numbers: Sequence[int] | None = None) -> Plan:
        """Read a plan, or some of its shards, and make sure that they are whole."""
        try:
            with path.open("rb") as file:
                head = file.readline()
                record = json.loads(head)
                if "lines" not in record:
                    return _as_one_object(path, numbers)
                if _digest(head) != path.stem:
                    raise UserError(_NOT_ITS_NAME.format(path=path))
                shards = tuple(_read_shards(file, record["lines"], numbers))
        except FileNotFoundError:
            raise UserError(f"{path}: no such plan; make a new one") from None
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            kind = type(error).__name__
            raise UserError(f"{path}: not a plan ({kind}); make a new one") from None
        return cls(record["study"], shards, path.stem)


_NOT_ITS_NAME: Final = "{path}: the plan's content does not have its name; make a new one"


def _read_shards(
    file: BinaryIO, lines: Sequence[tuple[int, str]], numbers: Sequence[int] | None
) -> Iterator[Shard]:
    """Read some lines behind the first; ValueError where one is not as it was written."""
    starts = [file.tell(), *(file.tell() + end for end in accumulate(size for size, _ in lines))]
    for number in range(len(lines)) if numbers is None else numbers:
        if number >= len(lines):
            raise UserError(
                f"--shards: no shard {number}; allowed: numbers from 0 to {len(lines) - 1}"
            )
        size, digest = lines[number]
        file.seek(starts[number])
        line = file.read(size)
        if _digest(line) != digest:
            raise ValueError(f"shard {number} is damaged")
        yield _shard(json.loads(line))


def _as_one_object(path: Path, numbers: Sequence[int] | None) -> Plan:
    """Read a plan as it was stored before plans had lines."""
    text = path.read_text()
    if _digest(text.encode()) != path.stem:
        raise UserError(_NOT_ITS_NAME.format(path=path))
    record = json.loads(text)
    shards = [_shard(shard) for shard in record["shards"]]
    chosen = shards if numbers is None else [shards[number] for number in numbers]
    return Plan(record["study"], tuple(chosen), path.stem)


def _shard(record: dict[str, Any]) -> Shard:
    return Shard(**{**record, "spans": tuple(Span(*span) for span in record["spans"])})


def _json(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()[:12]


def make_plan(
    study: Study, present: Iterable[Presence], shard_tokens: int, retry_failed: bool = False,
    copies: int = 1,
) -> Plan:  # fmt: skip
    """Cut what is missing into shards of about ``shard_tokens`` expected tokens each.

    A worker that loads ``copies`` of a model has a shard for each of them, if there are samples.
    Spans are dealt out in an order that is random but fixed by their content, so every shard gets
    its share of the hard problems and costs about the same.
    """
    present = list(present)
    size = max(SPAN, sum(p.missing for p in present) // _SPANS)
    groups: dict[tuple[str, str, int], list[Piece]] = {}
    for p in present:
        arm = study.arms[p.block.arm]
        loaded = study.engine(arm.name), arm.model, p.block.step
        to_make = p.retrying() if retry_failed else p
        groups.setdefault(loaded, []).extend(_pieces(to_make, size, arm.sampling.max_tokens))
    shards: list[Shard] = []
    for (engine, model, step), pieces in groups.items():
        if not pieces:
            continue
        pieces.sort(key=lambda piece: hashlib.sha256(repr(piece[0][0]).encode()).digest())
        total = sum(cost for _, cost in pieces)
        count = max(1 if engine == "endpoint" else copies, round(total / shard_tokens))
        for part in _deal(pieces, min(count, len(pieces))):
            # One arm and set after the other: an engine runs one sampling setting at a time.
            ordered = tuple(sorted(span for spans, _ in part for span in spans))
            tokens = round(sum(cost for _, cost in part))
            shards.append(Shard(len(shards), engine, model, step, tokens, ordered, retry_failed))
    return Plan(study.hash, tuple(shards))


def _pieces(present: Presence, size: int, max_tokens: int) -> list[Piece]:
    """Missing spans of one block, of up to ``size`` samples, with their expected tokens.

    Lengths are learnt from what is there: the problem's own mean, else the block's, else the
    limit, which errs on the long side. Where problems stop, each stays with one worker, which
    alone knows when it has enough right samples.
    """
    block = present.block
    samples = int(present.count.sum())
    typical = present.tokens.sum() / samples if samples else max_tokens
    expected = _expected_samples(present)
    together: dict[int, list[Span]] = {}
    pieces: list[Piece] = []
    for problem, first, last in present.gaps():
        count = present.count[problem]
        length = float(present.tokens[problem] / count if count else typical)
        name = block.problems[problem]
        if expected is not None:
            spans = together.setdefault(problem, [])
            spans.append(Span(block.arm, block.set_name, block.step, name, first, last))
            if len(spans) == 1:
                pieces.append((spans, length * float(expected[problem])))
            continue
        for start in range(first, last, size):
            stop = min(start + size, last)
            span = Span(block.arm, block.set_name, block.step, name, start, stop)
            pieces.append(([span], length * span.size))
    return pieces


def _expected_samples(present: Presence) -> NDArray[np.float64] | None:
    """Samples that each problem is expected to take until it stops; None where none does.

    A rate is Beta(c + ½, n − c + ½) given what is there. Without any samples that is 16 % of
    1,024 for ``stop_after: 16``; simulated problems like MATH500 took 16 to 17 %.
    """
    if not present.block.stop_after:
        return None
    from scipy import special  # takes as long to import as all the rest

    needed = present.block.stop_after - present.right[:, None]
    wrong = present.count[:, None] - present.right[:, None]
    rates = special.betaincinv(present.right[:, None] + 0.5, wrong + 0.5, _QUANTILES)
    left = np.array([present.count_missing(i, 0, int(n)) for i, n in enumerate(present.n)])
    return np.where(needed[:, 0] > 0, np.minimum(needed / rates, left[:, None]).mean(axis=1), left)


def _deal(pieces: list[Piece], count: int) -> list[list[Piece]]:
    """Deal pieces in order into ``count`` piles, always onto the cheapest."""
    piles: list[tuple[float, int]] = [(0.0, i) for i in range(count)]
    dealt: list[list[Piece]] = [[] for _ in range(count)]
    for item in pieces:
        cost, i = heapq.heappop(piles)
        dealt[i].append(item)
        heapq.heappush(piles, (cost + item[1], i))
    return [pile for pile in dealt if pile]
