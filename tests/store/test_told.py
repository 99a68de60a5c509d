"""Nothing silent: what is left out is counted, warned of once, printed by verbs, exit code 3."""

from __future__ import annotations

import contextlib
import errno
import json
import multiprocessing
import os
import resource
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr

import rlbhpc
from rlbhpc.cli.main import main
from rlbhpc.errors import DONE, INCOMPLETE, NOTHING_TO_DO, TRY_AGAIN, USAGE, LeftOutWarning
from rlbhpc.store import cube, left_out, seal, snapshot, tables
from rlbhpc.store.compact import compact
from rlbhpc.store.derive import PurgedError
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.parts import FAILED
from rlbhpc.store.snapshot import DistinctSamples
from rlbhpc.study.layout import Layout
from tests.store import made
from tests.store.made import ARM, SET, journal, samples
from tests.store.test_faults import small_disk as small_disk  # a fixture
from tests.store.test_scan import damage, damage_part, grid

P, N = 6, 8
_FORKSERVER = multiprocessing.get_context("forkserver")


def test_a_damaged_line_of_a_step_log_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    log = tmp_path / "dynamics.jsonl"
    whole = [b'{"step": 1, "reward": 0.5}', b'{"step": 2}', b'{"step": 3}']
    log.write_bytes(b"\n".join([*whole, b'{"step": 4, "rew']))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [row["step"] for row in tables.log_lines(log)] == [1, 2, 3]
    for damaged in (b'{"step": 2', b'{"stop": 2}', b"2", b'{"step\xff": 2}'):
        log.write_bytes(b"\n".join([whole[0], damaged, whole[2], b""]))
        with pytest.warns(LeftOutWarning, match=r"dynamics.jsonl: line 2 is damaged"):
            assert tables.log_lines(log) == [{"step": 1, "reward": 0.5}, {"step": 3}]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "run")
    grid(P, N).save(layout.grid(ARM, SET))
    journal(layout, samples(range(P), N), "a")
    return layout


def said(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """Exit code and standard error of the command line."""
    with pytest.raises(SystemExit) as left:
        main(list(map(str, words)))
    assert isinstance(left.value.code, int)
    return left.value.code, capsys.readouterr().err


def counted(tree: xr.DataTree) -> dict[str, int]:
    counts: dict[str, int] = json.loads(tree.attrs["left_out"])
    return counts


def opened(layout: Layout) -> tuple[xr.DataTree, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tree = rlbhpc.open_cube(layout.root)
    assert {w.filename for w in caught if w.category is LeftOutWarning} <= {__file__}
    return tree, [str(w.message) for w in caught if w.category is LeftOutWarning]


# --- damage that only reading finds ------------------------------------------------------------


def seal_and_damage(layout: Layout) -> None:
    (part,) = seal.seal(layout, ARM, SET, grid(P, N), "all").made
    (layout.journals(ARM, SET) / "a.journal").unlink()
    damage_part(part)


def damage_journal(layout: Layout) -> None:
    damage(layout.journals(ARM, SET) / "a.journal", 3)


@pytest.mark.parametrize(("spoil", "lost"), [(seal_and_damage, N), (damage_journal, 1)])
def test_an_export_says_which_rows_it_had_to_leave_out(
    layout: Layout, capsys: pytest.CaptureFixture[str], spoil: Callable[[Layout], None], lost: int
) -> None:
    spoil(layout)
    out = layout.root.parent / "rows.parquet"
    code, text = said(capsys, "export", layout.root, out)
    assert code == INCOMPLETE
    assert pq.read_metadata(out).num_rows == P * N - lost
    assert f"left out ({lost} damaged)" in text


def test_a_cube_by_its_own_path_tells_what_it_left_out(layout: Layout) -> None:
    damage_journal(layout)
    other = Layout(layout.root.with_name("other"))
    foreign = layout.journals(ARM, SET) / "foreign.journal"
    with JournalWriter(other.journals("b", SET), "b") as writer:
        for row in samples([P], 2):
            writer.append(replace(row, key=row.key._replace(arm="b")))
    shutil.copy(other.journals("b", SET) / "b.journal", foreign)
    with pytest.warns(LeftOutWarning):
        of_run = rlbhpc.open_cube(layout.root)
    compact(layout)
    with pytest.warns(LeftOutWarning, match=r"left out \(1 damaged, 2 foreign\)"):
        alone = rlbhpc.open_cube(layout.cube)
    assert counted(alone) == counted(of_run) == {"damaged": 1, "foreign": 2}
    copy = Path(shutil.copytree(layout.cube, layout.root / "copy.zarr"))
    assert "left_out" not in rlbhpc.open_cube(copy).attrs
    beside = Path(shutil.copytree(copy, layout.cube.resolve().with_name("copy.zarr")))
    assert "left_out" not in rlbhpc.open_cube(beside).attrs
    assert counted(rlbhpc.open_cube([copy, other.root])) == {}
    lose_bookkeeping(layout)
    assert "left_out" not in rlbhpc.open_cube(layout.cube).attrs


def test_damage_in_a_text_is_told_where_the_text_is_shown(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    seal_and_damage(layout)
    words = ("show", layout.root, "--problem", 0, "--sample", 3)
    code, text = said(capsys, *words)
    assert code == INCOMPLETE
    assert f"left out ({N} damaged)" in text


def test_an_export_of_counts_and_the_reader_tell_of_a_damaged_journal(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    damage_journal(layout)
    tree, told = opened(layout)
    assert counted(tree) == {"damaged": 1}
    assert len(told) == 1
    assert "fails its checksum" in told[0]
    assert int((tree[f"{ARM}/{SET}"].verdict >= 0).sum()) == P * N - 1
    code, text = said(capsys, "export", layout.root, layout.root.parent / "out.csv")
    assert code == INCOMPLETE
    assert text.count("left out (1 damaged)") == 1


def test_a_compacted_cube_goes_on_telling(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    damage_journal(layout)
    assert said(capsys, "compact", layout.root)[0] == INCOMPLETE
    code, text = said(capsys, "compact", layout.root)
    assert code == INCOMPLETE
    assert "left out (1 damaged)" in text
    assert counted(opened(layout)[0]) == {"damaged": 1}
    # Drawn again, and derived anew: nothing is missing, though the damaged copy is still there.
    journal(layout, [made.sample(0, 3)], "b")
    compact(layout)
    assert int((opened(layout)[0][f"{ARM}/{SET}"].verdict >= 0).sum()) == P * N


def test_a_part_that_is_readable_again_enters_the_cube(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal.seal(layout, ARM, SET, grid(P, N), "all")
    seal.gc(layout, ARM, SET, idle_hours=0)
    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetFile, "read_row_groups", partial(refuse, OSError(errno.EIO, "bad")))
        compact(layout)
        assert counted(opened(layout)[0]) == {"damaged": P * N}
    assert counted(opened(layout)[0]) == {}
    assert compact(layout).new
    assert int((rlbhpc.open_cube(layout.cube)[f"{ARM}/{SET}"].verdict >= 0).sum()) == P * N
    assert not compact(layout).new


def test_what_can_be_read_of_a_part_again_enters_the_cube(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody counts what an unreadable file holds: it may be more than what stays damaged."""
    (part,) = seal.seal(layout, ARM, SET, grid(P, N), "all").made
    seal.gc(layout, ARM, SET, idle_hours=0)
    with monkeypatch.context() as patch:
        patch.setattr(pq, "ParquetFile", partial(refuse, OSError(errno.EIO, "bad")))
        compact(layout)
        assert counted(opened(layout)[0]) == {"damaged": 1}
    damage_part(part, "seed")
    compact(layout)
    assert counted(opened(layout)[0]) == {"damaged": N}
    assert int((rlbhpc.open_cube(layout.cube)[f"{ARM}/{SET}"].verdict >= 0).sum()) == P * N - N


def test_damage_that_stays_makes_no_new_cube_and_takes_no_more_samples(layout: Layout) -> None:
    """What a later damage hits is in the cube already, and nowhere else."""
    journal(layout, samples([0], N + 2)[N:], "b")
    damage_journal(layout)
    assert compact(layout).new
    assert not compact(layout).new
    held = rlbhpc.open_cube(layout.cube)[f"{ARM}/{SET}"].verdict.load()
    damage(layout.journals(ARM, SET) / "b.journal", 1)
    compact(layout)
    for tree in (rlbhpc.open_cube(layout.cube), opened(layout)[0]):
        assert tree[f"{ARM}/{SET}"].verdict.equals(held)


def test_memory_that_runs_out_is_no_damage(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seal.seal(layout, ARM, SET, grid(P, N), "all")
    seal.gc(layout, ARM, SET, idle_hours=0)
    full = pa.ArrowMemoryError("malloc of size 65536 failed")
    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", partial(refuse, full))
    code, text = said(capsys, "compact", layout.root)
    assert code == TRY_AGAIN
    assert text.startswith(f"rlbhpc: cannot allocate memory ({full}); with more, give")
    assert not layout.cube.exists()


def refuse(error: Exception, *words: object, **settings: object) -> None:
    raise error


def test_damage_that_came_after_the_cube_is_no_purge(layout: Layout) -> None:
    compact(layout)
    damage_journal(layout)
    with pytest.warns(LeftOutWarning, match=r"left out \(1 damaged\)"):
        rlbhpc.open_cube(compact(layout, rebuild=True).store)


def test_what_a_kill_leaves_is_told_and_is_no_failure(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    path = layout.journals(ARM, SET) / "a.journal"
    shutil.copyfile(path, path.with_name("killed.journal"))
    with path.with_name("killed.journal").open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    code, text = said(capsys, "show", layout.root)
    assert code == DONE
    assert "left out (1 torn)" in text


# --- two samples for one key -------------------------------------------------------------------


@pytest.mark.parametrize("order", [("a0", "z"), ("z", "a0")])
def test_reader_and_compaction_agree_on_two_different_samples(
    layout: Layout, capsys: pytest.CaptureFixture[str], order: tuple[str, str]
) -> None:
    others = [replace(s, text="Another machine.", verdict=1) for s in samples(range(3), N)]
    compact(layout)
    journal(layout, others[:12], order[0])
    journal(layout, others[12:], order[1])
    live, told = opened(layout)
    assert "two different samples" in told[0]
    # Not where one of the two failed: then the other counts, and nobody is contradicted.
    rivals = sum(s.verdict not in {4, 5} for s in samples(range(3), N))
    assert counted(live) == {"conflicting": rivals}
    code, text = said(capsys, "compact", layout.root)
    assert code == INCOMPLETE
    assert f"{rivals} conflicting" in text
    after, _ = opened(layout)
    xr.testing.assert_identical(
        live[f"{ARM}/{SET}"].to_dataset().load(), after[f"{ARM}/{SET}"].to_dataset().load()
    )
    assert counted(after) == counted(live)


# --- an arm in another arm's folder ------------------------------------------------------------


@pytest.mark.parametrize("sealed", [False, True])
def test_samples_of_another_arm_do_not_count(
    layout: Layout, capsys: pytest.CaptureFixture[str], sealed: bool
) -> None:
    """A colleague copies `base` to `rl` by hand: the trained arm must not show the base's."""
    if sealed:
        seal.seal(layout, ARM, SET, grid(P, N), "all")
        shutil.copytree(layout.parts(ARM, SET), layout.parts("rl", SET))
    else:
        shutil.copytree(layout.journals(ARM, SET), layout.journals("rl", SET))
    tree, told = opened(layout)
    assert counted(tree) == {"foreign": P * N}
    assert "another arm or problem set (base, math/0)" in told[0]
    assert tree[f"rl/{SET}"].sizes["problem"] == 0
    other = Layout(layout.root.with_name("other"))
    journal(other, samples([P], 1), "b")
    for words in (["compact"], ["seal"], ["gc"], ["merge", other.root], ["merge", other.root]):
        code, text = said(capsys, *words, layout.root)
        assert (code, text.count("left out")) == (INCOMPLETE, 1), (words, text)
    if not sealed:
        cleaned = seal.gc(layout, "rl", SET, idle_hours=0)
        assert not cleaned.removed


# --- files that are gone -----------------------------------------------------------------------


def remove_journal(layout: Layout) -> None:
    (layout.journals(ARM, SET) / "a.journal").unlink()


def remove_run(layout: Layout) -> None:
    shutil.rmtree(layout.root / "journals")
    shutil.rmtree(layout.root / "grids")


def cut_journal(layout: Layout) -> None:
    path = layout.journals(ARM, SET) / "a.journal"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 3)


@pytest.mark.parametrize("purge", [remove_journal, remove_run, cut_journal])
@pytest.mark.parametrize("rebuild", [False, True])
def test_a_purged_source_does_not_empty_the_cube(
    layout: Layout,
    capsys: pytest.CaptureFixture[str],
    purge: Callable[[Layout], None],
    rebuild: bool,
) -> None:
    compact(layout)
    before = opened(layout)[0][f"{ARM}/{SET}"].to_dataset().load()
    bytes_before = made.contents(layout.cube)
    journal(layout, samples([P], 2), "later")
    purge(layout)
    if purge is remove_run:
        journal(layout, [replace(s, key=s.key._replace(arm="b")) for s in samples([0], 1)], "x")
    words = ("compact", layout.root, *(["--rebuild"] if rebuild else []))
    code, text = said(capsys, *words)
    assert code == USAGE
    assert "a.journal" in text
    assert "samples of it are in no journal or part any more" in text
    assert made.contents(layout.cube) == bytes_before
    tree, told = opened(layout)
    assert counted(tree)["purged"] > 0
    assert any("purged" in line for line in told)
    xr.testing.assert_identical(tree[f"{ARM}/{SET}"].to_dataset().load(), before)
    assert said(capsys, "show", layout.root)[0] == INCOMPLETE
    # Planned and drawn again, the same command does it.
    grid(P, N).save(layout.grid(ARM, SET))
    journal(layout, samples(range(P), N), "again")
    assert said(capsys, *words)[0] in {DONE, INCOMPLETE}


@pytest.mark.parametrize("axis", ["model", "problem", "step", "fingerprint"])
def test_a_cube_with_a_damaged_axis_is_derived_anew(
    layout: Layout, capsys: pytest.CaptureFixture[str], axis: str
) -> None:
    compact(layout)
    folder = layout.cube.resolve() / ARM / SET / axis
    (chunk,) = (path for path in folder.rglob("*") if path.is_file() and path.name != "zarr.json")
    data = bytearray(chunk.read_bytes())
    data[-6] ^= 4
    chunk.write_bytes(data)
    # What is gone from the journals is in a part.
    seal.seal(layout, ARM, SET, grid(P, N), "none")
    remove_journal(layout)
    journal(layout, samples(range(P), N)[1:], "later")
    code, text = said(capsys, "compact", layout.root)
    assert (code, text) == (DONE, "")
    assert int((opened(layout)[0][f"{ARM}/{SET}"].verdict >= 0).sum()) == P * N


def lose_bookkeeping(layout: Layout) -> None:
    (layout.cube.resolve().parent / cube.SOURCES).unlink()


def test_to_go_on_without_them_the_cube_is_removed_first(layout: Layout) -> None:
    compact(layout)
    journal(layout, samples([P], 2), "later")
    remove_journal(layout)
    with pytest.raises(PurgedError, match="remove this cube first"):
        compact(layout)
    layout.cube.unlink()
    assert compact(layout).new
    assert int((opened(layout)[0][f"{ARM}/{SET}"].verdict >= 0).sum()) == 2


def test_a_plan_that_is_gone_does_not_change_the_cube(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    compact(layout)
    bytes_before = made.contents(layout.cube)
    layout.grid(ARM, SET).unlink()
    assert said(capsys, "compact", layout.root)[0] == USAGE
    assert made.contents(layout.cube) == bytes_before
    tree, told = opened(layout)
    assert (counted(tree), len(told)) == ({"purged": 1}, 1)
    assert str(layout.grid(ARM, SET)) in told[0]
    assert tree[f"{ARM}/{SET}"].sizes["problem"] == P
    grid(P, N).save(layout.grid(ARM, SET))
    assert opened(layout)[1] == []


def test_samples_without_a_plan_need_none_once_the_bookkeeping_is_lost(layout: Layout) -> None:
    layout.grid(ARM, SET).unlink()
    compact(layout)
    lose_bookkeeping(layout)
    assert opened(layout)[1] == []
    journal(layout, samples([P], 2), "later")
    assert compact(layout).new


def test_sealed_journals_may_go(layout: Layout) -> None:
    compact(layout)
    seal.seal(layout, ARM, SET, grid(P, N), "none")
    seal.gc(layout, ARM, SET, idle_hours=0)
    tree, told = opened(layout)
    assert (counted(tree), told) == ({}, [])
    assert compact(layout, rebuild=True).new


# --- a file system that refuses ----------------------------------------------------------------


def _call_limited(words: list[str], limit: int, out: str) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    _call(words, out)


def _call_as_nobody(words: list[str], rehearsal: list[str], out: str) -> None:
    # Modules are loaded before the change of user: to that one the interpreter may be closed.
    with contextlib.suppress(SystemExit):
        main(rehearsal)
    Path(out).chmod(0o666)
    os.seteuid(65534)
    try:
        _call(words, out)
    finally:
        os.seteuid(0)


def _call(words: list[str], out: str) -> None:
    os.dup2(os.open(out, os.O_WRONLY | os.O_TRUNC), 2)
    main(words)


def child(call: Callable[..., None], folder: Path, *args: object) -> tuple[int | None, str]:
    """Exit code and standard error of a call in a process of its own."""
    out = folder / "stderr"
    out.touch()
    process = _FORKSERVER.Process(target=call, args=(*args, str(out)))
    process.start()
    process.join()
    return process.exitcode, out.read_text()


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("limit", [700, 3_000, 20_000])
def test_an_export_that_does_not_fit_is_one_line(
    layout: Layout, tmp_path: Path, ending: str, limit: int
) -> None:
    journal(layout, samples(range(P, 40), 30), "more")
    target = tmp_path / f"out.{ending}"
    words = ["export", str(layout.root), str(target)]
    code, text = child(_call_limited, tmp_path, words, limit)
    if code == DONE:
        assert target.stat().st_size <= limit
        return
    assert code == TRY_AGAIN, text
    assert text.startswith(f"rlbhpc: {target}: File too large (EFBIG)"), text
    assert text.count("\n") == 1
    assert not target.exists()


@pytest.mark.parametrize("verb", ["compact", "seal", "gc", "export"])
def test_a_read_only_run_is_one_line(small_disk: Path, tmp_path: Path, verb: str) -> None:
    layout = Layout(small_disk)
    grid(P, N).save(layout.grid(ARM, SET))
    journal(layout, samples(range(P), N), "a")
    if verb == "gc":
        seal.seal(layout, ARM, SET, grid(P, N), "none")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    words = [verb, str(small_disk), *([str(small_disk / "a.csv")] if verb == "export" else [])]
    code, text = child(_call, tmp_path, words)
    assert code == TRY_AGAIN, text
    assert "Read-only file system (EROFS)" in text
    assert "make the folder writable" in text
    assert text.count("\n") == 1


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter. Each start of pytest closes those of pytest again."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def call_with_closed(
    layout: Layout, open_folder: Path, closed: str, verb: str, *words: str
) -> tuple[int | None, str]:
    """Call a verb as a user who may not read one file or folder of the run."""
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    for name in ("run", "run-other", "rehearsal", "rehearsal-other"):
        shutil.copytree(layout.root, open_folder / name)
    (open_folder / "out").mkdir()
    (open_folder / "out").chmod(0o777)
    more = {"merge": ["{}-other"], "export": ["out/{}.csv"]}
    call, rehearsal = (
        [verb, *(str(open_folder / word.format(name)) for word in ("{}", *more.get(verb, ())))]
        for name in ("run", "rehearsal")
    )
    locked = open_folder / "run" / closed
    locked.chmod(0o700 if locked.is_dir() else 0o600)
    return child(_call_as_nobody, open_folder, [*call, *words], [*rehearsal, *words])


FILE, ARM_FOLDER = f"journals/{ARM}/{SET}/a.journal", "journals/unplanned"


@pytest.mark.parametrize(
    ("verb", "closed"),
    [
        *((verb, FILE) for verb in ("compact", "seal", "gc", "merge")),
        # An arm that nobody may list is no arm without samples.
        *((verb, ARM_FOLDER) for verb in ("compact", "show", "merge", "export", "report")),
        ("compact", "journals"),
        ("export", "training"),
        ("export", "training/rl/rollouts"),
        ("export", "tables/scores"),
    ],
)
def test_what_a_colleague_keeps_closed_is_one_line(
    layout: Layout, open_folder: Path, verb: str, closed: str
) -> None:
    layout.training("rl").mkdir(parents=True)
    (layout.training("rl") / "dynamics.jsonl").write_text('{"step": 1}\n')
    layout.rollouts("rl").mkdir()
    layout.tables("scores").mkdir(parents=True)
    with JournalWriter(layout.journals("unplanned", SET), "b") as writer:
        for row in samples([P], 2):
            writer.append(replace(row, key=row.key._replace(arm="unplanned")))
    code, text = call_with_closed(layout, open_folder, closed, verb)
    assert code == USAGE, text
    assert text.startswith(f"rlbhpc: {open_folder / 'run' / closed}"), text
    assert ": Permission denied (EACCES); " in text
    assert "ask its owner" in text
    assert text.splitlines()[0].count("rlbhpc:") == 1


def test_nothing_to_do_stays_nothing_to_do(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, "compact", layout.root) == (DONE, "")
    assert said(capsys, "compact", layout.root) == (NOTHING_TO_DO, "")


@pytest.mark.parametrize("verb", ["show", "export"])
@pytest.mark.parametrize("kind", ["journals", "parts"])
def test_readers_leave_out_a_file_that_a_colleague_keeps_closed(
    layout: Layout, open_folder: Path, kind: str, verb: str
) -> None:
    seal.seal(layout, ARM, SET, grid(P, N), "all")
    seal.gc(layout, ARM, SET, idle_hours=0)
    journal(layout, samples([P, P + 1], 2), "b")
    (closed,) = layout.root.glob(f"{kind}/*/*/*.*")
    name = closed.relative_to(layout.root).as_posix()
    code, text = call_with_closed(layout, open_folder, name, verb)
    assert code == INCOMPLETE, text
    assert f"1 {left_out.UNREADABLE}" in text
    assert f"{open_folder / 'run' / name}: " in text
    assert "(EACCES)" in text
    if verb == "export":
        rows = (open_folder / "out" / "run.csv").read_text().splitlines()[1:]
        assert len(rows) == (P if kind == "journals" else 2)


@pytest.mark.parametrize(
    "words", [("show",), ("report", "--terminal"), ("export", "out.csv"), ("export", "out.parquet")]
)
def test_readers_go_on_without_a_file_that_fails(
    layout: Layout, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """A folder where a journal should be opens, and fails only when it is read, as a bad disk."""
    closed = layout.journals(ARM, SET) / "b.journal"
    closed.mkdir()
    verb, *more = words
    outs = [str(layout.root.parent / name) if "." in name else name for name in more]
    code, text = said(capsys, verb, layout.root, *outs)
    assert code == INCOMPLETE
    assert f"1 {left_out.UNREADABLE}" in text
    assert f"{closed}: " in text


def test_a_count_of_what_is_there_is_strict_unless_it_is_told_not_to_be(
    layout: Layout,
) -> None:
    journal(layout, samples([P], 2), "b")
    closed = layout.journals(ARM, SET) / "c.journal"
    closed.mkdir()
    with pytest.raises(IsADirectoryError):
        snapshot.take_inventory(layout, ARM, SET)
    stock = snapshot.take_inventory(layout, ARM, SET, strict=False)
    assert [(note.kind, str(closed) in note.text) for note in stock.notes] == [
        (left_out.UNREADABLE, True)
    ]
    asked = grid(P, N)
    requests = np.array([asked.fingerprints[0, problem] for problem in asked.problems])
    flags = stock.flags_of(0, asked.problems, requests).flags
    assert np.count_nonzero(flags & snapshot.COMPLETED_FLAG) == np.count_nonzero(
        [row.verdict not in FAILED for row in samples(range(P), N)]
    )


def test_samples_of_a_journal_that_fails_while_it_is_read_are_left_out(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal(layout, samples([P], 2), "b")
    views = [
        DistinctSamples(snapshot.take_snapshot(layout, ARM, SET, strict=strict))
        for strict in (True, False)
    ]
    real = os.open

    def refuse_one(path: Path, *options: int) -> int:
        if Path(path).name == "a.journal":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real(path, *options)

    monkeypatch.setattr(os, "open", refuse_one)
    strict, lenient = views
    with pytest.raises(OSError, match=r"a\.journal"):
        strict.read(np.arange(strict.count))
    rows = lenient.read(np.arange(lenient.count))
    assert rows["problem"].to_pylist() == [made.problem(P)] * 2
    assert [(s.kind, s.path.name) for s in lenient.skipped] == [(left_out.UNREADABLE, "a.journal")]
    assert not any(lenient.damaged.values())


@pytest.mark.parametrize("verb", ["compact", "seal"])
def test_a_file_that_cannot_be_read_is_named(
    layout: Layout, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    """A folder where a journal should be opens, and fails only when it is read, as a bad disk."""
    closed = layout.journals(ARM, SET) / "b.journal"
    closed.mkdir()
    code, text = said(capsys, verb, layout.root)
    assert code == USAGE
    assert text.startswith(f"rlbhpc: {closed}: Is a directory (EISDIR)")
    assert text.count("\n") == 1


def fill(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "more").open("wb", buffering=0) as more:
        while more.write(bytes(4096)):
            pass


def test_a_cube_on_a_full_disk_is_named_as_its_user_names_it(
    layout: Layout,
    small_disk: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(layout.root, small_disk / "run")
    fill(small_disk)
    monkeypatch.chdir(small_disk)
    code, text = said(capsys, "compact", "run")
    assert code == TRY_AGAIN
    assert text.startswith("rlbhpc: run/cubes: No space left on device (ENOSPC); the cube is as")


def test_a_report_on_a_full_disk_is_worth_another_try(
    layout: Layout, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = small_disk / "report"
    fill(small_disk)
    code, text = said(capsys, "report", layout.root, "-o", out)
    assert code == TRY_AGAIN
    assert "No space left on device (ENOSPC)" in text
    assert text.splitlines()[-1].startswith(f"rlbhpc: {out}")
