"""The line of a training run, and when it raises its voice."""

from __future__ import annotations

import io

import pytest

from rlbhpc.train.dynamics import TrainingLine


def test_a_mismatch_of_sampler_and_trainer_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    line = TrainingLine("rl", 3)
    for step, mismatch in enumerate((1e-5, 0.02, 0.03), 1):
        line.show(step, {"critic/rewards/mean": 0.5, "rollout_corr/kl": mismatch})
    line.finish()
    said = stream.getvalue()
    assert said.count("disagree at step 2: rollout_corr/kl is 0.02") == said.count("disagree")
    assert "rl: step 3/3 · reward 0.5" in said
