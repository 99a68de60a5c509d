"""ProRL: a reference penalty whose reference is renewed, so that training can go on."""

from __future__ import annotations

from dataclasses import dataclass

from rlbhpc.study.complaints import Weight, Whole
from rlbhpc.study.fields import Count
from rlbhpc.train.algorithms.dapo import DAPO


@dataclass(frozen=True)
class ProRL(DAPO):
    r"""DAPO with a reference penalty; every ``renew_every`` steps the reference is the policy.

    .. math:: \pi_{ref} \leftarrow \pi_\theta \quad \text{after steps } m, 2m, \ldots

    Liu et al. 2025 (arXiv 2505.24864). The optimiser's moments begin anew with it, as there. Set
    the recipe's ``kl``: without a penalty there is no reference. The renewed reference is saved
    with the training state. Its authors renew when validation stalls; a fixed number of steps
    makes runs comparable.
    """

    clip_high: Weight = 0.4
    overlong_buffer: Whole = 0
    renew_every: Count = 200

    def renews_reference(self, step: int) -> bool:
        """Tell at multiples of ``renew_every``."""
        return step % self.renew_every == 0
