"""Lines that came out of a sandbox, read as what calls returned or raised."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlbhpc.verify.sandbox import wire


@dataclass(frozen=True)
class Returned:
    """What one call returned, or the name of what it raised, and its processor time."""

    value: Any = None
    raised: str = ""
    cpu: float = 0.0


def parse(data: bytes, sizes: Sequence[int]) -> list[Returned]:
    """Read at most ``len(sizes)`` lines, up to the first that is not as the driver writes them.

    ``sizes`` bounds the hash tables of each value by the length of what is expected there: a
    larger one can't be equal to it.
    """
    results = []
    for line, size in zip(data.split(b"\n")[:-1], sizes, strict=False):
        head, mark, tail = line.rpartition(b',"cpu":')
        try:
            cpu = float(tail.removesuffix(b"}")) if mark and len(tail) < 40 else 0.0
            if head.startswith(b'{"returned":'):
                value = wire.loads(head.removeprefix(b'{"returned":'), max(size, wire.MAX_HASHED))
                results.append(Returned(value=value, cpu=cpu))
            elif head.startswith(b'{"raised":'):
                name = json.loads(head.removeprefix(b'{"raised":')[:200])
                results.append(Returned(raised=str(name) or "?", cpu=cpu))
            else:
                break
        except (ValueError, RecursionError):
            break
    return results
