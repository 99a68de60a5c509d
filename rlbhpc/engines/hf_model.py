"""Forward passes of any transformers causal model: images, prefill, one decoding step, scoring."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch.nn.functional import pad
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    DynamicCache,
)
from transformers.cache_utils import Cache
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import revert_weight_conversion
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rlbhpc.engines.completion import Request
from rlbhpc.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image


# ---- pictures ------------------------------------------------------------------------------------
# Images of a request: bytes in, pictures out.


T = TypeVar("T")

# Bytes of pixels that are kept for the next samples of their prompts, beside those of the last one:
# a large image takes 25 MB and .2 s, the largest that these models are shown 300 MB.
KEPT = 128 * 2**20
BYTES_PER_PIXEL = 4  # Pillow gives a fourth byte to red, green and blue

_kept: dict[tuple[bytes, ...], tuple[Image, ...]] = {}
_lock = Lock()


def decode_images(images: tuple[bytes, ...]) -> tuple[Image, ...]:
    """Decode images to RGB; transparent places become white, as paper is."""
    with _lock:
        if images not in _kept:
            pictures = tuple(_decode_image(number, data) for number, data in enumerate(images, 1))
            keep(_kept, images, pictures, _decoded_bytes, KEPT)
        return _kept[images]


def keep(
    kept: dict[tuple[bytes, ...], T],
    images: tuple[bytes, ...],
    made: T,
    size: Callable[[T], int],
    limit: int,
) -> None:
    """Keep what was made of images, and of what was made before only what fits beside it."""
    while kept and sum(map(size, [made, *kept.values()])) > limit:
        del kept[next(iter(kept))]
    kept[images] = made


def _decoded_bytes(pictures: tuple[Image, ...]) -> int:
    return sum(BYTES_PER_PIXEL * picture.width * picture.height for picture in pictures)


def _decode_image(number: int, data: bytes) -> Image:
    """Decode one image to RGB, whatever its mode and transparency."""
    from PIL import Image, UnidentifiedImageError

    try:
        read = Image.open(io.BytesIO(data))
        if read.mode.startswith("I"):
            # Sixteen bits of grey, which Pillow would cut off at 255: nearly all of it white.
            grey = np.clip(np.asarray(read, np.int64) // 257, 0, 255).astype(np.uint8)
            return Image.fromarray(grey).convert("RGB")
        if read.mode == "F":
            raise ValueError("its pixels are numbers without a scale")
        picture = read.convert("RGBA")
    except Exception as error:  # a decoder on bytes from anywhere may raise anything
        # Pillow's own words hold an address, and what is stored must be the same in every run.
        unknown = isinstance(error, UnidentifiedImageError)
        reason = "it has no format that Pillow reads" if unknown else error
        raise UserError(f"image {number} of the problem cannot be read: {reason}") from None
    paper = Image.new("RGBA", picture.size, "white")
    return Image.alpha_composite(paper, picture).convert("RGB")


# ---- hf model ------------------------------------------------------------------------------------
# Forward passes of any transformers causal model: prefill, one decoding step, scoring.


ATTENTION = "rlbhpc"
# Model types whose images can be shown: the Qwen2-VL family.
SEEING = {"qwen2_vl", "qwen2_5_vl"}


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **__: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as transformers calls it: ours for a decoding step, PyTorch's for a prefill.

    Ours is of one new token per row over its slot. It is written as two batched matrix products,
    because these sum over a row's columns in order, so that masked columns at the end (exact zeros)
    leave the bits as they are; the fused kernels cut the columns by the shape of the whole batch.
    ``query`` is [rows, heads, 1, head dim], ``key`` and ``value`` [rows, kv heads, width, head
    dim], the mask, which is added, [rows, 1, 1, width]; the result is [rows, 1, heads, value dim].
    """
    if attention_mask is None or attention_mask.dtype == torch.bool:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    rows, heads, _, dim = query.shape
    kv_heads = key.shape[1]
    grouped = query.reshape(rows * kv_heads, heads // kv_heads, dim)
    mask = attention_mask[:, 0].repeat_interleave(kv_heads, 0)
    scores = torch.baddbmm(mask, grouped, key.flatten(0, 1).mT, alpha=scale)
    weights = torch.softmax(scores, -1, dtype=torch.float32).to(value.dtype)
    return torch.bmm(weights, value.flatten(0, 1)).view(rows, 1, heads, value.shape[-1]), None


ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(ATTENTION, sdpa_mask)


@contextmanager
def loading(folder: Path) -> Iterator[None]:
    """Say in one line why transformers does not load a model folder."""
    try:
        yield
    except (
        OSError, ValueError, ImportError, RuntimeError, AttributeError, SafetensorError,
    ) as error:  # fmt: skip
        passing = isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)
        if passing or getattr(error, "errno", None):
            raise
        why = str(error).strip().partition("\n")[0]
        raise UserError(f"{folder}: not a causal model that transformers can load: {why}") from None


def read_config(folder: Path) -> Any:
    """Configuration of a model folder."""
    with loading(folder):
        return AutoConfig.from_pretrained(folder)


def skeleton(folder: Path) -> Any:
    """The module of a model folder, without data."""
    config = read_config(folder)
    with torch.device("meta"), loading(folder):
        return model_kind(config).from_config(config)


def whole_weights(module: Any) -> dict[str, torch.Tensor]:
    """Weights and saved buffers of a module; tied ones once."""
    saved = module.state_dict()
    buffers = {name: buffer for name, buffer in module.named_buffers() if name in saved}
    return {**dict(module.named_parameters()), **buffers}


def stored_weights(
    module: Any, weights: Iterable[tuple[str, torch.Tensor]]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Weights as the files of a checkpoint have them, where each expert stands by itself."""
    if all(parameter.dim() != 3 for parameter in module.parameters()):
        yield from weights
        return
    module._weight_conversions = get_model_conversion_mapping(module, add_legacy=False)
    for name, tensor in weights:
        yield from revert_weight_conversion(module, {name: tensor}).items()


def load_module(folder: Path, dtype: torch.dtype, device: torch.device) -> Any:
    """Load a causal model for inference."""
    config = read_config(folder)
    text = config.get_text_config()
    with loading(folder):
        kind = model_kind(config)
        module = kind.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    # Capped scores and sinks are computed by transformers' own eager attention only.
    plain = module._supports_sdpa and not getattr(text, "attn_logit_softcapping", None)
    attention = ATTENTION if plain else "eager"
    # A vision tower looks both ways, which PyTorch's own attention does.
    per_part = {"text_config": attention, "vision_config": "sdpa"}
    module.set_attn_implementation(per_part if config.model_type in SEEING else attention)
    kinds = set(getattr(text, "layer_types", None) or ["full_attention"])
    if module._is_stateful or not kinds <= {"full_attention", "sliding_attention"}:
        raise UserError(
            f"{folder}: {config.model_type} keeps more than keys and values of past tokens, which "
            "the hf engine cannot hold; use the vllm engine for this model"
        )
    return module.eval().to(device)


def model_kind(config: Any) -> Any:
    """The loader of a model: with its vision tower, where it has one."""
    seeing = config.model_type in SEEING
    return AutoModelForImageTextToText if seeing else AutoModelForCausalLM


def copy_weights(module: Any, weights: Path | Iterable[tuple[str, torch.Tensor]]) -> None:
    """Overwrite a module's weights in place from a model folder or named tensors."""
    mine = module.state_dict()
    if isinstance(weights, Path):
        # transformers' own loader knows every layout that a checkpoint folder can have.
        dtype = next(module.parameters()).dtype
        kind = model_kind(module.config)
        named = kind.from_pretrained(weights, dtype=dtype).state_dict().items()
    else:
        named = weights
    missing = set(mine) - set(getattr(module, "all_tied_weights_keys", None) or ())
    for name, tensor in named:
        if name not in mine:
            raise UserError(f"weights: the model has no {name!r}; it is another architecture")
        if mine[name].shape != tensor.shape:
            raise UserError(
                f"weights: {name} is {tuple(tensor.shape)}, the model's is "
                f"{tuple(mine[name].shape)}"
            )
        mine[name].copy_(tensor)
        missing.discard(name)
    if missing:
        raise UserError(f"weights: {len(missing)} are missing, among them {min(missing)}")


class Prefix(NamedTuple):
    """A prompt that has been run: the hidden states of its tokens, its cache and its shift."""

    hidden: torch.Tensor
    layers: Layers
    shift: int


class Backend:
    """Any causal model through its transformers module.

    Positions of a prompt with images run in three directions over each (:mod:`.sight`). Behind it
    they are plain again, but lower than the column by a *shift* that belongs to the prompt; a
    decoding step needs nothing else of the images.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        self.config = module.config.get_text_config()
        self.sight = Sight(module.name_or_path) if module.config.model_type in SEEING else None
        # The outer module without its body: the output layer, with whatever scales or caps it.
        self._head = copy.copy(module)
        self._head._modules = {**module._modules, module.base_model_prefix: _Given()}
        self.near = near_sight(self.config)
        parameter = next(module.parameters())
        self.device, self.dtype = parameter.device, parameter.dtype

    def expand(self, request: Request) -> Request:
        """Give each image of a request as many tokens as the model sees of it."""
        if self.sight is not None:
            ids = self.sight.expand(request.prompt_ids, request.images)
            return replace(request, prompt_ids=ids)
        if request.images:
            raise UserError(
                f"the hf engine shows images to {', '.join(sorted(SEEING))} models, not to "
                f"{self.module.config.model_type}; use the vllm engine"
            )
        return request

    def prefill(self, ids: tuple[int, ...], images: tuple[bytes, ...] = ()) -> Prefix:
        """Run one expanded prompt, padded on its right to whole strides."""
        padded = torch.zeros((1, round_up(len(ids))), dtype=torch.long, device=self.device)
        padded[0, : len(ids)] = torch.tensor(ids)
        pictures: dict[str, torch.Tensor] = {}
        shift = 0
        if images:
            assert self.sight is not None
            pixels, grids = self.sight.pixels(images)
            positions = torch.from_numpy(self.sight.positions(ids, images))[:, None]
            shift = int(positions.max()) + 1 - len(ids)
            pictures = {
                "position_ids": pad(positions, (0, padded.shape[1] - len(ids))).to(self.device),
                "pixel_values": pixels.to(self.device, self.dtype),
                "image_grid_thw": grids.to(self.device),
            }
        cache = DynamicCache()
        hidden = self.module.base_model(
            input_ids=padded, past_key_values=cache, use_cache=True, **pictures
        ).last_hidden_state
        layers = [(layer.keys, layer.values) for layer in cache.layers]
        return Prefix(hidden[0, : len(ids)], layers, shift)

    def step(self, tokens: torch.Tensor, window: Window) -> torch.Tensor:
        """Feed one token per row at the window's positions; the hidden states ``[rows, d]``."""
        mask: Any = window.additive(self.dtype)
        if self.near is not None:
            near = window.additive(self.dtype, self.near)
            kinds = getattr(self.config, "layer_types", None)
            mask = {"full_attention": mask, "sliding_attention": near} if kinds else near
        hidden: torch.Tensor = self.module.base_model(
            input_ids=tokens[:, None],
            position_ids=window.turns[:, None],
            attention_mask=mask,
            past_key_values=window,
            use_cache=True,
        ).last_hidden_state
        return hidden[:, 0]

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of hidden states."""
        logits: torch.Tensor = self._head(inputs_embeds=hidden[None]).logits
        return logits[0]


class _States(BaseModelOutputWithPastAndCrossAttentions):
    """Hidden states alone; some models' heads pass on what became of experts and images, too."""

    router_logits = image_hidden_states = None
    audio_hidden_states = shared_kv_states = rope_deltas = None


class _Given(torch.nn.Module):
    """Stands for a base model whose hidden states are known already."""

    def forward(self, *_: Any, inputs_embeds: torch.Tensor, **__: Any) -> _States:
        return _States(last_hidden_state=inputs_embeds)

    @property
    def decoder(self) -> _Given:
        """What OPT calls in the place of its base model."""
        return self


def near_sight(config: Any) -> int | None:
    """How many tokens back near-sighted layers see; None where no layer is near-sighted."""
    kinds = getattr(config, "layer_types", None)
    if kinds and "sliding_attention" not in kinds:
        return None
    window: int | None = getattr(config, "sliding_window", None)
    return window


# ---- slots ---------------------------------------------------------------------------------------
# The static KV cache: one slot per running row, allocated once, written in place.
#
# A row's tokens lie left-aligned in its slot, position p in column p, whenever it was admitted and
# whoever sits beside it. What a row sees is its own columns 0 … p; columns behind p are masked and
# enter every sum as an exact zero. That is why a row's bits do not depend on the batch.


# Columns are allocated and attended to in multiples of this.
STRIDE = 16
# And no fewer than this: processors with AVX-512 have kernels of their own for products of up to 16
# columns, which round differently, and a row would feel how long its neighbours are.
NARROWEST = 32

Layers = list[tuple[torch.Tensor, torch.Tensor]]


def round_up(n: int, multiple: int = STRIDE) -> int:
    """Smallest multiple that is at least ``n``."""
    return -(-n // multiple) * multiple


def width_for(n: int) -> int:
    """Columns that are allocated and attended to for rows of up to ``n`` tokens."""
    return max(NARROWEST, round_up(n))


class Slots:
    """Keys and values of every layer: ``[rows, kv heads, width, head dim]`` each."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.width = 0
        self.layers: Layers = []

    def reserve(self, width: int, like: Layers) -> None:
        """Make room for ``width`` columns, keeping what is there; shapes follow ``like``."""
        more = width_for(width) - self.width
        if more <= 0:
            return
        for i, pair in enumerate(like):
            if i == len(self.layers):
                empty = [t.new_zeros(self.rows, t.shape[1], 0, t.shape[3]) for t in pair]
                self.layers.append((empty[0], empty[1]))
            key, value = self.layers[i]
            self.layers[i] = pad(key, (0, 0, 0, more)), pad(value, (0, 0, 0, more))
        self.width += more

    def place(self, slots: torch.Tensor, prefix: Layers) -> None:
        """Copy a prefilled prompt into each of the slots."""
        for mine, theirs in zip(self.layers, prefix, strict=True):
            for t, p in zip(mine, theirs, strict=True):
                t[slots, :, : p.shape[2]] = p

    def move(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy rows to other slots."""
        for pair in self.layers:
            for t in pair:
                t[targets] = t[sources]


class Window(Cache):
    """One decoding step's view of the slots, as transformers' modules see a cache.

    It says where each row writes and what each row sees.
    """

    def __init__(
        self, slots: Slots, positions: torch.Tensor, width: int, shifts: torch.Tensor
    ) -> None:
        super().__init__(layers=[])
        self.slots = slots
        self.live = len(positions)
        self.width = width
        self.positions = positions
        # What a rotary embedding counts; an image takes more columns than turns.
        self.turns = positions + shifts
        self._rows = torch.arange(self.live, device=positions.device)

    def additive(self, dtype: torch.dtype, last: int | None = None) -> torch.Tensor:
        """Mask to add to scores, ``[rows, 1, 1, width]``; only the ``last`` columns are seen."""
        columns = torch.arange(self.width, device=self.positions.device)
        visible = columns <= self.positions[:, None]
        if last is not None:
            visible = visible & (columns > self.positions[:, None] - last)
        mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
        return mask.masked_fill_(~visible, torch.finfo(dtype).min)[:, None, None]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store one token's ``[rows, heads, 1, head dim]`` at the rows' columns; what rows see."""
        stored = self.slots.layers[layer_idx]
        for t, new in zip(stored, (key_states, value_states), strict=True):
            t[self._rows, :, self.positions] = new[:, :, 0]
        return stored[0][: self.live, :, : self.width], stored[1][: self.live, :, : self.width]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Columns before this step's."""
        return self.width - 1


# ---- sight ---------------------------------------------------------------------------------------
# What a model of the Qwen2-VL family makes of images: pixels, tokens, and where they stand.


#: Pixels as the vision tower takes them, and each image's patches in time, height and width.
Pixels = tuple[torch.Tensor, torch.Tensor]


class Sight:
    """The eyes of one model folder.

    A prompt marks an image with one token. Here that token becomes as many as the image has patches
    after merging; the vision tower's features take their places.
    """

    def __init__(self, folder: Path) -> None:
        # Pillow's resizing everywhere: torchvision's differs by a few bits where it is installed.
        self._processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
        self.mark: int = AutoConfig.from_pretrained(folder).image_token_id
        self._kept: dict[tuple[bytes, ...], Pixels] = {}
        self._lock = Lock()  # batches that run side by side share one pair of eyes

    def expand(self, prompt_ids: Sequence[int], images: tuple[bytes, ...]) -> tuple[int, ...]:
        """Give each image of a prompt as many tokens as the model sees of it."""
        marks = prompt_ids.count(self.mark)
        if marks != len(images):
            raise UserError(f"the prompt marks {marks} images and has {len(images)}")
        if not images:
            return tuple(prompt_ids)
        patches = self.pixels(images)[1].prod(dim=1)
        sizes = iter((patches // self._processor.merge_size**2).tolist())
        ids: list[int] = []
        for token in prompt_ids:
            ids += [token] * (next(sizes) if token == self.mark else 1)
        return tuple(ids)

    def positions(self, expanded: Sequence[int], images: tuple[bytes, ...]) -> NDArray[np.int64]:
        """Where the tokens of an expanded prompt stand in time, height and width, (3, tokens).

        Text counts on in all three. An image stands still in time and counts its rows and columns
        from there; what follows it stands behind the larger of the two (Wang et al. 2024,
        arXiv 2409.12191, section 2.1).
        """
        parts: list[NDArray[np.int64]] = []
        sizes = iter((self.pixels(images)[1][:, 1:] // self._processor.merge_size).tolist())
        index, start = 0, 0
        while index < len(expanded):
            if expanded[index] == self.mark:
                height, width = next(sizes)
                grid = np.indices((1, height, width)).reshape(3, -1)
                parts.append(grid + start)
                index, start = index + height * width, start + max(height, width)
            else:
                parts.append(np.full((3, 1), start))
                index, start = index + 1, start + 1
        return np.concatenate(parts, axis=1)

    def pixels(self, images: tuple[bytes, ...]) -> Pixels:
        """Images as the vision tower takes them, one after the other."""
        with self._lock:
            if images not in self._kept:
                try:
                    inputs = self._processor(
                        images=list(decode_images(images)), return_tensors="pt"
                    )
                except ValueError as error:  # such as one that is 300 times as wide as high
                    raise UserError(f"an image that the model cannot be shown: {error}") from None
                fresh = inputs["pixel_values"], inputs["image_grid_thw"]
                keep(self._kept, images, fresh, lambda pixels: pixels[0].nbytes, KEPT)
            return self._kept[images]
