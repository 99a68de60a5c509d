"""The schema of Every Eval Ever: a file per model with its scores, and one with its samples.

References
----------
github.com/evaleval/every_eval_ever, ``eval.schema.json`` and ``instance_level_eval.schema.json``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import numpy as np

from rlbhpc import __version__
from rlbhpc.exchange.exports.tables import read_counted_samples
from rlbhpc.files import sha256_of
from rlbhpc.stats.interval import PROB
from rlbhpc.store.questions import Question, read_questions
from rlbhpc.store.reader import open_cube
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import study_of
from rlbhpc.study.study import Study
from rlbhpc.verify.verdict import Status

_VERSION: Final = "0.3.0"
# What of a sampling setting has a place of its own in the schema.
_ARGUMENTS: Final = ("temperature", "top_p", "top_k", "max_tokens")


@dataclass(frozen=True)
class Score:
    """Mean pass@k over problems and its interval, which is NaN for a single problem."""

    k: int
    value: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Measurement:
    """What was measured of one arm at one step on one set.

    ``scores`` are at the powers of two that every problem has the samples for; ``provenance`` is
    the provenance of the samples, empty for counts alone.
    """

    arm: str
    model: str
    problem_set: str
    step: int
    problems: int
    scores: tuple[Score, ...]
    provenance: dict[str, Any]

    @property
    def name(self) -> str:
        """The arm, with its step where it is a checkpoint of a line."""
        return f"{self.arm}-{self.step}" if self.step else self.arm


def measurements(layout: Layout) -> Iterator[Measurement]:
    """Yield what a run has measured, for each arm, problem set and training step.

    The cube is a tree of such groups of arm and set, with ``counts()``: how many samples a problem
    has (``n``) and how many are right. A curve is the mean pass@k over problems with its interval,
    at powers of two up to the largest n. ``layout`` gives the paths of the run's folder.
    """
    tree = open_cube(layout.root)
    for node in tree.subtree:
        if node.attrs.get("kind") not in {"samples", "counts"}:
            continue
        group = node.to_dataset()
        max_samples = int(group.rlb.counts()["n"].values.max(initial=0))
        if not max_samples:
            continue
        # 1, 2, 4, … up to the largest that is not above max_samples.
        powers_of_two = 2 ** np.arange(max_samples.bit_length())
        curves = node.rlb.curves(powers_of_two).isel(arm=0, problem_set=0)
        for step in curves["step"].values.tolist():
            yield Measurement(
                arm=str(group["arm"].item()),
                model=str(group["model"].item()),
                problem_set=str(group["problem_set"].item()),
                step=step,
                problems=group.sizes["problem"],
                scores=tuple(_curve_scores(curves.sel(step=step))),
                provenance=json.loads(group.attrs.get("provenance", "{}")),
            )


def _curve_scores(curve: Any) -> Iterator[Score]:
    """Yield the mean pass@k at each k for which all problems have enough samples.

    ``curve`` has the mean over problems (NaN where some lack samples) with its bounds.
    """
    for k in curve["k"].values.tolist():
        point = curve.sel(k=k)
        mean = float(point["pass_at_k"])
        if not np.isnan(mean):
            yield Score(k, mean, *point["bounds"].values.tolist())


def model_source(study: Study | None, model: str) -> str:
    """Return what others call a model: its name on the hub or at its server, else the study's."""
    entry = study.models.get(model) if study else None
    if entry is None:
        return model
    if entry.hub:
        return entry.hub.partition("@")[0]
    if entry.endpoint is not None:
        return entry.endpoint.model
    return model


class _Subject(NamedTuple):
    """An arm at a step, as the schema names it: a file below ``data/``, without its ending."""

    path: str
    model: str
    evaluation: str


def write_every_eval_ever(layout: Layout, folder: Path) -> int:
    """Write ``data/STUDY/DEVELOPER/MODEL/UUID.json`` per arm and step, and its samples beside it.

    A measurement is the result of one arm at one step on one problem set; those of all sets go into
    one file (``of_arm``). A *subject* is an arm at a step as the schema names it. Failed
    generations and verifications are no samples there. The result is the number of samples written,
    or of files if a run has counts alone. ``layout`` gives the paths of the run's folder.
    """
    study = study_of(layout)
    now = f"{time.time():.0f}"
    benchmark = study.name if study else layout.root.resolve().name
    of_arm: dict[str, list[Measurement]] = defaultdict(list)
    for measured in measurements(layout):
        of_arm[measured.name].append(measured)
    subjects = {}
    for name, parts in of_arm.items():
        model = model_source(study, parts[0].model)
        developer, _, own_name = model.rpartition("/")
        path = f"data/{benchmark}/{developer or 'unknown'}/{own_name}/{uuid.uuid4()}"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        subjects[name] = _Subject(path, model, f"{benchmark}/{name}/{now}")
    rows = _write_samples(layout, folder, subjects)
    for name, parts in of_arm.items():
        subject = subjects[name]
        record = {
            "schema_version": _VERSION,
            "evaluation_id": subject.evaluation,
            "retrieved_timestamp": now,
            "source_metadata": {
                "source_type": "evaluation_run",
                "source_organization_name": "unknown",
                "evaluator_relationship": "other",
            },
            "eval_library": {"name": "rlbhpc", "version": __version__},
            "model_info": _model_info(parts[0], subject.model),
            "evaluation_results": [
                result for part in parts for result in _evaluation_results(part)
            ],
        }
        if name in rows:
            file = folder / f"{subject.path}_samples.jsonl"
            record["detailed_evaluation_results"] = _file_record(file, folder, rows[name])
        (folder / f"{subject.path}.json").write_text(json.dumps(record, indent=2) + "\n")
    return sum(rows.values()) or len(of_arm)


def _model_info(measured: Measurement, source: str) -> dict[str, Any]:
    """Return the schema's record of a model.

    ``source`` is what others call the model. The provenance says what the samples stand on, such as
    the digest of the model's content at each step.
    """
    digest = measured.provenance.get("model_digests", {}).get(str(measured.step))
    details = {
        "deployment_type": "unknown",
        "model_availability": "unknown",
        "step": str(measured.step),
    }
    if digest:
        details["content_digest"] = digest
    info = {"name": measured.model, "id": source, "additional_details": details}
    if "engine" in measured.provenance:
        info["inference_engine"] = {"name": measured.provenance["engine"]}
    return info


def _evaluation_results(measured: Measurement) -> list[dict[str, Any]]:
    """Return the schema's records of scores, one for each k.

    ``provenance`` says what the samples stand on, among them the sampling setting. The parts of the
    setting for which the schema has no place go to ``additional_details``.
    """
    sampling = measured.provenance.get("sampling", {})
    details = {k: json.dumps(v) for k, v in sampling.items() if k not in _ARGUMENTS}
    if "prompt" in measured.provenance:
        details["prompt_digest"] = str(measured.provenance["prompt"])
    if "stop_after" in measured.provenance:
        details["stop_after"] = str(measured.provenance["stop_after"])
    arguments = {name: sampling[name] for name in _ARGUMENTS if name in sampling}
    return [
        {
            "evaluation_name": f"{measured.problem_set} pass@{score.k}",
            "source_data": {"dataset_name": measured.problem_set, "source_type": "other"},
            "metric_config": {
                "evaluation_description": f"share of problems solved at least once in {score.k}",
                "metric_id": "pass_at_k",
                "metric_name": f"pass@{score.k}",
                "metric_unit": "proportion",
                "metric_parameters": {"k": score.k},
                "lower_is_better": False,
                "score_type": "continuous",
                "min_score": 0.0,
                "max_score": 1.0,
            },
            "score_details": {
                "score": score.value,
                "uncertainty": _score_uncertainty(score, measured.problems),
            },
            "generation_config": {"generation_args": arguments, "additional_details": details},
        }
        for score in measured.scores
    ]


def _score_uncertainty(score: Score, problems: int) -> dict[str, Any]:
    """Return the schema's record of an interval; a score of a single problem has none (NaN)."""
    if math.isnan(score.lower):
        return {"num_samples": problems}
    return {
        "confidence_interval": {
            "lower": score.lower,
            "upper": score.upper,
            "confidence_level": PROB,
            "method": "over problems like these",
        },
        "num_samples": problems,
    }


def _write_samples(layout: Layout, folder: Path, subjects: dict[str, _Subject]) -> dict[str, int]:
    """Write the samples of each arm and step into a file of its own; return how many each has.

    A *subject* is an arm at a step as the schema names it, by ``arm`` or ``arm-step``.
    `read_counted_samples` gives tables of the samples that count, and `read_questions` the
    questions of an arm's problem set by problem.
    """
    questions = {group: read_questions(layout, *group) for group in layout.groups()}
    streams: dict[str, IO[str]] = {}
    rows: dict[str, int] = defaultdict(int)
    with contextlib.ExitStack() as stack:
        for table in read_counted_samples(layout):
            for row in table.to_pylist():
                if Status(row["verdict"]) in (Status.FAILED, Status.ERROR):
                    continue
                name = f"{row['arm']}-{row['step']}" if row["step"] else row["arm"]
                subject = subjects[name]
                if name not in streams:
                    file = (folder / f"{subject.path}_samples.jsonl").open("w", encoding="utf-8")
                    streams[name] = stack.enter_context(file)
                problem = row["problem"]
                group = (row["arm"], problem.partition("/")[0])
                record = _sample_record(row, questions[group].get(problem), subject)
                streams[name].write(json.dumps(record) + "\n")
                rows[name] += 1
    return dict(rows)


def _sample_record(
    row: dict[str, Any], asked: Question | None, subject: _Subject
) -> dict[str, Any]:
    """Return the schema's record of one sample.

    ``row`` is a row of the table of samples: ``rule`` names what found the answer in the text.
    ``asked`` is the question with its reference answer, if it is stored. ``sample_hash`` is over
    both.
    """
    is_right = row["verdict"] == Status.RIGHT
    question = asked.question if asked else ""
    reference = [asked.gold] if asked and asked.gold else []
    seen = hashlib.sha256((question + "".join(reference)).encode(errors="replace"))
    return {
        "schema_version": f"instance_level_eval_{_VERSION}",
        "evaluation_id": subject.evaluation,
        "model_id": subject.model,
        "evaluation_name": row["problem"].partition("/")[0],
        "sample_id": row["problem"],
        "sample_hash": seen.hexdigest() if asked else None,
        "interaction_type": "single_turn",
        "input": {"raw": question, "reference": reference},
        "output": {"raw": [row["text"]]},
        "answer_attribution": [
            {
                "turn_idx": 0,
                "source": "output.raw",
                "extracted_value": row["answer"],
                "extraction_method": row["rule"] or "custom",
                "is_terminal": True,
            }
        ],
        "evaluation": {"score": float(is_right), "is_correct": is_right},
        "metadata": {
            "sample": str(row["sample"]),
            "verdict": Status(row["verdict"]).name.lower(),
            "response_tokens": str(row["n_tokens"]),
        },
    }


def _file_record(path: Path, folder: Path, rows: int) -> dict[str, Any]:
    """Return the schema's record of the file with the samples."""
    return {
        "format": "jsonl",
        "file_path": path.relative_to(folder).as_posix(),
        "hash_algorithm": "sha256",
        "checksum": sha256_of(path),
        "total_rows": rows,
    }
