"""Audit a run: what second readers say of its answers, and which responses people read first.

The sample is stratified by verdict, by how rarely a problem is solved and by whether a second
reader disagrees, and drawn by a hash of seed and sample, so that the same call draws the same
responses. They are shown without arm, step and verdict, in an order that mixes the arms.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from rlbhpc import files
from rlbhpc.errors import UserError
from rlbhpc.study.keys import SampleKey
from rlbhpc.study.layout import Layout
from rlbhpc.sweep.again import Record, StoredRun
from rlbhpc.verify.answer.extract import extract
from rlbhpc.verify.error_audit import (
    Judgement,
    Side,
    Stratum,
    check_word,
    load_judgements,
    read_lines,
    store_judgement,
    write_sample,
)
from rlbhpc.verify.kinds.judge import Comparison, Judge, ask
from rlbhpc.verify.running.pool import shared_pool
from rlbhpc.verify.verdict import Status

#: Math-Verify alone, in a killable worker.
MATH_VERIFY: Final = "rlbhpc.verify.running.second_reader:decide"
#: A problem with at most so many right samples is rarely solved: these decide curves at large k.
FEW_RIGHT: Final = 3
# In the order in which they are read, so many of each before the next round.
_RARE, _DISPUTED_RIGHT, _DISPUTED_WRONG = "rare right", "disputed right", "disputed wrong"
_STRATA: Final = (_RARE, _DISPUTED_RIGHT, _DISPUTED_WRONG, "right", "wrong")
_ACCEPTED: Final = (_RARE, _DISPUTED_RIGHT, "right")
_PER_ROUND: Final = 10
_JUDGED: Final = (Status.RIGHT, Status.WRONG, Status.NO_ANSWER, Status.TIMEOUT)
# Equal text and equal fractions need no second reader.
_CERTAIN: Final = frozenset(("text", "rational"))
_WORD: Final = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")


@dataclass(frozen=True)
class SecondReading:
    """A distinct answer to a problem that rules compared or could not read, and other words on it.

    ``right``: whether rules accept it, by ``rule``. ``samples``: how often it was given.
    ``math_verify``: ``right``, ``wrong``, or ``unread``. ``judge``: ``right`` or ``wrong``; empty
    if no judge was asked or it gave no verdict, and ``judged_by`` names it.
    """

    problem: str
    answer: str
    text: str
    gold: str
    question: str
    right: bool
    rule: str
    samples: int = 0
    math_verify: str = ""
    judge: str = ""
    judged_by: str = ""

    @property
    def is_disputed(self) -> bool:
        """Whether another reader says the opposite of the rules."""
        opposite = "wrong" if self.right else "right"
        return opposite in (self.math_verify, self.judge)

    @property
    def is_for_a_judge(self) -> bool:
        """Whether rules refused it without reading it, or for its words alone."""
        if self.right:
            return False
        has_words = _WORD.search(self.text) is not None or _WORD.search(self.gold) is not None
        return self.rule == "unread" or (self.rule == "different" and has_words)


class Shown(NamedTuple):
    """What a reader sees of a response."""

    question: str
    response: str
    gold: str


@dataclass(frozen=True)
class Audit:
    """A drawn sample: its strata, and what is shown of every response in it."""

    seed: int
    strata: tuple[Stratum, ...]
    shown: Mapping[SampleKey, Shown]

    def queue(self, judged: Iterable[SampleKey]) -> list[SampleKey]:
        """Responses that nobody has judged, in the order in which they are to be read.

        A *stratum* is a group of responses that were drawn together, such as right answers to
        rarely solved problems. A round has ``_PER_ROUND`` responses of each stratum, so that
        whoever stops early has read some of all. Within a stratum the order is that of the ids,
        hashes that mix the arms.

        ``judged``: keys of the responses that were judged already.
        """
        already_judged = set(judged)
        order: dict[SampleKey, tuple[int, int, str]] = {}
        for stratum in self.strata:
            stratum_index = _STRATA.index(stratum.name)
            for rank, key in enumerate(stratum.drawn):
                if key not in already_judged:
                    reading_round = rank // _PER_ROUND
                    order[key] = (reading_round, stratum_index, response_id(self.seed, key))
        return sorted(order, key=lambda key: order[key])


def response_id(seed: int, key: SampleKey) -> str:
    """Name a response without its arm; the order of names is the order of the draw."""
    text = json.dumps([seed, *key])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


# --- second readers ------------------------------------------------------------------------------

#: Second readings by problem and canonical answer.
Answers = dict[tuple[str, str], SecondReading]


def read_again(stored: StoredRun, workers: int = 1, judge: Judge | None = None) -> Answers:
    """Have Math-Verify read every doubtful answer of a run again, and a judge some of them.

    Gives second readings by problem and canonical answer: what the rules said, and what the other
    readers say. A judge, where one is given, reads what rules refused unread or for its words. What
    earlier calls found is kept in :attr:`Layout.second_readings` and not asked for again.
    ``workers``: processes of Math-Verify.
    """
    answers = _doubtful_answers(stored)
    for _, record in read_lines(stored.layout.second_readings):
        key = (str(record.get("problem")), str(record.get("answer")))
        if key in answers:
            answers[key] = replace(
                answers[key],
                math_verify=str(record.get("math_verify", "")),
                judge=str(record.get("judge", "")),
                judged_by=str(record.get("judged_by", "")),
            )
    _ask_math_verify(answers, workers, stored.verification.timeout)
    if judge is not None:
        _ask_judge(answers, judge)
    _store_readings(stored.layout, answers.values())
    return answers


def _doubtful_answers(stored: StoredRun) -> Answers:
    """Distinct answers on whose verdict a second reader may differ, and how often each was given.

    A *record* is one stored sample with its problem and verdict; ``groups`` are its arms on problem
    sets. Answers are the same where problem and canonical form are equal.
    """
    answers: Answers = {}
    for group in stored.groups():
        for records in stored.records(group):
            for record in records:
                if not _is_doubtful(record):
                    continue
                key = (record.key.problem, record.verdict.canonical)
                reading = answers.get(key) or _unread_answer(record)
                answers[key] = replace(reading, samples=reading.samples + 1)
    return answers


def _unread_answer(record: Record) -> SecondReading:
    """The answer of a response as a second reading to be: no other reader has said anything yet.

    ``extract`` finds the answer in the response; where it finds none, the stored canonical form is
    read. ``rule``: the rule that decided the stored verdict.
    """
    extracted = extract(record.response, record.finish)
    return SecondReading(
        problem=record.key.problem,
        answer=record.verdict.canonical,
        text=record.verdict.canonical if extracted is None else extracted.text,
        gold=record.problem.gold,
        question=str(record.problem.fields.get("question", "")),
        right=record.verdict.right,
        rule=record.verdict.rule,
    )


def _is_doubtful(record: Record) -> bool:
    """Whether an answer was compared as mathematics, by a rule that may be wrong."""
    # Imported problems name no verifier.
    is_mathematics = record.problem.verifier in ("math", "")
    was_compared = record.verdict.status in (Status.RIGHT, Status.WRONG)
    return is_mathematics and was_compared and record.verdict.rule not in _CERTAIN


def _ask_math_verify(answers: Answers, workers: int, timeout_seconds: float) -> None:
    """Have Math-Verify read the answers that it has not read yet; its word goes into them.

    ``answers``: second readings by problem and canonical answer. The word is ``right`` or
    ``wrong``, or ``unread`` where it ran out of time, failed or could not parse the answer. It runs
    in worker processes, which can be killed.
    """
    new_keys = [key for key, reading in answers.items() if not reading.math_verify]
    if not new_keys:
        return
    payloads = [{"gold": answers[key].gold, "answer": answers[key].text} for key in new_keys]
    results = shared_pool(MATH_VERIFY, workers, timeout_seconds).run(payloads)
    for key, result in zip(new_keys, results, strict=True):
        word = result.value if result.outcome == "done" else "unread"
        answers[key] = replace(answers[key], math_verify=word)


def _ask_judge(answers: Answers, judge: Judge) -> None:
    """Have a judge, a language model, read the answers that it is for and has not read yet.

    ``answers``: second readings by problem and canonical answer; the judge's word and fingerprint
    are put into them. Another judge than before is asked anew.
    """
    new_keys = []
    for key, reading in answers.items():
        was_judged = reading.judge and reading.judged_by == judge.fingerprint
        if reading.is_for_a_judge and not was_judged:
            new_keys.append(key)
    if not new_keys:
        return
    comparisons = [
        Comparison(answers[key].question, answers[key].gold, answers[key].text) for key in new_keys
    ]
    for key, reply in zip(new_keys, ask(judge, comparisons), strict=True):
        answers[key] = replace(answers[key], judge=reply.word, judged_by=judge.fingerprint)


def _store_readings(layout: Layout, readings: Iterable[SecondReading]) -> None:
    """Keep second readings, one JSON object a line, in place of those of before.

    A second reading is what rules, Math-Verify and a judge say of one distinct answer.
    """
    lines = []
    for reading in readings:
        record = asdict(reading)
        # They stand in the response and the problem.
        del record["text"], record["question"]
        lines.append(json.dumps(record, ensure_ascii=False) + "\n")
    layout.second_readings.parent.mkdir(parents=True, exist_ok=True)
    files.put(layout.second_readings, "".join(lines).encode("utf-8", "surrogatepass"))


# --- the sample ----------------------------------------------------------------------------------


def draw(stored: StoredRun, answers: Answers, responses: int, seed: int) -> Audit:
    """Draw about ``responses`` responses of every arm and problem set, and keep which.

    A *side* is an arm at one step on one problem set. A *stratum* is a group of its responses by
    verdict, by how rarely the problem is solved, and by whether a second reader disagrees. Each
    stratum that isn't empty gets an equal share. Of several steps of an arm the last is audited,
    unless ``stored`` keeps to one.

    ``answers``: what second readers said, by problem and answer. ``seed``: decides the draw:
    responses are ranked by a hash of seed and key (``response_id``), so that the same call draws
    the same.
    """
    sizes: Counter[tuple[Side, str]] = Counter()
    # By the id of a response, which is also its rank in the draw.
    candidates: defaultdict[tuple[Side, str], dict[str, tuple[SampleKey, Shown]]]
    candidates = defaultdict(dict)
    for group in stored.groups():
        for problem_records in stored.records(group):
            judged = [record for record in problem_records if record.verdict.status in _JUDGED]
            right_count = sum(record.verdict.right for record in judged)
            for record in judged:
                side = Side(group.arm, record.key.step, group.problem_set)
                stratum = (side, _stratum_of(record, right_count, answers))
                sizes[stratum] += 1
                response = response_id(seed, record.key)
                candidates[stratum][response] = (record.key, _shown(record))
                # Bounds the memory: only the first in the order of the draw can be drawn.
                if len(candidates[stratum]) > 2 * responses:
                    candidates[stratum] = _take_first(candidates[stratum], responses)
    last_step = {(side.arm, side.problem_set): side.step for side, _ in sorted(sizes)}
    strata_count = Counter(side for side, _ in sizes)
    strata: list[Stratum] = []
    shown: dict[SampleKey, Shown] = {}
    for side, name in sorted(sizes):
        if side.step != last_step[side.arm, side.problem_set]:
            continue
        share = math.ceil(responses / strata_count[side])
        drawn = dict(_take_first(candidates[side, name], share).values())
        shown |= drawn
        strata.append(
            Stratum(
                side=side,
                name=name,
                accepted=name in _ACCEPTED,
                size=sizes[side, name],
                drawn=tuple(drawn),
            )
        )
    write_sample(stored.layout, strata)
    return Audit(seed, tuple(strata), shown)


def _take_first(
    responses: dict[str, tuple[SampleKey, Shown]], count: int
) -> dict[str, tuple[SampleKey, Shown]]:
    """Return the responses that come first in the order of the draw."""
    return {response: responses[response] for response in sorted(responses)[:count]}


def _shown(record: Record) -> Shown:
    question = str(record.problem.fields.get("question", ""))
    return Shown(question, record.response, record.problem.gold)


def _stratum_of(record: Record, right_of_problem: int, answers: Answers) -> str:
    """Name of a response's stratum: by verdict, by how rare it is, by whether it is disputed.

    ``right_of_problem``: right samples of its problem at its step. ``answers``: what second readers
    said, by problem and canonical answer. A wrong response is disputed also where it would be right
    had an answer counted that it does not state (``lenient``).
    """
    reading = answers.get((record.key.problem, record.verdict.canonical))
    is_disputed = reading is not None and reading.is_disputed
    if not record.verdict.right:
        right_if_lenient = record.lenient is Status.RIGHT
        return _DISPUTED_WRONG if is_disputed or right_if_lenient else "wrong"
    if right_of_problem <= FEW_RIGHT:
        return _RARE
    return _DISPUTED_RIGHT if is_disputed else "right"


# --- judgements in a file ------------------------------------------------------------------------


def exchange_judgements(layout: Layout, audit: Audit, path: Path) -> int:
    """Take in what a file says of the sample, then write the sample into it; return how many.

    A line has ``id``, ``question``, ``response``, ``gold`` and ``judgement``, which is empty until
    somebody writes ``right``, ``wrong`` or ``unclear``. The arm stands nowhere in it.

    ``audit.shown`` holds what is shown of each drawn response, by key; ``response_id`` names it
    without its arm. A judgement that is as it was is not counted.
    """
    keys = {response_id(audit.seed, key): key for key in audit.shown}
    judgements = load_judgements(layout)
    new_judgements = 0
    for number, record in read_lines(path):
        place = f"{path}:{number}"
        if record.get("id") not in keys:
            raise UserError(
                f"{place}: id {record.get('id')!r} is none of this sample; give the same options "
                "as when the file was written, or a new file"
            )
        if not record.get("judgement"):
            continue
        key = keys[record["id"]]
        word = check_word(place, record["judgement"])
        if key not in judgements or judgements[key].word != word:
            store_judgement(layout, Judgement(key, word, "", str(record.get("note", ""))))
            new_judgements += 1
    files.put(path, "".join(_lines(audit, load_judgements(layout))).encode("utf-8", "replace"))
    return new_judgements


def _lines(audit: Audit, judgements: Mapping[SampleKey, Judgement]) -> Iterator[str]:
    """Lines of the file that people fill in: a JSON object for each drawn response.

    They stand in the order in which they are to be read.

    ``judgements``: what was judged so far, by key; without one the fields are empty.
    """
    for key in audit.queue(()):
        judgement = judgements.get(key)
        record = {
            "id": response_id(audit.seed, key),
            **audit.shown[key]._asdict(),
            "judgement": judgement.word if judgement else "",
            "note": judgement.note if judgement else "",
        }
        yield json.dumps(record, ensure_ascii=False) + "\n"


def disagreements(answers: Iterable[SecondReading]) -> list[SecondReading]:
    """Answers on which a second reader says the opposite of the rules, the most frequent first."""
    disputed = [reading for reading in answers if reading.is_disputed]
    return sorted(disputed, key=lambda reading: (-reading.samples, reading.problem))


def crosstable(answers: Iterable[SecondReading]) -> Sequence[tuple[str, str, str, int, int]]:
    """Answers and samples by what rules, Math-Verify and the judge say.

    A row is these three words, the number of distinct answers, and of samples that gave them.
    ``answers``: a second reading for each distinct answer; ``unread`` says that rules refused it
    without reading it.
    """
    counts: Counter[tuple[str, str, str]] = Counter()
    samples: Counter[tuple[str, str, str]] = Counter()
    for reading in answers:
        rules_word = "right" if reading.right else "wrong"
        if reading.rule == "unread":
            rules_word += ", unread"
        words = (rules_word, reading.math_verify, reading.judge or "-")
        counts[words] += 1
        samples[words] += reading.samples
    return [(*words, counts[words], samples[words]) for words in sorted(counts)]
