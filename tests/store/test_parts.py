"""Parts: plain Parquet, same rows same bytes, and no bit of them can change unnoticed."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlbhpc.store import parts, sample_rows
from rlbhpc.store.frames import DamagedError
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.left_out import Skipped
from rlbhpc.verify.verdict import Status
from tests.store import reading
from tests.store.kill_tasks import sample
from tests.store.test_journal import plain

SIZES = (6, 6, 6, 1)


def groups(folder: Path) -> list[pa.Table]:
    """Row groups of three problems, one of them in two row groups."""
    with JournalWriter(folder, "attempt") as out:
        for problem, count in enumerate(SIZES):
            for i in range(count):
                # The third and fourth group are one problem; samples 6 to 8 of it do not exist.
                out.append(sample(0, min(problem, 2), i + 9 * (problem == 3)))
    table = reading.read_journal(out.path).table
    starts = np.cumsum([0, *SIZES])
    return [table.slice(start, size) for start, size in zip(starts, SIZES, strict=False)]


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_GROUP_ROWS", max(SIZES))


@pytest.fixture
def tables(tmp_path: Path) -> list[pa.Table]:
    return groups(tmp_path / "journals")


@pytest.fixture
def part(tmp_path: Path, tables: list[pa.Table]) -> Path:
    return parts.write(tmp_path / "parts", lambda: tables, "all")


@pytest.mark.parametrize("beside_the_footer", [7, 8])
def test_rows_come_back(
    part: Path, tables: list[pa.Table], monkeypatch: pytest.MonkeyPatch, beside_the_footer: int
) -> None:
    monkeypatch.setattr(parts, "_TAIL_BYTES", len(parts.read_footer(part)) + beside_the_footer)
    whole = plain(pa.concat_tables(tables).unify_dictionaries())
    found = reading.read_part(part)
    assert not found.skipped
    assert found.table.schema.equals(sample_rows.ROWS)
    assert plain(found.table).equals(whole)
    one = reading.read_part(part, ["text", "sample"], groups=[2])
    assert plain(one.table).equals(whole.slice(12, 6).select(["sample", "text"]))
    assert not parts.verify(part)


def test_the_footer_lists_the_keys(part: Path) -> None:
    listed = parts.read_listing(part)
    assert [cell.problem for cell in listed.cells] == ["math/0", "math/1", "math/2"]
    assert [group.cell for group in listed.groups] == [0, 1, 2, 2]
    assert [group.samples.tolist() for group in listed.groups] == [
        [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], [9]
    ]  # fmt: skip
    rows = reading.read_part(part, ["verdict", "n_tokens"]).table
    verdicts = [verdict for group in listed.groups for verdict in group.verdicts.tolist()]
    assert verdicts == rows["verdict"].to_pylist()
    assert sum(group.tokens for group in listed.groups) == sum(rows["n_tokens"].to_pylist())


def test_any_parquet_reader_sees_plain_columns(part: Path) -> None:
    file = pq.ParquetFile(part)
    kinds = {str(field.type) for field in file.schema_arrow}
    assert kinds <= {
        "string", "int8", "int32", "int64", "double", "list<element: int32>",
        "list<element: halffloat>",
    }  # fmt: skip
    assert file.metadata.num_row_groups == len(SIZES)
    assert b"ARROW:schema" not in file.metadata.metadata
    encodings = {
        column["path_in_schema"]: set(column["encodings"])
        for column in file.metadata.row_group(0).to_dict()["columns"]
    }
    # DuckDB 2.0 reads no byte-stream split of 16-bit floats.
    assert "BYTE_STREAM_SPLIT" not in encodings["logprobs.list.element"]
    assert "BYTE_STREAM_SPLIT" in encodings["token_ids.list.element"]


def test_same_rows_same_name_and_bytes(part: Path, tmp_path: Path, tables: list[pa.Table]) -> None:
    again = parts.write(tmp_path / "other", lambda: tables, "all")
    assert again.name == part.name
    assert again.read_bytes() == part.read_bytes()
    assert parts.write(part.parent, lambda: tables, "all") == part
    assert parts.write(part.parent, lambda: tables[:-1], "all") != part


def test_a_flipped_bit_is_found_or_harmless(part: Path, soak: bool) -> None:
    """The whole of it is the thousand flips of `make soak`."""
    data, whole = part.read_bytes(), plain(reading.read_part(part).table)
    lot = random.Random(7)
    for at in lot.sample(range(len(data)), 1000 if soak else 100):
        flipped = bytearray(data)
        flipped[at] ^= 1 << lot.randrange(8)
        part.write_bytes(flipped)
        found = reading.read_part(part)
        if not found.skipped:
            assert plain(found.table).equals(whole), f"byte {at}: other data"
        else:
            assert parts.verify(part)
            assert plain(found.table).num_rows < whole.num_rows
        kept = {(row["problem"], row["sample"]): row for row in found.table.to_pylist()}
        for row in whole.to_pylist():
            key = (row["problem"], row["sample"])
            assert kept.get(key, row) == row, f"byte {at}: other data"


def test_flips_that_page_checksums_miss_are_found(part: Path) -> None:
    """Page headers are outside the page checksums: there, a bit can change values unnoticed."""
    data = part.read_bytes()
    plain_whole, whole = pq.ParquetFile(part).read(), plain(reading.read_part(part).table)
    column = (
        pq.read_metadata(part).row_group(0).column(sample_rows.ROWS.get_field_index("logprobs"))
    )
    start = column.data_page_offset
    missed = 0
    for bit in range(8 * (start + 10), 8 * (start + 24)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        part.write_bytes(flipped)
        found = reading.read_part(part)
        assert found.skipped or plain(found.table).equals(whole)
        missed += not _parquet_notices(part, plain_whole)
    assert missed


def _parquet_notices(part: Path, whole: pa.Table) -> bool:
    """Whether a reader with page checksums alone sees that something is wrong, or reads right."""
    try:
        found = pq.ParquetFile(part, page_checksum_verification=True).read()
        found.validate(full=True)
    except (pa.ArrowException, OSError):
        return True
    return bool(found.equals(whole))


def test_a_part_that_is_damaged_after_it_was_listed_is_told(part: Path, soak: bool) -> None:
    whole = reading.read_part(part).table
    listed = parts.read_listing(part)
    every = range(len(listed.groups))
    data = part.read_bytes()
    lot = random.Random(3)
    for _ in range(2000 if soak else 200):
        flipped = bytearray(data)
        flipped[lot.randrange(len(data) // 2, len(data))] ^= 1 << lot.randrange(8)
        part.write_bytes(flipped)
        skipped: list[Skipped] = []
        read = list(parts.read_groups(part, listed, every, sample_rows.ROWS, skipped))
        assert skipped or plain(pa.concat_tables([t for _, t in read])).equals(plain(whole))
    part.unlink()
    with pytest.raises(FileNotFoundError):
        list(parts.read_groups(part, listed, every, sample_rows.ROWS, []))


@pytest.mark.parametrize("keep", [0, 3, 11, 500, -1])
def test_a_cut_part_is_named_and_not_read(part: Path, keep: int) -> None:
    part.write_bytes(part.read_bytes()[:keep])
    found = reading.read_part(part)
    assert found.table.num_rows == 0
    assert "unreadable part" in found.skipped[0].reason
    with pytest.raises(DamagedError):
        parts.read_listing(part)


def test_a_part_under_another_name_is_not_believed(part: Path) -> None:
    other = part.rename(part.with_name("results.parquet"))
    with pytest.raises(DamagedError, match="no checksum in its name"):
        parts.read_listing(other)
    assert reading.read_part(other).skipped


def _kept(table: pa.Table) -> list[bool]:
    return table["logprobs"].is_valid().to_pylist()


def test_token_policies(tables: list[pa.Table]) -> None:
    table = tables[0]
    right = [verdict == Status.RIGHT for verdict in table["verdict"].to_pylist()]
    assert any(right)
    assert _kept(parts.apply_policy(table, "all", 1, 6)) == [True] * 6
    assert _kept(parts.apply_policy(table, "none", 1, 6)) == [False] * 6
    assert _kept(parts.apply_policy(table, "sampled", 2, 6)) == right
    assert _kept(parts.apply_policy(table, "sampled", 3, 6)) == [False] * 6
    assert _kept(parts.apply_policy(table, "sampled", 20, 2048)) == right
    assert _kept(parts.apply_policy(table, "sampled", 21, 2048)) == [False] * 6
    seeds = pa.array(np.arange(200, 206) - 3, pa.int64())
    lot = table.set_column(table.schema.get_field_index("seed"), "seed", seeds)
    assert (
        _kept(parts.apply_policy(lot, "sampled", 2000, 2048)) == [False] * 3 + [True] + [False] * 2
    )


@pytest.mark.parametrize(
    ("footer", "complaint"),
    [
        (b"PAR1 of somebody else", "a Parquet file without a list of samples"),
        (
            b'{"rlbhpc part": {"schema_version": 999}}..',
            rf"written with schema version 999, this program knows 2 to {parts.SCHEMA_VERSION}",
        ),
    ],
)
def test_a_footer_of_another_program_is_told(footer: bytes, complaint: str) -> None:
    with pytest.raises(DamagedError, match=complaint):
        parts.parse_listing(footer)
