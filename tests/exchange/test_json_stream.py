"""JSON files that are larger than memory: entry by entry, and the place of what is damaged."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from rlbhpc.errors import UserError
from rlbhpc.exchange.formats import rows
from rlbhpc.exchange.formats.rows import entries
from tests.exchange.made import lines, take_in, take_in_pieces

VALUES: list[Any] = [
    {"a": 'é "quoted" \\ 漢 \U0001f642', "b": [1, -2.5e-3, None, True]},
    1234567890,
    -0.25,
    [],
    {},
    "x\n\u2028y",
    [[{"deep": [{}]}]],
    float("inf"),
]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_entries_are_those_of_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, indent: int | None, encoding: str
) -> None:
    monkeypatch.setattr(rows, "CHUNK", chunk)
    path = tmp_path / "a.json"
    path.write_text(json.dumps(VALUES, ensure_ascii=False, indent=indent), encoding)
    assert list(entries(path)) == [(str(n), value) for n, value in enumerate(VALUES)]
    inner = {str(n): value for n, value in enumerate(VALUES)}
    for held in (VALUES, inner):
        log = {"before": inner, "wanted": held, "after": [VALUES, 7]}
        path.write_text(json.dumps(log, ensure_ascii=False, indent=indent), encoding)
        assert list(entries(path, "wanted")) == list(inner.items())
        assert list(entries(path)) == list(entries(path, "absent")) == []


@pytest.mark.parametrize("text", ["", " \n", "[]", "{}", '"x"', "7", '{"wanted": 3}', "[1]"])
def test_files_without_such_entries_have_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    assert list(entries(path, "wanted")) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[{"a": 1},\n {"a": 2},\n {"a" 3}]', "line 3, character 7: not JSON .*':' delimiter"),
        ('[{"a": 1}\n {"a": 2}]', "line 2, character 2: not JSON .*expected , or ]"),
        ('[{"a": 1},]', "line 1, character 11: not JSON .*Expecting value"),
        ('[{"a": 1}', "line 1, character 10: not JSON .*the file ends"),
        ('[{"a": "1', "line 1, character 8: not JSON .*Unterminated string"),
        ('[{"a": 1}] [', "line 1, character 12: not JSON .*more after"),
        ('[{"a": "\x01"}]', "line 1, character 9: not JSON .*Invalid control character"),
        ("[" * 200_000, "line 1, character 2: not JSON .*nested too deep"),
        ("[" + "9" * 5000 + "]", "line 1, character 2: not JSON .*digits"),
        ('[{"a": tru}]', "line 1, character 8: not JSON .*Expecting value"),
    ],
)
def test_what_is_damaged_has_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, complaint: str
) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    for chunk in (1 << 20, 64, 5):
        monkeypatch.setattr(rows, "CHUNK", chunk)
        with pytest.raises(UserError, match=f"a.json: {complaint}"):
            list(entries(path))


def test_bytes_that_are_no_text_have_a_place(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'[{"problem": "a", "score": 1},\n {"problem": "\xff", "score": 1}]')
    with pytest.raises(UserError, match=r"a\.json: not JSON \(.*position 45"):
        take_in(tmp_path / "run", path)


def test_a_damaged_list_is_refused_where_it_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"problem": "a", "score": 1},\n{"problem": "a", "score": 0,}]')
    with pytest.raises(UserError, match=r"a\.json: line 2, character \d+: not JSON"):
        take_in(tmp_path / "run", path)
    path.write_text('{"eval": {"t/0": []}, "hash": 0')
    with pytest.raises(UserError, match=r"a\.json: line 1, character \d+: not JSON .*file ends"):
        take_in(tmp_path / "run", path)


def scored(number: int) -> dict[str, Any]:
    return {"problem": str(number % 40), "score": number % 2, "text": "x" * 80_000}


def logged(number: int) -> dict[str, Any]:
    return {
        "id": number % 40, "epoch": number // 40 + 1, "scores": {"match": {"value": "C"}},
        "output": {"choices": [{"message": {"content": "x" * 80_000}}]},
    }  # fmt: skip


def livecodebench(number: int) -> dict[str, Any]:
    return {
        "question_id": str(number), "output_list": ["x" * 80_000], "code_list": ["x"],
        "graded_list": [True],
    }  # fmt: skip


def evalplus(number: int) -> list[dict[str, Any]]:
    return [{"task_id": str(number), "solution": "x" * 80_000, "base_status": "pass"}]


@pytest.mark.parametrize("form", ["list", "inspect", "livecodebench", "evalplus"])
def test_a_large_json_file_is_read_in_pieces(tmp_path: Path, form: str) -> None:
    path = tmp_path / "a.json"
    values: dict[str, Any] = {
        "list": lambda: [scored(n) for n in range(1000)],
        "inspect": lambda: {"version": 2, "samples": [logged(n) for n in range(1000)]},
        "livecodebench": lambda: [livecodebench(n) for n in range(1000)],
        "evalplus": lambda: {"hash": "x", "eval": {str(n): evalplus(n) for n in range(1000)}},
    }
    with path.open("w") as file:
        json.dump(values[form](), file)
    take_in_pieces(tmp_path / "run", path)


def test_a_cut_list_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    """Not one response is taken from a file of which the end is missing."""
    rows = [{"problem": f"p{n}", "score": n % 2, "text": 'a "b" \\ c'} for n in range(3)]
    text = json.dumps(rows, indent=1)
    lot = random.Random(2)
    for end in lot.sample(range(3, len(text) - 1), 40):
        path = tmp_path / "a.json"
        path.write_text(text[:end])
        with pytest.raises(UserError) as refusal:
            take_in(tmp_path / "run", path)
        assert "\n" not in str(refusal.value)
    path.write_text(text)
    assert take_in(tmp_path / "run", path).samples == 3


def test_json_lines_under_the_ending_of_json_stay_json_lines(tmp_path: Path) -> None:
    for number, more in enumerate(({}, {"samples": [3]})):
        rows = [{"problem": "a", "score": n, **more} for n in (0, 1)]
        path = lines(tmp_path / "a.json", rows)
        assert take_in(tmp_path / f"run{number}", path).samples == 2
