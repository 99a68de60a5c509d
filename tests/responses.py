"""Responses that tests make up, judged and stored as a sweep does it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.sample_rows import Sample
from rlbhpc.study.keys import SampleKey
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.judge import rule_without_place
from rlbhpc.sweep.remember import store_study
from rlbhpc.verify.registry import verify
from tests.studies import write_unloadable_model


def sums_study(folder: Path, text: str, problems: int) -> Study:
    """A study of sums in the shape of GSM8K; the gold answers are 4, 5, 6 …"""
    write_unloadable_model(folder / "model")
    rows = [{"question": f"{i} + 4?", "answer": f"Add.\n#### {i + 4}"} for i in range(problems)]
    (folder / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "sums.yaml").write_text(text)
    study = load_study(folder / "sums.yaml")
    store_study(study)
    return study


def write_responses(
    study: Study, arm: str, responses: Mapping[str, Sequence[str]], verifier: str | None = None
) -> None:
    """Store an arm's responses by their problems, judged by another verifier if one is named."""
    (name,) = study.sets(arm)
    with JournalWriter(study.layout.journals(arm, name), "one") as writer:
        for problem in study.problems(name):
            fingerprint = study.request_fingerprint(arm, 0, problem.id)
            for i, text in enumerate(responses[problem.id]):
                verdict = verify(verifier or problem.verifier, problem.gold, text, problem)
                writer.append(
                    Sample(
                        SampleKey(arm, 0, problem.id, i), fingerprint, i, int(verdict.strict), 0, 3,
                        -1.0, 1.0, verdict.canonical, rule_without_place(verdict.rule),
                        verdict.grader, text,
                        strict=int(verdict.strict), lenient=int(verdict.status),
                    )
                )  # fmt: skip
