"""Prompts with images: what the model is shown is what transformers would show it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageTextToText

from rlbhpc.engines import hf_model
from rlbhpc.engines import hf_model as backend
from rlbhpc.engines.completion import Completion, Finish, Request
from rlbhpc.engines.engine import Engine, make_engine
from rlbhpc.engines.hf_model import decoded_images
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import UserError
from rlbhpc.study.keys import Sampling
from tests.engines.support import by_tag, requests, same

pytestmark = pytest.mark.engine

TEXT = "See <|vision_start|><|image_pad|><|vision_end|> What is x?"
GREEDY = Sampling(0, 1, 12)
ENGINES = ["hf", pytest.param("vllm", marks=pytest.mark.torchvision)]


def png(seed: int, height: int, width: int) -> bytes:
    out = io.BytesIO()
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(noise).save(out, "PNG")
    return out.getvalue()


# No resizing: torchvision and Pillow differ in it, and engines may use either.
FIGURES = [png(0, 28, 56), png(1, 56, 56), png(2, 112, 56), png(3, 56, 56)]


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "vl"
    return make_tiny_model(folder, "qwen2_5_vl", initializer_range=0.1)


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest, seeing: Path) -> Iterator[Engine]:
    made = make_engine(request.param, seeing, rows=32)
    yield made
    made.close()


def truth(folder: Path, ids: list[int], figure: bytes) -> tuple[list[int], list[float]]:
    """Greedy tokens and their log-probs by transformers alone."""
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    shown = AutoImageProcessor.from_pretrained(folder, backend="pil")(
        images=[Image.open(io.BytesIO(figure))], return_tensors="pt"
    )
    mark = model.config.image_token_id
    at, size = ids.index(mark), int(shown["image_grid_thw"].prod()) // 4
    prompt = torch.tensor([[*ids[:at], *[mark] * size, *ids[at + 1 :]]])
    out = model.generate(
        input_ids=prompt, attention_mask=torch.ones_like(prompt), **shown,
        mm_token_type_ids=(prompt == mark).int(), max_new_tokens=GREEDY.max_tokens,
        do_sample=False, output_logits=True, return_dict_in_generate=True,
    )  # fmt: skip
    tokens = out.sequences[0, prompt.shape[1] :].tolist()
    logp = [torch.log_softmax(row[0], -1)[t] for row, t in zip(out.logits, tokens, strict=True)]
    return tokens, [float(value) for value in logp]


def test_greedy_text_is_that_of_transformers(engine: Engine, seeing: Path) -> None:
    ids = engine.tokens.encode(TEXT)
    asked = [Request(i, ids, i, (figure,)) for i, figure in enumerate(FIGURES)]
    done = by_tag(engine, asked, GREEDY)
    assert len({done[i].token_ids.tobytes() for i in range(len(FIGURES))}) > 1
    for i, figure in enumerate(FIGURES):
        tokens, logprobs = truth(seeing, list(ids), figure)
        assert done[i].token_ids.tolist() == tokens
        np.testing.assert_allclose(done[i].logprobs, logprobs, atol=1e-4, rtol=0)


def test_a_bad_image_fails_alone(engine: Engine) -> None:
    ids = engine.tokens.encode(TEXT)
    huge = Sampling(1, 1, engine.max_length - len(ids))  # fits without the figure's tokens
    broken = FIGURES[0][:60] + b"\0\1\2" + FIGURES[0][63:90]
    bad = [b"not a picture", b"", broken, png(0, 4, 1000)]  # the last is too long for its height
    asked = [Request(i, ids, i, (figure,)) for i, figure in enumerate([*bad, FIGURES[0]])]
    done = by_tag(engine, asked, GREEDY)
    assert {done[i].finish for i in range(len(bad))} == {Finish.ERROR}
    assert "cannot be read" in done[0].error
    assert done[len(bad)].finish is not Finish.ERROR
    (too_long,) = engine.generate([Request(0, ids, 0, (FIGURES[1],))], huge)
    assert too_long.finish is Finish.ERROR and "lower max_tokens" in too_long.error


def test_sixteen_bits_of_grey_are_not_cut_off() -> None:
    out = io.BytesIO()
    ramp = np.linspace(0, 65535, 256, dtype=np.uint16).reshape(16, 16)
    Image.fromarray(ramp).save(out, "PNG")
    (picture,) = decoded_images.get((out.getvalue(),))
    np.testing.assert_array_equal(np.asarray(picture)[..., 0].ravel(), np.arange(256))


def test_transparent_places_are_paper() -> None:
    out = io.BytesIO()
    Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(out, "PNG")
    assert (np.asarray(decoded_images.get((out.getvalue(),))[0]) == 255).all()


def test_pictures_are_kept_up_to_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The samples of a problem share them, and no number of large images fills the memory."""
    monkeypatch.setattr(hf_model, "KEPT_BYTES", 2 * 28 * 28 * 4)
    monkeypatch.setattr(hf_model.decoded_images, "made", {})
    large = (png(9, 112, 112),)
    assert decoded_images.get(large) is decoded_images.get(large), (
        "the last one stays, however large"
    )
    small = [(png(seed, 28, 28),) for seed in range(3)]
    for images in small:
        decoded_images.get(images)
    assert [*hf_model.decoded_images.made] == small[1:]


def test_bits_do_not_depend_on_what_runs_beside(seeing: Path) -> None:
    engine = make_engine("hf", seeing, rows=32)
    ids = engine.tokens.encode(TEXT)
    shown = [Request(i, ids, 900 + i, (FIGURES[i % 4],)) for i in range(12)]
    texts = [Request(100 + r.tag, r.prompt_ids, r.seed) for r in requests(40)]
    sampling = Sampling(1.0, 0.9, 40)

    def sampled(asked: list[Request]) -> dict[int, Completion]:
        return by_tag(engine, asked, sampling)

    together = sampled([*texts[:20], *shown, *texts[20:]])
    for request in shown:
        engine.load_weights(seeing)  # the same weights; nothing of an earlier prompt is left
        assert same(sampled([request])[request.tag], together[request.tag])
    engine.close()


def test_pixels_are_kept_up_to_a_number_of_bytes(
    seeing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room for six patches of 1,176 values: two small images of four are too many."""
    monkeypatch.setattr(backend, "KEPT_BYTES", 6 * 1176 * 4)
    processor = backend.ImageProcessor(seeing)
    first = processor.pixels(tuple(FIGURES[:1]))
    assert first[0].nbytes > backend.KEPT_BYTES
    assert processor.pixels(tuple(FIGURES[:1])) is first, "the last one stays, however large"
    for seed in range(3):
        images = (png(seed, 28, 28),)
        assert processor.pixels(images) is processor.pixels(images)
        assert [*processor.recent.made] == [images]
    monkeypatch.setattr(backend, "KEPT_BYTES", 8 * 1176 * 4)
    processor.pixels((png(3, 28, 28),))
    assert [*processor.recent.made] == [(png(seed, 28, 28),) for seed in (2, 3)]
    with pytest.raises(UserError, match=r"^the prompt marks 2 images and has 1$"):
        processor.expand_images((processor.image_token, processor.image_token), tuple(FIGURES[:1]))


def test_images_may_stand_side_by_side(seeing: Path) -> None:
    engine = make_engine("hf", seeing, rows=16)
    ids = engine.tokens.encode(TEXT.replace("<|image_pad|>", "<|image_pad|>" * 2))
    (done,) = engine.generate([Request(0, ids, 0, tuple(FIGURES[:2]))], GREEDY)
    assert done.finish is not Finish.ERROR and done.token_ids.size
    engine.close()


def test_a_model_without_eyes_says_so(tiny: Path) -> None:
    engine = make_engine("hf", tiny, rows=32)
    assert not engine.sees
    (done,) = engine.generate([Request(0, (1, 2, 3), 0, (FIGURES[0],))], GREEDY)
    assert done.finish is Finish.ERROR
    assert done.error == (
        "the hf engine shows images to qwen2_5_vl, qwen2_vl models, not to qwen2; use the vllm "
        "engine"
    )
    engine.close()
