"""Plans: what is asked minus what is there, once each, cut into shards of like cost."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbhpc import __version__
from rlbhpc.errors import UserError
from rlbhpc.store import journal
from rlbhpc.store.cube_schema import NO_THINK
from rlbhpc.store.grid import Grid
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.sample_rows import Sample
from rlbhpc.store.seal import seal_run
from rlbhpc.store.sources import Group
from rlbhpc.study.keys import SampleKey
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep import plan as plan_module
from rlbhpc.sweep.load import load_engine
from rlbhpc.sweep.plan import Plan, make_plan, read_presence
from rlbhpc.sweep.remember import load_plan, store_study
from rlbhpc.sweep.worker import still_missing
from rlbhpc.verify.verdict import Status
from tests.store import reading
from tests.studies import write_unloadable_model
from tests.sweep.conftest import keys_of, write_study


@pytest.fixture
def study(tmp_path: Path) -> Study:
    write_unloadable_model(tmp_path / "model")
    return load_study(write_study(tmp_path))


def row(study: Study, key: SampleKey, verdict: Status = Status.WRONG, tokens: int = 5) -> Sample:
    print_ = study.request_fingerprint(key.arm, key.step, key.problem)
    return Sample(key, print_, 1, int(verdict), 0, tokens, -1.0, 1.0)


def store(study: Study, rows: list[Sample], attempt: str = "a") -> None:
    writers: dict[tuple[str, str], JournalWriter] = {}
    for r in rows:
        group = (r.key.arm, r.key.set_name)
        if group not in writers:
            writers[group] = JournalWriter(study.layout.journals(*group), attempt)
        writers[group].append(r)
    for writer in writers.values():
        writer.close()


def planned(plan: Plan) -> Counter[SampleKey]:
    return Counter(
        SampleKey(span.arm, span.step, span.problem, index)
        for shard in plan.shards
        for span in shard.spans
        for index in range(span.start, span.stop)
    )


def plan_of(study: Study, shard_tokens: int = 10**9, retry: bool = False) -> Plan:
    return make_plan(study, read_presence(study.layout, list(study.blocks())), shard_tokens, retry)


@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0, 1), shard_tokens=st.integers(1, 10_000))
@settings(max_examples=25)
def test_a_plan_is_what_is_asked_minus_what_is_there(
    tmp_path_factory: pytest.TempPathFactory, seed: int, share: float, shard_tokens: int
) -> None:
    folder = tmp_path_factory.mktemp("s")
    write_unloadable_model(folder / "model")
    study = load_study(write_study(folder, problems=3))
    rng = np.random.default_rng(seed)
    there = [key for key in keys_of(study) if rng.random() < share]
    store(study, [row(study, key) for key in there])
    got = planned(plan_of(study, shard_tokens))
    assert got == Counter(keys_of(study)) - Counter(there)


def test_shards_cost_about_the_same_and_hold_one_model(study: Study) -> None:
    plan = plan_of(study, shard_tokens=12 * 6)
    costs = [shard.tokens for shard in plan.shards]
    assert len(costs) == round((8 + 4) * 6 * 12 / (12 * 6))
    assert max(costs) <= 2 * min(costs)


def test_lengths_are_learnt_from_what_is_there(study: Study) -> None:
    before = plan_of(study)
    assert before.tokens == (8 + 4) * 6 * 12
    keys = [key for key in keys_of(study) if key.sample == 0]
    store(study, [row(study, key, tokens=3) for key in keys])
    assert plan_of(study).tokens == (7 + 3) * 6 * 3


def test_a_sample_of_another_request_does_not_count(study: Study) -> None:
    key = keys_of(study)[0]
    store(study, [replace(row(study, key), fingerprint=1)])
    assert planned(plan_of(study))[key] == 1
    (block,) = [
        p for p in read_presence(study.layout, list(study.blocks())) if p.block.arm == key.arm
    ]
    assert block.stale == 1


def test_failed_samples_are_set_aside_until_they_are_asked_for(study: Study) -> None:
    first, *rest = keys_of(study)
    store(study, [row(study, first, Status.FAILED), *(row(study, key) for key in rest)])
    assert plan_of(study).samples == 0
    assert planned(plan_of(study, retry=True)) == Counter([first])


def test_raising_n_only_adds_and_lowering_it_deletes_nothing(study: Study) -> None:
    store(study, [row(study, key) for key in keys_of(study)])
    file = study.file
    for n, missing in [(10, 6 * 2), (2, 0), (8, 0)]:
        arms = {**file.arms, "base": file.arms["base"].model_copy(update={"n": n})}
        changed = replace(study, file=file.model_copy(update={"arms": arms}))
        assert plan_of(changed).samples == missing


def test_a_plan_survives_its_file_and_tells_when_it_was_changed(
    study: Study, tmp_path: Path
) -> None:
    plan = plan_of(study, shard_tokens=200)
    path = plan.save(tmp_path / "plans")
    assert Plan.load(path) == plan
    text = path.read_text()
    path.write_text(text.replace('"step":0', '"step":1', 1))
    with pytest.raises(UserError, match=r"not a plan .ValueError.; make a new one"):
        Plan.load(path)
    path.write_text(text.replace(plan.study, "0" * len(plan.study), 1))
    with pytest.raises(UserError, match="the plan's content does not have its name"):
        Plan.load(path)
    path.unlink()
    with pytest.raises(UserError, match="no such plan; make a new one"):
        Plan.load(path)
    kept = plan.save(study.layout.plans)
    with pytest.raises(UserError, match=r"its study is not at .*; make a new plan"):
        load_plan(kept)


def test_samples_of_a_problem_stay_together_by_64(study: Study) -> None:
    arms = {**study.file.arms, "base": study.file.arms["base"].model_copy(update={"n": 150})}
    longer = replace(study, file=study.file.model_copy(update={"arms": arms}))
    (shard,) = plan_of(longer).shards
    spans = [(span.start, span.stop) for span in shard.spans if span.arm == "base"]
    assert sorted({*spans}) == [(0, 64), (64, 128), (128, 150)]
    assert len(spans) == 3 * 6
    assert [span.size for span in shard.spans[:3]] == [64, 64, 22]


def test_what_samples_stand_on_is_kept_with_their_grid(study: Study) -> None:
    store_study(study)
    grid = Grid.load(study.layout.grid("hot", "countdown"))
    assert grid is not None
    provenance = dict(grid.provenance)
    assert study.layout.questions("countdown", provenance.pop("questions")).is_file()
    assert provenance == {
        "study": "tiny",
        "study_seed": study.seed,
        "decides": "strict",
        "model_digests": {"0": study.digests["base"][0]},
        "prompt": study.prompts["countdown"].digest,
        "sampling": study.arms["hot"].sampling.record(),
        "engine": "hf",
        "entropy": "exact: full vocabulary, at the sampling temperature, before top-p",
        "rlbhpc": __version__,
    }


def test_what_is_sampled_without_reasoning_says_so(study: Study, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "no-think-plain.txt").write_text("{question} = ")
    path = write_study(folder, tmp_path / "model")
    plain = path.read_text()
    for prompt, said in (("no-think", True), ("no-think-plain.txt", True), ("countdown", False)):
        path.write_text(plain.replace("prompt: countdown", f"prompt: {prompt}", 1))
        asked = load_study(path)
        store_study(asked)
        for arm, expected in (("base", said), ("hot", False)):
            grid = Grid.load(asked.layout.grid(arm, "countdown"))
            assert grid is not None
            assert grid.provenance.get(NO_THINK, False) is expected


def test_what_a_killed_writer_left_of_a_grid_is_no_group(study: Study) -> None:
    grid = study.layout.grid("base", "countdown")
    grid.parent.mkdir(parents=True)
    (grid.parent / "0123456789abcdef.partial").write_text("{")
    assert study.layout.groups() == []
    grid.write_text("{}")
    assert study.layout.groups() == [("base", "countdown")]


def test_an_endpoint_is_loaded_as_the_study_says_and_its_entropy_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "hidden-value")
    path = write_study(tmp_path)
    served = "endpoint: {url: 'http://127.0.0.1:9/v1', model: m, key_env: SOME_KEY, concurrency: 3}"
    path.write_text(path.read_text().replace("path: model", served))
    study = load_study(path)
    plan = plan_of(study)
    shard = plan.shards[0]
    engine = load_engine(study, shard.engine, shard.model, shard.step)
    assert len(engine._clients) == 3  # type: ignore[attr-defined]
    store_study(study)
    written = "".join(p.read_text() for p in study.layout.root.rglob("*.json"))
    assert "hidden-value" not in written
    assert "lower bound" in study.layout.grid("base", "countdown").read_text()


@pytest.mark.parametrize(("policy", "kept"), [("all", 8), ("none", 0), (None, 0)])
def test_sealing_keeps_the_tokens_that_the_study_says(
    study: Study, policy: Literal["all", "none"] | None, kept: int
) -> None:
    """Sealing by the verb, without an option: gc then removes what was not kept, for good."""
    if policy is not None:
        storage = study.file.storage.model_copy(update={"tokens": policy})
        study = replace(study, file=study.file.model_copy(update={"storage": storage}))
    store_study(study)
    block = study.block("base", "countdown", 0)
    ids = np.array([5, 6], np.int32)
    # A seed that the lot of `sampled` does not draw, and an answer that is wrong.
    rows = [
        replace(row(study, SampleKey("base", 0, block.problems[0], i)), seed=1, token_ids=ids)
        for i in range(8)
    ]
    others = [SampleKey("base", 0, name, i) for name in block.problems[1:] for i in range(8)]
    store(study, [*rows, *(row(study, key) for key in others)])
    assert seal_run(study.layout)[Group("base", "countdown")].sealed == 1
    (part,) = study.layout.parts("base", "countdown").iterdir()
    table = reading.read_part(part, ["problem", "token_ids"]).table
    mine = table.filter(pc.equal(table["problem"].cast("string"), block.problems[0]))
    assert sum(len(tokens or []) > 0 for tokens in mine["token_ids"].to_pylist()) == kept


def test_a_worker_reads_its_own_shards_of_a_plan_and_no_others(study: Study) -> None:
    plan = plan_of(study, shard_tokens=100)
    assert len(plan.shards) > 3
    path = plan.save(study.layout.plans)
    part = Plan.load(path, [2, 0])
    assert part.name == plan.name == path.stem
    assert part.shards == (plan.shards[2], plan.shards[0])
    assert Plan.load(path) == plan
    data = bytearray(path.read_bytes())
    data[-20] ^= 4  # in the last shard's line
    path.write_bytes(data)
    assert Plan.load(path, [0]).shards == (plan.shards[0],)
    with pytest.raises(UserError, match="not a plan"):
        Plan.load(path)
    most = len(plan.shards) - 1
    with pytest.raises(UserError, match=f"no shard 99; allowed: numbers from 0 to {most}"):
        Plan.load(path, [99])
    with pytest.raises(UserError, match=f"no shard {most + 1}; "):
        Plan.load(path, [most + 1])


def test_a_plan_from_before_plans_had_lines_is_still_read(study: Study, tmp_path: Path) -> None:
    """A task may wait in the queue while the program is renewed."""
    plan = plan_of(study, shard_tokens=100)
    shards = [vars(shard).copy() for shard in plan.shards]
    for shard in shards:
        del shard["retries"]
    record = {"study": plan.study, "shards": shards}
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    path = tmp_path / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"
    path.write_text(text)
    assert Plan.load(path) == plan
    assert Plan.load(path, [1]).shards == (plan.shards[1],)
    path.write_text(text.replace('"number":0', '"number":9', 1))
    with pytest.raises(UserError, match="does not have its name"):
        Plan.load(path)


def test_a_shard_asks_only_journals_that_may_hold_its_samples(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(study, shard_tokens=100)
    shard = plan.shards[1]
    span = shard.spans[0]
    key = SampleKey(span.arm, span.step, span.problem, span.start)
    other = SampleKey(span.arm, span.step, span.problem, span.stop - 1)
    for attempt in (f"{plan.name}-00000-aa", f"{plan.name}-00003-bb", "elsewhere"):
        store(study, [row(study, key) if attempt == "elsewhere" else row(study, other)], attempt)
    store(study, [row(study, key)], f"{plan.name}-00001-cc")
    opened: list[str] = []
    real = journal.read_index

    def watched(path: Path, **options: bool) -> journal.JournalIndex:
        opened.append(path.name)
        return real(path, **options)

    monkeypatch.setattr(journal, "read_index", watched)
    left = still_missing(study, plan, shard)
    assert {*opened} == {f"{plan.name}-00001-cc.journal", "elsewhere.journal"}
    assert len(opened) == 2
    assert sum(len(line.indices) for line in left) == shard.samples - 1


def test_a_plan_of_very_many_samples_has_longer_spans(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = read_presence(study.layout, list(study.blocks()))
    monkeypatch.setattr(plan_module, "SPAN", 1)
    single = make_plan(study, present, 10**6)
    monkeypatch.setattr(plan_module, "_MAX_SPANS", 4)
    longer = make_plan(study, present, 10**6)
    assert sum(len(shard.spans) for shard in longer.shards) < single.samples
    assert (
        Counter(_keys(longer)) == Counter(_keys(single)) == Counter(dict.fromkeys(_keys(single), 1))
    )


def _keys(plan: Plan) -> list[SampleKey]:
    return [
        SampleKey(span.arm, span.step, span.problem, sample)
        for shard in plan.shards
        for span in shard.spans
        for sample in range(span.start, span.stop)
    ]


def test_a_damaged_grid_is_written_again_as_its_refusal_says(study: Study) -> None:
    store_study(study)
    path = study.layout.grid("base", "countdown")
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    with pytest.raises(UserError, match="remove it, and `rlbhpc sample` or `launch`"):
        store_study(study)
    path.unlink()
    store_study(study)
    assert path.read_bytes() == whole


def test_the_levels_of_a_problem_set_are_planned_for_the_cube(study: Study, tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    text = path.read_text()
    records = [
        {"problem": f"{i}?", "answer": str(i), "unique_id": str(i), "level": i % 2 + 1}
        for i in range(3)
    ]
    (tmp_path / "math.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    path.write_text(re.sub(r"countdown: \{.*\}", "math500: {path: math.jsonl}", text))
    study = load_study(path)
    store_study(study)
    (set_name,) = study.sets("base")
    grid = Grid.load(study.layout.grid("base", set_name))
    assert grid is not None
    assert grid.provenance["strata"] == {
        "level": {problem: str(i % 2 + 1) for i, problem in enumerate(grid.problems)}
    }
    (tmp_path / "math.jsonl").unlink()
    store_study(study)
    assert Grid.load(study.layout.grid("base", set_name)) == grid, "known from the first plan"
