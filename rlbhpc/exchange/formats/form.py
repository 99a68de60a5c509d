"""What an import format is, and what it gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rlbhpc.engines.completion import Finish
from rlbhpc.errors import UserError
from rlbhpc.exchange.formats.rows import first_names, json_lines
from rlbhpc.verify.verdict import Status

#: Why a response ended, in the words of vLLM and of OpenAI's interface.
FINISH: Final = {"stop": Finish.EOS, "length": Finish.LENGTH}


@dataclass(frozen=True)
class Imported:
    """One response that somebody else drew and judged.

    ``sample`` is None where the file does not number its responses; they are then numbered in
    the order in which they stand. ``finish`` and ``n_tokens`` are −1 where the file does not say.
    ``verdict`` is None where the file has no score for this response, and a complaint where it has
    one that is no verdict. ``text`` is None where a response has none, and ``gold`` where the file
    does not hold one reference answer: then the response can't be judged again. ``question`` is
    empty where the file does not hold it. ``strict, lenient``: the two verdicts where one of ours
    judged it.
    """

    problem: str
    verdict: Status | str | None
    sample: int | None = None
    step: int = 0
    text: str | None = ""
    answer: str = ""
    finish: int = -1
    n_tokens: int = -1
    seed: int = -1
    gold: str | None = None
    question: str = ""
    strict: Status = Status.MISSING
    lenient: Status = Status.MISSING


@dataclass(frozen=True)
class LogState:
    """How the run that wrote a file ended, in its tool's word, and the samples that it was to draw.

    ``status`` is empty where the run ended well.
    """

    status: str
    planned: int


@dataclass(frozen=True)
class ImportedCounts:
    """Right ones among the responses to a problem, where the responses are not known."""

    problem: str
    n: int
    c: int
    step: int = 0


@dataclass(frozen=True)
class ImportedQuestion:
    """What a file says of a problem whose responses stand in another: question, reference answer.

    ``gold`` is the reference answer; None where the file does not have it.
    """

    problem: str
    question: str = ""
    gold: str | None = None


#: What a row of a file is.
Row = Imported | ImportedCounts | ImportedQuestion


class Form:
    """A format that can be imported; by default JSON Lines with certain fields.

    ``name`` is what it is called in messages, ``fields`` are those of the first record by which a
    file is known. ``has_responses`` is False where files say of problems what they ask.
    """

    name: str
    fields: frozenset[str]
    has_responses = True

    def fits(self, path: Path) -> bool:
        """Whether a file is of this format, by its ending and first bytes."""
        return self.fields <= set(first_names(path))

    def records(self, path: Path) -> Iterator[tuple[str, Any]]:
        """What a file holds, one by one, each with its place for messages."""
        return json_lines(path)

    def state(self, path: Path) -> LogState | None:
        """How the run that wrote a file ended; None where the format does not tell."""
        return None

    def responses(self, row: Any, metric: str | None, place: str) -> Iterable[Imported]:
        """The responses of a record; an error of a missing field gets the record's place."""
        raise NotImplementedError

    def read(self, path: Path, metric: str | None) -> Iterator[Row]:
        """Read a file; ``metric`` names the score that decides where there are several."""
        for place, row in self.records(path):
            with row_of(self.name, place):
                responses = list(self.responses(row, metric, place))
            yield from responses


@contextmanager
def row_of(form: str, place: str) -> Iterator[None]:
    """Turn an error inside the block into one line that says which row does not fit the format.

    ``form`` is the name of the format, ``place`` the file and the row. A missing field is an error
    too.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        cause = f"no field {error}" if isinstance(error, KeyError) else str(error)
        raise UserError(f"{place}: not a row of {form} ({cause})") from error


def same_length(place: str, **columns: list[Any]) -> int:
    """Return the common length of several lists of one row.

    Raises :class:`UserError` if one is no list, or has another length than the first.
    """
    lengths = {}
    for name, values in columns.items():
        if not isinstance(values, list):
            raise UserError(f"{place}: {name} is a {type(values).__name__}; a list is needed")
        lengths[name] = len(values)
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise UserError(f"{place}: lists of different lengths: {listed}")
    return next(iter(lengths.values()))


def single_reference(value: Any) -> str | None:
    """The reference answer in a field: a text or a number, possibly alone in a list.

    None where there are several: files do not say whether one of them is enough.
    """
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    return str(value) if isinstance(value, str | int | float) else None


def last_user_text(messages: list[dict[str, Any]]) -> str:
    """What the user asked: the last of the user's messages; empty if there is none."""
    contents = [message["content"] for message in messages if message["role"] == "user"]
    return message_text(contents[-1]) if contents else ""


def message_text(content: str | list[dict[str, Any]]) -> str:
    """Text of a message, whose content may be cut into parts."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content if part.get("type") == "text")


def choose_score(scores: dict[str, Any], metric: str | None, place: str) -> Any:
    """Return the score that decides whether a response is right.

    ``metric`` is the name that the user gave. Without it there must be a single score. Raises
    :class:`UserError` if there are several and none was named, or none by that name.
    """
    if metric is not None and metric in scores:
        return scores[metric]
    if not scores:
        raise UserError(
            f"{place}: carries no verdict yet; evaluate it with the tool that wrote it, or judge "
            "its text with --judge-again math"
        )
    names = ", ".join(scores)
    if metric is not None:
        raise UserError(f"{place}: no score {metric!r}; its scores are {names}")
    if len(scores) != 1:
        raise UserError(f"{place}: say with --metric which score decides; its scores are {names}")
    return next(iter(scores.values()))


# Letters are those of inspect: correct, incorrect, partially correct (which is not right), no
# answer.
_LETTERS: Final = {
    "C": Status.RIGHT, "I": Status.WRONG, "P": Status.WRONG, "N": Status.NO_ANSWER,
}  # fmt: skip
_WORDS: Final = {
    **dict.fromkeys(("true", "yes", "1", "1.0"), Status.RIGHT),
    **dict.fromkeys(("false", "no", "0", "0.0"), Status.WRONG),
}


def as_verdict(value: Any, place: str) -> Status | str:
    """Turn a score into a verdict, or into the complaint that it is none.

    The letters are those of the tool inspect, the words what people write for true and false.
    """
    if isinstance(value, str) and value in _LETTERS:
        return _LETTERS[value]
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    if isinstance(value, bool | int | float) and value in (0, 1):
        return Status.RIGHT if value else Status.WRONG
    return (
        f"{place}: the score {value!r} is neither right nor wrong; allowed are 0, 1, true, false "
        "and the letters C, I, P, N. --metric names another score, --judge-again math takes none"
    )
