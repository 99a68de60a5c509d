"""What is there: each sample once, whichever files hold it, and what is missing."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rlbhpc.errors import UserError
from rlbhpc.store import journal, sample_rows, seal, snapshot
from rlbhpc.store.frames import HEADER_SIZE
from rlbhpc.store.grid import Grid
from rlbhpc.store.sample_rows import Sample
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Status
from tests.store import made, reading
from tests.store.made import ARM, SET

N = 4


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def grid(problems: int = 3, n: int = N, steps: tuple[int, ...] = (0,)) -> Grid:
    return Grid("model").grown(made.cells(range(problems), n, steps))


def as_verdict(sample: Sample, verdict: Status, text: str = "") -> Sample:
    return dataclasses.replace(sample, verdict=int(verdict), text=text or sample.text)


def right(number: int, index: int) -> Sample:
    return as_verdict(made.sample(number, index), Status.RIGHT)


def there(layout: Layout, asked: Grid, *, verify: bool = False) -> list[list[list[bool]]]:
    return reading.scan(layout, ARM, SET, asked, verify=verify).there.tolist()


def damage(path: Path, position: int) -> None:
    """Flip a bit in the body of one sample of a journal."""
    data = bytearray(path.read_bytes())
    data[int(journal.read_index(path).records["offset"][position]) + HEADER_SIZE + 9] ^= 4
    path.write_bytes(data)


def damage_part(path: Path, name: str = "text") -> None:
    """Flip a bit of a column in the first row group of a part."""
    metadata = pq.ParquetFile(path).metadata
    column = metadata.row_group(0).column(sample_rows.ROWS.get_field_index(name))
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 9] ^= 4
    path.write_bytes(data)


NO, YES = False, True


def test_nothing_there(layout: Layout) -> None:
    found = reading.scan(layout, ARM, SET, grid())
    assert found.there.tolist() == [[[NO] * N] * 3]
    assert found.missing.all()
    assert reading.rows(layout, ARM, SET).table.equals(sample_rows.ROWS.empty_table())


def test_verdicts_over_journals_and_parts(layout: Layout) -> None:
    made.journal(layout, [right(0, i) for i in range(N)], "one")
    seal.seal(layout, ARM, SET, grid(1), "none")
    made.journal(layout, [right(1, 2), as_verdict(right(1, 3), Status.FAILED)], "two")
    made.journal(layout, [as_verdict(right(2, 0), Status.ERROR), right(0, 1)], "three")
    expected = [[YES] * 4, [NO, NO, YES, YES], [YES, NO, NO, NO]]
    assert there(layout, grid()) == [expected]
    found = reading.scan(layout, ARM, SET, grid())
    assert np.argwhere(found.failed).tolist() == [[0, 1, 3], [0, 2, 0]]
    assert found.missing.sum() == 5
    made.journal(layout, [right(1, 3), right(2, 0), as_verdict(right(0, 0), Status.FAILED)], "4")
    assert not reading.scan(layout, ARM, SET, grid()).failed.any()


def test_the_mean_length_does_not_depend_on_copies(layout: Layout) -> None:
    wanted = [right(0, i) for i in range(N)]
    for attempt in ("one", "two"):
        made.journal(layout, wanted, attempt)
        seal.seal(layout, ARM, SET, grid(1), "none")
        mean_tokens = reading.scan(layout, ARM, SET, grid(1)).mean_tokens
        assert mean_tokens.tolist() == [[sum(s.n_tokens for s in wanted) / N]]


def test_failures_are_known_from_a_part_as_well(layout: Layout) -> None:
    rows = [right(0, 0), as_verdict(right(0, 1), Status.FAILED), right(0, 2), right(0, 3)]
    made.journal(layout, rows, "one")
    seal.seal(layout, ARM, SET, grid(1), "none")
    (layout.journals(ARM, SET) / "one.journal").unlink()
    assert reading.scan(layout, ARM, SET, grid(1)).failed.tolist() == [[[NO, YES, NO, NO]]]


def test_what_an_older_request_or_a_larger_n_left_is_counted_and_not_done(layout: Layout) -> None:
    old = [made.sample(0, i, fingerprint=6) for i in range(N)]
    made.journal(layout, [*old, right(0, 1), right(0, 9), right(8, 0)], "one")
    found = reading.scan(layout, ARM, SET, grid(1))
    assert found.there.tolist() == [[[NO, YES, NO, NO]]]
    assert found.stale == N


def test_cells_may_ask_for_different_numbers(layout: Layout) -> None:
    asked = grid(2).grown(made.cells([1], 2, (40,)))
    assert reading.scan(layout, ARM, SET, asked).missing.tolist() == [
        [[True] * 4, [True] * 4],
        [[False] * 4, [True, True, False, False]],
    ]


def test_rows_are_sorted_and_each_comes_once(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "_MAX_BATCH_ROWS", 5)
    wanted = made.samples(range(3), N, steps=(0, 40))
    for attempt in range(3):
        made.journal(layout, made.shuffled(wanted, attempt), f"attempt-{attempt}")
    seal.seal(layout, ARM, SET, grid(steps=(0,)), "all")
    rows = reading.rows(layout, ARM, SET)
    assert not rows.skipped
    assert not rows.conflicts
    keys = [sample.key for sample in sample_rows.to_samples(rows.table)]
    assert keys == sorted(sample.key for sample in wanted)
    some = reading.rows(layout, ARM, SET, ["text"], problems={made.problem(1)}, steps={40})
    texts = [s.text for s in wanted if s.key.step == 40 and s.key.problem == made.problem(1)]
    assert some.table.to_pydict() == {"text": texts}


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("sealed", [False, True])
def test_of_two_different_samples_one_counts_whatever_the_order(
    layout: Layout, order: tuple[str, str], sealed: bool
) -> None:
    one, other = right(0, 0), as_verdict(right(0, 0), Status.WRONG, "Another try.")
    made.journal(layout, [one], order[0])
    if sealed:
        seal.seal(layout, ARM, SET, grid(1, 1), "all")
    made.journal(layout, [other], order[1])
    rows = reading.rows(layout, ARM, SET)
    chosen = min((one, other), key=lambda s: sample_rows.digest(sample_rows.encode(s)))
    assert [s.text for s in sample_rows.to_samples(rows.table)] == [chosen.text]
    light = reading.rows(layout, ARM, SET, ["verdict"])
    assert light.table["verdict"].to_pylist() == [chosen.verdict]
    # The sealed sample is in two files, so it may differ from the one that counts twice.
    assert {(c.cell.problem, c.sample) for c in rows.conflicts} == {(made.problem(0), 0)}
    assert "two different samples of math/0 no. 0" in str(rows.conflicts[0])


def test_a_success_counts_before_a_failure(layout: Layout) -> None:
    for i in range(8):
        made.journal(layout, [as_verdict(right(0, i), Status.FAILED, f"failure {i}")], f"f{i}")
        made.journal(layout, [right(0, i)], f"s{i}")
    rows = reading.rows(layout, ARM, SET, ["verdict", "text"])
    assert rows.table["verdict"].to_pylist() == [Status.RIGHT] * 8
    assert not rows.conflicts


def test_where_a_copy_is_damaged_another_one_serves(layout: Layout) -> None:
    wanted = [right(0, i) for i in range(N)]
    for attempt in ("one", "two"):
        made.journal(layout, wanted, attempt)
    damage(layout.journals(ARM, SET) / "one.journal", 2)
    rows = reading.rows(layout, ARM, SET)
    assert [s.key.sample for s in sample_rows.to_samples(rows.table)] == list(range(N))
    damage(layout.journals(ARM, SET) / "two.journal", 2)
    rows = reading.rows(layout, ARM, SET)
    assert [s.key.sample for s in sample_rows.to_samples(rows.table)] == [0, 1, 3]
    assert len(rows.skipped) == 2
    one = snapshot.DistinctSamples(snapshot.take_snapshot(layout, ARM, SET), ["text"])
    for _ in range(2):
        assert one.read(np.arange(N), ["text"])["text"].to_pylist() == [
            wanted[i].text for i in (0, 1, 3)
        ]
    assert there(layout, grid(1)) == [[[YES] * 4]]
    assert there(layout, grid(1), verify=True) == [[[YES, YES, NO, YES]]]


def test_a_damaged_row_group_is_found_by_verifying(layout: Layout) -> None:
    made.journal(layout, made.samples(range(2), N), "one")
    (part,) = seal.seal(layout, ARM, SET, grid(2), "all").made
    damage_part(part)
    (layout.journals(ARM, SET) / "one.journal").unlink()
    assert reading.scan(layout, ARM, SET, grid(2), verify=True).missing.sum() == N
    rows = reading.rows(layout, ARM, SET)
    assert rows.table.num_rows == N
    assert rows.skipped


def test_a_column_that_does_not_exist_is_named(layout: Layout) -> None:
    with pytest.raises(Exception, match="column 'verdikt' does not exist; the columns are arm"):
        reading.rows(layout, ARM, SET, ["verdikt"])


@pytest.mark.parametrize("target", ["purged.journal", "link.journal"])
def test_a_link_that_leads_nowhere_is_named(layout: Layout, target: str) -> None:
    folder = layout.journals(ARM, SET)
    folder.mkdir(parents=True)
    (folder / "link.journal").symlink_to(target)
    with pytest.raises(UserError, match=rf"link\.journal: a link to {target}, which leads nowhere"):
        there(layout, grid())


@pytest.mark.parametrize("sealed", [False, True])
def test_what_is_read_at_once_is_bounded_by_bytes(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, sealed: bool
) -> None:
    """Rows keep their order; one that is larger by itself comes alone."""
    sizes = [10, 9_000, 10, 10, 30_000, 10, 10, 9_000] * 4
    rows = [
        dataclasses.replace(made.sample(i // 8, i % 8), text="x" * size)
        for i, size in enumerate(sizes)
    ]
    made.journal(layout, rows, "one")
    if sealed:
        seal.seal(layout, ARM, SET, grid(4, 8), "none")
        monkeypatch.setattr(snapshot.parts, "_BATCH_BYTES", 1)
    else:
        made.journal(layout, rows[::3], "two")
    monkeypatch.setattr(snapshot, "_MAX_BATCH_BYTES", most := 12_000)
    now = snapshot.DistinctSamples(snapshot.take_snapshot(layout, ARM, SET), ["text"])
    which = np.arange(now.count)
    batches = list(now.read_batches(which, ["text"]))
    assert np.concatenate([keys for keys, _ in batches]).tolist() == which.tolist()
    read = [text for _, table in batches for text in table["text"].to_pylist()]
    assert [*map(len, read)] == sizes
    for keys, table in batches:
        assert len(keys) == 1 or sum(map(len, table["text"].to_pylist())) <= most
    assert now.read(which, ["text"])["text"].to_pylist() == read
