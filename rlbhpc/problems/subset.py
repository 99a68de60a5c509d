"""Which problems of a set are meant: hash splits, seeded limits, duplicates, digests.

Everything here ranks problems by a hash of their id. So a selection does not depend on the order
of a file, and adding one problem to a set moves at most one other across a boundary.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem

_SPLIT: Final = re.compile(r"(train|holdout)\[([0-9]{1,9})(?:,([0-9]{1,18}))?\]")


def split(
    problems: Sequence[Problem], n_train: int, seed: int = 0
) -> tuple[list[Problem], list[Problem]]:
    """Cut a set in two by hash: ``n_train`` problems and the rest (the holdout).

    Both halves keep the order of ``problems``. The same ids and seed give the same halves.
    """
    if not 0 < n_train < len(problems):
        raise UserError(
            f"a split of {len(problems)} problems needs 1 to {len(problems) - 1} for training; "
            f"found {n_train}"
        )
    train = _first(problems, n_train, "split", seed)
    return (
        [problem for problem in problems if problem.id in train],
        [problem for problem in problems if problem.id not in train],
    )


def split_by_name(problems: Sequence[Problem], subset: str) -> list[Problem] | None:
    """Take the half that ``train[N]`` or ``holdout[N,SEED]`` means; None for any other name."""
    match = _SPLIT.fullmatch(subset)
    if match is None:
        return None
    half, n_train, seed = match.groups(default="0")
    train, holdout = split(problems, int(n_train), int(seed))
    return train if half == "train" else holdout


def limited(problems: Sequence[Problem], limit: int | None, seed: int) -> list[Problem]:
    """At most ``limit`` problems: a seeded subset, not a prefix.

    Files are often sorted by subject or difficulty, so their beginning is no fair sample. A
    smaller limit with the same seed is a subset of a larger one.
    """
    if limit is None or limit >= len(problems):
        return list(problems)
    if limit < 1:
        raise UserError(f"limit {limit}: at least one problem is needed")
    chosen = _first(problems, limit, "limit", seed)
    return [problem for problem in problems if problem.id in chosen]


def listed(problems: Sequence[Problem], file: Path) -> list[Problem]:
    """Those whose ids stand in a file, whatever name their set had where it was written."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: {error}") from None
    ids = [line.strip() for line in lines if line.strip()]
    if not ids:
        raise UserError(f"{file}: found no id; needed: one a line")
    wanted = {line.partition("/")[2] or line for line in ids}
    kept = [p for p in problems if p.id.partition("/")[2] in wanted]
    if len(kept) < len(wanted):
        missing = sorted(wanted - {p.id.partition("/")[2] for p in kept})
        raise UserError(
            f"{file}: {len(missing)} of {len(wanted)} ids are no problem "
            f"of the set, such as {missing[0]}"
        )
    return kept


def digest(problems: Iterable[Problem]) -> str:
    """16 hex digits over ids and contents, whatever their order: which problems exactly."""
    lines = sorted(f"{problem.id}\t{problem.content_hash}" for problem in problems)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _first(problems: Sequence[Problem], count: int, purpose: str, seed: int) -> set[str]:
    """Ids of the ``count`` problems that rank first by hash.

    The purpose enters the hash: otherwise a limit inside a split would favour one side of it.
    """

    def rank(problem: Problem) -> bytes:
        return hashlib.sha256(f"{purpose}\0{seed}\0{problem.id}".encode()).digest()

    return {problem.id for problem in sorted(problems, key=rank)[:count]}
