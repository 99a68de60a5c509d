r"""Samples and right samples per problem: what almost every statistic of this room starts from."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.pass_at_k import pass_at_k

# Tables of every count pay where most problems have equally many samples, and not too many.
_FEW_LENGTHS: Final = 8
_LONGEST_TABLE: Final = 4096
# Above it nothing is left that could be told from the verifier's errors.
_LARGEST_LOG: Final = 40.0
_COLUMNS: Final = ("n", "c", "stop_after", "n_max")


@dataclass(frozen=True)
class Counts:
    """``n`` samples and ``c`` right ones per problem, in one fixed order of problems.

    Comparisons between arms pair problems by position, so both arms must list the same problems
    in the same order.

    ``n, c``: int64, one entry per problem, 0 ≤ c ≤ n. ``stop_after``: int64, one entry per problem:
    sampling ends at this many right samples; 0 where the number of samples was fixed beforehand.
    Then n and c are those of the samples up to there. ``n_max``: int64, one entry per problem:
    samples at which one that stopped would have ended otherwise. ``false_right, missed``: chance
    that the verifier calls a wrong response right, and a right one wrong. Where they are 0, rates
    are those of the verdicts; else :meth:`pass_at_k` is that of the responses.
    """

    n: NDArray[np.int64]
    c: NDArray[np.int64]
    stop_after: NDArray[np.int64]
    n_max: NDArray[np.int64]
    false_right: float = 0.0
    missed: float = 0.0

    @classmethod
    def of(
        cls,
        n: ArrayLike,
        c: ArrayLike,
        stop_after: ArrayLike = 0,
        n_max: ArrayLike | None = None,
    ) -> Counts:
        """Take counts from anything array-like; scalars hold for every problem.

        Where sampling stopped and no ``n_max`` is given, nothing is claimed beyond n.

        >>> Counts.of(8, [0, 3, 8]).n
        array([8, 8, 8])
        """
        given = {"n": n, "c": c, "stop_after": stop_after, "n_max": n if n_max is None else n_max}
        values = [_whole(name, value) for name, value in given.items()]
        n_, c_, stop, most = (np.atleast_1d(a) for a in np.broadcast_arrays(*values))
        if n_.ndim != 1:
            raise UserError(f"counts have {n_.ndim} dimensions; give one entry per problem")
        rules = (
            ((c_ < 0) | (c_ > n_), "0 <= c <= n"),
            (stop < 0, "stop_after >= 0"),
            ((stop > 0) & (c_ > stop), "c <= stop_after, counted up to where sampling stops"),
        )
        for wrong, rule in rules:
            if wrong.any():
                i = int(np.flatnonzero(wrong)[0])
                raise UserError(
                    f"problem {i} has n={n_[i]}, c={c_[i]}, stop_after={stop[i]}; "
                    f"needed is {rule}: count its samples anew"
                )
        return cls(n_, c_, stop, most)

    def __len__(self) -> int:
        """Give the number of problems."""
        return len(self.n)

    @property
    def solved(self) -> NDArray[np.bool_]:
        """Whether a problem was solved at least once."""
        return self.c > 0

    @property
    def stopped(self) -> NDArray[np.bool_]:
        """Whether sampling ended at a right sample; it stands last."""
        return np.asarray((self.stop_after > 0) & (self.c == self.stop_after))

    @property
    def limit(self) -> NDArray[np.int64]:
        """Largest k that each problem supports: its n, or n_max where it stopped.

        While some problems are still on their way to either end, none supports more than the least
        of these has: leaving out the slow ones would leave out the hard ones, and leaving out
        those that stopped the easy ones.
        """
        stopped = self.stopped
        on_the_way = (self.stop_after > 0) & ~stopped & (self.n > 0)
        least = self.n.min(where=on_the_way, initial=np.iinfo(np.int64).max)
        return np.asarray(np.minimum(np.where(stopped, self.n_max, self.n), least))

    @property
    def reach(self) -> int:
        """Largest k that every problem supports."""
        return int(self.limit.min(initial=np.iinfo(np.int64).max)) if len(self) else 0

    @property
    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        r"""Samples and right ones among them that stand in any order: n and c without the last.

        Where sampling stopped, at the r-th right sample, their ratio :math:`(r-1)/(n-1)` is the
        unbiased rate (Haldane, 1945); elsewhere nothing is left out and it is :math:`c/n`.

        >>> Counts.of([100, 21], 3, stop_after=[0, 3]).places
        (array([100,  20]), array([3, 2]))
        """
        return self.n - self.stopped, self.c - self.stopped

    def support(self, k: ArrayLike) -> NDArray[np.int64]:
        """Count the problems that support k."""
        return np.asarray((self.limit[:, None] >= np.atleast_1d(k)).sum(axis=0), np.int64)

    def pass_at_k(self, k: ArrayLike) -> NDArray[np.float64]:
        """Unbiased pass@k of every problem (rows) at every k (columns); NaN above its limit."""
        sizes = np.atleast_1d(k)
        return self.without_errors(self._verdicts_pass_at_k(sizes), sizes)

    def without_errors(
        self, values: NDArray[np.float64], k: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        r"""Take the verifier's errors out of pass@k of verdicts, which stays unbiased.

        A response is judged wrong with probability :math:`(1-p)(1-f)`, where nothing is missed, so
        that :math:`E[(1-p)^k]` is the verdicts' failure rate over :math:`(1-f)^k`. What is missed,
        g, enters at k = 1 alone, :math:`p = (q-f)/(1-f-g)`: at larger k it is the same as a smaller
        k.
        """
        if not self.false_right and not self.missed:
            return values
        lost = -k * np.log1p(-self.false_right)
        right = 1 - (1 - values) * np.exp(np.minimum(lost, _LARGEST_LOG))
        found = 1 - self.missed / (1 - self.false_right)
        return np.where(k == 1, right / found, right)

    def _verdicts_pass_at_k(self, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        lengths = np.unique(self.n)
        longest = int(lengths.max(initial=0))
        if len(lengths) <= _FEW_LENGTHS and longest <= _LONGEST_TABLE and not self.stopped.any():
            values = np.empty((len(self), len(sizes)))
            for n in lengths.tolist():
                of_this_length = self.n == n
                table = _every_count(n, tuple(sizes.tolist()))
                values[of_this_length] = table[self.c[of_this_length]]
            return values
        alike, row, _ = self.alike()
        return alike.broadcast(pass_at_k, sizes)[row]

    def broadcast(
        self, function: Callable[..., NDArray[np.float64]], k: ArrayLike
    ) -> NDArray[np.float64]:
        """Call a function of (n, c, k, stop_after, n_max), problems in rows and k in columns."""
        n, c, stop, most = self._rows[:, :, None]
        return function(n, c, np.atleast_1d(k), stop, most)

    def alike(self) -> tuple[Counts, NDArray[np.int64], NDArray[np.int64]]:
        """Each distinct row once, where every problem's row is among them, and how many have it."""
        rows, row, times = np.unique(self._rows, axis=1, return_inverse=True, return_counts=True)
        return replace(self, **dict(zip(_COLUMNS, rows, strict=True))), row.reshape(-1), times

    @property
    def _rows(self) -> NDArray[np.int64]:
        """All columns as one array; what a problem that did not stop has no use for is 0."""
        stopped = self.stopped
        return np.stack([self.n, self.c, self.stop_after * stopped, self.limit * stopped])

    def refuse_stopped(self, what: str) -> None:
        """Raise where sampling may stop at a right sample, for what needs a fixed number."""
        if (self.stop_after > 0).any():
            i = int(np.flatnonzero(self.stop_after)[0])
            raise UserError(
                f"{what} needs a fixed number of samples, and those of problem {i} end at its "
                f"right sample no. {self.stop_after[i]}; take the first {self.stop_after[i]} "
                "samples of each problem, which all have, or sample without `stop_after`"
            )

    def __getitem__(self, problems: NDArray[np.bool_] | NDArray[np.int64] | slice) -> Counts:
        """Select some problems."""
        return replace(self, **{name: getattr(self, name)[problems] for name in _COLUMNS})


@lru_cache(maxsize=64)
def _every_count(n: int, sizes: tuple[float, ...]) -> NDArray[np.float64]:
    """pass@k at some k of a problem with 0, 1, … n right samples: what curve after curve asks."""
    return pass_at_k(n, np.arange(n + 1)[:, None], np.asarray(sizes))


def check_paired(base: Counts, trained: Counts) -> None:
    """Refuse two arms that cannot list the same problems."""
    if len(base) != len(trained):
        raise UserError(
            f"the base has {len(base)} problems and the trained model {len(trained)}; "
            "a paired comparison needs the same problems in the same order: select the common ones"
        )
    if not len(base):
        raise UserError("there are no problems to compare; check the problem set of both arms")


def _whole(name: str, values: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.dtype.kind in "biu":
        return array.astype(np.int64)
    with np.errstate(invalid="ignore"):
        whole = array.astype(np.int64)
    if (whole != array).any():
        raise UserError(
            f"{name} holds {array[whole != array].flat[0]}; counts are whole numbers: "
            "drop problems whose samples are missing"
        )
    return whole


def pythia() -> dict[str, Counts]:
    """Load counts of three Pythia models on 128 MATH problems, 10,000 samples each.

    The models 2.8B and 6.9B list the same problems in the same order and cross at k = 23; the
    counts of 70M are sorted and pair with nothing.

    Brown et al. (2024), "Large language monkeys", arXiv:2407.21787; samples published under MIT.

    >>> models = pythia()
    >>> round(float(models["6.9B"].pass_at_k(10_000).mean()), 4)
    0.8359
    """
    text = files("rlbhpc.stats").joinpath("data", "pythia.json").read_text(encoding="utf-8")
    data = json.loads(text)
    return {model: Counts.of(data["n"], data[model]) for model in ("70M", "2.8B", "6.9B")}
