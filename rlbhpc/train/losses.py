"""Losses: surrogate, aggregation, reference penalty, off-policy weights.

All are pure functions of (B, T) tensors. One optimiser step is one masked sum over one global
constant: :func:`row_weights` puts that constant into a weight per response, so the sum of the
parts is the whole however the batch is cut into micro-batches and ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

# Beyond this a log-ratio says only "far away"; exp() would overflow long before it mattered.
MAX_LOG_RATIO = 20.0
# The largest k3 of a token: verl's `kl_penalty` clamps it there.
MAX_K3 = 10.0

Ratio = Literal["token", "sequence", "geometric"]


def row_weights(
    lengths: Tensor,
    mode: Literal["token", "sequence", "sequence-sum", "constant"],
    total_tokens: int,
    total_rows: int,
    max_length: int,
) -> Tensor:
    r"""Weight w_i of every token of response i, so that the loss is Σ_i w_i Σ_t ℓ_it.

    ========================  ==================================================
    ``token``                 1 / (tokens of the global batch)
    ``sequence``              1 / (length_i · responses of the global batch)
    ``sequence-sum``          1 / (responses of the global batch)
    ``constant``              1 / (max_length · responses), Dr. GRPO
    ========================  ==================================================

    The totals count the whole optimiser step over all ranks, never a micro-batch.
    """
    divisors: dict[str, Tensor | int] = {
        "token": total_tokens,
        "sequence": lengths * total_rows,
        "sequence-sum": total_rows,
        "constant": max_length * total_rows,
    }
    return torch.ones(lengths.shape, dtype=torch.float32, device=lengths.device) / divisors[mode]


def log_ratios(logp: Tensor, other: Tensor, mask: Tensor, level: Ratio) -> Tensor:
    r"""Log π − log π_other at a level, on every token of a response, 0 where there is none.

    ``sequence`` is the sum over the response (the logarithm of the product of ratios),
    ``geometric`` its mean over the response's tokens.
    """
    log_ratio = (logp - other) * mask
    if level == "token":
        return log_ratio
    whole = log_ratio.sum(-1, keepdim=True)
    if level == "geometric":
        whole = whole / mask.sum(-1, keepdim=True)
    return whole * mask


def surrogate(
    log_ratio: Tensor,
    advantages: Tensor,
    mask: Tensor,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> Tensor:
    r"""Per-token clipped policy loss −min(ρA, clip(ρ)A), with ρ = exp(log π − log π_old).

    With ``dual_clip`` c, the loss of a negative advantage is at most −cA (Ye et al. 2020). A ratio
    of whole responses (:func:`log_ratios`) stands on every token of its response, so that
    ``sequence`` weights give the mean over responses (GSPO, TRL's RLOO).
    """
    rho = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    clipped = rho.clamp(1 - clip_low, 1 + clip_high)
    loss = torch.maximum(-advantages * rho, -advantages * clipped)
    if dual_clip is not None:
        loss = torch.where(advantages < 0, torch.minimum(loss, -dual_clip * advantages), loss)
    return loss * mask


def reference_penalty(logp: Tensor, ref_logp: Tensor, kind: Literal["k2", "k3"]) -> Tensor:
    r"""Per-token estimate of KL(π ‖ π_ref) from sampled tokens, Δ = log π − log π_ref.

    k2 = Δ²/2, k3 = e^{−Δ} − 1 + Δ. As a term of the loss only k2 has the gradient of the reverse KL
    on on-policy samples; k3's is that of the forward KL, and that of k1 = Δ, which belongs into the
    reward, is 0. k3 is computed from Δ within ±20 and is at most 10, both as verl does: in float32
    it is infinite from −89 on. A token at either bound has no gradient;
    ``actor/kl_clamped`` counts them.
    """
    delta = logp - ref_logp
    if kind == "k2":
        return delta**2 / 2
    delta = delta.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return (torch.expm1(-delta) + delta).clamp(max=MAX_K3)


def off_policy_weights(
    log_ratio: Tensor, cap: float, band: Sequence[float] | None = None
) -> Tensor:
    r"""Detached importance weights ρ = π_old / π_sampler of the loss, truncated or in a band.

    .. math:: w = \min(\rho, \mathrm{cap}) \quad\text{or}\quad
              w = \rho\,1[\mathrm{low} \le \rho \le \mathrm{high}]

    Truncated importance sampling (Yao et al. 2025), and IcePop (Ling Team 2025, arXiv 2510.18855),
    which replaces the cap. A cap of 0 without a band weighs nothing.

    They multiply the loss and do not replace the old log-probs: one corrects the numbers of another
    engine, the other the steps since the rollout. They have the level of the loss's own ratio.
    """
    ratio = log_ratio.detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    if band is not None:
        low, high = band
        return ratio.where((ratio >= low) & (ratio <= high), torch.zeros_like(ratio))
    if cap:
        return ratio.clamp(max=cap)
    return torch.ones_like(ratio)


def responses_in_band(old: Tensor, sampler: Tensor, mask: Tensor, band: Sequence[float]) -> Tensor:
    r"""Which responses the sampler drew about as the trainer would, shape (B, 1).

    .. math:: \mathrm{low} \le \Bigl(\prod_t \frac{\pi_{old}(y_t)}{\pi_{sampler}(y_t)}
              \Bigr)^{1/|y|} \le \mathrm{high}

    The geometric mean, unlike the product, does not drop a response for its length (Liu et al.
    2025, "When Speed Kills Stability"; verl's rejection by geometric mean).
    """
    log_mean = ((old.detach() - sampler) * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
    ratio = log_mean.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    low, high = band
    return (ratio >= low) & (ratio <= high)


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> float:
    """1 − Var(R − V) / Var(R) over the tokens: 0 for a constant critic, 1 for a perfect one.

    The value loss cannot tell how good a critic is: it rises with the returns' own variance, which
    RL changes. With λ = 1 the returns are the rewards; below, they hold the critic's own values and
    a critic may explain itself. NaN where all returns are the same to rounding.
    """
    total, residual = returns[mask].double(), (returns - values)[mask].double()
    spread = float(total.var(correction=0))
    return 1 - float(residual.var(correction=0)) / spread if spread > 1e-12 else float("nan")
