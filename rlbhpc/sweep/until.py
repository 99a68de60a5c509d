"""``plan --until``: take a look at each comparison, and ask for the samples that can decide it.

A look is taken where all samples are there that were asked for before, so that it is a function of
the samples and not of which worker was quick. What it decided stays decided. Twice as many samples
are asked for of every problem that may yet be lost or gained; an arm that has ``ENOUGH`` right
answers to it needs none, for its rate is then known to a quarter, and lost is ten times slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np

from rlbhpc.errors import UserError
from rlbhpc.stats.design import Look, look
from rlbhpc.stats.joint import Verdict
from rlbhpc.store.checked import digest
from rlbhpc.study.study import Study
from rlbhpc.sweep import looks
from rlbhpc.sweep.looks import LookRecord, More, Until, Waiting
from rlbhpc.sweep.plan import Presence

#: Right answers from which on a problem's rate is known well enough.
ENOUGH: Final = 16
_DIGEST_DIGITS: Final = 16


class BlockName(NamedTuple):
    """Names one block of a study."""

    arm: str
    set_name: str
    step: int

    @classmethod
    def of(cls, presence: Presence) -> Self:
        """Name the block of a presence."""
        block = presence.block
        return cls(block.arm, block.set_name, block.step)


@dataclass
class Wave:
    """Samples that looks ask for together, within what the budget leaves.

    ``budget_left``: samples that may still be asked for. ``n``: samples that were asked for, by
    block and problem.
    """

    budget_left: float
    n: dict[tuple[BlockName, str], int]

    def ask(self, block: BlockName, problem: str, present_n: int, new_n: int) -> bool:
        """Ask for one problem's samples; False where the budget does not hold them.

        ``block``: arm, problem set and step. ``present_n``: samples that are asked for already.
        ``new_n``: how many there should be. The cost is what no earlier look of this wave has asked
        for.
        """
        cost = new_n - max(present_n, self.n.get((block, problem), 0))
        if cost > self.budget_left:
            return False
        if cost > 0:
            self.budget_left -= cost
            self.n[block, problem] = new_n
        return True


def take_looks(
    study: Study, present: Sequence[Presence], until: Until, budget: int | None
) -> list[LookRecord | Waiting]:
    """Look at every comparison of a study, and keep what the looks say and ask for.

    A *look* decides from the samples so far whether problems were lost or gained, and uses up part
    of the error. It is taken only where no requested sample is missing; else the comparison is
    waiting. ``present``: what is stored of each of the study's blocks (arm, problem set and step).
    ``until``: what is to be decided. ``budget``: most samples of the whole study; None for no
    limit.

    ``latest`` gives the last look at each comparison. A look at the same data takes that one's
    place.
    """
    if study.layout.regraded.is_file():
        raise UserError(
            f"{study.layout.root}: was judged by another grader than the one whose verdicts said "
            "where to go on; take looks at the run that it was made from"
        )
    presence_of_block = {BlockName.of(presence): presence for presence in present}
    comparisons = _comparisons(study)
    records = looks.read(study.layout)
    latest = looks.latest(records)
    requested = sum(presence.requested for presence in present)
    wave = Wave(np.inf if budget is None else budget - requested, {})
    results: list[LookRecord | Waiting] = []
    for base, trained in comparisons:
        sides = (presence_of_block[base], presence_of_block[trained])
        last = latest.get(((base.arm, base.step), (trained.arm, trained.step), base.set_name))
        missing = sum(side.missing for side in sides)
        if missing:
            results.append(Waiting(base.arm, trained.arm, base.set_name, missing, last))
            continue
        look_record = _take_look(study, sides, last, until, len(comparisons), wave)
        results.append(look_record)
        if look_record is last:
            continue
        if last is not None and last.number == look_record.number:
            records.remove(last)  # the same data: the same look, which may ask for more
        records.append(look_record)
    looks.write(study.layout, records)
    return results


def _comparisons(study: Study) -> list[tuple[BlockName, BlockName]]:
    """Pairs of blocks to compare: a base's last step, and the last of what is compared with it.

    A block is named by arm, problem set and step; a pair is formed on every set that both arms
    have.
    """
    comparisons = []
    for base, trained in study.comparisons():
        base_step = study.arms[base].steps[-1]
        trained_step = study.arms[trained].steps[-1]
        for set_name in study.sets(base):
            if set_name in study.sets(trained):
                base_block = BlockName(base, set_name, base_step)
                comparisons.append((base_block, BlockName(trained, set_name, trained_step)))
    return comparisons


def _take_look(
    study: Study,
    sides: tuple[Presence, Presence],
    last: LookRecord | None,
    until: Until,
    comparison_count: int,
    wave: Wave,
) -> LookRecord:
    """Look at one comparison; the last look where that has decided all that is to be decided.

    ``comparison_count``: comparisons that share the error.
    """
    base, trained = sides[0].block, sides[1].block
    k = min(base.n, trained.n)
    margin = study.file.analysis.margin
    earlier = last if last is not None and last.asks_about(k, margin) else None
    if earlier is not None and not any(until.still_open(earlier.lost, earlier.gained)):
        return earlier
    base_counts, trained_counts = sides[0].counts(), sides[1].counts()
    columns = (base_counts.n, base_counts.c, trained_counts.n, trained_counts.c)
    counts_digest = digest([k, margin, comparison_count, [column.tolist() for column in columns]])
    data = counts_digest[:_DIGEST_DIGITS]
    number = 1
    if last is not None:
        number = last.number if last.data == data else last.number + 1
    new_look = look(base_counts, trained_counts, k, number, margin, comparison_count)
    lost, gained = new_look.lost, new_look.gained
    if earlier is not None:
        # What an earlier look decided stays decided.
        lost = lost if earlier.lost.verdict is Verdict.UNDECIDED else earlier.lost
        gained = gained if earlier.gained.verdict is Verdict.UNDECIDED else earlier.gained
    undecided = until.still_open(lost, gained)
    outcome = "decided"
    more: tuple[More, ...] = ()
    if any(undecided):
        outcome, more = _ask_for_more(sides, new_look, undecided, wave)
    if last is not None and last.number == number:
        more = (*last.more, *more)
    return LookRecord(
        base=(base.arm, base.step),
        trained=(trained.arm, trained.step),
        set_name=base.set_name,
        k=k,
        margin=margin,
        number=number,
        data=data,
        error=new_look.error,
        lost=lost,
        gained=gained,
        outcome=outcome,
        more=more,
    )


def _ask_for_more(
    sides: tuple[Presence, Presence], new_look: Look, undecided: tuple[bool, bool], wave: Wave
) -> tuple[str, tuple[More, ...]]:
    """Ask for the samples to draw before the next look, for the least clear problems first.

    ``sides``: what is stored of base and trained model. ``new_look.chances``: chance of each
    problem to be lost, and to be gained (2, problems); near one half it is least clear.
    ``undecided``: whether lost, and gained, are to be decided. ``wave``: keeps the budget.

    A side is asked for twice the samples of a problem unless it has enough right ones: its rate is
    then known. Gives the outcome of the look (``draw``, ``budget`` or ``nothing open``), and what
    to draw, by block and number of samples.
    """
    chances = new_look.chances[np.array(undecided)]
    distance_from_even = np.abs(chances - 0.5).min(axis=0)
    problems = np.argsort(distance_from_even, kind="stable")
    problems = problems[new_look.open_problems(*undecided)[problems]]
    is_over_budget = False
    asked: dict[tuple[BlockName, int], list[str]] = {}
    for index in problems.tolist():
        for side in sides:
            enough_right = min(side.block.stop_after or ENOUGH, ENOUGH)
            if side.right[index] >= enough_right:
                continue
            block = BlockName.of(side)
            problem = side.block.problems[index]
            present_n = int(side.n[index])
            new_n = 2 * present_n
            if wave.ask(block, problem, present_n, new_n):
                asked.setdefault((block, new_n), []).append(problem)
            else:
                is_over_budget = True
    blocks = list(dict.fromkeys(block for block, _ in asked))
    more = []
    for block, n in sorted(asked, key=lambda asked_key: (blocks.index(asked_key[0]), asked_key[1])):
        more.append(More(*block, n, tuple(sorted(asked[block, n]))))
    if more:
        return "draw", tuple(more)
    return ("budget" if is_over_budget else "nothing open"), ()
