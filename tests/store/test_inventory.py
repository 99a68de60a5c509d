"""Taking stock: the bits say what the samples say, whatever happened to the files."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlbhpc.store import left_out, seal, snapshot
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.parts import FAILED
from rlbhpc.store.sample_rows import Sample
from rlbhpc.store.snapshot import COMPLETED_FLAG, FAILED_FLAG, RIGHT_FLAG
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Status
from tests.store import reading
from tests.store.made import ARM, SET, journal, problem, sample
from tests.store.test_scan import damage, grid

P, N = 5, 21
PROBLEMS = [problem(p) for p in range(P)]
ASKED = np.full(P, 7)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def anything(lot: random.Random) -> Sample:
    """A sample, an older request's, a failure, or one beyond what is planned."""
    fingerprint = 7 if lot.random() < 0.9 else 6
    drawn = sample(lot.randrange(P), lot.randrange(N + 3), lot.choice((0, 4)))
    drawn = sample(*key(drawn), fingerprint=fingerprint)
    return replace(drawn, verdict=int(Status.FAILED), text="") if lot.random() < 0.2 else drawn


def key(drawn: Sample) -> tuple[int, int, int]:
    return int(drawn.key.problem.partition("/")[2]), drawn.key.sample, drawn.key.step


def agrees(layout: Layout) -> None:
    """Compare with the rows themselves, each read and sorted."""
    rows = reading.rows(layout, ARM, SET).table.to_pylist()
    stock = snapshot.take_inventory(layout, ARM, SET)
    for step in (0, 4):
        held = stock.flags_of(step, PROBLEMS, ASKED)
        at_step = [row for row in rows if row["step"] == step]
        ours = [row for row in at_step if row["fingerprint"] == 7]
        stored = {(PROBLEMS.index(row["problem"]), row["sample"]) for row in ours}
        assert {(p, s) for p, s in np.argwhere(held.flags).tolist()} == stored
        failed = {
            (PROBLEMS.index(row["problem"]), row["sample"])
            for row in ours
            if row["verdict"] in FAILED
        }
        assert {(p, s) for p, s in np.argwhere(held.flags == FAILED_FLAG).tolist()} == failed
        good = [row for row in ours if row["verdict"] not in FAILED]
        for p, name in enumerate(PROBLEMS):
            mine = [row for row in good if row["problem"] == name]
            right = np.count_nonzero(held.flags[p] & RIGHT_FLAG)
            assert right == sum(row["verdict"] == Status.RIGHT for row in mine)
            assert np.count_nonzero(held.flags[p] & COMPLETED_FLAG) == len(mine)
            assert held.tokens[p] == pytest.approx(sum(row["n_tokens"] for row in mine), rel=0.5)
        assert held.outdated == len(at_step) - len(ours)


@pytest.mark.parametrize("seed", range(6))
def test_the_bits_say_what_the_rows_say_through_a_whole_life(layout: Layout, seed: int) -> None:
    lot = random.Random(seed)
    asked = grid(P, N, (0, 4))
    asked.save(layout.grid(ARM, SET))
    growing = JournalWriter(layout.journals(ARM, SET), "growing")
    for attempt in range(3):
        journal(layout, [anything(lot) for _ in range(60)], f"a{attempt}")
        growing.append(anything(lot))
        agrees(layout)
    rows = [sample(p, i, s) for s in (0, 4) for p in range(P) for i in range(N)]
    journal(layout, rows, "rest")
    agrees(layout)
    seal.seal(layout, ARM, SET, asked, "none")
    agrees(layout)
    growing.append(anything(lot))
    agrees(layout)
    growing.close()
    seal.gc(layout, ARM, SET, idle_hours=0)
    agrees(layout)


def test_a_purged_file_makes_its_samples_missing(layout: Layout) -> None:
    for attempt in range(3):
        journal(layout, [sample(attempt, i) for i in range(N)], f"a{attempt}")
    agrees(layout)
    (layout.journals(ARM, SET) / "a1.journal").unlink()
    agrees(layout)
    assert reading.scan(layout, ARM, SET, grid(3, N)).missing.sum() == N


def test_a_file_that_was_cut_short_makes_its_samples_missing(layout: Layout) -> None:
    writer = JournalWriter(layout.journals(ARM, SET), "killed")
    for i in range(N):
        writer.append(sample(0, i))
    agrees(layout)
    with writer.path.open("r+b") as file:
        file.truncate(writer.path.stat().st_size // 2)
    agrees(layout)
    assert reading.scan(layout, ARM, SET, grid(1, N)).missing.any()


def test_a_sample_that_proved_damaged_is_missing(layout: Layout) -> None:
    journal(layout, [sample(0, i) for i in range(N)], "a")
    grid(1, N).save(layout.grid(ARM, SET))
    agrees(layout)
    damage(layout.journals(ARM, SET) / "a.journal", 2)
    assert not reading.scan(layout, ARM, SET, grid(1, N)).missing.any()
    assert seal.seal(layout, ARM, SET, grid(1, N), "none").damaged == 1
    assert left_out.damaged_places(layout.journals(ARM, SET) / "a.journal")
    assert reading.scan(layout, ARM, SET, grid(1, N)).missing.sum() == 1
    path = layout.journals(ARM, SET) / "a.journal"
    told = f"{path}: skipped 1 samples that were found damaged before"
    assert [note.text for note in snapshot.take_inventory(layout, ARM, SET).notes] == [told]


def test_a_part_that_was_put_back_counts_again(layout: Layout) -> None:
    journal(layout, [sample(0, i) for i in range(N)], "a")
    (part,) = seal.seal(layout, ARM, SET, grid(1, N), "none").made
    (layout.journals(ARM, SET) / "a.journal").unlink()
    whole = part.read_bytes()
    part.write_bytes(whole[:-9])
    assert snapshot.take_inventory(layout, ARM, SET).notes
    part.write_bytes(whole)
    assert not snapshot.take_inventory(layout, ARM, SET).notes
    agrees(layout)


def test_two_journals_of_another_arm_do_not_count_either(layout: Layout) -> None:
    """The second one names what the first has named; an own one comes before, between, behind."""
    for name, start in (("b", 0), ("d", 5)):
        journal(layout, [sample(p, i) for p in range(P) for i in range(start, start + 5)], name)
    theirs = layout.journals("rl", SET)
    shutil.copytree(layout.journals(ARM, SET), theirs)
    for name, start in (("a", 0), ("c", 1), ("e", 2)):
        with JournalWriter(theirs, name) as writer:
            for p in range(P):
                drawn = sample(p, start)
                writer.append(replace(drawn, key=drawn.key._replace(arm="rl")))
    stock = snapshot.take_inventory(layout, "rl", SET)
    held = stock.flags_of(0, PROBLEMS, ASKED)
    assert np.count_nonzero(held.flags, axis=1).tolist() == [3] * P
    assert [note.text for note in stock.notes] == [
        f"{theirs / name}: skipped 25 samples of another arm or problem set (base, math/0) than "
        "its folder's; move the file to the folder that it belongs to"
        for name in ("b.journal", "d.journal")
    ]


def test_a_part_of_another_arm_does_not_count_either(layout: Layout) -> None:
    journal(layout, [sample(0, i) for i in range(N)], "a")
    (part,) = seal.seal(layout, ARM, SET, grid(1, N), "none").made
    copy = layout.parts("rl", SET) / part.name
    shutil.copytree(part.parent, copy.parent)
    stock = snapshot.take_inventory(layout, "rl", SET)
    assert not stock.flags_of(0, PROBLEMS, ASKED).flags.any()
    (note,) = stock.notes
    assert note.text.startswith(f"{copy}: skipped {N} samples of another arm or problem set (base,")


def test_bits_stand_beyond_the_first_word(layout: Layout) -> None:
    for indices in ([63], [64], [127, 128, 700]):
        journal(layout, [sample(p, i) for p in range(P) for i in indices], f"a{indices[0]}")
        agrees(layout)


def test_files_without_samples_hold_nothing(layout: Layout) -> None:
    layout.journals(ARM, SET).mkdir(parents=True)
    for attempt in range(3):
        (layout.journals(ARM, SET) / f"{attempt}.journal").touch()
        agrees(layout)
