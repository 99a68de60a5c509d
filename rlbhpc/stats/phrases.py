"""A conclusion as sentences that a paper or a terminal can show, with every interval in place."""

from __future__ import annotations

from rlbhpc.stats.coverage_table import coverage
from rlbhpc.stats.difference import DifferenceCurve
from rlbhpc.stats.extrapolation import FACTOR
from rlbhpc.stats.interval import Interval
from rlbhpc.stats.mcnemar import least_discordant
from rlbhpc.stats.words import Boundary, Conclusion, Headline

_SAYS: dict[Headline, str] = {
    Headline.SHRINKS: "the reasoning boundary shrinks",
    Headline.EXPANDS: "the reasoning boundary expands",
    Headline.ONLY_SHARPENS: "training only sharpens: more right at k = 1, the same boundary",
    Headline.ONLY_BLUNTS: "training only blunts: fewer right at k = 1, the same boundary",
    Headline.UNCHANGED: "nothing changes at any k",
    Headline.CROSSES_TWICE: "the curves cross more than once",
    Headline.UNDECIDED: "the data do not decide the boundary",
}


def sentences(conclusion: Conclusion, curve: DifferenceCurve) -> tuple[str, ...]:
    """Tell who leads where, what is solved, and what follows.

    Parameters
    ----------
    conclusion
        The conclusion drawn from ``curve``.
    curve
        The difference curve.

    Returns
    -------
    tuple of str
        The lead, the coverage (where both models have the same number of samples), the answer,
        and, where it is undecided, why.

    Examples
    --------
    >>> import textwrap
    >>> import numpy as np
    >>> from rlbhpc.stats.difference import difference_curve
    >>> from rlbhpc.stats.examples import pythia
    >>> from rlbhpc.stats.weights import ProblemWeights
    >>> from rlbhpc.stats.words import conclude
    >>> models = pythia()
    >>> weights = ProblemWeights.draw(128, np.random.default_rng(0))
    >>> curve = difference_curve(models["2.8B"], models["6.9B"], weights)
    >>> for sentence in sentences(conclude(curve, weights), curve):
    ...     print(textwrap.fill(sentence, 80))
    By estimate the curves cross, at k = 23; the data allow [≤ 1, ≥ 10,000],
    P(crossing ≤ 10,000) = .94.
    In 10,000 samples the trained model solves 4 of 128 problems that the base does
    not, and the base 1 that the trained model does not (McNemar p = .375; with
    fewer than 6 no p < .05 is possible).
    At k = 10,000 trained minus base is +2.3 [-1.7, +6.4] points: the data do not
    decide the boundary.
    The interval holds 0 and more than a margin of 2 points: more problems or more
    samples are needed.
    """
    parts = [_lead(conclusion, curve), _coverage(curve), _answer(conclusion), _why(conclusion)]
    return tuple(part for part in parts if part)


def _lead(conclusion: Conclusion, curve: DifferenceCurve) -> str:
    found, reach = conclusion.crossing, conclusion.reach
    leader = _name(curve.pointwise.estimate[0])
    chance = f"P(crossing ≤ {reach:,}) {_share(found.probability)}"
    if not len(found.points):
        if conclusion.crossings == 0:
            return f"{leader} leads at every k up to {reach:,}; the curves never cross."
        return f"{leader} is ahead at k = 1 and the curves do not cross up to {reach:,}; {chance}."
    where = ", ".join(f"{k:,}" for k in found.first_k.tolist())
    sets = " and ".join(str(part) for part in found.sets)
    times = {1: "", 2: " twice"}.get(len(found.points), f" {len(found.points)} times")
    if conclusion.crossings:
        return f"{leader} leads first; the curves cross{times}, at k = {where} {sets}."
    return f"By estimate the curves cross{times}, at k = {where}; the data allow {sets}, {chance}."


def _coverage(curve: DifferenceCurve) -> str:
    if (curve.base.n != curve.trained.n).any() or len(set(curve.base.n.tolist())) != 1:
        return ""
    table = coverage(curve.base.c, curve.trained.c)
    mine, theirs = len(table.trained_only), len(table.base_only)
    p = f"McNemar p {_p_value(table.p_value)}"
    if not table.decidable:
        p += f"; with fewer than {least_discordant()} no p < .05 is possible"
    return (
        f"In {int(curve.base.n[0]):,} samples the trained model solves {mine} of "
        f"{len(curve.base)} problems that the base does not, and the base {theirs} that the "
        f"trained model does not ({p})."
    )


def _answer(conclusion: Conclusion) -> str:
    says = _SAYS[conclusion.headline]
    points = _points(conclusion.at_reach)
    return f"At k = {conclusion.reach:,} trained minus base is {points} points: {says}."


def _why(conclusion: Conclusion) -> str:
    if conclusion.headline is not Headline.UNDECIDED:
        return ""
    if conclusion.catches_up:
        return (
            f"The model ahead at k = {conclusion.reach:,} had a head start, and the other one may "
            f"catch up within {FACTOR} times as many samples: sample further."
        )
    if conclusion.boundary is Boundary.SAME:
        return (
            f"The boundary is the same within {conclusion.margin * 100:g} points, but no "
            "difference at smaller k is established."
        )
    if int(conclusion.at_reach.sign):
        return (
            "This interval leaves 0 out by itself, but no difference there is established over "
            "all k together: more problems or more samples are needed."
        )
    return (
        "The interval holds 0 and more than a margin of "
        f"{conclusion.margin * 100:g} points: more problems or more samples are needed."
    )


def _name(difference: float) -> str:
    return "The trained model" if difference > 0 else "The base"


def _points(interval: Interval) -> str:
    values = (interval.estimate, interval.lower, interval.upper)
    middle, low, high = (f"{100 * float(v):+.1f}" for v in values)
    return f"{middle} [{low}, {high}]"


def _p_value(value: float) -> str:
    """Print a p-value with its relation, in three digits."""
    if value < 0.0005:
        return "< .001"
    return "= 1" if value >= 0.9995 else "= " + f"{value:.3f}"[1:]


def _share(value: float) -> str:
    """Print a probability with its relation, in two digits and never rounded to 0 or 1."""
    if 0 < value < 0.005:
        return "< .005"
    if 0.995 < value < 1:
        return "> .995"
    return f"= {value:.0f}" if value in (0, 1) else "= " + f"{value:.2f}"[1:]
