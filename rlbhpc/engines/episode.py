"""Episodes: samples of several turns, with the results of tools between what the model writes.

An episode is one stream of tokens. The request of a turn is the stream so far, as token ids, with
the tools' results behind it; nothing is tokenised a second time. A result is encoded apart from the
marks around it, and special tokens in it are split into plain text. So neither a tool nor the model
can write a mark that only the other side may write: a model that emits the mark of a role ends its
turn there.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from rlbhpc.engines.completion import MODEL, Completion, Finish, Request
from rlbhpc.engines.tokens import StopText, Tokens
from rlbhpc.errors import UserError
from rlbhpc.study.keys import Sampling, Turns, follow_up_seed
from rlbhpc.study.prompts import render_chat

#: Writer of the result of a call that failed, in a trace.
FAILED: Final = "failed"


class Call(NamedTuple):
    """A call of a tool that a model wrote, or ``error``, why what it wrote is none."""

    tool: str
    arguments: dict[str, Any]
    error: str = ""


class Result(NamedTuple):
    """What a call gave: its text, and whether the call failed."""

    text: str
    failed: bool = False


class EpisodeTools(Protocol):
    """The tools of one episode, with what they keep from call to call."""

    def start(self, calls: Sequence[Call]) -> Future[list[Result]]:
        """Make calls in the background, one after the other."""
        ...

    def close(self) -> None:
        """End what the episode has started."""
        ...


class Tools(Protocol):
    """All tools of a sampling setting."""

    def open(self) -> EpisodeTools:
        """Begin an episode, in which nothing of another one is left."""
        ...


class Format(Protocol):
    """How a model writes calls, and how their results are put behind them."""

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings that end a turn beside those of the sampling setting."""
        ...

    def read_calls(self, text: str) -> list[Call]:
        """Read the calls at the end of a turn; none where the turn ends the episode."""
        ...

    def frame(self, text: str, results: Sequence[str]) -> list[tuple[str, str, str]]:
        """Give each result with the marks before and behind it; ``text`` is the turn's."""
        ...


# ---- formats -------------------------------------------------------------------------------------

_FENCE: Final = "```"


class Blocks:
    """Fenced blocks that begin with a tool's name, as base models know them from documents."""

    # The end of a block, and no beginning, which has a word behind it.
    stop: tuple[str, ...] = (f"\n{_FENCE}\n",)

    def __init__(self, tools: Sequence[str]) -> None:
        self._tools = tools

    def read_calls(self, text: str) -> list[Call]:
        """Read the block that the text ends with, if its first line names a tool."""
        word: str | None = None
        content: list[str] = []
        is_last = False
        for line in text.rstrip().split("\n"):
            is_last = False
            if not line.startswith(_FENCE):
                content.append(line)
            elif word is None:
                word = line.removeprefix(_FENCE).strip()
                content = []
            else:
                is_last = word in self._tools
                call = Call(word, {"": "\n".join(content)})
                word = None
        return [call] if is_last else []

    def frame(self, text: str, results: Sequence[str]) -> list[tuple[str, str, str]]:
        """Put each result into a block of output."""
        newline = "" if text.endswith("\n") else "\n"
        return [(f"{newline}{_FENCE}output\n", result, f"\n{_FENCE}\n") for result in results]


#: Calls in the chat formats of models: families that write so, and the pattern of their JSON.
_CALL_PATTERNS: Final = (
    ("Hermes, Qwen 2.5 and 3", re.compile(r"(?s)<tool_call>(.*?)(?:</tool_call>|\Z)")),
    ("Mistral", re.compile(r"(?s)\[TOOL_CALLS\](.*)")),
    ("Llama from 3.1", re.compile(r"(?s)(?:<\|python_tag\|>|\A)\s*(\{\s*\"name\".*)")),
)
_NO_CALL: Final = "a call is JSON with the keys name and arguments"


class Chat:
    """Calls and results as the model's own chat template writes them."""

    stop: tuple[str, ...] = ()

    def __init__(self, tokens: Tokens) -> None:
        """Refuse a model whose chat template has no place for results of tools."""
        self._tokens = tokens
        self._frame_of_count = cache(self._render_frame)
        self._frame_of_count(1)

    def read_calls(self, text: str) -> list[Call]:
        """Read all calls of a turn; one that is no JSON of a call comes back with the error."""
        for _, pattern in _CALL_PATTERNS:
            calls = [call for body in pattern.findall(text) for call in _parse_calls(body)]
            if calls:
                return calls
        return []

    def frame(self, text: str, results: Sequence[str]) -> list[tuple[str, str, str]]:
        """Put the results behind a turn, with the marks that begin the model's next one."""
        *before, last = self._frame_of_count(len(results))
        ends = [""] * (len(results) - 1) + [last]
        return list(zip(before, results, ends, strict=True))

    def _render_frame(self, count: int) -> list[str]:
        """What stands before each of ``count`` results, and behind the last of them.

        A turn with its end token is in the stream already, so its text is cut off. Templates add
        a line break or so to it.
        """
        folder = self._tokens.folder
        calls = [
            {"id": f"call{number:05}", "type": "function",
             "function": {"name": "tool", "arguments": {}}}
            for number in range(count)
        ]  # fmt: skip
        turn: list[dict[str, Any]] = [
            {"role": "user", "content": "?"},
            {"role": "assistant", "tool_calls": calls},
        ]
        marks = [f"<result {number}>" for number in range(count)]
        answers = [
            {"role": "tool", "name": "tool", "tool_call_id": call["id"], "content": mark}
            for call, mark in zip(calls, marks, strict=True)
        ]
        called = render_chat(folder, turn, add_generation_prompt=False)
        rendered = render_chat(folder, [*turn, *answers])
        if not rendered.startswith(called) or not all(mark in rendered for mark in marks):
            raise UserError(
                f"{folder}: its chat format has no place for results of tools; take "
                "`format: blocks`"
            )
        rest = self._behind_end(called) + rendered[len(called) :]
        pieces = []
        for mark in marks:
            before, _, rest = rest.partition(mark)
            pieces.append(before)
        return [*pieces, rest]

    def _behind_end(self, text: str) -> str:
        """What a template writes behind the end token of a turn."""
        ends = [self._tokens.tokenizer.convert_ids_to_tokens(end) for end in self._tokens.eos]
        positions = [text.rfind(end) + len(end) for end in ends if end in text]
        return text[max(positions, default=len(text)) :]


def _parse_calls(body: str) -> list[Call]:
    """Parse the JSON of one call or of a list of them."""
    try:
        parsed, _ = json.JSONDecoder().raw_decode(body.strip())
    except (ValueError, RecursionError):
        return [Call("", {}, _NO_CALL)]
    return [_make_call(entry) for entry in (parsed if isinstance(parsed, list) else [parsed])]


def _make_call(entry: Any) -> Call:
    """Make a call of parsed JSON; Llama calls the arguments parameters."""
    if isinstance(entry, dict):
        arguments = entry.get("arguments", entry.get("parameters"))
        if isinstance(entry.get("name"), str) and isinstance(arguments, dict):
            return Call(entry["name"], arguments)
    return Call("", {}, _NO_CALL)


# ---- an episode ----------------------------------------------------------------------------------


class Stream:
    """The tokens of an episode behind its prompt, and who wrote them."""

    def __init__(self) -> None:
        self.responses: list[Completion] = []
        self.ids: list[int] = []
        self.segments: list[list[Any]] = []
        self._logprobs: list[float] = []
        self._entropies: list[float] = []

    def add_response(self, completion: Completion, text: str) -> None:
        """Append what the model wrote: the next piece of its turn, whose text so far is given."""
        ids = completion.token_ids.tolist()
        if self.segments and self.segments[-1][0] == MODEL:
            self.segments[-1][1] += len(ids)
            self.segments[-1][2] = text
        else:
            self.segments.append([MODEL, len(ids), text])
        self.ids += ids
        self._logprobs += completion.logprobs.tolist()
        self._entropies += completion.entropies.tolist()

    def add_result(self, writer: str, ids: Sequence[int], text: str) -> None:
        """Append the result of a call, of which nothing was measured."""
        self.segments.append([writer, len(ids), text])
        self.ids += ids
        self._logprobs += [0.0] * len(ids)
        self._entropies += [0.0] * len(ids)

    @property
    def turn_length(self) -> int:
        """Tokens of the turn that the stream ends with."""
        is_open = bool(self.segments) and self.segments[-1][0] == MODEL
        return self.segments[-1][1] if is_open else 0

    def count_tokens(self, *, by_model: bool) -> int:
        """Tokens of the model, or of all tools."""
        return sum(n for writer, n, _ in self.segments if (writer == MODEL) == by_model)

    def trace(self) -> str:
        """What is stored of the turns beside the text of the last one."""
        writers = [writer for writer, *_ in self.segments]
        n_turns = writers.count(MODEL)
        segments = [*self.segments[:-1], self.segments[-1][:2]]
        numbers = {
            "n_turns": n_turns,
            "n_tool_calls": len(writers) - n_turns,
            "n_tool_tokens": self.count_tokens(by_model=False),
            "n_failed_calls": writers.count(FAILED),
        }
        return json.dumps(numbers | {"segments": segments}, ensure_ascii=False)

    def complete(self, request: Request, stop: StopText, *, cut_short: bool) -> Completion:
        """The completion of the episode; its text and end are those of the last turn.

        ``cut_short``: whether the model's call was its last for want of turns or tokens.
        """
        ids = np.array(self.ids, np.int32)
        logprobs = np.array(self._logprobs, np.float32)
        entropies = np.array(self._entropies, np.float32)
        turn = slice(len(ids) - self.turn_length, None)
        last = stop.complete(request, ids[turn], logprobs[turn], entropies[turn])
        return replace(
            last,
            token_ids=ids,
            logprobs=logprobs,
            entropies=entropies,
            finish=Finish.LENGTH if cut_short else last.finish,
            trace=self.trace(),
        )


Process = Generator[Request | Future[list[Result]], Any, Completion]


class Player:
    """Plays episodes of one model under one sampling setting."""

    def __init__(self, tokens: Tokens, sampling: Sampling, max_length: int, tools: Tools) -> None:
        """Get ready; ``max_length``: tokens that the model holds of prompt and episode together."""
        assert sampling.turns is not None
        self._tokens = tokens
        # Splitting special tokens is a switch of the whole tokenizer, and results arrive in many
        # threads: so a copy for them, which is never switched back.
        self._splitting_tokenizer = copy.deepcopy(tokens.tokenizer)
        self._sampling = sampling
        self._turns: Turns = sampling.turns
        self._max_length = max_length
        self._tools = tools
        self._stop = StopText(tokens, sampling)
        names = [reference.rpartition(":")[2] for reference in self._turns.tools]
        self._format: Format = Chat(tokens) if self._turns.format == "chat" else Blocks(names)

    @property
    def turn_sampling(self) -> Sampling:
        """The setting with which an engine draws one turn."""
        return replace(self._sampling, turns=None, stop=self._sampling.stop + self._format.stop)

    def play(self, request: Request) -> Process:
        """Draw one episode: a turn, its calls, the next turn, up to the last.

        A block that ends in a stop string and is no call does not end the turn, which then goes on.
        Each request has a seed of its own, a hash of the sample's and its number. The last turn may
        call a tool, too; nobody answers it, and the episode counts as cut short.
        """
        stream = Stream()
        tools = self._tools.open()
        n_requests = n_turns = 0
        try:
            while True:
                n_requests += 1
                completion = yield self._next_request(request, stream, n_requests)
                text = self._read_turn(stream, completion)
                stream.add_response(completion, text)
                if self._goes_on(completion, text):
                    if self._room(request, stream) < 1:
                        return stream.complete(request, self._stop, cut_short=True)
                    continue
                n_turns += 1
                calls = [] if completion.finish is Finish.LENGTH else self._format.read_calls(text)
                if not calls:
                    return stream.complete(request, self._stop, cut_short=False)
                if n_turns == self._turns.limit:
                    return stream.complete(request, self._stop, cut_short=True)
                results = yield tools.start(calls)
                encoded = self._encode(calls, results, text, n_turns)
                n_tokens = sum(len(ids) for _, ids, _ in encoded)
                if self._room(request, stream, n_tokens) < 1:
                    return stream.complete(request, self._stop, cut_short=True)
                for result in encoded:
                    stream.add_result(*result)
        finally:
            tools.close()

    def _room(self, request: Request, stream: Stream, n_result_tokens: int = 0) -> int:
        """Tokens that the model may still write, behind results of so many tokens."""
        left = self._sampling.max_tokens - stream.count_tokens(by_model=True)
        length = len(request.prompt_ids) + len(stream.ids) + n_result_tokens
        return min(left, self._max_length - length)

    def _next_request(self, request: Request, stream: Stream, number: int) -> Request:
        """Ask for more behind the stream so far."""
        return replace(
            request,
            prompt_ids=(*request.prompt_ids, *stream.ids),
            seed=follow_up_seed(request.seed, number),
            max_tokens=max(1, self._room(request, stream)),
        )

    def _read_turn(self, stream: Stream, completion: Completion) -> str:
        """Text of a turn up to now, special tokens included but for the one that ends it."""
        start = len(stream.ids) - stream.turn_length
        ids = [*stream.ids[start:], *completion.token_ids.tolist()]
        if ids[-1] in self._tokens.eos:
            ids.pop()
        text: str = self._tokens.tokenizer.decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def _goes_on(self, completion: Completion, text: str) -> bool:
        """Whether a turn that stopped at one of the format's own strings is not over."""
        is_stopped = completion.finish is Finish.STOP_STRING
        is_asked = any(stop in text for stop in self._sampling.stop)
        return is_stopped and not is_asked and not self._format.read_calls(text)

    def _encode(
        self, calls: Sequence[Call], results: Sequence[Result], text: str, n_turns: int
    ) -> list[tuple[str, list[int], str]]:
        """Writer, tokens and text of each result, with the marks around it."""
        texts = [cut_middle(result.text.rstrip("\n"), self._turns.characters) for result in results]
        if self._turns.told:
            texts[-1] += f"\n[turns left: {self._turns.limit - n_turns}]"
        encoded = []
        framed = self._format.frame(text, texts)
        for call, result, (before, inner, behind) in zip(calls, results, framed, strict=True):
            ids = [*self._encode_marks(before), *self._encode_plain(inner)]
            ids += self._encode_marks(behind)
            encoded.append((FAILED if result.failed else call.tool, ids, inner))
        return encoded

    def _encode_marks(self, text: str) -> list[int]:
        ids: list[int] = self._tokens.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _encode_plain(self, text: str) -> list[int]:
        """Tokens of a text in which special tokens are nothing but letters."""
        ids: list[int] = self._splitting_tokenizer(
            text, add_special_tokens=False, split_special_tokens=True
        )["input_ids"]
        return ids


def cut_middle(text: str, characters: int) -> str:
    """Cut the middle out of a text that is too long, and say how much is missing.

    A lone surrogate, which no text file may hold, becomes a question mark.
    """
    text = text.encode("utf-8", "replace").decode()
    if len(text) <= characters:
        return text
    half = characters // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"
