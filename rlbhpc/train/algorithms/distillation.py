"""On-policy distillation: a teacher scores every token of what the student wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from rlbhpc.errors import UserError
from rlbhpc.train.algorithms.algorithm import Algorithm, Signals


@dataclass(frozen=True)
class OnPolicyDistillation(Algorithm):
    r"""Each token's advantage is how much likelier the teacher finds it.

    .. math:: A_t = -\beta\,(\log \pi(y_t) - \log \pi_{teacher}(y_t))

    The reverse KL on the student's own samples (Agarwal et al. 2023, arXiv 2306.13649; Gu et al.
    2023, arXiv 2306.08543), each token for itself (discount 0). ``teacher`` is a model of the
    study with the same vocabulary. Rewards are for the curves alone.
    """

    teacher: str = ""
    kl_beta: Annotated[float, Field(gt=0)] = 1.0

    @property
    def reference_model(self) -> str:
        """The teacher, without whom there is no lesson."""
        if not self.teacher:
            raise UserError("teacher: found nothing; allowed: a model of the study")
        return self.teacher

    def advantages(self, signals: Signals) -> Tensor:
        """Teacher's log-prob less the student's."""
        assert signals.kl is not None
        return -self.kl_beta * signals.kl * signals.mask
