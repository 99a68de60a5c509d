"""The scorers of reasoning-gym, made before a sandbox closes: some read files of the package."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import reasoning_gym
from reasoning_gym.factory import DATASETS

Score = Callable[[str | None, dict[str, Any]], float]


def _load_scorers() -> dict[str, Score]:
    """Load the scorer of every task that has one of its own."""
    scorers: dict[str, Score] = {}
    for task in DATASETS:
        # A task that is composed of other tasks needs their settings, and raises.
        with suppress(AssertionError, ValueError):
            scorers[task] = reasoning_gym.get_score_answer_fn(task)
    return scorers


SCORERS: Final = _load_scorers()


def score(task: str, answer: str, entry: dict[str, Any]) -> float:
    """Return what the task's own scorer gives an answer, from 0 to 1."""
    return float(SCORERS[task](answer, entry))
