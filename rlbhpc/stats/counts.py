r"""Samples and right samples per problem: what almost every statistic of this room starts from."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.pass_at_k import check_counts, pass_at_k, whole_numbers

# Log of the largest factor by which failures are scaled up for a verifier's errors; beyond it
# nothing is left that could be told from them.
_LARGEST_LOG_SCALE: Final = 40.0
# Stands for "no limit to k".
_NO_LIMIT: Final = np.iinfo(np.int64).max
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

        ``n, c``: samples of each problem, and right ones among them. ``stop_after``: right samples
        at which sampling ends; 0 if it does not. ``n_max``: samples at which a problem that stopped
        would have ended otherwise.

        >>> Counts.of(8, [0, 3, 8]).n
        array([8, 8, 8])
        """
        # Each becomes an int64 array with an entry per problem; fractions are refused.
        columns = np.broadcast_arrays(
            whole_numbers("n", n),
            whole_numbers("c", c),
            whole_numbers("stop_after", stop_after),
            whole_numbers("n_max", n if n_max is None else n_max),
        )
        n_, c_, stop_after_, n_max_ = (np.atleast_1d(column) for column in columns)
        if n_.ndim != 1:
            raise UserError(f"counts have {n_.ndim} dimensions; give one entry per problem")
        check_counts(n_, c_, stop_after_)
        return cls(n_, c_, stop_after_, n_max_)

    def __len__(self) -> int:
        """Give the number of problems."""
        return len(self.n)

    def __getitem__(self, problems: NDArray[np.bool_] | NDArray[np.int64] | slice) -> Counts:
        """Select some problems."""
        return replace(self, **{name: getattr(self, name)[problems] for name in _COLUMNS})

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
        unfinished = (self.stop_after > 0) & ~stopped & (self.n > 0)
        least_unfinished = self.n.min(where=unfinished, initial=_NO_LIMIT)
        return np.asarray(np.minimum(np.where(stopped, self.n_max, self.n), least_unfinished))

    @property
    def reach(self) -> int:
        """Largest k that every problem supports."""
        return int(self.limit.min(initial=_NO_LIMIT)) if len(self) else 0

    @property
    def exchangeable(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        r"""Samples, and right ones among them, whose order is left to chance.

        Where sampling stopped, at the r-th right sample, that one always stands last and is left
        out: the ratio :math:`(r-1)/(n-1)` of the others is the unbiased rate (Haldane, 1945).
        Elsewhere nothing is left out and the ratio is :math:`c/n`.

        >>> Counts.of([100, 21], 3, stop_after=[0, 3]).exchangeable
        (array([100,  20]), array([3, 2]))
        """
        return self.n - self.stopped, self.c - self.stopped

    def support(self, k: ArrayLike) -> NDArray[np.int64]:
        """Count the problems that support k."""
        return np.asarray((self.limit[:, None] >= np.atleast_1d(k)).sum(axis=0), np.int64)

    def pass_at_k(self, k: ArrayLike) -> NDArray[np.float64]:
        """Unbiased pass@k of every problem (rows) at every k (columns); NaN above its limit."""
        sizes = np.atleast_1d(k)
        distinct, row_of_problem, _ = self.distinct_rows()
        verdicts_pass_at_k = distinct.broadcast(pass_at_k, sizes)[row_of_problem]
        return self.without_errors(verdicts_pass_at_k, sizes)

    def without_errors(
        self, values: NDArray[np.float64], k: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Take the verifier's errors out of pass@k of verdicts, which stays unbiased.

        ``values``: pass@k of the verdicts (problems, sizes). ``k``: sizes.

        A response to a problem of rate p is judged wrong with probability :math:`(1-p)(1-f)`, where
        f is the rate of false rights (``false_right``) and nothing is missed. So :math:`E[(1-p)^k]`
        is the verdicts' failure rate over :math:`(1-f)^k`. What is missed (``missed``), g, enters
        at k = 1 alone, :math:`p = (q-f)/(1-f-g)` for verdicts of rate q: at larger k it is the same
        as a smaller k.

        One over :math:`(1-f)^k` is computed from its log, which is capped so that it does not
        overflow at large k.
        """
        if not self.false_right and not self.missed:
            return values
        log_scale = -k * np.log1p(-self.false_right)
        right = 1 - (1 - values) * np.exp(np.minimum(log_scale, _LARGEST_LOG_SCALE))
        share_not_missed = 1 - self.missed / (1 - self.false_right)
        return np.where(k == 1, right / share_not_missed, right)

    def broadcast(
        self, function: Callable[..., NDArray[np.float64]], k: ArrayLike
    ) -> NDArray[np.float64]:
        """Call a function of (n, c, k, stop_after, n_max), problems in rows and k in columns."""
        n, c, stop_after, n_max = self._rows[:, :, None]
        return function(n, c, np.atleast_1d(k), stop_after, n_max)

    def distinct_rows(self) -> tuple[Counts, NDArray[np.int64], NDArray[np.int64]]:
        """Counts without repeats, the position of every problem's among them, and how many repeat.

        The last says of each distinct row how many problems have it.
        """
        rows, row_of_problem, problems_in_row = np.unique(
            self._rows, axis=1, return_inverse=True, return_counts=True
        )
        distinct = replace(self, **dict(zip(_COLUMNS, rows, strict=True)))
        return distinct, row_of_problem.reshape(-1), problems_in_row

    @property
    def _rows(self) -> NDArray[np.int64]:
        """All columns (columns, problems), with 0 for those that only stopped problems need."""
        stopped = self.stopped
        return np.stack([self.n, self.c, self.stop_after * stopped, self.limit * stopped])


def check_paired(base: Counts, trained: Counts) -> None:
    """Refuse two arms that cannot list the same problems: other numbers of them, or none."""
    if len(base) != len(trained):
        raise UserError(
            f"the base has {len(base)} problems and the trained model {len(trained)}; "
            "a paired comparison needs the same problems in the same order: select the common ones"
        )
    if not len(base):
        raise UserError("there are no problems to compare; check the problem set of both arms")


def pythia() -> dict[str, Counts]:
    """Load counts of three Pythia models on 128 MATH problems, 10,000 samples each.

    The models 2.8B and 6.9B list the same problems in the same order and cross at k = 23; the
    counts of 70M are sorted and pair with nothing.

    Brown et al. (2024), "Large language monkeys", arXiv:2407.21787; samples published under MIT.

    >>> models = pythia()
    >>> round(float(models["6.9B"].pass_at_k(10_000).mean()), 4)
    0.8359
    """
    file = files("rlbhpc.stats").joinpath("data", "pythia.json")
    data = json.loads(file.read_text(encoding="utf-8"))
    return {model: Counts.of(data["n"], data[model]) for model in ("70M", "2.8B", "6.9B")}
