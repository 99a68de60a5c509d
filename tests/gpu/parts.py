"""The parts of the check; run as a program: ``NAME FOLDER`` runs one and leaves its result there.

Tolerances on CUDA were set before there was a GPU; docs/gpu.md says what one H200 gave.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rlbhpc.engines.engine import Engine, make_engine
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import DONE, TRY_AGAIN
from rlbhpc.store.tables import log_lines
from rlbhpc.study.keys import Sampling
from tests.gpu import PARTS, Figures, NotHereError, part

CUDA = torch.cuda.is_available()
VLLM = importlib.util.find_spec("vllm") is not None
RANKS = torch.cuda.device_count() if CUDA else 2
# vLLM's share of the GPU's memory, wherever a part starts it.
SHARE = 0.3
# Relative error of a float32 gradient.
EXACT = 1e-4 if CUDA else 1e-5
GREEDY = Sampling(0, 1, 24)
# The shape of Qwen2.5-0.5B with random weights: what speed and memory are about, and no download.
SHAPE: dict[str, Any] = {
    "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151_936,
    "tie_word_embeddings": True,
}  # fmt: skip

# That of Qwen2.5-1.5B, of which one GPU trains all weights.
LARGER: dict[str, Any] = {
    "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
    "num_attention_heads": 12, "num_key_value_heads": 2, "vocab_size": 151_936,
    "tie_word_embeddings": True, "max_position_embeddings": 32_768,
}  # fmt: skip


def within(what: str, value: float, most: float, least: float = 0.0) -> None:
    assert least <= value <= most, f"{what} is {value:.3g}, allowed are {least:.3g} to {most:.3g}"


def started(kind: str, model: Path, dtype: str = "float32", **options: Any) -> Engine:
    """An engine on the device."""
    device = {"device": "cuda" if CUDA else "cpu"} if kind == "hf" else {"memory": SHARE}
    return make_engine(kind, model, rows=64, dtype=dtype, **device, **options)


def compare_engines(folder: Path, figures: Figures, dtype: str, most: float) -> None:
    """Hold both engines' log-probs against plain transformers on the CPU in float32.

    A greedy token may be another than the best one only where the two are as likely.
    """
    from tests.engines.support import Truth, by_tag, requests

    model = make_tiny_model(folder / "model", initializer_range=0.1)
    truth, asked = Truth(model), requests(32)
    texts = []
    for kind in ("hf", "vllm") if VLLM else ("hf",):
        engine = started(kind, model, dtype)
        off, worse = 0.0, 0.0
        for sampling in (Sampling(0.6, 0.8, 24), GREEDY):
            done = by_tag(engine, asked, sampling)
            for request in asked:
                ids = done[request.tag].token_ids.tolist()
                logp = truth.logp(request.prompt_ids, ids, sampling.temperature)
                chosen = logp[range(len(ids)), ids]
                off = max(off, float(abs(done[request.tag].logprobs - chosen).max()))
                if sampling is GREEDY:
                    worse = max(worse, float((logp.max(-1) - chosen).max()))
        texts.append([done[request.tag].text for request in asked])
        engine.close()
        figures[f"{kind}: log-prob off by"] = off
        figures[f"{kind}: greedy token below best by"] = worse
        within(f"{kind}: error of a log-prob", off, most)
        within(f"{kind}: greedy token below the best by", worse, 2 * most)
    equal = sum(text == other for text, other in zip(texts[0], texts[-1], strict=True))
    figures["equal greedy texts"] = f"{equal} of {len(asked)}"
    if len(texts) == 1:
        figures["note"] = "hf alone: vllm is not installed"


@part("engines agree with the CPU in float32 and with each other")
def engines_float32(folder: Path, figures: Figures) -> None:
    compare_engines(folder, figures, "float32", 5e-3 if CUDA else 1e-4)


@part("the same with engines in bfloat16")
def engines_bfloat16(folder: Path, figures: Figures) -> None:
    compare_engines(folder, figures, "bfloat16", 0.2)


@part("a GRPO step equals the CPU's", "deepspeed")
def step(folder: Path, figures: Figures) -> None:
    from tests.train.support import run_steps

    model = make_tiny_model(folder / "model", hidden_size=32)
    no_gpu = {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}
    (on_cpu,) = run_steps(model, folder / "cpu.json", 1, ["0:100000"], **no_gpu)
    here = run_steps(model, folder / "here.json", 1, ["0:150:recompute", "2:150:bfloat16"])
    for dtype, most, found in zip(("float32", "bfloat16"), (EXACT, 0.05), here, strict=True):
        compare_steps(figures, dtype, on_cpu, found, most)


def compare_steps(figures: Figures, what: str, expected: Any, found: Any, most: float) -> None:
    """Hold a step's norm and gradient against another's, both relative."""
    norm = abs(found.norm / expected.norm - 1)
    gradient = float((found.gradient - expected.gradient).norm() / expected.gradient.norm())
    figures |= {f"{what}: norm off by": norm, f"{what}: gradient off by": gradient}
    within(f"{what}: error of the norm", norm, most)
    within(f"{what}: error of the gradient", gradient, most)


@part("ZeRO-3 on every GPU gives the weights of one rank", "deepspeed")
def zero3(folder: Path, figures: Figures) -> None:
    from tests.train.support import run_steps

    # Without biases, of which Adam moves one of a key as far as any other: by rounding alone.
    model = make_tiny_model(folder / "model", "llama", hidden_size=32)
    (alone,) = run_steps(model, folder / "alone.json", 1, ["0:100000"])
    (together,) = run_steps(model, folder / "together.json", RANKS, ["3:150"])
    figures["ranks"] = RANKS
    compare_steps(figures, "float32", alone, together, EXACT)
    figures["weights off by"] = float((together.weights - alone.weights).abs().max())
    # Adam moves a weight by 1e-2, wherever its gradient points.
    within("difference of a weight", figures["weights off by"], 1e-3)


@part("vLLM's sleep gives memory back, and waking takes it", "vllm")
def sleep(folder: Path, figures: Figures) -> None:
    from transformers import AutoModelForCausalLM

    from tests.engines.support import by_tag, requests

    def free() -> float:
        return torch.cuda.mem_get_info()[0] / 2**30 if CUDA else 0.0

    model = make_tiny_model(folder / "model", initializer_range=0.1)
    before = free()
    engine = started("vllm", model, options={"enable_sleep_mode": CUDA})
    first = by_tag(engine, requests(8), GREEDY)
    awake = free()
    engine.rest()
    resting = free()
    weights = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).state_dict()
    engine.load_weights(weights.items())
    woken = free()
    again = by_tag(engine, requests(8), GREEDY)
    engine.close()
    assert all(first[tag].text == again[tag].text for tag in first), "woken, it writes other texts"
    if not CUDA:
        raise NotHereError("on a CPU vLLM's sleep frees nothing (it woke with the same texts)")
    figures |= {"GiB taken": before - awake, "GiB given back": resting - awake}
    figures["GiB taken again"] = resting - woken
    within("GiB given back", resting - awake, before - awake, 0.8 * (before - awake))
    within("GiB taken again", resting - woken, 1.1 * (resting - awake), 0.9 * (resting - awake))


@part("a training that is sent TERM saves, ends with 75 and goes on", "deepspeed")
def drain(folder: Path, figures: Figures) -> None:
    from tests.train.support import endless, start_ranks, train_until_warned

    make_tiny_model(folder / "model")
    # vLLM is a GPU's default.
    options = {"rollouts": "hf"} if CUDA and not VLLM else {}
    study = partial(endless, prompts_per_step=2 * RANKS, **options)
    (folder / "toy.yaml").write_text(study())
    code, said, steps = train_until_warned(folder, RANKS)
    figures |= {"ranks": RANKS, "exit code": code, "steps before": len(steps)}
    assert code == TRY_AGAIN, said[-3000:]
    last = steps[-1] + 2
    (folder / "toy.yaml").write_text(study(steps=last))
    again = start_ranks(folder, RANKS, "-m", "rlbhpc", "train", "toy.yaml", "rl")
    said, _ = again.communicate(timeout=200)
    assert again.returncode == DONE, said[-3000:]
    (log,) = folder.glob("runs/toy/**/dynamics.jsonl")
    figures["steps after"] = len(log_lines(log))
    assert [row["step"] for row in log_lines(log)] == list(range(1, last + 1)), "a step is missing"


@part("sampling is as fast as vLLM's own generate without seeds", "vllm")
def speed(folder: Path, figures: Figures) -> None:
    from tests.benchmarks.bench_engines import vllm_rates

    model = make_tiny_model(folder / "model", **(SHAPE if CUDA else {"vocab_size": 512}))
    sides = ("ours", "bare without seeds")
    ours, bare = vllm_rates(model, folder, sides, n=1024 if CUDA else 128).values()
    figures |= {"tokens/s": ours, "tokens/s of generate": bare, "ratio": ours / bare}
    if CUDA:  # of a tiny model the scheduler is timed
        within("ratio", ours / bare, float("inf"), 0.97)


@part("a learner takes the memory that was forecast", "deepspeed")
def memory(folder: Path, figures: Figures) -> None:
    from tests.train.memory_case import bytes_held, peak_of_a_step

    if CUDA:
        peak, foretold = peak_of_a_step(make_tiny_model(folder / "model", **SHAPE), 1024)
        figures |= {"peak GiB": peak / 2**30, "forecast GiB": foretold / 2**30}
        figures["ratio"] = peak / foretold
        within("ratio", peak / foretold, 1.1, 0.9)
        return
    found = bytes_held(folder, 0, "bfloat16", 0)
    lasting = sum(found["foretold"].values()) - found["foretold"]["policy gradients"]
    figures |= {
        "lasting ratio": found["held"] / lasting,
        "activations ratio": found["activations"] / found["activations foretold"],
        "note": "bytes of tensors on the CPU; a peak is CUDA's",
    }
    within("lasting ratio", figures["lasting ratio"], 1.1, 0.9)
    within("activations ratio", figures["activations ratio"], 1.1, 0.9)


@part("a learner at 16,384 tokens: share of the device's products, and memory", "deepspeed")
def rates(folder: Path, figures: Figures) -> None:
    from tests.train.memory_case import rate_of_products, rates_of_a_step

    shape, width = (LARGER, 16_384) if CUDA else ({}, 256)
    model = make_tiny_model(folder / "model", **shape)
    found, peak, foretold = rates_of_a_step(model, width, 4)
    most = rate_of_products(8192 if CUDA else 256, torch.bfloat16, "cuda" if CUDA else "cpu")
    figures["operations/s of products"] = most
    figures |= {f"share of them, {phase}": rate / most for phase, rate in found.items()}
    if CUDA:
        figures |= {"peak GiB": peak / 2**30, "forecast GiB": foretold / 2**30}
        figures["ratio"] = peak / foretold
        within("ratio", peak / foretold, 1.1, 0.9)


def main(name: str, folder: Path) -> None:
    figures: Figures = {}
    status, why = "passed", ""
    try:
        PARTS[name].check(folder, figures)
    except NotHereError as error:
        status, why = "not run", str(error)
    except Exception as error:
        traceback.print_exc()
        status, why = "failed", traceback.format_exception_only(error)[-1].splitlines()[0]
    note = figures.pop("note", "")
    result = {"status": status, "note": why or note, "figures": figures}
    (folder / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
