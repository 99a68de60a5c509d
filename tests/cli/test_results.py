"""show, compact, import and export on the command line."""

from __future__ import annotations

import csv
import json
import random
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
import yaml
from click.testing import CliRunner, Result

import rlbhpc
from rlbhpc.cli.main import cli
from rlbhpc.cli.shared import visible
from rlbhpc.errors import UserError
from rlbhpc.exchange.formats.inspect_log import InspectLog
from rlbhpc.store.cube_schema import answer_id
from rlbhpc.store.sample_rows import Sample
from rlbhpc.study.layout import Layout
from tests.cli.test_store_verbs import printed
from tests.store.made import journal, sample, samples

EVIL = "\x1b[31mred\x1b]0;title\x07 \x9b2J ‮txet\u2028\r\x00 fine\n\ttab é 漢 🙂"
REFUSED_FILES = Path(__file__).with_name("refused_files.yaml")


PROBLEMS = """\
Problems (4)
arm   step  problem  n  right  failed
base     0  math/0   1      1       3
base     0  math/1   3      1       1
base     5  math/0   3      0       1
base     5  math/1   3      2       1
"""
SAMPLES = """\
Samples (4)
arm   step  problem  sample  verdict  finish       n tokens  seed
base     5  math/1        0  error    eos               147  1286441953961739630
base     5  math/1        1  right    length             58  5636208263378595217
base     5  math/1        2  timeout  length            184  6159258295023352434
base     5  math/1        3  right    stop_string       176  7164065352660030850
"""
RESPONSE = """\
problem:      math/1
sample:       1
arm:          base
step:         5
verdict:      right
answer:       0
finish:       length
n tokens:     58
mean logprob: -3.328125
mean entropy: 0.0546875
seed:         5636208263378595217
fingerprint:  7
origin:       journals/base/math/first.journal
(The question isn't stored in this run.)
Problem 1, try 1.
The answer is 0.
"""


def call(*args: object) -> Result:
    arguments = [str(arg) for arg in args]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    # As in rlbhpc.cli.main: what a verb returns is the exit code.
    result.exit_code = result.return_value
    return result


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    rows = samples(range(4), 12, (0, 5))
    evil = Sample(**{**rows[0].__dict__, "text": EVIL, "answer": "\x1b[2J\n"})
    journal(Layout(folder), [evil, *rows[1:]], "first")
    return folder


@pytest.mark.parametrize(("output", "code"), [("| true", 75), (">&-", 0)])
def test_a_table_that_nobody_reads_is_no_error_text(run: Path, output: str, code: int) -> None:
    # The pipe's reader has ended before the first line of the table.
    script = f'{{ "$@"; echo $? >&2; }} {output}'
    words = ["bash", "-c", script, "bash", sys.executable, "-m", "rlbhpc", "show", run]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.stderr == f"{code}\n"


def test_text_of_models_cannot_act_on_the_terminal() -> None:
    shown = visible(EVIL)
    assert shown == (
        "<U+001B>[31mred<U+001B>]0;title<U+0007> <U+009B>2J <U+202E>txet<U+2028><U+000D><U+0000> "
        "fine\n\ttab é 漢 🙂"
    )
    hidden = "a<U+000A>b <U+001F><U+007F><U+0080>"
    assert visible("a\nb \x1f\x7f\x80", lines=False) == hidden


def test_show_a_response(run: Path) -> None:
    result = call("show", run, "--problem", 0, "--sample", 0, "--step", 0)
    assert result.exit_code == 0
    meant = sample(0, 0)
    for expected in (
        "problem:      math/0",
        f"seed:         {meant.seed}",
        f"n tokens:     {meant.n_tokens}",
        "origin:       journals/base/math/first.journal",
        "answer:       <U+001B>[2J<U+000A>\n",
        "<U+001B>[31mred",
    ):
        assert expected in result.output
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\r"} & {*result.output}

    result = call("show", run, "--problem", "math/0", "--sample", 0, "--json")
    assert [found["step"] for found in json.loads(result.output)] == [0, 5]
    assert json.loads(result.output)[0]["text"] == EVIL
    assert result.output.isascii()


def test_show_lists_problems(run: Path) -> None:
    rows = json.loads(call("show", run, "--json").output)
    assert len(rows) == 8
    of_one = [s for s in samples([2], 12, (5,)) if 0 <= s.verdict <= 3]
    row = next(r for r in rows if r["problem"] == "math/2" and r["step"] == 5)
    assert (row["n"], row["right"]) == (len(of_one), sum(s.verdict == 1 for s in of_one))
    assert "math/3" in call("show", run).output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--problem 77", "no problem '77' in this run; there are"),
        ("--arm bose", "no arm 'bose' in this run; there are base"),
        ("--step 3", "no step 3 in this run; there are 0, 5"),
        ("--sample 3", "--sample needs --problem"),
    ],
)
def test_show_says_what_there_is(run: Path, options: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call("show", run, *options.split())


def test_show_says_that_a_sample_is_not_there(run: Path) -> None:
    result = call("show", run, "--problem", 1, "--sample", 99)
    assert (result.exit_code, result.output) == (4, "No such sample.\n")


def test_show_prints_tables_and_all_that_is_stored_of_a_response(tmp_path: Path) -> None:
    journal(Layout(tmp_path), samples(range(2), 4, (0, 5)), "first")
    assert printed(call("show", tmp_path)) == PROBLEMS
    of_one = ("show", tmp_path, "--problem", 1, "--step", 5)
    assert printed(call(*of_one)) == SAMPLES
    assert printed(call(*of_one, "--sample", 1)) == RESPONSE
    assert "\nfinish:       eos\n" in printed(call(*of_one, "--sample", 0))


def test_compact_twice(run: Path) -> None:
    assert call("compact", run).exit_code == 0
    assert call("compact", run).exit_code == 4
    assert "2 bands derived, 0 kept." in call("compact", run, "--rebuild").output


def test_check_a_cube(run: Path) -> None:
    call("compact", run)
    assert call("check", run).exit_code == 0
    assert call("check", run / "cube.zarr").output.endswith("the cube is sound.\n")
    (run / "cube.zarr" / "base/math/seed/c/0/0/0").resolve().unlink()
    result = call("check", run)
    assert result.exit_code == 3
    assert "base/math/seed/c/0/0/0: missing; run `rlbhpc compact --rebuild`" in result.output
    assert json.loads(call("check", run, "--json").output)


def test_export_to_every_format_and_back(run: Path, tmp_path: Path) -> None:
    for ending in ("parquet", "csv"):
        assert call("export", run, tmp_path / f"out.{ending}").exit_code == 0
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert len(rows) == 4 * 12 * 2
    assert rows[0]["text"] == EVIL
    with (tmp_path / "out.csv").open() as file:
        counts = list(csv.DictReader(file))
    assert len(counts) == 8

    other = tmp_path / "other"
    args = ["import", other, tmp_path / "out.csv", "--arm", "base", "--set", "math"]
    taken = call(*args)
    assert (taken.exit_code, taken.output) == (0, "base/math: counts of 8 problems.\n")
    taken = call(*args)
    assert (taken.exit_code, taken.output) == (4, "base/math: 8 known already.\n")
    again = json.loads(call("show", other, "--json").output)
    assert {(r["step"], r["problem"]): (r["n"], r["right"]) for r in again} == {
        (int(r["step"]), r["problem"]): (int(r["n"]), int(r["c"])) for r in counts
    }
    with pytest.raises(UserError, match=r"no format for this ending; there are \.parquet"):
        call("export", run, tmp_path / "out.xlsx")


def take_in(tmp_path: Path, *files: Path, metric: str | None = None) -> xr.Dataset:
    more = ["--metric", metric] if metric else []
    args = ["import", tmp_path / "in", *files, "--arm", "theirs", "--set", "gsm8k", *more]
    assert call(*args).exit_code == 0
    assert call(*args).exit_code == 4, "the same files again change something"
    call("compact", tmp_path / "in")
    return rlbhpc.open_cube(tmp_path / "in")["theirs/gsm8k"].to_dataset()


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_import_scored_responses(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "a.jsonl",
        [
            {"problem": "7", "correct": True, "text": "yes", "answer": "1", "finish": "length"},
            {"problem": "7", "score": 0, "response": "no", "n_tokens": 5, "seed": 9},
            {"problem": "gsm8k/8", "verdict": "timeout", "sample": 3, "step": 20},
        ],
    )
    cube = take_in(tmp_path, path)
    assert cube.verdict.sel(problem="gsm8k/7", step=0).values.tolist() == [1, 0, -1, -1]
    assert cube.verdict.sel(problem="gsm8k/8", step=20).values.tolist() == [-1, -1, -1, 3]
    assert cube.finish.sel(problem="gsm8k/7", step=0).values.tolist() == [1, -1, -1, -1]
    assert cube.seed.sel(problem="gsm8k/7", step=0).values.tolist() == [-1, 9, -1, -1]
    assert cube.rlb.texts("gsm8k/7", 1, 0).item() == "no"


def record(doc: int, text: str, used: str = "strict", **scores: float) -> dict[str, Any]:
    return {
        "doc_id": doc, "doc": {"question": "?"}, "target": "4", "arguments": {}, "filter": used,
        "resps": [[text]], "filtered_resps": [text[-1:]], "doc_hash": "x", **scores,
    }  # fmt: skip


def test_import_lm_eval_samples(tmp_path: Path) -> None:
    one = lines(
        tmp_path / "1.jsonl", [record(0, "it is 4", exact_match=1.0), record(1, "5", exact_match=0)]
    )
    two = lines(tmp_path / "2.jsonl", [record(0, "it is 3", exact_match=0.0)])
    cube = take_in(tmp_path, one, two)
    assert cube.verdict[:, :, 0].values.tolist() == [[1, 0], [0, -1]]
    assert cube.rlb.texts("gsm8k/0", 1, 0).item() == "it is 3"


def test_import_lm_eval_with_two_filters_needs_a_choice(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "f.jsonl",
        [record(0, "4", "strict", exact_match=0), record(0, "4", "flexible", exact_match=1)],
    )
    with pytest.raises(UserError, match="filters flexible, strict; choose one with --metric"):
        take_in(tmp_path, path)
    cube = take_in(tmp_path, path, metric="exact_match,flexible")
    assert cube.verdict.values.tolist() == [[[1]]]


def inspect_sample(number: int | str, epoch: int, value: Any, text: Any) -> dict[str, Any]:
    return {
        "id": number, "epoch": epoch, "input": "?", "target": "4",
        "output": {
            "choices": [{"message": {"role": "assistant", "content": text},
                         "stop_reason": "max_tokens"}],
            "usage": {"output_tokens": 11},
        },
        "scores": {"match": {"value": value, "answer": "4"}},
    }  # fmt: skip


INSPECT = [
    inspect_sample(1, 1, "C", "four"),
    inspect_sample(
        1, 2, "I", [{"type": "reasoning", "reasoning": "…"}, {"type": "text", "text": "five"}]
    ),
    inspect_sample("b/2", 1, "N", "?"),
    {"id": 1, "epoch": 3, "error": {"message": "refused"}, "output": {"choices": []}},
]


@pytest.mark.parametrize("kind", ["json", "deflate", "zstd"])
def test_import_inspect_logs(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("log.json" if kind == "json" else "log.eval")
    if kind == "json":
        path.write_text(json.dumps({"version": 2, "samples": INSPECT}))
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("header.json", "{}")
            for row in INSPECT:
                name = f"samples/{str(row['id']).replace('/', '_')}_epoch_{row['epoch']}.json"
                archive.writestr(name, json.dumps(row))
        if kind == "zstd":
            path.write_bytes(recompressed(path))
    cube = take_in(tmp_path, path)
    assert cube.verdict.sel(problem="gsm8k/1").values.ravel().tolist() == [1, 0, 4]
    assert cube.verdict.sel(problem="gsm8k/b/2").values.ravel().tolist() == [2, -1, -1]
    assert cube.rlb.texts("gsm8k/1", 1, 0).item() == "five"
    assert cube.finish.sel(problem="gsm8k/1").values.ravel().tolist() == [1, 1, -1]
    assert answer_id("4") in cube.answer.sel(problem="gsm8k/1")
    assert cube.n_tokens.sel(problem="gsm8k/1").values.ravel().tolist() == [11, 11, -1]


@pytest.mark.parametrize("kind", ["deflate", "zstd"])
def test_damaged_inspect_logs_end_in_one_line(tmp_path: Path, kind: str) -> None:
    whole = tmp_path / "whole.eval"
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, row in enumerate(INSPECT):
            archive.writestr(f"samples/{number}.json", json.dumps(row))
    data = recompressed(whole) if kind == "zstd" else whole.read_bytes()
    lot = random.Random(3)
    refused = 0
    for _ in range(1000):
        damaged = bytearray(data)
        for place in lot.sample(range(len(data)), lot.choice((1, 2, 8))):
            damaged[place] ^= 1 << lot.randrange(8)
        path = tmp_path / "log.eval"
        path.write_bytes(damaged[: lot.choice((len(data), lot.randrange(len(data))))])
        try:
            list(InspectLog().read(path, None))
        except UserError as error:
            refused += 1
            assert "\n" not in str(error).strip()
    assert refused > 250


def recompressed(path: Path) -> bytes:
    """The zip with its entries compressed by zstd, as newer versions of inspect write them."""
    out, central, count = bytearray(), bytearray(), 0
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            raw = archive.read(entry)
            data = pa.compress(raw, codec="zstd", asbytes=True)
            name = entry.filename.encode()
            common = (
                b"\x14\x00\x00\x00" + (93).to_bytes(2, "little") + bytes(4)
                + entry.CRC.to_bytes(4, "little") + len(data).to_bytes(4, "little")
                + len(raw).to_bytes(4, "little") + len(name).to_bytes(2, "little")
            )  # fmt: skip
            central += (
                b"PK\x01\x02\x14\x00" + common + bytes(12) + len(out).to_bytes(4, "little") + name
            )
            out += b"PK\x03\x04" + common + b"\x04\x00" + name + b"\xff\xff\x00\x00" + data
            count += 1
    end = b"PK\x05\x06" + bytes(4) + count.to_bytes(2, "little") * 2
    end += len(central).to_bytes(4, "little") + len(out).to_bytes(4, "little") + bytes(2)
    return bytes(out + central + end)


@pytest.mark.parametrize("file", yaml.safe_load(REFUSED_FILES.read_text()))
def test_import_says_where_and_what(tmp_path: Path, file: dict[str, str]) -> None:
    path = tmp_path / file["name"]
    path.write_text(file["content"])
    with pytest.raises(UserError, match=file["message"]):
        call("import", tmp_path / "in", path, "--arm", "a", "--set", "s")


def test_import_refuses_other_responses_under_the_same_number(tmp_path: Path) -> None:
    first = lines(tmp_path / "1.jsonl", [{"problem": "1", "sample": 0, "score": 1}])
    other = lines(tmp_path / "2.jsonl", [{"problem": "1", "sample": 0, "score": 0}])
    take_in(tmp_path, first)
    with pytest.raises(UserError, match="gsm8k/1 sample 0 at step 0: arm theirs has another"):
        call("import", tmp_path / "in", other, "--arm", "theirs", "--set", "gsm8k")
    with pytest.raises(UserError, match=r"'\.\./x' is not a name"):
        call("import", tmp_path / "in", first, "--arm", "../x", "--set", "gsm8k")


def test_datasets_opens_the_exported_table(run: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    assert call("export", run, tmp_path / "out.parquet").output.endswith(": 96 rows\n")
    loaded = datasets.Dataset.from_parquet(
        str(tmp_path / "out.parquet"), cache_dir=str(tmp_path / "cache")
    )
    assert len(loaded) == 4 * 12 * 2
    assert loaded[0]["text"] == EVIL
    assert loaded.features["step"].dtype == "int32"


def test_a_damaged_study_is_not_taken_for_an_import(run: Path, tmp_path: Path) -> None:
    Layout(run).study.write_text('{"format": 1')
    with pytest.raises(UserError, match=r"study\.json: not a study"):
        call("export", run, tmp_path / "out.eee")


def test_every_eval_ever_gets_scores_and_samples(run: Path, tmp_path: Path) -> None:
    """The keys are those that the public schema (0.3.0) requires; whole files were held to it."""
    assert call("export", run, tmp_path / "out.eee").exit_code == 0
    records = {}
    for path in (tmp_path / "out.eee/data").glob("*/*/*/*.json"):
        record = json.loads(path.read_text())
        records[record["model_info"]["additional_details"]["step"]] = record
    assert records.keys() == {"0", "5"}
    record = records["5"]
    assert {"schema_version", "evaluation_id", "retrieved_timestamp", "source_metadata",
            "model_info", "eval_library", "evaluation_results"} <= record.keys()  # fmt: skip
    (first, *_) = record["evaluation_results"]
    assert first["evaluation_name"] == "math pass@1"
    assert first["metric_config"]["metric_parameters"] == {"k": 1}
    rates = rlbhpc.open_cube(run)["base/math"].to_dataset().rlb.pass_at_k(1).sel(step=5).values
    assert first["score_details"]["score"] == pytest.approx(rates.mean())
    details = record["detailed_evaluation_results"]
    lines = (tmp_path / "out.eee" / details["file_path"]).read_text().splitlines()
    judged = [s for s in samples(range(4), 12, (5,)) if 0 <= s.verdict <= 3]
    assert len(lines) == details["total_rows"] == len(judged)
    assert sum(json.loads(line)["evaluation"]["is_correct"] for line in lines) == sum(
        s.verdict == 1 for s in judged
    )


def test_a_folder_that_cannot_be_filled_leaves_nothing(run: Path, tmp_path: Path) -> None:
    (tmp_path / "locked").write_text("a file")
    with pytest.raises(UserError, match="no such folder"):
        call("export", run, tmp_path / "none" / "out.eee")
    with pytest.raises(UserError):
        call("export", run, tmp_path / "locked" / "out.eee")
