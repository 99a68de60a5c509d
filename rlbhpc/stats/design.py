r"""How large a study must be, and how often it may be looked at.

**Power before money**: the smallest loss that a study of some size calls in four of five cases. In
a study in which a share s of the problems is lost for good, twice the log of the likelihood ratio
of "none is lost" grows in proportion to s. A few simulated studies say how fast, and from that
follows the share at which its root lies a normal quantile of the power above the threshold.

**Deciding step by step**: looks at growing data whose error holds at every one of them. Whoever
looks again and again until something is significant finds it too often. The j-th look at a
comparison therefore has the share

.. math:: \frac{1}{j(j+1)}, \qquad \sum_{j=1}^\infty \frac{1}{j(j+1)} = 1

of the error. Any number of looks, at any moment, errs no more often than one look at the end
would. Samples may go where they tell most, since the likelihood of the joint distribution
(:mod:`rlbhpc.stats.joint`) does not depend on why a problem was sampled further.

Lan and DeMets (1983), "Discrete sequential boundaries for clinical trials".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts, check_paired
from rlbhpc.stats.decision import MARGIN
from rlbhpc.stats.interval import PROB
from rlbhpc.stats.joint import Finding, JointRates, Side, finding

#: Share of studies that should call the loss.
CHANCE: Final = 0.8
#: Rates of a base model that nothing is known of yet: never solved, and Beta of the others.
NEVER: Final = 0.15
SHAPE: Final = (0.3, 2.0)
# Two rounds of studies are simulated, each of about so many problems together but not of fewer or
# more studies than these. The first lose this share of their problems.
_ROUNDS: Final = 2
_SIMULATED_PROBLEMS: Final = 2_000
_FEWEST_STUDIES, _MOST_STUDIES = 8, 60
_FIRST_SHARE: Final = 0.15
# A larger study is extrapolated from one of this many problems: the share falls as 1/P.
_LARGEST_SIMULATED: Final = 400
#: A problem is worth more samples while its chance of being lost, or gained, lies between these.
OPEN: Final = (0.02, 0.98)


@dataclass(frozen=True)
class Power:
    """What a study can decide.

    ``share``: the smallest share of problems lost for good, or gained, that is called in 80 % of
    studies; NaN where even a loss of all of them is not.
    """

    problems: int
    n: int
    share: float

    @property
    def count(self) -> float:
        """The same in problems."""
        return float(np.ceil(self.share * self.problems))


def smallest_loss(
    problems: int,
    n: int,
    rng: np.random.Generator,
    comparisons: int = 1,
    rates: NDArray[np.float64] | None = None,
    stop_after: tuple[int, int] = (0, 0),
) -> Power:
    """Find the smallest loss that a study calls in 80 % of cases; the smallest gain is the same.

    ``problems, n``: size of the study, the same n in both arms. ``comparisons``: how many answers
    share the error. ``rates``: success rates of the base to draw from, such as c/n of its first
    samples; where not given, 15 % are 0 and the rest from Beta(0.3, 2). ``stop_after``: right
    samples at which a problem ends, in the base and in what is compared with it; 0 where none does.

    The *deviance of none* is twice the log-likelihood ratio against "none is lost". A loss is
    called where its root exceeds ``threshold``, a normal quantile; for that to happen in 80 % of
    studies, the mean root must lie above the threshold by the normal quantile of 80 %. The deviance
    grows in proportion to the share lost, so the share is scaled, twice, by what is needed over
    what was simulated. A large study is simulated with fewer problems; the share then falls as one
    over their number.
    """
    if problems < 1 or n < 1:
        raise UserError(f"a study of {problems} problems with {n} samples; both must be above 0")
    simulated = min(problems, _LARGEST_SIMULATED)
    studies = min(max(_FEWEST_STUDIES, _SIMULATED_PROBLEMS // simulated), _MOST_STUDIES)
    # "None is lost" is tested one-sidedly, at a quarter of the error.
    threshold = float(special.ndtri(1 - (1 - PROB) / (4 * comparisons)))
    needed_root = threshold + float(special.ndtri(CHANCE))
    share = _FIRST_SHARE
    for _ in range(_ROUNDS):
        deviances = [
            _deviance_of_none(simulated, n, share, rng, rates, stop_after) for _ in range(studies)
        ]
        deviance = np.mean(deviances)
        if deviance <= 0:
            return Power(problems, n, float("nan"))
        share = float(np.clip(share * needed_root**2 / deviance, 1 / simulated, 1.0))
    share *= simulated / problems
    return Power(problems, n, share if share < 1 else float("nan"))


def _deviance_of_none(
    problems: int,
    n: int,
    share: float,
    rng: np.random.Generator,
    rates: NDArray[np.float64] | None,
    stop_after: tuple[int, int],
) -> float:
    """Twice the log of the likelihood ratio of "none is lost" in one simulated study.

    The base's rates are drawn, and copied to the trained model but for the share that is lost,
    whose rate becomes 0. Counts are drawn from both. The joint distribution of the two rates is
    fitted to them freely, and again with no mass on lost problems.

    ``problems, n``: size of the study. ``share``: problems that it loses. ``rates``: rates of a
    base to draw from; without them 15 % are 0 and the others from a Beta. ``stop_after``: right
    samples at which a problem ends, in the base and in the trained model; 0 for never.
    """
    if rates is None:
        base_rates = np.where(rng.random(problems) < NEVER, 0.0, rng.beta(*SHAPE, problems))
    else:
        base_rates = rng.choice(rates, problems)
    trained_rates = base_rates.copy()
    trained_rates[: max(1, round(share * problems))] = 0.0
    base = _draw_counts(base_rates, n, stop_after[0], rng)
    trained = _draw_counts(trained_rates, n, stop_after[1], rng)
    joint = JointRates(base, trained, n)
    best = joint.fit()
    none_lost = joint.fit(best.mass, joint.lost, 0.0)
    return max(2 * (best.log_likelihood - none_lost.log_likelihood), 0.0)


def _draw_counts(
    rates: NDArray[np.float64], n: int, stop_after: int, rng: np.random.Generator
) -> Counts:
    """Counts of an arm that ends each problem at its n-th sample or ``stop_after``-th right one.

    ``rates``: success rate of each problem. ``right_so_far`` has, for each problem and sample
    (problems, n), the right ones up to there; the first that reaches ``stop_after`` is the last one
    drawn.
    """
    if not stop_after:
        return Counts.of(n, rng.binomial(n, rates))
    right_so_far = (rng.random((len(rates), n)) < rates[:, None]).cumsum(axis=1)
    total_right = right_so_far[:, -1]
    # argmax gives the first True of a row; a row without one is replaced below.
    stopping_sample = (right_so_far >= stop_after).argmax(axis=1) + 1
    samples = np.where(total_right >= stop_after, stopping_sample, n)
    return Counts.of(samples, np.minimum(total_right, stop_after), stop_after, n)


@dataclass(frozen=True)
class Look:
    """One look at a comparison.

    ``lost, gained``: what it decides; their intervals hold at all looks together. ``error``: share
    of the error that this look used. ``chances``: of every problem, the chance of being lost and of
    being gained (2, problems).
    """

    lost: Finding
    gained: Finding
    error: float
    chances: NDArray[np.float64]

    def open_problems(self, lost: bool, gained: bool) -> NDArray[np.bool_]:
        """Problems of which more samples can change what, of lost and gained, is undecided."""
        low, high = OPEN
        unclear = (self.chances > low) & (self.chances < high)
        return np.asarray((unclear[0] & lost) | (unclear[1] & gained))


def look(
    base: Counts,
    trained: Counts,
    k: int,
    number: int,
    margin: float = MARGIN,
    comparisons: int = 1,
) -> Look:
    """Look at two arms for the ``number``-th time: was anything lost, was anything gained?

    ``base, trained``: all samples so far of the same problems; each problem may have its own
    number. ``k``: samples that the answer speaks about, whatever was drawn. ``number``: 1 for the
    first look at this comparison, 2 for the second. ``margin``: share of problems below which
    nothing is lost or gained. ``comparisons``: how many share the error.

    ``JointRates`` is the grid of pairs of rates (base, trained), ``best`` the masses fitted to it,
    and a *group* says which pairs are of lost (gained) problems. ``finding`` decides one side and
    bounds its share. Looks at growing data share the error: look j has 1/(j(j + 1)) of it, so that
    any number of looks together keep to it. The chances say of each problem how likely it is lost
    or gained, which tells where more samples help.

    >>> base = Counts.of(64, [0, 30, 60] * 20)
    >>> trained = Counts.of(64, [0, 0, 60] * 20)
    >>> first = look(base, trained, 64, 1)
    >>> str(first.lost.verdict), str(first.gained.verdict), first.error
    ('yes', 'undecided', 0.5)
    """
    check_paired(base, trained)
    error_share = 1 / (number * (number + 1))
    error = (1 - PROB) * error_share
    joint = JointRates(base, trained, k)
    best = joint.fit()
    # Problems that only one arm solved, whatever the number of samples.
    solved_by_one = {
        "lost": int((base.solved & ~trained.solved).sum()),
        "gained": int((trained.solved & ~base.solved).sum()),
    }
    findings, chances = [], []
    for name, group in (("lost", joint.lost), ("gained", joint.gained)):
        side = Side(joint, best, group, seeds=1, unit=np.arange(len(base)))
        result = finding(side, solved_by_one[name], margin, error / comparisons, 1 - error)
        # Where next to nothing seems lost: which problems would be, if as many were as matter?
        fit = best if result.estimate > margin else joint.fit(best.mass, group, margin)
        findings.append(result)
        chances.append(joint.chances(fit, group)[joint.row_of_problem])
    lost, gained = findings
    return Look(lost, gained, error_share, np.stack(chances))
