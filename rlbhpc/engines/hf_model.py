"""Forward passes of any transformers causal model: images, prefill, one decoding step, scoring."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

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


Images = tuple[bytes, ...]
T = TypeVar("T")

# ---- pictures ------------------------------------------------------------------------------------
# Images of a request: bytes in, pictures out.

# Bytes of pixels that are kept for the next samples of their prompts, beside those of the last one:
# a large image takes 25 MB and .2 s, the largest that these models are shown 300 MB.
KEPT_BYTES = 128 * 2**20
BYTES_PER_PIXEL = 4  # Pillow gives a fourth byte to red, green and blue


class RecentImages(Generic[T]):
    """What was made of the images of the latest prompts, as far as it fits in ``KEPT_BYTES``."""

    def __init__(self, make: Callable[[Images], T], count_bytes: Callable[[T], int]) -> None:
        self._make = make
        self._count_bytes = count_bytes
        self._lock = Lock()  # batches that run side by side share it
        self.made: dict[Images, T] = {}

    def get(self, images: Images) -> T:
        """Return what was made of images, or make it now and drop the oldest to have room.

        ``images`` are the files of one prompt.
        """
        with self._lock:
            if images not in self.made:
                latest = self._make(images)
                while self.made and self._total_bytes(latest) > KEPT_BYTES:
                    oldest = next(iter(self.made))
                    del self.made[oldest]
                self.made[images] = latest
            return self.made[images]

    def _total_bytes(self, latest: T) -> int:
        return sum(self._count_bytes(entry) for entry in (latest, *self.made.values()))


def _decode_all(images: Images) -> tuple[Image, ...]:
    return tuple(_decode_image(number, data) for number, data in enumerate(images, 1))


def _decode_image(number: int, data: bytes) -> Image:
    """Decode an image, the ``number``-th of its problem, to RGB; transparency becomes white.

    ``data`` is the file's content. Pillow's mode "I" has wide grey values and "F" floats.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        picture = Image.open(io.BytesIO(data))
        if picture.mode.startswith("I"):
            # Sixteen bits of grey, which Pillow would cut off at 255: nearly all of it white.
            grey = np.clip(np.asarray(picture, np.int64) // 257, 0, 255).astype(np.uint8)
            return Image.fromarray(grey).convert("RGB")
        if picture.mode == "F":
            raise ValueError("its pixels are numbers without a scale")
        with_transparency = picture.convert("RGBA")
    except Exception as error:  # a decoder on bytes from anywhere may raise anything
        # Pillow's own words hold an address, and what is stored must be the same in every run.
        is_unknown = isinstance(error, UnidentifiedImageError)
        reason = "it has no format that Pillow reads" if is_unknown else error
        raise UserError(f"image {number} of the problem cannot be read: {reason}") from None
    paper = Image.new("RGBA", with_transparency.size, "white")
    return Image.alpha_composite(paper, with_transparency).convert("RGB")


def _decoded_bytes(pictures: tuple[Image, ...]) -> int:
    return sum(BYTES_PER_PIXEL * picture.width * picture.height for picture in pictures)


decoded_images = RecentImages(_decode_all, _decoded_bytes)


# ---- loading -------------------------------------------------------------------------------------

ATTENTION = "rlbhpc"
# Model types whose images can be shown: the Qwen2-VL family.
IMAGE_MODELS = {"qwen2_vl", "qwen2_5_vl"}
# What transformers raises for folders that it cannot load.
LOADING_ERRORS = (
    OSError, ValueError, ImportError, RuntimeError, AttributeError, SafetensorError,
)  # fmt: skip


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

    A decoding step is one new token per row over the row's cached columns (one for each earlier
    token); its mask is of floats, which are added. It is written as two batched matrix products,
    because these sum over a row's columns in order, so that masked columns at the end (exact zeros)
    leave the bits as they are; the fused kernels cut the columns by the shape of the whole batch.
    ``query`` is [rows, heads, 1, head dim], ``key`` and ``value`` [rows, kv heads, columns, head
    dim], the mask [rows, 1, 1, columns]; the result is [rows, 1, heads, value dim].
    """
    if attention_mask is None or attention_mask.dtype == torch.bool:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling)
    rows, heads, _, head_dim = query.shape
    kv_heads = key.shape[1]
    scale = head_dim**-0.5 if scaling is None else scaling
    # Query heads that share a key head go into one matrix product.
    grouped_query = query.reshape(rows * kv_heads, heads // kv_heads, head_dim)
    mask = attention_mask[:, 0].repeat_interleave(kv_heads, 0)
    scores = torch.baddbmm(mask, grouped_query, key.flatten(0, 1).mT, alpha=scale)
    weights = torch.softmax(scores, -1, dtype=torch.float32).to(value.dtype)
    attended = torch.bmm(weights, value.flatten(0, 1))
    return attended.view(rows, 1, heads, value.shape[-1]), None


ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(ATTENTION, sdpa_mask)


@contextmanager
def explain_loading_errors(folder: Path) -> Iterator[None]:
    """Turn what transformers raises for a model folder into one line; lack of memory passes.

    Errors of the system, such as a missing file, pass as well.
    """
    try:
        yield
    except LOADING_ERRORS as error:
        lacks_memory = isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)
        is_from_system = getattr(error, "errno", None)
        if lacks_memory or is_from_system:
            raise
        first_line = str(error).strip().partition("\n")[0]
        raise UserError(
            f"{folder}: not a causal model that transformers can load: {first_line}"
        ) from None


def read_config(folder: Path) -> Any:
    """Configuration of a model folder, as transformers reads it."""
    with explain_loading_errors(folder):
        return AutoConfig.from_pretrained(folder)


def model_class(config: Any) -> Any:
    """The transformers class that loads a model, with its vision tower where it has one."""
    has_vision = config.model_type in IMAGE_MODELS
    return AutoModelForImageTextToText if has_vision else AutoModelForCausalLM


def make_module_without_data(folder: Path) -> Any:
    """The module of a model folder on PyTorch's meta device: names and shapes, no weights."""
    config = read_config(folder)
    with torch.device("meta"), explain_loading_errors(folder):
        return model_class(config).from_config(config)


def named_weights(module: Any) -> dict[str, torch.Tensor]:
    """Parameters and saved buffers of a module; tied ones once."""
    saved = module.state_dict()
    buffers = {name: buffer for name, buffer in module.named_buffers() if name in saved}
    return {**dict(module.named_parameters()), **buffers}


def weights_as_stored(
    module: Any, weights: Iterable[tuple[str, torch.Tensor]]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Weights as checkpoint files have them: a stack of experts as one tensor for each expert.

    ``weights`` are the names and tensors of ``module``. Models without stacked experts are stored
    as they are.
    """
    if not has_stacked_experts(module):
        yield from weights
        return
    module._weight_conversions = get_model_conversion_mapping(module, add_legacy=False)
    for name, tensor in weights:
        yield from revert_weight_conversion(module, {name: tensor}).items()


def has_stacked_experts(module: Any) -> bool:
    """Whether a mixture of experts keeps the matrices of all experts in one tensor."""
    return any(parameter.dim() == 3 for parameter in module.parameters())


def load_module(folder: Path, dtype: torch.dtype, device: torch.device) -> Any:
    """Load a causal model for inference, with the attention of this module where it is the same.

    The ``hf`` engine caches keys and values alone, so a model that keeps another state is refused.
    """
    config = read_config(folder)
    text_config = config.get_text_config()
    with explain_loading_errors(folder):
        module = model_class(config).from_pretrained(
            folder, dtype=dtype, attn_implementation="eager"
        )
    layer_types = set(getattr(text_config, "layer_types", None) or ["full_attention"])
    if module._is_stateful or not layer_types <= {"full_attention", "sliding_attention"}:
        raise UserError(
            f"{folder}: {config.model_type} keeps more than keys and values of past tokens, which "
            "the hf engine cannot hold; use the vllm engine for this model"
        )
    # Capped scores and sinks are computed by transformers' own eager attention only.
    caps_scores = getattr(text_config, "attn_logit_softcapping", None)
    attention = ATTENTION if module._supports_sdpa and not caps_scores else "eager"
    if config.model_type in IMAGE_MODELS:
        # A vision tower attends in both directions, as PyTorch's own attention does.
        module.set_attn_implementation({"text_config": attention, "vision_config": "sdpa"})
    else:
        module.set_attn_implementation(attention)
    return module.eval().to(device)


def copy_weights(module: Any, weights: Path | Iterable[tuple[str, torch.Tensor]]) -> None:
    """Overwrite a module's weights in place from a model folder or named tensors.

    ``targets`` are the module's own tensors by name. One that is tied to another, as an output
    layer to the embedding, may be missing.
    """
    if isinstance(weights, Path):
        # transformers' own loader knows every layout that a checkpoint folder can have.
        dtype = next(module.parameters()).dtype
        source = model_class(module.config).from_pretrained(weights, dtype=dtype)
        named_tensors: Iterable[tuple[str, torch.Tensor]] = source.state_dict().items()
    else:
        named_tensors = weights
    targets = module.state_dict()
    missing = set(targets) - set(getattr(module, "all_tied_weights_keys", None) or ())
    for name, tensor in named_tensors:
        if name not in targets:
            raise UserError(f"weights: the model has no {name!r}; it is another architecture")
        if targets[name].shape != tensor.shape:
            raise UserError(
                f"weights: {name} is {tuple(tensor.shape)}, the model's is "
                f"{tuple(targets[name].shape)}"
            )
        targets[name].copy_(tensor)
        missing.discard(name)
    if missing:
        raise UserError(f"weights: {len(missing)} are missing, among them {min(missing)}")


# ---- forward passes ------------------------------------------------------------------------------


class PrefilledPrompt(NamedTuple):
    """A prompt that has been run: hidden states of its tokens, and its keys and values.

    ``rotary_offset`` is what to add to a column to get its rotary position: an image takes more
    columns than positions.
    """

    hidden: torch.Tensor
    layers: Layers
    rotary_offset: int


class Backend:
    """Forward passes of any causal model through its transformers module.

    The tokens of an image have rotary positions in time, height and width. Behind a prompt all
    three are equal again and differ from the column by the prompt's rotary offset, so a decoding
    step needs to know nothing else of the images.
    """

    def __init__(self, module: Any) -> None:
        """Wrap a loaded transformers model and take its output layer apart from its body.

        In place of the body, ``_PassThroughBody`` returns the hidden states that it is given.
        """
        self.module = module
        self.config = module.config.get_text_config()
        self.image_processor: ImageProcessor | None = None
        if module.config.model_type in IMAGE_MODELS:
            self.image_processor = ImageProcessor(module.name_or_path)
        # The outer module without its body: the output layer, with whatever scales or caps it.
        self._output_layer = copy.copy(module)
        self._output_layer._modules = {
            **module._modules,
            module.base_model_prefix: _PassThroughBody(),
        }
        self.sliding_window = sliding_window_of(self.config)
        parameter = next(module.parameters())
        self.device = parameter.device
        self.dtype = parameter.dtype

    def expand_images(self, request: Request) -> Request:
        """Give each image of a request as many tokens as the model sees of it.

        The prompt of a request marks each image with one token.
        """
        if self.image_processor is not None:
            ids = self.image_processor.expand_images(request.prompt_ids, request.images)
            return replace(request, prompt_ids=ids)
        if request.images:
            raise UserError(
                f"the hf engine shows images to {', '.join(sorted(IMAGE_MODELS))} models, not to "
                f"{self.module.config.model_type}; use the vllm engine"
            )
        return request

    def prefill(self, ids: tuple[int, ...], images: Images = ()) -> PrefilledPrompt:
        """Run one whole prompt and return its hidden states, keys and values.

        ``ids`` are its tokens, with as many for each image as the model sees. They are padded on
        the right to whole strides, a multiple of sixteen. An image takes more tokens than rotary
        positions; ``rotary_offset`` is the difference for the tokens that follow.
        """
        n_tokens = len(ids)
        padded_ids = torch.zeros((1, round_up(n_tokens)), dtype=torch.long, device=self.device)
        padded_ids[0, :n_tokens] = torch.tensor(ids)
        image_inputs: dict[str, torch.Tensor] = {}
        rotary_offset = 0
        if images:
            assert self.image_processor is not None
            pixels, patch_grids = self.image_processor.pixels(images)
            positions = torch.from_numpy(self.image_processor.token_positions(ids, images))
            rotary_offset = int(positions.max()) + 1 - n_tokens
            n_padding = padded_ids.shape[1] - n_tokens
            image_inputs = {
                "position_ids": pad(positions[:, None], (0, n_padding)).to(self.device),
                "pixel_values": pixels.to(self.device, self.dtype),
                "image_grid_thw": patch_grids.to(self.device),
            }
        cache = DynamicCache()
        output = self.module.base_model(
            input_ids=padded_ids, past_key_values=cache, use_cache=True, **image_inputs
        )
        layers = [(layer.keys, layer.values) for layer in cache.layers]
        return PrefilledPrompt(output.last_hidden_state[0, :n_tokens], layers, rotary_offset)

    def decode(self, tokens: torch.Tensor, cache: StepCache) -> torch.Tensor:
        """Run the model on one new token per row; return hidden states [rows, d].

        The token's keys and values go into the row's next column of ``cache``, which has one for
        each token. The rotary position says where in the text the token stands. The additive mask
        hides columns that a row has not filled. Some models have layers with a sliding window,
        which see only the last columns, beside layers that see all (``has_both``); then each type
        gets its own mask.
        """
        mask: Any = cache.additive_mask(self.dtype)
        if self.sliding_window is not None:
            near_mask = cache.additive_mask(self.dtype, self.sliding_window)
            has_both = getattr(self.config, "layer_types", None)
            mask = (
                {"full_attention": mask, "sliding_attention": near_mask} if has_both else near_mask
            )
        output = self.module.base_model(
            input_ids=tokens[:, None],
            position_ids=cache.rotary_positions[:, None],
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
        )
        hidden: torch.Tensor = output.last_hidden_state[:, 0]
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of hidden states [rows, d]."""
        logits: torch.Tensor = self._output_layer(inputs_embeds=hidden[None]).logits
        return logits[0]


class _BodyOutput(BaseModelOutputWithPastAndCrossAttentions):
    """Hidden states alone; some models' heads pass on what became of experts and images, too."""

    router_logits = image_hidden_states = None
    audio_hidden_states = shared_kv_states = rope_deltas = None


class _PassThroughBody(torch.nn.Module):
    """Stands for a model's body: returns the hidden states that it is given as embeddings."""

    def forward(self, *_: Any, inputs_embeds: torch.Tensor, **__: Any) -> _BodyOutput:
        return _BodyOutput(last_hidden_state=inputs_embeds)

    @property
    def decoder(self) -> _PassThroughBody:
        """What OPT calls in the place of its body."""
        return self


def sliding_window_of(config: Any) -> int | None:
    """How many tokens back the layers with a sliding window see; None where no layer has one."""
    layer_types = getattr(config, "layer_types", None)
    if layer_types and "sliding_attention" not in layer_types:
        return None
    window: int | None = getattr(config, "sliding_window", None)
    return window


# ---- key and value cache -------------------------------------------------------------------------
# Allocated once for all rows of a batch, and written in place.
#
# The tokens of a row are left-aligned, position p in column p, whenever the row was admitted and
# whatever runs beside it. A row sees its own columns 0 … p; columns behind p are masked and enter
# every sum as an exact zero. That is why a row's bits do not depend on the batch.

# Rows and columns are allocated and computed in multiples of this.
STRIDE = 16
# Processors with AVX-512 have kernels of their own for products of up to 16 columns, which round
# differently: a row would feel how long its neighbours are.
MIN_COLUMNS = 32

# Keys and values of each layer.
Layers = list[tuple[torch.Tensor, torch.Tensor]]


def round_up(n: int) -> int:
    """Smallest multiple of the stride that is at least ``n``."""
    return -(-n // STRIDE) * STRIDE


def columns_for(n_tokens: int) -> int:
    """Columns that are allocated and attended to for rows of up to ``n_tokens``."""
    return max(MIN_COLUMNS, round_up(n_tokens))


class BatchCache:
    """Keys and values of every layer: ``[rows, kv heads, columns, head dim]`` each."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.columns = 0
        self.layers: Layers = []

    def ensure_columns(self, n_tokens: int, like: Layers) -> None:
        """Have room for ``n_tokens`` a row, keeping what is cached; ``like`` gives the shapes.

        A column holds the key and the value of one token of a row. ``like`` are keys and values of
        a prompt, layer by layer.
        """
        n_new = columns_for(n_tokens) - self.columns
        if n_new <= 0:
            return
        if not self.layers:
            for keys, values in like:
                self.layers.append((self._empty_like(keys), self._empty_like(values)))
        # Nothing in the last dimension, ``n_new`` behind the end of the last but one.
        new_columns = (0, 0, 0, n_new)
        self.layers = [(pad(keys, new_columns), pad(values, new_columns)) for keys, values in
                       self.layers]  # fmt: skip
        self.columns += n_new

    def _empty_like(self, tensor: torch.Tensor) -> torch.Tensor:
        _, kv_heads, _, head_dim = tensor.shape
        return tensor.new_zeros(self.rows, kv_heads, 0, head_dim)

    def write_prompt(self, rows: torch.Tensor, prompt: Layers) -> None:
        """Copy the keys and values of one prompt into each of the rows."""
        for cached_pair, prompt_pair in zip(self.layers, prompt, strict=True):
            for cached, new in zip(cached_pair, prompt_pair, strict=True):
                cached[rows, :, : new.shape[2]] = new

    def copy_rows(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy rows over other rows."""
        for layer in self.layers:
            for cached in layer:
                cached[targets] = cached[sources]


class StepCache(Cache):
    """The batch's cache as transformers' modules see it in one decoding step.

    ``token_columns`` is the column of each row's new token. Rows behind these and columns from
    ``n_columns`` on take no part in the step.
    """

    def __init__(
        self,
        batch_cache: BatchCache,
        token_columns: torch.Tensor,
        n_columns: int,
        rotary_offsets: torch.Tensor,
    ) -> None:
        """Show ``batch_cache`` for one decoding step, which feeds one new token to each row.

        A column holds the key and the value of one token of a row. ``rotary_offsets`` is what to
        add to a row's column to get the position in its text.
        """
        super().__init__(layers=[])
        self.batch_cache = batch_cache
        self.token_columns = token_columns
        self.n_rows = len(token_columns)
        self.n_columns = n_columns
        self.rotary_positions = token_columns + rotary_offsets
        self._row_numbers = torch.arange(self.n_rows, device=token_columns.device)

    def additive_mask(self, dtype: torch.dtype, window: int | None = None) -> torch.Tensor:
        """Mask to add to attention scores, ``[rows, 1, 1, columns]``: 0, or very low where hidden.

        A row sees its columns up to that of its new token, with a ``window`` the last of them
        alone.
        """
        columns = torch.arange(self.n_columns, device=self.token_columns.device)
        newest = self.token_columns[:, None]
        is_visible = columns <= newest
        if window is not None:
            is_visible = is_visible & (columns > newest - window)
        mask = torch.zeros(is_visible.shape, dtype=dtype, device=is_visible.device)
        return mask.masked_fill_(~is_visible, torch.finfo(dtype).min)[:, None, None]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store each row's new key and value, and return all that the rows may see.

        transformers calls it in each layer. The new states are [rows, heads, 1, head dim]; what is
        returned is [rows, heads, columns, head dim].
        """
        keys, values = self.batch_cache.layers[layer_idx]
        keys[self._row_numbers, :, self.token_columns] = key_states[:, :, 0]
        values[self._row_numbers, :, self.token_columns] = value_states[:, :, 0]
        return (
            keys[: self.n_rows, :, : self.n_columns],
            values[: self.n_rows, :, : self.n_columns],
        )

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Columns before this step's."""
        return self.n_columns - 1


# ---- images --------------------------------------------------------------------------------------
# What a model of the Qwen2-VL family makes of images: pixels, tokens, and their positions.

# Pixels as the vision tower takes them, and each image's patches in time, height and width.
Pixels = tuple[torch.Tensor, torch.Tensor]


class ImageProcessor:
    """Prepares images for the model of one folder.

    A prompt marks an image with one token. Here that token becomes as many as the image has patches
    after merging; the vision tower's features take their places.
    """

    def __init__(self, folder: Path) -> None:
        # Pillow's resizing everywhere: torchvision's differs by a few bits where it is installed.
        self._processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
        self.image_token: int = AutoConfig.from_pretrained(folder).image_token_id
        self.recent = RecentImages(self._process, lambda pixels: pixels[0].nbytes)

    def pixels(self, images: Images) -> Pixels:
        """Images as the vision tower takes them, one after the other."""
        return self.recent.get(images)

    def _process(self, images: Images) -> Pixels:
        """Cut images into patches; return their pixels and their sizes in patches.

        A size is (time, height, width).
        """
        pictures = list(decoded_images.get(images))
        try:
            inputs = self._processor(images=pictures, return_tensors="pt")
        except ValueError as error:  # such as one that is 300 times as wide as high
            raise UserError(f"an image that the model cannot be shown: {error}") from None
        return inputs["pixel_values"], inputs["image_grid_thw"]

    def _merged_sizes(self, images: Images) -> list[tuple[int, int]]:
        """Height and width of each image in tokens."""
        _, patch_grids = self.pixels(images)
        merge = self._processor.merge_size
        return [(height // merge, width // merge) for _, height, width in patch_grids.tolist()]

    def expand_images(self, prompt_ids: Sequence[int], images: Images) -> tuple[int, ...]:
        """Give each image of a prompt as many tokens as the model sees of it.

        The prompt marks each image with one token, which is repeated here. Sizes are in tokens.
        """
        n_marked = prompt_ids.count(self.image_token)
        if n_marked != len(images):
            raise UserError(f"the prompt marks {n_marked} images and has {len(images)}")
        if not images:
            return tuple(prompt_ids)
        sizes = iter(self._merged_sizes(images))
        expanded: list[int] = []
        for token in prompt_ids:
            if token == self.image_token:
                height, width = next(sizes)
                expanded += [token] * (height * width)
            else:
                expanded.append(token)
        return tuple(expanded)

    def token_positions(self, expanded: Sequence[int], images: Images) -> NDArray[np.int64]:
        """Positions of an expanded prompt's tokens in time, height and width, (3, tokens).

        In an expanded prompt an image has all its tokens. Text counts on in all three. An image
        stands still in time and counts its rows and columns from there; what follows it stands
        behind the larger of the two (Wang et al. 2024, arXiv 2409.12191, section 2.1).
        """
        sizes = iter(self._merged_sizes(images))
        parts: list[NDArray[np.int64]] = []
        index = position = 0
        while index < len(expanded):
            height = width = 1  # of a text token
            if expanded[index] == self.image_token:
                height, width = next(sizes)
            # Time, row and column of each of its tokens.
            grid = np.indices((1, height, width)).reshape(3, -1)
            parts.append(grid + position)
            index += height * width
            position += max(height, width)
        return np.concatenate(parts, axis=1)
