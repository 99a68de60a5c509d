"""The answer: its matrix, its words and conditions, and what is pooled over seeds and sets."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report, once_each
from rlbhpc.report.aspects.robustness import strictness_sentence
from rlbhpc.report.compare import Comparison, common_problems
from rlbhpc.report.markup import Node, el, note, table
from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.phrases import UNSOUND, count_text, interval_columns, interval_text, points_text
from rlbhpc.stats import Answer, Interval
from rlbhpc.stats.decision import decide, problems_with_samples, rate_text
from rlbhpc.stats.joint import Finding
from rlbhpc.stats.seeds import seeds_curve
from rlbhpc.stats.verifier_error import ErrorCounts
from rlbhpc.study.schema import MoreSampling


def comparison(report: Report, pair: Comparison) -> list[Node]:
    """The answer of one comparison in sentences, and under which conditions it holds."""
    sentences = [*pair.words, strictness_sentence(report, pair), conditions(report, pair)]
    return [el("p", sentence) for sentence in sentences if sentence]


def conditions(report: Report, pair: Comparison) -> str:
    """One line with checkpoints, temperature, prompt, grader and K, the trained arm first.

    An answer holds under these conditions alone. K is the samples of each problem that it speaks
    about. Where both arms have the same value it is written once, else as "x against y".
    """
    sides = (pair.trained, pair.base)
    settings = [settings_of(report, side) for side in sides]
    labels = {"temperature": "temperature", "top_p": "top-p"}
    for name in (*MoreSampling.model_fields, "prompt", "grader"):
        if name in settings[0] or name in settings[1]:
            labels[name] = name.replace("_", " ")
    steps = _joined_if_different([f"step {side.step:,}" for side in sides])
    texts = [f"Checkpoint: {steps}"]
    for name, label in labels.items():
        values = [_setting_text(of_side.get(name)) for of_side in settings]
        texts.append(f"{label}: {_joined_if_different(values)}")
    return f"{'; '.join(texts)}; K = {pair.reach:,}."


def settings_of(report: Report, side: MeasuredArm) -> dict[str, Any]:
    """How an arm was sampled and judged: values by the name of the setting.

    What the study plans goes before what is stored with the samples (*provenance*); ``grader`` is
    always what really judged them.
    """
    stored = report.provenance.get(side.group, {})
    settings = {**stored.get("sampling", {}), "prompt": stored.get("prompt")}
    arm = report.study_arms.get(side.arm)
    if arm is not None:
        settings |= {**arm.sampling.record(), "prompt": arm.prompt}
    return {**settings, "grader": _grader(stored)}


def _grader(stored: Mapping[str, Any]) -> str | None:
    """Who judged: this program, the study's own verifier, or who wrote the imported files.

    ``stored``: what is known of how a group of samples was made. None where nobody is named.
    """
    files = stored.get("imported", {})
    judges = {str(origin.get("judged_by", "the file")) for origin in files.values()}
    if judges:
        return ", ".join(sorted(judges))
    if "graders" in stored:
        return ", ".join(stored["graders"]) or None
    return f"rlbhpc {stored['rlbhpc']}" if "rlbhpc" in stored else None


def _setting_text(value: object) -> str:
    if value is None:
        return "not known"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _joined_if_different(values: list[str]) -> str:
    return " against ".join(dict.fromkeys(values))


def conclusions_frame(report: Report) -> pd.DataFrame:
    """The answer with the numbers that it stands on, one row per last comparison."""
    return pd.DataFrame(_conclusion(report, pair) for pair in report.last_comparisons)


def _conclusion(report: Report, pair: Comparison) -> dict[str, object]:
    """One row of the table of answers: a comparison's word and the numbers behind it, by column.

    *Lost* and *gained*: problems that only the base, or only the trained arm, can solve in
    practice. ``beyond``: what is open of the difference at ten times K and in the limit.
    *Crossing*: the k at which the two curves may change order. ``pair.solved``: how many problems
    both, one or none of the arms solved; None where that is not known. ``pair.net``: trained minus
    base pass@k at the largest k.
    """
    answer, crossing, solved = pair.answer, pair.crossing, pair.solved
    at_more, in_limit = answer.beyond
    return {
        "problem_set": pair.problem_set,
        "base": pair.base.arm,
        "base_step": pair.base.step,
        "trained": pair.trained.arm,
        "step": pair.trained.step,
        "answer": answer.headline,
        **finding_columns("lost", answer.lost),
        "lost_count": answer.lost.count,
        **finding_columns("gained", answer.gained),
        "gained_count": answer.gained.count,
        "problems": len(pair.problems),
        "problems_left_out": len(pair.left_out),
        "k": pair.reach,
        **interval_columns("difference", pair.net),
        "difference_10k_low": at_more.low,
        "difference_10k_high": at_more.high,
        "difference_limit_low": in_limit.low,
        "difference_limit_high": in_limit.high,
        "crossings": ", ".join(map(str, crossing.first_k.tolist())),
        "crossing_sets": " ".join(map(str, crossing.sets)),
        "p_crossing": crossing.probability,
        "p_moved": pair.curve.p_moved,
        "p_moved_holm": pair.p_moved_holm,
        **(solved.counts if solved else {}),
        "p_mcnemar": solved.p_value if solved else math.nan,
        "p_mcnemar_holm": pair.p_solved_holm,
        "words": " ".join((*pair.words, conditions(report, pair))),
    }


def finding_columns(side: str, finding: Finding) -> dict[str, object]:
    """Table columns of what the answer says of one side: its verdict, and the share with bounds.

    ``side``: ``lost`` or ``gained``; begins the names of the columns.
    """
    return {
        side: str(finding.verdict),
        f"{side}_share": finding.estimate,
        f"{side}_low": finding.low,
        f"{side}_high": finding.high,
    }


ASPECT = Aspect(
    Part.COMPARISONS,
    comparison=comparison,
    tables=lambda report: {"conclusions": conclusions_frame(report)},
)


# By the direction of an answer.
_SIGNS: Final = {"lost": "▼", "gained": "▲", "both": "⇅", "same": "=", "open": "?"}


def sign(pair: Comparison) -> str:
    """The sign of an answer, which needs no colour."""
    return _SIGNS[pair.answer.direction]


def verdict(pair: Comparison) -> str:
    """The word of an answer behind its sign."""
    return f"{sign(pair)} {pair.answer.headline}"


def counts_text(pair: Comparison) -> str:
    """``only base 25, only trained 9 of 128``: problems that only one of the two solves."""
    lost, gained = pair.answer.lost, pair.answer.gained
    left_out = f", {len(pair.left_out):,} left out" if pair.left_out else ""
    return f"only base {lost.count}, only trained {gained.count} of {lost.problems:,}{left_out}"


def net_text(pair: Comparison) -> str:
    """``net −4.1 [−8.0, −0.5]``: the difference at the largest k with its interval."""
    return f"net {interval_text(pair.net, sign=True)}"


def net_at_one_text(pair: Comparison) -> str:
    """The difference at k = 1."""
    return points_text(float(pair.pointwise.estimate[0]))


def tip_text(pair: Comparison) -> str:
    """Up to which rate of false right verdicts an answer holds: ``survives f ≤ 2e-4 in base``.

    f is the share of wrong responses that the verifier calls right. ``answer.tips``: for each
    statement of the answer, the rate at which it falls, and the arm whose false rights would
    explain it. The text is of the first to fall; empty where nothing is claimed. An audit, where
    there was one, adds what people found among the responses that they read again.
    """
    if not pair.answer.tips:
        return ""
    tip = min(pair.answer.tips, key=lambda tip: tip.rate)
    side = pair.base if tip.arm == "base" else pair.trained
    audited = ""
    if isinstance(side.errors, ErrorCounts):
        audited = f" ({side.errors.false_right:g} in {side.errors.audited_right:,.0f} audited)"
    if tip.all_allowed:
        return f"survives every f that the counts allow{audited}"
    if tip.rate == 0:
        return f"falls with any f in {side.arm}{audited}"
    return f"survives f ≤ {rate_text(tip.rate)} in {side.arm}{audited}"


def several_bases(report: Report) -> bool:
    """Whether an arm's name alone does not say what it is compared with."""
    return len({pair.base.arm for pair in report.last_comparisons}) > 1


def matrix(report: Report) -> ET.Element:
    """The table of answers, trained arms × problem sets, as HTML, with a note on how to read it.

    Each cell shows one comparison and links to it. A row is a trained arm; its head names the base
    too where there are several, and the training step. On a narrow screen the style sheet gives
    each cell a line of its own. ``el`` makes an HTML element.
    """
    sets = [set_name for set_name, _ in report.by_set(report.last_comparisons)]
    rows: dict[tuple[str, str], dict[str, ET.Element]] = {}
    steps: dict[tuple[str, str], int] = {}
    for number, pair in enumerate(report.last_comparisons, start=1):
        arms = (pair.trained.arm, pair.base.arm)
        steps.setdefault(arms, pair.trained.step)
        rows.setdefault(arms, {})[pair.problem_set] = _matrix_cell(number, pair)
    body = el("tbody")
    for (trained, base), cells in rows.items():
        against = f" against {base}" if several_bases(report) else ""
        step = f" step {steps[trained, base]:,}" if steps[trained, base] else ""
        head = el("th", trained, el("small", f"{against}{step}"), scope="row")
        body.append(el("tr", head, *(cells.get(set_name, el("td", "–")) for set_name in sets)))
    heads = el("tr", *(el("th", head, scope="col") for head in ("arm", *sets)))
    return el(
        "div",
        el("table", el("thead", heads), body, class_="matrix"),
        note(_matrix_explanation(report)),
        class_="answer",
    )


def _matrix_cell(number: int, pair: Comparison) -> ET.Element:
    """One cell of the table of answers: the word with its sign, the counts, and the difference.

    ``number``: the comparison's place on the page, from 1, to which the word links. ``net_text`` is
    like ``net −4.1 [−8.0, −0.5]``; ``partition`` splits it so that the interval is not broken over
    two lines. ``el`` makes an HTML element.
    """
    word = el("a", pair.answer.headline, href=f"#comparison-{number}", class_="word")
    estimate, bracket, bounds = net_text(pair).partition("[")
    interval = el("span", f"{bracket}{bounds}", class_="whole")
    lines = [
        el("span", el("span", sign(pair), class_="sign"), " ", word, class_="line"),
        el("span", counts_text(pair), class_="line"),
        el("span", estimate, interval, class_="line"),
    ]
    if survives := tip_text(pair):
        lines.append(el("span", survives, class_="line"))
    return el("td", *lines, class_=pair.answer.direction, data_set=pair.problem_set)


def _matrix_explanation(report: Report) -> str:
    """The note below the table of answers: what its words, counts and signs mean.

    ``pair.reach``: K, the samples of each problem that a comparison speaks about. ``pair.net``: the
    difference of pass@K. Sentences on f, on ``?`` and on undecided answers are only there if the
    table has such cells.
    """
    pairs = report.last_comparisons
    reaches = sorted({pair.reach for pair in pairs})
    sizes = f"{reaches[0]:,}" if len(reaches) == 1 else f"{reaches[0]:,} to {reaches[-1]:,}"
    bases = ", ".join(dict.fromkeys(pair.base.arm for pair in pairs))
    level = f"{100 * report.settings.prob:g} %"
    sentences = [
        f"Against {bases}, in K = {sizes} samples of each problem. Counts: problems that only the "
        "base, or only the trained arm, solves in them. Words ask more: a problem is lost if it "
        "takes the trained arm ten times the samples of the base, gained the other way round. "
        f"Net: trained − base pass@K in points with its {level} interval."
    ]
    if any(tip_text(pair) for pair in pairs):
        sentences.append(
            "f: share of wrong responses that the verifier calls right; up to it a cell stands."
        )
    if any("?" in net_text(pair) for pair in pairs):
        sentences.append(UNSOUND)
    if any(pair.answer.direction == "open" and pair.net.sign for pair in pairs):
        sentences.append(
            "Where an interval without 0 stands beside ?, the word needs more: words share one "
            f"error over all questions of {count_text(len(pairs), 'comparison')}, and each "
            "interval has its own."
        )
    return " ".join(sentences)


def comparison_line(pair: Comparison) -> str:
    """One line of a comparison: for the heads of the folded parts, and for a terminal."""
    return (
        f"{sign(pair)} {pair.trained.arm} against {pair.base.arm} on {pair.problem_set}: "
        f"{pair.answer.headline}; {counts_text(pair)}; {net_text(pair)} at k = {pair.reach:,}, "
        f"{net_at_one_text(pair)} at k = 1"
    )


@dataclass(frozen=True)
class Recipe:
    """All trainings of one recipe against their base on one problem set, pooled.

    ``looked``: whether looks decide about some of them.
    """

    name: str
    base: str
    problem_set: str
    arms: tuple[str, ...]
    answer: Answer
    looked: bool

    @property
    def words(self) -> tuple[str, ...]:
        """The answer in sentences.

        *Looks* are the tests that `plan --until` makes between rounds of sampling to decide when to
        stop. They have no part in this pooled answer, which a sentence says where there were any.
        """
        sentences = self.answer.sentences()
        if not self.looked:
            return sentences
        return (
            *sentences,
            f"This is one test of the first {self.answer.k:,} samples of each problem: looks of "
            "`plan --until` decide about each training by itself, and have no part in it.",
        )

    @property
    def title(self) -> str:
        """Name both sides and the problem set."""
        seeds = f"{len(self.arms)} seeds of {self.name}"
        return f"{seeds} against {self.base} on {self.problem_set}"


@dataclass(frozen=True)
class Mean:
    """Trained minus base, averaged over problem sets with equal weights.

    ``at_1, at_k``: at k = 1, and at ``k``, the largest one that all the sets have.
    """

    name: str
    base: str
    trained: str
    sets: tuple[str, ...]
    k: int
    at_1: Interval
    at_k: Interval


@once_each
def recipes(report: Report) -> Iterator[Recipe]:
    """Pool the seeds of every recipe of which two or more were compared with the same base.

    A *recipe* is one way to train; its seeds are trainings that differ only by their random
    numbers. ``settings.trainings``: the arms of each recipe. A pool is on one problem set.
    """
    for name, arms in report.settings.trainings.items():
        pairs_of_base: dict[tuple[int, str], list[Comparison]] = {}
        for pair in report.last_comparisons:
            if pair.trained.arm in arms:
                pairs_of_base.setdefault((id(pair.base), pair.problem_set), []).append(pair)
        for pairs in pairs_of_base.values():
            if len(pairs) > 1:
                yield _pool_seeds(report, name, pairs)


def _pool_seeds(report: Report, name: str, pairs: list[Comparison]) -> Recipe:
    """Decide what a recipe of training does, with the trainings of all its seeds together.

    ``pairs``: each seed's comparison with the same base on the same problem set. ``enough``:
    whether a problem has as many samples in all arms as nearly all problems have; others are left
    out. ``seeds_curve``: base against the mean of the seeds at each k. ``decide``: the answer in
    words; all comparisons of the report share its error.
    """
    base, trained = pairs[0].base, [pair.trained for pair in pairs]
    problems = common_problems([base, *trained])
    enough = problems_with_samples(
        base.counts_of(problems), [arm.counts_of(problems) for arm in trained]
    )
    kept = [problem for problem, keep in zip(problems, enough, strict=True) if keep]
    settings = report.settings
    curve = seeds_curve(
        base.counts_of(kept),
        [arm.counts_of(kept) for arm in trained],
        np.random.default_rng(settings.seed),
        settings.replicates,
        prob=settings.prob,
        clusters=settings.cluster_labels(kept),
    )
    left_out = tuple(np.flatnonzero(~enough).tolist())
    return Recipe(
        name,
        base.label,
        base.problem_set,
        arms=tuple(arm.arm for arm in trained),
        answer=decide(curve, settings.margin, left_out, len(report.last_comparisons)),
        looked=any(pair.look is not None for pair in pairs),
    )


@once_each
def means(report: Report) -> Iterator[Mean]:
    """Average over problem sets, for each named mean and pair of arms that has all its sets.

    ``settings.averages``: the problem sets of each mean that the study asks for. ``pair.reach``:
    the largest k of a comparison; a mean ends at the smallest of them.
    """
    pairs_of_arms: dict[tuple[str, str], dict[str, Comparison]] = {}
    for pair in report.last_comparisons:
        arms = (pair.base.arm, pair.trained.arm)
        pairs_of_arms.setdefault(arms, {})[pair.problem_set] = pair
    for name, sets in report.settings.averages.items():
        for (base, trained), pair_of_set in pairs_of_arms.items():
            if pair_of_set.keys() >= set(sets):
                pairs = [pair_of_set[set_name] for set_name in sets]
                k = min(pair.reach for pair in pairs)
                mean = _mean_over_sets(report, pairs, k)
                yield Mean(name, base, trained, sets, k, mean[0], mean[1])


def _mean_over_sets(report: Report, pairs: list[Comparison], k: int) -> Interval:
    """The mean difference over problem sets, with its interval, at k = 1 and at ``k``.

    Sets are independent of each other. So the squares of the intervals' half widths add up, and
    that of the mean of m sets is the root of their sum, over m. ``pass_at_k``: ``[problem, k]``.
    ``sound``: whether the bounds can be relied on; all sets must be.
    """
    intervals = []
    for pair in pairs:
        base, trained = pair.base_counts.pass_at_k([1, k]), pair.trained_counts.pass_at_k([1, k])
        intervals.append(report.difference_interval(trained - base, pair.problems))
    estimate = np.mean([each.estimate for each in intervals], axis=0)
    squares = [((each.upper - each.lower) / 2) ** 2 for each in intervals]
    half_width = np.sqrt(np.mean(squares, axis=0) / len(intervals))
    return Interval(
        estimate,
        estimate - half_width,
        estimate + half_width,
        intervals[0].target,
        "mean of independent sets",
        intervals[0].prob,
        np.all([each.sound for each in intervals], axis=0),
    )


def pooled_answers(report: Report) -> list[Node]:
    """The pooled answers below the matrix, as HTML: over seeds of a recipe, and over problem sets.

    A *recipe* is one way to train, with several seeds. Each gets a paragraph, and all means over
    problem sets stand in one table. ``el`` makes an HTML element.
    """
    nodes: list[Node] = []
    for recipe in recipes(report):
        head = el("strong", f"{recipe.title}: {recipe.answer.headline}.")
        nodes.append(el("p", head, f" {' '.join(recipe.words)}"))
    if means(report):
        heads = ["mean", "arm", "against", "sets", "K", "at k = 1, points", "at K, points"]
        rows = [
            [mean.name, mean.trained, mean.base, len(mean.sets), mean.k,
             interval_text(mean.at_1, sign=True), interval_text(mean.at_k, sign=True)]
            for mean in means(report)
        ]  # fmt: skip
        nodes.append(table("Means over problem sets, each with the same weight", heads, rows))
    return nodes


def pooled_lines(report: Report) -> Iterator[str]:
    """The pooled answers for a terminal, one line each: recipes over seeds, means over sets.

    ``lost.count``, ``gained.count``: problems that only the base, or only the trained side, solves.
    ``net``: trained minus base at the largest k.
    """
    for recipe in recipes(report):
        answer = recipe.answer
        yield (
            f"{recipe.title}: {answer.headline}; only base {answer.lost.count}, only "
            f"trained {answer.gained.count} of {answer.lost.problems:,}; net "
            f"{interval_text(answer.net, sign=True)}"
        )
    for mean in means(report):
        yield (
            f"{mean.name}: {mean.trained} against {mean.base} "
            f"{interval_text(mean.at_1, sign=True)} at k = 1, "
            f"{interval_text(mean.at_k, sign=True)} at k = {mean.k:,}"
        )


def recipes_frame(recipes: Sequence[Recipe]) -> pd.DataFrame:
    """The pooled answers as a table, one row per recipe and problem set.

    A *recipe* is one way to train; ``arms`` are its seeds. The columns ``sd_`` are standard
    deviations of the difference: between seeds, between problems, and of the rest.
    """
    rows = []
    for recipe in recipes:
        answer, spread = recipe.answer, recipe.answer.spread
        row: dict[str, object] = {
            "problem_set": recipe.problem_set,
            "base": recipe.base,
            "recipe": recipe.name,
            "arms": " ".join(recipe.arms),
            "answer": answer.headline,
            **finding_columns("lost", answer.lost),
            **finding_columns("gained", answer.gained),
            "k": answer.k,
            **interval_columns("difference", answer.net),
            "sd_seeds": spread.seeds if spread else math.nan,
            "sd_problems": spread.problems if spread else math.nan,
            "sd_rest": spread.rest if spread else math.nan,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def means_frame(means: Sequence[Mean]) -> pd.DataFrame:
    """The means over problem sets as a table, one row per mean, pair of arms and k.

    A mean has the difference, trained minus base, at k = 1 and at ``mean.k``, the largest k that
    all its sets have.
    """
    return pd.DataFrame(
        {
            "mean": mean.name,
            "problem_sets": " ".join(mean.sets),
            "base": mean.base,
            "trained": mean.trained,
            "k": k,
            **interval_columns("difference", interval),
        }
        for mean in means
        for k, interval in ((1, mean.at_1), (mean.k, mean.at_k))
    )


POOLED = Aspect(
    Part.COMPARISONS,
    tables=lambda report: {
        "seeds": recipes_frame(recipes(report)),
        "means": means_frame(means(report)),
    },
)
