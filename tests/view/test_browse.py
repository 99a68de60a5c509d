"""Looking through a run: rows of problems and samples for every choice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rlbhpc.errors import UserError
from rlbhpc.verify.verdict import Status
from rlbhpc.view.run import Choice, OpenRun
from tests.report.golden import agree
from tests.report.made import SET, make_study, put_counts, put_samples

CHOICES = (
    Choice(),
    Choice(arm="rl", step=50),
    Choice(problem="2"),
    Choice(problem=f"{SET}/3"),
    Choice(arm="rl", step=100, problem="1", sample=2),
)


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Counts of the base, samples of two checkpoints; one generation failed."""
    folder = tmp_path_factory.mktemp("browse") / "run"
    study = make_study(folder, 5, 6, (50, 100))
    put_counts(study, "base", [0, 2, 3, 6, 1], 6)
    for step in (50, 100):
        right = np.arange(6) < np.array([[0], [2], [3], [5], [1]]) + step // 100
        put_samples(study, "rl", right, step, verdicts={(3, 5): Status.FAILED}, missing=1)
    return folder


def rows_of(folder: Path, choice: Choice) -> Iterator[str]:
    opened = OpenRun(folder, choice)
    yield repr(choice)
    yield from map(repr, opened.problems())
    yield from (repr(row) for row in opened.samples() if choice != Choice())
    if choice.sample is not None:
        yield from (f"{found.sample.text} {found.origin}" for found in opened.responses())


def test_rows_of_every_choice(looked: Path) -> None:
    agree("browse", [line for choice in CHOICES for line in rows_of(looked, choice)])
    assert len(list(OpenRun(looked).samples())) == 2 * 4 * 6
    assert len(OpenRun(looked, Choice(problem="2")).responses()) == 12


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice(arm="rll"), "no arm 'rll' in this run; there are rl and 1 more"),
        (Choice(arm="?"), "no arm '?' in this run; there are base, rl"),
        (Choice(step=7), "no step 7 in this run; there are 0, 50, 100"),
        (Choice(problem="x"), "no problem 'x' in this run; there are math/0, math/1, math/2, "
         "math/3, math/4"),
        (Choice(problem="math/9"), "no problem 'math/9' in this run; there are math/4, math/3, "
         "math/2 and 2 more"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_named_with_what_is(
    looked: Path, choice: Choice, message: str
) -> None:
    with pytest.raises(UserError) as caught:
        OpenRun(looked, choice)
    assert str(caught.value) == message
