"""The folder that programs write to, and the library that they import from."""

from __future__ import annotations

import importlib.util
import marshal
import os
import py_compile
from pathlib import Path

import pytest

from rlbhpc.verify.sandbox import confine
from rlbhpc.verify.sandbox.job import Job
from rlbhpc.verify.sandbox.library import Library, _read_module
from tests.verify.conftest import RecordingSandbox


def test_a_scratch_folder_is_made_in_the_first_place_that_takes_it(tmp_path: Path) -> None:
    folder = Path(confine.make_scratch(["", "/no/such/place", str(tmp_path), "/tmp"]))
    assert folder.parent == tmp_path and folder.stat().st_mode & 0o777 == 0o700
    with pytest.raises(OSError, match="no local folder to write to among /no/such/place"):
        confine.make_scratch(["", "/no/such/place"])


def test_a_scratch_folder_has_a_most(tmp_path: Path) -> None:
    for number in range(997):
        (tmp_path / str(number)).touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "last").touch()
    assert confine.scratch_fits(str(tmp_path))
    (tmp_path / "sub" / "one more").touch()
    assert not confine.scratch_fits(str(tmp_path))


def test_what_is_written_has_a_most(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    with (folder / "large").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 64 << 20)
        most = os.fstat(file.fileno()).st_blocks * 512 == 64 << 20
        assert confine.scratch_fits(str(folder)) == most
        os.posix_fallocate(file.fileno(), 0, 65 << 20)
        assert not confine.scratch_fits(str(folder))
    (folder / "large").rename(tmp_path / "outside")
    (folder / "link").symlink_to(tmp_path / "outside")
    assert confine.scratch_fits(str(folder))


def test_a_scratch_folder_is_emptied_whatever_it_holds(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "kept").touch()
    folder = tmp_path / "scratch"
    (folder / "a" / "b" / "c").mkdir(parents=True)
    (folder / "a" / "b" / "file").touch()
    (folder / "a" / "link").symlink_to(outside)
    (folder / "a" / "dangling").symlink_to("nowhere")
    (folder / "link").symlink_to(outside)
    (folder / "a" / "b").chmod(0)
    (folder / "a").chmod(0)
    confine.empty_scratch(str(folder))
    assert list(folder.iterdir()) == []
    assert list(outside.iterdir()) == [outside / "kept"]
    assert outside.stat().st_mode & 0o777 == 0o755


def test_modules_are_served_from_memory(tmp_path: Path) -> None:
    package = tmp_path / "served"
    for name in ("__init__.py", "plain.py", "data.txt", "sub/__init__.py", "sub/deep.py",
                 "bare/lost.py", "tests/__init__.py", "compiled.py"):  # fmt: skip
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(f"name = {name!r}\ndef f(x: int): return x\n")
    py_compile.compile(str(package / "compiled.py"))
    library = Library([package])
    names = [name for name in library._modules if name.partition(".")[0] == "served"]
    assert names == [
        "served", "served.compiled", "served.plain", "served.sub", "served.sub.deep",
    ]  # fmt: skip
    for name in names:
        spec = library.find_spec(name, None)
        assert spec is not None
        assert (spec.submodule_search_locations is not None) == (name in ("served", "served.sub"))
        module = importlib.util.module_from_spec(spec)
        library.exec_module(module)
        assert module.__file__ == str(package / module.name)
        assert module.f.__annotations__ == {"x": int}
    assert library.find_spec("served.bare", None) is None


def test_a_cache_of_another_interpreter_is_not_loaded(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("x = 1\n")
    assert _read_module(source) == (b"x = 1\n", False)
    cache = Path(str(py_compile.compile(str(source))))
    content, compiled = _read_module(source)
    assert compiled and "x" in marshal.loads(content).co_names
    cache.write_bytes(b"\0\0\0\0" + cache.read_bytes()[len(importlib.util.MAGIC_NUMBER) :])
    assert _read_module(source) == (b"x = 1\n", False)


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
