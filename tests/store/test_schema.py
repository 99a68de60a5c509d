"""The schema, its page and its validator say the same."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from rlbhpc.errors import UserError
from rlbhpc.store import cube, cube_schema
from rlbhpc.store.compact import compact
from rlbhpc.store.cube_schema import answer_id, shown
from rlbhpc.store.grid import Grid
from rlbhpc.store.schema_check import validate_cube
from rlbhpc.study.layout import Layout
from tests.store.made import ARM, SET, cells, journal, samples

PAGE = Path(__file__).parents[2] / "docs" / "storage-schema.md"


def test_the_page_has_every_variable_with_its_type_and_meaning() -> None:
    page = PAGE.read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for variable in (*cube_schema.SAMPLE_VARIABLES, *cube_schema.CELL_VARIABLES):
        row = next(row for row in rows if f"`{variable.name}`" in row)
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        kind = "string" if variable.dtype == cube_schema.STRING else str(variable.dtype)
        assert cells[1] == ", ".join(variable.dims)
        assert cells[2] == kind
        assert cells[3] == {"int": "−1", "flo": "NaN", "str": '""'}[kind[:3]]
        for code in variable.attrs.get("flag_values", [])[1:]:
            assert re.search(rf"\b{code} \w", cells[4]), f"{variable.name}: code {code}"
    assert f"`schema_version` = {cube_schema.SCHEMA_VERSION}" in page
    assert len(page.splitlines()) <= 90


def test_codes_and_words_of_verdicts() -> None:
    (verdict,) = (v for v in cube_schema.SAMPLE_VARIABLES if v.name == "verdict")
    assert verdict.attrs["flag_values"] == [-1, 0, 1, 2, 3, 4, 5]
    assert verdict.attrs["flag_meanings"].split() == [
        "missing", "wrong", "right", "no_answer", "verifier_timeout", "generation_failed",
        "verifier_error",
    ]  # fmt: skip


def test_answer_ids_are_exact_in_json_and_floats() -> None:
    ids = [answer_id(str(i)) for i in range(10_000)]
    assert len(set(ids)) == len(ids)
    assert all(0 <= i < 2**48 and int(float(i)) == i for i in ids)
    assert shown("x" * 200) == "x" * 200
    assert len(shown("x" * 201)) == 200


@pytest.fixture
def store(tmp_path: Path) -> Path:
    layout = Layout(tmp_path)
    Grid("toy").grown(cells(range(4), 6, (0, 1))).save(layout.grid(ARM, SET))
    journal(layout, samples(range(3), 6, (0, 1)), "a")
    compact(layout)
    shutil.copytree(layout.cube, tmp_path / "cube")
    return tmp_path / "cube"


def rewrite(store: Path, name: str, region: Any, value: Any) -> None:
    """Change values of a cube with zarr, checksums and all."""
    zarr.open_group(store / ARM / SET, mode="r+")[name][region] = value  # type: ignore[index]


def edit(store: Path, name: str, change: dict[str, Any]) -> None:
    """Change the metadata of an array as a tool would that knows how to consolidate."""
    path = store / ARM / SET / name / cube.METADATA
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    top = json.loads((store / cube.METADATA).read_text())
    top.pop("consolidated_metadata")
    (store / cube.METADATA).write_text(json.dumps(top))
    cube.consolidate(store)


def test_a_sound_cube_has_no_findings(store: Path) -> None:
    assert validate_cube(store) == []


@pytest.mark.parametrize(
    ("name", "region", "value", "finding"),
    [
        ("verdict", (0, 0, 0), 9, "verdict: a code that has no meaning"),
        ("verdict", (0, 0, 0), -1, "a value where the verdict says there is no sample"),
        ("finish", (0, 0, 0), 7, "finish: a code that has no meaning"),
        ("n", (0, 0), 1, "n or c differ from what the verdicts give"),
        ("c", (2, 1), 6, "n or c differ from what the verdicts give"),
        ("seed", (0, slice(0, 2), 0), 5, "seed: two samples share one"),
        ("answer", (0, 0, 0), 12345, "ids of problem 0, block 0 and its vocabulary differ"),
        ("n_tokens", (3, 0, 0), 4, "n_tokens: a value where the verdict says"),
        ("problem", 1, "math/0", "problem: the same label twice"),
    ],
)
def test_numbers_that_contradict_each_other_are_found(
    store: Path, name: str, region: Any, value: Any, finding: str
) -> None:
    rewrite(store, name, region, value)
    assert any(finding in line for line in validate_cube(store)), validate_cube(store)


@pytest.mark.parametrize(
    ("name", "change", "finding"),
    [
        ("verdict", {"fill_value": 0}, "verdict: fill value 0, the schema has -1"),
        ("verdict", {"dimension_names": ["problem", "try", "step"]}, "verdict: dimensions"),
        ("verdict", {"attributes": {"_FillValue": -1}}, "verdict: has a _FillValue"),
        ("seed", {"data_type": "uint64", "fill_value": 1}, "seed: type uint64, the schema has"),
    ],
)
def test_metadata_that_breaks_the_schema_is_found(
    store: Path, name: str, change: dict[str, Any], finding: str
) -> None:
    edit(store, name, change)
    assert any(finding in line for line in validate_cube(store)), validate_cube(store)


def test_files_too_many_and_too_few_are_found(store: Path) -> None:
    (store / "notes.txt").write_text("mine")
    assert validate_cube(store) == ["notes.txt: does not belong to the cube; remove it"]
    (store / "notes.txt").unlink()
    shutil.rmtree(store / ARM / SET / "seed")
    findings = validate_cube(store)
    assert f"{ARM}/{SET}/seed/zarr.json: differs" in findings[0]
    assert any("seed/c/0/0/0: missing" in line for line in findings)


def test_what_is_no_cube_at_all(tmp_path: Path) -> None:
    assert validate_cube(tmp_path / "absent") == [f"{tmp_path / 'absent'}: no such folder"]
    assert "zarr.json" in validate_cube(tmp_path)[0]
    fills = {variable.name: variable.fill for variable in cube_schema.SAMPLE_VARIABLES}
    assert np.isnan(fills["logprob_sum"])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({}, ""),
        (
            {"schema_version": cube_schema.SCHEMA_VERSION + 1},
            r"written with schema version \d+, th",
        ),
        ({"schema": "another"}, "its metadata does not have the checksum"),
    ],
)
def test_a_cube_of_a_later_program_is_refused(
    tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    attributes = {"schema": cube_schema.SCHEMA, "schema_version": cube_schema.SCHEMA_VERSION}
    attributes |= change
    attributes[cube.CHECKSUM] = cube.metadata_checksum(attributes, {})
    top = {"attributes": attributes, "consolidated_metadata": {"metadata": {}}}
    (tmp_path / cube.METADATA).write_text(json.dumps(top))
    if not complaint:
        assert cube.read_checked(tmp_path) == (top, {})
        return
    with pytest.raises(UserError, match=complaint):
        cube.read_checked(tmp_path)
