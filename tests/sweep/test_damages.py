"""Seeded damages over every kind of file of a sampled study: every verb that reads it tells why."""

from __future__ import annotations

import random
import re
import shutil
from itertools import count
from pathlib import Path

import pytest

from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import DONE, NOTHING_TO_DO, UserError
from rlbhpc.store import sample_rows
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.sources import Group
from rlbhpc.study.layout import Layout
from tests.store import reading
from tests.store.test_damages import DAMAGES, arrays, damageable, delete
from tests.study.test_mutations import called

pytestmark = [pytest.mark.engine, pytest.mark.slow]
STUDY = """
name: damaged
models:
  base: {path: BASE}
  rl: {path: RL, base: base, steps: [1]}
problem_sets:
  countdown: {subset: test, limit: 4}
sampling: {prompt: countdown, temperature: 0.9, max_tokens: 8, n: 4}
arms:
  base: {model: base}
  rl: {model: rl}
storage: {tokens: all}
scores:
  base-of-rl: {model: base, responses: rl, per_problem: 2}
engine: {name: hf, dtype: float32, options: {rows: 32}}
"""
#: What the command prints of a damage may be the count of what is missing now.
COUNTING = {"plan", "status"}
#: With exit code 3, it may be a table with what is missing.
TABLES = {*COUNTING, "score", "report"}
#: Kinds of files that nothing else names: without one, a report tells less.
UNMISSED = {"attempts", "plans", "study.json"}
REFUSED_OR_TOLD = {3, 64, 75}
LASTING = re.compile(r"\d+(\.\d+)? (s|ms|min)\b|[0-9a-f]{8,}")


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study whose base stands in journals, whose other arm is sealed, with scores and a cube."""
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("base", "rl/step-1")):
        make_tiny_model(folder / name, seed=seed, hidden_size=32, initializer_range=0.1)
    study = tmp_path_factory.mktemp("intact") / "study.yaml"
    text = STUDY.replace("BASE", str(folder / "base"))
    study.write_text(text.replace("RL", f'"{folder}/rl/step-{{step}}"'))
    assert called("sample", str(study))[0] == DONE
    layout = Layout(study.parent / "runs" / "damaged")
    group = Group("base", "countdown")
    samples = list(sample_rows.to_samples(reading.rows(layout, *group).table))
    shutil.rmtree(layout.parts(*group))
    for number, sample in enumerate(samples):
        with JournalWriter(layout.journals(*group), f"attempt-{number}") as writer:
            writer.append(sample)
    assert called("score", str(study))[0] == DONE
    assert called("compact", str(layout.root))[0] == DONE
    assert called("plan", str(study))[0] == NOTHING_TO_DO
    return study.parent


def results(study: Path) -> dict[str, tuple[object, str, int]]:
    """What each verb gives, what it says beside it, and its exit code; ``sample`` comes last."""
    run = study.parent / "runs" / "damaged"
    lines: dict[str, tuple[object, str, int]] = {}
    for verb, *words in (
        ("status", str(run)),
        ("plan", str(study)),
        ("report", str(run), "--terminal", "--verbose"),
        ("audit", str(run)),
        ("verify", str(run)),
        ("select", str(run), "base", "countdown", "unsolved"),
        ("score", str(study)),
        ("sample", str(study)),
    ):
        code, out, err = called(verb, *words)
        lines[verb] = LASTING.sub("", out.replace(str(study.parent), "")), err, code
    return lines


def copied(intact: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(intact, target, symlinks=True)) / "study.yaml"


def readable(study: Path, layout: Layout) -> object:
    """The samples; where they are refused, after what the refusal says was done."""
    try:
        return arrays(layout.root, "countdown")
    except UserError as refusal:
        path, _, advice = str(refusal).partition(": ")
        if "`rlbhpc compact --rebuild`" in advice:
            assert called("compact", str(layout.root), "--rebuild")[0] == DONE
        else:
            assert "remove it" in advice and re.search("`rlbhpc (sample|score)`", advice)
            Path(path).unlink()
            called("sample", str(study))
            called("score", str(study))
    return arrays(layout.root, "countdown")


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("seed", [11, 13])
def test_every_verb_tells_and_sampling_goes_on(
    intact: Path, tmp_path: Path, seed: int, soak: bool
) -> None:
    expected = results(copied(intact, tmp_path / "study"))
    codes = {verb: code for verb, (_, _, code) in expected.items()}
    assert codes["sample"] == codes["plan"] == NOTHING_TO_DO
    assert results(copied(intact, tmp_path / "study")) == expected
    cube = arrays(intact / "runs" / "damaged", "countdown")
    rng = random.Random(seed)
    changed = 0
    for number in count():
        # Some damage has no effect, such as that of a byte which nothing reads.
        if number >= (150 if soak else 2) and changed:
            break
        study = copied(intact, tmp_path / "study")
        layout = Layout(study.parent / "runs" / "damaged")
        kinds = damageable(layout)
        kind = rng.choice(sorted(kinds))
        path = rng.choice(kinds[kind])
        damage = rng.choice(DAMAGES)
        damage(rng, path, layout.root)
        note = f"{number}: {damage.__name__} {path.relative_to(layout.root)}"
        verbs = results(study)
        for verb, (content, text, code) in verbs.items():
            assert "Traceback" not in text, f"{note}, {verb}: {text}"
            if (content, code) == (expected[verb][0], codes[verb]):
                continue
            changed += 1
            if code in {DONE, NOTHING_TO_DO}:
                # Missing samples are counted, drawn or scored again, and that is said.
                assert content or text.strip(), f"{note}: {verb} says nothing"
                has_no_trace = damage is delete and kind in UNMISSED
                assert verb in {*COUNTING, "sample", "score"} or has_no_trace, f"{note}: {verb}"
            else:
                assert code in REFUSED_OR_TOLD, f"{note}: {verb} exits with {code}"
                assert text.strip() or (verb in TABLES and content), f"{note}: {verb}"
        if verbs["sample"][2] in {DONE, NOTHING_TO_DO} and damage is not delete:
            called("seal", str(layout.root), "--verify")
            called("sample", str(study))
            again = readable(study, layout)
            assert again == cube, f"{note}: the samples that were drawn again differ"
