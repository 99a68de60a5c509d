"""The verbs that look after a run's files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rlbhpc.cli.main import cli
from rlbhpc.errors import DONE, INCOMPLETE, NOTHING_TO_DO, UserError
from rlbhpc.study.layout import Layout
from tests.store import made
from tests.store.made import ARM, SET
from tests.store.test_scan import damage, damage_part, grid, right


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "run")


def call(*words: object) -> tuple[int, Result]:
    result = CliRunner().invoke(cli, list(map(str, words)), standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.return_value, result


def printed(result: Result) -> str:
    """Standard output without the padding and the empty lines of tables."""
    return "".join(f"{line.rstrip()}\n" for line in result.stdout.splitlines() if line.strip())


def test_seal_then_gc(layout: Layout) -> None:
    grid(2).save(layout.grid(ARM, SET))
    made.journal(layout, [right(0, i) for i in range(4)], "one")
    code, result = call("seal", layout.root)
    assert code == INCOMPLETE
    assert printed(result) == (
        "Ranges of problems\n"
        "arm   problem_set  new_parts  sealed  open  damaged_samples\n"
        "base  math                 0       0     1                0\n"
    )
    made.journal(layout, [right(1, i) for i in range(4)], "two")
    code, result = call("seal", layout.root, "--json")
    assert code == DONE
    assert json.loads(result.stdout)["groups"] == [
        {"arm": ARM, "problem_set": SET, "new_parts": 1, "sealed": 1, "open": 0,
         "damaged_samples": 0}
    ]  # fmt: skip
    assert call("seal", layout.root)[0] == NOTHING_TO_DO
    code, result = call("gc", layout.root)
    assert code == DONE
    assert result.stdout.startswith("2 files removed, 0.0 MB freed.")
    assert call("gc", layout.root)[0] == NOTHING_TO_DO


def test_what_stays_and_what_is_damaged_is_told(layout: Layout) -> None:
    grid(1).save(layout.grid(ARM, SET))
    made.journal(layout, [right(0, i) for i in range(4)], "one")
    damage(layout.journals(ARM, SET) / "one.journal", 2)
    code, result = call("seal", layout.root)
    assert code == INCOMPLETE
    assert "fails its checksum" in result.stderr
    code, result = call("gc", layout.root)
    assert code == INCOMPLETE
    assert "left out (1 damaged)" in result.stderr
    assert "one.journal stays: it holds samples that are not sealed" in result.stderr


def test_merge(layout: Layout, tmp_path: Path) -> None:
    stick = Layout(tmp_path / "stick")
    made.journal(layout, [right(0, i) for i in range(4)], "one")
    made.journal(stick, [right(1, i) for i in range(4)], "two")
    code, result = call("merge", layout.root, stick.root)
    assert code == DONE
    assert result.stdout.startswith("4 new samples, 1 files copied")
    assert call("merge", layout.root, stick.root)[0] == NOTHING_TO_DO
    call("seal", stick.root)
    damaged = next(stick.parts(ARM, SET).iterdir())
    damage_part(damaged)
    code, result = call("merge", layout.root, stick.root)
    assert code == INCOMPLETE
    assert damaged.name in result.stderr


@pytest.mark.parametrize("words", [("seal",), ("gc",), ("merge", "other")])
def test_a_folder_without_samples_is_named(tmp_path: Path, words: tuple[str, ...]) -> None:
    verb, *more = words
    others = [tmp_path / name for name in more]
    with pytest.raises(UserError, match="holds no samples; give the folder of a run"):
        call(verb, tmp_path / "empty", *others)
