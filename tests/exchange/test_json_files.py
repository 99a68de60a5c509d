"""JSON files: their entries, and the place of what is damaged."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from rlbhpc.errors import UserError
from rlbhpc.exchange.formats.rows import NotJsonError, entries
from tests.exchange.made import lines, take_in

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


@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_entries_are_those_of_the_whole_file(
    tmp_path: Path, indent: int | None, encoding: str
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(VALUES, ensure_ascii=False, indent=indent), encoding)
    assert list(entries(path)) == [(str(n), value) for n, value in enumerate(VALUES)]
    inner = {str(n): value for n, value in enumerate(VALUES)}
    for held in (VALUES, inner):
        log = {"before": inner, "wanted": held, "after": [VALUES, 7]}
        path.write_text(json.dumps(log, ensure_ascii=False, indent=indent), encoding)
        assert list(entries(path, "wanted")) == list(inner.items())
        assert list(entries(path)) == list(entries(path, "absent")) == []


@pytest.mark.parametrize("text", ["[]", "{}", '"x"', "7", '{"wanted": 3}', "[1]"])
def test_files_without_such_entries_have_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    assert list(entries(path, "wanted")) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[{"a": 1},\n {"a": 2},\n {"a" 3}]', "line 3"),
        ('[{"a": 1}\n {"a": 2}]', "line 2"),
        ('[{"a": 1},]', "line 1"),
        ('[{"a": 1}', "line 1"),
        ('[{"a": "1', "line 1"),
        ('[{"a": 1}] [', "line 1"),
        ('[{"a": "\x01"}]', "line 1"),
        ("[" * 200_000, ""),
        ("[" + "9" * 5000 + "]", "digits"),
    ],
)
def test_what_is_damaged_has_a_place(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(NotJsonError, match=f"a.json: .*{line}"):
        list(entries(path))


def test_bytes_that_are_no_text_have_a_place(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'[{"problem": "a", "score": 1},\n {"problem": "\xff", "score": 1}]')
    with pytest.raises(UserError, match=r"a\.json: not JSON \(.*position 45"):
        take_in(tmp_path / "run", path)


def test_a_damaged_list_is_refused_where_it_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"problem": "a", "score": 1},\n{"problem": "a", "score": 0,}]')
    with pytest.raises(UserError, match=r"a\.json: not JSON .*line 2"):
        take_in(tmp_path / "run", path)
    path.write_text('{"eval": {"t/0": []}, "hash": 0')
    with pytest.raises(UserError, match=r"a\.json: not JSON .*line 1"):
        take_in(tmp_path / "run", path)


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
