"""Broken, odd and hostile data files: one clear line each."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from rlbhpc.errors import UserError
from rlbhpc.problems import record
from rlbhpc.problems.record import (
    Record,
    data_files,
    last_balanced,
    number_text,
    read_again,
    read_pairs,
    read_records,
)
from rlbhpc.problems.registry import load_set
from tests.problems import shapes
from tests.problems.shapes import PNG, SHAPES

LINE = json.dumps({"question": "q", "answer": "#### 1"}).encode()


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.jsonl", LINE + b"\n{broken\n", "a.jsonl, record 2: not JSON"),
        ("a.jsonl", b"\xff\xfe\x00", "a.jsonl, record 1: not JSON"),
        ("a.jsonl", b"[1, 2]\n", "record 1: a list; an object with named fields is needed"),
        ("a.jsonl", b"[" * 100_000, "record 1: not JSON"),
        ("a.jsonl", b"\n\n", "no problem in it"),
        ("a.jsonl.gz", gzip.compress(LINE * 99, mtime=0)[:-12], "a.jsonl.gz"),
        ("a.jsonl.gz", b"plain text", "a.jsonl.gz: Not a gzipped file"),
        ("a.json", b"3", "holds a int; a list of records belongs there"),
        ("a.json", b"{", "a.json: not JSON"),
        ("a.parquet", b"PAR1 but not really PAR1", "not a whole Parquet file"),
        ("a.arrow", b"ARROW2 but not really", "not a whole Arrow file"),
        ("a.txt", b"question,answer\n", "not a data file; allowed are .jsonl"),
        ("a.jsonl", b'{"question": "q", "answer": "7"}', "nothing after a last ####"),
        ("a.jsonl", b'{"question": ["q"], "answer": "#### 1"}', "field `question` is a list"),
        ("a.jsonl", b'{"question": " ", "answer": "#### 1"}', "the question is empty"),
        (
            "a.jsonl",
            b'{"question": "q", "answer": "#### 1", "id": "a\\nb"}',
            "no usable problem id",
        ),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: bytes, complaint: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as told:
        load_set("gsm8k", tmp_path / name)
    assert complaint in str(told.value)
    assert str(tmp_path) in str(told.value) and "\n" not in str(told.value)


def test_a_folder_of_everything_is_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "MOST_ENTRIES", 2)
    for name in ("a.jsonl", "notes.txt"):
        (tmp_path / name).write_bytes(LINE)
    assert data_files(tmp_path) == [tmp_path / "a.jsonl"]
    (tmp_path / "more.txt").touch()
    with pytest.raises(UserError, match="more than 2 files and folders in it; give the folder of"):
        data_files(tmp_path)


def test_pairs_have_a_prompt_and_a_response(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"prompt": "1+1", "response": "2"}\n{"prompt": "1+2"}\n')
    pairs = iter(read_pairs(path))
    assert next(pairs) == ("1+1", "2")
    with pytest.raises(UserError, match=r'pairs\.jsonl:2: expected a line like .* \'{"prompt": "1'):
        next(pairs)


def test_a_state_that_datasets_did_not_write_is_told(tmp_path: Path) -> None:
    shapes.arrow_file([{"question": "q", "answer": "#### 1"}], tmp_path, "data.arrow")
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(
        UserError, match=r"state\.json: not what `datasets` writes with save_to_dis"
    ):
        data_files(tmp_path)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file or folder; `rlbhpc stage` fills one"):
        load_set("gsm8k", tmp_path / "missing")
    with pytest.raises(UserError, match=r"no data file in it; looked for \.jsonl"):
        load_set("gsm8k", tmp_path)
    with pytest.raises(UserError, match=r"needs a path: .* `rlbhpc stage gsm8k` filled"):
        load_set("gsm8k", None)


@pytest.mark.parametrize("writer", ["parquet", "datasets folder"])
def test_a_truncated_columnar_file(tmp_path: Path, writer: str) -> None:
    path = shapes.WRITERS[writer](SHAPES["gsm8k"][0] * 1, tmp_path)
    (file,) = data_files(path)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(UserError, match=r"not a whole|fetch it again"):
        load_set("gsm8k", path)


def test_splits_are_told_apart_by_name(tmp_path: Path) -> None:
    for split in ("train", "test"):
        record = {"question": split, "answer": "#### 1"}
        shapes.arrow_file([record], tmp_path / split, "data-00000-of-00001.arrow")
    # A cache that `datasets` left beside the saved data is not part of the set.
    shapes.arrow_file([{"question": "cache", "answer": "#### 1"}], tmp_path / "x", "cache-1.arrow")
    (tmp_path / "x" / "cache-1.arrow").rename(tmp_path / "test" / "cache-1.arrow")
    (tmp_path / "x" / "state.json").unlink()
    for subset, wanted in ((None, "test"), ("test", "test"), ("train", "train")):
        assert [p.fields["question"] for p in load_set("gsm8k", tmp_path, subset)] == [wanted]


def test_a_folder_that_datasets_itself_saved() -> None:
    """``data/saved-by-datasets`` was written by ``DatasetDict.save_to_disk`` of datasets 5.2."""
    folder = Path(__file__).with_name("data") / "saved-by-datasets"
    train, test = load_set("geometry3k", folder, "train"), load_set("geometry3k", folder)
    assert [(p.fields["question"], p.gold) for p in test] == [("Find x2.", "3"), ("Find x0.", "1")]
    assert len(train) == 3 and {p.id for p in test} < {p.id for p in train}
    assert all(p.images[0].startswith(b"\x89PNG") and len(p.images[0]) == 70 for p in train)


def test_a_split_has_further_parts(tmp_path: Path) -> None:
    for number, name in enumerate(("test", "test2", "train", "notes")):
        record = {"question": name, "answer": f"#### {number}"}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(record))
    for subset, golds in ((None, ["0", "1"]), ("test", ["0", "1"]), ("train", ["2"])):
        assert [p.gold for p in load_set("gsm8k", tmp_path, subset)] == golds
    assert [p.gold for p in load_set("gsm8k", tmp_path / "train.jsonl")] == ["2"]


def test_a_file_of_the_other_split_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "test.jsonl"
    file.write_bytes(LINE)
    with pytest.raises(UserError, match=r"no file of the split 'train' in it; found: .*test.jsonl"):
        load_set("gsm8k", file, "train")


def test_duplicates_are_refused_with_both_places(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(LINE + b"\n")
    (tmp_path / "b.jsonl").write_bytes(b"\n" + LINE + b"\n")
    with pytest.raises(UserError) as told:
        load_set("gsm8k", tmp_path)
    assert f"{tmp_path}/b.jsonl, record 1: the same problem as {tmp_path}/a.jsonl, record 1" in str(
        told.value
    )


@pytest.mark.parametrize(
    ("content", "values"),
    [
        ([{"n": 1}, {"n": 2}], [{"n": 1}, {"n": 2}]),
        ({"a": {"n": 1}, "b": {"n": 2, "id": 7}}, [{"id": "a", "n": 1}, {"n": 2, "id": 7}]),
        ({"rows": [{"n": 1}]}, [{"n": 1}]),
        ({"n": 1}, [{"n": 1}]),
        ({"n": [1], "m": 2}, [{"n": [1], "m": 2}]),
    ],
)
def test_the_shapes_of_a_json_file(tmp_path: Path, content: Any, values: list[Any]) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps(content))
    records = [(record.number, record.values) for record in read_records(file)]
    assert records == list(enumerate(values, 1))


def test_a_line_of_a_table_has_as_many_fields_as_the_first(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("x,y\n1,2\n3,4\n")
    assert [(r.number, r.values) for r in read_records(file, 2)] == [(2, {"x": "3", "y": "4"})]
    for line in ("5,6,7", "5"):
        file.write_text(f"x,y\n1,2\n{line}\n")
        with pytest.raises(UserError, match="record 2: not as many fields as the first line"):
            list(read_records(file))


def test_a_record_that_is_gone_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"n": 1}]')
    assert read_again(tmp_path / "a.json", 1, None).values == {"n": 1}
    with pytest.raises(UserError, match=r"a\.json: no record 2 any more; the file has changed"):
        read_again(tmp_path / "a.json", 2, None)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"first \boxed{1}, then \boxed{2}", "2"),
        (r"\boxed{1} and \fbox{ a{b}c }", "a{b}c"),
        (r"\boxed{1} and \boxed{2", "1"),
        (r"\boxed{\{1\}}", r"\{1\}"),
        (r"so \boxed 5. Then", "5"),
        (r"\boxed{3} \boxed  ", "3"),
        ("none", ""),
    ],
)
def test_the_last_box_that_closes(text: str, content: str) -> None:
    assert last_balanced(text) == content


def test_a_solution_without_a_box_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"problem": "q", "solution": "5"}')
    with pytest.raises(UserError, match=r"record 1: no balanced .*boxed.* in field `solution`"):
        load_set("math500", tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("number", "text"),
    [(27.0, "27"), (-3.0, "-3"), (0.5, "0.5"), (7, "7"), (2.0**53 - 1, "9007199254740991"),
     (2.0**53, "9007199254740992.0")],
)  # fmt: skip
def test_numbers_are_written_as_a_person_does(number: float, text: str) -> None:
    assert number_text(number) == text


def test_the_fields_of_a_record(tmp_path: Path) -> None:
    record = Record({"a": None, "b": [1, "x"], "c": True, "n": 2.0}, tmp_path / "f", 3)
    assert record.get("a", "n", "b") == 2.0
    assert record.texts("b") == ["1", "x"]
    assert (record.texts("n"), record.optional_text("a"), record.index()) == ([], "", "")
    numbered = Record({"extra_info": {"index": 0}}, tmp_path, 1)
    assert numbered.index() == "0"
    for names, words in (
        (("a", "b"), "record 3: field `b` is a list; a text or number belongs there"),
        (("c",), "record 3: field `c` is a bool"),
        (("a", "z"), r"record 3: no field `a` or `z`; found: a \(null\), b, c, n"),
    ):
        with pytest.raises(UserError, match=words):
            record.text(*names)


def test_reading_begins_where_it_is_told_to(tmp_path: Path) -> None:
    records = [{"n": i} for i in range(50)]
    for name, writer in shapes.WRITERS.items():
        (tmp_path / name).mkdir()
        (file,) = data_files(writer(records, tmp_path / name))
        for first in (1, 2, 17, 50, 51):
            found = [(r.number, r.values["n"]) for r in read_records(file, first)]
            assert found == [(i + 1, i) for i in range(first - 1, 50)]


def image(value: Any, folder: Path) -> tuple[bytes, ...]:
    return Record({"image": value}, folder / "set.jsonl", 1).images("image")


def test_images_in_every_form(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(PNG)
    for value in (PNG, {"bytes": PNG, "path": "gone.png"}, {"bytes": None, "path": "x.png"}):
        assert image(value, tmp_path) == (PNG,)
    assert image([PNG, "x.png"], tmp_path) == (PNG, PNG)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("../secret", "leads out of"),
        ("/etc/hostname", "leads out of"),
        ("missing.png", "no image file 'missing.png'"),
        (7, "an image is bytes"),
        (b"", "an image is bytes"),
    ],
)
def test_bad_images(tmp_path: Path, value: object, complaint: str) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "secret").write_text("s")
    with pytest.raises(UserError, match=complaint):
        image(value, tmp_path / "set")


def test_an_image_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "secret").write_text("s")
    (tmp_path / "set" / "x.png").symlink_to(tmp_path / "secret")
    with pytest.raises(UserError, match="leads out of"):
        image("x.png", tmp_path / "set")
