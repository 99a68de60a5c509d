"""The ``vllm`` engine: requests in, finished ones out as they finish, weights swapped in place."""

from __future__ import annotations

import dataclasses
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rlbhpc.engines.completion import NOT_READY, Completion, Request
from rlbhpc.engines.engine import (
    IDLE_SECONDS,
    VLLM_MEMORY,
    Ahead,
    Score,
    failed_completion,
    too_long,
)
from rlbhpc.engines.folder import context_length, sees
from rlbhpc.engines.tokens import StopText, Tokens
from rlbhpc.errors import UserError
from rlbhpc.study.keys import Sampling

if TYPE_CHECKING:
    import torch
    from vllm import SamplingParams
    from vllm.outputs import RequestOutput

T = TypeVar("T")
# A text to score: its number, prompt and response.
NumberedText = tuple[int, tuple[tuple[int, ...], tuple[int, ...]]]

# Requests handed to vLLM for each row, so that a row that ends finds its next one waiting.
ADMITTED_PER_ROW = 1.25
# torch.cuda.set_device(-1) does nothing.
NO_GPU = -1
# An engine argument that older versions of vLLM do not have.
NORMALISE = "mm_device_do_normalize"
NO_KERNELS = "engine vllm: its compiled part is not loaded ({error})"
NO_LIBNUMA = (
    "; mostly libnuma.so.1 is missing: apt-get install libnuma1, or dnf install numactl-libs, or "
    "take the engine hf"
)


class VllmEngine:
    """vLLM's own engine in this process.

    ``rows`` responses run side by side (``max_num_seqs``). ``dtype`` ``auto`` is the checkpoint's
    own on a GPU and float32 on the CPU. ``max_length`` is room for prompt and response together;
    less than the model's own leaves memory for more rows. ``tensor_parallel`` devices hold one
    copy of the model, and a process one: ``data_parallel`` is 1. ``memory`` is the share of the
    device's memory that vLLM may take, ``options`` are further engine arguments by vLLM's own
    names.
    """

    # The same kernels on other shapes round differently, so a sample depends on its batch.
    deterministic = False

    def __init__(
        self,
        model: str | Path,
        *,
        rows: int = 256,
        dtype: str = "auto",
        max_length: int | None = None,
        tensor_parallel: int = 1,
        data_parallel: int = 1,
        memory: float = VLLM_MEMORY,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        folder = Path(model)
        longest = context_length(folder)
        if max_length is not None and max_length > longest:
            raise UserError(f"engine vllm: max_length {max_length}, but {folder} holds {longest}")
        self.max_length = max_length or longest
        self.tokens = Tokens(folder)
        self.sees = sees(folder)
        self._folder = folder
        self._rows = rows
        self._count = itertools.count()
        self._resting = False
        options = dict(options or {})
        _set_environment(str(options.get("dtype", dtype)))
        import torch
        from vllm import EngineArgs
        from vllm.platforms import current_platform
        from vllm.v1.engine.llm_engine import LLMEngine

        from rlbhpc.engines.distribution import settle_vector_math
        from rlbhpc.engines.vllm_worker import collect_raw_logprobs

        self._collect_raw_logprobs = collect_raw_logprobs
        settle_vector_math()
        cpu = current_platform.is_cpu()
        # On a CPU vLLM goes through the motions of sleep and keeps its memory.
        self._sleeps = cpu or bool(options.get("enable_sleep_mode"))
        engine_args = {field.name for field in dataclasses.fields(EngineArgs)}
        arguments: dict[str, Any] = {
            "model": str(folder),
            "dtype": "float32" if cpu and dtype == "auto" else dtype,
            "max_num_seqs": rows,
            "max_model_len": self.max_length,
            "tensor_parallel_size": tensor_parallel,
            "data_parallel_size": data_parallel,
            "gpu_memory_utilization": memory,
            "enforce_eager": cpu,
            "enable_prefix_caching": True,
            # Sampling is what the request says, not what generation_config.json adds to it.
            "generation_config": "vllm",
            "disable_log_stats": True,
            "worker_extension_cls": "rlbhpc.engines.vllm_worker.Extension",
            # Pixels as the model's own processor makes them: normalised on the device, those of
            # vLLM 0.32 come out wrong without a word.
            **({NORMALISE: False} if self.sees and NORMALISE in engine_args else {}),
            **options,
        }
        try:
            self._engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
        except AttributeError as error:
            # vLLM goes on without its kernels until it needs the first of them.
            if "_OpNamespace" not in str(error):
                raise
            raise UserError(NO_KERNELS.format(error=error) + NO_LIBNUMA * cpu) from error
        self._engine.collective_rpc("measure")
        self._device = torch.cuda.current_device() if torch.cuda.is_available() else NO_GPU

    def generate(self, requests: Iterable[Request], sampling: Sampling) -> Iterator[Completion]:
        """Yield completions as they finish; see :class:`Engine`."""
        stop = StopText(self.tokens, sampling)
        with closing(Ahead([self._generate_outputs(iter(requests), sampling, stop)])) as ahead:
            for item in ahead:
                yield item if isinstance(item, Completion) else _make_completion(*item, stop)

    def _generate_outputs(
        self, requests: Iterator[Request], sampling: Sampling, stop: StopText
    ) -> Iterator[Completion | tuple[Request, RequestOutput]]:
        """Outputs as they finish, and a failed completion for each request that was refused.

        ``stop.ends`` are the tokens that end a response. ``_scoring_params`` makes vLLM's settings
        of a request; ``extra_args`` goes to the worker's own sampler, where ``whole`` says that
        tokens are drawn from the full distribution. All requests share the settings but for the
        seed; ``skip_clone`` spares vLLM's copy of them. ``_run_in_vllm`` yields each request with
        vLLM's output, or with a string that says why it was refused.
        """
        import torch

        from rlbhpc.engines.hf_model import decoded_images

        # A thread of its own begins with the first GPU.
        torch.cuda.set_device(self._device)
        extras = sampling.extras()
        extras.pop("power", None)
        params = _scoring_params(
            temperature=sampling.drawing_temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            # For the worker's own sampler: whether nothing is cut away, and whether what is drawn
            # from is not what is measured.
            extra_args={"whole": sampling.draws_from_all_tokens, "power": bool(sampling.power)},
            skip_clone=True,
            stop=sampling.stop,
            **extras | {"stop_token_ids": sorted(stop.ends)},
            # Asks the worker's sampler to measure: one number less than it measures of a token.
            logprobs=1 if sampling.power is None else 2,
        )

        def make_vllm_request(request: Request) -> tuple[Any, SamplingParams]:
            """What vLLM is asked for, and the settings; raises UserError if that is too long."""
            prompt: dict[str, Any] = {"prompt_token_ids": list(request.prompt_ids)}
            if request.images:
                prompt["multi_modal_data"] = {"image": list(decoded_images.get(request.images))}
            max_tokens = request.max_tokens or sampling.max_tokens
            reason = too_long(len(request.prompt_ids), max_tokens, self.max_length)
            if reason:
                raise UserError(reason)
            # A copy, since vLLM checks new settings, which takes 20 times as long.
            request_params = copy(params)
            request_params.max_tokens = max_tokens
            request_params.extra_args = {**params.extra_args, "seed": request.seed}
            return prompt, request_params

        for request, output in self._run_in_vllm(requests, make_vllm_request):
            if isinstance(output, str):
                yield failed_completion(request, output)
                continue
            # Only vLLM knows how many tokens an image is, and it cuts responses short for them.
            prompt_length = len(output.prompt_token_ids or ())
            max_tokens = request.max_tokens or sampling.max_tokens
            reason = too_long(prompt_length, max_tokens, self.max_length)
            if reason:
                yield failed_completion(request, reason)
            else:
                yield request, output

    def _run_in_vllm(
        self, texts: Iterator[T], make_vllm_request: Callable[[T], tuple[Any, SamplingParams]]
    ) -> Iterator[tuple[T, RequestOutput | str]]:
        """Yield each text with vLLM's output as it finishes, or with the reason of a refusal.

        ``make_vllm_request`` gives what vLLM is asked for a text, and the sampling settings. A few
        more texts are admitted than rows run at a time, so that a row that ends finds its next one
        waiting.
        """
        if self._resting:
            raise RuntimeError("the engine rests: it has no weights before load_weights")
        engine = self._engine
        running: dict[str, T] = {}
        max_admitted = int(self._rows * ADMITTED_PER_ROW)
        try:
            while True:
                while len(running) < max_admitted:
                    text = next(texts, None)
                    if text is None or text is NOT_READY:
                        break
                    name = str(next(self._count))
                    try:
                        request = engine.add_request(name, *make_vllm_request(text))
                    except (UserError, ValueError) as error:  # such as too many tokens of an image
                        yield text, str(error)
                    else:
                        self._collect_raw_logprobs(engine, request)
                        running[name] = text
                if not running and text is None:
                    return
                if not running:
                    time.sleep(IDLE_SECONDS)
                    continue
                for output in engine.step():
                    yield running.pop(output.request_id), output
        finally:
            engine.abort_request(list(running))

    def score(
        self, texts: Iterable[tuple[tuple[int, ...], tuple[int, ...]]], temperature: float = 1.0
    ) -> Iterator[Score]:
        """Score responses given their prompts; see :class:`Engine`.

        vLLM reads prompt and response as one prompt and reports what it measures of each token.
        """
        self._engine.collective_rpc("set_score_temperature", args=(temperature,))
        params = _scoring_params(temperature=0, max_tokens=1, prompt_logprobs=1)

        def make_vllm_request(text: NumberedText) -> tuple[Any, SamplingParams]:
            """What vLLM is asked for, and the settings; raises UserError if that is too long."""
            prompt, response = text[1]
            length = len(prompt) + len(response)
            if length >= self.max_length:
                raise UserError(
                    f"{length} tokens, but this engine scores fewer than {self.max_length}; raise "
                    "its max_length or use the hf engine"
                )
            return {"prompt_token_ids": [*prompt, *response]}, params

        # Texts finish in any order and are yielded in theirs.
        finished: dict[int, Score] = {}
        next_number = 0
        for text, output in self._run_in_vllm(enumerate(texts), make_vllm_request):
            number, (_, response) = text
            if isinstance(output, str):
                raise UserError(f"score: {output}")
            # The first prompt token has no entry; every other has a log-prob and an entropy.
            measured = np.asarray(output.prompt_logprobs.logprobs, np.float32).reshape(-1, 2)
            logprobs, entropies = measured[-len(response) :].T.copy()
            finished[number] = Score(logprobs, entropies)
            while next_number in finished:
                yield finished.pop(next_number)
                next_number += 1

    @cached_property
    def _skeleton(self) -> Any:
        """The transformers module whose weights are handed over by name."""
        from rlbhpc.engines.hf_model import make_module_without_data

        return make_module_without_data(self._folder)

    def load_weights(self, weights: Path | Iterable[tuple[str, torch.Tensor]]) -> None:
        """Swap the weights in place; see :class:`Engine`.

        An engine that rests has given its memory back. It takes memory for the weights before they
        come, and for the cache afterwards. ``weights_as_stored`` cuts stacks of experts into one
        tensor for each. ``_skeleton`` is the model without data, which knows the names of its
        weights; those that do not come are ``missing``.
        """
        if self._resting:
            # Weights first: what they are copied from is gone before the cache needs its room.
            self._wake_up("weights")
        from rlbhpc.engines.hf_model import named_weights, weights_as_stored

        missing: set[str] = set()

        def noted(tensors: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, Any]]:
            for name, tensor in tensors:
                missing.discard(name)
                yield name, tensor

        if isinstance(weights, Path):
            kwargs: dict[str, Any] = {"weights_path": str(weights)}
        else:
            missing |= named_weights(self._skeleton).keys()
            # One tensor at a time: no second copy of the model stands beside vLLM's.
            kwargs = {"weights_iterator": weights_as_stored(self._skeleton, noted(weights))}
        self._engine.collective_rpc("reload_weights", kwargs=kwargs)
        if missing:
            raise UserError(f"weights: {len(missing)} are missing, among them {min(missing)}")
        self._engine.collective_rpc("repack_cpu_weights")
        self._engine.reset_prefix_cache()
        # The worker forgets its images with the old weights, the scheduler only if told.
        self._engine.reset_encoder_cache()
        if self._resting:
            self._wake_up("kv_cache")
            self._resting = False

    def _wake_up(self, part: str) -> None:
        """Take memory again, of which torch keeps what the learner has let go of."""
        import torch

        torch.cuda.empty_cache()
        self._engine.wake_up([part])

    def rest(self) -> None:
        """Drop weights and cache (vLLM's sleep at level 2) where the engine was made for it."""
        if self._sleeps and not self._resting:
            self._engine.sleep(level=2)
            self._resting = True

    def close(self) -> None:
        """Shut vLLM down and give the memory back."""
        import gc

        self._engine.engine_core.shutdown()
        del self._engine
        gc.collect()


def _scoring_params(*, stop: tuple[str, ...] = (), **settings: Any) -> SamplingParams:
    """Sampling that brings what the worker measures, all at once, when it has finished.

    ``settings`` are vLLM's own. Text is made only where stop strings are looked for in it.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        **settings,
        stop=list(stop),
        detokenize=bool(stop),
        flat_logprobs=True,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _make_completion(request: Request, output: RequestOutput, stop: StopText) -> Completion:
    response = output.outputs[0]
    n_tokens = len(response.token_ids)
    measured = np.frombuffer(response.logprobs, np.float32).reshape(n_tokens, -1)
    return stop.complete(request, np.asarray(response.token_ids, np.int32), *measured.T.copy())


def _set_environment(dtype: str) -> None:
    """Set what vLLM and Triton read from the environment; what the user has set stays."""
    settings = {
        # In this process: weights are swapped without a copy, and a killed worker leaves no child.
        "ENABLE_V1_MULTIPROCESSING": "0",
        # The measuring sampler replaces the sampler of this model runner.
        "USE_V2_MODEL_RUNNER": "0",
        # And FlashInfer's, which would be compiled at each start for a trial run alone.
        "USE_FLASHINFER_SAMPLER": "0",
        # Usage statistics have no place on a compute node, nor have its warnings between the lines
        # of progress: they are of settings made here, and say that what is asked may crash.
        "NO_USAGE_STATS": "1",
        "LOGGING_LEVEL": "ERROR",
        "CPU_KVCACHE_SPACE": "1",
    }
    for name, value in settings.items():
        os.environ.setdefault(f"VLLM_{name}", value)
    if dtype == "float32":
        # Else Triton's products, with which vLLM attends in float32, keep 10 bits of a factor.
        os.environ.setdefault("TRITON_F32_DEFAULT", "ieee")
