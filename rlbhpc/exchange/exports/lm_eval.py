"""Summaries in the shape of lm-evaluation-harness: a folder per model with ``results.json``."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from rlbhpc.exchange.exports.measurements import measurements, model_source, shots_of, study_of
from rlbhpc.study.layout import Layout


def write_lm_eval(layout: Layout, folder: Path) -> int:
    """Write one file per arm and step, its problem sets as tasks and pass@k as metrics."""
    study = study_of(layout)
    summaries: dict[str, dict[str, Any]] = {}
    for measured in measurements(layout):
        summary = summaries.setdefault(
            measured.name,
            {
                "results": {},
                "group_subtasks": {},
                "configs": {},
                "versions": {},
                "n-shot": {},
                "higher_is_better": {},
                "n-samples": {},
                "config": {
                    "model": measured.stands_on.get("engine", "imported"),
                    "model_args": f"pretrained={model_source(study, measured.model)}",
                },
                "model_name": model_source(study, measured.model),
            },
        )
        task = measured.problem_set
        metrics = {f"pass@{score.k}": score for score in measured.scores}
        summary["results"][task] = {"alias": task} | {
            key: value
            for name, score in metrics.items()
            for key, value in (
                (f"{name},none", score.value),
                (f"{name}_stderr,none", _or_not_there(score.standard_error)),
            )
        }
        sampling = measured.stands_on.get("sampling", {})
        most = measured.scores[-1].k if measured.scores else 0
        summary["configs"][task] = {
            "task": task,
            "output_type": "generate_until",
            "generation_kwargs": sampling,
            "repeats": most,
            "metadata": {
                name: measured.stands_on[name]
                for name in ("prompt", "stop_after")
                if name in measured.stands_on
            },
        }
        summary["versions"][task] = measured.stands_on.get("rlbhpc")
        # How others prompted what they measured is not known.
        if study is not None and measured.arm in study.arms:
            summary["n-shot"][task] = shots_of(study, measured.arm)
        summary["higher_is_better"][task] = dict.fromkeys(metrics, True)
        summary["n-samples"][task] = dict.fromkeys(("original", "effective"), measured.problems)
    for name, summary in summaries.items():
        (folder / name).mkdir()
        (folder / name / "results.json").write_text(json.dumps(summary, indent=2) + "\n")
    return sum(len(summary["results"]) for summary in summaries.values())


def _or_not_there(value: float) -> float | str:
    """A number, or what lm-eval writes where there is none."""
    return "N/A" if math.isnan(value) else value
