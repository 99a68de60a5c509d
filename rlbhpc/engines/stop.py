"""Where a response ends: stop strings, end-of-text tokens and the stop tokens of an arm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlbhpc.engines.completion import Completion, Finish, Request
from rlbhpc.engines.tokens import Tokens
from rlbhpc.errors import UserError
from rlbhpc.study.keys import Sampling


class StopText:
    """Looks for stop strings in the text of a growing response.

    A stop string may begin in the middle of a token and end in the middle of another, so the
    search is in text, not in tokens. The tokens that spell it stay in the response; its text is
    cut before it. ``ends`` are the tokens that end a response; a stop token of the arm is cut from
    the text as well.
    """

    def __init__(self, tokens: Tokens, sampling: Sampling) -> None:
        for token in sampling.stop_token_ids:
            size = len(tokens.tokenizer)
            if token >= size:
                raise UserError(
                    f"sampling.stop_token_ids: the model of {tokens.folder} has no token {token:,};"
                    f" allowed: 0 to {size - 1:,}"
                )
        self.tokens = tokens
        self.stop = stop = sampling.stop
        self.ends = tokens.eos | set(sampling.stop_token_ids)
        # A token is at least one byte long, so a stop string lies in at most this many tokens; a
        # few more keep characters of several bytes whole.
        self.tail = max((len(s.encode()) for s in stop), default=0) + 8

    def reached(self, ids: Any, length: int) -> bool:
        """Whether the last token completed a stop string; ``ids`` is a row of sampled tokens."""
        if not self.stop:
            return False
        text = self.tokens.decode(ids[max(0, length - self.tail) : length].tolist())
        return any(s in text for s in self.stop)

    def complete(
        self,
        request: Request,
        token_ids: NDArray[np.int32],
        logprobs: NDArray[np.float32],
        entropies: NDArray[np.float32],
    ) -> Completion:
        """Make a finished response of what was sampled: its text, and why it ended."""
        ids = token_ids.tolist()
        is_stopped = ids[-1] in self.ends - self.tokens.eos
        text, is_cut = before_stop(self.tokens.decode(ids[:-1] if is_stopped else ids), self.stop)
        if is_cut:
            finish = Finish.STOP_STRING
        else:
            finish = Finish.EOS if ids[-1] in self.ends else Finish.LENGTH
        return Completion(request.tag, token_ids, logprobs, entropies, text, finish)


def before_stop(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """Cut a text at the first stop string; tell whether there was one."""
    starts = [start for start in map(text.find, stop) if start >= 0]
    return (text[: min(starts)], True) if starts else (text, False)
