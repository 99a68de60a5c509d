"""What a vLLM worker gains: exact log-probs and entropies, draws by seed, and a mended reload.

vLLM can return the sampled token's log-prob either at temperature 1 (``raw_logprobs``) or after
the nucleus is cut and renormalised (``processed_logprobs``). Ours is neither: it belongs to the
sampling temperature, before top-p. And vLLM has no entropy. So the worker's sampler is replaced by
one that measures both on the device and sends them back in the places where vLLM carries
log-probs: two numbers per token, the log-prob and the entropy. They travel with the token itself,
so nothing can be attributed to the wrong request, whatever is preempted or recomputed.

vLLM draws for a request with a seed from a generator of its own, one row after the other. Here all
rows draw at once, each with the number that belongs to its seed and to how many tokens it has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import special
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.engine.logprobs import LogprobsProcessor
from vllm.v1.outputs import LogprobsTensors, SamplerOutput
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p
from vllm.v1.sample.sampler import Sampler

from rlbhpc.engines.distribution import CHUNK, entropy, invert, log_distribution, uniforms


class MeasuringSampler(Sampler):
    """vLLM's sampler, which returns (log-prob, entropy) for whoever asks for log-probs.

    ``score_temperature`` is the temperature of prompt log-probs, which carry no sampling setting.
    """

    score_temperature = 1.0
    runner: Any

    def forward(
        self, logits: torch.Tensor, sampling_metadata: SamplingMetadata, *args: Any, **kwargs: Any
    ) -> SamplerOutput:
        """Measure the distribution at the sampling temperature, then sample as vLLM does."""
        if sampling_metadata.max_num_logprobs is None:
            return super().forward(logits, sampling_metadata, *args, **kwargs)
        rows = self._rows()
        # The settings are one call's of our engine, which makes one at a time.
        whole = rows[0].sampling_params.extra_args["whole"]
        scaled = logits.float()
        temperature = sampling_metadata.temperature
        if whole:  # nothing else wants the logits
            scaled.div_(temperature[:, None])
        elif temperature is not None:
            scaled = scaled / torch.where(temperature > 0, temperature, 1.0)[:, None]
        weights = torch.softmax(scaled, dim=-1)
        if whole:
            tokens = invert(weights, next_uniforms(rows, weights.device))
            output = SamplerOutput(tokens.int()[:, None], None)
        else:
            plain = replace(sampling_metadata, max_num_logprobs=None)
            output = super().forward(logits, plain, *args, **kwargs)
            tokens = output.sampled_token_ids[:, 0].long()
        logp = _log_weights(weights, scaled, tokens[:, None], drawn=whole)
        output.logprobs_tensors = carried(tokens, logp[:, 0], special.entr(weights).sum(-1))
        return output

    def draw(
        self,
        logits: torch.Tensor,
        _: Any,
        top_k: torch.Tensor | None,
        top_p: torch.Tensor | None,
    ) -> tuple[torch.Tensor, None]:
        """Cut the logits as vLLM does; draw each row's token with the row's own number."""
        weights = torch.softmax(apply_top_k_top_p(logits, top_k, top_p), dim=-1)
        return invert(weights, next_uniforms(self._rows(), weights.device)), None

    def _rows(self) -> list[Any]:
        """The requests of the batch, in its order."""
        return [self.runner.requests[name] for name in self.runner.input_batch.req_ids]

    def compute_logprobs(self, logits: torch.Tensor) -> torch.Tensor:
        """Leave a prompt's logits as they are: `gather_logprobs` takes a few rows at a time.

        vLLM reads up to 2,048 tokens of a text at once. With a vocabulary of 152,000 their
        log-probs take 2.5 GB on the way, for which vLLM has left no room.
        """
        return logits

    def gather_logprobs(
        self, logits: torch.Tensor, num_logprobs: int, token_ids: torch.Tensor
    ) -> LogprobsTensors:
        """Log-prob of each prompt token and entropy of the distribution it comes from."""
        ids = token_ids.long()
        rows = max(1, CHUNK // logits.shape[-1])
        chosen, entropies = [], []
        for part, tokens in zip(logits.split(rows), ids.split(rows), strict=True):
            logprobs = log_distribution(part, self.score_temperature)
            chosen.append(logprobs.gather(1, tokens[:, None])[:, 0])
            entropies.append(entropy(logprobs))
        return carried(ids, torch.cat(chosen), torch.cat(entropies))


def carried(ids: torch.Tensor, logprobs: torch.Tensor, entropies: torch.Tensor) -> LogprobsTensors:
    """Both numbers of each token, in the places of the log-probs of two."""
    measured = torch.stack((logprobs, entropies), dim=1)
    return LogprobsTensors(ids[:, None].expand(-1, 2).int(), measured, torch.zeros_like(ids))


def _log_weights(
    weights: torch.Tensor, scaled: torch.Tensor, tokens: torch.Tensor, *, drawn: bool
) -> torch.Tensor:
    """Log-probs of each row's token, from the softmax and what it was taken of."""
    if drawn:  # too likely to be a number that float32 rounds coarsely
        return weights.gather(1, tokens).log()
    # What the likeliest token's weight says of the sum spares another pass over the vocabulary.
    best = scaled.max(dim=-1, keepdim=True)
    return scaled.gather(1, tokens) - best.values + weights.gather(1, best.indices).log()


def next_uniforms(rows: list[Any], device: torch.device) -> torch.Tensor:
    """The number of each row's next token; its stream lives as long as vLLM's record of it."""
    for request in rows:
        if not hasattr(request, "uniforms"):
            settings = request.sampling_params
            numbers = uniforms(settings.extra_args["seed"], settings.max_tokens)
            # Read as bytes: NumPy's own numbers cost three times as much to gather.
            request.uniforms = numbers.data
    following = [request.uniforms[len(request.output_token_ids)] for request in rows]
    on_host = torch.from_numpy(np.array(following))
    if device.type == "cuda":
        on_host = on_host.pin_memory()
    return on_host.to(device, non_blocking=True)


class Extension:
    """Methods that vLLM mixes into its worker class (``worker_extension_cls``)."""

    model_runner: Any

    def measure(self) -> None:
        """Turn the worker's sampler into a measuring one."""
        sampler = self.model_runner.sampler
        if type(sampler) is not Sampler:
            raise TypeError(f"unknown sampler {type(sampler)}: cannot measure log-probs exactly")
        sampler.__class__ = MeasuringSampler
        sampler.runner = self.model_runner
        sampler.topk_topp_sampler.forward = sampler.draw

    def set_score_temperature(self, temperature: float) -> None:
        """Set the temperature at which prompt tokens are scored."""
        self.model_runner.sampler.score_temperature = temperature

    def mend_packed(self) -> None:
        """Repack after a reload what vLLM leaves out: experts, and an output layer that is tied.

        The CPU build multiplies by packed weights. A reload packs those of linear layers alone: a
        tied output layer would keep the old ones unnoticed, and experts would be read unpacked.
        """
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
        from vllm.platforms import current_platform

        if not current_platform.is_cpu():
            return
        model = self.model_runner.get_model()
        head = getattr(model, "lm_head", None)
        if head is not None:
            dispatch_cpu_unquantized_gemm(head, remove_weight=False)
        for layer in model.modules():
            kernel = getattr(getattr(layer, "quant_method", None), "moe_kernel", None)
            if kernel is not None:
                kernel.fused_experts.process_weights_after_loading(layer)


class Measured(LogprobsProcessor):
    """A request's log-probs and entropies, as they come in: the bytes of float32 pairs.

    vLLM builds lists of token ids, ranks and texts out of every token's log-probs, while the model
    waits.
    """

    def _update_sample_logprobs(self, lists: Any) -> None:
        self.logprobs += lists.logprobs.tobytes()


def keep_measured(engine: LLMEngine, request: str) -> None:
    """Let a request that was just added keep its log-probs so."""
    processor = engine.output_processor.request_states[request].logprobs_processor
    processor.__class__ = Measured
    processor.logprobs = bytearray()
