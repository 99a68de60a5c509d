"""What an import format is, and what it gives."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, Protocol

from rlbhpc.engines.completion import Finish
from rlbhpc.errors import UserError
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
    empty where the file does not hold it.
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


@dataclass(frozen=True)
class ImportedCounts:
    """Right ones among the responses to a problem, where the responses are not known."""

    problem: str
    n: int
    c: int
    step: int = 0


class Form(Protocol):
    """A format that can be imported."""

    name: str
    """What the format is called in messages."""

    def fits(self, path: Path) -> bool:
        """Whether a file is of this format, by its ending and first bytes."""

    def read(self, path: Path, metric: str | None) -> Iterator[Imported | ImportedCounts]:
        """Read a file; ``metric`` names the score that decides where there are several."""


@contextmanager
def row_of(form: str, place: str) -> Iterator[None]:
    """Say where a row is that does not have the form's fields, or holds other types in them."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        cause = f"no field {error}" if isinstance(error, KeyError) else str(error)
        raise UserError(f"{place}: not a row of {form} ({cause})") from error


def same_length(place: str, **columns: list[Any]) -> int:
    """The common length of a row's lists.

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


def reference_answer(text: str) -> str:
    """The answer of a worked solution in GSM8K's form, ``… #### 42``; any other text as it is."""
    return re.split(r"####", text)[-1].strip()


def choose_score(scores: dict[str, Any], metric: str | None, place: str) -> Any:
    """Pick the score that decides.

    Raises :class:`UserError` if there are several and none was named, or none by that name.
    """
    if metric is not None and metric in scores:
        return scores[metric]
    names = ", ".join(scores) or "none"
    if metric is not None:
        raise UserError(f"{place}: no score {metric!r}; its scores are {names}")
    if len(scores) != 1:
        raise UserError(f"{place}: say with --metric which score decides; its scores are {names}")
    return next(iter(scores.values()))


_WORDS: Final = {
    **dict.fromkeys(("true", "yes", "1", "1.0"), Status.RIGHT),
    **dict.fromkeys(("false", "no", "0", "0.0"), Status.WRONG),
}


def as_verdict(value: Any, place: str) -> Status | str:
    """Turn a score into a verdict, or into the complaint that it is none.

    Letters are those of inspect: C correct, I incorrect, P partially correct (which is not
    right), N no answer.
    """
    letters = {"C": Status.RIGHT, "I": Status.WRONG, "P": Status.WRONG, "N": Status.NO_ANSWER}
    if isinstance(value, str) and value in letters:
        return letters[value]
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    if isinstance(value, bool | int | float) and value in (0, 1):
        return Status.RIGHT if value else Status.WRONG
    return (
        f"{place}: the score {value!r} is neither right nor wrong; allowed are 0, 1, true, false "
        "and the letters C, I, P, N. --metric names another score, --judge-again math takes none"
    )


def ending(path: Path) -> str:
    """What a file's name ends with, in lower case; ``.jsonl`` of ``samples.jsonl.gz``."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


@contextmanager
def opened(path: Path) -> Iterator[gzip.GzipFile | BufferedReader]:
    """The bytes of a file, unpacked if its name ends in .gz."""
    packed = path.suffix.lower() == ".gz"
    with gzip.open(path) if packed else path.open("rb") as file:
        try:
            yield file
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(f"{path}: not a whole gzip file ({error})") from error


def json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Objects of a JSON Lines file, each with its place for messages."""
    with opened(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            place = f"{path}:{number}"
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{place}: not JSON ({error}); one object per line") from error
            if not isinstance(value, dict):
                raise UserError(f"{place}: a {type(value).__name__}; one object per line")
            yield place, value
