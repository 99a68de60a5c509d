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
from rlbhpc.store.sample import Sample
from rlbhpc.study.keys import SampleKey

#: Raised whenever a column changes its meaning. Kept in every part.
SCHEMA_VERSION: Final = 2

# A name that repeats over thousands of rows is held once; Parquet stores it as a plain string.
_NAME = pa.dictionary(pa.int32(), pa.string())

#: Columns of a sample row. ``digest`` is 63 bits of a hash over the whole sample as it was
#: generated: two rows with one key and one fingerprint are the same sample exactly when their
#: digests agree, also where a part no longer keeps the per-token values (null lists there).
ROWS: Final = pa.schema(
    [
        ("arm", _NAME),
        ("step", pa.int32()),
        ("problem", _NAME),
        ("sample", pa.int32()),
        ("fingerprint", pa.int64()),
        ("seed", pa.int64()),
        ("digest", pa.int64()),
        ("verdict", pa.int8()),
        ("finish", pa.int8()),
        ("paper", pa.int8()),
        ("n_tokens", pa.int32()),
        ("logprob_sum", pa.float64()),
        ("entropy_sum", pa.float64()),
        ("answer", pa.string()),
        ("rule", _NAME),
        ("grader", _NAME),
        ("text", pa.string()),
        ("error", pa.string()),
        ("token_ids", pa.list_(pa.int32())),
        ("logprobs", pa.list_(pa.float16())),
        ("entropies", pa.list_(pa.float16())),
    ]
)

#: What makes a row this row and no other.
KEY: Final = ("arm", "step", "problem", "sample", "fingerprint")
#: What a token policy may leave out of a part.
PER_TOKEN: Final = ("token_ids", "logprobs", "entropies")


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


def empty(columns: Sequence[str] | None = None) -> pa.Table:
    """Give a table without rows."""
    return select(columns).empty_table()


def to_samples(table: pa.Table) -> Iterator[Sample]:
    """Turn rows with all columns into samples; per-token values that a part left out are empty."""
    for row in table.to_pylist():
        row.pop("digest")
        key = SampleKey(*(row.pop(name) for name in SampleKey._fields))
        for name in PER_TOKEN:
            dtype = np.int32 if name == "token_ids" else np.float16
            row[name] = np.asarray(row[name] or [], dtype)
        yield Sample(key, **row)
