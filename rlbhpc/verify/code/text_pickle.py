"""Read one string out of a pickle, and nothing else.

LiveCodeBench publishes its private tests as pickled text. Unpickling is running a program; this
reads the six opcodes that a pickled string consists of and refuses every other. Opcodes are those
of ``pickletools``; numbers are little-endian.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Final

_PROTOCOL, _FRAME, _MEMOIZE, _STOP = b"\x80", b"\x95", b"\x94", b"."
_MEMO_PUT: Final = {b"q": 1, b"r": 4}  # BINPUT, LONG_BINPUT
_TEXT: Final = {b"\x8c": 1, b"X": 4, b"\x8d": 8}  # SHORT_BINUNICODE, BINUNICODE, BINUNICODE8
# The largest published set of tests unpacks to some hundred megabytes.
MOST_BYTES: Final = 4 << 30


def load_text(data: bytes) -> str:
    """Return the string that ``data`` is a pickle of.

    Raises :class:`ValueError` for a pickle of anything else.
    """
    position, text = 0, None

    def take(count: int) -> bytes:
        nonlocal position
        if count > len(data) - position:
            raise ValueError("the pickle ends early")
        position += count
        return data[position - count : position]

    while (opcode := take(1)) != _STOP:
        if opcode == _PROTOCOL:
            take(1)
        elif opcode == _FRAME:
            take(8)
        elif opcode in _MEMO_PUT:
            take(_MEMO_PUT[opcode])
        elif opcode in _TEXT and text is None:
            size = int.from_bytes(take(_TEXT[opcode]), "little")
            text = take(size).decode("utf-8", "surrogatepass")
        elif opcode != _MEMOIZE:
            raise ValueError(f"opcode {opcode!r} at byte {position - 1}: not a pickled string")
    if text is None or position != len(data):
        raise ValueError("not a pickle of one string")
    return text


def unpack(packed: str) -> str:
    """Undo base64, zlib and pickling of a string.

    Raises :class:`ValueError` if it is not that.
    """
    try:
        unzip = zlib.decompressobj()
        data = unzip.decompress(base64.b64decode(packed, validate=True), MOST_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(str(error)) from None
    if not unzip.eof:
        raise ValueError(f"cut off, or more than {MOST_BYTES} bytes")
    return load_text(data)
