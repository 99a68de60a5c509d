"""Training with images: a policy reads of a figure what its sampler was shown."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

os.environ.setdefault("DS_ACCELERATOR", "cpu")

from rlbhpc.engines.engine import make_engine
from rlbhpc.engines.hf_model import ImageProcessor, make_module_without_data, named_weights
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import DONE, TRY_AGAIN, UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.sweep.process import Drain
from rlbhpc.train.algorithms import make_algorithm
from rlbhpc.train.batch import PromptImages, Response
from rlbhpc.train.deepspeed_engine import init_ranks
from rlbhpc.train.learner import Learner
from rlbhpc.train.loop import reject_mixed_modalities, train
from rlbhpc.train.policy import image_processor_of
from rlbhpc.train.rollout import Export, Judge, Prompt, Run, rollout_engine
from rlbhpc.train.settings import Settings
from rlbhpc.verify.verdict import Status, Verdict
from tests.train.support import quiet

PATHS = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
pytestmark = [pytest.mark.engine, pytest.mark.slow]

ONE = "See <|vision_start|><|image_pad|><|vision_end|> x?"
TWO = "<|vision_start|><|image_pad|><|vision_end|> or <|vision_start|><|image_pad|><|vision_end|>?"


def png(seed: int, height: int, width: int) -> bytes:
    out = io.BytesIO()
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(noise).save(out, "PNG")
    return out.getvalue()


FIGURES = (png(0, 56, 84), png(1, 112, 56), png(2, 56, 56))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("m") / "vl", "qwen2_5_vl", initializer_range=0.1)


def problem(number: int, images: tuple[bytes, ...]) -> Problem:
    return Problem(f"toy/{number}", {"question": "x?"}, "1", "math", images=images)


def settings(**changes: Any) -> Settings:
    given: dict[str, Any] = {
        "steps": 3, "prompts_per_step": 3, "samples_per_prompt": 4, "max_tokens": 12,
        "learning_rate": 1e-2, "micro_tokens": 150, "kl_loss": 0.01, "epochs": 2,
    }  # fmt: skip
    return Settings(**{**given, **changes})


def a_run(
    model: Path, folder: Path, settings: Settings, algorithm: str = "grpo", plain: bool = False
) -> Run:
    """Three problems: of one figure, of another, and of two."""
    encode = make_tokens(model)
    prompts = [
        Prompt(problem(0, FIGURES[:1]), encode(ONE)),
        Prompt(problem(1, FIGURES[1:2]), encode(ONE)),
        Prompt(problem(2, FIGURES[1:]), encode(TWO)),
    ]
    if plain:
        prompts.append(Prompt(problem(3, ()), encode("What is x?")))

    def vowels(judged: Any) -> float:
        return sum(judged.text.count(v) for v in "aeiou") / 12

    return Run(
        name="seeing", base=model, folder=folder,
        exports={settings.steps: Export(folder / "exported", "seeing", "run")},
        settings=settings, algorithm=make_algorithm(algorithm), prompts=prompts,
        judge=Judge(lambda *_: Verdict(Status.WRONG, ""), vowels),
        image_processor=image_processor_of(model),
    )  # fmt: skip


def trained(model: Path, folder: Path, algorithm: str = "grpo", **changes: Any) -> None:
    run = a_run(model, folder, settings(**changes), algorithm)
    with Drain() as drain:
        assert train(run, lambda: rollout_engine(run, 8), drain, quiet) == DONE


def make_tokens(model: Path) -> Any:
    from rlbhpc.engines.tokens import Tokens

    return Tokens(model).encode


def rows(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "dynamics.jsonl").read_text().splitlines()]


def test_positions_are_those_of_transformers(model: Path) -> None:
    from transformers import AutoModelForImageTextToText

    processor, encode = ImageProcessor(model), make_tokens(model)
    given = AutoModelForImageTextToText.from_pretrained(model).base_model
    for text, images in ((ONE, FIGURES[:1]), (TWO, FIGURES[:2]), (TWO, FIGURES[1:])):
        ids = processor.expand_images(encode(text), images)
        read = torch.tensor([ids])
        theirs, _ = given.get_rope_index(
            read,
            (read == processor.image_token).int(),
            image_grid_thw=processor.pixels(images)[1],
        )
        assert np.array_equal(processor.token_positions(ids, images), theirs[:, 0].numpy())


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        ("grpo", {}),
        ("ppo", {"critic_learning_rate": 1e-2}),
        ("grpo", {"zero_stage": 3, "recompute": True}),
        ("grpo", {"lora_rank": 4}),
    ],
)
def test_the_policy_sees_what_the_sampler_saw(
    model: Path, tmp_path: Path, algorithm: str, changes: dict[str, Any]
) -> None:
    """Through three steps of two updates each, all of it learning, the vision tower too."""
    trained(model, tmp_path, algorithm, **changes)
    logged = rows(tmp_path)
    assert len(logged) == 3 and all(0 <= row["rollout_corr/kl"] < 1e-8 for row in logged)
    before, after = (weights(folder) for folder in (model, tmp_path / "exported"))
    assert before.keys() == after.keys()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert any("visual" in name for name in moved) and any("layers" in n for n in moved)
    # What was exported is what was learnt: a sampler of it is a sampler of the learner.
    read = make_engine("hf", tmp_path / "exported", rows=8)
    assert read.sees
    read.close()


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def test_another_figure_is_another_prompt(model: Path) -> None:
    """The same tokens about two figures: neither prompt nor answer may be shared."""
    processor, encode = ImageProcessor(model), make_tokens(model)
    # A response may sample what marks an image in a prompt.
    answer = np.array([*range(40, 60), processor.image_token, 60, 61], np.int32)

    def shown(*images: bytes) -> Response:
        ids = processor.expand_images(encode(ONE), images)
        places = np.flatnonzero(np.array(ids) == processor.image_token)
        return Response(
            ids, answer, PromptImages(images, places, processor.token_positions(ids, images))
        )

    same, other = shown(FIGURES[2]), shown(png(9, 56, 56))
    assert same.prompt_ids == other.prompt_ids
    learner = Learner(model, settings(micro_tokens=9999), make_algorithm("grpo"))
    together = learner.logprobs(learner.policy, [same, other, same, shown(FIGURES[0])])
    alone = learner.logprobs(learner.policy, [other])
    assert torch.allclose(together[1], alone[0], atol=1e-5)
    assert torch.allclose(together[0], together[2], atol=1e-6)
    assert (together[0] - together[1]).abs().max() > 1e-3
    unseen = replace(same, prompt_images=None)
    assert (learner.logprobs(learner.policy, [unseen])[0] - together[0]).abs().max() > 1e-3


def test_a_model_that_sees_learns_from_text_as_well(model: Path, tmp_path: Path) -> None:
    run = a_run(model, tmp_path, settings(prompts_per_step=4), plain=True)
    with Drain() as drain:
        assert train(run, lambda: make_engine("hf", model, rows=8), drain, quiet) == DONE
    assert all(row["rollout_corr/kl"] < 1e-8 for row in rows(tmp_path))


def test_eyes_may_be_described_as_transformers_5_does(model: Path, tmp_path: Path) -> None:
    base = shutil.copytree(model, tmp_path / "base")
    former = base / "preprocessor_config.json"
    processor = json.loads(former.read_text())
    kind = processor.pop("processor_class")
    former.unlink()
    described = json.dumps({"processor_class": kind, "image_processor": processor})
    (base / "processor_config.json").write_text(described)
    (base / "chat_template.json").write_text("{}")
    trained(base, tmp_path / "run", steps=1)
    exported = {path.name for path in (tmp_path / "run" / "exported").iterdir()}
    assert {"tokenizer.json", "tokenizer_config.json", "chat_template.json"} <= exported
    assert ImageProcessor(tmp_path / "run" / "exported").pixels(FIGURES[:1])[0].shape == (
        ImageProcessor(model).pixels(FIGURES[:1])[0].shape
    )


@pytest.mark.torchvision
def test_the_policy_sees_what_vllm_saw(model: Path, tmp_path: Path) -> None:
    """In a process of its own: vLLM ends the world of ranks that it was begun in."""
    case = "import sys, pathlib; from tests.train.test_vision import trained;"
    case += "trained(*map(pathlib.Path, sys.argv[1:]), rollouts='vllm')"
    done = subprocess.run(
        [sys.executable, "-c", case, str(model), str(tmp_path)],
        check=False, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": PATHS},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert [row["rollout_corr/kl"] < 1e-8 for row in rows(tmp_path)] == [True] * 3


def test_whole_weights_are_known_by_their_names_in_memory(model: Path) -> None:
    """Of a model that sees they are not those in its files."""
    learner = Learner(model, settings(), make_algorithm("grpo"))
    names = {name for name, _ in learner.named_weights()}
    assert names != weights(model).keys()
    assert names == named_weights(make_module_without_data(model)).keys()


def test_a_run_that_was_asked_to_stop_goes_on_bit_for_bit(model: Path, tmp_path: Path) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    for folder, stops in ((straight, False), (broken, True)):
        code = TRY_AGAIN
        while code == TRY_AGAIN:
            with Drain() as drain:
                code = train(
                    a_run(model, folder, settings()),
                    lambda: make_engine("hf", model, rows=8),
                    drain,
                    lambda step, metrics: drain.request() if stops else None,  # noqa: B023
                )
        assert code == DONE
    whole, parts = (weights(folder / "exported") for folder in (straight, broken))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_problems_with_and_without_figures_are_for_one_rank(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(model, tmp_path, settings(), plain=True)
    init_ranks()
    reject_mixed_modalities(run)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(UserError, match="3 of 4 problems have images"):
        reject_mixed_modalities(run)


def test_a_model_without_eyes_is_not_trained_on_figures(model: Path, tmp_path: Path) -> None:
    blind = replace(a_run(model, tmp_path, settings()), image_processor=None)
    with Drain() as drain, pytest.raises(UserError, match=r"toy/\d has images, which this"):
        train(blind, lambda: make_engine("hf", model, rows=8), drain, quiet)
