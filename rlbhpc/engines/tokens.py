"""Tokens of a model: prompts encoded, responses read back, and where a response ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlbhpc.engines.completion import Completion, Finish, Request
from rlbhpc.engines.folder import end_ids
from rlbhpc.errors import UserError
from rlbhpc.problems.prompts import Prompt, check_tokens
from rlbhpc.study.keys import Sampling


class Tokens:
    """The tokeniser of one model folder.

    ``eos`` is every id that ends a response: those of ``generation_config.json`` (chat models need
    all of them), of ``config.json`` and of the tokeniser.
    """

    def __init__(self, folder: Path) -> None:
        """Note every token that ends a response of the model; refuse a model without one."""
        self.folder = folder
        self.eos = end_ids(folder) | (
            {self.tokenizer.eos_token_id} if self.tokenizer.eos_token_id is not None else set()
        )
        if not self.eos:
            raise UserError(
                f"{folder}: neither generation_config.json, config.json nor the tokeniser names an "
                "end-of-text token, so no response would ever end; add eos_token_id"
            )

    @cached_property
    def end(self) -> int:
        """The id that a response is taught to end with: the tokeniser's own end.

        Of several ids the others end other things, as a base model's documents do beside the turns
        of a chat.
        """
        own: int | None = self.tokenizer.eos_token_id
        return min(self.eos) if own is None else own

    @cached_property
    def tokenizer(self) -> Any:
        """The transformers tokeniser, loaded at its first use."""
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(self.folder)
        except (OSError, ValueError, ImportError) as error:
            why = " ".join(str(error).split())
            raise UserError(
                f"{self.folder}: transformers reads no tokeniser of it: {why}"
            ) from None
        # Where a folder has no file of it, that of some families comes without a vocabulary.
        if not tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens):
            raise UserError(
                f"{self.folder}: no tokeniser in it; copy tokenizer.json and tokenizer_config.json "
                "of the model that it was trained from"
            )
        return tokenizer

    def encode(self, text: str) -> tuple[int, ...]:
        """Encode a prompt, with the special tokens that the tokeniser adds by itself.

        A chat template writes the beginning-of-text token into the text and the tokeniser then
        adds it again; a model never saw two, so the second one is dropped.
        """
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Encode many prompts at once, which is many times faster than one by one."""
        start = self.tokenizer.bos_token_id
        double = None if start is None else [start, start]
        every = self.tokenizer(list(texts))["input_ids"]
        return [tuple(ids[1:] if ids[:2] == double else ids) for ids in every]

    def check_prompt(self, prompt: Prompt, rendered: str) -> None:
        """Refuse a template in another model's chat format; see :func:`check_tokens`."""
        check_tokens(
            prompt, self.encode(rendered), self.tokenizer.bos_token_id,
            lambda mark: self.tokenizer(mark, add_special_tokens=False)["input_ids"],
        )  # fmt: skip

    def decode(self, ids: Sequence[int]) -> str:
        """Text of response tokens; special tokens, the end-of-text among them, leave no trace."""
        text: str = self.tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text


class StopText:
    """Looks for stop strings in the text of a growing response.

    A stop string may begin in the middle of a token and end in the middle of another, so the
    search is in text, not in tokens. The tokens that spell it stay in the response; its text is
    cut before it. ``ends`` are the tokens that end a response; a stop token of the arm is cut from
    the text as well.
    """

    def __init__(self, tokens: Tokens, sampling: Sampling) -> None:
        """Note what ends a response: the model's end tokens, stop tokens and stop strings."""
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
        drawn_logprobs: NDArray[np.float32] | None = None,
    ) -> Completion:
        """Make a finished response of what was sampled: its text, and why it ended.

        The arrays have one entry for each token; see :class:`Completion`. ``self.tokens.eos``
        are the model's own end tokens, ``self.ends`` these and the stop tokens that were asked for;
        a stop token is cut from the text. ``before_stop`` cuts a text at the first stop string and
        tells whether there was one.
        """
        ids = token_ids.tolist()
        is_stopped = ids[-1] in self.ends - self.tokens.eos
        text, is_cut = before_stop(self.tokens.decode(ids[:-1] if is_stopped else ids), self.stop)
        if is_cut:
            finish = Finish.STOP_STRING
        else:
            finish = Finish.EOS if ids[-1] in self.ends else Finish.LENGTH
        completion = Completion(request.tag, token_ids, logprobs, entropies, text, finish)
        if drawn_logprobs is None:
            return completion
        return replace(completion, drawn_logprobs=drawn_logprobs)


def before_stop(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """Cut a text at the first stop string; tell whether there was one."""
    starts = [start for start in map(text.find, stop) if start >= 0]
    return (text[: min(starts)], True) if starts else (text, False)
