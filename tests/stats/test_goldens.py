"""Whole results of small studies: every number, note and sentence of them.

That the numbers are right is what the other tests ask, by enumeration, simulation and published
values; these notice that one has moved. ``python -m tests.stats.test_goldens``
writes them anew. A number may differ by RELATIVE of itself or by ABSOLUTE.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.best_prompt import best_prompt, prompt_spread
from analysis.cover_at_tau import posterior_above
from analysis.extrapolation import held_out_check
from analysis.majority import entropy_by_problem
from analysis.perplexity_by_position import perplexity_by_position
from analysis.repeats import collisions, duplicates
from analysis.temperature import envelope, envelope_difference
from rlbhpc.stats import (
    Counts,
    Interval,
    ProblemWeights,
    answer,
    extrapolate,
    fixed_curve,
)
from rlbhpc.stats.curve import budget_curve, k_grid, pass_curve
from rlbhpc.stats.decision import decide
from rlbhpc.stats.design import Look, Power, look, smallest_loss
from rlbhpc.stats.difference import delta_se_interval, difference_curve
from rlbhpc.stats.exact import bayes_at_n
from rlbhpc.stats.extrapolation import fit_power_law
from rlbhpc.stats.interval import ratio_interval
from rlbhpc.stats.perplexities import summarize_perplexities
from rlbhpc.stats.priors import fit_prior
from rlbhpc.stats.seeds import seeds_curve
from rlbhpc.stats.votes import (
    maj_at_k_by_votes,
)
from tests.golden import differences, listed

# A mean of nothing warns before it is missing.
pytestmark = pytest.mark.filterwarnings("error")

GOLDENS = Path(__file__).with_name("goldens.txt")
RELATIVE, ABSOLUTE = 1e-4, 1e-6

BASE = Counts.of(
    16, [0, 0, 1, 1, 2, 2, 3, 3, 5, 5, 8, 8, 12, 12, 15, 15, 16, 16, 0, 1, 4, 6, 10, 16]
)
TRAINED = Counts.of(
    16, [0, 1, 0, 0, 0, 4, 8, 0, 9, 5, 12, 8, 16, 14, 16, 16, 16, 16, 0, 0, 9, 2, 13, 16]
)
STOPPED = Counts.of(
    [16, 16, 16, 9, 2, 3, 12] * 3, [0, 0, 1, 2, 2, 2, 2] * 3, stop_after=2, n_max=16
)
SOME_NEVER = Counts.of(16, [0] * 12 + [3, 4, 5, 6, 7, 8, 9, 9, 10, 11, 12, 14])
SOURCES = np.repeat(np.arange(8), [1, 2, 3, 4, 2, 3, 4, 5])


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def weights(problems: int = 24, clusters: Any = None, replicates: int = 200) -> ProblemWeights:
    return ProblemWeights.draw(problems, rng(), replicates, clusters)


def grown(counts: Counts, times: int) -> Counts:
    """The same problems several times."""
    return counts[np.tile(np.arange(len(counts)), times)]


def compared(base: Counts, trained: Counts, clusters: Any = None) -> list[Any]:
    curve = difference_curve(base, trained, weights(len(base), clusters))
    return [curve, curve.band, curve.p_moved, curve.crossing]


def answered(base: Counts, *trained: Counts, **options: Any) -> list[Any]:
    found = answer(base, list(trained), **options)
    return [found, *found.sentences()]


def decided(comparisons: int, seen: Look | None = None, trained: Counts = TRAINED) -> Any:
    curve = difference_curve(BASE, trained, weights(), k_grid(16))
    looked = None if seen is None else (seen.lost, seen.gained)
    return decide(curve, comparisons=comparisons, looked=looked)


def shifted(*shifts: int) -> list[Counts]:
    """Trainings of one recipe that lose some problems, each its own, and gain elsewhere."""
    runs = []
    for shift in shifts:
        c = np.clip(BASE.c + np.arange(24) % 5 - 1 + shift, 0, 16)
        c[shift : shift + 8] = 0
        runs.append(Counts.of(16, c))
    return runs


def one_lost() -> Counts:
    return Counts.of(16, np.where(np.arange(24) == 14, 0, BASE.c))


def looked(number: int, trained: Counts = TRAINED) -> list[Any]:
    view = look(BASE, trained, 16, number, comparisons=2)
    return [view, view.open_problems(lost=True, gained=False), view.open_problems(False, True)]


CASES: dict[str, Callable[[], Any]] = {
    "pass@k": lambda: pass_curve(BASE, weights()),
    "pass@k, half the probability": lambda: pass_curve(BASE, weights(), [1, 4, 5, 16], 0.5),
    "pass@k, sources": lambda: pass_curve(BASE, weights(24, SOURCES), [1, 4]),
    "pass@k of two problems": lambda: pass_curve(BASE[4:7:2], weights(2), [1, 4]),
    "pass@k, stopped": lambda: pass_curve(STOPPED, weights(21)),
    "pass@budget": lambda: budget_curve(BASE, 2.0, [1, 2, 8, 32], weights()),
    "difference": lambda: compared(BASE, TRAINED),
    "difference, sources": lambda: compared(BASE, TRAINED, SOURCES),
    "difference, a stopped arm": lambda: compared(STOPPED, Counts.of(16, np.arange(21) % 17)),
    "difference of many": lambda: compared(grown(BASE, 10), grown(TRAINED, 10)),
    "difference of two problems": lambda: compared(BASE[4:7:2], TRAINED[4:7:2]),
    "difference of one problem": lambda: compared(BASE[4:5], TRAINED[4:5]),
    "gap": lambda: [delta_se_interval(BASE, TRAINED, weights(), k) for k in (4, 5)],
    "these problems": lambda: fixed_curve(BASE),
    "these problems, up to half of n": lambda: fixed_curve(BASE, [1, 6]),
    "these problems, twenty": lambda: fixed_curve(BASE[np.arange(20)], [1, 8, 9, 16]),
    "these problems, nineteen": lambda: fixed_curve(BASE[np.arange(19)], [1, 8, 9, 16], 0.5),
    "these problems, many": lambda: fixed_curve(grown(BASE, 10), [1, 2, 8, 16]),
    "these problems, some never solved": lambda: fixed_curve(SOME_NEVER, [8, 12, 16]),
    "these problems, the solved alike": lambda: fixed_curve(
        Counts.of(16, [0] * 20 + [8] * 10 + [9] * 4), [16]
    ),
    "these problems, one never solved": lambda: fixed_curve(
        Counts.of(16, [0] + [1] * 8 + [2] * 6 + [5] * 9), [12, 16]
    ),
    "these problems, stopped": lambda: fixed_curve(STOPPED, [1, 8, 16]),
    "priors": lambda: [fit_prior(BASE, zeros) for zeros in (False, True)],
    "priors, some never solved": lambda: [fit_prior(SOME_NEVER, zeros) for zeros in (False, True)],
    "prior of none": lambda: fit_prior(Counts.of(8, [0, 0, 0]), True),
    "rates above": lambda: posterior_above(BASE, [0, 0.1, 1])[[0, 2, 16]],
    "extrapolation": lambda: extrapolate(BASE, [16, 160]),
    "extrapolation, some never solved": lambda: extrapolate(SOME_NEVER, [20, 50, 100]),
    "power laws": lambda: (
        [fit_power_law(Counts.of(n, [0, 1, c])) for n, c in ((2, 1), (3, 1), (8, 8))]
        + [fit_power_law(Counts.of(8, [1, 4, 8])), fit_power_law(Counts.of(8, [8, 8, 1]))]
    ),
    "extrapolation, far": lambda: extrapolate(grown(BASE, 3), [160, 161], 0.5, beyond=True),
    "extrapolation of a part": lambda: held_out_check(grown(BASE, 2), rng(), 0.25),
    "prompts": lambda: prompt_spread({"a": BASE, "b": TRAINED, "c": BASE[::-1]}, weights()),
    "fifty prompts": lambda: prompt_spread(
        {"a": Counts.of(8, [4, 6] * 25), "b": Counts.of(8, [1, 2] * 25)}, weights(50), [1, 8], 0.9
    ),
    "best prompt": lambda: best_prompt({"a": BASE[:8], "b": TRAINED[:8]}),
    "temperatures": lambda: envelope({1.0: TRAINED, 0.6: BASE}, weights(replicates=7), prob=0.9),
    "fifty temperatures": lambda: envelope_difference(
        envelope({0.6: grown(BASE, 3)[:50]}, weights(50), [1, 4]),
        envelope({0.6: grown(TRAINED, 3)[:50]}, weights(50), [1, 4]),
        0.9,
    ),
    "ratio": lambda: ratio_interval(np.arange(24.0), np.arange(24) % 7, weights(24, SOURCES)),
    "ratio of twenty": lambda: ratio_interval(np.arange(20.0), np.ones(20), weights(20), 0.5),
    "Bayes": lambda: [
        bayes_at_n([[0, 1, 2], [2, 2, 2]], [0, 0.5, 1]).interval(0.25, 0.75),
        bayes_at_n([[0, 1] * 40] * 3, prior_outcomes=[[1], [0], [1]]).interval(prob=0.5),
    ],
    "perplexity": lambda: [
        summarize_perplexities(np.exp(np.r_[np.arange(30.0), [np.nan] * 3].reshape(11, 3) / 10)),
        summarize_perplexities([np.nan]),
        summarize_perplexities(np.exp(np.arange(27.0).reshape(9, 3) / 10)),
        perplexity_by_position([-np.arange(100.0) / 50, -np.arange(95.0)]),
    ],
    "entropy": lambda: [
        entropy_by_problem([[5, 5, 7, 7, 8], [3, 3, 3, -1, -1], [-1] * 5, [4, -1, -1, -1, -1]]),
        entropy_by_problem([[5], [6]]),
        entropy_by_problem(np.empty((2, 0))),
    ],
    "collisions": lambda: [
        collisions(["a"] * 3 + ["b", "b", "c"], [-2.0] * 3 + [-12.0] * 3, 10),
        *(collisions(["a", "a", "b"], [-8.3] * 3, *many) for many in ((), (1,), (2,))),
        collisions(["a"], [-1.0]),
        duplicates([]),
        collisions(["a", "a"], [0.0, 0.5]),
    ],
    "votes": lambda: maj_at_k_by_votes(
        rng(1).integers(-1, 3, (4, 9)), rng(2).random((4, 9)) < 0.5, [1, 2, 3, 9, 10], rng()
    ),
    "votes of none": lambda: maj_at_k_by_votes(np.empty((2, 0)), np.empty((2, 0)), [1, 2], rng()),
    "answer, a solved problem more": lambda: answered(
        Counts.of([5] + [16] * 60, [1] + [8] * 60), Counts.of(16, [0] + [8] * 53 + [0] * 7)
    ),
    "answer, nothing solved": lambda: answered(*[Counts.of(64, [0] * 9)] * 2),
    "answer, five lost of many": lambda: answered(
        Counts.of(256, [40] * 600), Counts.of(256, [0] * 5 + [40] * 595)
    ),
    "answer, few lost": lambda: answered(
        Counts.of(32, [1] * 6 + [20] * 40), Counts.of(32, [0] * 6 + [20] * 40)
    ),
    "answer, gained": lambda: answered(
        Counts.of(64, [0] * 10 + [9] * 40), Counts.of(64, [12] * 10 + [9] * 40)
    ),
    "answer, three seeds": lambda: answered(
        grown(BASE, 3), *(grown(a, 3) for a in shifted(0, 1, 9))
    ),
    "answer": lambda: answered(BASE, TRAINED),
    "answer at a smaller k": lambda: answered(BASE, TRAINED, k=4, margin=0.1),
    "answer of many": lambda: answered(grown(BASE, 10), grown(TRAINED, 10)),
    "answer, a crossing in the second set": lambda: answered(
        Counts.of(16, [0] * 30 + [0, 0, 8, 8, 8, 7, 14, 7, 10, 10, 8, 7, 4, 3, 3] * 3),
        Counts.of(
            16, [1] * 18 + [0] * 12 + [1, 1, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0] * 3
        ),
    ),
    "answer of stragglers": lambda: answered(
        Counts.of([5, 5] + [16] * 98, [1, 0] + [3] * 98), Counts.of(16, [0] * 30 + [4] * 70)
    ),
    "answer, one sample each": lambda: answered(Counts.of(1, [0, 1] * 4), Counts.of(1, [1] * 8)),
    "answer, unequal n": lambda: answered(Counts.of(32, BASE.c), TRAINED),
    "answer, two alike seeds": lambda: answered(
        Counts.of(64, [10] * 30), *[Counts.of(64, [11] * 9 + [10] * 21)] * 2
    ),
    "answer, three seeds apart": lambda: answered(
        BASE, BASE, *(Counts.of(16, BASE.c // part) for part in (4, 12))
    ),
    "answer, two seeds of two problems": lambda: answered(
        BASE[4:7:2], *(run[4:7:2] for run in shifted(0, 3))
    ),
    "seeds of two problems, slightly apart": lambda: seeds_curve(
        Counts.of(64, [10, 12]), [Counts.of(64, c) for c in ([11, 14], [12, 13])], rng(), 2, [1]
    ),
    "answer, two seeds": lambda: answered(BASE, *shifted(0, 3)),
    "answer, five seeds": lambda: answered(
        grown(BASE, 3), *(grown(a, 3) for a in shifted(*range(5)))
    ),
    "decision": lambda: [
        *(decided(n) for n in (1, 5)),
        decided(1, trained=BASE),
        decided(1, trained=Counts.of(16, np.where(BASE.c > 11, 0, BASE.c))),
    ],
    "decision after looks": lambda: decided(1, look(BASE, TRAINED, 16, 2)),
    "looks": lambda: [looked(1), looked(3), looked(1, one_lost())],
    "power": lambda: [
        smallest_loss(200, 16, rng(), comparisons=3),
        smallest_loss(500, 8, rng(1), rates=np.array([0.2, 0.5])),
        smallest_loss(30, 16, rng(2), rates=np.array([0.5]), stop_after=(2, 3)),
        Power(30, 16, 0.19).count,
    ],
}


def lines(value: Any, indent: int = 0) -> Iterator[str]:
    """A result as text: a line a part, of parts if that is short."""
    start = "  " * indent
    named = parts_of(value)
    if named is None:
        yield start + flat(value)
        return
    for name, part in named:
        inner = list(lines(part, indent + 1))
        joined = ", ".join(line.strip() for line in inner)
        if len(inner) == 1 or len(joined) < 200:
            yield f"{start}{name} {joined}"
        else:
            yield start + name
            yield from inner


def parts_of(value: Any) -> list[tuple[str, Any]] | None:
    """The named parts of a result, or None where it is an array or a single value."""
    if is_dataclass(value):
        assert type(value).__dataclass_params__.frozen  # type: ignore[attr-defined]
    if isinstance(value, dict):
        return [(f"{name}:", part) for name, part in value.items()]
    if isinstance(value, Interval):
        names = ("estimate", "lower", "upper", "sound")
        about = [str(value.target), value.method, value.prob]
        return [*((f"{name}:", getattr(value, name)) for name in names), ("about:", about)]
    if is_dataclass(value):
        return [(f"{f.name}:", getattr(value, f.name)) for f in fields(value) if f.repr]
    if isinstance(value, list | tuple) and any(map(parts_of, value)):
        return [("-", part) for part in value]
    return None


def flat(value: Any) -> str:
    """Numbers with seven digits, everything else as it is."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flat(part) for part in value) + "]"
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def written(name: str) -> str:
    return "\n".join(lines(CASES[name]()))


def goldens() -> dict[str, str]:
    parts = re.split(r"^== (.+)\n", GOLDENS.read_text(), flags=re.MULTILINE)[1:]
    return {name: text.rstrip("\n") for name, text in zip(parts[::2], parts[1::2], strict=True)}


@pytest.mark.parametrize("name", CASES)
def test_every_part_of_a_result_is_as_before(name: str) -> None:
    text, before = written(name).split("\n"), goldens()[name].split("\n")
    moved = list(differences(text, before, RELATIVE, ABSOLUTE))
    assert not moved, listed(name, moved)


if __name__ == "__main__":
    GOLDENS.write_text("\n".join(f"== {name}\n{written(name)}" for name in CASES) + "\n")
