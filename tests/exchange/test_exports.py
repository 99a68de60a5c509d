"""What other tools get of a run, whole: a run of a study, and one of imported results."""

from __future__ import annotations

import re
import resource
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rlbhpc.errors import UserError
from rlbhpc.exchange.arriving import Target
from rlbhpc.exchange.exports import export
from rlbhpc.exchange.imports import import_files
from rlbhpc.store.grid import Grid
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.sample_rows import Sample
from rlbhpc.study.keys import Cell, SampleKey, sample_seed
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import load_study
from rlbhpc.sweep.remember import store_study
from rlbhpc.verify.verdict import Status
from tests.study.folder import write_folder

EXPECTED = Path(__file__).with_name("exported.txt")
IMPORTED = Path(__file__).with_name("exported_imports.txt")
STUDY = """\
name: small
seed: 7
models:
  base: {path: models/base, hub: some/base@main}
MODELS  far: {endpoint: {url: "http://localhost:8000/v1", model: some/served, context: 8192}}
problem_sets:
  math-train: {set: math500, path: math500.jsonl, subset: "train[3]"}
  math500: {path: math500.jsonl, subset: "holdout[3]"}
prompts:
  few: {template: completion, shots: {from: math-train, n: 2}}
sampling: {prompt: qwen-boxed, temperature: 0.6, max_tokens: 64, n: 6}
arms:
  base: {model: base, problem_sets: [math500]}
  few: {model: far, prompt: few, problem_sets: [math500]}
  line: {model: line, steps: [100, 200], problem_sets: [math500]}
engine: {name: hf}
"""
VERDICTS = (Status.RIGHT, Status.WRONG, Status.NO_ANSWER, Status.FAILED, Status.ERROR, Status.RIGHT)
# What differs from run to run, or with the processor in its last digits.
VARYING = {
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}": "UUID",
    r"\b1[0-9]{9}\b": "TIME",
    r"(\.[0-9]{6})[0-9]+": r"\1",
    r"\b[0-9a-f]{16,64}\b": "DIGEST",
    r'("version|"rlbhpc|"math500)": "[0-9].*"': r'\1": "VERSION"',
}


def steady(text: str) -> str:
    for pattern, word in VARYING.items():
        text = re.sub(pattern, word, text)
    return text


def contents(path: Path) -> str:
    files = [file for file in path.rglob("*.js*") if file.is_file()] if path.is_dir() else [path]
    texts = (f"--- {file.relative_to(path.parent)}\n{file.read_text()}\n" for file in files)
    return "".join(sorted(map(steady, texts)))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """Arms of a study with and without worked examples, and one at the second of its steps."""
    file = write_folder(tmp_path / "study")
    monkeypatch.chdir(tmp_path / "study")
    models = file.read_text().partition("models/base}\n")[2].partition("  rl:\n")[0]
    file.write_text(STUDY.replace("MODELS", models))
    study = load_study(file)
    store_study(study)
    for arm, step in (("base", 0), ("few", 0), ("line", 200)):
        block = study.block(arm, "math500", step)
        with JournalWriter(study.layout.journals(arm, "math500"), "attempt") as writer:
            cells = zip(block.problems, block.fingerprints, strict=True)
            for number, (problem, fingerprint) in enumerate(cells):
                for index, verdict in enumerate(VERDICTS[number:]):
                    key = SampleKey(arm, step, problem, index)
                    seed = sample_seed(study.seed, key)
                    answer = "" if verdict is Status.NO_ANSWER else "2"
                    sample = Sample(key, int(fingerprint), seed, verdict, 0, 3, -1.5, 2.5, answer)
                    writer.append(replace(sample, text=f"So {answer}.", rule="box"))
    return study.layout


def exported(run: Layout, folder: Path) -> str:
    texts = []
    for ending in (".csv", ".eee"):
        path = folder / f"out{ending}"
        texts.append(f"=== {ending}: {export(run, path)}\n{contents(path)}")
    return "".join(texts)


def test_exports_of_a_study(run: Layout, tmp_path: Path) -> None:
    assert exported(run, tmp_path) == EXPECTED.read_text()


def test_exports_of_what_was_imported(tmp_path: Path) -> None:
    """Counts of one problem, which have no error, and responses whose setting nobody knows."""
    files = [tmp_path / "counts.csv", tmp_path / "scored.csv"]
    files[0].write_text("problem,n,c\na,2,1\n")
    files[1].write_text("problem,correct,answer\na,1,4\nb,0,5\n")
    layout = Layout(tmp_path / "theirs")
    layout.root.mkdir()
    for file in files:
        import_files(layout, [file], Target(file.stem, "set", "theirs"))
    # Nothing was sampled yet of what is only planned.
    Grid("theirs").grown({Cell("planned", 0, "set/a", 1): 1}).save(layout.grid("planned", "set"))
    assert exported(layout, tmp_path) == IMPORTED.read_text()


def test_every_sample_is_a_row_of_a_table(run: Layout, tmp_path: Path) -> None:
    assert export(run, tmp_path / "out.parquet") == "33 rows"
    table = pq.read_table(tmp_path / "out.parquet")
    first = table.slice(0, 1).to_pylist()[0]
    plain = {name: first[name] for name in ("step", "sample", "verdict", "text", "stop_after")}
    assert plain == {"step": 0, "sample": 0, "verdict": 1, "text": "So 2.", "stop_after": 0}


def test_an_export_that_cannot_be_written_says_why(run: Layout, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"out\.xlsx: no format for this ending; there are .*eee$"):
        export(run, tmp_path / "out.xlsx")
    (tmp_path / "out.eee").mkdir()
    with pytest.raises(UserError, match=r"out\.eee exists; remove it, or choose another name"):
        export(run, tmp_path / "out.eee")
    with pytest.raises(UserError, match="no such folder; make it first"):
        export(run, tmp_path / "absent/out.csv")
    (tmp_path / "out.csv").mkdir()
    with pytest.raises(UserError, match=r"out\.csv"):
        export(run, tmp_path / "out.csv")
    for ending in (".csv", ".eee"):
        with pytest.raises(UserError, match=rf"x\{ending}: File name too long"):
            export(run, tmp_path / f"{'x' * 252}{ending}")
    (run.root / "parts").symlink_to("parts")
    with pytest.raises(UserError, match=r"run.*parts.*symbolic links"):
        export(run, tmp_path / "out.parquet")
    (run.root / "parts").unlink()
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, usual[1]))
    try:
        with pytest.raises(UserError, match=r"big\.csv: File too large"):
            export(run, tmp_path / "big.csv")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


def test_the_hub_reads_the_card_and_the_table(run: Layout, tmp_path: Path) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    folder = tmp_path / "small.hub"
    assert export(run, folder).endswith("rows")
    card = huggingface_hub.DatasetCard((folder / "README.md").read_text())
    (table,) = card.data.configs
    rows = pq.read_table(folder / table["data_files"])
    assert rows.num_rows == pq.read_table(exported_parquet(run, tmp_path)).num_rows > 0
    figures = re.findall(r"!\[.*\]\((.*)\)", card.text)
    assert figures == ["figures/math500.png"]
    assert (folder / figures[0]).read_bytes().startswith(b"\x89PNG")
    assert "| line-200 |" in card.text


def exported_parquet(run: Layout, tmp_path: Path) -> Path:
    export(run, tmp_path / "samples.parquet")
    return tmp_path / "samples.parquet"
