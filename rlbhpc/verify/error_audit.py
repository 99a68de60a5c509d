r"""Error rates of a verifier, from what people say of a stratified sample of responses.

The question to a reader is whether the answer that a response gives is right, whatever its verdict.
Judgements are lines in ``audit/judgements.jsonl`` of a run.

Two shares are estimated for each arm: of the responses that the verdict accepted, those whose
answer is wrong (false right), and of those that it refused, those whose answer is right (false
wrong). Each is a mean over strata. With :math:`N_h` responses in stratum h of N, :math:`n_h` of
them read at random and :math:`x_h` found in error, each error weighs :math:`w_h = N_h / (N n_h)`,
and

.. math:: y = \sum_h w_h x_h, \qquad v = \sum_h w_h^2 x_h, \qquad w = \max_h w_h.

The interval is Clopper and Pearson's on the counts that a simple random sample with this mean and
variance would have, as Fay and Feuer (1997) form them for rates: below :math:`k = y^2 / v` of
:math:`n = y / v`; above :math:`k = (y + w)^2 / (v + w^2)` of :math:`n = (y + w) / (v + w^2)`, where
one error more, of the heaviest stratum, is added. With one stratum, or equal weights, it is exactly
Clopper and Pearson's. A mean above one half is read from the other side.
"""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import mul
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

from scipy.special import betaincinv

from rlbhpc import files
from rlbhpc.errors import UserError
from rlbhpc.study.keys import SampleKey
from rlbhpc.study.layout import Layout

Word = Literal["right", "wrong", "unclear"]
WORDS: Final[tuple[Word, ...]] = get_args(Word)


@dataclass(frozen=True)
class Judgement:
    """What one reader says of one response."""

    key: SampleKey
    word: Word
    reader: str = ""
    note: str = ""


def store_judgement(layout: Layout, judgement: Judgement) -> None:
    """Append one line to the run's file of judgements; the last one on a response counts.

    A judgement is what a person says of a response: right, wrong or unclear. ``layout``: knows the
    paths of a run's files. ``key``: names the response by arm, step, problem and number.
    """
    path = layout.judgements
    path.parent.mkdir(parents=True, exist_ok=True)
    record = judgement.key._asdict() | {
        "judgement": judgement.word,
        "reader": judgement.reader,
        "note": judgement.note,
    }
    line = json.dumps(record, ensure_ascii=False) + "\n"
    # A process that was killed while writing may have left a line without its end.
    separator = "" if _ends_with_newline(path) else "\n"
    with path.open("a", encoding="utf-8", errors="surrogatepass") as file:
        file.write(separator + line)


def _ends_with_newline(path: Path) -> bool:
    """Return whether a line can be appended to a file; also if it is empty or missing."""
    if not path.exists() or not path.stat().st_size:
        return True
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def load_judgements(layout: Layout) -> dict[SampleKey, Judgement]:
    """Read the last judgement of every response; nothing where nobody has judged.

    A judgement is what a person says of a response: right, wrong or unclear. The key names the
    response: its arm (a model of the study), training step, problem, and number among the samples
    of that problem. A line that is no JSON was cut off by a kill: its response is shown again.
    """
    judgements: dict[SampleKey, Judgement] = {}
    for line_number, record in read_lines(layout.judgements):
        place = f"{layout.judgements}:{line_number}"
        try:
            key = SampleKey(
                arm=str(record["arm"]),
                step=int(record["step"]),
                problem=str(record["problem"]),
                sample=int(record["sample"]),
            )
        except (KeyError, TypeError, ValueError):
            raise UserError(
                f"{place}: names no response; needed are arm, step, problem and sample; "
                "mend or remove the line"
            ) from None
        judgements[key] = Judgement(
            key=key,
            word=check_word(place, record.get("judgement")),
            reader=str(record.get("reader", "")),
            note=str(record.get("note", "")),
        )
    return judgements


def read_lines(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Return line number and content of each JSON object in a file; nothing where there is no file.

    Lines that are no JSON, and values that are no objects, are skipped. Numbers start at 1.
    """
    if not path.exists():
        return []
    records = []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for line_number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append((line_number, record))
    return records


def check_word(place: str, word: object) -> Word:
    """Return a judgement that somebody wrote at ``place``, if it is one of the three words."""
    if word not in WORDS:
        raise UserError(f"{place}: judgement {word!r}; allowed: {', '.join(WORDS)}")
    return word


# --- rates and their intervals -------------------------------------------------------------------

FORMAT: Final = "rlbhpc-audit-2"
PROBABILITY: Final = 0.95


class Side(NamedTuple):
    """A side of a comparison: an arm at one step on one problem set."""

    arm: str
    step: int
    problem_set: str

    def __str__(self) -> str:
        return f"{self.arm}, step {self.step}, {self.problem_set}"


@dataclass(frozen=True)
class Stratum:
    """Responses of one side that are alike, and which of them were drawn.

    ``accepted``: whether their verdict is RIGHT. ``size``: how many there are. ``drawn``: those to
    read, in random order.
    """

    side: Side
    name: str
    accepted: bool
    size: int
    drawn: tuple[SampleKey, ...]


class StratumCount(NamedTuple):
    """How many responses of a stratum there are, were judged, and were judged against it."""

    size: int
    read: int
    errors: int


@dataclass(frozen=True)
class ErrorRate:
    """A share of false verdicts with its interval.

    ``errors`` of ``audited``: counts of a simple random sample that says as much; both may be
    fractions. ``audited`` is 0 while a stratum has not been looked at. ``read``: responses that
    people judged right or wrong.
    """

    errors: float
    audited: float
    rate: float
    low: float
    high: float
    read: int


class ErrorRates(NamedTuple):
    """Shares of the accepted responses that are wrong, and of the refused ones that are right."""

    false_right: ErrorRate
    false_wrong: ErrorRate


def error_rate(strata: Iterable[StratumCount], probability: float = PROBABILITY) -> ErrorRate:
    """Estimate which share of the responses has a false verdict, with its interval.

    ``strata``: for each group of similar responses, how many there are, how many of them people
    have read, and in how many they found an error. ``probability``: of the interval. If a group has
    not been read at all, nothing is known: the rate is NaN between 0 and 1. ``audited`` is the size
    of a simple random sample that says as much. The head of this module has the method.

    Examples
    --------
    >>> rate = error_rate([StratumCount(1000, 60, 0)])
    >>> round(rate.low, 4), round(rate.high, 4)
    (0.0, 0.0596)
    """
    strata = [stratum for stratum in strata if stratum.size]
    read = sum(stratum.read for stratum in strata)
    if not strata or any(stratum.read == 0 for stratum in strata):
        return ErrorRate(errors=0.0, audited=0.0, rate=math.nan, low=0.0, high=1.0, read=read)
    total = sum(stratum.size for stratum in strata)
    # What one error in the stratum adds to the rate: its share of all, spread over those read.
    weights = [stratum.size / total / stratum.read for stratum in strata]
    errors = [stratum.errors for stratum in strata]
    rate = sum(map(mul, weights, errors))
    if rate <= 0.5:
        audited, low, high = _weighted_interval(weights, errors, probability)
    else:
        # Above one half the interval is that of the share without errors, seen from the other side.
        correct = [stratum.read - stratum.errors for stratum in strata]
        audited, correct_low, correct_high = _weighted_interval(weights, correct, probability)
        low, high = 1 - correct_high, 1 - correct_low
    return ErrorRate(
        errors=rate * audited, audited=audited, rate=rate, low=low, high=high, read=read
    )


def _weighted_interval(
    weights: Sequence[float], counts: Sequence[int], probability: float
) -> tuple[float, float, float]:
    """Return the effective sample size, and the bounds of the weighted sum of counts.

    ``weights`` and ``counts``: one of each per stratum, a group of similar responses; a count is
    how many errors were found in it, and a weight how much of the whole share one error makes. The
    method is that of Fay and Feuer (1997): Clopper and Pearson's interval on the counts of a simple
    random sample with the same mean and variance. ``betaincinv`` gives quantiles of the beta
    distribution, from which that interval comes.
    """
    tail = (1 - probability) / 2
    mean = sum(map(mul, weights, counts))
    variance = sum(weight**2 * count for weight, count in zip(weights, counts, strict=True))
    # Size and count of events of the simple random sample with this mean and variance.
    low = 0.0
    if mean > 0:
        low_size = mean / variance
        low_count = mean * low_size
        low = float(betaincinv(low_count, low_size - low_count + 1, tail))
    # One more event in the stratum that weighs most.
    heaviest = max(weights)
    high_size = (mean + heaviest) / (variance + heaviest**2)
    high_count = (mean + heaviest) * high_size
    high = 1.0
    if high_count < high_size + 1:
        high = float(betaincinv(high_count, high_size - high_count + 1, 1 - tail))
    return high_size, low, high


def error_rates(
    strata: Iterable[Stratum], judgements: Mapping[SampleKey, Judgement]
) -> dict[Side, ErrorRates]:
    """Return the error rates of the verifier for every side of a sample.

    A *side* is an arm (a model) at one training step on one problem set. A *stratum* holds
    responses of one side that are alike, all accepted by the verifier or all refused, some of which
    were drawn for people to read. ``judgements``: what people say of them. Accepted and refused
    responses are counted apart, since a false yes and a false no are different errors.
    """
    accepted: defaultdict[Side, list[StratumCount]] = defaultdict(list)
    refused: defaultdict[Side, list[StratumCount]] = defaultdict(list)
    sides: dict[Side, None] = {}
    for stratum in strata:
        sides[stratum.side] = None
        counts_by_side = accepted if stratum.accepted else refused
        counts_by_side[stratum.side].append(_count_errors(stratum, judgements))
    return {
        side: ErrorRates(error_rate(accepted[side]), error_rate(refused[side])) for side in sides
    }


def _count_errors(stratum: Stratum, judgements: Mapping[SampleKey, Judgement]) -> StratumCount:
    """Count what was judged, in the order in which it was drawn, up to the first gap.

    A reader who skips some responses picks the suspicious ones, so what is behind a gap is no
    random sample.
    """
    read_keys = takewhile(judgements.__contains__, stratum.drawn)
    words = [judgements[key].word for key in read_keys]
    error: Word = "wrong" if stratum.accepted else "right"
    read = len(words) - words.count("unclear")
    return StratumCount(size=stratum.size, read=read, errors=words.count(error))


# --- the sample on disk --------------------------------------------------------------------------


def write_sample(layout: Layout, strata: Iterable[Stratum]) -> None:
    """Write to the run's folder which responses were drawn for reading, and out of how many.

    A stratum holds responses that are alike: of one *side* (an arm, that is a model, at a training
    step on a problem set) and all accepted by the verifier or all refused. ``drawn``: those to
    read, each by problem and number, in the order in which they are shown.
    """
    record = {
        "format": FORMAT,
        "strata": [
            {
                **stratum.side._asdict(),
                "name": stratum.name,
                "accepted": stratum.accepted,
                "size": stratum.size,
                "drawn": [[key.problem, key.sample] for key in stratum.drawn],
            }
            for stratum in strata
        ],
    }
    layout.audit_sample.parent.mkdir(parents=True, exist_ok=True)
    files.put(layout.audit_sample, json.dumps(record, indent=1).encode("utf-8", "surrogatepass"))


def read_sample(layout: Layout) -> list[Stratum]:
    """Return the strata that :func:`write_sample` kept; nothing if the run has no audit.

    A stratum holds responses that are alike, and which of them were drawn for people to read.
    """
    path = layout.audit_sample
    if not path.exists():
        return []
    try:
        record = json.loads(path.read_bytes())
        if record["format"] != FORMAT:
            raise ValueError(f"format {record['format']!r}")
        return [_parse_stratum(values) for values in record["strata"]]
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(
            f"{path}: no sample of an audit ({error}); draw it anew: rlbhpc audit {layout.root}"
        ) from None


def _parse_stratum(values: Mapping[str, Any]) -> Stratum:
    """Return a stratum from one record of the file that :func:`write_sample` writes.

    A stratum holds responses of one side (an arm at a step on a problem set) that are alike.
    ``drawn`` has problem and sample number of each response to read; arm and step are the side's.
    """
    side = Side(str(values["arm"]), int(values["step"]), str(values["problem_set"]))
    drawn = [SampleKey(side.arm, side.step, problem, sample) for problem, sample in values["drawn"]]
    return Stratum(
        side=side,
        name=str(values["name"]),
        accepted=bool(values["accepted"]),
        size=int(values["size"]),
        drawn=tuple(drawn),
    )


def load_error_rates(layout: Layout) -> dict[Side, ErrorRates]:
    """Error rates of the verifier on every audited side of a run; nothing without an audit."""
    return error_rates(read_sample(layout), load_judgements(layout))
