"""The tasks of reasoning-gym (arXiv 2505.24760): puzzles without end, each with a scorer of its own.

The package is an optional dependency. It runs in a child process whose hash seed is fixed, because
some of its generators walk over sets: the same seed then gives the same problems everywhere.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import ProblemSet, make_problem

PACKAGE: Final = "reasoning_gym"
# Puts other tasks together and is none itself.
_NO_TASK: Final = "composite"


@dataclass(frozen=True)
class ReasoningGym(ProblemSet):
    """One task, named by the subset, at the difficulty that the package gives it."""

    def load(
        self,
        name: str,
        path: Path | None,
        subset: str | None,
        limit: int | None,
        seed: int,
        dropped: list[str] | None = None,
    ) -> list[Problem]:
        """``limit`` problems of a task."""
        if importlib.util.find_spec(PACKAGE) is None:
            raise UserError(
                f"problem set {name!r} needs the package reasoning-gym;"
                " run `pip install 'rlbhpc[gym]'`"
            )
        if path is not None or not subset or limit is None:
            raise UserError(
                f"problem set {name!r} is generated: give no path, a task as `subset` (such as"
                " knights_knaves), and how many problems with `limit`"
            )
        reply = _generated(subset, limit, seed)
        if "tasks" in reply:
            raise UserError(
                f"problem set {name!r}: no task {subset!r}; allowed: {', '.join(reply['tasks'])}"
            )
        if "failed" in reply:
            raise UserError(f"problem set {name!r}: task {subset} {reply['failed']}; take another")
        problems = [
            make_problem(
                name, "", entry["question"], entry["answer"], "reasoning-gym",
                {"task": subset, "entry": entry["entry"]},
            )
            for entry in reply["entries"]
        ]  # fmt: skip
        # Small tasks repeat themselves.
        return list({problem.id: problem for problem in problems}.values())


def _generated(task: str, size: int, seed: int) -> Mapping[str, Any]:
    """Ask a child process, which starts with a fixed hash seed."""
    child = subprocess.run(
        [sys.executable, "-m", __name__, task, str(size), str(seed)],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
    )
    if child.returncode:
        last = child.stderr.strip().rpartition("\n")[2]
        return {"failed": f"could not be generated ({last})"}
    reply: Mapping[str, Any] = json.loads(child.stdout)
    return reply


def _generate(task: str, size: int, seed: int) -> Mapping[str, Any]:
    """The child's side: entries of one task, or the names of all."""
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    if task not in DATASETS or task == _NO_TASK:
        return {"tasks": sorted(DATASETS.keys() - {_NO_TASK})}
    score = reasoning_gym.get_score_answer_fn(task)
    entries = []
    for entry in reasoning_gym.create_dataset(task, size=size, seed=seed):
        text = repr(_literal(entry))
        answer = entry["answer"]
        # Where several answers are right the package may name none.
        if answer is not None and score(answer, ast.literal_eval(text)) != score(answer, entry):
            return {"failed": "is scored by what cannot be stored"}
        entries.append({"question": entry["question"], "answer": answer or "", "entry": text})
    return {"entries": entries}


def _literal(value: Any) -> Any:
    """A value as what :func:`ast.literal_eval` reads."""
    if isinstance(value, Mapping):
        return {_literal(key): _literal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_literal(item) for item in value]
    if isinstance(value, tuple):
        return tuple(_literal(item) for item in value)
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)


SET = ReasoningGym()

if __name__ == "__main__":
    print(json.dumps(_generate(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
