"""Gate by success: problems that no response solves do not take part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from rlbhpc.study.complaints import Whole
from rlbhpc.train.algorithms.algorithm import Batch, Store, group_mean, scored_where
from rlbhpc.train.algorithms.grpo import GRPO

Gate = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True)
class SuccessGate(GRPO):
    r"""GRPO on groups of which a share of more than ``gate`` is right; others are drawn anew.

    .. math:: \mathrm{take}(g) = [\, \bar c_g > \mathrm{gate} \,]

    One side of DAPO's dynamic sampling (arXiv 2503.14476): with ``gate: 0`` it leaves out the
    groups without any success and keeps those that are all right. Whatever shaping there is
    (length, format) can then not be learnt where nothing is solved. Not a published method of its
    own: an arm that tells what zero-success groups do to a boundary.
    """

    gate: Gate = 0.0
    max_refills: Whole = 10

    LEARNS_FROM: ClassVar[str] = "a group with a right response"

    def select(self, batch: Batch, store: Store) -> Tensor:
        """Take the groups that passed."""
        return scored_where(batch, lambda right, groups: group_mean(right, groups) > self.gate)
