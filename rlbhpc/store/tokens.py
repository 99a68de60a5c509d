"""The token policy: whose per-token values a part keeps.

Token ids, log-probs and entropies of a response take ten times the room of its text. Their sums
are kept for every sample; the values themselves for all, for none, or for a sample of them:

``sampled`` keeps a seeded 1 %, and every correct answer to a rare problem. A problem is rare if
at most 1 % of its samples, or at most two of them, are correct: those are the responses in which
a model reaches beyond what it usually does.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rlbhpc.store import schema
from rlbhpc.store.listing import TokenPolicy
from rlbhpc.verify.verdict import Status

#: One sample in so many has its per-token values kept, right or wrong.
ONE_IN: Final = 100
_RARE: Final = 2


def in_lot(seeds: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which samples the policy ``sampled`` keeps whatever their verdict, from their seeds.

    A seed is 63 hashed bits of the key: a fair lot that falls the same way every time.
    """
    return np.asarray(seeds % ONE_IN == 0)


def apply(table: pa.Table, policy: TokenPolicy, right: int, drawn: int) -> pa.Table:
    """Drop the per-token values that a policy does not keep; they become null.

    ``table``: samples of one problem, all columns. ``policy``: what to keep. ``right, drawn``: how
    many samples of the problem are correct, and how many there are.
    """
    if policy == "all":
        return table
    keep = np.zeros(table.num_rows, bool)
    if policy == "sampled":
        keep |= in_lot(table["seed"].to_numpy())
        if right <= max(_RARE, drawn // ONE_IN):
            keep |= table["verdict"].to_numpy() == Status.RIGHT
    for name in schema.PER_TOKEN:
        column = pc.if_else(pa.array(keep), table[name], None)
        index = table.schema.get_field_index(name)
        table = table.set_column(index, table.schema.field(index), column)
    return table
