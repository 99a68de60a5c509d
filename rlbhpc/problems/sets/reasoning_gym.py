"""The tasks of reasoning-gym (arXiv 2505.24760): puzzles without end, each with its own scorer.

The package is an optional dependency. It runs in a child process whose hash seed is fixed, because
some of its generators walk over sets: the same seed then gives the same problems everywhere.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import ProblemSet, Selection, make_problem
from rlbhpc.problems.sets.compose import half_of

PACKAGE: Final = "reasoning_gym"
LEFT_OUT: Final = {
    "coin_flip": "its scorer takes the first digits for the number",
    "complex_arithmetic": "its scorer takes nan for any number",
    "composite": "it puts other tasks together",
    "game_of_life_halting": "its scorer takes any text for True",
    "puzzle24": "its scorer does not look at the numbers that are used",
}
_APART: Final = 1 << 20
# Entries looked at for each that a half is to have.
_TRIES: Final = 10


@dataclass(frozen=True)
class ReasoningGym(ProblemSet):
    """One task, named by the subset, at the difficulty that the package gives it."""

    def load(self, selection: Selection) -> list[Problem]:
        """``limit`` problems of ``TASK``, or of ``train/TASK``, which shares none with it."""
        name = selection.name
        if importlib.util.find_spec(PACKAGE) is None:
            raise UserError(
                f"problem set {name!r} needs the package reasoning-gym;"
                " run `pip install '.[gym]'` in a checkout"
            )
        half, _, task = (selection.subset or "").rpartition("/")
        if selection.path is not None or not task or half not in ("", "train", "test"):
            raise UserError(
                f"problem set {name!r} is generated: give no path, and a task as `subset`, such as"
                " knights_knaves or train/knights_knaves;"
                f" found {selection.path or selection.subset}"
            )
        reply = _generated(task, half or "test", selection.count, selection.seed)
        if "tasks" in reply:
            raise UserError(
                f"problem set {name!r}: no task {task!r}; allowed: {', '.join(reply['tasks'])}"
            )
        if "failed" in reply:
            raise UserError(f"problem set {name!r}: task {task} {reply['failed']}")
        return [
            make_problem(
                name, "", entry["question"], entry["answer"], "reasoning-gym",
                {"task": task, "entry": entry["entry"]},
            )
            for entry in reply["entries"]
        ]  # fmt: skip


def _generated(task: str, half: str, count: int, seed: int) -> Mapping[str, Any]:
    """Ask a child process, which starts with a fixed hash seed."""
    child = subprocess.run(
        [sys.executable, "-m", __name__, task, half, str(count), str(seed)],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
    )
    if child.returncode:
        last = child.stderr.strip().rpartition("\n")[2]
        return {"failed": f"could not be generated ({last}); take another"}
    reply: Mapping[str, Any] = json.loads(child.stdout)
    return reply


def _generate(task: str, half: str, count: int, seed: int) -> Mapping[str, Any]:
    """The child's side: entries of one task, or the names of all."""
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    if task in LEFT_OUT:
        return {"failed": f"is left out: {LEFT_OUT[task]}; take another"}
    if task not in DATASETS:
        return {"tasks": sorted(DATASETS.keys() - LEFT_OUT.keys())}
    score = reasoning_gym.get_score_answer_fn(task)
    # The package seeds its entry i with seed + i, so seeds must stand further apart than that.
    most = _TRIES * count + 100
    dataset = reasoning_gym.create_dataset(task, size=most, seed=seed * _APART)
    entries: dict[str, Mapping[str, Any]] = {}
    for index in range(most):
        entry = dataset[index]
        question, answer = entry["question"], entry["answer"]
        text = repr(_literal(entry))
        # Where several answers are right the package may name none.
        if answer is not None and score(answer, ast.literal_eval(text)) != score(answer, entry):
            return {"failed": "is scored by what cannot be stored; take another"}
        if half_of(question) == half:
            entries[question] = {"question": question, "answer": answer or "", "entry": text}
        if len(entries) == count:
            return {"entries": list(entries.values())}
    return {"failed": f"has no more than about {len(entries):,} problems; lower `limit`"}


def _literal(value: Any) -> Any:
    """A value as what :func:`ast.literal_eval` reads."""
    if isinstance(value, Mapping):
        return {_literal(key): _literal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_literal(item) for item in value]
    if isinstance(value, tuple):
        return tuple(_literal(item) for item in value)
    # NumPy's scalars are numbers and strings too, by another name.
    value = value.item() if hasattr(value, "item") else value
    return value if value is None or isinstance(value, str | int | float) else str(value)


SET = ReasoningGym()

if __name__ == "__main__":
    # Some generators print.
    with contextlib.redirect_stdout(sys.stderr):
        reply = _generate(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    print(json.dumps(reply))
