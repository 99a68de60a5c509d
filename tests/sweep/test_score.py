"""Scores of the four conditions: held against a plain softmax, resumed, and kept current."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click import Command
from click.testing import CliRunner

import rlbhpc
from rlbhpc.cli.sampling import sample
from rlbhpc.cli.scoring import score
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.engines.tokens import Tokens
from rlbhpc.errors import DONE, INCOMPLETE, NOTHING_TO_DO
from rlbhpc.problems.prompts import render
from rlbhpc.store import samples
from rlbhpc.store.compact import compact
from rlbhpc.store.sources import Group, tables
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.process import Drain
from rlbhpc.sweep.score import read_score_states, score_all
from tests.engines.support import Truth

pytestmark = pytest.mark.engine

STUDY = Path(__file__).with_name("scored.yaml").read_text()
GIVEN = [("Say 1. ", "one"), ("2 + 2 = ", "4, of course")]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("base", "rl/step-1", "rl/step-2")):
        make_tiny_model(folder / name, seed=seed, hidden_size=32, initializer_range=0.1)
    return folder


@pytest.fixture
def study_file(models: Path, tmp_path: Path) -> Path:
    for name in ("base", "rl"):
        (tmp_path / name).symlink_to(models / name)
    lines = [json.dumps({"prompt": p, "response": r}) + "\n" for p, r in GIVEN]
    (tmp_path / "given.jsonl").write_text("".join(lines))
    (tmp_path / "study.yaml").write_text(STUDY)
    return tmp_path / "study.yaml"


def call(command: Command, *arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(
        command, [str(a) for a in arguments], standalone_mode=False, catch_exceptions=False
    )
    assert "longer than the model holds" not in result.stderr
    return int(result.return_value or 0), result.stdout


def stored(study: Study) -> dict[tuple[Any, ...], dict[str, Any]]:
    places = [("base", "countdown", "base"), ("rl", "countdown", "base")]
    places += [("rl", "countdown", "rl"), ("given", "texts", "base")]
    return {
        (*place, r["problem"], r["sample"], r["step"], r["scorer_step"]): r
        for place in places
        for r in tables.read_scores(study.layout, *place).to_pylist()
    }


def expected(study: Study, folder: Path, step: int, key: tuple[Any, ...]) -> tuple[int, float]:
    """Tokens and log-probability of one stored response under one model, worked out plainly."""
    source, set_name, _, problem, sample, text_step, _ = key
    tokens, ids = Tokens(folder), []
    if set_name == "texts":
        prompt, text = GIVEN[int(problem.rpartition("/")[2]) - 1]
        ended = True
    else:
        group = Group(source, set_name)
        (found,) = samples.find_samples(study.layout, group, {problem: {sample}}, {text_step})
        template = study.prompts[study.arms[source].prompt]
        prompt = render(template, {p.id: p for p in study.problems(set_name)}[problem])
        text, ended = found.sample.text, found.sample.finish == 0
    ids = [*tokens.encode(text), *(sorted(tokens.eos)[:1] if ended else [])]
    logp = Truth(folder).logp(tokens.encode(prompt), ids, 1.0)
    return len(ids), float(logp[range(len(ids)), ids].sum())


def test_the_four_conditions_are_what_a_plain_softmax_gives(study_file: Path) -> None:
    assert call(score, study_file)[0] == INCOMPLETE  # nothing sampled yet, but the file's texts
    assert call(sample, study_file)[0] == DONE
    code, out = call(score, study_file, "--json")
    assert code == DONE
    shown = json.loads(out)
    # base of base; base of rl at both steps; rl of its own at each step; the file.
    assert [r["scored"] for r in shown] == [15, 10, 10, 10, 10, 2]
    assert not any(r["missing"] for r in shown)
    assert call(score, study_file)[0] == NOTHING_TO_DO
    study = load_study(study_file)
    found = stored(study)
    assert len(found) == 15 + 20 + 20 + 2
    assert all(key[5] == key[6] for key in found if key[2] == "rl")
    for key in list(found)[::6]:
        n, logprob = expected(study, study.folder(key[2], key[6]), key[6], key)
        assert found[key]["n_tokens"] == n
        assert found[key]["logprob_sum"] == pytest.approx(logprob, abs=1e-3)
    compact(study.layout)
    cube = rlbhpc.open_cube(study.layout.root)
    group = cube["scores/rl/countdown/base"]
    assert group.logprob_sum.sizes == {"problem": 5, "sample": 2, "step": 2, "scorer_step": 1}
    assert int(np.isfinite(group.logprob_sum).sum()) == 20


class Impatient(Drain):
    """Asks to stop after some looks at it, as a scheduler does in the middle of the work."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks

    @property
    def requested(self) -> bool:
        self.looks -= 1
        return self.looks < 0


def test_scoring_that_is_stopped_again_and_again_gives_the_same_file(
    study_file: Path, tmp_path: Path
) -> None:
    assert call(sample, study_file)[0] == DONE
    study = load_study(study_file)
    names = list(study.file.scores)

    def files() -> dict[str, bytes]:
        root = study.layout.tables(tables.SCORES)
        return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*.parquet")}

    score_all(study, read_score_states(study, names), Drain(), lambda _: None)
    whole = files()
    for path in study.layout.tables(tables.SCORES).rglob("*.parquet"):
        path.unlink()
    rounds = 0
    while any(s.missing for s in read_score_states(study, names)):
        score_all(study, read_score_states(study, names), Impatient(20), lambda _: None)
        rounds += 1
    assert rounds > 3
    assert files() == whole
    assert len(whole) == 4


def test_scores_of_other_texts_or_another_model_are_dropped_and_made_anew(
    study_file: Path, models: Path
) -> None:
    call(sample, study_file)
    call(score, study_file)
    before = stored(load_study(study_file))
    (study_file.parent / "base").unlink()
    make_tiny_model(study_file.parent / "base", seed=9, hidden_size=32, initializer_range=0.1)
    changed = load_study(study_file)
    names = list(changed.file.scores)
    missing = {s.condition.score for s in read_score_states(changed, names) if s.missing}
    # The base's own samples are stale now, and so is all that it scored.
    assert missing == {"base-of-rl", "base-of-file"}
    assert {
        s.condition.score for s in read_score_states(changed, names) if not s.requested.requests
    } == {"base-of-base"}
    call(sample, study_file)
    assert call(score, study_file)[0] == DONE
    after = stored(changed)
    assert after.keys() == before.keys()
    same = {key for key in after if after[key] == before[key]}
    assert same == {key for key in after if key[2] == "rl" and key[6] > 0}
