"""A base against a trained arm: everything that is said about the two, worked out once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.phrases import FloatArray, IntArray
from rlbhpc.stats import (
    Answer,
    Counts,
    Coverage,
    Crossing,
    DifferenceCurve,
    Interval,
    ProblemWeights,
    coverage,
    difference_curve,
    holm,
)
from rlbhpc.stats.decision import MARGIN, decide, problems_with_samples
from rlbhpc.stats.difference import interval_at_one
from rlbhpc.sweep.looks import LookRecord, latest


@dataclass(frozen=True)
class Settings:
    """How the intervals are made, and what is pooled.

    ``prob``: probability of the intervals. ``replicates, seed``: of the bootstrap. ``k``: sizes
    that tables show. ``margin``: difference that counts as the same. ``trainings``: arms that are
    seeds of one recipe, by the recipe. ``averages``: problem sets by the name of their mean.
    ``statistics, aspects``: plugins that the study names. ``clusters``: the source of each problem
    that shares one: the bootstrap draws whole sources.
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

    def cluster_labels(self, problems: Sequence[str]) -> tuple[str, ...] | None:
        """The source of each problem; None where all of them are drawn one by one."""
        if not any(problem in self.clusters for problem in problems):
            return None
        return tuple(self.clusters.get(problem, problem) for problem in problems)

    def weights(self, problems: Sequence[str]) -> ProblemWeights:
        """Bootstrap weights of some problems.

        They depend only on the number and the sources of the problems. So everything that is said
        about the same problems is paired.
        """
        labels = self.cluster_labels(problems)
        return _draw_weights(len(problems), self.replicates, self.seed, labels)


@lru_cache(maxsize=32)
def _draw_weights(
    problems: int, replicates: int, seed: int, cluster_labels: tuple[str, ...] | None
) -> ProblemWeights:
    return ProblemWeights.draw(problems, np.random.default_rng(seed), replicates, cluster_labels)


@dataclass(frozen=True)
class Comparison:
    """A trained arm at one step against its base, on the problems that both have samples of.

    ``base_rows, trained_rows``: positions of the compared problems among those of either arm.
    ``left_out``: ids of problems that one of the two has no samples of, or far fewer than of the
    others. ``base_rates, trained_rates``: mean pass@k at the k of ``curve``. ``curve``: the
    difference curve, up to the k of the answer. ``margin``: difference that counts as the same.
    ``solved``: coverage among the first ``reach`` judged samples of both, as positions in
    ``problems``; None where imported counts cannot be cut to the same number.
    ``p_moved_holm, p_solved_holm``: p-values of "moved at all" and of McNemar's test, adjusted by
    Holm's method over the last steps of all comparisons; NaN for earlier steps. ``comparisons``:
    how many share the error of the answer. ``look``: the last look of ``plan --until`` at this
    comparison; None where there was none, or it asked for another k or margin.
    """

    base: MeasuredArm
    trained: MeasuredArm
    problems: tuple[str, ...]
    base_rows: IntArray
    trained_rows: IntArray
    left_out: tuple[str, ...]
    base_rates: FloatArray
    trained_rates: FloatArray
    curve: DifferenceCurve
    margin: float
    solved: Coverage | None
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
        """The table columns that name this comparison: problem set, both arms, trained step."""
        return {
            "problem_set": self.problem_set,
            "base": self.base.arm,
            "trained": self.trained.arm,
            "step": self.trained.step,
        }

    @property
    def title(self) -> str:
        """Both sides and the problem set in words."""
        return f"{self.trained.label} against {self.base.label} on {self.problem_set}"

    @property
    def file_stem(self) -> str:
        """Both sides and the problem set as a part of a file name."""
        step = f"-{self.trained.step}" if self.trained.step else ""
        return f"{self.base.arm}-{self.trained.arm}{step}-{self.problem_set}"

    @property
    def base_counts(self) -> Counts:
        """Counts of the base on the compared problems."""
        return self.base.counts[self.base_rows]

    @property
    def trained_counts(self) -> Counts:
        """Counts of the trained arm on the compared problems."""
        return self.trained.counts[self.trained_rows]

    @property
    def reach(self) -> int:
        """The largest k that all compared problems support in both arms."""
        return int(self.curve.k[-1])

    @cached_property
    def answer(self) -> Answer:
        """What was lost and gained by training; worked out on demand, since it takes a while.

        A *look* is a test between rounds of sampling that decides when to stop. Where one has
        decided about lost and gained, its findings stand. ``comparisons``: how many share one
        error. ``errors``: what is known of the verifier's errors in either arm.
        """
        looked = None if self.look is None else (self.look.lost, self.look.gained)
        return decide(
            self.curve,
            self.margin,
            comparisons=self.comparisons,
            looked=looked,
            errors=(self.base.errors, self.trained.errors),
        )

    @property
    def words(self) -> tuple[str, ...]:
        """The answer in sentences.

        A *look* is a test between rounds of sampling (`plan --until`). Where there was one, a
        sentence says which numbers are its own.
        """
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
        """Trained minus base at each k, with the interval of the answer at k = 1.

        ``interval_at_one`` gives bounds only where they hold although few problems may carry the
        difference. They replace the first element of the bounds at every k.
        """
        at_one, every = interval_at_one(self.curve), self.curve.pointwise
        return replace(
            every,
            lower=np.append(at_one.lower, every.lower[1:]),
            upper=np.append(at_one.upper, every.upper[1:]),
            sound=np.append(at_one.sound, every.sound[1:]),
        )

    @property
    def net(self) -> Interval:
        """Trained minus base pass@k at the largest k."""
        return self.pointwise[len(self.curve.k) - 1]

    @cached_property
    def crossing(self) -> Crossing:
        """Where the two curves may cross."""
        return self.curve.crossing


def common_problems(arms: Sequence[MeasuredArm]) -> tuple[str, ...]:
    """Problems that all these arms have samples of, in the order of the first."""
    sampled = [set(arm.sampled_problems) for arm in arms]
    shared = set.intersection(*sampled)
    return tuple(problem for problem in arms[0].sampled_problems if problem in shared)


def comparable_problems(base: MeasuredArm, trained: MeasuredArm) -> tuple[str, ...]:
    """Ids of the problems that both arms have enough samples of, in the order of the base.

    Enough is what 98 % of the shared problems have. A straggler with fewer would end the curve at
    the few samples that it has.
    """
    shared = common_problems((base, trained))
    if not shared:
        return ()
    enough = problems_with_samples(base.counts_of(shared), [trained.counts_of(shared)])
    return tuple(problem for problem, keep in zip(shared, enough, strict=True) if keep)


def compare(base: MeasuredArm, trained: MeasuredArm, settings: Settings) -> Comparison:
    """Compare two arms on the problems that both have enough samples of.

    ``base_rows, trained_rows``: positions of these problems in the arrays of either arm. ``curve``:
    trained minus base pass@k at each k, with intervals; its last k is the *reach*. ``solved``: who
    solves which problem in so many samples; None where imported counts are of more samples and do
    not say which came first.
    """
    problems = comparable_problems(base, trained)
    compared = set(problems)
    all_problems = dict.fromkeys((*base.problems, *trained.problems))
    base_rows, trained_rows = base.rows_of(problems), trained.rows_of(problems)
    base_counts, trained_counts = base.counts[base_rows], trained.counts[trained_rows]
    weights = settings.weights(problems)
    curve = difference_curve(base_counts, trained_counts, weights, prob=settings.prob)
    reach = int(curve.k[-1])
    base_right = base.right_in_first(reach, base_rows)
    trained_right = trained.right_in_first(reach, trained_rows)
    solved = None
    if base_right is not None and trained_right is not None:
        solved = coverage(base_right, trained_right)
    return Comparison(
        base,
        trained,
        problems,
        base_rows,
        trained_rows,
        tuple(problem for problem in all_problems if problem not in compared),
        base_counts.pass_at_k(curve.k).mean(axis=0),
        trained_counts.pass_at_k(curve.k).mean(axis=0),
        curve,
        settings.margin,
        solved,
    )


def share_error(
    comparisons: Sequence[Comparison], looks: Sequence[LookRecord] = ()
) -> list[Comparison]:
    """Give each comparison its share of one error over all of them.

    p-values are adjusted by Holm's method: ``p_moved`` of "the curves differ at any k",
    ``p_solved`` of McNemar's test of solved problems. Answers are decided at an equal part of the
    error each.

    ``looks``: tests that were made between rounds of sampling. The last one at a comparison, if it
    asked for the same k and margin, goes with it: what it has decided stands.
    """
    if not comparisons:
        return []
    p_moved = holm([pair.curve.p_moved for pair in comparisons])
    p_solved = holm([1.0 if pair.solved is None else pair.solved.p_value for pair in comparisons])
    last_looks = latest(looks)
    sharing = []
    for number, pair in enumerate(comparisons):
        base, trained = pair.base, pair.trained
        subject = ((base.arm, base.step), (trained.arm, trained.step), pair.problem_set)
        look = last_looks.get(subject)
        if look is not None and not look.asks_about(pair.reach, pair.margin):
            look = None
        sharing.append(
            replace(
                pair,
                look=look,
                p_moved_holm=float(p_moved[number]),
                p_solved_holm=float("nan") if pair.solved is None else float(p_solved[number]),
                comparisons=len(comparisons),
            )
        )
    return sharing
