"""Whose texts are scored by whom, and how: with a stand-in for an engine that adds up bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rlbhpc.engines.completion import Completion, Finish, Request
from rlbhpc.engines.engine import Score
from rlbhpc.errors import UserError
from rlbhpc.store import tables
from rlbhpc.store.sources import Group
from rlbhpc.study.keys import Sampling
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep import load, match, score
from rlbhpc.sweep.again import StoredRun
from rlbhpc.sweep.load import check_engines, check_verifiers, reject_unseen_images
from rlbhpc.sweep.process import Drain
from rlbhpc.sweep.remember import store_study
from rlbhpc.sweep.score import Condition, _request_fingerprint, conditions, read_texts
from rlbhpc.verify.verdict import Status, Verdict
from tests.studies import write_unloadable_model
from tests.sweep.conftest import keys_of
from tests.sweep.replay import Tokens
from tests.sweep.test_plan import row, store

STUDY = Path(__file__).with_name("scored.yaml").read_text()
END = 7


class Bytes(Tokens):
    """A tokeniser of one token a byte, with an end of text."""

    eos = (END, END + 1)

    def __init__(self, end: int | None = END) -> None:
        self.tokenizer = Tokenizer(end)

    def encode_all(self, texts: list[str]) -> list[tuple[int, ...]]:
        return [self.encode(text) for text in texts]


class Tokenizer:
    def __init__(self, end: int | None) -> None:
        self.eos_token_id = end

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        assert not add_special_tokens
        return {"input_ids": list(text.encode())}


@dataclass
class Adding:
    """Gives each token its own value as log-probability, and a tenth of it as entropy."""

    max_length: int = 4096
    tokens: Bytes = field(default_factory=Bytes)
    sees: bool = False
    failing: bool = False

    def score(self, texts: Iterable[tuple[tuple[int, ...], tuple[int, ...]]]) -> Iterator[Score]:
        for _, ids in texts:
            values = np.array(ids, np.float32)
            yield Score(-values, values / 10)

    def generate(self, requests: Iterable[Request], sampling: Sampling) -> Iterator[Completion]:
        for request in requests:
            # As random as the temperature, and as long as the sample's place among its problem's.
            length = 1 + request.tag % 3
            values = np.full(length, sampling.temperature, np.float32)
            finish = Finish.ERROR if self.failing else Finish.EOS
            yield Completion(
                request.tag, np.ones(length, np.int32), values, values, "", finish, "no"
            )

    def close(self) -> None:
        pass


@pytest.fixture
def file(tmp_path: Path) -> Path:
    for name in ("base", "rl/step-1", "rl/step-2"):
        write_unloadable_model(tmp_path / name)
    pairs = [("Say 1. ", "one"), ("2 + 2 = ", "4"), ("Nothing: ", "")]
    lines = [json.dumps({"prompt": prompt, "response": text}) for prompt, text in pairs]
    (tmp_path / "given texts.jsonl").write_text("".join(line + "\n" for line in lines))
    (tmp_path / "study.yaml").write_text(STUDY.replace("given.jsonl", '"given texts.jsonl"'))
    return tmp_path / "study.yaml"


def test_all_steps_of_a_model_score_but_a_line_scores_its_own_at_the_same_step(
    file: Path,
) -> None:
    study = load_study(file)
    rl = [("rl", "countdown", step) for step in (1, 2)]
    assert conditions(study, list(study.file.scores)) == [
        Condition("base-of-base", "base", "countdown", 0, "base", 0),
        *(Condition("base-of-rl", *place, "base", 0) for place in rl),
        *(Condition("rl-of-rl", *place, "rl", place[-1]) for place in rl),
        Condition("base-of-file", "given-texts", "texts", 0, "base", 0),
    ]
    other = load_study(file, ["scores.rl-of-rl.responses=base"])
    assert conditions(other, ["rl-of-rl"]) == [
        Condition("rl-of-rl", "base", "countdown", 0, "rl", step) for step in (0, 1, 2)
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base: {path: base}": "base: {endpoint: {url: 'http://h/v1', model: m}}",
          'path: "rl/step-{step}", base: base': 'path: "rl/step-{step}"'},
         "^scores.base-of-base: base is an endpoint, which cannot score texts$"),
        ({"given texts": "base"}, "scores: .*base.jsonl: 'base' names something else too; rename"),
        ({"texts: \"given": "texts: \"other texts.jsonl\"}\n  more: {model: base, texts: \"other,"},
         "'other-texts' names something else too"),
    ],
)  # fmt: skip
def test_what_cannot_be_scored_is_refused(file: Path, change: dict[str, str], message: str) -> None:
    text = file.read_text()
    for before, after in change.items():
        text = text.replace(before, after)
    for name in ("base.jsonl", "other texts.jsonl", "other, texts.jsonl"):
        (file.parent / name).write_text('{"prompt": "a", "response": "b"}\n')
    file.write_text(text)
    study = load_study(file)
    with pytest.raises(UserError, match=message):
        conditions(study, list(study.file.scores))


def write_samples(study: Study) -> None:
    """Of the base all but two, of rl all; one failed, one is of another request, one had no end."""
    rows = [replace(row(study, key, tokens=3), text=f"{key.sample}!") for key in keys_of(study)]
    rows[0] = replace(rows[0], verdict=int(Status.FAILED))
    rows[1] = replace(rows[1], fingerprint=1)
    rows[2] = replace(rows[2], finish=int(Finish.LENGTH))
    rows[4] = replace(rows[4], finish=int(Finish.LENGTH), text="")
    store(study, [*rows[:6], *rows[8:]])


def scored(study: Study) -> dict[tuple[str, str, str], list[dict[str, object]]]:
    places = {c.table for c in conditions(study, list(study.file.scores))}
    return {place: tables.read_scores(study.layout, *place).to_pylist() for place in places}


def test_each_text_has_its_sums_under_each_model_once(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = load_study(file)
    write_samples(study)
    names = list(study.file.scores)
    loaded: list[tuple[str, str, int]] = []

    def engine(study: Study, kind: str, model: str, step: int) -> Adding:
        loaded.append((kind, model, step))
        return Adding()

    monkeypatch.setattr(score, "load_engine", engine)
    states = score.read_score_states(study, names)
    # Three of each of five problems, but for a failure and a stranger; two at each step of rl.
    assert [(len(s.requested.requests), s.requested.expected) for s in states] == [
        (12, 15), (10, 10), (10, 10), (10, 10), (10, 10), (3, 3),
    ]  # fmt: skip
    assert [len(s.missing) for s in states] == [12, 10, 10, 10, 10, 3]
    said: list[str] = []
    assert score.score_all(study, states, Drain(), said.append) == 0
    assert loaded == [("hf", "base", 0), ("hf", "rl", 1), ("hf", "rl", 2)]
    assert said[0] == "base-of-base: base on countdown at step 0, by base at step 0"
    assert said[-1] == "rl-of-rl: rl on countdown at step 2, by rl at step 2"
    assert not any(s.missing for s in score.read_score_states(study, names))
    rows = scored(study)
    assert {place: len(of_place) for place, of_place in rows.items()} == {
        ("base", "countdown", "base"): 12, ("rl", "countdown", "base"): 20,
        ("rl", "countdown", "rl"): 20, ("given-texts", "texts", "base"): 3,
    }  # fmt: skip
    given = {
        r["problem"]: (r["n_tokens"], r["logprob_sum"])
        for r in rows["given-texts", "texts", "base"]
    }
    assert given == {
        "texts/1": (4, -float(sum(b"one") + END)), "texts/2": (2, -float(ord("4") + END)),
        "texts/3": (1, -float(END)),
    }  # fmt: skip
    first = study.block("base", "countdown", 0).problems[0]
    (cut,) = (r for r in rows["base", "countdown", "base"] if r["problem"] == first)
    # The one whose response was cut off has no end.
    assert (cut["sample"], cut["n_tokens"]) == (2, 2)
    assert cut["entropy_sum"] == pytest.approx(sum(b"2!") / 10)
    second = study.block("base", "countdown", 0).problems[1]
    empty, _ = (r for r in rows["base", "countdown", "base"] if r["problem"] == second)
    sums = [empty[name] for name in ("sample", "n_tokens", "logprob_sum", "entropy_sum")]
    assert sums == [0, 0, 0.0, 0.0]
    # Of a file only what is missing is read.
    *_, of_file = states
    (text,) = read_texts(study, of_file.condition, [("texts/2", 0)], of_file.requested)
    assert (text.prompt, text.response, text.ended) == ("2 + 2 = ", "4", True)
    # With nothing missing no model is loaded.
    score.score_all(study, score.read_score_states(study, names), Drain(), said.append)
    assert len(loaded) == 3 and len(said) == 6


def test_what_tells_whether_a_score_is_todays_stays_what_it_is() -> None:
    """It is stored with each score: another number would have all of them made again."""
    assert _request_fingerprint("digest", "scorer") == 3456242418264357938
    assert _request_fingerprint(7, "scorer") == 4095050930488373089


@pytest.mark.parametrize(("longest", "too_long"), [(12, 0), (11, 1), (2, 3)])
def test_a_text_that_no_model_holds_with_one_token_more_is_counted(
    file: Path, monkeypatch: pytest.MonkeyPatch, longest: int, too_long: int
) -> None:
    """The longest has eleven tokens, its end included; one without any is scored as nothing."""
    study = load_study(file)
    engine = Adding(longest, Bytes(None))
    monkeypatch.setattr(score, "load_engine", lambda *words: engine)
    states = score.read_score_states(study, ["base-of-file"])
    assert score.score_all(study, states, Drain(), lambda line: None) == too_long
    (rows,) = (rows for place, rows in scored(study).items() if place[1] == "texts")
    assert len(rows) == 3 - too_long
    stopped = Drain()
    stopped.request()
    assert (
        score.score_all(study, score.read_score_states(study, ["base-of-base"]), stopped, print)
        == 0
    )


def test_what_was_scored_is_kept_once_a_minute(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = load_study(file)
    write_samples(study)
    kept: list[int] = []
    seconds = iter([0.0, 59.0, 60.0, 61.0, *([62.0] * 20)])
    monkeypatch.setattr(score, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    monkeypatch.setattr(score, "load_engine", lambda *words: Adding())
    monkeypatch.setattr(tables, "add_scores", lambda layout, *words: kept.append(len(words[-1])))
    score.score_all(
        study, score.read_score_states(study, ["base-of-base"]), Drain(), lambda line: None
    )
    assert kept == [2, 10]


def test_a_match_measures_all_tokens_of_both_arms_at_their_last_steps(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = "match_entropy:\n  cold: {arm: rl, to: base, problems: 4, n: 3, tolerance: 0.05}\n"
    file.write_text(f"{file.read_text()}{more}")
    study = load_study(file, ["arms.rl.temperature=2.0"])
    loaded: list[tuple[str, str, int]] = []

    def engine(study: Study, kind: str, model: str, step: int) -> Adding:
        loaded.append((kind, model, step))
        return Adding()

    monkeypatch.setattr(match, "load_engine", engine)
    said: list[str] = []
    found = match.match(study, "cold", said.append)
    assert loaded == [("hf", "base", 0), ("hf", "rl", 2)]
    # The stand-in is as random as the temperature: 0.7 of the base, from 2.0 down in strides.
    assert [temperature for temperature, _ in found.tried][:3] == [2.0, 1.3333, 0.8889]
    assert found.target == pytest.approx(0.7) and abs(found.temperature - 0.7) <= 0.05
    assert said[0] == "base: 0.7000 nat per token"
    assert said[1] == "rl at 2: 2.0000 nat per token"
    entry = study.file.match_entropy["cold"]
    problems = match.draw_problems(study, entry)
    assert len(problems) == len({problem.id for problem in problems}) == 4
    mean = match.mean_entropy(study, entry, Adding(), "rl", None, problems)  # type: ignore[arg-type]
    assert mean == pytest.approx(2.0)
    with pytest.raises(UserError, match=r"^arm rl: no$"):
        match.mean_entropy(study, entry, Adding(failing=True), "rl", None, problems)  # type: ignore[arg-type]
    every = entry.model_copy(update={"problems": 99})
    assert len(match.draw_problems(study, every)) == 5
    file.write_text(file.read_text().replace("5}", "5}\n  apart: {set: countdown, limit: 2}", 1))
    apart = load_study(file, ["arms.rl.problem_sets=[apart]", "arms.base.problem_sets=[countdown]"])
    with pytest.raises(UserError, match=r"^arms rl and base have no problem set in common$"):
        match.draw_problems(apart, entry)


@pytest.mark.parametrize(("limit", "side"), [(match.COLDEST, -1), (match.HOTTEST, 1)])
def test_no_temperature_beyond_the_limits_is_tried(limit: float, side: int) -> None:
    tried: list[float] = []

    def entropy(temperature: float) -> float:
        tried.append(temperature)
        return temperature

    told = r"^no temperature from 0\.05 to 10\.0 brings the entropy to .*; the nearest is .* at "
    with pytest.raises(UserError, match=told + rf"{limit:g}; raise the match's `tolerance`"):
        match.bisect(entropy, limit + side, 1.0, 0.01)
    strides = math.ceil(abs(math.log(limit)) / math.log(match.STRIDE))
    assert tried[strides] == (min if side < 0 else max)(tried) == limit
    assert match.bisect(entropy, limit, limit + side, 0.01).tried == ((limit, limit),)


def test_engines_and_verifiers_are_refused_before_a_job_meets_them(file: Path) -> None:
    plain = file.read_text()
    study = load_study(file, ["engine.options.rows=7", "engine.tensor_parallel=2"])
    check_engines(study)
    assert load._engine_settings(study, "hf") == {"rows": 7, "dtype": "float32"}
    other = load_study(file, ["engine.dtype=auto", "engine.tensor_parallel=2"])
    assert load._engine_settings(other, "vllm") == {"rows": 32, "tensor_parallel": 2}
    with pytest.raises(UserError, match=r"^engine.name: engine hf: no setting 'rwos'; it has "):
        check_engines(load_study(file, ["engine.options.rwos=7"]))
    with pytest.raises(
        UserError, match=r"^arms.rl.engine: engine vllm: no setting 'device'; it has "
    ):
        check_engines(load_study(file, ["arms.rl.engine=vllm", "engine.options={device: cpu}"]))
    # A model that scores is loaded by the engine of the study, whatever the arms sample with.
    both = [f"arms.{arm}.engine=vllm" for arm in ("base", "rl")]
    options = ["engine.options={memory: 0.5}"]
    with pytest.raises(UserError, match=r"^engine.name: engine hf: no setting"):
        check_engines(load_study(file, [*both, *options]))
    check_verifiers(study)
    file.write_text(plain.replace("limit: 5", "limit: 5, verifier: maht"))
    told = (
        r"^problem_sets\.countdown\.verifier: found 'maht'; allowed: .*, or a file such as \./mine"
    )
    with pytest.raises(UserError, match=told + r"\.py; did you mean math"):
        check_verifiers(load_study(file))


def test_only_an_engine_that_shows_images_gets_them(file: Path) -> None:
    (first, *_) = load_study(file).problems("countdown")
    shown = replace(first, images=(b"png",))
    reject_unseen_images(Adding(), "base", [first])  # type: ignore[arg-type]
    reject_unseen_images(Adding(sees=True), "base", [first, shown])  # type: ignore[arg-type]
    with pytest.raises(
        UserError, match=f"^arm base: {first.id} has images, and this engine cannot"
    ):
        reject_unseen_images(Adding(), "base", [first, shown])  # type: ignore[arg-type]


def test_stored_samples_come_back_with_their_problems_and_verdicts(file: Path) -> None:
    study = load_study(file)
    store_study(study)
    group = Group("base", "countdown")
    first, second, third, *_ = keys_of(study)
    told = {"answer": "42", "rule": "text", "grader": "g", "text": "so 42"}
    failed = row(study, third, Status.FAILED)
    store(study, [replace(row(study, first), **told), row(study, second), failed])  # type: ignore[arg-type]
    (records,) = StoredRun(study.layout, "base", 0).records(group)
    assert [record.key for record in records] == [first, second, third]
    said = [(record.problem.id, record.response, record.verdict) for record in records]
    assert said == [
        (first.problem, "so 42", Verdict(Status.WRONG, "42", "42", "text", "g")),
        (first.problem, "", Verdict(Status.WRONG)),
        (first.problem, "", Verdict(Status.FAILED)),
    ]
    assert list(StoredRun(study.layout, "base", 1).records(group)) == []
