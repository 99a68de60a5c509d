"""What docs/extending.md tells to write works when it is written there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlbhpc.engines.completion import Finish
from rlbhpc.problems.registry import load_set
from rlbhpc.train.rewards import Judged, make_reward
from rlbhpc.verify.registry import verify
from tests.study.folder import write_model

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/extending.md").read_text()
BLOCKS = re.findall(r"```(python|text|yaml)\n# ([^\n]+)\n(.*?)```", PAGE, re.S)
EXAMPLES = [code for _, where, code in BLOCKS if where == "try it"]


def register(file: Path, table: str, lines: str) -> None:
    """Add a line to a registry as the page shows it; an import goes to the imports."""
    text = file.read_text()
    if table.startswith("before "):
        below = table.removeprefix("before ")
        assert text.count(f"\n{below}") == 1, f"{file.name} has not one line {below}"
        file.write_text(text.replace(f"\n{below}", f"\n{lines}{below}"))
        return
    opening = re.search(rf"^{table}\b.*[{{(]", text, re.M)
    assert opening, f"{file.name} has no {table}"
    at, future = opening.end(), "from __future__ import annotations\n"
    for line in lines.splitlines(keepends=True):
        if line.startswith("from "):
            text = text.replace(future, future + line)
            at += len(line)
        else:
            text = text[:at] + line.strip() + text[at:]
    file.write_text(text)


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with everything that the page adds."""
    folder = tmp_path_factory.mktemp("extended")
    shutil.copytree(ROOT / "rlbhpc", folder / "rlbhpc", ignore=shutil.ignore_patterns("*.pyc"))
    for _, where, code in BLOCKS:
        if where.startswith("rlbhpc/"):
            assert not (folder / where).exists(), f"{where} is there already"
            (folder / where).write_text(code)
        elif where.startswith("in rlbhpc/"):
            file, _, table = where.removeprefix("in ").partition(", ")
            register(folder / file, table, code)
    return folder


def run(folder: Path, *arguments: str) -> None:
    """Run Python as a user of the copy would."""
    subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        check=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("code", EXAMPLES, ids=lambda code: code.splitlines()[-1][:40])
def test_an_example_of_the_page_works(extended: Path, code: str) -> None:
    run(extended, "-c", code)


@pytest.mark.slow
def test_a_study_may_name_what_the_page_adds(extended: Path) -> None:
    write_model(extended / "models/base")
    (extended / "sums.jsonl").write_text('{"question": "1 + 1 = ?", "sum": "2"}\n')
    study = """
name: extended
models: {base: {path: models/base}, rl: {train: {from: base, recipe: sign}, steps: [1]}}
problem_sets: {sums: {path: sums.jsonl}}
recipes:
  sign:
    algorithm: sign
    prompt: terse
    problems: sums
    options: {scale: 0.5, rewards: {correct: 1.0, short: 0.1}}
sampling: {prompt: terse, temperature: 1.0, max_tokens: 8, n: 2}
arms: {base: {model: base}, rl: {model: rl}}
"""
    (extended / "study.yaml").write_text(study)
    run(extended, "-m", "rlbhpc", "check", "study.yaml")
    (extended / "misspelt.yaml").write_text(study.replace("scale: 0.5", "scael: 0.5"))
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run(extended, "-m", "rlbhpc", "check", "misspelt.yaml")
    assert failed.value.returncode == 64


@pytest.mark.slow
def test_sealed_samples_have_the_default_of_a_variable_that_came_later(
    extended: Path, tmp_path: Path
) -> None:
    (tmp_path / "rlbhpc").symlink_to(ROOT / "rlbhpc")
    (tmp_path / "samples.jsonl").write_text('{"problem": "sums/1", "correct": true}\n')
    arguments = ("import", "before", "samples.jsonl", "--arm", "base", "--set", "sums")
    run(tmp_path, "-m", "rlbhpc", *arguments)
    run(tmp_path, "-m", "rlbhpc", "seal", "before")
    stored = tmp_path / "before"
    shutil.rmtree(stored / "journals")
    run(extended, "-m", "rlbhpc", "compact", str(stored))
    run(extended, "-m", "rlbhpc", "check", str(stored))
    code = f"""
import rlbhpc
samples = rlbhpc.open_cube({str(stored)!r})["base/sums"]
assert samples["verdict"].item() == 1 and samples["n_words"].item() == -1
"""
    run(extended, "-W", "error", "-c", code)


def test_the_models_of_the_page_are_valid() -> None:
    from rlbhpc.study.complaints import validated
    from rlbhpc.study.expand import expand
    from rlbhpc.study.schema import StudyFile
    from rlbhpc.study.tree import parse

    [models] = [code for _, where, code in BLOCKS if where == "in a study"]
    rest = "name: own\nproblem_sets: {gsm8k: {path: data}}\narms: {mine: {model: mine, n: 1}}\n"
    sampling = "sampling: {prompt: completion, temperature: 1.0, max_tokens: 8}\n"
    validated(expand(parse(models + rest + sampling, "docs/extending.md")), StudyFile)


def test_parts_of_other_frameworks_are_called_as_the_page_says(tmp_path: Path) -> None:
    [code] = [code for _, where, code in BLOCKS if where == "theirs.py"]
    file = tmp_path / "theirs.py"
    file.write_text(code)
    record = {
        "prompt": [{"role": "system", "content": "Add."}, {"role": "user", "content": "1 + 1"}],
        "reward_model": {"style": "rule", "ground_truth": {"target": "2"}},
        "extra_info": {"split": "train", "index": 7},
    }
    pq.write_table(pa.Table.from_pylist([record]), tmp_path / "train.parquet")
    [problem] = load_set(str(file), tmp_path / "train.parquet")
    assert (problem.id.rpartition("/")[2], problem.fields["question"]) == ("7", "1 + 1")
    for response, right in (("It is 2", True), ("It is 3", False)):
        verdict = verify(str(file), problem.gold, response, problem)
        assert verdict.right == right
        judged = Judged(problem, response, 3, 8, Finish.EOS, verdict)
        assert make_reward({str(file): 0.5})(judged) == 0.5 * right


@pytest.mark.slow
def test_the_study_of_the_page_brings_its_parts(tmp_path: Path) -> None:
    for _, where, code in BLOCKS:
        if where in ("mine.py", "mine.yaml"):
            (tmp_path / where).write_text(code)
    write_model(tmp_path / "models/base")
    (tmp_path / "ask.txt").write_text("{question}")
    (tmp_path / "sums.jsonl").write_text('{"q": "1 + 1 = ?", "a": "2"}\n')
    (tmp_path / "plain.jsonl").write_text('{"ask": "1 + 2 = ?", "answer": 3, "uid": "x"}\n')
    command = [sys.executable, "-m", "rlbhpc", "check", "mine.yaml"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    output = subprocess.run(
        command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    ).stdout
    assert re.search(r"mine\.py:Sign +[0-9a-f]{16}", output)
