"""The lists and tables of words that stand beside this module as text files."""

from __future__ import annotations

from importlib import resources


def lines(name: str) -> list[str]:
    """Lines of a file, without blank ones and comments."""
    text = resources.files("rlbhpc.verify.answer").joinpath(name).read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]
