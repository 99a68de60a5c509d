"""Write the samples of a run anew with other verdicts, into the folder of another run.

Samples on disk never change, so a new grader does not touch them: what it says goes into a run of
its own, which compacts, merges and reports like any other and can stand beside the first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from rlbhpc.store import left_out, parts, tokens
from rlbhpc.store.listing import TokenPolicy
from rlbhpc.store.seal import units
from rlbhpc.store.sources import Group, Rows
from rlbhpc.store.view import View
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Status, Verdict

_SAID: Final = ("verdict", "answer", "rule", "grader")

#: Gives the verdicts on the samples of one problem at one step; None leaves one as it is.
Judge = Callable[[pa.Table], Sequence[Verdict | None]]


def cells(layout: Layout, group: Group, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Read the samples that count, the samples of one problem at one step at a time."""
    rows = Rows(layout, group)
    view = View(rows.now, columns)
    for which in rows.counted(view).values():
        yield view.read(which, columns)
    left_out.tell(layout.root, [*rows.notes, *view.notes])


def rewrite(layout: Layout, into: Layout, group: Group, judge: Judge, policy: TokenPolicy) -> int:
    """Write all samples of a group into another run as parts; return how many.

    ``policy`` says whose per-token values to keep, of those that are still there. The same call
    again writes the same files, so an interrupted one is simply given again.
    """
    rows = Rows(layout, group)
    view = View(rows.now)
    by_cell = rows.counted(view)
    written = 0
    for unit in units(group.arm, rows.grid):
        tables = [
            _judged(view.read(by_cell[cell]), judge, policy) for cell in unit if cell in by_cell
        ]
        if rows_of_unit := sum(table.num_rows for table in tables):
            parts.write(into.parts(*group), tables, policy)
            written += rows_of_unit
    left_out.tell(layout.root, [*rows.notes, *view.notes])
    return written


def _judged(table: pa.Table, judge: Judge, policy: TokenPolicy) -> pa.Table:
    columns: dict[str, list[Any]] = {name: table[name].to_pylist() for name in _SAID}
    digests = table["digest"].to_pylist()
    for index, new in enumerate(judge(table)):
        if new is None:
            continue
        values = (int(new.status), new.canonical, new.rule, new.grader)
        if values != tuple(column[index] for column in columns.values()):
            # 63 bits over the sample as it was and what is said of it now.
            text = repr((digests[index], *values)).encode("utf-8", "surrogatepass")
            hashed = hashlib.blake2b(text, digest_size=8).digest()
            digests[index] = int.from_bytes(hashed, "big") >> 1
            for column, value in zip(columns.values(), values, strict=True):
                column[index] = value
    for name, values_of in {**columns, "digest": digests}.items():
        place = table.schema.get_field_index(name)
        field = table.schema.field(place)
        table = table.set_column(place, field, pa.array(values_of, field.type))
    right = columns["verdict"].count(int(Status.RIGHT))
    return tokens.apply(table, policy, right, table.num_rows)
