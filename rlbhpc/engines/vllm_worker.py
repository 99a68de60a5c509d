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
        """Draw a token for each row, and measure its log-prob and the distribution's entropy.

        Both belong to the distribution at the sampling temperature, before anything is cut away.
        Rows that draw from the full distribution are drawn here, by the random number of their
        seed; for others vLLM samples. A batch without log-probs, such as a trial run, is vLLM's
        alone. In power sampling they are those of temperature 1, and the log-prob with which the
        token was drawn comes behind them.
        """
        if sampling_metadata.max_num_logprobs is None:
            return super().forward(logits, sampling_metadata, *args, **kwargs)
        requests = self._batch_requests()
        # All requests of a batch come from one call of our engine, so they share their settings.
        extra_args = requests[0].sampling_params.extra_args
        is_untruncated = extra_args["whole"]
        model_logprobs = None
        if extra_args["power"]:  # drawn at another temperature than the model's own
            model_logprobs = torch.log_softmax(logits.float(), dim=-1)
        temperature = sampling_metadata.temperature
        scaled = logits.float()
        if is_untruncated:  # nothing else reads the logits
            scaled.div_(temperature[:, None])
        elif temperature is not None:
            # Greedy sampling is measured at temperature 1.
            scaled = scaled / torch.where(temperature > 0, temperature, 1.0)[:, None]
        weights = torch.softmax(scaled, dim=-1)
        if is_untruncated:
            tokens = invert(weights, next_uniforms(requests, weights.device))
            output = SamplerOutput(tokens.int()[:, None], None)
            # A drawn token is not so unlikely that float32 would round its weight coarsely.
            logprobs = weights.gather(1, tokens[:, None]).log()
        else:
            without_logprobs = replace(sampling_metadata, max_num_logprobs=None)
            output = super().forward(logits, without_logprobs, *args, **kwargs)
            tokens = output.sampled_token_ids[:, 0].long()
            logprobs = log_softmax_at(tokens[:, None], scaled, weights)
        if model_logprobs is None:
            measured = [logprobs[:, 0], special.entr(weights).sum(-1)]
        else:
            model_logprob = model_logprobs.gather(1, tokens[:, None])[:, 0]
            measured = [model_logprob, entropy(model_logprobs), logprobs[:, 0]]
        output.logprobs_tensors = pack_measurements(tokens, *measured)
        return output

    def draw_truncated(
        self,
        logits: torch.Tensor,
        _: Any,
        top_k: torch.Tensor | None,
        top_p: torch.Tensor | None,
    ) -> tuple[torch.Tensor, None]:
        """Truncate the logits as vLLM does, and draw each row's token with the row's own number.

        ``next_uniforms`` gives the random number of each row in [0, 1), and ``invert`` the token at
        which the running sum of the probabilities exceeds it.
        """
        weights = torch.softmax(apply_top_k_top_p(logits, top_k, top_p), dim=-1)
        uniform = next_uniforms(self._batch_requests(), weights.device)
        return invert(weights, uniform), None

    def _batch_requests(self) -> list[Any]:
        """VLLM's records of the requests of the batch, in the order of its rows."""
        return [self.runner.requests[name] for name in self.runner.input_batch.req_ids]

    def compute_logprobs(self, logits: torch.Tensor) -> torch.Tensor:
        """Return a prompt's logits unchanged: `gather_logprobs` normalises a few rows at a time.

        vLLM reads up to 2,048 tokens of a text at once. With a vocabulary of 152,000 their
        log-probs take 2.5 GB on the way, for which vLLM has left no room.
        """
        return logits

    def gather_logprobs(
        self, logits: torch.Tensor, num_logprobs: int, token_ids: torch.Tensor
    ) -> LogprobsTensors:
        """Log-prob of each prompt token and entropy of the distribution it comes from.

        vLLM calls it for the tokens of a text to score. ``logits`` are (tokens, vocabulary); a few
        rows are worked on at a time to spare memory.
        """
        token_ids = token_ids.long()
        n_chunk = max(1, CHUNK // logits.shape[-1])
        logprobs, entropies = [], []
        for chunk, ids in zip(logits.split(n_chunk), token_ids.split(n_chunk), strict=True):
            distribution = log_distribution(chunk, self.score_temperature)
            logprobs.append(distribution.gather(1, ids[:, None])[:, 0])
            entropies.append(entropy(distribution))
        return pack_measurements(token_ids, torch.cat(logprobs), torch.cat(entropies))


def pack_measurements(ids: torch.Tensor, *measurements: torch.Tensor) -> LogprobsTensors:
    """Log-prob, entropy, … of each token, where vLLM expects the log-probs of several tokens.

    So they travel with the token through vLLM's own structures. The ids and ranks are fillers.
    """
    repeated_ids = ids[:, None].expand(-1, len(measurements)).int()
    measured = torch.stack(measurements, dim=1)
    ranks = torch.zeros_like(ids)
    return LogprobsTensors(repeated_ids, measured, ranks)


def log_softmax_at(
    tokens: torch.Tensor, scaled: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Log-softmax of ``scaled`` at each row's token; ``weights`` is the softmax of all tokens.

    The likeliest token's weight gives the logarithm of the sum, which spares another pass over the
    vocabulary.
    """
    likeliest = scaled.max(dim=-1, keepdim=True)
    log_weight = weights.gather(1, likeliest.indices).log()
    return scaled.gather(1, tokens) - likeliest.values + log_weight


def next_uniforms(requests: list[Any], device: torch.device) -> torch.Tensor:
    """The uniform random number for the next token of each request, from the stream of its seed.

    A stream has one number in [0, 1) for each token. It is kept on vLLM's record of the request.
    """
    for request in requests:
        if not hasattr(request, "uniforms"):
            settings = request.sampling_params
            numbers = uniforms(settings.extra_args["seed"], settings.max_tokens)
            # A memoryview: NumPy's own numbers cost three times as much to gather.
            request.uniforms = numbers.data
    # Each token that was drawn has used up one number.
    next_numbers = [request.uniforms[len(request.output_token_ids)] for request in requests]
    on_host = torch.from_numpy(np.array(next_numbers))
    if device.type == "cuda":
        on_host = on_host.pin_memory()
    return on_host.to(device, non_blocking=True)


class Extension:
    """Methods that vLLM mixes into its worker class (``worker_extension_cls``)."""

    model_runner: Any

    def measure(self) -> None:
        """Turn the worker's sampler into a measuring one.

        The sampler keeps its state and changes its class; vLLM's truncated draw is replaced, too.
        """
        sampler = self.model_runner.sampler
        if type(sampler) is not Sampler:
            raise TypeError(f"unknown sampler {type(sampler)}: cannot measure log-probs exactly")
        sampler.__class__ = MeasuringSampler
        sampler.runner = self.model_runner
        sampler.topk_topp_sampler.forward = sampler.draw_truncated

    def set_score_temperature(self, temperature: float) -> None:
        """Set the temperature at which prompt tokens are scored."""
        self.model_runner.sampler.score_temperature = temperature

    def repack_cpu_weights(self) -> None:
        """Repack after a reload what vLLM leaves out: a tied output layer, and experts.

        vLLM's CPU build multiplies by weights in a packed layout of its own. A reload packs those
        of linear layers alone: a tied output layer would keep the old ones unnoticed, and experts
        (the parallel layers of a mixture) would be read unpacked. On a GPU there is nothing to do.
        """
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
        from vllm.platforms import current_platform

        if not current_platform.is_cpu():
            return
        model = self.model_runner.get_model()
        output_layer = getattr(model, "lm_head", None)
        if output_layer is not None:
            dispatch_cpu_unquantized_gemm(output_layer, remove_weight=False)
        for layer in model.modules():
            method = getattr(layer, "quant_method", None)
            expert_kernel = getattr(method, "moe_kernel", None)
            if expert_kernel is not None:
                expert_kernel.fused_experts.process_weights_after_loading(layer)


class RawLogprobs(LogprobsProcessor):
    """Collects a request's log-probs and entropies as they come in: the bytes of float32 pairs.

    vLLM's own class builds lists of ids, ranks and texts for every token while the model waits.
    """

    def _update_sample_logprobs(self, lists: Any) -> None:
        self.logprobs += lists.logprobs.tobytes()


def collect_raw_logprobs(engine: LLMEngine, request: str) -> None:
    """Let a request that was just added collect its log-probs as bytes."""
    processor = engine.output_processor.request_states[request].logprobs_processor
    processor.__class__ = RawLogprobs
    processor.logprobs = bytearray()
