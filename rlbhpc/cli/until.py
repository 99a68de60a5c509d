"""Looks at a growing study, as ``rlbhpc plan --until`` shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from rlbhpc.cli.table import print_table
from rlbhpc.sweep.looks import LookRecord, Waiting, as_row

if TYPE_CHECKING:
    from rlbhpc.stats.joint import Finding

_NEXT: Final = {
    "decided": "decided",
    "nothing open": "no problem is left open: only more problems can decide",
    "budget": "the budget is out",
}


def look_rows(results: Sequence[LookRecord | Waiting]) -> list[dict[str, Any]]:
    """Looks as JSON-ready values."""
    rows = []
    for result in results:
        if isinstance(result, LookRecord):
            rows.append(as_row(result))
        else:
            last = as_row(result.last) if result.last else None
            rows.append({
                "base": result.base, "trained": result.trained, "set_name": result.set_name,
                "outcome": "samples are missing", "missing": result.missing, "last": last,
            })  # fmt: skip
    return rows


def print_looks(results: Sequence[LookRecord | Waiting]) -> None:
    """Print what is decided, and what comes next."""
    rows = []
    for result in results:
        record = result if isinstance(result, LookRecord) else result.last
        if isinstance(result, LookRecord):
            names = result.base[0], result.trained[0], result.set_name
            following = _NEXT.get(result.outcome) or _drawing(result)
        else:
            names = result.base, result.trained, result.set_name
            following = f"{result.missing:,} samples are missing; no look was taken"
        findings = [_words(record.lost), _words(record.gained)] if record else ["–", "–"]
        number = str(record.number) if record else "–"
        k = f"{record.k:,}" if record else "–"
        rows.append([*names, number, k, *findings, following])
    columns = ["base", "trained", "problem set", "look", "k", "lost", "gained", "next"]
    print_table("Looks", columns, rows)


def _words(finding: Finding) -> str:
    low, high = 100 * finding.low, 100 * finding.high
    if finding.verdict == "undecided":
        return f"undecided (at most {high:.1f} %)"
    return f"{finding.verdict} ({100 * finding.estimate:.1f} %, {low:.1f} to {high:.1f})"


def _drawing(record: LookRecord) -> str:
    problems = {problem for more in record.more for problem in more.problems}
    return f"more samples of {len(problems):,} problems"


def tell_next(results: Sequence[LookRecord | Waiting], study: str) -> None:
    """Say which command follows."""
    if any(isinstance(r, Waiting) or r.outcome == "draw" for r in results):
        click.echo(
            f"Draw what is missing with `rlbhpc launch {study}` or `rlbhpc sample {study}`, and "
            "ask again."
        )
