"""Sealing: the same samples end in the same files, whoever seals, how often, in which order."""

from __future__ import annotations

import dataclasses
import multiprocessing
import resource
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rlbhpc.exchange.exports import export
from rlbhpc.store import grid as store_grid
from rlbhpc.store import journal, sample_rows, seal, snapshot
from rlbhpc.store.grid import Grid
from rlbhpc.store.reader import open_cube
from rlbhpc.store.seal import seal_run
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Status
from tests.store import made, reading
from tests.store.made import ARM, SET
from tests.store.test_scan import as_verdict, damage, damage_part, grid

PROBLEMS, N = 6, 5


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "run")


@pytest.fixture(autouse=True)
def two_problems_per_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_grid, "_UNIT_SAMPLES", 2 * N)


def run(layout: Layout, asked: Grid | None = None) -> seal.Sealing:
    return seal.seal(layout, ARM, SET, asked or grid(PROBLEMS, N), "sampled")


def files(layout: Layout) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(layout.parts(ARM, SET).iterdir())}


@pytest.fixture
def expected(tmp_path: Path) -> dict[str, bytes]:
    """Files of a run with one attempt, sealed once."""
    layout = Layout(tmp_path / "expected")
    made.journal(layout, made.samples(range(PROBLEMS), N), "only")
    done = run(layout)
    assert (len(done.made), done.sealed, done.open) == (3, 3, 0)
    return files(layout)


@pytest.mark.parametrize("seed", range(4))
def test_order_attempts_and_duplicates_leave_no_trace(
    layout: Layout, expected: dict[str, bytes], seed: int
) -> None:
    wanted = made.shuffled(made.samples(range(PROBLEMS), N), seed)
    for attempt in range(seed + 1):
        made.journal(layout, wanted[attempt :: seed + 1], f"{seed}-{attempt}")
    # Some come twice, and one that nobody asks for.
    made.journal(layout, [*made.shuffled(wanted[:11], seed), made.sample(0, N)], "again")
    run(layout)
    assert files(layout) == expected


def test_sealing_early_and_often_leaves_no_trace(
    layout: Layout, expected: dict[str, bytes]
) -> None:
    wanted = made.shuffled(made.samples(range(PROBLEMS), N), 3)
    for i in range(0, len(wanted), 4):
        made.journal(layout, wanted[i : i + 4], f"attempt-{i}")
        run(layout)
        seal.gc(layout, ARM, SET)
    assert files(layout) == expected
    assert not list(layout.journals(ARM, SET).iterdir())
    assert not run(layout).made


def _seal(root: Path, barrier: object) -> None:
    barrier.wait()  # type: ignore[attr-defined]
    store_grid._UNIT_SAMPLES = 2 * N
    run(Layout(root))


def test_two_who_seal_at_once_end_with_the_same_files(
    layout: Layout, expected: dict[str, bytes]
) -> None:
    made.journal(layout, made.samples(range(PROBLEMS), N), "only")
    context = multiprocessing.get_context("forkserver")
    barrier = context.Barrier(2)
    sealers = [context.Process(target=_seal, args=(layout.root, barrier)) for _ in range(2)]
    for sealer in sealers:
        sealer.start()
    for sealer in sealers:
        sealer.join()
        assert sealer.exitcode == 0
    assert files(layout) == expected


def test_an_incomplete_unit_stays_open(layout: Layout) -> None:
    made.journal(layout, made.samples(range(PROBLEMS), N)[:-1], "one")
    done = run(layout)
    assert (len(done.made), done.sealed, done.open) == (2, 2, 1)


def test_a_larger_n_adds_parts_and_rewrites_none(layout: Layout) -> None:
    made.journal(layout, made.samples(range(PROBLEMS), N), "one")
    run(layout)
    before = files(layout)
    more = [s for s in made.samples(range(PROBLEMS), N + 3) if s.key.sample >= N]
    made.journal(layout, more, "two")
    asked = grid(PROBLEMS, N).grown(made.cells(range(PROBLEMS), N + 3))
    run(layout, asked)
    after = files(layout)
    assert before.items() <= after.items()
    assert seal.gc(layout, ARM, SET).kept == ()
    rows = reading.rows(layout, ARM, SET).table
    assert rows.num_rows == PROBLEMS * (N + 3)
    sealed = [reading.read_part(layout.parts(ARM, SET) / name).table.num_rows for name in after]
    assert sum(sealed) == rows.num_rows


def test_samples_that_nobody_planned_are_sealed_as_they_are(layout: Layout) -> None:
    made.journal(layout, made.samples(range(2), 3), "imported")
    unplanned = Grid("model").covering(made.cells((0, 1), 2))
    assert run(layout, unplanned).sealed == 1
    assert reading.rows(layout, ARM, SET).table.num_rows == 6
    (layout.journals(ARM, SET) / "imported.journal").unlink()
    assert open_cube(layout.root)[f"{ARM}/{SET}"].sizes["sample"] == 3


def test_a_damaged_sample_keeps_its_unit_open_until_it_is_drawn_again(
    layout: Layout, expected: dict[str, bytes]
) -> None:
    wanted = made.samples(range(PROBLEMS), N)
    made.journal(layout, wanted, "one")
    damage(layout.journals(ARM, SET) / "one.journal", 3)
    done = run(layout)
    assert (done.sealed, done.open, done.damaged) == (2, 1, 1)
    missing = reading.scan(layout, ARM, SET, grid(PROBLEMS, N)).missing
    assert [*zip(*missing.nonzero(), strict=True)] == [(0, 0, 3)]
    made.journal(layout, [wanted[3]], "two")
    run(layout)
    assert files(layout) == expected
    seal.gc(layout, ARM, SET)
    assert not list(layout.journals(ARM, SET).iterdir())


def test_a_damaged_part_is_written_again_from_other_copies(
    layout: Layout, expected: dict[str, bytes]
) -> None:
    wanted = made.samples(range(PROBLEMS), N)
    made.journal(layout, wanted, "one")
    part = run(layout).made[0]
    (layout.journals(ARM, SET) / "one.journal").unlink()
    damage_part(part)
    asked = grid(PROBLEMS, N)
    assert not reading.scan(layout, ARM, SET, asked).missing.any()
    assert seal.seal(layout, ARM, SET, asked, "sampled", verify=True).open == 1
    missing = reading.scan(layout, ARM, SET, asked).missing
    lost = [wanted[problem * N + i] for _, problem, i in zip(*missing.nonzero(), strict=True)]
    assert len(lost) == N
    made.journal(layout, lost, "two")
    assert run(layout).made == (part,)
    assert files(layout) == expected
    assert seal.gc(layout, ARM, SET).kept == ()


@pytest.mark.parametrize("note", [b"", b"{}", b'{"places": [24]}'])
def test_a_note_of_damage_that_is_damaged_itself_does_no_harm(layout: Layout, note: bytes) -> None:
    made.journal(layout, made.samples(range(PROBLEMS), N), "one")
    (layout.journals(ARM, SET) / "one.journal.damaged").write_bytes(note)
    assert run(layout).sealed == 3
    seal.gc(layout, ARM, SET)
    assert not list(layout.journals(ARM, SET).iterdir())


def test_units_cover_a_grid_once_and_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for problems, n, steps, number in ((500, 2048, 1, 63), (30, 64, 20, 20), (7, 10**5, 1, 7)):
        cells = made.cells(range(problems), n, range(steps))
        units = list(seal.seal_units(ARM, Grid("model").grown(cells)))
        assert len(units) == number
        assert [cell for unit in units for cell in unit] == list(cells)
    cells = made.cells(range(10_000), 10_000)
    # 39 problems with 10,000 samples each are nearly the 256th part of all.
    assert len(list(seal.seal_units(ARM, Grid("model").grown(cells)))) == 257


def test_a_part_does_not_tell_what_was_held_in_memory_together(
    layout: Layout, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    made.journal(layout, made.samples(range(PROBLEMS), N), "one")
    monkeypatch.setattr(snapshot, "_MAX_BATCH_BYTES", 1)
    monkeypatch.setattr(seal.parts, "_BATCH_BYTES", 1)
    run(layout)
    assert files(layout) == expected


def test_row_groups_of_large_responses_end_where_the_rows_say(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was read together, from journals or from other parts."""
    rows = [
        dataclasses.replace(row, text="x" * (400 * (i % 5)))
        for i, row in enumerate(made.samples(range(2), 20))
    ]
    made.journal(layout, rows, "one")
    most = 5_000
    monkeypatch.setattr(seal.parts, "_GROUP_BYTES", most)
    sealed = []
    for at_once in (1 << 26, 3_000, 1):
        monkeypatch.setattr(snapshot, "_MAX_BATCH_BYTES", at_once)
        run(layout, grid(2, 20))
        sealed.append(files(layout))
        shutil.rmtree(layout.parts(ARM, SET))
    assert sealed[0] == sealed[1] == sealed[2]
    run(layout, grid(2, 20))
    sizes = []
    for part in layout.parts(ARM, SET).iterdir():
        file = pq.ParquetFile(part)
        for number in range(file.num_row_groups):
            group = file.read_row_group(number)
            assert len(set(group["problem"].to_pylist())) == 1
            tokens = 8 * sum(group["n_tokens"].to_pylist())
            sizes.append(tokens + sum(map(len, group["text"].to_pylist())))
    assert len(sizes) > 4
    assert max(sizes) <= most


@pytest.mark.by_turns(3)
@pytest.mark.slow
def test_more_text_than_arrow_counts_is_sealed_and_exported_in_bounded_memory(
    tmp_path: Path,
) -> None:
    """220 responses of 10 MB to one problem, without token counts, as imports have them."""
    process = multiprocessing.get_context("forkserver").Process(
        target=_store_large, args=(tmp_path,)
    )
    process.start()
    process.join()
    assert process.exitcode == 0
    groups = pq.ParquetFile(tmp_path / "out.parquet").metadata
    assert (groups.num_rows, groups.num_row_groups > 1) == (LARGE, True)


LARGE = 220


def _store_large(root: Path) -> None:
    layout = Layout(root / "run")
    text = "x" * 10_000_000
    rows = (
        dataclasses.replace(made.sample(0, i), text=f"{i} {text}", n_tokens=0) for i in range(LARGE)
    )
    made.journal(layout, rows, "one")
    assert len(seal.seal(layout, ARM, SET, grid(1, LARGE), "none").made) == 1
    export(layout, root / "out.parquet")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert peak < 1500, f"{peak:.0f} MiB"


def test_policy_sampled_keeps_tokens_of_right_answers_to_rare_problems(layout: Layout) -> None:
    solved = {0: 4, 1: 2, 2: 0}
    rows = [
        as_verdict(made.sample(p, i), Status.RIGHT if i < solved[p] else Status.WRONG)
        for p in solved
        for i in range(N)
    ]
    made.journal(layout, rows, "one")
    run(layout, grid(3, N))
    found = reading.rows(layout, ARM, SET, ["problem", "sample", "seed", "logprobs"])
    for row in found.table.to_pylist():
        kept = row["logprobs"] is not None
        rare = row["problem"] == made.problem(1) and row["sample"] < 2
        assert kept == (rare or row["seed"] % 100 == 0)


def test_read_back_samples_are_whole(layout: Layout) -> None:
    wanted = made.samples(range(PROBLEMS), N)
    made.journal(layout, wanted, "one")
    seal.seal(layout, ARM, SET, grid(PROBLEMS, N), "all")
    seal.gc(layout, ARM, SET)
    found = {s.key: s for s in sample_rows.to_samples(reading.rows(layout, ARM, SET).table)}
    assert found.keys() == {s.key for s in wanted}
    for sample in wanted:
        assert found[sample.key].text == sample.text
        assert found[sample.key].logprob_sum == sample.logprob_sum


def test_a_journal_that_goes_away_while_it_is_read_begins_the_sealing_anew(
    layout: Layout, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    made.journal(layout, made.samples(range(PROBLEMS), N), "one")
    path = layout.journals(ARM, SET) / "one.journal"
    real, calls = journal.whole_rows, iter([1])

    def vanishing(*args: object) -> object:
        if next(calls, 0):
            path.rename(path.with_name("moved.journal"))
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(journal, "whole_rows", vanishing)
    assert run(layout).sealed == 3
    assert files(layout) == expected


def test_a_journal_that_goes_before_it_is_opened_is_found_among_the_parts(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another job cleans up while `rlbhpc sample` seals what it drew itself."""
    made.journal(layout, made.samples(range(PROBLEMS), N), "one")
    grid(PROBLEMS, N).save(layout.grid(ARM, SET))
    run(layout)
    path = layout.journals(ARM, SET) / "one.journal"
    real = journal.read_index

    def vanishing(*args: object, **options: object) -> object:
        path.unlink(missing_ok=True)
        return real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(journal, "read_index", vanishing)
    assert [done.sealed for done in seal_run(layout).values()] == [3]
