"""Tasks on small programs: generated, or the identity alone, from which Absolute Zero begins."""

from __future__ import annotations

from dataclasses import dataclass

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import ProblemSet, Selection
from rlbhpc.problems.programs import IDENTITY, KINDS, generated, solving


@dataclass(frozen=True)
class ProgramTasks(ProblemSet):
    """The halves ``train`` and ``test`` (the default) of a grammar, or ``identity``."""

    def load(self, selection: Selection) -> list[Problem]:
        """``limit`` problems of a half, or one of each kind about the identity."""
        name, path = selection.name, selection.path
        half = selection.subset or "test"
        if path is not None or half not in ("train", "test", "identity"):
            raise UserError(
                f"problem set {name!r} is generated: give no path, and of the subsets train, test "
                f"and identity one; found {str(path or half)!r}"
            )
        if half == "identity":
            texts = [f"[{i}]" for i in range(6)]
            values = [str(i) for i in range(6)]
            size = {"deduction": 1, "abduction": 1, "induction": 6}
            return [
                solving(name, kind, {"program": IDENTITY, "inputs": texts[: size[kind]],
                                     "outputs": values[: size[kind]]})
                for kind in KINDS
            ]  # fmt: skip
        return generated(name, half, selection.count, selection.seed)


SET = ProgramTasks()
