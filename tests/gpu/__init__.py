"""The whole check of a machine with GPUs, as docs/gpu.md describes it: ``python -m tests.gpu``.

A part is a function of `parts.py`. It runs in a process of its own, on CUDA where torch sees a GPU
and else on the CPU with the smallest sizes, so that a first user's run is not the code's first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: What a part measured, by name.
Figures = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """``check`` works in a folder, fills in figures, and raises where one is out of bounds."""

    title: str
    check: Callable[[Path, Figures], None]
    needs: tuple[str, ...]


#: Every part by its name, in the order of `parts.py`.
PARTS: dict[str, Part] = {}


class NotHereError(Exception):
    """What a part is about does not exist here."""


def part(title: str, *needs: str) -> Callable[..., Callable[[Path, Figures], None]]:
    """Register a part, and the modules without which it cannot run."""

    def register(check: Callable[[Path, Figures], None]) -> Callable[[Path, Figures], None]:
        PARTS[check.__name__] = Part(title, check, needs)
        return check

    return register
