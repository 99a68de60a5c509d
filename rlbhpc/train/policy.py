"""The modules that are trained: a policy that gives log-probs, and a critic that gives values."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rlbhpc.engines.hf.backend import SEEING, loading, model_kind, read_config
from rlbhpc.engines.hf.sight import Sight
from rlbhpc.engines.staging import staged
from rlbhpc.train.attention import attend_in_rows, hidden_states
from rlbhpc.train.batch import MicroBatch
from rlbhpc.train.head import score_in_chunks


class Scored(NamedTuple):
    """Log-probability and entropy of each response token, flat, at the sampling temperature."""

    logprobs: Tensor
    entropies: Tensor


def read_model(path: Path, dtype: torch.dtype) -> PreTrainedModel:
    """Read a Hugging Face folder, with its vision tower where it has one."""
    folder = staged(path)
    kind = model_kind(read_config(folder))
    with loading(folder):
        model: PreTrainedModel = kind.from_pretrained(folder, dtype=dtype)
    return model


@cache
def sight_of(path: Path) -> Sight | None:
    """The eyes of a model folder, if it has any; those who look share what they have seen."""
    return Sight(path) if read_config(path).model_type in SEEING else None


def recompute_layers(model: nn.Module) -> None:
    """Let a transformers model keep nothing of a layer but what goes into it.

    transformers does so in training mode alone, which would also wake dropout: a policy's log-probs
    must be those of the weights, so it is taken out.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.0
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()


class Policy(nn.Module):
    """A causal language model that returns only what the losses need.

    The output layer runs on response positions alone: prompts never meet the vocabulary, which for
    short prompts and large vocabularies is most of the memory.
    """

    def __init__(self, model: PreTrainedModel, sight: Sight | None = None) -> None:
        super().__init__()
        attend_in_rows(model)
        score_in_chunks(model.get_output_embeddings())
        self.model = model
        self.sight = sight
        self.entropy_gradient = False

    @classmethod
    def load(cls, path: Path, dtype: torch.dtype) -> Policy:
        """Read a Hugging Face folder."""
        return cls(read_model(path, dtype), sight_of(path))

    def forward(self, batch: MicroBatch, temperature: float) -> Scored:
        """Score the response tokens of one micro-batch.

        Entropies are computed where the loss wants their gradient (``entropy_gradient``) and are 0
        elsewhere: the sampler has measured them already.
        """
        hidden = hidden_states(self.model.base_model, batch, self.sight)
        head = self.model.get_output_embeddings()
        return Scored(*head(hidden, batch.targets, temperature, self.entropy_gradient))


class Critic(nn.Module):
    """The same body with one output a token: the value before it."""

    def __init__(self, body: PreTrainedModel, sight: Sight | None = None) -> None:
        super().__init__()
        attend_in_rows(body)
        self.body = body
        self.sight = sight
        self.head = nn.Linear(body.config.get_text_config().hidden_size, 1, bias=False)
        # Start at 0: before it has learnt anything a critic should not bias a single advantage.
        nn.init.zeros_(self.head.weight)

    @classmethod
    def load(cls, path: Path, dtype: torch.dtype) -> Critic:
        """A critic that starts from the policy's own body."""
        return cls(read_model(path, dtype).base_model, sight_of(path)).to(dtype)

    def forward(self, batch: MicroBatch) -> Tensor:
        """Value before each response token, flat."""
        return self.head(hidden_states(self.body, batch, self.sight)).squeeze(-1).float()
