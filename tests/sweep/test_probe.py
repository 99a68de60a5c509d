"""The probe of contamination: what a model was taught by heart, and what it has never seen."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlbhpc.cli.exchange import select
from rlbhpc.errors import DONE
from rlbhpc.problems.problem import Problem, make_probe, whole_problem
from rlbhpc.report.aspects.samples import memorised, memorised_frame
from rlbhpc.report.claim import claim_card
from rlbhpc.report.gather import gather
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.remember import store_study
from tests.children import Child
from tests.responses import write_responses
from tests.studies import write_unloadable_model

QUESTION = "Ann has 3 red\n and 4 blue balls. How many balls has she?"


def problem() -> Problem:
    return Problem("set/1", {"question": QUESTION}, "7", "math", {"level": "1"})


@pytest.mark.parametrize(("share", "visible"), [(0.4, 6), (0.6, 8), (0.8, 11), (0.99, 12)])
def test_a_probe_shows_whole_words_and_keeps_the_problem(share: float, visible: int) -> None:
    probe = make_probe(problem(), share)
    shown = probe.fields["question"]
    assert QUESTION.startswith(shown) and len(shown.split()) == visible
    assert (shown.split() + probe.gold.split()) == QUESTION.split()
    assert whole_problem(probe) == replace(problem(), solution="")
    assert probe.content_hash != make_probe(problem(), share / 2).content_hash


SAMPLED = """
name: stopped
models:
  base: {path: model}
problem_sets:
  math500: {path: set.jsonl, probe: 0.45}
arms:
  probe: {model: base, prompt: bare, temperature: 1, n: 8, max_tokens: 64, stop_after: 2}
"""


BY_HEART = " blue balls. How many balls has she? \\boxed{7}"


def sampled(folder: Path, study_file: str, responses: dict[str, list[str]]) -> Study:
    """A study of two questions alike, to each of which its arms wrote these responses."""
    write_unloadable_model(folder / "model")
    records = [{"problem": QUESTION, "answer": "7", "unique_id": name} for name in "12"]
    (folder / "set.jsonl").write_text("\n".join(map(json.dumps, records)))
    (folder / "study.yaml").write_text(study_file)
    study = load_study(folder / "study.yaml")
    store_study(study)
    for arm, texts in responses.items():
        (name,) = study.sets(arm)
        write_responses(study, arm, dict.fromkeys(study.problem_ids(name), texts))
    return study


def test_of_problems_that_stop_only_what_all_were_asked_for_is_counted(tmp_path: Path) -> None:
    # It ends with the sixth sample, and so two of six are right; of the first two none is.
    study = sampled(tmp_path, SAMPLED, {"probe": ["?", "?", "?", BY_HEART, "?", BY_HEART]})
    (result,) = memorised(gather(study.layout.root))
    assert result.measured.counts.n.tolist() == [6, 6] and result.measured.counts.stopped.all()
    assert (result.completed.tolist(), result.answered.tolist()) == ([0, 0], [0, 0])


COMPARED = """
name: compared
models:
  base: {path: model}
  rl: {path: model, base: base}
  other: {path: model}
problem_sets:
  math500: {path: set.jsonl}
  beginning: {set: math500, path: set.jsonl, probe: 0.45}
sampling: {prompt: bare, temperature: 1, n: 2, max_tokens: 64}
arms:
  base: {model: base, problem_sets: [math500]}
  rl: {model: rl, problem_sets: [math500]}
  base-probe: {model: base, problem_sets: [beginning]}
  other-probe: {model: other, problem_sets: [beginning]}
"""


def test_a_claim_says_how_well_its_models_know_the_questions(tmp_path: Path) -> None:
    plain = ["\\boxed{7}", "\\boxed{8}"]
    study = sampled(
        tmp_path,
        COMPARED,
        {"base": plain, "rl": plain, "base-probe": ["?", BY_HEART], "other-probe": ["?", "?"]},
    )
    (claim,) = json.loads(claim_card(gather(study.layout.root)))["claims"]
    (probe,) = claim["contamination"]
    assert (probe["arm"], probe["problem_set"], probe["shown"]) == ("base-probe", "beginning", 0.45)
    assert probe["completed"]["estimate"] == 0.5
    assert probe["known"] == ["beginning/1", "beginning/2"]


STUDY = """
name: known
models:
  reader: {train: {recipe: by-heart}, steps: [STEPS]}
recipes:
  by-heart:
    algorithm: sft
    texts: texts.jsonl
    architecture: {model_type: qwen2, hidden_size: 64, intermediate_size: 128,
                   num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 4}
    prompts_per_step: 50
    learning_rate: 8e-3
    options: {warmup_steps: 10, save_every: 1000}
problem_sets:
  taught: &set {path: taught.jsonl, fields: &fields {question: q, gold: a, id: i},
                probe: [0.4, 0.6, 0.8]}
  unseen: {path: unseen.jsonl, fields: *fields, probe: 0.6}
arms:
  probe: {model: reader, prompt: bare, temperature: 0, n: 1, max_tokens: 64}
engine: {name: hf, dtype: float32}
"""
WORDS = (
    "red blue old new big tall cat dog sun car sea ice has buys sells eats sees of and the".split()
)


def write_sets(folder: Path) -> None:
    """Fifty questions that are taught, each as its first fifth and what follows, and fifty new."""
    rng = random.Random(1)
    lessons = []
    for name in ("taught", "unseen"):
        records = []
        for number in range(50):
            question = " ".join(rng.choices(WORDS, k=9)) + " ?"
            record = {"q": question, "a": str(rng.randrange(100)), "i": str(number)}
            records.append(record)
            if name == "taught":
                beginning = " ".join(question.split()[:3])
                rest = question.removeprefix(beginning)
                lessons.append(
                    {"prompt": beginning, "response": f"{rest} \\boxed{{{record['a']}}}"}
                )
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    (folder / "texts.jsonl").write_text("".join(json.dumps(r) + "\n" for r in lessons))


@pytest.mark.by_turns(3)
@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_finds_what_was_taught_by_heart_and_clears_what_was_not(tmp_path: Path) -> None:
    write_sets(tmp_path)
    path = tmp_path / "study.yaml"
    path.write_text(STUDY.replace("STEPS", "150"))
    assert Child("train", str(path), "reader").ended() == DONE
    assert Child("sample", str(path)).ended() == DONE
    report = gather(load_study(path).layout.root)
    assert not report.lineages
    rates = {r.measured.problem_set: (r.share, r.completed.mean(), r.answered.mean())
             for r in memorised(report)}  # fmt: skip
    for share in (0.4, 0.6, 0.8):
        shown, completed, answered = rates[f"taught-probe{share}"]
        assert shown == share and completed >= 0.9 and answered >= 0.9
    assert rates["unseen"][1:] == (0, 0)
    frame = memorised_frame(memorised(report))
    assert len(frame) == 200 and set(frame["problem_set"]) == set(rates)
    # As a filter: what was completed is gone.
    root = str(load_study(path).layout.root)
    for name, left in (
        ("unseen", 50),
        ("taught-probe0.6", 50 - round(50 * rates["taught-probe0.6"][1])),
    ):
        result = CliRunner().invoke(select, [root, "probe", name, "0-0"])
        assert len(result.output.split()) == left
