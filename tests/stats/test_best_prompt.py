"""The best prompt: unbiased for the rule, by every split, and never above what is possible."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from analysis.best_prompt import best_prompt
from rlbhpc.errors import UserError
from rlbhpc.stats import Counts, pass_at_k


def by_every_split(n: int, rights: tuple[int, ...], k: int) -> float:
    """The definition: all halves of all prompts' samples, ties shared."""
    half, outcomes = n // 2, []
    per_prompt = []
    for c in rights:
        samples = [1] * c + [0] * (n - c)
        per_prompt.append([sum(samples[i] for i in h) for h in combinations(range(n), half)])
    for chosen in product(*per_prompt):
        tied = [p for p, a in enumerate(chosen) if a == max(chosen)]
        left = [float(pass_at_k(n - half, rights[p] - chosen[p], k)) for p in tied]
        outcomes.append(np.mean(left))
    return float(np.mean(outcomes))


@pytest.mark.parametrize(
    ("n", "rights"), [(6, (2, 5)), (5, (0, 0)), (5, (1, 1, 4)), (4, (0, 4, 4, 2))]
)
def test_it_is_the_mean_over_all_splits(n: int, rights: tuple[int, ...]) -> None:
    counts = {f"p{i}": Counts.of(n, [c]) for i, c in enumerate(rights)}
    sizes = [1, 2]
    result = best_prompt(counts, sizes)
    expected = [by_every_split(n, rights, k) for k in sizes]
    np.testing.assert_allclose(result.per_problem[0], expected, rtol=1e-12)


def test_the_split_is_unbiased_where_the_maximum_is_not() -> None:
    """Prompts that are alike: the best is as good as each, and choosing must not lift it."""
    rng = np.random.default_rng(3)
    n, p, problems = 16, 0.2, 4000
    counts = {name: Counts.of(n, rng.binomial(n, p, problems)) for name in "abcd"}
    result = best_prompt(counts, [1, 4])
    truth = 1 - (1 - p) ** np.array([1, 4])
    error = result.per_problem.std(axis=0) / np.sqrt(problems)
    assert (abs(result.per_problem.mean(axis=0) - truth) < 4 * error).all()
    assert (abs(result.overall.mean(axis=0) - truth) < 4 * error).all()
    assert (result.highest.mean(axis=0) > truth + 10 * error).all()


def test_a_format_that_a_base_cannot_read_costs_it_nothing() -> None:
    rng = np.random.default_rng(4)
    good, none = Counts.of(64, rng.binomial(64, 0.5, 200)), Counts.of(64, np.zeros(200, int))
    result = best_prompt({"format": none, "plain": good}, [1, 32])
    np.testing.assert_allclose(result.overall, good.pass_at_k([1, 32]))
    np.testing.assert_allclose(
        result.per_problem.mean(axis=0), good.pass_at_k([1, 32]).mean(axis=0), atol=1e-3
    )


def test_unequal_or_stopped_samples_are_refused() -> None:
    full = Counts.of(8, [1, 2])
    for other in (Counts.of([8, 7], [1, 2]), Counts.of(8, [1, 1], stop_after=2, n_max=8)):
        with pytest.raises(UserError, match="equally many samples"):
            best_prompt({"a": full, "b": other}, 1)
    with pytest.raises(UserError, match="nothing to choose"):
        best_prompt({"a": full}, 1)
