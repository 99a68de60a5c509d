"""Journals: what was acknowledged is read back, whatever happened to the file afterwards."""

from __future__ import annotations

import math
import os
import re
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbhpc.errors import UserError
from rlbhpc.store import frames, journal, left_out, sample_rows
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.sample_rows import Sample
from rlbhpc.study.keys import SampleKey
from tests.store import made, reading
from tests.store.kill_tasks import sample

COUNT = 40


def written(folder: Path, count: int = COUNT, *, close: bool = True) -> Path:
    """A journal of samples of several problems and two steps."""
    out = JournalWriter(folder, "attempt")
    for i in range(count):
        out.append(sample(i % 2 * 40, i % 5, i))
    if close:
        out.close()
    return out.path


def short(folder: Path, *, close: bool) -> Path:
    """A journal of few samples without per-token values."""
    out = JournalWriter(folder, "attempt")
    for i in range(16):
        out.append(made.sample(i % 5, i))
    if close:
        out.close()
    return out.path


def plain(table: pa.Table) -> pa.Table:
    """The same values, whatever the dictionaries and chunks."""
    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields)).combine_chunks()


def numbers(path: Path) -> list[int]:
    return reading.read_journal(path, ["sample"]).table["sample"].to_pylist()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Index blocks of seven samples, so that short journals have several."""
    monkeypatch.setattr(journal, "_BLOCK_SAMPLES", 7)


def test_every_field_comes_back(tmp_path: Path) -> None:
    odd = Sample(
        SampleKey("arm", 3, 'set/ü " \\ / 中', 2**31 - 1),
        fingerprint=2**63 - 1,
        seed=2**63 - 1,
        verdict=-1,
        finish=3,
        n_tokens=0,
        logprob_sum=math.nan,
        entropy_sum=-0.0,
        answer="\\frac{1}{2}",
        rule="",
        grader="g\0h",
        text="line\nline\r\n\u2028 \U0001f600",
        error="Traceback …",
        token_ids=np.array([0, 2**31 - 1], np.int32),
        logprobs=np.array([-0.5, -np.inf], np.float16),
        entropies=np.array([np.nan, 6e-8], np.float16),
    )
    with JournalWriter(tmp_path, "attempt") as out:
        out.append(odd)
    (back,) = sample_rows.to_samples(reading.read_journal(out.path).table)
    for name in Sample.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(back, name), getattr(odd, name), strict=True)


def test_the_index_says_what_the_samples_say(tmp_path: Path, small_blocks: None) -> None:
    path = written(tmp_path)
    whole = reading.read_journal(path).table
    assert reading.read_index(path, frames.INDEXED).equals(whole.select(list(frames.INDEXED)))
    assert whole.schema.equals(sample_rows.ROWS)
    assert list(sample_rows.to_samples(whole))[7].text == sample(40, 2, 7).text


def test_names_may_hold_what_stands_between_names(tmp_path: Path) -> None:
    cells = [("arm", 0, "s/],["), ("],[", 1, 's/\\"],["x",0'), ("arm", 2, "s/1")]
    with JournalWriter(tmp_path, "attempt") as out:
        for arm, step, problem in cells:
            out.append(Sample(SampleKey(arm, step, problem, 0), 1, 2, 1, 0, 1, 0.0, 0.0))
    found = journal.read_index(out.path)
    assert not found.skipped and [cell[:3] for cell in found.cells] == cells


def test_half_a_character_from_an_endpoint_becomes_a_replacement_mark(tmp_path: Path) -> None:
    with JournalWriter(tmp_path, "attempt") as out:
        out.append(Sample(SampleKey("a", 0, "s/1", 0), 1, 2, 1, 0, 1, 0.0, 0.0, text="x\ud83dy"))
    assert reading.read_journal(out.path, ["text"]).table["text"].to_pylist() == ["x\ufffdy"]


def test_a_name_is_used_once(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(UserError, match=r"attempt\.journal exists.*start a new attempt"):
        written(tmp_path)


def test_no_sample_no_file(tmp_path: Path) -> None:
    JournalWriter(tmp_path / "folder", "attempt").close()
    assert not (tmp_path / "folder").exists()


def test_one_write_per_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *args: calls.append(1) or real(*args))
    out = JournalWriter(tmp_path, "attempt")
    out.append(sample(0, 0, 0))  # creates the file as well
    for i in range(1, 100):
        calls.clear()
        out.append(sample(0, 0, i))
        assert len(calls) == 1
    out.close()


def test_a_reader_beside_the_writer_sees_what_was_acknowledged(
    tmp_path: Path, small_blocks: None
) -> None:
    out = JournalWriter(tmp_path, "attempt")
    for i in range(COUNT):
        out.append(sample(0, i % 5, i))
        assert numbers(out.path) == list(range(i + 1))
        assert not journal.read_index(out.path).closed
    out.close()
    assert journal.read_index(out.path).closed


@pytest.mark.parametrize(("close", "window"), [(True, 1 << 20), (False, 1 << 20), (False, 61)])
def test_every_cut_leaves_exactly_the_whole_samples_before_it(
    tmp_path: Path, small_blocks: None, monkeypatch: pytest.MonkeyPatch, close: bool, window: int
) -> None:
    monkeypatch.setattr(journal, "_WINDOW_BYTES", window)
    path = short(tmp_path, close=close)
    data = path.read_bytes()
    starts = journal.read_index(path).records["offset"].tolist()
    ends = [start + _frame_at(data, start).size for start in starts]
    edges = {frames.FILE_HEADER_SIZE, *starts, *ends, len(data)}
    near = {edge + i for edge in edges for i in (-1, 0, 1)} & {*range(len(data) + 1)}
    for cut in sorted({*range(0, len(data), 23), *near}):
        path.write_bytes(data[:cut])
        found = reading.read_journal(path, ["sample"])
        whole = sum(end <= cut for end in ends)
        assert found.table["sample"].to_pylist() == list(range(whole))
        assert bool(found.skipped) == (cut not in edges), cut
        # The end of a header, without which nothing is known, is no sample of an unknown one.
        kind = left_out.DAMAGED if 0 < cut < frames.FILE_HEADER_SIZE else left_out.TORN
        assert all((skipped.stop, skipped.kind) == (cut, kind) for skipped in found.skipped), cut


def _frame_at(data: bytes, at: int) -> frames.Header:
    return frames.read_header(data[at:], frames.read_file_header(data)[0])


@pytest.mark.parametrize(("close", "window"), [(True, 1 << 20), (False, 45)])
def test_a_flipped_bit_costs_at_most_the_sample_it_hits(
    tmp_path: Path, small_blocks: None, monkeypatch: pytest.MonkeyPatch, close: bool, window: int
) -> None:
    monkeypatch.setattr(journal, "_WINDOW_BYTES", window)
    path = short(tmp_path, close=close)
    data, whole = path.read_bytes(), plain(reading.read_journal(path).table)
    for at in range(0, len(data), 7):
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        path.write_bytes(flipped)
        found = reading.read_journal(path)
        kept = found.table["sample"].to_pylist()
        assert len(kept) >= whole.num_rows - 1
        assert plain(found.table).equals(whole.take(kept)), f"bit of byte {at}: other data"
        assert found.skipped or len(kept) == whole.num_rows
        light = reading.read_index(path, frames.INDEXED)
        listed = whole.take(light["sample"].to_pylist())
        assert plain(light).equals(listed.select(light.column_names)), at


@pytest.mark.parametrize("damaged", [0, 11, COUNT - 1])
def test_verifying_leaves_out_what_the_index_still_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: int
) -> None:
    path = written(tmp_path)
    with monkeypatch.context() as patch:  # one checksum vouches for all: none is taken apart
        patch.setattr(frames, "read_sample", None)
        assert journal.read_index(path, verify=True).sample_count == COUNT
    offset = int(journal.read_index(path).records["offset"][damaged])
    data = bytearray(path.read_bytes())
    data[offset + frames.HEADER_SIZE + 20] ^= 1
    path.write_bytes(data)
    assert len(journal.read_index(path).records) == COUNT
    verified = journal.read_index(path, verify=True)
    assert verified.records["sample"].tolist() == [i for i in range(COUNT) if i != damaged]
    assert "sample" in verified.skipped[0].reason


def test_a_sample_in_the_place_of_another_is_not_taken_for_it(tmp_path: Path) -> None:
    """A file system may bring blocks back in the wrong place."""
    path = written(tmp_path)
    data, offsets = (
        bytearray(path.read_bytes()),
        journal.read_index(path).records["offset"].tolist(),
    )
    sizes = [_frame_at(bytes(data), offset).size for offset in offsets]
    shortest, longest = (sizes.index(size) for size in (min(sizes), max(sizes)))
    moved = data[offsets[shortest] : offsets[shortest] + sizes[shortest]]
    data[offsets[longest] : offsets[longest] + len(moved)] = moved
    path.write_bytes(data)
    found = reading.read_journal(path, ["sample"])
    assert found.table["sample"].to_pylist() == [i for i in range(COUNT) if i != longest]
    assert [s.reason for s in found.skipped] == ["another frame stands where the index says"]
    assert journal.read_index(path, verify=True).sample_count == COUNT - 1


def test_a_damaged_index_block_is_told_and_costs_no_sample(
    tmp_path: Path, small_blocks: None
) -> None:
    path = short(tmp_path, close=True)
    data, spans = bytearray(path.read_bytes()), journal.read_index(path).spans
    place, stop = spans[1].stop, spans[2].start
    data[place + frames.HEADER_SIZE + 3] ^= 1
    path.write_bytes(data)
    found = journal.read_index(path)
    assert found.records["sample"].tolist() == list(range(16))
    assert not found.closed
    reason = "an index block fails its checksum"
    assert [(s.start, s.stop, s.reason) for s in found.skipped] == [
        (place, place, f"{reason}; every sample was read instead"),
        (place, stop, reason),
    ]


def test_a_header_is_read_by_the_copies_that_agree(tmp_path: Path) -> None:
    path = written(tmp_path)
    data = bytearray(path.read_bytes())
    data[9] ^= 1
    path.write_bytes(data)
    found = reading.read_journal(path, ["sample"])
    assert found.table["sample"].to_pylist() == list(range(COUNT))
    assert [(skipped.start, skipped.stop, skipped.kind) for skipped in found.skipped] == [
        (0, 24, left_out.DAMAGED)
    ]


def lose(path: Path, size: int) -> None:
    """Zero the first bytes of a file, as a lost page is."""
    with path.open("r+b") as file:
        file.write(bytes(size))


def test_a_lost_first_page_takes_only_the_samples_on_it(tmp_path: Path, small_blocks: None) -> None:
    path = written(tmp_path)
    offsets = journal.read_index(path).records["offset"]
    lose(path, 4096)
    on_it = int(np.searchsorted(offsets, 4096))
    assert 0 < on_it < COUNT
    found = reading.read_journal(path)
    assert found.table["sample"].to_pylist() == [*range(on_it, COUNT)]
    assert {skipped.kind for skipped in found.skipped} == {left_out.DAMAGED}
    assert (0, int(offsets[on_it])) == (
        min(skipped.start for skipped in found.skipped),
        max(skipped.stop for skipped in found.skipped),
    )


def test_a_lost_header_is_made_up_for_wherever_a_window_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = short(tmp_path, close=True)
    salt = journal.read_index(path).salt
    lose(path, frames.FILE_HEADER_SIZE)
    for window in range(frames.HEADER_SIZE + 1, path.stat().st_size, 7):
        monkeypatch.setattr(journal, "_WINDOW_BYTES", window)
        found = journal.read_index(path)
        assert (found.salt, found.records["sample"].tolist()) == (salt, [*range(16)]), window


def test_frames_that_name_two_salts_prove_nothing_without_a_header(tmp_path: Path) -> None:
    path, other = (short(tmp_path / name, close=True) for name in "ab")
    index = journal.read_index(other)
    start, stop = index.records["offset"][3:5].tolist()
    lose(path, frames.FILE_HEADER_SIZE)
    with path.open("ab") as file:
        file.write(other.read_bytes()[start:stop])
    found = journal.read_index(path)
    assert (found.sample_count, found.salt) == (0, 0)
    assert [(s.start, s.stop) for s in found.skipped] == [(0, path.stat().st_size)]


def test_the_next_frame_is_found_wherever_a_window_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = short(tmp_path, close=False)
    first, second = journal.read_index(path).records["offset"][:2].tolist()
    data = bytearray(path.read_bytes())
    data[first] ^= 1
    path.write_bytes(data)
    for window in range(frames.HEADER_SIZE + 1, second, 3):
        monkeypatch.setattr(journal, "_WINDOW_BYTES", window)
        found = journal.read_index(path)
        assert found.records["sample"].tolist() == [*range(1, 16)], window
        assert [(s.start, s.stop) for s in found.skipped] == [(first, second)], window


def test_no_frame_is_sought_beyond_what_a_file_gives(tmp_path: Path) -> None:
    """Its size may be known before its data, as on NFS."""
    path = written(tmp_path)
    with path.open("r+b") as file:
        source = journal._JournalFile(file.fileno(), path, salt=1)
        file.truncate(100)
        assert journal._find_next_frame(source, 50) == source.size


def test_zeroed_blocks_of_a_lost_node_are_skipped(tmp_path: Path, small_blocks: None) -> None:
    path = written(tmp_path)
    data = bytearray(path.read_bytes())
    records = journal.read_index(path).records
    start, stop = int(records["offset"][10]) + 5, int(records["offset"][13]) + 5
    data[start:stop] = bytes(stop - start)
    path.write_bytes(data)
    found = reading.read_journal(path)
    assert found.table["sample"].to_pylist() == [i for i in range(COUNT) if not 10 <= i <= 13]
    assert len(found.skipped) == 4


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty file"),
        (b"rlbhpcJ1", "bytes 0 to 8: 8 bytes, shorter than a journal's header"),
        (bytes(500), "bytes 0 to 500: not a journal, or its header is destroyed"),
        (b"no journal at all " * 20, "bytes 0 to 360: not a journal, or its header is destroyed"),
    ],
)
def test_a_file_that_is_no_journal_is_named(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "attempt.journal"
    path.write_bytes(data)
    found = reading.read_journal(path)
    assert found.table.num_rows == 0
    assert [str(skipped) for skipped in found.skipped] == [f"{path}: skipped {reason}"]


def test_a_journal_of_another_format_is_named_and_not_misread(tmp_path: Path) -> None:
    path = written(tmp_path)
    data = bytearray(path.read_bytes())
    data[7:8] = b"1"
    data[20:24] = zlib.crc32(data[:20]).to_bytes(4, "little")
    path.write_bytes(data)
    found = reading.read_journal(path)
    assert found.table.num_rows == 0
    (skipped,) = found.skipped
    assert {"rlbhpcJ1", "rlbhpcJ2", "rlbhpcJ3"} <= set(re.findall(r"\w+", skipped.reason))
    assert (skipped.start, skipped.stop) == (0, len(data))


def test_a_response_that_imitates_a_frame_stays_a_response(tmp_path: Path) -> None:
    path = written(tmp_path, 3)
    forged = path.read_bytes().decode("latin-1")
    with JournalWriter(tmp_path, "next", sync_seconds=60) as out:
        for i in range(3):
            imitation = Sample(SampleKey("a", 0, "s/1", i), 1, 2, 1, 0, 1, 0.0, 0.0, text=forged)
            out.append(imitation)
    data = bytearray(out.path.read_bytes())
    data[frames.FILE_HEADER_SIZE + 3] ^= 255  # the reader loses its place in the first frame
    out.path.write_bytes(data[:-100])  # and has no index
    found = reading.read_journal(out.path)
    assert found.table["sample"].to_pylist() == [1, 2]
    assert found.table["text"].to_pylist() == [forged, forged]


@settings(max_examples=60)
@given(
    texts=st.lists(st.text(), min_size=1, max_size=12),
    block=st.integers(1, 5),
    close=st.booleans(),
)
def test_any_texts_come_back(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], block: int, close: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "_BLOCK_SAMPLES", block)
        out = JournalWriter(tmp_path_factory.mktemp("journal"), "attempt")
        for i, text in enumerate(texts):
            key = SampleKey("a", 0, f"s/{text[:3]!r}", i)
            out.append(Sample(key, 1, 2, 1, 0, len(text), 0.0, 0.0, text=text, answer=text[::-1]))
        if close:
            out.close()
    table = reading.read_journal(out.path).table
    assert table["text"].to_pylist() == texts
    assert table["answer"].to_pylist() == [text[::-1] for text in texts]
    assert table["problem"].to_pylist() == [f"s/{text[:3]!r}" for text in texts]
