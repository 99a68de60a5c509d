"""Chain-of-thought validity by hand: a sheet to read, judgements to take back, what they say.

The study read chains by hand where a problem is solved so rarely that its right answers may be
luck. :func:`make_sheet` picks those problems, :func:`write_sheet` writes one HTML file that needs
no network and runs no model text, :func:`read_judgements` takes the JSON that the sheet saves, and
:func:`chain_counts` gives what ``stats.cot_pass_at_k`` takes. A model may judge too: its
judgements stand in a column of their own and never overrule a person's.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from rlbhpc.errors import UserError
from rlbhpc.verify.audit.sheet import render

if TYPE_CHECKING:  # it reads answers, which takes a quarter of a second to import
    from rlbhpc.verify.audit.second_look import Record

Word = Literal["valid", "invalid", "unclear"]
WORDS: Final[tuple[Word, ...]] = ("valid", "invalid", "unclear")
HIGHEST_RATE: Final = 0.05
FORMAT: Final = "rlbhpc-review-1"


@dataclass(frozen=True)
class Chain:
    """One right answer with its reasoning. ``id`` is a digest of problem, sample and text."""

    id: str
    problem: str
    question: str
    gold: str
    answer: str
    text: str


@dataclass(frozen=True)
class Sheet:
    """What is given to a reader.

    ``id``: digest of all counts and chains: judgements name the sheet that they were made on.
    ``counts``: per problem id: samples, and right answers among them (of which the sheet may hold
    fewer). ``chains``: what is to be read, problem by problem.
    """

    id: str
    counts: Mapping[str, tuple[int, int]]
    chains: tuple[Chain, ...]


@dataclass(frozen=True)
class Judgements:
    """What one reader said of one sheet. ``by_model`` marks a model's column."""

    sheet: str
    reviewer: str
    words: Mapping[str, Word]
    notes: Mapping[str, str]
    by_model: bool = False


def make_sheet(
    records: Iterable[Record], highest_rate: float = HIGHEST_RATE, per_problem: int = 4
) -> Sheet:
    """Pick the right answers of problems with an accuracy in (0, ``highest_rate``].

    Of a problem with more than ``per_problem`` right answers that many are drawn, by a seed that
    depends on the problem alone, so that the same samples give the same sheet.
    """
    sampled: dict[str, int] = defaultdict(int)
    right: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        sampled[record.problem.id] += 1
        if record.verdict.right:
            right[record.problem.id].append(record)
    counts: dict[str, tuple[int, int]] = {}
    chains: list[Chain] = []
    for name in sorted(right):
        n, right_ones = sampled[name], right[name]
        if len(right_ones) > highest_rate * n:
            continue
        counts[name] = (n, len(right_ones))
        chosen = right_ones
        if len(right_ones) > per_problem:
            seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
            places = sorted(random.Random(seed).sample(range(len(right_ones)), per_problem))
            chosen = [right_ones[place] for place in places]
        chains.extend(_chain(record, index) for index, record in enumerate(chosen))
    content = json.dumps([counts, [chain.id for chain in chains]])
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    return Sheet(digest, counts, tuple(chains))


def _chain(record: Record, index: int) -> Chain:
    problem = record.problem
    parts = json.dumps([problem.id, index, record.response], ensure_ascii=False)
    digest = hashlib.sha256(parts.encode("utf-8", "replace")).hexdigest()[:16]
    shown = problem.fields.get("question")
    if not shown:
        shown = "\n".join(f"{name}: {value}" for name, value in sorted(problem.fields.items()))
    question = str(shown)
    return Chain(digest, problem.id, question, problem.gold, record.verdict.answer, record.response)


def write_sheet(path: Path, sheet: Sheet, title: str) -> None:
    """Write the sheet as one HTML file that a browser opens from the disk."""
    path.write_text(render(sheet, FORMAT, title), encoding="utf-8")


# --- judgements ----------------------------------------------------------------------------------


def read_json(path: Path) -> Any:
    """Read the file of somebody's judgements, unchecked."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: no judgements ({error}); save the sheet again") from None


def read_judgements(path: Path, sheet: Sheet) -> Judgements:
    """Read and check the file that the sheet saved."""
    record = read_json(path)
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise UserError(f"{path}: not a file of judgements; allowed is what the sheet saves")
    if record.get("sheet") != sheet.id:
        raise UserError(
            f"{path}: made on sheet {record.get('sheet')!r}, this is sheet {sheet.id!r}; "
            "read the judgements beside the sheet that they were made on"
        )
    reviewer = str(record.get("reviewer") or "").strip()
    if not reviewer:
        raise UserError(f"{path}: no reviewer's name; enter one at the top of the sheet")
    words = _words(path, record.get("judgements"), {chain.id for chain in sheet.chains})
    notes = {str(key): str(note) for key, note in dict(record.get("notes") or {}).items() if note}
    return Judgements(sheet.id, reviewer, words, notes, bool(record.get("by_model")))


def _words(path: Path, given: Any, chain_ids: set[str]) -> dict[str, Word]:
    if not isinstance(given, dict):
        raise UserError(f"{path}: judgements: {given!r}; allowed is one word for each chain")
    for chain, word in given.items():
        if chain not in chain_ids:
            raise UserError(f"{path}: judgement of chain {chain!r}, which this sheet does not hold")
        if word not in WORDS:
            raise UserError(f"{path}: chain {chain}: {word!r}; allowed are {', '.join(WORDS)}")
    return cast(dict[str, Word], given)


# --- what they say -------------------------------------------------------------------------------


class Agreement(NamedTuple):
    """Two reviewers over the chains that both judged.

    ``kappa`` is Cohen's kappa, NaN where both said one and the same word of every chain.
    """

    both: int
    same: int
    kappa: float
    table: Mapping[tuple[Word, Word], int]


def agreement(first: Judgements, second: Judgements) -> Agreement:
    r"""Compute the agreement of two reviewers beyond chance.

    .. math:: \kappa = \frac{p_o - p_e}{1 - p_e},\qquad p_e = \sum_w p_1(w)\, p_2(w)

    References
    ----------
    Cohen (1960), "A coefficient of agreement for nominal scales".
    """
    shared = sorted(first.words.keys() & second.words.keys())
    table = {(a, b): 0 for a in WORDS for b in WORDS}
    for chain in shared:
        table[first.words[chain], second.words[chain]] += 1
    both = len(shared)
    same = sum(table[word, word] for word in WORDS)
    if not both:
        return Agreement(0, 0, float("nan"), table)
    chance = sum(
        sum(table[word, b] for b in WORDS) * sum(table[a, word] for a in WORDS) for word in WORDS
    )
    expected = chance / both**2
    kappa = (same / both - expected) / (1 - expected) if expected < 1 else float("nan")
    return Agreement(both, same, kappa, table)


class ChainCounts(NamedTuple):
    """One problem: samples, right answers, chains read, and those found valid or unclear.

    A chain is valid if all people who judged it say so, invalid if one says so, else unclear.
    """

    problem: str
    n: int
    right: int
    read: int
    valid: int
    unclear: int

    @property
    def valid_among_right(self) -> int:
        """Valid chains among all right answers: counted if all were read, else scaled."""
        if not self.read:
            return 0
        return round(self.valid * self.right / self.read)

    @property
    def solved(self) -> bool | None:
        """Whether a valid chain is known; None while an unread or unclear one could be it."""
        if self.valid:
            return True
        return None if self.unclear or self.read < self.right else False


def chain_counts(sheet: Sheet, judgements: Sequence[Judgements]) -> list[ChainCounts]:
    """Count valid chains per problem from the judgements of people; a model's are left aside."""
    people = [judgement for judgement in judgements if not judgement.by_model]
    said: dict[str, list[tuple[bool, Word]]] = defaultdict(list)
    for chain in sheet.chains:
        words = [judgement.words[chain.id] for judgement in people if chain.id in judgement.words]
        said[chain.problem].append((bool(words), _joint(words)))
    return [
        ChainCounts(
            name, n, right,
            sum(judged for judged, _ in said[name]),
            sum(judged and word == "valid" for judged, word in said[name]),
            sum(judged and word == "unclear" for judged, word in said[name]),
        )
        for name, (n, right) in sheet.counts.items()
    ]  # fmt: skip


class ModelCounts(NamedTuple):
    """One problem as one model judged its chains; never mixed with what people say."""

    model: str
    problem: str
    valid: int
    invalid: int
    unclear: int


def model_counts(sheet: Sheet, judgements: Sequence[Judgements]) -> list[ModelCounts]:
    """Count what each model said of the chains of each problem."""
    rows = []
    for judgement in judgements:
        if judgement.by_model:
            for name in sheet.counts:
                mine = (chain.id for chain in sheet.chains if chain.problem == name)
                said = [judgement.words[chain] for chain in mine if chain in judgement.words]
                rows.append(ModelCounts(judgement.reviewer, name, *map(said.count, WORDS)))
    return rows


def _joint(words: Sequence[Word]) -> Word:
    if "invalid" in words:
        return "invalid"
    return "valid" if words and all(word == "valid" for word in words) else "unclear"
