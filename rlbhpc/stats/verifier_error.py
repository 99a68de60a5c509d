r"""Errors of a verifier: what is known of them, and what a verdict by chance alone would reach.

Of wrong responses a share f is judged right, and of right ones a share g is judged wrong, so that a
response of a problem with rate p is judged right with probability

.. math:: q = p\,(1-g) + (1-p)\,f .

An audit reads responses by verdict. With a share A of accepted responses of which d are false, and
a share o of refused ones that are right, Bayes' rule gives

.. math:: f = \frac{A d}{A d + (1-A)(1-o)}, \qquad g = \frac{(1-A)\,o}{(1-A)\,o + A(1-d)} .

The counts bound f too, from above: no problem can be judged right less often than f. From below
they say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.exact import clopper_pearson
from rlbhpc.stats.interval import PROB

# Numbers of right samples that the bound by the counts looks at.
_FEW_RIGHT: Final = np.array([0, 1, 2, 4, 8, 16, 32, 64])
# A verifier that accepts more wrong responses than this tells nothing.
_LARGEST_FALSE_RIGHT: Final = 0.5


@dataclass(frozen=True)
class Told:
    """Error rates of a verifier that someone states.

    ``false_right, missed``: share of wrong responses judged right, and of right ones judged wrong.
    """

    false_right: float
    missed: float = 0.0

    def __post_init__(self) -> None:
        if not (self.false_right >= 0 and self.missed >= 0 and self.false_right + self.missed < 1):
            raise UserError(
                f"error rates of the verifier are {self.false_right} and {self.missed}; allowed "
                "are shares from 0 that add up to less than 1"
            )


@dataclass(frozen=True)
class ErrorCounts:
    """What an audit of one arm found; fractions are allowed, as of weighted samples.

    ``false_right, audited_right``: responses judged right that are wrong, of how many that were
    read. ``false_wrong, audited_wrong``: responses judged wrong that are right, of how many.
    """

    false_right: float
    audited_right: float
    false_wrong: float = 0.0
    audited_wrong: float = 0.0


#: What is known of the verifier in one arm; None: nothing.
Errors = Told | ErrorCounts | None


@dataclass(frozen=True)
class ErrorRange:
    """Rate f of false right verdicts in one arm: estimate and bounds, and the rate g of misses."""

    low: float
    estimate: float
    high: float
    missed: float


def error_range(errors: Errors, counts: Counts, prob: float = PROB) -> ErrorRange:
    """Range of the rate of false right verdicts that an audit, and the counts, leave.

    ``errors``: what is known of the verifier: ``Told`` states rates, an audit counts the errors
    among the responses that were read again, by verdict. Of a verifier of which nothing is known no
    error is assumed: what its errors would change is reported as a tipping point. ``counts``: of
    the arm. ``prob``: probability of the range.

    An audit gives the share of accepted responses that are wrong, with an exact interval (Clopper
    and Pearson). What is wanted is the share of wrong responses that are accepted: Bayes' rule
    turns one into the other, with the share of all samples that were ``accepted``. The same gives
    ``missed``, the share of right responses judged wrong.
    """
    if isinstance(errors, Told):
        stated = errors.false_right
        return ErrorRange(low=stated, estimate=stated, high=stated, missed=errors.missed)
    if errors is None or not errors.audited_right > 0:
        return ErrorRange(low=0.0, estimate=0.0, high=0.0, missed=0.0)
    accepted = float(counts.c.sum() / max(counts.n.sum(), 1))
    refused_but_right = 0.0
    if errors.audited_wrong > 0:
        refused_but_right = errors.false_wrong / errors.audited_wrong
    accepted_but_wrong = clopper_pearson(errors.false_right, errors.audited_right, prob)
    largest = largest_false_right(counts, prob)

    def false_right(wrong_of_accepted: float) -> float:
        """Share of wrong responses that are accepted, no larger than the counts allow."""
        wrong_accepted = accepted * wrong_of_accepted
        wrong = wrong_accepted + (1 - accepted) * (1 - refused_but_right)
        return min(wrong_accepted / wrong if wrong > 0 else 0.0, largest)

    right_accepted = accepted * (1 - float(accepted_but_wrong.estimate))
    right_refused = (1 - accepted) * refused_but_right
    missed = right_refused / (right_refused + right_accepted) if right_refused else 0.0
    return ErrorRange(
        low=false_right(accepted_but_wrong.low),
        estimate=false_right(float(accepted_but_wrong.estimate)),
        high=false_right(accepted_but_wrong.high),
        missed=missed,
    )


def largest_false_right(counts: Counts, prob: float = PROB) -> float:
    """Largest rate of false right verdicts that agrees with the rarest counts.

    With a rate f, every problem has at least f as its chance of a right verdict. So the share of
    problems with at most x right samples is at most the binomial's. The observed share has an exact
    lower bound, and f can be no larger than where the two meet. The result is the smallest such f
    over several x.

    ``most_right``: the values of x. ``problems``: how many problems have at most x right samples.
    ``tail``: error probability, shared among the x. ``samples``: fewest of any problem. An x that
    no problem is at or below says nothing.
    """
    samples = int(counts.n.min())
    most_right = _FEW_RIGHT[samples > _FEW_RIGHT]
    problems = (counts.c[:, None] <= most_right).sum(axis=0)
    tail = (1 - prob) / max(len(most_right), 1)
    others = len(counts) - problems
    # Clopper and Pearson's lower bound of the share of problems with so few right samples.
    least_share = special.betaincinv(np.maximum(problems, 1), others + 1, tail)
    # Rate at which the binomial gives at most x right samples with just that probability; .5 stands
    # in where there are no such problems.
    rates = special.bdtri(most_right, samples, np.where(problems > 0, least_share, 0.5))
    rates = np.where(problems > 0, rates, _LARGEST_FALSE_RIGHT)
    return float(rates.min(initial=_LARGEST_FALSE_RIGHT))


def chance_at_k(rate: ArrayLike, k: ArrayLike) -> NDArray[np.float64]:
    r"""pass@k of a problem that is judged right by chance alone, :math:`1-(1-r)^k`.

    ``rate``: of false right verdicts, or of a guess: one over the number of answers that are as
    likely as another, 1/4 of four choices and 1/1000 of the integers from 0 to 999. A curve says
    something of solving where it lies above this one, and Cover@τ where τ lies above the rate.

    >>> chance_at_k(0.01, [1, 100, 1024]).round(3)
    array([0.01 , 0.634, 1.   ])
    >>> chance_at_k(1 / 1000, [1, 1024]).round(3)
    array([0.001, 0.641])
    """
    share = np.asarray(rate, np.float64)
    if not ((share >= 0) & (share <= 1)).all():
        raise UserError(f"rate of right verdicts by chance: found {rate!r}; allowed: 0 to 1")
    with np.errstate(divide="ignore"):
        return np.asarray(-np.expm1(np.asarray(k, np.float64) * np.log1p(-share)))
