"""What an earlier version stored is opened by this one: none of it is lost, changed or doubled.

``old_runs/*.tar.gz`` were made by ``old_runs/make.py`` in a checkout of the commit of the name, one
for each format of journals; ``J4`` by the first version with that format. ``drawn.jsonl`` in it
says what was drawn, a line a sample.
"""

from __future__ import annotations

import json
import tarfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import rlbhpc
from rlbhpc.errors import LeftOutWarning
from rlbhpc.store import frames, journal, sample_rows, samples, seal
from rlbhpc.store.compact import compact
from rlbhpc.store.grid import Grid
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.sources import Group, groups_of_run
from rlbhpc.study.layout import Layout
from tests.store import made, reading

RUNS = sorted((Path(__file__).parent / "old_runs").glob("*.tar.gz"))


class Drawn(NamedTuple):
    """A sample as it was handed to the journal."""

    arm: str
    step: int
    problem: str
    sample: int
    fingerprint: int
    seed: int
    verdict: int
    n_tokens: int
    answer: str
    text: str
    token_ids: list[int]


class OldRun(NamedTuple):
    layout: Layout
    drawn: list[Drawn]


@pytest.fixture(params=RUNS, ids=lambda path: path.name.split(".")[0])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OldRun]:
    with tarfile.open(request.param) as tar:
        tar.extractall(tmp_path, filter="data")
    lines = (tmp_path / "drawn.jsonl").read_text().splitlines()
    with warnings.catch_warnings():
        warnings.simplefilter("error", LeftOutWarning)
        yield OldRun(Layout(tmp_path), [Drawn(*json.loads(line)) for line in lines])


def stored(layout: Layout) -> list[Drawn]:
    """All samples that readers give."""
    found = []
    for group in groups_of_run(layout):
        for row in samples.read_rows(layout, group, [*Drawn._fields]).to_pylist():
            found.append(Drawn(*(row[name] for name in Drawn._fields)))
    return found


def without_tokens(rows: list[Drawn]) -> list[Drawn]:
    """A part keeps the token ids of some samples only."""
    return sorted(row._replace(token_ids=[]) for row in rows)


def grids(layout: Layout) -> dict[Group, Grid]:
    found = {group: Grid.load(layout.grid(*group)) for group in groups_of_run(layout)}
    return {group: grid for group, grid in found.items() if grid is not None}


def counts(layout: Layout) -> dict[tuple[str, str], tuple[int, int]]:
    """n and c of each arm and problem in the cube."""
    tree = rlbhpc.open_cube(layout.root)
    result: dict[tuple[str, str], tuple[int, int]] = {}
    for group in groups_of_run(layout):
        table = tree[str(group)].to_dataset().rlb.counts().isel(step=0)
        for name, n, c in zip(table["problem"].values, table["n"], table["c"], strict=True):
            result[group.arm, str(name)] = int(n), int(c)
    return result


def true_counts(drawn: list[Drawn]) -> dict[tuple[str, str], tuple[int, int]]:
    n = Counter((row.arm, row.problem) for row in drawn)
    c = Counter((row.arm, row.problem) for row in drawn if row.verdict == 1)
    return {key: (n[key], c[key]) for key in n}


def test_each_earlier_format_has_a_run() -> None:
    formats = set()
    for run in RUNS:
        with tarfile.open(run) as tar:
            for member in tar:
                if member.name.endswith(".journal"):
                    file = tar.extractfile(member)
                    assert file is not None
                    formats.add(file.read(8))
    assert formats | {frames.MAGIC} == frames.FORMATS.keys()


def test_every_sample_of_an_old_run_is_read(old: OldRun) -> None:
    assert {row.verdict for row in old.drawn} == {0, 1}
    assert without_tokens(stored(old.layout)) == without_tokens(old.drawn)
    own = [row for row in old.drawn if row.arm == "open"]
    assert sorted(row for row in stored(old.layout) if row.arm == "open") == sorted(own)
    for group, grid in grids(old.layout).items():
        assert not reading.scan(old.layout, *group, grid).missing.any()
        assert not reading.scan(old.layout, *group, grid, verify=True).missing.any()
    assert counts(old.layout) == true_counts(old.drawn)


def test_an_old_run_is_sealed_and_compacted(old: OldRun) -> None:
    before = made.contents(compact(old.layout, rebuild=True).store)
    for group, grid in grids(old.layout).items():
        sealing = seal.seal(old.layout, *group, grid, "all")
        assert (sealing.open, sealing.damaged, sealing.notes) == (0, 0, ())
        assert seal.gc(old.layout, *group, idle_hours=0).kept == ()
    assert not list(old.layout.root.glob("journals/*/*/*.journal"))
    assert without_tokens(stored(old.layout)) == without_tokens(old.drawn)
    assert made.contents(compact(old.layout, rebuild=True).store) == before
    assert counts(old.layout) == true_counts(old.drawn)


def test_a_damaged_sample_of_an_old_journal_is_left_out_alone(old: OldRun) -> None:
    path = max(old.layout.journals("open", "countdown").iterdir(), key=lambda p: p.stat().st_size)
    index = journal.read_index(path)
    data = bytearray(path.read_bytes())
    data[int(index.records["offset"][3]) + 40] ^= 1
    path.write_bytes(data)
    verified = journal.read_index(path, verify=True)
    expected = np.delete(index.records["digest"], 3)
    np.testing.assert_array_equal(verified.records["digest"], expected)
    assert len(verified.skipped) == 1


def test_a_new_writer_adds_to_an_old_run(old: OldRun) -> None:
    """Journals of both formats lie side by side, and a sample that both hold counts once."""
    rows = [*sample_rows.to_samples(reading.rows(old.layout, "open", "countdown").table)]
    with JournalWriter(old.layout.journals("open", "countdown"), "new") as writer:
        for row in rows[::2]:
            writer.append(row)
    assert without_tokens(stored(old.layout)) == without_tokens(old.drawn)
