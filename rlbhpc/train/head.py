"""Log-probs and entropies of tokens, without the logits of all of them at once.

A response of 16,384 tokens over a vocabulary of 152,000 is 10 GB of logits in 32 bits, several
times over. Here the output layer and what is made of its logits are one operation, which works on
some rows at a time, keeps one number a token, and multiplies again when the gradient is due: an
output layer's work more, a third of its whole.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

# Logits that are there at a time: 256 MiB in 32 bits.
LOGITS: Final = 1 << 26
# Bytes of one of them at the worst moment: as they come, in 32 bits, as probabilities, and back.
BYTES_PER_LOGIT: Final = 16


def score_in_chunks(head: nn.Module) -> None:
    """Let an output layer give (log-probs, entropies) of targets.

    The module stays, since ZeRO-3 gathers its weights once for each of its calls.
    """
    head.forward = lambda hidden, *rest: TokenScores.apply(hidden, head.weight, head.bias, *rest)


def chunk_rows(vocabulary: int) -> int:
    """Tokens whose logits are there at a time."""
    return max(1, LOGITS // vocabulary)


class TokenScores(torch.autograd.Function):
    """log p(target) and H under softmax((h·Wᵀ + b) / T), float32.

    With p the distribution, g and e the gradients of log-prob and entropy, that of the scaled
    logits is g·(1[target] − p) − e·p·(log p + H).
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: float,
        entropies: bool,
    ) -> tuple[Tensor, Tensor]:
        """Score hidden states (tokens, d); entropies are 0 unless they are wanted."""
        rows = chunk_rows(len(weight))
        parts = []
        for h, target in zip(hidden.split(rows), targets.split(rows), strict=True):
            scaled = linear(h, weight, bias).float() / temperature
            norm = scaled.logsumexp(-1)
            logprob = scaled.gather(-1, target[:, None])[:, 0] - norm
            entropy = _entropy(scaled, norm) if entropies else torch.zeros_like(logprob)
            parts.append(torch.stack([logprob, entropy, norm]))
        logprobs, entropy, norms = torch.cat(parts, 1).unbind()
        ctx.save_for_backward(hidden, weight, bias, targets, norms, entropy)
        ctx.temperature, ctx.entropies = temperature, entropies
        return logprobs.clone(), entropy.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, e: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of hidden states, weight and bias."""
        hidden, weight, bias, *columns = ctx.saved_tensors
        rows = chunk_rows(len(weight))
        several = len(hidden) > rows
        of_hidden = torch.empty_like(hidden)
        # In 16 bits the sum over many chunks would no longer grow.
        wide = torch.float32 if several else weight.dtype
        of_weight = torch.zeros_like(weight, dtype=wide) if ctx.needs_input_grad[1] else None
        of_bias = torch.zeros_like(bias, dtype=wide) if ctx.needs_input_grad[2] else None
        pieces = (x.split(rows) for x in (hidden, of_hidden, *columns, g, e))
        for h, of_h, target, norm, entropy, g_part, e_part in zip(*pieces, strict=True):
            scaled = linear(h, weight, bias).float() / ctx.temperature
            logp = scaled.sub_(norm[:, None])
            due = logp.exp().mul_(-g_part[:, None])
            if ctx.entropies:
                due.sub_(logp.exp().mul_(e_part[:, None]).mul_(logp + entropy[:, None]))
            due.scatter_add_(1, target[:, None], g_part[:, None])
            narrow = due.div_(ctx.temperature).to(h.dtype)
            of_h.copy_(narrow @ weight)
            if of_weight is not None:
                product = narrow.t() @ h
                of_weight = of_weight.add_(product) if several else product
            if of_bias is not None:
                of_bias.add_(narrow.sum(0))
        # autograd itself rounds a gradient to the type of what it is of.
        return of_hidden, of_weight, of_bias, None, None, None


def _entropy(scaled: Tensor, norm: Tensor) -> Tensor:
    """H = −Σ p log p, from scaled logits and their log-sum-exp."""
    logp = scaled.sub_(norm[:, None])
    return -(logp.exp().mul_(logp)).sum(-1)
