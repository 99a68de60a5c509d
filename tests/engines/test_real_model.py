"""A real model with a real vocabulary: SmolLM2-135M-Instruct, where it has been installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from rlbhpc.engines.completion import Finish, Request
from rlbhpc.engines.engine import Engine, make_engine
from rlbhpc.engines.tokens import Tokens
from rlbhpc.problems.prompts import render
from rlbhpc.study.keys import Sampling
from tests.engines.support import by_tag

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(600)]

FOLDER = Path(sys.prefix) / "smollm2"
QUESTIONS = ("What is the capital of France?", "Name a colour of the rainbow.", "Say hello.")
ENGLISH = (
    "The sun rises in the east and sets in the west. Water boils at one hundred degrees, and "
    "freezes when it is cold enough. Children go to school in the morning and come home in the "
    "afternoon, where they read books, play games, and help their parents cook dinner."
)
NOISE = "gpz kwl qqa xvn zzt jjr brf plk wqe mnb vcx lkj hgf dsa poi uyt rew qas zxc vbn mko"


@pytest.fixture(scope="module")
def smollm2() -> Path:
    if not (FOLDER / "config.json").is_file():
        pytest.skip("no SmolLM2: tools/install_smollm2.sh installs it")
    return FOLDER


@pytest.fixture(scope="module")
def tokens(smollm2: Path) -> Tokens:
    return Tokens(smollm2)


def asked(tokens: Tokens) -> list[Request]:
    """The questions as a chat, encoded as a study's prompt is."""
    chat = tokens.tokenizer.apply_chat_template
    texts = [
        chat([{"role": "user", "content": q}], tokenize=False, add_generation_prompt=True)
        for q in QUESTIONS
    ]
    return [Request(i, tokens.encode(text), 7 + i) for i, text in enumerate(texts)]


@pytest.fixture(scope="module")
def hf(smollm2: Path) -> Iterator[Engine]:
    engine = make_engine("hf", smollm2, rows=16, dtype="float32")
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def vllm(smollm2: Path) -> Iterator[Engine]:
    engine = make_engine("vllm", smollm2, rows=16, dtype="float32", max_length=512)
    yield engine
    engine.close()


def english_and_noise(tokens: Tokens) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    start = tokens.encode("<|im_start|>")
    return [(start, tokens.encode(text)) for text in (ENGLISH, NOISE)]


def test_chat_and_both_ends_hold(tokens: Tokens) -> None:
    (first, *_) = asked(tokens)
    im_start, im_end = tokens.tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    assert (im_start, im_end) == (1, 2) and im_end in tokens.eos
    assert first.prompt_ids[0] == im_start and first.prompt_ids.count(im_start) >= 2
    assert tokens.decode([*tokens.encode("Hello, world"), im_end]) == "Hello, world"


def test_greedy_answers_are_english_and_end(engine: Engine, tokens: Tokens) -> None:
    done = by_tag(engine, asked(tokens), Sampling(0, 1, 40))
    assert "Paris" in done[0].text
    ends = [c for c in done.values() if c.finish is Finish.EOS]
    assert ends and all(int(c.token_ids[-1]) in tokens.eos for c in ends)
    assert not any("<|im_end|>" in c.text for c in done.values())


def test_english_is_likely_and_noise_is_not(engine: Engine, tokens: Tokens) -> None:
    scores = list(engine.score(english_and_noise(tokens)))
    english, noise = (float(np.exp(-s.logprobs.mean())) for s in scores)
    assert 3 < english < 40 and noise > 20 * english
    assert all((s.entropies > 0).all() and (s.entropies < np.log(49_152)).all() for s in scores)


def test_a_sampled_log_prob_is_that_of_scoring(engine: Engine, tokens: Tokens) -> None:
    requests = asked(tokens)
    done = by_tag(engine, requests, Sampling(1.0, 0.9, 24))
    texts = [(r.prompt_ids, tuple(done[r.tag].token_ids.tolist())) for r in requests]
    for request, score in zip(requests, engine.score(texts), strict=True):
        np.testing.assert_allclose(done[request.tag].logprobs, score.logprobs, atol=1e-3)
        np.testing.assert_allclose(done[request.tag].entropies, score.entropies, atol=1e-3)


def test_engines_agree(hf: Engine, vllm: Engine, tokens: Tokens) -> None:
    """Greedy texts to the letter, log-probs to rounding."""
    ours, theirs = (by_tag(engine, asked(tokens), Sampling(0, 1, 40)) for engine in (hf, vllm))
    for tag, completion in ours.items():
        assert completion.token_ids.tolist() == theirs[tag].token_ids.tolist()
        np.testing.assert_allclose(completion.logprobs, theirs[tag].logprobs, atol=1e-3)
    texts = english_and_noise(tokens)
    for one, other in zip(hf.score(texts), vllm.score(texts), strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=2e-3)


STUDY = Path(__file__).with_name("real_model.yaml").read_text()
# Four times the weights of 135 million parameters in 32 bits for a full step, sampler and all.
MOST_MIB = 6000


def rlbhpc(*words: object, codes: tuple[int, ...] = (0,)) -> int:
    """Run a verb; MiB that it held at most."""
    program = (
        "import resource, sys; from rlbhpc.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print('MiB', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)], capture_output=True, text=True,
        check=False, env={**os.environ, "DS_ACCELERATOR": "cpu"},
    )  # fmt: skip
    assert done.returncode in codes, done.stdout + done.stderr
    return int(done.stdout.rpartition("MiB ")[2])


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def study(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("real") / "real.yaml"
    path.write_text(STUDY.replace("MODEL", str(smollm2)))
    return path


@cache
def peak_of_training(study: Path, model: str) -> int:
    """Train a model of the study once; MiB that it held at most."""
    return rlbhpc("train", study, model)


@pytest.mark.parametrize("model", ["full", "lora"])
def test_grpo_takes_three_steps_within_memory(study: Path, smollm2: Path, model: str) -> None:
    assert peak_of_training(study, model) < MOST_MIB
    run = study.parent / "runs" / "real"
    (made,) = run.glob(f"**/{model}/**/config.json")
    assert weights(made.parent) != weights(smollm2)
    (curve,) = run.glob(f"**/{model}/**/dynamics.jsonl")
    steps = [json.loads(line) for line in curve.read_text().splitlines()]
    assert [step["step"] for step in steps] == [1, 2, 3]
    # Sampler and trainer read the same weights: their log-probs differ by rounding.
    assert all(abs(step["rollout_corr/kl"]) < 1e-3 for step in steps)


def test_a_run_that_was_stopped_ends_in_the_same_bits(study: Path) -> None:
    peak_of_training(study, "lora")
    again = study.parent / "again"
    words = ("train", study, "lora", "--set", f"output={again}")
    rlbhpc(*words, "--set", "models.lora.steps=[1]")
    shutil.rmtree(next(again.glob("**/step-1")), ignore_errors=True)
    rlbhpc(*words)
    whole = next((study.parent / "runs" / "real").glob("**/lora/**/model.safetensors"))
    (resumed,) = again.glob("**/lora/**/step-3/model.safetensors")
    assert resumed.read_bytes() == whole.read_bytes()


def test_all_that_was_sampled_is_read_back(study: Path, smollm2: Path, tokens: Tokens) -> None:
    """`tokens: all`: ids, log-probs and entropies of every token, as the model finds them."""
    from rlbhpc.store.samples import read_current_rows
    from rlbhpc.store.sources import Group
    from rlbhpc.study.load import load_study

    rlbhpc("sample", study)
    rlbhpc("seal", study.parent / "runs" / "real", codes=(0, 4))
    loaded = load_study(study, ())
    problems = {p.id: p for p in loaded.problems("countdown")}
    names = ["problem", "token_ids", "logprobs", "entropies", "text"]
    table = read_current_rows(loaded.layout, Group("base", "countdown"), 0, list(problems), names)
    assert table.num_rows == 4
    prompt = loaded.prompts[loaded.arms["base"].prompt]
    engine = make_engine("hf", smollm2, rows=16)
    for row in table.to_pylist():
        ids = tuple(row["token_ids"])
        assert tokens.decode(ids) == row["text"]
        question = tokens.encode(render(prompt, problems[row["problem"]]))
        (score,) = engine.score([(question, ids)])
        # Stored in 16 bits.
        np.testing.assert_allclose(row["logprobs"], score.logprobs, atol=2e-2, rtol=2e-3)
        np.testing.assert_allclose(row["entropies"], score.entropies, atol=2e-2, rtol=2e-3)
    engine.close()
