"""The answer: its matrix, its words and conditions, and what is pooled over seeds and sets."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report, once_each
from rlbhpc.report.aspects.robustness import strictness
from rlbhpc.report.compare import Comparison, common_problems
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import Measured
from rlbhpc.report.phrases import UNSOUND, count_text, interval_columns, interval_text, points_text
from rlbhpc.stats import Answer, Interval
from rlbhpc.stats.decision import decide, problems_with_samples, rate_text
from rlbhpc.stats.joint import Finding
from rlbhpc.stats.seeds import seeds_curve
from rlbhpc.stats.verifier_error import ErrorCounts
from rlbhpc.study.schema import MoreSampling


def comparison(report: Report, pair: Comparison) -> list[Node]:
    """What follows from one comparison, in sentences, and under which conditions."""
    sentences = [*pair.words, strictness(report, pair), conditions(report, pair)]
    return [el("p", sentence) for sentence in sentences if sentence]


def conditions(report: Report, pair: Comparison) -> str:
    """Name checkpoints, temperature, prompt, grader and K, the trained arm first.

    An answer holds for these alone.
    """
    sides = pair.trained, pair.base
    both_asked = [settings_of(report, side) for side in sides]
    more = [name for name in MoreSampling.model_fields if any(name in a for a in both_asked)]
    labels = {"temperature": "temperature", "top_p": "top-p"}
    labels |= {name: name.replace("_", " ") for name in (*more, "prompt", "grader")}
    settings = "; ".join(
        f"{label}: {_both([_setting_text(values, name) for values in both_asked])}"
        for name, label in labels.items()
    )
    steps = _both([f"step {side.step:,}" for side in sides])
    return f"Checkpoint: {steps}; {settings}; K = {pair.reach:,}."


def settings_of(report: Report, side: Measured) -> dict[str, Any]:
    """How an arm was sampled and judged, as its study says, else as its samples do."""
    stored = report.provenance.get(f"{side.arm}/{side.problem_set}", {})
    sampling = {**stored.get("sampling", {}), "prompt": stored.get("prompt")}
    arm = report.arms.get(side.arm)
    if arm is not None:
        sampling |= {**arm.sampling.record(), "prompt": arm.prompt}
    return {**sampling, "grader": _grader(stored)}


def _grader(stored: Mapping[str, Any]) -> str | None:
    """Who judged: this program, the study's own verifier, or who wrote the imported files."""
    files = stored.get("imported", {})
    judges = {str(origin.get("judged_by", "the file")) for origin in files.values()}
    if judges:
        return ", ".join(sorted(judges))
    if "graders" in stored:
        return ", ".join(stored["graders"]) or None
    return f"rlbhpc {stored['rlbhpc']}" if "rlbhpc" in stored else None


def _setting_text(values: Mapping[str, object], name: str) -> str:
    value = values.get(name)
    if value is None:
        return "not known"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _both(values: list[str]) -> str:
    """Once where both arms have it, else both."""
    return " against ".join(dict.fromkeys(values))


def conclusions_frame(report: Report) -> pd.DataFrame:
    """The answer with the numbers that it stands on, one row per comparison at its last step."""
    return pd.DataFrame([_conclusion(report, pair) for pair in report.final])


def _conclusion(report: Report, pair: Comparison) -> dict[str, object]:
    answer, crossing = pair.answer, pair.crossing
    further = {
        f"{name}{end}": value
        for name, contrast in zip(("fit", "fit_10k", "fit_limit"), answer.contrasts, strict=True)
        for end, value in (("", contrast.fit), ("_low", contrast.low), ("_high", contrast.high))
    }
    cells = pair.solved.counts if pair.solved else {}
    return {
        "problem_set": pair.base.problem_set,
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
        **further,
        "crossings": ", ".join(str(k) for k in crossing.first_k.tolist()),
        "crossing_sets": " ".join(str(part) for part in crossing.sets),
        "p_crossing": crossing.probability,
        "p_moved": pair.curve.p_moved,
        "p_moved_holm": pair.p_moved_holm,
        **cells,
        "p_mcnemar": pair.solved.p_value if pair.solved else float("nan"),
        "p_mcnemar_holm": pair.p_solved_holm,
        "words": " ".join((*pair.words, conditions(report, pair))),
    }


def finding_columns(name: str, finding: Finding) -> dict[str, object]:
    """Columns of what was lost, or gained."""
    return {
        name: str(finding.verdict),
        f"{name}_share": finding.estimate,
        f"{name}_low": finding.low,
        f"{name}_high": finding.high,
    }


ASPECT = Aspect(
    Part.COMPARISONS,
    comparison=comparison,
    tables=lambda report: {"conclusions": conclusions_frame(report)},
)


_SIGNS: Final = {"lost": "▼", "gained": "▲", "both": "⇅", "same": "=", "open": "?"}


def verdict(pair: Comparison) -> str:
    """The word of a comparison behind a sign that needs no colour."""
    return f"{sign(pair)} {pair.answer.headline}"


def sign(pair: Comparison) -> str:
    """The sign of what a comparison says."""
    return _SIGNS[_kind(pair)]


def _kind(pair: Comparison) -> str:
    return pair.answer.direction


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
    """``survives f ≤ 2e-4 in the base``: the verifier's error at which the cell falls.

    It is that of the first of its statements to fall; nothing where nothing is claimed.
    """
    if not pair.answer.tips:
        return ""
    tip = min(pair.answer.tips, key=lambda tip: tip.rate)
    side = pair.base if tip.arm == "base" else pair.trained
    seen = ""
    if isinstance(side.errors, ErrorCounts):
        seen = f" ({side.errors.false_right:g} in {side.errors.audited_right:,.0f} audited)"
    if tip.all_allowed:
        return f"survives every f that the counts allow{seen}"
    if tip.rate == 0:
        return f"falls with any f in {side.arm}{seen}"
    return f"survives f ≤ {rate_text(tip.rate)} in {side.arm}{seen}"


def several_bases(report: Report) -> bool:
    """Whether an arm's name alone does not say what it is compared with."""
    return len({pair.base.arm for pair in report.final}) > 1


def matrix(report: Report) -> ET.Element:
    """Lay out arms × problem sets; on a narrow screen each cell is a line of its own."""
    sets = [name for name, _ in report.by_set(report.final)]
    arms = dict.fromkeys((pair.trained.arm, pair.base.arm) for pair in report.final)
    heads: list[Node] = [el("th", "arm", scope="col"), *(el("th", s, scope="col") for s in sets)]
    rows = []
    for trained, base in arms:
        pairs = {
            pair.base.problem_set: (number, pair)
            for number, pair in enumerate(report.final)
            if (pair.trained.arm, pair.base.arm) == (trained, base)
        }
        against = f" against {base}" if several_bases(report) else ""
        cells = [_cell(set_name, *pairs[set_name]) if set_name in pairs else el("td", "–")
                 for set_name in sets]  # fmt: skip
        step = next(iter(pairs.values()))[1].trained.step
        name = el("th", trained, el("small", f"{against}{f' step {step:,}' if step else ''}"),
                  scope="row")  # fmt: skip
        rows.append(el("tr", name, *cells))
    body = el("table", el("thead", el("tr", *heads)), el("tbody", *rows), class_="matrix")
    reach = sorted({pair.reach for pair in report.final})
    sizes = f"{reach[0]:,}" if len(reach) == 1 else f"{reach[0]:,} to {reach[-1]:,}"
    level = f"{100 * report.settings.prob:g} %"
    bases = ", ".join(dict.fromkeys(base for _, base in arms))
    doubt = f" {UNSOUND}" if any("?" in net_text(pair) for pair in report.final) else ""
    if any(_kind(pair) == "open" and pair.net.sign for pair in report.final):
        doubt += (
            " Where an interval without 0 stands beside ?, the word needs more: words share one "
            f"error over all questions of {count_text(len(report.final), 'comparison')}, and each "
            "interval has its own."
        )
    words = note(
        f"Against {bases}, in K = {sizes} samples of each problem. Counts: problems that only the "
        "base, or only the trained arm, solves in them. Words ask more: a problem is lost if it "
        "takes the trained arm ten times the samples of the base, gained the other way round. "
        f"Net: trained − base pass@K in points with its {level} interval."
        f"{_f_words(report)}{doubt}"
    )
    return el("div", body, words, class_="answer")


def _f_words(report: Report) -> str:
    if not any(tip_text(pair) for pair in report.final):
        return ""
    return " f: share of wrong responses that the verifier calls right; up to it a cell stands."


def _cell(set_name: str, number: int, pair: Comparison) -> ET.Element:
    word = el("a", pair.answer.headline, href=f"#comparison-{number + 1}", class_="word")
    lines = [el("span", el("span", sign(pair), class_="sign"), " ", word, class_="line")]
    estimate, bracket, ends = net_text(pair).partition("[")
    interval = el("span", estimate, el("span", f"{bracket}{ends}", class_="whole"), class_="line")
    lines += [el("span", counts_text(pair), class_="line"), interval]
    if survives := tip_text(pair):
        lines.append(el("span", survives, class_="line"))
    return el("td", *lines, class_=_kind(pair), data_set=set_name)


def comparison_line(pair: Comparison) -> str:
    """One line of a comparison: for the heads of the folded parts, and for a terminal."""
    return (
        f"{sign(pair)} {pair.trained.arm} against {pair.base.arm} on {pair.problem_set}: "
        f"{pair.answer.headline}; {counts_text(pair)}; {net_text(pair)} at k = {pair.reach:,}, "
        f"{net_at_one_text(pair)} at k = 1"
    )


@dataclass(frozen=True)
class Recipe:
    """All trainings of one recipe against their base on one problem set.

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
        """The answer in sentences."""
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
    """Mean over problem sets, each with the same weight, of one comparison of two arms.

    ``first, last``: trained minus base at k = 1 and at the largest k that all the sets have.
    """

    name: str
    base: str
    trained: str
    sets: tuple[str, ...]
    k: int
    first: Interval
    last: Interval


@once_each
def recipes(report: Report) -> Iterator[Recipe]:
    """Pool the seeds of every recipe of which two or more were compared."""
    for name, arms in report.settings.trainings.items():
        lines: dict[tuple[int, str], list[Comparison]] = {}
        for pair in report.final:
            if pair.trained.arm in arms:
                lines.setdefault((id(pair.base), pair.base.problem_set), []).append(pair)
        for pairs in lines.values():
            if len(pairs) > 1:
                yield _recipe(report, name, pairs)


def _recipe(report: Report, name: str, pairs: list[Comparison]) -> Recipe:
    base, runs = pairs[0].base, [pair.trained for pair in pairs]
    problems = common_problems([base, *runs])
    ours = base.counts_of(problems)
    theirs = [run.counts_of(problems) for run in runs]
    enough = problems_with_samples(ours, theirs)
    settings = report.settings
    curve = seeds_curve(
        ours[enough],
        [run[enough] for run in theirs],
        np.random.default_rng(settings.seed),
        settings.replicates,
        prob=settings.prob,
        clusters=settings.labels([p for p, has in zip(problems, enough, strict=True) if has]),
    )
    left_out = tuple(np.flatnonzero(~enough).tolist())
    answer = decide(curve, settings.margin, left_out, len(report.final))
    arms = tuple(run.arm for run in runs)
    looked = any(pair.look is not None for pair in pairs)
    return Recipe(name, base.label, base.problem_set, arms, answer, looked)


@once_each
def means(report: Report) -> Iterator[Mean]:
    """Take the named means of every pair of arms that was compared on all of their sets."""
    for name, sets in report.settings.averages.items():
        lines: dict[tuple[str, str], dict[str, Comparison]] = {}
        for pair in report.final:
            arms = (pair.base.arm, pair.trained.arm)
            lines.setdefault(arms, {})[pair.base.problem_set] = pair
        for (base, trained), pairs in lines.items():
            if set(sets) <= set(pairs):
                yield _mean(report, (name, base, trained), [pairs[s] for s in sets])


def _mean(report: Report, names: tuple[str, str, str], pairs: list[Comparison]) -> Mean:
    k = min(pair.reach for pair in pairs)
    parts = [_at(report, pair, k) for pair in pairs]
    # Different problems: the sets are independent of each other.
    estimate = np.mean([part.estimate for part in parts], axis=0)
    half = np.sqrt(np.mean([((p.upper - p.lower) / 2) ** 2 for p in parts], axis=0) / len(parts))
    mean = Interval(
        estimate,
        estimate - half,
        estimate + half,
        parts[0].target,
        "mean of independent sets",
        parts[0].prob,
        np.all([part.sound for part in parts], axis=0),
    )
    return Mean(*names, tuple(pair.base.problem_set for pair in pairs), k, mean[0], mean[1])


def _at(report: Report, pair: Comparison, k: int) -> Interval:
    sides = pair.sides
    difference = sides.trained.pass_at_k([1, k]) - sides.base.pass_at_k([1, k])
    return report.paired(difference, pair.problems)


def pooled_answers(report: Report) -> list[Node]:
    """What stands below the matrix."""
    nodes: list[Node] = []
    for recipe in recipes(report):
        head = el("strong", f"{recipe.title}: {recipe.answer.headline}.")
        nodes.append(el("p", head, f" {' '.join(recipe.words)}"))
    rows: list[list[Cell]] = [
        [mean.name, mean.trained, mean.base, len(mean.sets), mean.k,
         interval_text(mean.first, sign=True), interval_text(mean.last, sign=True)]
        for mean in means(report)
    ]  # fmt: skip
    if rows:
        heads = ["mean", "arm", "against", "sets", "K", "at k = 1, points", "at K, points"]
        nodes.append(table("Means over problem sets, each with the same weight", heads, rows))
    return nodes


def pooled_lines(report: Report) -> list[str]:
    """One line each, for a terminal."""
    of_recipes = [
        f"{recipe.title}: {recipe.answer.headline}; only base {recipe.answer.lost.count}, only "
        f"trained {recipe.answer.gained.count} of {recipe.answer.lost.problems:,}; net "
        f"{interval_text(recipe.answer.net, sign=True)}"
        for recipe in recipes(report)
    ]
    of_means = [
        f"{mean.name}: {mean.trained} against {mean.base} "
        f"{interval_text(mean.first, sign=True)} at k = 1, "
        f"{interval_text(mean.last, sign=True)} at k = {mean.k:,}"
        for mean in means(report)
    ]
    return of_recipes + of_means


def recipes_frame(pooled: list[Recipe]) -> pd.DataFrame:
    """One row per recipe and problem set."""
    return pd.DataFrame(_row(recipe) for recipe in pooled)


def _row(recipe: Recipe) -> dict[str, object]:
    answer = recipe.answer
    spread = answer.spread
    return {
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


def means_frame(pooled: list[Mean]) -> pd.DataFrame:
    """One row per mean and pair of arms."""
    return pd.DataFrame(
        {
            "mean": mean.name,
            "problem_sets": " ".join(mean.sets),
            "base": mean.base,
            "trained": mean.trained,
            "k": k,
            **interval_columns("difference", interval),
        }
        for mean in pooled
        for k, interval in ((1, mean.first), (mean.k, mean.last))
    )


POOLED = Aspect(
    Part.COMPARISONS,
    tables=lambda report: {
        "seeds": recipes_frame(recipes(report)),
        "means": means_frame(means(report)),
    },
)
