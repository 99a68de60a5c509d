"""The folder that programs write to, and the library that they import from."""

from __future__ import annotations

import importlib.util
import marshal
import os
import py_compile
from pathlib import Path

import pytest

from rlbhpc.verify.sandbox import scratch
from rlbhpc.verify.sandbox.job import Job
from rlbhpc.verify.sandbox.library import _content
from tests.verify.conftest import RecordingSandbox


def test_a_scratch_folder_is_made_in_the_first_place_that_takes_it(tmp_path: Path) -> None:
    folder = Path(scratch.make(["", "/no/such/place", str(tmp_path), "/tmp"]))
    assert folder.parent == tmp_path and folder.stat().st_mode & 0o777 == 0o700
    with pytest.raises(OSError, match="no local folder to write to among /no/such/place"):
        scratch.make(["", "/no/such/place"])


def test_a_scratch_folder_has_a_most(tmp_path: Path) -> None:
    for number in range(scratch.MOST_FILES - 2):
        (tmp_path / str(number)).touch()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "last").touch()
    assert scratch.fits(str(tmp_path))
    (tmp_path / "sub" / "one more").touch()
    assert not scratch.fits(str(tmp_path))


def test_what_is_written_has_a_most(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, scratch.MOST_BYTES - (1 << 20))
        assert scratch.fits(str(tmp_path))
        os.posix_fallocate(file.fileno(), 0, scratch.MOST_BYTES + (1 << 20))
        assert not scratch.fits(str(tmp_path))


def test_a_scratch_folder_is_emptied_whatever_it_holds(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    folder = tmp_path / "scratch"
    (folder / "a" / "b" / "c").mkdir(parents=True)
    (folder / "a" / "b" / "file").touch()
    (folder / "a" / "link").symlink_to(outside)
    (folder / "link").symlink_to(outside)
    (folder / "a" / "b").chmod(0)
    (folder / "a").chmod(0)
    scratch.empty(str(folder))
    assert list(folder.iterdir()) == []
    assert list(outside.iterdir()) == [outside / "kept"]


def test_a_cache_of_another_interpreter_is_not_loaded(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("x = 1\n")
    assert _content(source) == (b"x = 1\n", False)
    cache = Path(str(py_compile.compile(str(source))))
    content, compiled = _content(source)
    assert compiled and "x" in marshal.loads(content).co_names
    cache.write_bytes(b"\0\0\0\0" + cache.read_bytes()[len(importlib.util.MAGIC_NUMBER) :])
    assert _content(source) == (b"x = 1\n", False)


STREAMS = """
import gc, os, sys
sys.stdin = sys.__stdin__ = sys.stdout = sys.__stdout__ = sys.stderr = sys.__stderr__ = None
gc.collect()
os.write(1, os.read(0, 9)), os.write(2, b"e")
"""


@pytest.mark.parametrize("waits", ["", "import selectors"])
def test_a_stream_that_goes_leaves_its_descriptor_open(best: RecordingSandbox, waits: str) -> None:
    outcome = best.run(Job(waits + STREAMS), b"text")
    assert (outcome.status, outcome.stdout, outcome.stderr) == (0, b"text", b"e")
