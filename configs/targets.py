"""Countdown with its target as the reference answer, for RLPR; and who judges it for the curves."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlbhpc.problems.countdown import SET as COUNTDOWN
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import ProblemSet, Selection
from rlbhpc.verify.kinds import countdown
from rlbhpc.verify.verdict import Verdict


@dataclass(frozen=True)
class Targets(ProblemSet):
    """The same problems; what a response should end with is all that the gold answer tells."""

    def load(self, selection: Selection) -> list[Problem]:
        """Countdown's problems of the same names."""
        return [replace(p, gold=str(p.extras["target"])) for p in COUNTDOWN.load(selection)]


SET = Targets()


def verify(gold: str, response: str, problem: Problem) -> Verdict:
    """Judge as Countdown does, which needs the whole task."""
    task = f"{problem.fields['question']} ({problem.extras['operations']})"
    return countdown.verify(task, response)
