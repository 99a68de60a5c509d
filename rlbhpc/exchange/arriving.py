"""Responses of other tools on their way into the store: checked whole before the first is kept."""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from rlbhpc.errors import UserError
from rlbhpc.exchange.formats.form import Imported, ImportedCounts, ImportedQuestion
from rlbhpc.store import sample_rows
from rlbhpc.store.questions import Question
from rlbhpc.store.sample_rows import Sample
from rlbhpc.study.fields import NAME_ALLOWED, NAME_PATTERN
from rlbhpc.study.keys import SampleKey, fingerprint
from rlbhpc.verify.verdict import Status


class ProblemAtStep(NamedTuple):
    """What responses are numbered within: a step of the model, and the id of a problem."""

    step: int
    problem: str


#: The digest of each sample, by its number within a problem at a step.
Digests = dict[ProblemAtStep, dict[int, int]]
#: Samples and right ones.
Counts = dict[ProblemAtStep, tuple[int, int]]

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
    """Add the counts of one row to ``counts``; refuse other counts of the same problem.

    ``counts`` maps a problem at a training step to how many samples it has (``n``) and how many of
    them are right (``c``). ``target`` says into which arm and problem set the results go. A count
    of 2³¹ or more can't be stored.
    """
    if max(row.n, abs(row.step)) >= _MAX_COUNT:
        raise UserError(
            f"{path}: {row.problem!r} has n={row.n} at step {row.step}; allowed are less "
            f"than {_MAX_COUNT:,}"
        )
    key = ProblemAtStep(row.step, target.problem(row.problem))
    first_counts = counts.setdefault(key, (row.n, row.c))
    if first_counts != (row.n, row.c):
        raise UserError(
            f"{path}: {row.problem} at step {row.step} has counts {(row.n, row.c)} "
            f"here and {first_counts} before; give each file an arm (--arm)"
        )


#: What a response may tell, and the check that needs it.
_CHECKS: Final = {
    "texts": "reading responses, judging again",
    "seeds": "two samples of one seed",
    "token counts": "lengths",
    "endings": "truncation",
}


def _told_features(response: Imported) -> Iterator[str]:
    """Yield what a response tells beside its verdict, as keys of the table of checks that need it.

    −1 stands for a number that the file does not have.
    """
    if response.text:
        yield "texts"
    if response.seed != -1:
        yield "seeds"
    if response.n_tokens != -1:
        yield "token counts"
    if response.finish != -1:
        yield "endings"


class KnownQuestions:
    """What files without responses say of problems.

    Requests that ask the same are of one problem, named as the first of them.
    """

    def __init__(self) -> None:
        self._problem_of_question: dict[str, str] = {}
        self._problem_of_request: dict[str, str] = {}
        self._questions: dict[str, str] = {}
        self._golds: dict[str, str] = {}

    def add(self, row: ImportedQuestion) -> None:
        """Learn what one row says."""
        if row.question:
            problem = self._problem_of_question.setdefault(row.question, row.problem)
            self._problem_of_request[row.problem] = problem
            self._questions[problem] = row.question
        if row.gold is not None:
            self._golds[row.problem] = row.gold

    def complete(self, response: Imported) -> Imported:
        """Give a response the problem, question and reference answer that other files have."""
        request = response.problem
        problem = self._problem_of_request.get(request, request)
        gold = response.gold
        if gold is None:
            gold = self._golds.get(problem, self._golds.get(request))
        question = response.question or self._questions.get(problem, "")
        return replace(response, problem=problem, question=question, gold=gold)


class ArrivingSamples:
    """New samples in a scratch file, and in memory one digest of each.

    Parameters
    ----------
    stored
        Digests of the samples that the arm has.
    unverified
        Those among them on which a verifier failed, or of which no response came.
    scratch
        An empty file, for the new samples.

    Attributes
    ----------
    new, known, errors, failed
        How many samples are new, how many were stored already, and among the new ones those on
        which a verifier failed, and those of which no response came.
    lengths
        The samples that each problem needs room for.
    questions
        What the files say of each problem.
    known_questions
        What is known of problems whose responses stand in other files.
    """

    def __init__(
        self,
        target: Target,
        stored: Digests,
        unverified: set[SampleKey],
        scratch: IO[str],
    ) -> None:
        """Begin with what the arm holds already, and with nothing new.

        ``stored`` has a digest of each stored sample, ``unverified`` those without a verdict.
        ``scratch`` is an empty file for the new samples.
        """
        self.target = target
        self.new = 0
        self.failed = 0
        self.known = 0
        self.errors = 0
        self.lengths: Counter[ProblemAtStep] = Counter()
        self.questions: dict[str, Question] = {}
        self.known_questions = KnownQuestions()
        self._digests = stored
        self._unverified = unverified
        self._scratch = scratch
        self._next_numbers: Counter[ProblemAtStep] = Counter()
        # A hash of each problem's question, and of its reference answer where files have none.
        self._question_hashes: dict[tuple[str, bool], int] = {}
        self._features: set[str] = set()

    def take(self, path: Path, responses: Sequence[Imported]) -> None:
        """Number responses within their problem and training step, and keep those that are new.

        A file's own number wins; else they are numbered in the order in which they come. Raises
        :class:`UserError` if another response is known under the same number, a number can't be
        stored, or an id stands for two questions. ``target`` is the arm and the problem set that
        the responses go to.
        """
        for response in responses:
            key = ProblemAtStep(response.step, self.target.problem(response.problem))
            self._take_question(path, key.problem, response)
            number = response.sample
            if number is None:
                number = self._next_numbers[key]
            self._next_numbers[key] += 1
            if not 0 <= number < _MAX_SAMPLE:
                raise UserError(
                    f"{path}: {key.problem} has a sample number {number}; allowed are 0 to "
                    f"{_MAX_SAMPLE - 1:,}"
                )
            self._take_response(path, key, number, response)

    def _take_question(self, path: Path, problem: str, response: Imported) -> None:
        """Keep what a file says of a problem, and refuse an id that stands for two questions.

        ``gold`` is the reference answer. The hash is over the question, or over the reference
        answer if the file has no question; ``18`` and ``18.0`` count as the same.
        """
        if response.question or response.gold is not None:
            known = self.questions.get(problem, Question("", None))
            gold = response.gold if known.gold is None else known.gold
            self.questions[problem] = Question(known.question or response.question, gold)
        text = response.question or response.gold or ""
        if not text:
            return
        with suppress(ValueError):
            text = str(float(text))
        question_hash = hash(" ".join(text.split()))
        key = (problem, bool(response.question))
        if self._question_hashes.setdefault(key, question_hash) != question_hash:
            raise UserError(
                f"{path}: {problem} is another question than before; if these files are of "
                "several tasks, give each a problem set of its own (--set)"
            )

    def _take_response(
        self, path: Path, key: ProblemAtStep, number: int, response: Imported
    ) -> None:
        """Write a new response into the scratch file; refuse one that contradicts a known one.

        ``digests`` has a digest of every known sample of this problem and step, by number: the same
        number must have the same digest. An exception is a sample on which a verifier failed, or
        of which no response came: it gives way to any verdict, and never replaces one.
        """
        row = self._scratch_row(key, number, response)
        try:
            digest = sample_rows.digest(sample_rows.encode(self._make_sample(row)))
        except (struct.error, UnicodeEncodeError) as error:
            raise UserError(
                f"{path}: {key.problem!r} has an id, step, seed or token count that can't be "
                f"stored ({error})"
            ) from error
        self.lengths[key] = max(self.lengths[key], number + 1)
        digests = self._digests.setdefault(key, {})
        sample_key = SampleKey(self.target.arm, key.step, key.problem, number)
        is_unverified = response.verdict in (Status.ERROR, Status.FAILED)
        # What failed may be tried again, and counts for less than any verdict.
        is_improved = sample_key in self._unverified and not is_unverified
        if number not in digests or is_improved:
            self._unverified.discard(sample_key)
            digests[number] = digest
            self._scratch.write(json.dumps(row) + "\n")
            self.new += 1
            self.errors += response.verdict is Status.ERROR
            self.failed += response.verdict is Status.FAILED
            self._features.update(_told_features(response))
        elif digests[number] == digest or is_unverified:
            self.known += 1
        else:
            raise UserError(
                f"{key.problem} sample {number} at step {key.step}: arm {self.target.arm} has "
                "another response or verdict there; import into an arm of its own (--arm), or all "
                "files of the arm at once"
            )

    def samples(self) -> Iterator[Sample]:
        """The new samples, in the order in which they came."""
        self._scratch.seek(0)
        for line in self._scratch:
            yield self._make_sample(json.loads(line))

    def absent(self) -> tuple[str, ...]:
        """What no new sample tells."""
        return tuple(name for name in _CHECKS if name not in self._features)

    def _scratch_row(self, key: ProblemAtStep, number: int, response: Imported) -> dict[str, Any]:
        """Return a response as JSON-ready values, by the fields of a stored sample.

        A verdict is kept as the number of its `Status`; ``strict`` and ``lenient`` are the verdicts
        of our own verifier, where it judged.
        """
        return {
            "key": (self.target.arm, key.step, key.problem, number),
            "seed": response.seed,
            "verdict": int(response.verdict or 0),
            "finish": response.finish,
            "n_tokens": response.n_tokens,
            "answer": response.answer,
            "text": response.text or "",
            "strict": response.strict,
            "lenient": response.lenient,
        }

    def _make_sample(self, row: dict[str, Any]) -> Sample:
        """Make a sample of the store from a row of the scratch file.

        Its fingerprint, which otherwise says what was asked for, is one for all samples of the
        import. Log-probabilities and entropies are not known. A sample's key is its arm, training
        step, problem and number.
        """
        return Sample(
            **row
            | {
                "key": SampleKey(*row["key"]),
                "fingerprint": self.target.request,
                "logprob_sum": float("nan"),
                "entropy_sum": float("nan"),
            }
        )


def impossible_checks(absent: Sequence[str]) -> str:
    """What can't be checked of samples that somebody else drew, in one line."""
    lacking = [f"{name} ({_CHECKS[name]})" for name in absent]
    lacking += ["prompts and weights (what a change makes stale)", "log-probabilities (entropy)"]
    return "Not in these files: " + "; ".join(lacking) + "."
