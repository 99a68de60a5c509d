"""The problem sets by name: one line each, and those that a study or a package brings."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Final

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.problems import countdown
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import ProblemSet, Selection
from rlbhpc.problems.sets import generated, mathematics, questions

SETS: Final[dict[str, ProblemSet]] = {
    "gsm8k": mathematics.GSM8K,
    "math": mathematics.MATH,
    "math500": mathematics.MATH500,
    "minerva": mathematics.MINERVA,
    "olympiadbench": mathematics.OLYMPIADBENCH,
    "aime24": mathematics.AIME24,
    "aime25": mathematics.AIME25,
    "aime26": mathematics.AIME26,
    "hmmt25": mathematics.HMMT25,
    "hmmt26": mathematics.HMMT26,
    "beyondaime": mathematics.BEYOND_AIME,
    "livemathbench": mathematics.LIVE,
    "amc23": mathematics.AMC23,
    "omni-math-rule": mathematics.OMNI,
    "dapo-math": mathematics.DAPO_MATH,
    "humaneval+": questions.HUMANEVAL,
    "mbpp+": questions.MBPP,
    "livecodebench": questions.LIVECODEBENCH,
    "geometry3k": questions.GEOMETRY3K,
    "mathvista": questions.MATHVISTA,
    "mathvision": questions.MATHVISION,
    "mmlu-pro": questions.MMLU_PRO,
    "gpqa": questions.GPQA,
    "theoremqa": questions.THEOREMQA,
    "webinstruct-verified": questions.WEBINSTRUCT,
    "rlpr-train": questions.RLPR_TRAIN,
    "countdown": countdown.SET,
    "compose": generated.COMPOSE,
    "program-tasks": generated.PROGRAM_TASKS,
    "reasoning-gym": generated.REASONING_GYM,
}


def set_names() -> list[str]:
    """Names of all problem sets, those of installed packages last."""
    return list(dict.fromkeys((*SETS, *plugins.installed("problem_sets"))))


def is_set(name: str) -> bool:
    """Whether a name, or a file of the study's own, stands for a problem set."""
    return name in SETS or plugins.is_file(name) or name in plugins.installed("problem_sets")


def get_set(name: str) -> ProblemSet:
    """Find a problem set by its registered name, or in the user's Python file (``./mine.py``)."""
    if name in SETS:
        plugins.reject_own_name("problem_sets", name)
        return SETS[name]
    plugin = plugins.find("problem_sets", name)
    if plugin is None:
        near = difflib.get_close_matches(name, set_names(), n=1)
        hint = f"; nearest: {near[0]}" if near else ""
        raise UserError(f"problem set {name!r} is unknown{hint}; allowed: {', '.join(set_names())}")
    if not isinstance(plugin.value, ProblemSet):
        value = " ".join(repr(plugin.value).split())[:80]
        raise UserError(f"{name}: found {value}; allowed: a ProblemSet, such as a FileSet")
    return plugin.value


def load_set(
    name: str,
    path: Path | None,
    subset: str | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> list[Problem]:
    """Load a problem set: one of :func:`set_names`, or a file of the study's own."""
    return get_set(name).load(Selection(name, path, subset, limit, seed))
