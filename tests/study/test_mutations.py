"""1,000 broken study files: each one clear line and exit code 64; nothing hangs or executes."""

from __future__ import annotations

import collections
import contextlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rlbhpc.cli.main import main
from tests.study.mutations import PAWN, SHELL, Mutation, mutations, strings, with_text, write

# From compiling what a file holds to starting a process: no study file may cause any of these.
FORBIDDEN = {"os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "compile"}
SLOWEST = 10.0  # seconds of processor for one file; the slowest takes well under one

seen: list[str] = []
armed = False


def watch(event: str, args: tuple[object, ...]) -> None:
    if armed and event in FORBIDDEN:
        seen.append(f"{event} {args!r:.100}")


@contextlib.contextmanager
def watched() -> Iterator[None]:
    global armed
    seen.clear()
    armed = True
    try:
        yield
    finally:
        armed = False


def check(file: Path, *overrides: str) -> tuple[int, str, str]:
    """Run `rlbhpc check` in this process: exit code, output, errors."""
    return called(
        "check", str(file), "--json", *(word for text in overrides for word in ("--set", text))
    )


def called(*words: str) -> tuple[int, str, str]:
    """Run a verb in this process: exit code, output, errors."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([*words])
        except SystemExit as stop:
            return int(stop.code or 0), out.getvalue(), err.getvalue()
    raise AssertionError("main() ends with an exit code")


def is_one_clear_line(text: str) -> bool:
    """One line, printable, not a traceback, not a wall."""
    lines = text.splitlines()
    return (
        len(lines) == 1
        and text.startswith("rlbhpc: ")
        and lines[0].isprintable()
        and len(lines[0]) < 1_500
        and "Traceback" not in text
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_broken_files_are_refused_in_one_line(study_file: Path, soak: bool) -> None:
    count = 10_000 if soak else 1_000
    folder = study_file.parent
    assert check(study_file)[0] == 0, "the file that is mutated must itself be valid"
    # What check imports on its way is compiled here, before anything is watched.
    assert check(study_file, "engine.name=vllm")[0] == 0
    sys.addaudithook(watch)
    refused: collections.Counter[str] = collections.Counter()
    accepted: collections.Counter[str] = collections.Counter()
    stream = mutations(seed=1)
    while refused.total() < count:
        mutation = next(stream)
        file = write(mutation, folder)
        start = time.process_time()
        with watched():
            code, out, err = check(file, *mutation.overrides)
        said = f"{mutation.kind}: {mutation.note}\n{err}"
        assert time.process_time() - start < SLOWEST, said
        assert not seen, said + str(seen)
        if code == 0:
            assert not mutation.broken, f"accepted although broken: {said}"
            assert err == ""
            accepted[mutation.kind] += 1
            check_literal(mutation, json.loads(out))
        else:
            assert code == 64, said
            assert is_one_clear_line(err), said
            assert out == "", said
            refused[mutation.kind] += 1
    assert not list(folder.rglob(f"*{PAWN}*")), "something was executed"
    assert not Path(PAWN).exists()
    # What may be accepted is a small part, so that the thousand are a thousand.
    assert accepted.total() < count / 4, accepted
    assert set(accepted) <= {"delete key", "delete line", "retype", "garble", "shell value"}


def check_literal(mutation: Mutation, resolved: dict[str, object]) -> None:
    """An accepted file with a shell text means that text, letter by letter."""
    if mutation.kind != "shell value":
        return
    content = yaml.safe_load(mutation.content)
    text = json.dumps(resolved, ensure_ascii=False)
    hostile = [s for s in SHELL if s in json.dumps(content, ensure_ascii=False)]
    for one in hostile:
        assert json.dumps(one, ensure_ascii=False)[1:-1] in text, mutation.note


def test_every_text_with_shell_characters(study_file: Path, soak: bool) -> None:
    """Where such a text is allowed it stays what it is; nowhere does it do anything."""
    assert check(study_file)[0] == 0, "modules are compiled now rather than while watched"
    sys.addaudithook(watch)
    allowed = set()
    for number, path in enumerate(strings()):
        for text in SHELL if soak else (SHELL[0], SHELL[number % len(SHELL)]):
            mutation = with_text(path, text)
            file = write(mutation, study_file.parent)
            with watched():
                code, out, err = check(file)
            assert not seen, mutation.note
            assert code in (0, 64), mutation.note
            if code == 0:
                allowed.add(path)
                check_literal(mutation, json.loads(out))
            else:
                assert is_one_clear_line(err), mutation.note
    assert not list(study_file.parent.rglob(f"*{PAWN}*"))
    assert allowed <= {
        ("question",),
        ("models", "far", "endpoint", "model"),
        ("sampling", "stop", 0),
    }


def test_the_generator_is_seeded() -> None:
    first, second = mutations(seed=5), mutations(seed=5)
    assert [next(first) for _ in range(50)] == [next(second) for _ in range(50)]


@pytest.mark.slow
def test_the_same_as_a_real_process(study_file: Path, soak: bool) -> None:
    stream = mutations(seed=2)
    for _ in range(100 if soak else 6):
        mutation = next(stream)
        file = write(mutation, study_file.parent)
        sets = [word for text in mutation.overrides for word in ("--set", text)]
        done = subprocess.run(
            [sys.executable, "-m", "rlbhpc", "check", str(file), *sets],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONWARNINGS": "error"},
            check=False,
        )
        said = f"{mutation.kind}: {mutation.note}\n{done.stderr}"
        if done.returncode == 0:
            assert not mutation.broken, said
        else:
            assert done.returncode == 64, said
            assert is_one_clear_line(done.stderr), said
    assert not list(study_file.parent.rglob(f"*{PAWN}*"))
