"""One model under several prompts: how much of a difference the template alone makes."""

from __future__ import annotations

from dataclasses import dataclass

from rlbhpc.report.compare import common_problems
from rlbhpc.report.gather import Report
from rlbhpc.report.guesses import PROMPT
from rlbhpc.report.measured import Measured
from rlbhpc.stats import Headline, Interval, k_grid
from rlbhpc.stats.prompts import PromptSpread, prompt_spread


@dataclass(frozen=True)
class Prompts:
    """A model at one step under all prompts that it was sampled with, otherwise alike.

    Attributes
    ----------
    arms
        The arm of each prompt, in the order of ``spread.prompts``.
    spread
        pass@k under each, and best minus worst.
    problems
        Problems that all these arms have samples of.
    """

    problem_set: str
    model: str
    step: int
    arms: tuple[Measured, ...]
    spread: PromptSpread
    problems: int

    @property
    def label(self) -> str:
        """Model and step in one name."""
        return self.model if self.step == 0 else f"{self.model}, step {self.step}"


@dataclass(frozen=True)
class UnderPrompt:
    """What a comparison says under one prompt: the answer must not hang on the template.

    ``base`` and ``trained`` name arms; ``quick`` and ``wide`` are trained minus base at k = 1 and
    at the largest k.
    """

    problem_set: str
    base: str
    trained: str
    prompt: str
    headline: Headline
    quick: Interval
    wide: Interval
    reach: int


def prompts(report: Report) -> list[Prompts]:
    """Compare the prompts of every model that was sampled under two or more.

    The prompt without reasoning asks another question, so it is none of them.
    """
    groups: dict[tuple[object, ...], list[Measured]] = {}
    for one in report.measured:
        arm = report.arms.get(one.arm)
        if arm is None or arm.prompt == PROMPT or not one.sampled.any():
            continue
        key = (one.problem_set, one.model, one.step, arm.sampling)
        groups.setdefault(key, []).append(one)
    found = []
    for arms in groups.values():
        # Arms of one prompt differ in nothing that is known here; the first one stands for it.
        by_prompt = {report.arms[one.arm].prompt: one for one in reversed(arms)}
        if len(by_prompt) > 1:
            made = _spread(report, dict(sorted(by_prompt.items())))
            found += [made] if made is not None else []
    return found


def under_prompts(report: Report) -> list[UnderPrompt]:
    """Last comparisons of two models that were made under two prompts or more."""
    groups: dict[tuple[object, ...], list[UnderPrompt]] = {}
    for one in report.final:
        base, trained = (report.arms.get(side.arm) for side in (one.base, one.trained))
        if base is None or trained is None or base.prompt != trained.prompt:
            continue
        alike = (base.sampling, trained.sampling)
        key = (one.base.problem_set, one.base.model, one.trained.model, alike)
        first, last = one.curve.pointwise[0], one.conclusion.at_reach
        names = (one.base.problem_set, one.base.label, one.trained.label)
        said = UnderPrompt(*names, base.prompt, one.conclusion.headline, first, last, one.reach)
        groups.setdefault(key, []).append(said)
    several = (group for group in groups.values() if len({one.prompt for one in group}) > 1)
    return [one for group in several for one in group]


def _spread(report: Report, by_prompt: dict[str, Measured]) -> Prompts | None:
    arms = tuple(by_prompt.values())
    problems = common_problems(arms)
    if len(problems) < 2:
        return None
    counts = {name: one.counts[one.rows_of(problems)] for name, one in by_prompt.items()}
    reach = min(one.reach for one in counts.values())
    spread = prompt_spread(counts, report.draws.of(problems), k_grid(reach), report.settings.prob)
    return Prompts(arms[0].problem_set, arms[0].model, arms[0].step, arms, spread, len(problems))
