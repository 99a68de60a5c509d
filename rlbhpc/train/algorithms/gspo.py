"""GSPO: one length-normalised ratio for a whole response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlbhpc.study.complaints import Weight
from rlbhpc.train.algorithms.grpo import GRPO


@dataclass(frozen=True)
class GSPO(GRPO):
    r"""GRPO's advantage, clipped by the ratio of the response instead of the token.

    .. math:: s_i = \Bigl(\frac{\pi(y_i)}{\pi_{old}(y_i)}\Bigr)^{1/|y_i|}, \qquad
              L = -\frac{1}{B} \sum_i \min(s_i A_i, \mathrm{clip}(s_i) A_i)

    Zheng et al. 2025 (arXiv 2507.18071), with its bounds, a thousandth of a token ratio's.
    """

    clip_low: Weight = 3e-4
    clip_high: Weight = 4e-4
    ratio: Literal["token", "sequence", "geometric"] = "geometric"
    aggregation: Literal["token", "sequence", "sequence-sum", "constant"] = "sequence"
