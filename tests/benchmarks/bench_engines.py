"""Engines: tokens a second beside a plain loop, the matrix products alone, and bare vLLM.

All sides run the model of 0.87 million parameters that a whole study is rehearsed with, with
16 prompt tokens and 48 sampled ones, on the processors of one host.
"""

from __future__ import annotations

import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from rlbhpc.engines.completion import Request
from rlbhpc.engines.engine import Engine, make_engine
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.sample_rows import Sample
from rlbhpc.study.keys import SampleKey, Sampling
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.plan import SPAN, make_plan, read_presence
from tests.benchmarks import Row, in_loops
from tests.studies import untrained, write_unloadable_model

PROMPT, NEW, PROMPTS = 16, 48, 64
TOY = {
    "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 4,
}  # fmt: skip
MARK = "bench: "
SAMPLING = Sampling(1.0, 1.0, NEW)


def run() -> list[Row]:
    """All figures; each comparison takes turns in one run."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as name:
        model = make_tiny_model(Path(name) / "toy", **TOY)
        rows = hf_rows(model)
        rows += vllm_rows(model, Path(name))
        rows += plan_rows(Path(name))
    return rows


def requests(n: int, seed: int = 0) -> Iterator[Request]:
    """``n`` requests over the prompts."""
    draw = torch.Generator().manual_seed(seed)
    prompts = torch.randint(0, 256, (PROMPTS, PROMPT), generator=draw).tolist()
    for i in range(n):
        yield Request(i, tuple(prompts[i % PROMPTS]), seed * n + i)


def rate(work: Callable[[], int]) -> float:
    """Tokens a second of one go."""
    start = time.perf_counter()
    tokens = work()
    return tokens / (time.perf_counter() - start)


def in_turns(sides: dict[str, Callable[[], int]], rounds: int = 3) -> dict[str, float]:
    """Median tokens a second of each side, all sides taking turns after one that warms up."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds + 1):
        for name, work in sides.items():
            rates[name].append(rate(work))
    return {name: statistics.median(values[1:]) for name, values in rates.items()}


def sampled(engine: Engine, n: int) -> int:
    """Sample ``n`` responses; tokens."""
    return sum(len(done.token_ids) for done in engine.generate(requests(n), SAMPLING))


# --- hf ------------------------------------------------------------------------------------------


def naive(module: Any, n: int) -> int:
    """A cached decoding loop as one writes it: no refill, no seeds, log-probs of what was drawn."""
    ids = torch.tensor([request.prompt_ids for request in requests(n)])
    with torch.inference_mode():
        cache = DynamicCache()
        logits = module(ids, past_key_values=cache, use_cache=True).logits[:, -1]
        for _ in range(NEW):
            logp = torch.log_softmax(logits, -1)
            token = torch.multinomial(logp.exp(), 1)
            logp.gather(1, token)
            logits = module(token, past_key_values=cache, use_cache=True).logits[:, -1]
    return n * NEW


def products(module: Any, n: int) -> int:
    """Nothing but the matrix products with the weights that ``n`` rows need."""
    weights = [w.detach() for name, w in module.named_parameters() if w.dim() == 2]
    weights = [w for w in weights if w is not module.get_input_embeddings().weight]
    inputs = {w.shape[1]: torch.randn(n, w.shape[1]) for w in weights}
    with torch.inference_mode():
        for _ in range(NEW):
            for w in weights:
                torch.nn.functional.linear(inputs[w.shape[1]], w)
    return n * NEW


def hf_rows(model: Path, rows: int = 512) -> list[Row]:
    """The ``hf`` engine, which is deterministic on the CPU, beside a loop and its bound."""
    engine = make_engine("hf", model, rows=rows)
    module = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    eager = AutoModelForCausalLM.from_pretrained(
        model, dtype=torch.float32, attn_implementation="eager"
    )
    size = sum(p.numel() for p in module.parameters())
    found = in_turns(
        {
            "hf": lambda: sampled(engine, 4 * rows),
            "loop": lambda: naive(module, rows),
            "eager loop": lambda: naive(eager, rows),
            "products": lambda: products(module, rows),
        }
    )
    engine.close()
    hf, note = found["hf"], f"{size / 1e6:.2f}M parameters, {torch.get_num_threads()} threads"
    return [
        Row("hf, bits free of the batch", hf, "tokens/s", ">= 30,000", hf >= 30_000, note),
        Row("beside a cached loop", hf / found["loop"], "x", ">= 1.9", hf >= 1.9 * found["loop"],
            f"{found['loop']:,.0f} tokens/s"),
        Row("beside a loop with eager attention", hf / found["eager loop"], "x", ">= 1.5",
            hf >= 1.5 * found["eager loop"], f"{found['eager loop']:,.0f} tokens/s"),
        Row("share of the weights' matrix products", hf / found["products"], "x",
            note=f"{found['products']:,.0f} tokens/s would leave attention and sampling out"),
    ]  # fmt: skip


# --- vLLM ----------------------------------------------------------------------------------------


def vllm_rows(model: Path, folder: Path) -> list[Row]:
    """Our engine with exact log-probs, entropies and texts, beside ``LLM.generate``."""
    sides = ("ours", "bare", "bare without log-probs")
    ours, bare, plain = vllm_rates(model, folder, sides).values()
    return [
        Row("vllm", ours, "tokens/s", note="log-probs, full-vocabulary entropies, texts, seeds"),
        Row("beside LLM.generate, log-probs on both sides", ours / bare, "x", ">= 0.97",
            ours >= 0.97 * bare, f"{bare:,.0f} tokens/s"),
        Row("beside LLM.generate without log-probs", ours / plain, "x",
            note=f"{plain:,.0f} tokens/s"),
    ]  # fmt: skip


def vllm_rates(model: Path, folder: Path, sides: Sequence[str], n: int = 1024) -> dict[str, float]:
    """Tokens a second of ``ours`` and of ways to call ``LLM.generate``, in turns.

    Each side is in a process of its own: a process holds one vLLM.
    """
    code = (
        "import sys; from tests.benchmarks.bench_engines import vllm_side; vllm_side(*sys.argv[1:])"
    )
    started: dict[str, subprocess.Popen[str]] = {}

    def go(process: subprocess.Popen[str]) -> int:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        return int(said(process))

    try:
        for side in sides:
            # One after the other: vLLM refuses a GPU whose free memory changes while it measures.
            started[side] = subprocess.Popen(
                [sys.executable, "-c", code, side, str(model), str(n)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=(folder / side).open("w"),
                text=True,
            )  # fmt: skip
            if said(started[side]) != "ready":
                raise RuntimeError((folder / side).read_text()[-2000:])
        return in_turns({name: lambda p=process: go(p) for name, process in started.items()})
    finally:
        for process in started.values():
            process.kill()
            process.wait()


def said(side: subprocess.Popen[str]) -> str:
    """The next word of a side, whatever else a library prints; empty if it has ended."""
    assert side.stdout is not None
    marked = (line for line in side.stdout if line.startswith(MARK))
    return next(marked, "").removeprefix(MARK).strip()


def vllm_side(side: str, model: str, n: str) -> None:
    """One side: whenever a line comes in, sample everything and print the number of tokens."""
    work = _ours(model, int(n)) if side == "ours" else _bare(model, int(n), side)
    print(f"{MARK}ready", flush=True)
    for _ in sys.stdin:
        print(f"{MARK}{work()}", flush=True)


# Sides share a GPU; what a model is there for is sampled in 16 bits.
SHARE = 0.3
DTYPE = "bfloat16" if torch.cuda.is_available() else "float32"


def _ours(model: str, n: int) -> Callable[[], int]:
    engine = make_engine("vllm", model, rows=256, dtype=DTYPE, memory=SHARE)
    return lambda: sampled(engine, n)


def _bare(model: str, n: int, side: str) -> Callable[[], int]:
    """``bare``, ``bare without log-probs``, or ``bare without seeds``, which has neither."""
    from rlbhpc.engines.vllm_engine import _set_environment

    _set_environment(DTYPE)
    seeded = side != "bare without seeds"
    if not seeded:  # vLLM as it comes: ours takes another of its model runners and no sampler
        del os.environ["VLLM_USE_V2_MODEL_RUNNER"], os.environ["VLLM_USE_FLASHINFER_SAMPLER"]
    from vllm import LLM, SamplingParams

    llm = LLM(
        model, dtype=DTYPE, max_num_seqs=256, enforce_eager=DTYPE == "float32",
        enable_prefix_caching=True, generation_config="vllm", disable_log_stats=True,
        gpu_memory_utilization=SHARE,
    )  # fmt: skip
    asked = list(requests(n))
    prompts = [{"prompt_token_ids": list(request.prompt_ids)} for request in asked]
    params = [
        SamplingParams(
            temperature=1.0, max_tokens=NEW, seed=request.seed if seeded else None,
            logprobs=0 if side == "bare" else None,
        )
        for request in asked
    ]  # fmt: skip

    def work() -> int:
        outputs = llm.generate(prompts, params, use_tqdm=False)
        return sum(len(output.outputs[0].token_ids) for output in outputs)

    return work


# --- plan ----------------------------------------------------------------------------------------


def plan_rows(folder: Path) -> list[Row]:
    """Planning 500 problems × 2,048 samples, fresh and half done, each in a process of its own."""
    write_unloadable_model(folder / "model")
    (folder / "plan.yaml").write_text(untrained("large", 500, max_tokens=256, n=2048))
    study = load_study(folder / "plan.yaml")
    code = "import sys, tests.benchmarks.bench_engines as b; b.plan_side(sys.argv[1])"
    found = []
    for state in ("nothing there", "half there"):
        if state == "half there":
            store_half(study)
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder / "plan.yaml")],
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        seconds, samples, mib = map(float, done.stdout.split())
        found += [
            in_loops(f"plan of 1,024,000 samples, {state}", seconds, 20,
                     f"{samples:,.0f} samples to make"),
            Row("its memory, all of the process", mib / 1024, "GiB", "<= 1", mib <= 1024),
        ]  # fmt: skip
    return found


def store_half(study: Study) -> None:
    """Journal every second span of 64 samples, as four workers would have."""
    for worker in range(4):
        with closing(
            JournalWriter(study.layout.journals("base", "countdown"), f"made-{worker}")
        ) as writer:
            for problem in study.problem_ids("countdown"):
                print_ = study.request_fingerprint("base", 0, problem)
                for start in range(2 * worker * SPAN, 2048, 8 * SPAN):
                    for sample in range(start, start + SPAN):
                        key = SampleKey("base", 0, problem, sample)
                        writer.append(Sample(key, print_, sample, 0, 0, 200, -1.0, 1.0))


def plan_side(path: str) -> None:
    """Print seconds, samples and the process's largest size in MiB."""
    study = load_study(Path(path))
    start = time.perf_counter()
    plan = make_plan(study, read_presence(study.layout, list(study.blocks())), 5_000_000)
    plan.save(study.layout.plans)
    seconds = time.perf_counter() - start
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(seconds, plan.samples, size)


if __name__ == "__main__":
    for row in run():
        print(row)
