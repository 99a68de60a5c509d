"""An answer as sentences that a paper or a terminal can show, with every interval in place."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from rlbhpc.stats.binomial import detection_threshold
from rlbhpc.stats.interval import PROB, Interval
from rlbhpc.stats.joint import FACTOR

if TYPE_CHECKING:
    from rlbhpc.stats.decision import Answer
    from rlbhpc.stats.finding import Finding

_OTHER: Final = {"lost": "the trained model", "gained": "the base"}
# More times the data than anybody would buy.
_MANY: Final = 30.0


def answer_sentences(found: Answer) -> tuple[str, ...]:
    """Lost and gained first, then the net, then k = 1, then what was left out."""
    problems = found.lost.problems
    left_out = _left_out(found)
    if not found.solved:
        rate = float(detection_threshold(found.k))
        return (
            f"Neither model solves any of the {problems:,} problems in {found.k:,} samples each: "
            f"rates below {100 * rate:.2g} % are not seen. Try easier problems or more samples.",
            *left_out,
        )
    p = "" if math.isnan(found.p_mcnemar) else f" (McNemar p {p_value(found.p_mcnemar)})"
    return (
        f"In {found.k:,} samples it lost {found.lost.count:,} of {problems:,} problems and gained "
        f"{found.gained.count:,}{p}.",
        *_finding("lost", found.lost, found),
        *_finding("gained", found.gained, found),
        f"At k = {found.k:,} trained minus base is {points(found.net)} points"
        f"{_against(found)}; at k = 1 it is {points(found.efficiency)}.",
        *_trainings(found),
        *left_out,
    )


def _trainings(found: Answer) -> tuple[str, ...]:
    """Tell the components of the variance, where a recipe was trained several times."""
    if found.spread is None:
        return ()
    problems, seeds, rest = (
        f"{100 * value:.1f}"
        for value in (found.spread.problems, found.spread.seeds, found.spread.rest)
    )
    return (
        f"Mean of {found.seeds} seeds. The difference at k = {found.k:,} has a standard deviation "
        f"of {seeds} points between seeds, {problems} between problems and {rest} of the rest.",
    )


def _finding(verb: str, side: Finding, found: Answer) -> tuple[str, ...]:
    """Say what the joint model says of one side, and what would decide it."""
    high, margin = f"{100 * side.high:.1f}", f"{100 * found.margin:g}"
    if side.verdict == "yes":
        few = f", fewer than the margin of {margin} %" if side.high < found.margin else ""
        return (
            f"Truly {verb}, in that {_OTHER[verb]} needs at least {FACTOR:g} times the samples: "
            f"{100 * side.estimate:.1f} [{100 * side.low:.1f}, {high}] % of problems{few}.",
        )
    if side.verdict == "no":
        return (f"Truly {verb}: at most {high} % of problems, below the margin of {margin} %.",)
    slower = "slower" if verb == "lost" else "quicker"
    told = (
        f"It is undecided whether problems were truly {verb} or it is only {slower}: between 0 "
        f"and {high} % of them."
    )
    if side.more > _MANY:
        return (told,)
    problems, samples = side.more * side.problems, side.more * found.k
    return (
        f"{told} About {_round(problems)} problems, or {_round(samples)} samples of each, would "
        "decide it.",
    )


def _against(found: Answer) -> str:
    """Point out where the counted cells and the interval of the net disagree."""
    if math.isnan(found.p_mcnemar) or bool(found.net.sign) == (found.p_mcnemar < 1 - PROB):
        return ""
    return " (the interval and McNemar's test disagree: take it as open)"


def _left_out(found: Answer) -> tuple[str, ...]:
    number = len(found.left_out)
    if not number:
        return ()
    noun = "problem" if number == 1 else "problems"
    verb = "is" if number == 1 else "are"
    return (f"{number:,} {noun} with fewer than {found.k:,} samples {verb} left out.",)


def _round(value: float) -> str:
    """Two digits of a large number."""
    digits = max(0, math.floor(math.log10(value)) - 1)
    return f"{math.ceil(value / 10**digits) * 10**digits:,}"


def points(interval: Interval) -> str:
    """``+2.3 [-1.7, +6.4]``; the estimate alone where there are no bounds."""
    if math.isnan(interval.low):
        return f"{100 * float(interval.estimate):+.1f}"
    values = (interval.estimate, interval.lower, interval.upper)
    middle, low, high = (f"{100 * float(v):+.1f}" for v in values)
    return f"{middle} [{low}, {high}]"


def p_value(value: float) -> str:
    """Print a p-value with its relation, in three digits."""
    if value < 0.0005:
        return "< .001"
    return "= 1" if value >= 0.9995 else "= " + f"{value:.3f}"[1:]
