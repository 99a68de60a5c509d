"""Responses of other tools on their way into the store: checked whole before the first is kept."""

from __future__ import annotations

import itertools
import json
import re
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Final

from rlbhpc.errors import UserError
from rlbhpc.exchange.formats.form import Imported, ImportedCounts
from rlbhpc.store import sample_rows
from rlbhpc.store.questions import Question
from rlbhpc.store.sample import Sample
from rlbhpc.study.fields import NAME_ALLOWED, NAME_PATTERN
from rlbhpc.study.keys import SampleKey, fingerprint
from rlbhpc.verify.verdict import Status

#: A problem at a step, and of each of its sample numbers the digest of the sample.
Digests = dict[tuple[int, str], dict[int, int]]
#: Samples and right ones by step and problem.
Counts = dict[tuple[int, str], tuple[int, int]]

# The cube has room for every number up to the largest: a slip of the pen must not fill the disk.
_MAX_SAMPLE: Final = 1 << 22
# Columns of counts and the axis of steps hold 32 bits.
_MAX_COUNT: Final = 1 << 31


@dataclass(frozen=True)
class Target:
    """Where imported results go: the arm, the problem set, and the model that was measured."""

    arm: str
    problem_set: str
    model: str

    def __post_init__(self) -> None:
        """Refuse names that cannot be folders."""
        for name in (self.arm, self.problem_set, self.model):
            if not re.fullmatch(NAME_PATTERN, name):
                raise UserError(f"{name!r} is not a name: allowed are {NAME_ALLOWED}")

    def problem(self, name: str) -> str:
        """The id of a problem, which begins with its set.

        Raises :class:`UserError` for a name with half a surrogate pair, which UTF-8 cannot hold.
        """
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise UserError(f"problem {name!r} has an id that can't be stored ({error})") from error
        return f"{self.problem_set}/{name.removeprefix(self.problem_set + '/')}"

    @cached_property
    def request(self) -> int:
        """The fingerprint that imported samples have instead of a prompt's and a model's."""
        return fingerprint({"imported": self.arm, "model": self.model})


def take_counts(counts: Counts, target: Target, path: Path, row: ImportedCounts) -> None:
    """Add the counts of a row; other counts of the same problem are refused."""
    cell = (row.step, target.problem(row.problem))
    if max(row.n, abs(row.step)) >= _MAX_COUNT:
        raise UserError(
            f"{path}: {row.problem!r} has n={row.n} at step {row.step}; allowed are less "
            f"than {_MAX_COUNT:,}"
        )
    first = counts.setdefault(cell, (row.n, row.c))
    if first != (row.n, row.c):
        raise UserError(
            f"{path}: {row.problem} at step {row.step} has counts {(row.n, row.c)} "
            f"here and {first} before; give each file an arm (--arm)"
        )


class ArrivingSamples:
    """New samples in a scratch file, and in memory one digest of each.

    ``stored`` and ``failed``: samples of the arm, and those among them on which a verifier failed.
    ``rejudged``: who judged the same files before and who does now, where that is another.
    ``new`` and ``known`` count them, ``errors`` the new ones on which a verifier failed and
    ``failed`` those of which no response came;
    ``lengths`` has the samples that each problem needs room for, ``questions`` what the files say
    of each.
    """

    def __init__(
        self,
        target: Target,
        stored: Digests,
        failed: set[SampleKey],
        scratch: IO[str],
        rejudged: str = "",
    ) -> None:
        self.target = target
        self.new = 0
        self.failed = 0
        self.known = 0
        self.errors = 0
        self.lengths: Counter[tuple[int, str]] = Counter()
        self.questions: dict[str, Question] = {}
        self._digests = stored
        self._failed = failed
        self._scratch = scratch
        self._rejudged = rejudged
        self._numbers: Counter[tuple[int, str]] = Counter()
        # Of each problem, a hash of its question, or of its reference answer where files have none.
        self._hashes: dict[tuple[str, bool], int] = {}
        self._features: set[str] = set()

    def take(self, path: Path, responses: Sequence[Imported]) -> None:
        """Number responses and keep those that are new.

        Raises :class:`UserError` if another response is known under the same number, a number
        can't be stored, or an id stands for two questions.
        """
        for response in responses:
            cell = (response.step, self.target.problem(response.problem))
            self._take_question(path, cell[1], response)
            number = self._numbers[cell] if response.sample is None else response.sample
            self._numbers[cell] += 1
            if not 0 <= number < _MAX_SAMPLE:
                raise UserError(
                    f"{path}: {cell[1]} has a sample number {number}; allowed are 0 to "
                    f"{_MAX_SAMPLE - 1:,}"
                )
            self._keep_response(path, cell, number, response)

    def _take_question(self, path: Path, problem: str, response: Imported) -> None:
        """Keep what a file says of a problem; refuse an id that stands for two questions."""
        if response.question or response.gold is not None:
            known = self.questions.get(problem, Question("", None))
            gold = response.gold if known.gold is None else known.gold
            self.questions[problem] = Question(known.question or response.question, gold)
        text = response.question or response.gold or ""
        with suppress(ValueError):
            text = str(float(text))
        question = hash(" ".join(text.split()))
        place = problem, bool(response.question)
        if text and self._hashes.setdefault(place, question) != question:
            raise UserError(
                f"{path}: {problem} is another question than before; if these files are of "
                "several tasks, give each a problem set of its own (--set)"
            )

    def _keep_response(
        self, path: Path, cell: tuple[int, str], number: int, response: Imported
    ) -> None:
        """Write a response that is new into the scratch file; refuse one that contradicts it."""
        step, problem = cell
        row: list[Any] = [
            step, problem, number, response.seed, int(response.verdict or 0), response.finish,
            response.n_tokens, response.answer, response.text or "", response.strict,
            response.lenient,
        ]  # fmt: skip
        try:
            digest = sample_rows.digest(sample_rows.encode(self._sample(*row)))
        except (struct.error, UnicodeEncodeError) as error:
            raise UserError(
                f"{path}: {problem!r} has an id, step, seed or token count that can't be stored "
                f"({error})"
            ) from error
        self.lengths[cell] = max(self.lengths[cell], number + 1)
        digests = self._digests.setdefault(cell, {})
        key = SampleKey(self.target.arm, step, problem, number)
        failed = response.verdict is Status.ERROR
        # What a verifier failed on may be tried again, and counts for less than any verdict.
        if number not in digests or (key in self._failed and not failed):
            self._failed.discard(key)
            digests[number] = digest
            self._scratch.write(json.dumps(row) + "\n")
            self.new += 1
            self.errors += failed
            self.failed += response.verdict is Status.FAILED
            numbers = (response.seed, response.n_tokens, response.finish)
            features = (response.text, *(value != -1 for value in numbers))
            self._features.update(itertools.compress(_CHECKS, features))
        elif digests[number] == digest or failed:
            self.known += 1
        else:
            place = f"{problem} sample {number} at step {step}: arm {self.target.arm}"
            if self._rejudged:
                raise UserError(
                    f"{place} keeps the verdict of {self._rejudged} judges otherwise; import into "
                    "an arm of its own (--arm)"
                )
            raise UserError(
                f"{place} has another response there; import into an arm of its own (--arm), or "
                "all files of the arm at once"
            )

    def samples(self) -> Iterator[Sample]:
        """The new samples, in the order in which they came."""
        self._scratch.seek(0)
        for line in self._scratch:
            yield self._sample(*json.loads(line))

    def absent(self) -> tuple[str, ...]:
        """What no new sample tells."""
        return tuple(name for name in _CHECKS if name not in self._features)

    def _sample(
        self, step: int, problem: str, number: int, seed: int, verdict: int, finish: int,
        n_tokens: int, answer: str, text: str, strict: int, lenient: int,
    ) -> Sample:  # fmt: skip
        """A row of the scratch file as a sample of the store."""
        return Sample(
            SampleKey(self.target.arm, step, problem, number),
            self.target.request,
            seed,
            Status(verdict),
            finish,
            n_tokens,
            float("nan"),
            float("nan"),
            answer=answer,
            text=text,
            strict=strict,
            lenient=lenient,
        )


#: What a file may tell, and the check that stands on it.
_CHECKS: Final = {
    "texts": "reading responses, judging again",
    "seeds": "two samples of one seed",
    "token counts": "lengths",
    "endings": "truncation",
}


def impossible_checks(absent: Sequence[str]) -> str:
    """What can't be checked of samples that somebody else drew, in one line."""
    lacking = [f"{name} ({_CHECKS[name]})" for name in absent]
    lacking += ["prompts and weights (what a change makes stale)", "log-probabilities (entropy)"]
    return "Not in these files: " + "; ".join(lacking) + "."
