"""Stop strings: where a response ends before its end-of-text token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlbhpc.engines.tokens import Tokens


class StopText:
    """Looks for stop strings in the text of a growing response.

    A stop string may begin in the middle of a token and end in the middle of another, so the
    search is in text, not in tokens. The tokens that spell it stay in the response; its text is
    cut before it.
    """

    def __init__(self, tokens: Tokens, stop: tuple[str, ...]) -> None:
        self.tokens = tokens
        self.stop = stop
        # A token is at least one byte long, so a stop string lies in at most this many tokens; a
        # few more keep characters of several bytes whole.
        self.tail = max((len(s.encode()) for s in stop), default=0) + 8

    def reached(self, ids: Any, length: int) -> bool:
        """Whether the last token completed a stop string; ``ids`` is a row of sampled tokens."""
        if not self.stop:
            return False
        text = self.tokens.decode(ids[max(0, length - self.tail) : length].tolist())
        return any(s in text for s in self.stop)

    def cut(self, ids: Sequence[int]) -> tuple[str, bool]:
        """Text of a finished response up to its first stop string, and whether there was one."""
        text = self.tokens.decode(ids)
        starts = [start for start in map(text.find, self.stop) if start >= 0]
        return (text[: min(starts)], True) if starts else (text, False)
