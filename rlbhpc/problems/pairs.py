"""Prompts with their responses, from a file: to learn from, or to score."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from rlbhpc.errors import UserError

Pairs = Iterable[tuple[str, str]]


def read_pairs(path: Path) -> Pairs:
    """Pairs of a JSONL file whose lines have ``prompt`` and ``response``."""
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                yield record["prompt"], record["response"]
            except (ValueError, KeyError, TypeError):
                raise UserError(
                    f'{path}:{number}: expected a line like {{"prompt": "…", "response": "…"}}; '
                    f"found {line.strip()[:60]!r}"
                ) from None
