"""Digests of models and settings of arms: another one makes a trained model or a sample stale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rlbhpc.study.keys import SampleKey, Sampling, fingerprint, sample_seed
from rlbhpc.study.lineage import Digests
from rlbhpc.study.load import load_study

TEACHER = "recipes.grpo.teacher={arm: base}"


def test_digests_of_all_models_are_golden(study_file: Path) -> None:
    study = load_study(study_file)
    assert study.digests == {
        "base": {0: "c4aed791a3ccf4c74ae75d4477aaafec"},
        "line": {
            0: "c4aed791a3ccf4c74ae75d4477aaafec",
            100: "1b09ece98c2ce15da5bfedab65cce096",
            200: "3d1b3c64c5686a9e1d5cef61b64fa726",
        },
        "rl": {
            0: "c4aed791a3ccf4c74ae75d4477aaafec",
            150: "e06a207415b4782d7215ba43df787c67",
            300: "d05ed287b479e731f377186ad693be05",
        },
        "far": {0: "65f00b89a7e2da051e6dc4b81b3e7909"},
    }
    known = Digests(replace(study, digests={"base": {0: "a digest of before"}}))
    assert known.digest("base", 0) == known.digest("line", 0) == "a digest of before"


@pytest.mark.parametrize(
    ("changes", "digest"),
    [
        (["recipes.grpo.texts=texts.jsonl"], "8e416701df4363bb373f08feb8940414"),
        (["recipes.grpo.options.teacher=line"], "ab74515157a7ef1694bb9534e4266977"),
        (["recipes.grpo.options.micro_tokens=5"], "e06a207415b4782d7215ba43df787c67"),
        ([TEACHER], "9987f3741c9b27c38dbb2b7fb164a2cf"),
        (["recipes.grpo.teacher={arm: base, keep: all}"], "257520d9965995b36c975bafdfea2d68"),
        ([TEACHER, "arms.base.stop_after=2"], "00bc77a9bed35dfe61afec656855dc55"),
        ([TEACHER, "arms.base.stop_after=8"], "9987f3741c9b27c38dbb2b7fb164a2cf"),
        (
            ["recipes.grpo.teacher={arm: line}", "arms.line.top_k=5"],
            "8edeebf7479ca0ef9699881f9a32b209",
        ),
        (
            ["recipes.grpo.problems=null", "recipes.grpo.prompt=null"],
            "3d1e2e7535a3fdda55bef23c7bfd78a4",
        ),
    ],
)
def test_the_digest_of_a_training_is_golden(
    study_file: Path, changes: list[str], digest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(study_file.parent)
    assert load_study(study_file, changes).digests["rl"][150] == digest


def test_seeds_and_fingerprints_are_golden() -> None:
    key = SampleKey("a", 0, "s/é", 1)
    assert sample_seed(7, key) == 6560416106539086049
    assert fingerprint({"b": 1, "a": "é"}) == fingerprint({"a": "é", "b": 1}) == 6137418742291435999


PLAIN = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 9, "stop": []}


@pytest.mark.parametrize(
    ("setting", "penalises", "is_whole"),
    [
        ({}, False, True),
        ({"stop_token_ids": (7,)}, False, True),
        ({"temperature": 0.0}, False, False),
        ({"top_p": 0.9}, False, False),
        ({"top_k": 5}, False, False),
        ({"min_p": 0.1, "stop_token_ids": (7,)}, False, False),
        ({"min_tokens": 3}, False, False),
        ({"repetition_penalty": 1.1}, True, False),
        ({"presence_penalty": -0.5}, True, False),
        ({"frequency_penalty": 0.5}, True, False),
    ],
)
def test_what_a_setting_does_and_how_it_is_written(
    setting: dict[str, object], penalises: bool, is_whole: bool
) -> None:
    sampling = replace(Sampling(1.0, 1.0, 9), **setting)  # type: ignore[arg-type]
    assert (sampling.penalises, sampling.draws_from_all_tokens) == (penalises, is_whole)
    written = {k: list(v) if isinstance(v, tuple) else v for k, v in setting.items()}
    assert sampling.record() == PLAIN | written
