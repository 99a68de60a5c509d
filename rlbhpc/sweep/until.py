"""``plan --until``: take a look at each comparison, and ask for the samples that can decide it.

A look is taken where all samples are there that were asked for before, so that it is a function of
the samples and not of which worker was quick. What it decided stays decided. Twice as many samples
are asked for of every problem that may yet be lost or gained; an arm that has ``ENOUGH`` right
answers to it needs none, for its rate is then known to a quarter, and lost is ten times slower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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

#: Arm, set and step.
Place = tuple[str, str, int]


@dataclass
class Wave:
    """Samples that looks ask for together, within what the budget leaves."""

    left: float
    n: dict[tuple[Place, str], int]

    def ask(self, place: Place, problem: str, before: int, after: int) -> bool:
        """Ask for one problem's samples; False where the budget does not hold them."""
        cost = after - max(before, self.n.get((place, problem), 0))
        if cost > self.left:
            return False
        if cost > 0:
            self.left -= cost
            self.n[place, problem] = after
        return True


def take_looks(
    study: Study, present: Sequence[Presence], until: Until, budget: int | None
) -> list[LookRecord | Waiting]:
    """Look at every comparison of a study, and keep what the looks say and ask for.

    ``study, present``: the study, and what is there of each of its blocks. ``until``: what is to be
    decided. ``budget``: most samples of the whole study; None for no limit.
    """
    if study.layout.regraded.is_file():
        raise UserError(
            f"{study.layout.root}: was judged by another grader than the one whose verdicts said "
            "where to go on; take looks at the run that it was made from"
        )
    cells = {(p.block.arm, p.block.set_name, p.block.step): p for p in present}
    pairs = _pairs(study, cells)
    records = looks.read(study.layout)
    latest = looks.latest(records)
    requested = sum(p.requested for p in present)
    wave = Wave(np.inf if budget is None else budget - requested, {})
    results: list[LookRecord | Waiting] = []
    for base, trained in pairs:
        sides = cells[base], cells[trained]
        last = latest.get(((base[0], base[2]), (trained[0], trained[2]), base[1]))
        missing = sum(p.missing for p in sides)
        if missing:
            results.append(Waiting(base[0], trained[0], base[1], missing, last))
            continue
        result = _look(study, sides, last, until, len(pairs), wave)
        if result is last:
            results.append(result)
            continue
        if last is not None and last.number == result.number:
            records.remove(last)  # the same data: the same look, which may ask for more
        records.append(result)
        results.append(result)
    looks.write(study.layout, records)
    return results


def _pairs(study: Study, cells: Mapping[Place, Presence]) -> list[tuple[Place, Place]]:
    """The comparisons of a study: a base's last checkpoint, and the last of what is compared."""
    return [
        ((base, set_name, study.arms[base].steps[-1]),
         (trained, set_name, study.arms[trained].steps[-1]))
        for base, trained in study.comparisons()
        for set_name in study.sets(base)
        if set_name in study.sets(trained)
    ]  # fmt: skip


def _look(
    study: Study,
    sides: tuple[Presence, Presence],
    last: LookRecord | None,
    until: Until,
    comparisons: int,
    wave: Wave,
) -> LookRecord:
    base, trained = sides[0].block, sides[1].block
    k, margin = min(base.n, trained.n), study.file.analysis.margin
    same_question = last is not None and last.asks_about(k, margin)
    if last is not None and same_question and not any(until.still_open(last.lost, last.gained)):
        return last
    counts = [p.counts() for p in sides]
    columns = [column.tolist() for c in counts for column in (c.n, c.c)]
    data = digest([k, margin, comparisons, columns])[:16]
    number = 1 if last is None else last.number + (last.data != data)
    view = look(counts[0], counts[1], k, number, margin, comparisons)
    lost, gained = view.lost, view.gained
    if last is not None and same_question:
        lost = lost if last.lost.verdict is Verdict.UNDECIDED else last.lost
        gained = gained if last.gained.verdict is Verdict.UNDECIDED else last.gained
    undecided = until.still_open(lost, gained)
    outcome = "decided"
    more: tuple[More, ...] = ()
    if any(undecided):
        outcome, more = _next(sides, view, undecided, wave)
    if last is not None and last.number == number:
        more = (*last.more, *more)
    return LookRecord(
        (base.arm, base.step), (trained.arm, trained.step), base.set_name, k, margin, number, data,
        view.error, lost, gained, outcome, more,
    )  # fmt: skip


def _next(
    sides: tuple[Presence, Presence], view: Look, undecided: tuple[bool, bool], wave: Wave
) -> tuple[str, tuple[More, ...]]:
    """What to draw before the next look: the least clear problems first."""
    chances = view.chances[np.array(undecided)]
    unclear = np.abs(chances - 0.5).min(axis=0)
    order = np.argsort(unclear, kind="stable")
    open_problems = view.open_problems(*undecided)
    refused = False
    n: dict[Place, dict[int, list[str]]] = {}
    for i in order[open_problems[order]].tolist():
        for p in sides:
            limit = min(p.block.stop_after or ENOUGH, ENOUGH)
            if p.right[i] >= limit:
                continue
            place = p.block.arm, p.block.set_name, p.block.step
            problem, after = p.block.problems[i], 2 * int(p.n[i])
            if wave.ask(place, problem, int(p.n[i]), after):
                n.setdefault(place, {}).setdefault(after, []).append(problem)
            else:
                refused = True
    more = tuple(
        More(*place, size, tuple(sorted(problems)))
        for place, by_n in n.items()
        for size, problems in sorted(by_n.items())
    )
    if more:
        return "draw", more
    return ("budget" if refused else "nothing open"), ()
