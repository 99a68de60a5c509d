"""What of a training enters the cube: a row for every response that was sampled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from rlbhpc.store import rollouts as store
from rlbhpc.store.cube_schema import answer_id
from rlbhpc.train.rollout import Rollout


class Record:
    """Rows of the steps since the last save; rank 0 alone keeps them.

    ``flush`` goes before a model or a training state is saved and ``settle`` after a state.
    """

    def __init__(self, folder: Path, resumed_at: int) -> None:
        self._folder = folder
        self._rows: list[dict[str, Any]] = []
        folder.mkdir(parents=True, exist_ok=True)
        store.settle(folder, resumed_at)

    def add(self, step: int, sampled: Sequence[Rollout], learnt: Mapping[int, float]) -> None:
        """Take note of a step; ``learnt`` has the advantage of a response by its identity."""
        seen: Counter[str] = Counter()
        for rollout in sampled:
            verdict = rollout.verdict
            self._rows.append({
                "train_step": step,
                "problem": rollout.problem,
                "rollout": seen[rollout.problem],
                "group": rollout.group,
                "verdict": int(verdict.status),
                "answer": answer_id(verdict.canonical) if verdict.canonical else -1,
                "n_tokens": len(rollout.response.token_ids),
                "logprob_sum": float(rollout.sampler_logprobs.sum(dtype="float64")),
                "entropy_sum": rollout.entropy_sum,
                "reward": rollout.reward,
                "advantage": learnt.get(id(rollout.response), float("nan")),
            })  # fmt: skip
            seen[rollout.problem] += 1

    def flush(self) -> None:
        """Write what there is."""
        if self._rows:
            store.add(self._folder, pa.Table.from_pylist(self._rows, schema=store.ROWS))
            self._rows = []

    def settle(self, step: int) -> None:
        """Drop parts that the saved ones contain."""
        store.settle(self._folder, step)
