"""An answer as sentences that a paper or a terminal can show, with every interval in place."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from rlbhpc.stats.binomial import detection_threshold
from rlbhpc.stats.interval import PROB, Interval
from rlbhpc.stats.joint import FACTOR

if TYPE_CHECKING:
    from rlbhpc.stats.decision import Answer
    from rlbhpc.stats.finding import Finding
    from rlbhpc.stats.joint import Contrast

_OTHER: Final = {"lost": "the trained model", "gained": "the base"}


def answer_sentences(answer: Answer) -> tuple[str, ...]:
    """Lost and gained first, then the net, then k = 1, then what was left out."""
    problems = answer.lost.problems
    left_out = _left_out(answer)
    if not answer.solved:
        rate = float(detection_threshold(answer.k))
        return (
            f"Neither model solves any of the {_several(problems, 'problem')} in "
            f"{_several(answer.k, 'sample')} each: "
            f"rates below {100 * rate:.2g} % are not seen. Try easier problems or more samples.",
            *left_out,
        )
    p = "" if math.isnan(answer.p_mcnemar) else f" (McNemar p {p_value(answer.p_mcnemar)})"
    return (
        f"In {_several(answer.k, 'sample')} of each of {_several(problems, 'problem')} the base "
        f"alone solved {answer.lost.count:,} and the trained model alone "
        f"{answer.gained.count:,}{p}.",
        *_finding("lost", answer.lost, answer),
        *_finding("gained", answer.gained, answer),
        f"At k = {answer.k:,} trained minus base is {points(answer.net)} points"
        f"{_against(answer)}{_at_one(answer)}.",
        _further(answer),
        *_crossing(answer),
        *_trainings(answer),
        *left_out,
    )


def _trainings(answer: Answer) -> tuple[str, ...]:
    """Tell the components of the variance, where a recipe was trained several times."""
    if answer.spread is None:
        return ()
    problems, seeds, rest = (
        f"{100 * value:.1f}"
        for value in (answer.spread.problems, answer.spread.seeds, answer.spread.rest)
    )
    return (
        f"Mean of {answer.seeds} seeds. The difference at k = {answer.k:,} has a standard "
        f"deviation of {seeds} points between seeds, {problems} between problems "
        f"and {rest} of the rest.",
    )


def _finding(verb: str, side: Finding, answer: Answer) -> tuple[str, ...]:
    """Say what the joint model says of one side."""
    high, margin = f"{100 * side.high:.1f}", f"{100 * answer.margin:g}"
    if side.verdict == "yes":
        few = ""
        if side.high < answer.margin:
            few = f", fewer than the margin of {margin} %"
        elif side.estimate < answer.margin:
            few = f"; whether as many as the margin of {margin} % is open"
        interval = f"[{100 * side.low:.1f}, {high}] % of problems{few}"
        if math.isnan(side.low):
            interval = f"% of problems; from {answer.seeds} seeds that share has no sound interval"
        return (
            f"Truly {verb}, in that {_OTHER[verb]} needs at least {FACTOR:g} times the samples: "
            f"{100 * side.estimate:.1f} {interval}.",
        )
    if side.verdict == "no":
        return (f"Truly {verb}: at most {high} % of problems, below the margin of {margin} %.",)
    slower = "slower" if verb == "lost" else "quicker"
    return (
        f"It is undecided whether problems were truly {verb} or it is only {slower}: between 0 "
        f"and {high} % of them.",
    )


def _further(answer: Answer) -> str:
    """Say what the joint model says of more samples than there are, and what stays open."""
    _, more, limit = answer.contrasts
    return (
        f"The fit of all rates puts it at {_open(more)} at k = {more.k:,.0f} and at {_open(limit)} "
        "in the limit."
    )


def _open(contrast: Contrast) -> str:
    fit, low, high = (f"{100 * v:+.1f}" for v in (contrast.fit, contrast.low, contrast.high))
    return f"{fit} (open: {low} to {high})"


def _crossing(answer: Answer) -> tuple[str, ...]:
    if answer.crossing is None:
        return ()
    low, high = answer.crossing.low, answer.crossing.high
    last = f"beyond {answer.k:,}" if math.isinf(high) else f"{high:,.0f}"
    return (
        f"The curves last cross at k = {float(answer.crossing.estimate):,.0f}; the data allow "
        f"{low:,.0f} to {last}.",
    )


def _against(answer: Answer) -> str:
    """Point out where the counted cells and the interval of the net disagree."""
    if math.isnan(answer.p_mcnemar) or math.isnan(answer.net.low):
        return ""
    if bool(answer.net.sign) == (answer.p_mcnemar < 1 - PROB):
        return ""
    return " (the interval and McNemar's test disagree: take it as open)"


def _at_one(answer: Answer) -> str:
    return f"; at k = 1 it is {points(answer.efficiency)}" if answer.k > 1 else ""


def _left_out(answer: Answer) -> tuple[str, ...]:
    number = len(answer.left_out)
    if not number:
        return ()
    verb = "is" if number == 1 else "are"
    return (
        f"{_several(number, 'problem')} with fewer than {_several(answer.k, 'sample')} {verb} "
        "left out.",
    )


def _several(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def points(interval: Interval, form: str = "+.1f") -> str:
    """``+2.3 [-1.7, +6.4]``, with ``?`` behind unsound bounds; alone where there are none."""
    ends = interval.estimate, interval.lower, interval.upper
    middle, low, high = ("–" if np.isnan(end) else f"{100 * float(end):{form}}" for end in ends)
    if low == "–" and middle != "–":
        return middle
    return f"{middle} [{low}, {high}]{'' if bool(interval.sound) else ' ?'}"


def p_value(value: float) -> str:
    """Print a p-value with its relation, in three digits."""
    if value < 0.0005:
        return "< .001"
    return "= 1" if value >= 0.9995 else "= " + f"{value:.3f}"[1:]
