"""Summaries in the shape of lm-evaluation-harness: a file per model.

They are named as its readers look for them: ``results_*.json``.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from rlbhpc.exchange.exports.measurements import measurements, model_source
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import study_of


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
        results: dict[str, Any] = {"alias": task}
        summary["results"][task] = results
        for name, score in metrics.items():
            error = score.standard_error
            results[f"{name},none"] = score.value
            results[f"{name}_stderr,none"] = "N/A" if math.isnan(error) else error
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
            prompt = study.file.prompts.get(study.arms[measured.arm].prompt)
            summary["n-shot"][task] = prompt.shots.n if prompt and prompt.shots else 0
        summary["higher_is_better"][task] = dict.fromkeys(metrics, True)
        summary["n-samples"][task] = dict.fromkeys(("original", "effective"), measured.problems)
    for name, summary in summaries.items():
        (folder / name).mkdir()
        (folder / name / "results_rlbhpc.json").write_text(json.dumps(summary, indent=2) + "\n")
    return sum(len(summary["results"]) for summary in summaries.values())
