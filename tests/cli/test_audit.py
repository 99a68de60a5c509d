"""The audit: what second readers say, what is shown in which order, what comes of judgements."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rlbhpc.errors import DONE, UserError
from rlbhpc.study.study import Study
from rlbhpc.sweep import audit as auditing
from rlbhpc.sweep.again import StoredRun
from rlbhpc.sweep.audit import draw, read_again
from rlbhpc.verify.error_audit import (
    Judgement,
    Stratum,
    load_error_rates,
    load_judgements,
    read_sample,
    store_judgement,
)
from tests.cli.test_store_verbs import call
from tests.responses import sums_study, write_responses
from tests.verify.judge_server import Server

STUDY = """
name: audited
models:
  base: {path: model}
  rl: {path: model}
problem_sets:
  gsm8k: {path: sums.jsonl, subset: test}
arms:
  base: {model: base, prompt: qwen-boxed, temperature: 1, max_tokens: 64, n: 8}
  rl: {model: rl, prompt: qwen-boxed, temperature: 1, max_tokens: 64, n: 8}
"""
PROBLEMS, SAMPLES = 4, 8


def responses(gold: int, arm: str) -> list[str]:
    """The gold answer 4 is given once; the base says it in words, which rules can't read."""
    right = 1 if gold == 4 else SAMPLES // 2
    words = f"\\boxed{{\\text{{the sum called {arm}}}}}"
    good = [f"{i} \\boxed{{{gold}}}" for i in range(right)]
    return good + [f"So <b>{gold + 1}</b>: \\boxed{{{gold + 1}}}"] * (SAMPLES - right - 1) + [words]


@pytest.fixture
def study(tmp_path: Path) -> Study:
    study = sums_study(tmp_path, STUDY, PROBLEMS)
    for arm in ("base", "rl"):
        made = {p.id: responses(int(p.gold), arm) for p in study.problems("gsm8k")}
        write_responses(study, arm, made)
    return study


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr("rlbhpc.engines.endpoint.FIRST_DELAY", 0.001)
    served = Server()
    yield served
    served.close()


def audited(study: Study, *words: object) -> dict[str, Any]:
    """What an audit keeps: its strata, how many responses are to be read, second readings."""
    code, result = call("audit", study.layout.root, *words)
    assert code == DONE, result.output
    strata = read_sample(study.layout)
    judged = load_judgements(study.layout)
    drawn = {key for stratum in strata for key in stratum.drawn}
    return {
        "strata": [{**s.side._asdict(), "name": s.name, "size": s.size, "drawn": len(s.drawn)}
                   for s in strata],
        "to_read": len(drawn - judged.keys()),
        "second_readings": lines(study.layout.second_readings),
    }  # fmt: skip


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_sample_is_stratified_and_the_same_each_time(study: Study) -> None:
    record = audited(study, "--responses", 20)
    sizes = {(row["arm"], row["name"]): (row["size"], row["drawn"]) for row in record["strata"]}
    assert sizes == {
        (arm, name): numbers
        for arm in ("base", "rl")
        for name, numbers in {"rare right": (1, 1), "right": (12, 7), "wrong": (19, 7)}.items()
    }
    kept = study.layout.audit_sample.read_bytes()
    assert audited(study, "--responses", 20) == record
    assert study.layout.audit_sample.read_bytes() == kept
    audited(study, "--responses", 20, "--seed", 1)
    assert study.layout.audit_sample.read_bytes() != kept


def test_rare_right_answers_come_first_and_arms_are_mixed(study: Study) -> None:
    stored = StoredRun(study.layout)
    sample = draw(stored, read_again(stored), 200, 0)
    queue = sample.queue(())
    rare = {key for s in sample.strata if s.name == "rare right" for key in s.drawn}
    assert len(rare) == 2 and set(queue[:2]) == rare
    arms = [key.arm for key in queue]
    assert len(set(queue)) == len(queue) == 2 * PROBLEMS * SAMPLES
    changes = sum(one != other for one, other in pairwise(arms))
    assert changes > len(arms) // 4, "an arm is no block"
    assert sample.queue(queue[:5]) == queue[5:]


def test_a_file_goes_out_without_arms_and_comes_back_as_rates(study: Study, tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    audited(study, "--judgements", file)
    out = lines(file)
    assert {frozenset(line) for line in out} == {
        frozenset(("id", "question", "response", "gold", "judgement", "note"))
    }
    assert not any(arm in json.dumps(line) for line in out for arm in ('"base"', '"rl"'))
    # Half of it first: what is judged stays, and the rest is judged by the same command.
    for line in out[: len(out) // 2]:
        line["judgement"] = "right" if f"boxed{{{line['gold']}}}" in line["response"] else "wrong"
    file.write_text("".join(json.dumps(line) + "\n" for line in out))
    record = audited(study, "--judgements", file)
    assert record["to_read"] == len(out) - len(out) // 2
    assert lines(file) == out
    for line in out:
        line["judgement"] = "right" if f"boxed{{{line['gold']}}}" in line["response"] else "wrong"
    out[0]["judgement"] = "wrong"  # the first one is a rare right answer
    file.write_text("".join(json.dumps(line) + "\n" for line in out))
    record = audited(study, "--judgements", file)
    assert record["to_read"] == 0
    rates = load_error_rates(study.layout)
    assert {side.arm for side in rates} == {"base", "rl"}
    assert sum(r.false_right.rate for r in rates.values()) == pytest.approx(1 / 13)
    assert all(r.false_wrong.rate == 0 < r.false_wrong.high < 0.2 for r in rates.values())
    assert [r.false_right.read for r in rates.values()] == [13, 13]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [({"id": "0" * 16}, "is none of this sample"), ({"judgement": "yes"}, "judgement 'yes'")],
)
def test_a_file_that_cannot_be_read_is_left_as_it_is(
    study: Study, tmp_path: Path, change: dict[str, str], complaint: str
) -> None:
    file = tmp_path / "mine.jsonl"
    audited(study, "--judgements", file)
    changed = [line | change for line in lines(file)[:1]]
    file.write_text(json.dumps(changed[0]) + "\n")
    with pytest.raises(UserError, match=f"mine.jsonl:1: .*{complaint}"):
        call("audit", study.layout.root, "--judgements", file)
    assert lines(file) == changed


def test_at_a_terminal_keys_are_judgements(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = iter("rxwuq")
    pages: list[str] = []
    monkeypatch.setattr("click.getchar", lambda: next(keys))
    monkeypatch.setattr("click.echo", lambda text="", **_: pages.append(str(text)))
    monkeypatch.setattr("rlbhpc.cli.verify._is_terminal", lambda: True)
    call("audit", study.layout.root)
    words = [judgement.word for judgement in load_judgements(study.layout).values()]
    assert words == ["right", "wrong", "unclear"]
    shown = [page for page in pages if "Is its answer right" in page]
    assert len(shown) == 4
    assert not any(arm in page for page in shown for arm in ("base/", "step 0"))


def test_judgements_of_what_was_not_drawn_are_no_rates(study: Study) -> None:
    audited(study, "--responses", 5)
    drawn = {key for s in draw_again(study) for key in s.drawn}
    stored = StoredRun(study.layout)
    every = [r.key for g in stored.groups() for records in stored.records(g) for r in records]
    for key in set(every) - drawn:
        store_judgement(study.layout, Judgement(key, "wrong"))
    assert all(r.false_right.read == 0 for r in load_error_rates(study.layout).values())


def draw_again(study: Study) -> tuple[Stratum, ...]:
    stored = StoredRun(study.layout)
    return draw(stored, read_again(stored), 5, 0).strata


def test_math_verify_stands_beside_what_rules_could_not_read(study: Study) -> None:
    record = audited(study)
    kept = lines(study.layout.second_readings)
    assert {row["rule"] for row in kept} <= {"unread", "different"}
    assert len(kept) == 2 * PROBLEMS and {row["samples"] for row in kept} == {1}
    assert all(row["math_verify"] in ("wrong", "unread") for row in kept)
    assert sum(row["samples"] for row in record["second_readings"]) == 2 * PROBLEMS


def test_where_a_second_reader_disagrees_people_look_first(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "MATH_VERIFY", "tests.verify.pool_tasks:always_equal")
    record = audited(study)
    sizes = {(row["arm"], row["name"]): row["size"] for row in record["strata"]}
    assert sizes["base", "disputed wrong"] == sizes["rl", "disputed wrong"] == PROBLEMS
    code, result = call("audit", study.layout.root)
    assert code == DONE
    assert "Answers on which a second reader disagrees" in result.stdout


def test_a_judge_is_asked_only_where_rules_could_not_read(study: Study, server: Server) -> None:
    server.answer = lambda prompt: "It is.\nVerdict: right" if "called rl" in prompt else "Hm."
    judge = f"{server.url}/some/model"
    record = audited(study, "--judge", judge)
    assert len(server.prompts) == 2 * PROBLEMS, "neither numbers nor right answers"
    assert all("the sum called" in prompt for prompt in server.prompts)
    sizes = {(row["arm"], row["name"]): row["size"] for row in record["strata"]}
    assert sizes["rl", "disputed wrong"] == PROBLEMS
    assert ("base", "disputed wrong") not in sizes, "no verdict is none"
    by_judge = Counter(row["judge"] or "-" for row in record["second_readings"])
    assert by_judge == {"right": PROBLEMS, "-": PROBLEMS}
    # What it said is kept; only what it gave no verdict on is asked again.
    server.prompts.clear()
    audited(study, "--judge", judge)
    assert len(server.prompts) == PROBLEMS
    # Verdicts of the run are what they were.
    stored = StoredRun(study.layout)
    verdicts = [r.verdict.right for g in stored.groups() for rs in stored.records(g) for r in rs]
    assert sum(verdicts) == 2 * (1 + 3 * SAMPLES // 2)


def test_what_only_the_lenient_reading_accepts_is_read_early(tmp_path: Path) -> None:
    study = sums_study(tmp_path, STUDY, 1)
    unstated = ["It is 4.", "It is 5.", "Well."]
    for arm in ("base", "rl"):
        write_responses(study, arm, {p.id: unstated for p in study.problems("gsm8k")})
    sizes = {row["name"]: row["size"] for row in audited(study)["strata"] if row["arm"] == "rl"}
    assert sizes == {"disputed wrong": 1, "wrong": 2}


def test_a_study_may_name_the_audit_as_the_source_of_errors(tmp_path: Path) -> None:
    text = f"{STUDY}\nanalysis: {{errors: audit}}\n"
    assert sums_study(tmp_path, text, PROBLEMS).file.analysis.errors == {}
    with pytest.raises(UserError, match="errors"):
        sums_study(tmp_path, text.replace("errors: audit", "errors: judge"), PROBLEMS)
