"""The canonical bytes of a sample: what a journal stores and what a digest is taken of.

::

    FIXED     step i32, sample i32, fingerprint i64, seed i64, verdict i8, finish i8, paper i8,
              n_tokens i32, logprob_sum f64, entropy_sum f64, ten lengths u32 (little-endian)
    strings   arm, problem, answer, rule, grader, text, error (UTF-8)
    arrays    token ids i32, log-probs f16, entropies f16
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlbhpc.store import schema
from rlbhpc.store.sample import Sample

_FIXED: Final = struct.Struct("<iiqqbbbidd10I")
_STRINGS: Final = ("arm", "problem", "answer", "rule", "grader", "text", "error")
_ARRAYS: Final = {"token_ids": "<i4", "logprobs": "<f2", "entropies": "<f2"}
_BLOBS: Final = (*_STRINGS, *_ARRAYS)
# The same bytes as _FIXED, for many samples at once.
_DTYPE: Final = np.dtype(
    [
        ("step", "<i4"),
        ("sample", "<i4"),
        ("fingerprint", "<i8"),
        ("seed", "<i8"),
        ("verdict", "i1"),
        ("finish", "i1"),
        ("paper", "i1"),
        ("n_tokens", "<i4"),
        ("logprob_sum", "<f8"),
        ("entropy_sum", "<f8"),
        ("lengths", "<u4", (len(_BLOBS),)),
    ]
)


def digest(body: bytes) -> int:
    """63 bits of BLAKE2b over canonical bytes."""
    return int.from_bytes(hashlib.blake2b(body, digest_size=8).digest(), "little") >> 1


def _utf8(text: str) -> bytes:
    """Encode any string; a lone surrogate, which no file may hold, becomes U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def encode(sample: Sample) -> bytes:
    """Canonical bytes of a sample: the same sample gives the same bytes everywhere."""
    key = sample.key
    blobs = (
        key.arm.encode(),
        key.problem.encode(),
        _utf8(sample.answer),
        _utf8(sample.rule),
        _utf8(sample.grader),
        _utf8(sample.text),
        _utf8(sample.error),
        sample.token_ids.astype("<i4", copy=False).tobytes(),
        sample.logprobs.astype("<f2", copy=False).tobytes(),
        sample.entropies.astype("<f2", copy=False).tobytes(),
    )
    fixed = _FIXED.pack(
        key.step,
        key.sample,
        sample.fingerprint,
        sample.seed,
        sample.verdict,
        sample.finish,
        sample.paper,
        sample.n_tokens,
        sample.logprob_sum,
        sample.entropy_sum,
        *map(len, blobs),
    )
    return b"".join((fixed, *blobs))


def table(
    bodies: Sequence[bytes], digests: NDArray[np.int64], columns: Sequence[str] | None = None
) -> pa.Table:
    """Rows of canonical bytes, a column at a time."""
    fixed = np.frombuffer(b"".join(body[: _DTYPE.itemsize] for body in bodies), _DTYPE)
    ends = _DTYPE.itemsize + np.cumsum(fixed["lengths"], axis=1, dtype=np.int64)
    wanted = schema.select(columns)
    arrays = []
    for field in wanted:
        if field.name in _BLOBS:
            i = _BLOBS.index(field.name)
            stops = ends[:, i]
            starts = stops - fixed["lengths"][:, i]
            spans = zip(bodies, starts.tolist(), stops.tolist(), strict=True)
            arrays.append(_blobs([body[start:stop] for body, start, stop in spans], field))
        else:
            values = digests if field.name == "digest" else np.ascontiguousarray(fixed[field.name])
            arrays.append(pa.array(values, field.type))
    return pa.table(arrays, schema=wanted)


def _blobs(values: list[bytes], field: pa.Field) -> pa.Array:
    if field.name in _ARRAYS:
        flat = np.frombuffer(b"".join(values), _ARRAYS[field.name])
        ends = np.cumsum([0, *map(len, values)]) // flat.itemsize
        return pa.ListArray.from_arrays(
            pa.array(ends, pa.int32()), pa.array(flat, field.type.value_type), type=field.type
        )
    strings = pa.array(values, pa.binary()).cast(pa.string())
    return strings.dictionary_encode() if pa.types.is_dictionary(field.type) else strings
