"""Pickled strings are read; every other pickle is refused unrun."""

from __future__ import annotations

import base64
import os
import pickle
import zlib
from pathlib import Path

import pytest

from rlbhpc.verify.code.livecodebench import load_text, unpack


@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    "text", ["", "x", "é" * 300, "a" * 70_000, '[{"input": "\\ud83d"}]', "\ud800"]
)
def test_strings_of_every_protocol(text: str, protocol: int) -> None:
    assert load_text(pickle.dumps(text, protocol)) == text


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize(
    "value", [None, 1, [], ["x"], ("x",), {"x": 1}, b"x", print, 1.5, "x" == "x"]
)
def test_other_values_are_refused(value: object) -> None:
    for protocol in range(6):
        with pytest.raises(ValueError):
            load_text(pickle.dumps(value, protocol))


def test_a_program_is_not_run(tmp_path: Path) -> None:
    for protocol in range(6):
        with pytest.raises(ValueError):
            load_text(pickle.dumps(Evil(tmp_path / "mark"), protocol))
    # Text first, the program after it.
    data = pickle.dumps("x", 2)[:-1] + b"cposix\nsystem\n(S'true'\ntR."
    with pytest.raises(ValueError):
        load_text(data)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "data", [b"", b".", b"\x80\x04.", b"X\xff\xff\xff\xffx.", b"\x8c\x01x", b"\x8c\x01x.x"]
)
def test_broken_pickles(data: bytes) -> None:
    with pytest.raises(ValueError):
        load_text(data)


def test_unpack() -> None:
    packed = base64.b64encode(zlib.compress(pickle.dumps("[1]"))).decode()
    assert unpack(packed) == "[1]"
    for broken in ("!!", "AAAA", packed[:-8], base64.b64encode(b"plain").decode()):
        with pytest.raises(ValueError):
            unpack(broken)
