"""300 seeded damages over every kind of file: a verb that gives something else tells why."""

from __future__ import annotations

import random
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import rlbhpc
from rlbhpc.errors import LeftOutWarning, UserError
from rlbhpc.store import seal
from rlbhpc.store.compact import compact
from rlbhpc.store.journal import JournalWriter
from rlbhpc.study.layout import Layout
from tests.store.made import SET, samples
from tests.store.test_scan import grid
from tests.study.test_mutations import called

P, N = 4, 5
ARMS = ("base", "rl")


def make_run(folder: Path) -> Layout:
    """One arm sealed, one in journals, a cube of both, and samples that came since."""
    layout = Layout(folder)
    for arm in ARMS:
        grid(P, N).save(layout.grid(arm, SET))
        own = [replace(s, key=s.key._replace(arm=arm)) for s in samples(range(P), N)]
        for attempt, rows in (("first", own[::2]), ("second", own[1::2])):
            with JournalWriter(layout.journals(arm, SET), attempt) as writer:
                for row in rows:
                    writer.append(row)
        if arm == "base":
            seal.seal(layout, arm, SET, grid(P, N), "all")
            shutil.rmtree(layout.journals(arm, SET))
    # Whether a journal that no cube was made from is gone, nobody can know; the plan misses it.
    compact(layout)
    with JournalWriter(layout.journals("rl", SET), "later") as writer:
        for row in samples([P], 2):
            writer.append(replace(row, key=row.key._replace(arm="rl")))
    return layout


def flip(rng: random.Random, path: Path, root: Path) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def truncate(rng: random.Random, path: Path, root: Path) -> None:
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def delete(rng: random.Random, path: Path, root: Path) -> None:
    path.unlink()


def duplicate(rng: random.Random, path: Path, root: Path) -> None:
    shutil.copyfile(path, path.with_name(f"copy-{path.name}"))


def garbage(rng: random.Random, path: Path, root: Path) -> None:
    path.with_name(f"foreign{path.suffix}").write_bytes(rng.randbytes(rng.randrange(300)))


def other_folder(rng: random.Random, path: Path, root: Path) -> None:
    """A file in the folder of the other arm, or one level higher."""
    parts = path.relative_to(root).parts
    swapped = ["rl" if part == "base" else "base" if part == "rl" else part for part in parts]
    target = root.joinpath(*swapped) if swapped != list(parts) else path.parents[1] / path.name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target.with_name(f"moved-{path.name}"))


DAMAGES: list[Callable[[random.Random, Path, Path], None]] = [
    flip, flip, truncate, delete, duplicate, garbage, other_folder,
]  # fmt: skip


def damageable(layout: Layout) -> dict[str, list[Path]]:
    """Files by kind, so that the many chunks of a cube do not take all damages."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(layout.root.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.stat().st_size:
            kinds.setdefault(path.relative_to(layout.root).parts[0], []).append(path)
    return kinds


def arrays(path: Path, problem_set: str = SET) -> Any:
    tree = rlbhpc.open_cube(path)
    return {
        node.path: {name: str(node[name].values.tolist()) for name in node.data_vars}
        for node in tree.subtree
        if node.path in {f"/{arm}/{problem_set}" for arm in ARMS}
    }


def own_files(folder: Path) -> list[str]:
    """Names of files below a folder, without those that a damage has added."""
    added = ("copy-", "moved-", "foreign")
    names = [path.relative_to(folder) for path in folder.rglob("*.*")]
    return sorted(str(name) for name in names if not name.name.startswith(added))


EXPORTS: dict[str, Callable[[Path], object]] = {
    "csv": Path.read_bytes,
    "parquet": lambda path: pq.read_table(path).to_pylist(),
}


def results(layout: Layout) -> dict[str, tuple[object, str, int]]:
    """What each way to read gives, what it says beside it, and its exit code."""
    found: dict[str, tuple[object, str, int]] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            content = arrays(layout.root)
        except UserError as error:
            content, refusal = None, str(error)
        else:
            refusal = ""
    told = [str(w.message) for w in caught if issubclass(w.category, LeftOutWarning)]
    found["open_cube"] = content, refusal + "".join(told), 3 if told or refusal else 0
    for arm in ARMS:
        words = ("show", str(layout.root), "--arm", arm, "--problem", f"{SET}/1", "--sample", "2")
        code, out, err = called(*words)
        # Of two equal copies either may be named.
        lines = [line for line in out.splitlines() if not line.startswith("origin")]
        found[f"show {arm}"] = lines, err, code
    for ending, read in EXPORTS.items():
        target = layout.root.with_name(f"out.{ending}")
        target.unlink(missing_ok=True)
        code, _, err = called("export", str(layout.root), str(target))
        found[f"export {ending}"] = read(target) if target.exists() else None, err, code
    other = Layout(layout.root.with_name("merged"))
    shutil.rmtree(other.root, ignore_errors=True)
    for arm in ARMS:
        grid(P, N).save(other.grid(arm, SET))
    code, _, err = called("merge", str(other.root), str(layout.root))
    found["merge"] = arrays(other.root), err, code
    code, _, err = called("compact", str(layout.root))
    try:
        cube: object = arrays(layout.cube) if layout.cube.exists() else None
    except UserError as error:
        cube, err, code = None, f"{err}{error}", code or 3
    found["compact"] = cube, err, code
    for words, kind in (
        (("seal",), "parts"),
        (("seal", "--verify"), "parts"),
        (("gc",), "journals"),
    ):
        code, out, err = called(words[0], str(layout.root), *words[1:])
        found[" ".join(words)] = own_files(layout.root / kind), out + err, code
    return found


@pytest.mark.by_turns(2)
@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", [7, 8])
def test_what_is_left_out_is_told_by_every_reader(tmp_path: Path, seed: int, soak: bool) -> None:
    intact = make_run(tmp_path / "intact")
    expected = results(Layout(shutil.copytree(intact.root, tmp_path / "run", symlinks=True)))
    assert {code for _, _, code in expected.values()} <= {0, 4}
    rng = random.Random(seed)
    changed = 0
    for number in range(150 if soak else 15):
        shutil.rmtree(tmp_path / "run")
        layout = Layout(shutil.copytree(intact.root, tmp_path / "run", symlinks=True))
        kinds = damageable(layout)
        path = rng.choice(kinds[rng.choice(sorted(kinds))])
        damage = rng.choice(DAMAGES)
        if damage is delete and path.name == "later.journal":
            continue
        damage(rng, path, layout.root)
        note = f"{number}: {damage.__name__} {path.relative_to(layout.root)}"
        for verb, (content, text, code) in results(layout).items():
            assert "Traceback" not in text, f"{note}, {verb}: {text}"
            if content == expected[verb][0]:
                continue
            changed += 1
            if damage is truncate and path.name == "later.journal" and code in {0, 4}:
                # Nobody has read it before: it is what a kill leaves, and a cut sample is told.
                says_nothing_else = "torn" in text or not text.strip() or verb.startswith("seal")
                assert says_nothing_else, f"{note}: {verb} says {text}"
                continue
            if verb == "gc" and "stays: " in text:
                continue
            assert code in {3, 64, 75}, f"{note}: {verb} gives something else, with exit {code}"
            assert text.strip(), f"{note}: {verb} says nothing"
    assert changed > 0
