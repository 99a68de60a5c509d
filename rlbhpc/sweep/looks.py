"""Looks at a growing study: what each decided, and the samples that it asked for.

They are kept in one file beside the results, and written before anybody sees what they say: a look
that was forgotten would make the error of the later ones a lie. What a look asks for raises n for
some problems. Those were chosen by their results and are no random subset, so curves take the
first n samples of every problem, and only the looks themselves take all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from rlbhpc.errors import UserError
from rlbhpc.store import checked
from rlbhpc.study.keys import Block
from rlbhpc.study.layout import Layout

if TYPE_CHECKING:  # every task reads what looks ask for, and needs no SciPy for that
    from rlbhpc.stats.joint import Finding

_UNDECIDED: Final = "undecided"


#: Which comparison: arm and step of the base, those of the trained arm, and the problem set.
Subject = tuple[tuple[str, int], tuple[str, int], str]


class Until(StrEnum):
    """What is to be decided."""

    LOST = "lost decided"
    GAINED = "gained decided"
    EITHER = "lost or gained decided"
    BOTH = "lost and gained decided"

    def still_open(self, lost: Finding, gained: Finding) -> tuple[bool, bool]:
        """Which of the two, lost and gained, is still to be decided.

        ``lost, gained``: what was found; its verdict may be undecided. Where either is enough, both
        are open until one is decided.
        """
        lost_is_open = lost.verdict == _UNDECIDED
        gained_is_open = gained.verdict == _UNDECIDED
        match self:
            case Until.LOST:
                return lost_is_open, False
            case Until.GAINED:
                return False, gained_is_open
            case Until.EITHER:
                both_open = lost_is_open and gained_is_open
                return both_open, both_open
            case Until.BOTH:
                return lost_is_open, gained_is_open


@dataclass(frozen=True)
class More:
    """``n`` samples instead of the study's n for some problems of one arm, set and step."""

    arm: str
    set_name: str
    step: int
    n: int
    problems: tuple[str, ...]


@dataclass(frozen=True)
class LookRecord:
    """What a look at one comparison said, as it is kept.

    ``base, trained``: arm and step of either side. ``set_name, k, margin``: what was asked.
    ``number``: of the look at this comparison, from 1. ``data``: digest of the counts that it saw.
    ``error``: share of the error that it used. ``lost, gained``: what is decided after it.
    ``more``: what to draw before the next one. ``outcome``: ``draw``, ``decided``, or why there is
    no next one: ``nothing open`` or ``budget``.
    """

    base: tuple[str, int]
    trained: tuple[str, int]
    set_name: str
    k: int
    margin: float
    number: int
    data: str
    error: float
    lost: Finding
    gained: Finding
    outcome: str
    more: tuple[More, ...] = field(default=())

    @property
    def subject(self) -> Subject:
        """Which comparison it is a look at."""
        return self.base, self.trained, self.set_name

    def asks_about(self, k: int, margin: float) -> bool:
        """Whether it answers this question."""
        return (self.k, self.margin) == (k, margin)


@dataclass(frozen=True)
class Waiting:
    """A comparison of which samples are missing; ``last`` is the look before, if there was one."""

    base: str
    trained: str
    set_name: str
    missing: int
    last: LookRecord | None


def write(layout: Layout, looks: Sequence[LookRecord]) -> None:
    """Keep all looks, whole and synced, in place of those that were kept."""
    checked.write(layout.looks, {"looks": [as_row(look) for look in looks]})


def read(layout: Layout) -> list[LookRecord]:
    """All looks that were taken at a study, oldest first.

    Without a file none was taken. A damaged file is refused: looks use up the error of the
    decision, and so none may be forgotten.
    """
    try:
        return [_record(row) for row in checked.read(layout.looks)["looks"]]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{layout.looks}: damaged ({error}); restore it from a copy: without it nobody knows "
            "how much of the error is used up"
        ) from None


def as_row(look: LookRecord) -> dict[str, Any]:
    """A look as JSON-ready values; a number that is NaN becomes None.

    ``lost`` and ``gained`` are findings with bounds, which may be NaN, and NaN is no JSON. It alone
    differs from itself.
    """
    row = asdict(look)
    for name in ("lost", "gained"):
        finding = row[name]
        for field_name, value in finding.items():
            if value != value:
                finding[field_name] = None
    return row


def latest(looks: Sequence[LookRecord]) -> dict[Subject, LookRecord]:
    """The last look at each comparison."""
    return {look.subject: look for look in looks}


def _record(row: dict[str, Any]) -> LookRecord:
    """A look from the JSON values that :func:`as_row` gives.

    JSON has lists for tuples and None for NaN. ``more``: samples that the look asked for, by arm,
    problem set and step. A finding is the verdict on lost, or gained, with its bounds.
    """
    values = dict(row)
    for name in ("base", "trained"):
        arm, step = row[name]
        values[name] = (str(arm), int(step))
    for name in ("lost", "gained"):
        values[name] = _finding(row[name])
    more = [More(**{**request, "problems": tuple(request["problems"])}) for request in row["more"]]
    values["more"] = tuple(more)
    return LookRecord(**values)


def _finding(row: dict[str, Any]) -> Finding:
    """A finding of JSON values, where None stands for NaN."""
    from rlbhpc.stats.joint import Finding, Verdict

    values: dict[str, Any] = {
        name: float("nan") if value is None else value for name, value in row.items()
    }
    values["verdict"] = Verdict(row["verdict"])
    values.pop("more", None)  # a forecast that earlier versions kept
    return Finding(**values)


def requested_counts(layout: Layout, blocks: Iterable[Block]) -> list[NDArray[np.int64]]:
    """Samples that each problem of some blocks should have, an array for each block.

    A *block* is all samples of one arm, problem set and step, with the study's n. A *look* at the
    results may have asked for more samples of some problems; it only ever raises n.
    """
    raised = [more for look in read(layout) for more in look.more]
    requests = []
    for block in blocks:
        n_of_problem = dict.fromkeys(block.problems, block.n)
        for more in raised:
            if (more.arm, more.set_name, more.step) != (block.arm, block.set_name, block.step):
                continue
            for problem in more.problems:
                if problem in n_of_problem:
                    n_of_problem[problem] = max(more.n, n_of_problem[problem])
        requests.append(np.array(list(n_of_problem.values()), np.int64))
    return requests
