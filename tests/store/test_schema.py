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
from rlbhpc.store.cube_schema import answer_id, shorten_answer
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
    assert len(page.splitlines()) - len(rows) <= 73  # one page, whatever the table holds


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
    assert shorten_answer("x" * 200) == "x" * 200
    assert len(shorten_answer("x" * 201)) == 200


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    layout = Layout(tmp_path_factory.mktemp("compacted"))
    Grid("toy").grown(cells(range(4), 3, (0, 1))).save(layout.grid(ARM, SET))
    journal(layout, samples(range(3), 3, (0, 1)), "a")
    compact(layout)
    return layout.cube


@pytest.fixture
def store(tmp_path: Path, compacted: Path) -> Path:
    return Path(shutil.copytree(compacted, tmp_path / "cube"))


def rewrite(store: Path, name: str, region: Any, value: Any) -> None:
    """Change values of a cube with zarr, checksums and all."""
    zarr.open_group(store / ARM / SET, mode="r+")[name][region] = value  # type: ignore[index]


def test_a_sound_cube_has_no_findings(store: Path) -> None:
    assert validate_cube(store) == []


_NO_SAMPLE = "a value where the verdict says there is no sample"
_NO_VERDICT = [
    f"step 0, problems from 0: {name}: {_NO_SAMPLE}"
    for name in ("seed", "finish", "n_tokens", "logprob_sum", "entropy_sum", "answer")
]


@pytest.mark.parametrize(
    ("name", "region", "value", "findings"),
    [
        ("verdict", (0, 0, 0), -1, _NO_VERDICT),
        ("n", (0, 0), 1, ["step 0, problems from 0: n or c differ from what the verdicts give"]),
        ("c", (2, 1), 6, ["step 1, problems from 0: n or c differ from what the verdicts give"]),
        ("seed", (0, slice(0, 2), 0), 5, ["step 0, problems from 0: seed: two samples share one"]),
        ("seed", (0, slice(0, 2), 0), 0, ["step 0, problems from 0: seed: two samples share one"]),
        ("right", (0, 0, 0), 1, ["step 0, problems from 0: right differs from what the verdicts "
                                  "give"]),
        ("n_tokens", (3, 0, 0), 4, [f"step 0, problems from 0: n_tokens: {_NO_SAMPLE}"]),
        ("logprob_sum", (3, 2, 1), 0.5, [f"step 1, problems from 0: logprob_sum: {_NO_SAMPLE}"]),
    ],
)  # fmt: skip
def test_numbers_that_contradict_each_other_are_found(
    store: Path, name: str, region: Any, value: Any, findings: list[str]
) -> None:
    rewrite(store, name, region, value)
    assert validate_cube(store) == [f"{ARM}/{SET}: {line}" for line in findings]


def test_what_stands_on_disk_is_what_the_page_says(store: Path) -> None:
    text = (store / cube.METADATA).read_text()
    top = json.loads(text)
    assert text == json.dumps(top, indent=1, ensure_ascii=False)
    attributes = {"schema": "rlbhpc-cube", "Conventions": "CF-1.11"}
    assert {**top["attributes"], **attributes} == top["attributes"]
    nodes = top["consolidated_metadata"].pop("metadata")
    assert top["consolidated_metadata"] == {"kind": "inline", "must_understand": False}
    verdict, words = nodes[f"{ARM}/{SET}/verdict"], nodes[f"answers/{ARM}/{SET}/text"]
    assert verdict["chunk_grid"]["configuration"] == {"chunk_shape": [4, 3, 1]}
    assert words["chunk_grid"]["configuration"] == {"chunk_shape": [1 << 17]}
    assert verdict["fill_value"] == -1
    assert nodes[f"{ARM}/{SET}/guessable"]["attributes"] == {
        "long_name": "answered now and then without reasoning",
        "flag_values": [-1, 0, 1],
        "flag_meanings": "unknown no yes",
    }
    configured = [(codec["name"], codec.get("configuration", {})) for codec in verdict["codecs"]]
    assert configured[1][1].items() >= {"cname": "zstd", "clevel": 3}.items()
    assert [name for name, _ in configured] == ["bytes", "blosc", "crc32c"]
    assert words["codecs"][1]["configuration"]["level"] == 3


@pytest.mark.parametrize("data", [b"", bytes(4), b"\1" + bytes(4)])
def test_what_no_chunk_can_be_is_not_intact(tmp_path: Path, data: bytes) -> None:
    assert not cube.intact(tmp_path / "0")
    (tmp_path / "0").write_bytes(data)
    assert not cube.intact(tmp_path / "0")


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
