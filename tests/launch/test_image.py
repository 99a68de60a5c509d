"""Definitions of images: they hold together with the checkout that they are built from."""

from __future__ import annotations

from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", ["gpu", "cpu", "verify"])
def test_definitions_copy_what_is_there_and_are_labelled(kind: str) -> None:
    text = (CHECKOUT / "containers" / f"{kind}.def").read_text()
    files = text.partition("%files\n")[2].partition("\n\n")[0].split("\n")
    for line in files:
        source, _ = line.split()
        assert (CHECKOUT / source).exists()
    assert f"rlbhpc.kind {kind}" in text
    assert "constraints.txt" in text
    given = text.partition("%arguments\n")[2].partition("\n\n")[0]
    defaults = {line.split("=")[0].strip() for line in given.splitlines()}
    assert defaults == {"mirror", "revision"}, "a build needs no options"
