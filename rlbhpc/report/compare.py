"""A base against a trained arm: everything that is said about the two, worked out once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlbhpc.report.measured import Measured, powers_of_two
from rlbhpc.stats import (
    Answer,
    Counts,
    Coverage,
    Crossing,
    DifferenceCurve,
    Interval,
    ProblemWeights,
    coverage,
    delta_se_interval,
    difference_curve,
    holm,
)
from rlbhpc.stats.coverage_table import never_solved_shift
from rlbhpc.stats.decision import MARGIN, decide, problems_with_samples
from rlbhpc.stats.difference import LARGE_K, interval_at_one
from rlbhpc.stats.joint import Finding
from rlbhpc.sweep.looks import LookRecord, latest


@dataclass(frozen=True)
class Settings:
    """How the intervals were made, and what is pooled.

    ``trainings``: arms by the name of the recipe's arm that they are seeds of. ``averages``:
    problem sets by the name of their mean. ``clusters``: the source of problems that share one:
    whole sources are drawn, not problems.
    """

    prob: float
    replicates: int
    seed: int
    k: tuple[int, ...]
    margin: float = MARGIN
    trainings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    averages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    statistics: tuple[str, ...] = ()
    aspects: tuple[str, ...] = ()
    clusters: Mapping[str, str] = field(default_factory=dict)

    def labels(self, problems: Sequence[str]) -> tuple[str, ...] | None:
        """The source of each problem; None where all of them are drawn one by one."""
        if not any(problem in self.clusters for problem in problems):
            return None
        return tuple(self.clusters.get(problem, problem) for problem in problems)

    def weights(self, problems: Sequence[str]) -> ProblemWeights:
        """Bootstrap weights of some problems, so that all that is said of them is paired.

        They depend on how many these are, and on their sources, alone.
        """
        return _drawn(len(problems), self.replicates, self.seed, self.labels(problems))


@lru_cache(maxsize=32)
def _drawn(
    problems: int, replicates: int, seed: int, labels: tuple[str, ...] | None
) -> ProblemWeights:
    return ProblemWeights.draw(problems, np.random.default_rng(seed), replicates, labels)


@dataclass(frozen=True)
class Sides:
    """The counts of a comparison, their problems, and how many comparisons share its error.

    ``looked`` is what looks at more samples say of lost and gained.
    """

    base: Counts
    trained: Counts
    problems: tuple[str, ...]
    comparisons: int
    looked: tuple[Finding, Finding] | None = None


@dataclass(frozen=True)
class Comparison:
    """A trained arm at one step against its base, on the problems that both have samples of.

    ``rows``: positions of the compared problems in ``base.problems`` and ``trained.problems``.
    ``left_out``: ids of problems that one of the two has no samples of, or far fewer than of the
    others. ``rates``: mean pass@k of base and trained over these problems, at the k of ``curve``.
    ``curve``: the difference curve, up to the k of the answer. ``margin``: what counts as the same.
    ``solved``: coverage among the first ``solved_in`` judged samples of both; positions are
    positions in ``problems``. None where imported counts cannot be cut to the same number. ``gap,
    gap_k``: sampling-efficiency gap, pass@``gap_k`` of the base − pass@1 of the trained model.
    ``p_moved_holm, p_solved_holm``: p-values of "moved at all" and of McNemar's test, adjusted by
    Holm's method over the last steps of all comparisons; NaN for earlier steps. ``comparisons``:
    how many share the error of the answer. ``look``: the last look that ``plan --until`` took at
    this comparison; None where there was none, or it asked for another k or margin.
    """

    base: Measured
    trained: Measured
    problems: tuple[str, ...]
    rows: tuple[NDArray[np.int64], NDArray[np.int64]]
    left_out: tuple[str, ...]
    rates: tuple[NDArray[np.float64], NDArray[np.float64]]
    curve: DifferenceCurve
    margin: float
    solved: Coverage | None
    solved_in: int
    gap: Interval
    gap_k: int
    p_moved_holm: float = float("nan")
    p_solved_holm: float = float("nan")
    comparisons: int = 1
    look: LookRecord | None = None

    @property
    def problem_set(self) -> str:
        """The problem set of both sides."""
        return self.base.problem_set

    @property
    def key(self) -> dict[str, str | int]:
        """Columns that tell its rows in a table from those of others."""
        sides = {"base": self.base.arm, "trained": self.trained.arm}
        return {"problem_set": self.problem_set, **sides, "step": self.trained.step}

    @property
    def title(self) -> str:
        """Name both sides and the problem set."""
        return f"{self.trained.label} against {self.base.label} on {self.problem_set}"

    @property
    def subject(self) -> tuple[tuple[str, int], tuple[str, int], str]:
        """What a look at it is kept under."""
        base, trained = self.base, self.trained
        return (base.arm, base.step), (trained.arm, trained.step), base.problem_set

    @property
    def slug(self) -> str:
        """The same as part of a file name."""
        step = f"-{self.trained.step}" if self.trained.step else ""
        return f"{self.base.arm}-{self.trained.arm}{step}-{self.base.problem_set}"

    @property
    def sides(self) -> Sides:
        """The counts of both arms on the compared problems."""
        base, trained = self.rows
        return Sides(
            self.base.counts[base],
            self.trained.counts[trained],
            self.problems,
            self.comparisons,
            self.looked,
        )

    @property
    def looked(self) -> tuple[Finding, Finding] | None:
        """What the looks say of lost and gained."""
        return None if self.look is None else (self.look.lost, self.look.gained)

    @cached_property
    def answer(self) -> Answer:
        """What was lost and gained. It takes a while, and few ask of an earlier checkpoint."""
        return decide(
            self.curve,
            self.margin,
            comparisons=self.comparisons,
            looked=self.looked,
            errors=(self.base.errors, self.trained.errors),
        )

    @property
    def words(self) -> tuple[str, ...]:
        """The answer in sentences."""
        sentences = self.answer.sentences()
        if self.look is None:
            return sentences
        return (
            *sentences,
            f"Lost and gained are those of look {self.look.number} of `plan --until`, at all the "
            "samples that it asked for; their intervals hold at all looks together. All else is of "
            f"the first {self.reach:,} samples of each problem.",
        )

    @cached_property
    def pointwise(self) -> Interval:
        """Trained minus base at each k; at k = 1 as the answer gives it, maybe without bounds."""
        first, every = interval_at_one(self.curve), self.curve.pointwise
        return replace(
            every,
            lower=np.append(first.lower, every.lower[1:]),
            upper=np.append(first.upper, every.upper[1:]),
            sound=np.append(first.sound, every.sound[1:]),
        )

    @property
    def net(self) -> Interval:
        """Trained minus base pass@k at the largest k."""
        return self.pointwise[len(self.curve.k) - 1]

    @cached_property
    def never_solved(self) -> Interval:
        """Change in the share of problems never solved."""
        curve = self.curve
        return never_solved_shift(curve.base, curve.trained, curve.weights, self.gap.prob)

    @cached_property
    def crossing(self) -> Crossing:
        """Where the two curves may cross."""
        return self.curve.crossing

    @property
    def reach(self) -> int:
        """The largest k that all compared problems support in both arms."""
        return int(self.curve.k[-1])


class Paired(NamedTuple):
    """Problems that two arms both have samples of.

    ``base`` and ``trained`` are their positions in the problems of each arm.
    """

    problems: tuple[str, ...]
    base: NDArray[np.int64]
    trained: NDArray[np.int64]
    left_out: tuple[str, ...]


def pair_problems(base: Measured, trained: Measured) -> Paired:
    """Find the problems that both arms have enough samples of, in the order of the base.

    Enough is what 98 % of the shared problems have: stragglers do not shorten the curve.
    """
    shared = common_problems((base, trained))
    base_rows, trained_rows = base.rows_of(shared), trained.rows_of(shared)
    enough = np.ones(len(shared), bool)
    if shared:
        enough = problems_with_samples(base.counts[base_rows], [trained.counts[trained_rows]])
    problems = tuple(p for p, has in zip(shared, enough, strict=True) if has)
    compared = set(problems)
    everything = dict.fromkeys((*base.problems, *trained.problems))
    return Paired(
        problems,
        base_rows[enough],
        trained_rows[enough],
        tuple(p for p in everything if p not in compared),
    )


def common_problems(measured: Sequence[Measured]) -> tuple[str, ...]:
    """Problems that all these arms have samples of, in the order of the first."""
    first, *others = measured
    problems = first.sampled_problems
    for other in others:
        if other.sampled_problems != problems:
            sampled = set(other.sampled_problems)
            problems = tuple(problem for problem in problems if problem in sampled)
    return problems


def compare(base: Measured, trained: Measured, settings: Settings) -> Comparison:
    """Compare two arms on the problems that they share."""
    problems, base_rows, trained_rows, out = pair_problems(base, trained)
    weights, prob = settings.weights(problems), settings.prob
    a, b = base.counts[base_rows], trained.counts[trained_rows]
    curve = difference_curve(a, b, weights, prob=prob)
    reach = int(curve.k[-1])
    ours = base.right_in_first(reach, base_rows)
    theirs = trained.right_in_first(reach, trained_rows)
    gap_k = min(LARGE_K, powers_of_two(a.reach)[-1])
    return Comparison(
        base,
        trained,
        problems,
        (base_rows, trained_rows),
        out,
        (a.pass_at_k(curve.k).mean(axis=0), b.pass_at_k(curve.k).mean(axis=0)),
        curve,
        settings.margin,
        None if ours is None or theirs is None else coverage(ours, theirs),
        reach,
        delta_se_interval(a, b, weights, gap_k, prob),
        gap_k,
    )


def share_error(final: list[Comparison], looks: Sequence[LookRecord] = ()) -> list[Comparison]:
    """Let some comparisons share the error: p-values by Holm, answers at an equal part.

    What a look has decided stands.
    """
    if not final:
        return []
    moved = holm([c.curve.p_moved for c in final])
    cover = holm([1.0 if c.solved is None else c.solved.p_value for c in final])
    last = latest(looks)
    shared = []
    for c, p_moved, p_solved in zip(final, moved.tolist(), cover.tolist(), strict=True):
        look = last.get(c.subject)
        answers = look is not None and look.asks_about(c.reach, c.margin)
        shared.append(
            replace(
                c,
                look=look if answers else None,
                p_moved_holm=p_moved,
                p_solved_holm=float("nan") if c.solved is None else p_solved,
                comparisons=len(final),
            )
        )
    return shared
