"""The partial-prompt probe: the beginning of a question, to see whether a model knows the rest.

A model that has read a benchmark completes its questions word for word, which it cannot do for one
that it has never seen (Wu et al. 2025, "Reasoning or Memorization?", arXiv 2507.10532).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem

VERIFIER: Final = "probe"
#: What a response may do: go on as the question does, and answer the question.
COMPLETED: Final = "completed"
ANSWERED: Final = "answered"
BOTH: Final = f"{COMPLETED}, {ANSWERED}"
OUTCOMES: Final = (BOTH, COMPLETED, ANSWERED, "neither")
_WORDS: Final = re.compile(r"\s*\S+")


def probed(problem: Problem, share: float) -> Problem:
    """The first ``share`` of a question's words; what follows them is the gold answer.

    The problem itself stays in the extras, for the verifier that judges the answer.
    """
    question = problem.fields["question"]
    words = _WORDS.findall(question)
    if len(words) < 2:
        raise UserError(f"problem {problem.id}: a question of one word cannot be probed")
    visible = min(max(1, math.ceil(share * len(words))), len(words) - 1)
    whole = {
        "question": question,
        "gold": problem.gold,
        "verifier": problem.verifier,
        "extras": dict(problem.extras),
    }
    return replace(
        problem,
        fields={**problem.fields, "question": "".join(words[:visible])},
        gold="".join(words[visible:]).strip(),
        verifier=VERIFIER,
        extras={"whole": whole},
        solution="",
    )


def whole_problem(problem: Problem) -> Problem:
    """The problem whose beginning a probe shows."""
    whole: Mapping[str, Any] = problem.extras["whole"]
    return replace(
        problem,
        fields={**problem.fields, "question": whole["question"]},
        gold=whole["gold"],
        verifier=whole["verifier"],
        extras=whole["extras"],
    )
