"""Show text that a model wrote without letting it act on the terminal."""

from __future__ import annotations

import unicodedata
from typing import Final

# Control, format (directions of writing, invisible marks), surrogates, line and paragraph
# separators: whatever moves a cursor, hides or reorders text, or is no text at all.
_HIDDEN: Final = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_PICTURES: Final = 0x2400  # Unicode has a picture for each of the first 32 control characters


def visible(text: str, *, lines: bool = True) -> str:
    """Replace characters that act on a terminal by ones that show them; ``lines`` may stay."""
    kept = {"\n", "\t"} if lines else set()
    if text.isprintable():
        return text
    return "".join(char if char in kept else _shown(char) for char in text)


def _shown(char: str) -> str:
    if unicodedata.category(char) not in _HIDDEN:
        return char
    code = ord(char)
    if code < 0x20:
        return chr(_PICTURES + code)
    return "␡" if code == 0x7F else f"<U+{code:04X}>"
