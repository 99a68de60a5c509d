"""The learning rate over the steps of a run."""

from __future__ import annotations

import pytest

from rlbhpc.errors import UserError
from rlbhpc.train.settings import Settings


def rates(steps: int, **given: int) -> list[float]:
    settings = Settings(steps=steps, **given)  # type: ignore[arg-type]
    return [settings.learning_rate_at(step, 1.0) for step in range(1, steps + 1)]


def test_rate_warms_up_and_stays() -> None:
    assert rates(6, warmup_steps=4) == [0.25, 0.5, 0.75, 1, 1, 1]
    assert rates(3) == [1, 1, 1]


def test_rate_halves_from_where_it_is_warm() -> None:
    assert rates(8, warmup_steps=2, half_life=3)[1::3] == pytest.approx([1, 0.5, 0.25])


def test_a_prolonged_run_has_the_rates_of_the_short_one() -> None:
    assert rates(40, half_life=7, warmup_steps=5)[:20] == rates(20, half_life=7, warmup_steps=5)


def test_a_run_goes_on_longer_and_in_other_pieces_but_not_with_other_settings() -> None:
    short = Settings(steps=3)
    longer = Settings(steps=9, micro_tokens=9, recompute=True, rollout_memory=0.5, save_every=1)
    assert longer.essence == short.essence
    for other in ({"rollouts": "vllm"}, {"seed": 1}, {"rewards": {"correct": 2.0}}):
        assert Settings(steps=3, **other).essence != short.essence  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [0, -1, 1, 1.7])
def test_a_share_of_memory_is_a_share(share: float) -> None:
    with pytest.raises(UserError, match="rollout_memory"):
        Settings(steps=1, rollout_memory=share)


@pytest.mark.parametrize("band", [[0.5], [2.0, 3.0], [0.5, 0.9], [-1, 2], 0.5, ["a", "b"]])
@pytest.mark.parametrize("name", ["sampler_band", "sequence_band"])
def test_a_band_holds_a_ratio_of_one(name: str, band: object) -> None:
    with pytest.raises(UserError, match=name):
        Settings(steps=1, **{name: band})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["epochs", "save_every"])
@pytest.mark.parametrize("value", ["3", [1], 1.5, True])
def test_a_count_of_another_type_is_one_line(name: str, value: object) -> None:
    with pytest.raises(UserError, match=f"{name}: found .* allowed: a whole number from 1"):
        Settings(steps=1, **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("prompts", "size"), [(6, 4), (6, 7), (5, 2)])
def test_a_mini_batch_that_does_not_divide_is_refused(prompts: int, size: int) -> None:
    sizes = {"prompts_per_step": prompts, "samples_per_prompt": 1}
    with pytest.raises(UserError, match=rf"^mini_batch: found {size}, .* {prompts} responses$"):
        Settings(steps=1, mini_batch=size, **sizes)
    assert Settings(steps=1, **sizes).responses_per_update == prompts


def test_prompts_are_dealt_out_whole() -> None:
    settings = Settings(steps=1, prompts_per_step=5, samples_per_prompt=3)
    assert [settings.responses_per_rank(ranks) for ranks in (1, 2, 5, 8)] == [15, 9, 3, 3]


@pytest.mark.parametrize("size", [-4, 2.0, "8"])
def test_a_mini_batch_is_a_number_of_responses(size: object) -> None:
    with pytest.raises(UserError, match=r"mini_batch: found .* 0 for the whole rollout"):
        Settings(steps=1, mini_batch=size)  # type: ignore[arg-type]
