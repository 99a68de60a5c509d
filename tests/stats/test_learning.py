"""Problems over training: small histories by hand."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.problems_over_training import histories, least_rollouts, rollout_pass_at_k

# A share of no problems warns before it is missing.
pytestmark = pytest.mark.filterwarnings("error")


def verdicts(rows: list[str]) -> np.ndarray[tuple[int, int, int], np.dtype[np.int8]]:
    """One rollout a visit: a letter a step, ``.`` not visited, 0 wrong, 1 right, e an error."""
    codes = {".": -1, "0": 0, "1": 1, "e": 5}
    return np.array([[[codes[c] for c in row]] for row in rows], np.int8)


def test_problems_are_learnt_corrupted_and_extinct() -> None:
    out = histories(verdicts(["0.11", "10.0", "1.00", "....", "0000", "1e1e"]))
    assert out["learnt"].tolist() == [0, 0, 1, 1]
    assert out["corrupted"].tolist() == [0, 1, 2, 2]
    assert out["extinct"].tolist() == [0, 0, 0, 2]
    # Step 2: of two problems with a visit before, one flipped; step 3: two of four.
    assert out["flips"].tolist() == pytest.approx([np.nan, 1 / 2, 2 / 4, 0], nan_ok=True)


def test_pass_at_k_is_over_the_problems_of_a_step() -> None:
    table = np.full((3, 4, 2), -1, np.int8)
    table[0, :, 0] = [1, 0, 0, 0]
    table[1, :, 0] = [1, 1, 5, 0]  # an error is no attempt
    table[2, :2, 1] = [0, 0]
    assert rollout_pass_at_k(table, 1) == pytest.approx([(1 / 4 + 2 / 3) / 2, 0])
    assert rollout_pass_at_k(table, 2) == pytest.approx([(1 / 2 + 1) / 2, 0])
    assert rollout_pass_at_k(table, 4) == pytest.approx([1, np.nan], nan_ok=True)
    assert np.isnan(rollout_pass_at_k(np.full((2, 2, 2), -1, np.int8), 1)).all()


def test_a_problem_that_is_drawn_twice_in_a_step_changes_no_k() -> None:
    """At the end of a pass over the problems; an error is a rollout that was drawn."""
    table = np.full((3, 8, 2), -1, np.int8)
    table[:, :4, :] = 0
    table[1, :, 1] = [0, 0, 0, 0, 1, 5, 0, 0]
    assert least_rollouts(table) == 4
    assert rollout_pass_at_k(table, 4)[1] == pytest.approx(4 / 7 / 3)
    table[:2, 4:, :] = 0
    assert least_rollouts(table) == 4, "most were drawn twice"
    assert np.isnan(rollout_pass_at_k(np.full((2, 2, 2), -1, np.int8), 2)).all()
