"""DAPO: decoupled clip and dynamic sampling policy optimization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rlbhpc.study.complaints import Weight, Whole
from rlbhpc.train.algorithms.algorithm import Batch, DualClip, Store, group_std, scored_where
from rlbhpc.train.algorithms.grpo import GRPO


@dataclass(frozen=True)
class DAPO(GRPO):
    r"""GRPO's advantage with clip-higher, token-level loss, refills and overlong shaping.

    Yu et al. 2025 (arXiv 2503.14476). Groups that are all right or all wrong carry no gradient:
    they are replaced by new prompts, at most ``max_refills`` times, and no group that was kept is
    thrown away. ``overlong_buffer`` tokens before the limit the reward falls linearly:

    .. math:: r \mathrel{+}= -f \cdot \mathrm{clip}\Bigl(\frac{len - (L_{\max} - b)}{b}, 0, 1\Bigr)

    The factor f is in units of the reward. Its authors take 1 beside rewards of 1 and −1, so the
    default is half of what lies between the rewards of right and wrong here, 1 and 0. The penalty
    is added after correctness, so a truncated response that is right is still graded.
    Whether a group is kept is decided by correctness, not by the shaped reward.
    """

    clip_high: Weight = 0.28
    dual_clip: DualClip | None = 10.0
    max_refills: Whole = 10
    overlong_buffer: Whole = 4096
    overlong_factor: Weight = 0.5

    LEARNS_FROM: ClassVar[str] = "a group that is solved sometimes but not always"

    def select(self, batch: Batch, store: Store) -> Tensor:
        """Take groups with a signal: a mix of right and wrong."""
        return scored_where(batch, lambda right, groups: group_std(right, groups, ddof=0) > 0)

    def reward(self, batch: Batch, store: Store) -> Tensor:
        """Take off 0 … ``overlong_factor`` for coming near the limit."""
        tokens_over = batch.lengths - (batch.max_tokens - self.overlong_buffer)
        # Without a buffer no length is over the limit.
        share = (tokens_over / max(self.overlong_buffer, 1)).clamp(0, 1)
        return batch.rewards - self.overlong_factor * share
