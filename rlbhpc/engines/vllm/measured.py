"""What the worker measured, kept as it comes in: two numbers a token.

vLLM builds lists of token ids, ranks and texts out of every token's log-probs, while the model
waits.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.engine.logprobs import LogprobsProcessor


class Measured(LogprobsProcessor):
    """A request's log-probs and entropies as the bytes of float32 pairs."""

    def _update_sample_logprobs(self, lists: Any) -> None:
        self.logprobs += lists.logprobs.tobytes()


def keep_measured(engine: LLMEngine, request: str) -> None:
    """Let a request that was just added keep its log-probs so."""
    processor = engine.output_processor.request_states[request].logprobs_processor
    if processor.num_logprobs is not None:
        processor.__class__ = Measured
        processor.logprobs = bytearray()
