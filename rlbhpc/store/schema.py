"""The one table of sample rows: what journals hold, parts keep and readers return.

Every reading function of the store returns some of these columns, in this order and with these
types, whichever tier the rows come from. A part's Parquet file has plain types only (strings,
integers, floats, lists), so that any tool reads it without this package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from rlbhpc.errors import UserError
from rlbhpc.store.sample import COLUMNS, Sample
from rlbhpc.study.keys import SampleKey

#: Columns of a sample row; :data:`rlbhpc.store.sample.COLUMNS` declares them.
ROWS: Final = pa.schema([(name, column.arrow) for name, column in COLUMNS.items()])
#: The same with types that any tool reads, as parts have them.
PLAIN: Final = pa.schema(
    [(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in ROWS]
)

#: What makes a row this row and no other.
KEY: Final = ("arm", "step", "problem", "sample", "fingerprint")
#: What a token policy may leave out of a part.
PER_TOKEN: Final = tuple(name for name, column in COLUMNS.items() if column.is_list)


def select(columns: Sequence[str] | None) -> pa.Schema:
    """Cut the schema down to some columns, in its own order; None means all."""
    if columns is None:
        return ROWS
    unknown = [name for name in columns if name not in ROWS.names]
    if unknown:
        raise UserError(
            f"column {unknown[0]!r} does not exist; the columns are {', '.join(ROWS.names)}"
        )
    return pa.schema([field for field in ROWS if field.name in columns])


def filled(table: pa.Table, wanted: pa.Schema, rows: int) -> pa.Table:
    """Rows with all columns of a schema; one that an older part has not holds its default."""
    columns = [
        table[field.name] if field.name in table.column_names
        else pa.array([getattr(Sample, field.name, None)] * rows, field.type)
        for field in wanted
    ]  # fmt: skip
    return pa.table(columns, schema=wanted)


def to_samples(table: pa.Table) -> Iterator[Sample]:
    """Turn rows with all columns into samples; per-token values that a part left out are empty."""
    for row in table.to_pylist():
        row.pop("digest")
        key = SampleKey(*(row.pop(name) for name in SampleKey._fields))
        for name in PER_TOKEN:
            row[name] = np.asarray(row[name] or [], COLUMNS[name].dtype)
        yield Sample(key, **row)
