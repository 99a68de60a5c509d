"""The problem sets by name: one line each, and those that a study or a package brings."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Final

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import ProblemSet, Selection
from rlbhpc.problems.sets import (
    competition,
    compose,
    countdown,
    dapo_math,
    evalplus,
    geometry3k,
    gpqa,
    gsm8k,
    hendrycks,
    livecodebench,
    mathvision,
    mathvista,
    minerva,
    mmlu_pro,
    olympiadbench,
    omni,
    program_tasks,
    reasoning_gym,
    rlpr_train,
    theoremqa,
    webinstruct,
)

SETS: Final[dict[str, ProblemSet]] = {
    "gsm8k": gsm8k.SET,
    "math": hendrycks.MATH,
    "math500": hendrycks.MATH500,
    "minerva": minerva.SET,
    "olympiadbench": olympiadbench.SET,
    "aime24": competition.AIME24,
    "aime25": competition.AIME25,
    "aime26": competition.AIME26,
    "hmmt25": competition.HMMT25,
    "hmmt26": competition.HMMT26,
    "beyondaime": competition.BEYOND_AIME,
    "livemathbench": competition.LIVE,
    "amc23": competition.AMC23,
    "omni-math-rule": omni.SET,
    "dapo-math": dapo_math.SET,
    "humaneval+": evalplus.HUMANEVAL,
    "mbpp+": evalplus.MBPP,
    "livecodebench": livecodebench.SET,
    "geometry3k": geometry3k.SET,
    "mathvista": mathvista.SET,
    "mathvision": mathvision.SET,
    "mmlu-pro": mmlu_pro.SET,
    "gpqa": gpqa.SET,
    "theoremqa": theoremqa.SET,
    "webinstruct-verified": webinstruct.SET,
    "rlpr-train": rlpr_train.SET,
    "countdown": countdown.SET,
    "compose": compose.SET,
    "program-tasks": program_tasks.SET,
    "reasoning-gym": reasoning_gym.SET,
}


def set_names() -> list[str]:
    """Names of all problem sets, those of installed packages last."""
    return list(dict.fromkeys((*SETS, *plugins.installed("problem_sets"))))


def is_set(name: str) -> bool:
    """Whether a name, or a file of the study's own, stands for a problem set."""
    return name in SETS or plugins.is_file(name) or name in plugins.installed("problem_sets")


def get_set(name: str) -> ProblemSet:
    """Find a problem set by name, or in a file of the study's own (``./mine.py``)."""
    if name in SETS:
        plugins.reject_taken("problem_sets", name)
        return SETS[name]
    plugin = plugins.find("problem_sets", name)
    if plugin is None:
        near = difflib.get_close_matches(name, set_names(), n=1)
        hint = f"; nearest: {near[0]}" if near else ""
        raise UserError(f"problem set {name!r} is unknown{hint}; allowed: {', '.join(set_names())}")
    if not isinstance(plugin.value, ProblemSet):
        raise UserError(f"{name}: found {plugin.value!r}; allowed: a ProblemSet, such as a FileSet")
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
