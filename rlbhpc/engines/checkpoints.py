"""Checkpoints that are no model folders yet: ZeRO and FSDP states converted, adapters merged.

Both become a folder in the Hugging Face layout, made once and used by every engine. It is written
under another name and renamed when it is whole, so two workers that convert at the same time make
the same folder twice and keep one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, Final

from rlbhpc.engines.folder import configuration, follow_umask, weight_files
from rlbhpc.errors import UserError

if TYPE_CHECKING:
    import torch


# ---- FSDP ----------------------------------------------------------------------------------------
# Checkpoints of FSDP, as verl and TRL save them: each rank's shard of every tensor.
#
# Two forms are in use. PyTorch's distributed checkpoint (a folder with ``.metadata``, as Accelerate
# and so TRL write it) says of every tensor where its shards lie. verl writes what each rank held,
# ``model_world_size_8_rank_0.pt`` and so on, as DTensors that know how they were cut. Both are read
# a few tensors at a time, so a model larger than memory is converted on a login node.


METADATA: Final = ".metadata"
RANK_FILE: Final = re.compile(r"model_world_size_(\d+)_rank_(\d+)\.pt")
# Where the weights lie within what a user names: TRL's folder of a step, verl's of a step.
PLACES: Final = (".", "pytorch_model_fsdp_0", "actor")
# Where verl puts configuration and tokeniser.
COMPANIONS: Final = "huggingface"
# What wrappers leave in the names of weights.
WRAPPERS: Final = re.compile(r"_fsdp_wrapped_module\.|_orig_mod\.|_checkpoint_wrapped_module\.")
# Bytes of tensors that are held at a time, and of a file.
CHUNK: Final = 2 << 30


def sharded_weights(folder: Path) -> Path | None:
    """Folder within ``folder`` that holds a model in parts; None if there is none."""
    for place in PLACES:
        inner = folder / place
        if (inner / METADATA).is_file() or _rank_files(inner):
            return inner
    return None


def own_configuration(folder: Path) -> Path | None:
    """Folder with the configuration that was saved beside the parts, if one was."""
    for place in PLACES:
        inner = folder / place / COMPANIONS
        if (inner / "config.json").is_file():
            return inner
    return None


def gather(parts: Path, target: Path) -> None:
    """Write the weights in ``parts`` as safetensors beside the configuration in ``target``.

    ``parts`` is a checkpoint in which each rank of the training has saved its shard of every
    tensor. ``expected`` are the model's own weights by name, with shapes and no data. ``read`` is
    the reader for the checkpoint's form: it yields each weight put together. ``weights_as_stored``
    cuts stacks of experts into one tensor for each expert, as checkpoint files have them.
    """
    import torch

    from rlbhpc.engines.hf_model import make_module_without_data, named_weights, weights_as_stored

    config = configuration(target)
    dtype = getattr(torch, config.get("dtype") or config.get("torch_dtype") or "float32")
    model = make_module_without_data(target)
    expected = named_weights(model)
    missing = set(expected)
    read = _from_metadata if (parts / METADATA).is_file() else _from_ranks

    def weights() -> Iterator[tuple[str, torch.Tensor]]:
        """Yield each weight of the model in its type, once its shape is checked."""
        for name, tensor in _yield_readable(read(parts, expected), parts):
            if tensor.shape != expected[name].shape:
                shapes = f"{tuple(tensor.shape)}, the model's {tuple(expected[name].shape)}"
                raise UserError(
                    f"{parts}: {name} is {shapes}; name the model that it belongs to as its "
                    "`base`, or merge it with the program that wrote it"
                )
            # A buffer has the precision that it needs, whatever the model's is.
            buffer = not isinstance(expected[name], torch.nn.Parameter)
            missing.discard(name)
            yield name, tensor if buffer else tensor.to(dtype)

    _save_sharded(weights_as_stored(model, weights()), target)
    if missing:
        raise UserError(
            f"{parts}: {len(missing)} weights of the model are not in it, among them "
            f"{min(missing)}; name the model that it belongs to as its `base`"
        )


def _yield_readable(
    tensors: Iterator[tuple[str, torch.Tensor]], parts: Path
) -> Iterator[tuple[str, torch.Tensor]]:
    """Hand on what is read, or say that a part of it is cut off or lost.

    ``tensors`` reads the checkpoint in ``parts`` as it goes; a damaged file raises one of these
    errors.
    """
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield from tensors
    except (OSError, EOFError, RuntimeError, UnpicklingError, CheckpointException) as error:
        why = (str(error) or repr(error)).strip().splitlines()[-1]
        raise UserError(f"{parts}: cannot be read ({why}); copy it again") from None


def _match_names(
    stored: Iterable[str], expected: Mapping[str, object], place: Path
) -> dict[str, str]:
    """Map the model's names of weights to the checkpoint's, which may have a prefix and wrappers.

    ``stored`` are the checkpoint's names and ``expected`` the model's. Wrappers are words that a
    training program leaves inside a name. The prefix is what stands before the longest name of the
    model. A weight that the checkpoint does not have is left out.
    """
    stored_names = {WRAPPERS.sub("", name): name for name in stored}
    longest = max(expected, key=len)
    prefixes = [name.removesuffix(longest) for name in stored_names if name.endswith(longest)]
    if not prefixes:
        raise UserError(
            f"{place}: no {longest} in it; name the model that it belongs to as its `base`"
        )
    prefix = min(prefixes, key=len)
    matches = {}
    for name in expected:
        if prefix + name in stored_names:
            matches[name] = stored_names[prefix + name]
    return matches


def _from_metadata(
    parts: Path, expected: Mapping[str, torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Read the tensors of PyTorch's distributed checkpoint, put together from their pieces.

    ``parts`` is its folder; ``expected`` are the model's weights by name. Yields the model's names.
    ``dcp.load`` fills empty tensors in place, about :data:`CHUNK` bytes of them at a time.
    """
    import torch
    from torch.distributed import checkpoint as dcp

    metadata: Any = dcp.FileSystemReader(parts).read_metadata().state_dict_metadata
    names = _match_names(metadata, expected, parts)
    name_of = {stored: name for name, stored in names.items()}

    def empty(stored: str) -> torch.Tensor:
        entry = metadata[stored]
        return torch.empty(entry.size, dtype=entry.properties.dtype)

    for batch in _cut_into_batches((stored, empty(stored)) for stored in name_of):
        dcp.load(batch, checkpoint_id=parts, no_dist=True)
        for stored, tensor in batch.items():
            yield name_of[stored], tensor


def _rank_files(folder: Path) -> list[Path]:
    """What each rank saved, in the order of ranks; empty if none did, refused if one is missing.

    A rank is one of the processes that trained together. A file's name tells how many there were
    and which one wrote it.
    """
    file_of: dict[int, Path] = {}
    sizes: set[int] = set()
    for path in folder.glob("model_world_size_*_rank_*.pt"):
        if match := RANK_FILE.fullmatch(path.name):
            sizes.add(int(match[1]))
            file_of[int(match[2])] = path
    if not file_of:
        return []
    if len(sizes) > 1 or set(file_of) != set(range(max(sizes))):
        raise UserError(
            f"{folder}: parts of {len(file_of)} ranks, where the files' names speak of {max(sizes)}"
        )
    return [file_of[rank] for rank in sorted(file_of)]


def _from_ranks(
    parts: Path, expected: Mapping[str, torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Read the tensors of verl's files, each cut along one dimension or whole on every rank.

    ``parts`` is the folder with one file for each rank, a process of the training; ``expected`` are
    the model's weights by name. ``_match_names`` maps these to the names in the files. A DTensor is
    a rank's shard of a tensor, and its placement says along which dimension it was cut. Only cuts
    over one dimension of ranks are read: several would lay the ranks out as a grid.
    """
    import torch
    from torch.distributed.tensor import DTensor

    # Pickles, which can run code: as with DeepSpeed's, convert those you trust.
    rank_states = [
        torch.load(path, map_location="cpu", weights_only=False, mmap=True)
        for path in _rank_files(parts)
    ]
    for name, stored_name in _match_names(rank_states[0], expected, parts).items():
        shards = [state[stored_name] for state in rank_states]
        first = shards[0]
        if isinstance(first, DTensor):
            if len(first.placements) > 1:
                raise UserError(
                    f"{parts}: {name} is cut over several dimensions of ranks, which is not read; "
                    "merge it with the program that wrote it"
                )
            placement = first.placements[0]
            tensors = [shard.to_local() for shard in shards]
            is_whole = placement.is_replicate()
            # A replicated tensor is whole on every rank; any other is cut along one dimension.
            weight = tensors[0] if is_whole else torch.cat(tensors, placement.dim)
        elif isinstance(first, torch.Tensor):
            weight = first
        else:
            raise UserError(
                f"{parts}: {name} is a {type(first).__name__}, which is not read; merge it with "
                "the program that wrote it"
            )
        yield name, weight


def _cut_into_batches(
    tensors: Iterable[tuple[str, torch.Tensor]],
) -> Iterator[dict[str, torch.Tensor]]:
    """Cut named tensors into batches of about :data:`CHUNK` bytes, each emptied after its use.

    Emptied, so that the memory is free before the next batch is read.
    """
    batch: dict[str, torch.Tensor] = {}
    for name, tensor in tensors:
        batch[name] = tensor
        if sum(t.nbytes for t in batch.values()) >= CHUNK:
            yield batch
            batch.clear()
    if batch:
        yield batch


def _save_sharded(weights: Iterable[tuple[str, torch.Tensor]], target: Path) -> None:
    """Write weights in files of about :data:`CHUNK` bytes, and an index of what is where."""
    from safetensors.torch import save_file

    places: dict[str, str] = {}
    size = 0
    copies = ((name, tensor.contiguous().clone()) for name, tensor in weights)
    for number, batch in enumerate(_cut_into_batches(copies), 1):
        file = f"model-{number:05d}.safetensors"
        save_file(batch, target / file, {"format": "pt"})
        places.update(dict.fromkeys(batch, file))
        size += sum(tensor.nbytes for tensor in batch.values())
    index = {"metadata": {"total_size": size}, "weight_map": places}
    (target / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))


# ---- conversion ----------------------------------------------------------------------------------


ADAPTER: Final = "adapter_config.json"
ADAPTER_WEIGHTS: Final = "adapter_model.safetensors"
ZERO_STATES: Final = "*_optim_states.pt"
WEIGHTS: Final = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.distcp", ".metadata")
PREFIX: Final = "base_model.model."
# What a LoRA can do besides adding B·A, which is not done here.
UNMERGEABLE: Final = ("use_dora", "lora_bias", "use_qalora")


def needs_base(folder: Path) -> bool:
    """Whether a checkpoint is one only together with the model it was trained from."""
    return not (folder / "config.json").is_file() and own_configuration(folder) is None


def model_folder(folder: Path, base: Path | None, target: Path) -> Path:
    """Return a checkpoint as a model folder; a folder that is one is returned as it is.

    ``folder`` may also be a DeepSpeed checkpoint of any ZeRO stage, an FSDP checkpoint of verl or
    TRL, or a LoRA adapter; ``base`` is the model that gives what it lacks, such as the
    configuration. DeepSpeed's and verl's files are pickles, which can run code: convert those you
    trust. What is converted stays in ``target``, and is taken as it is if it is there already.
    Companions are the files beside the weights: configuration and tokeniser.
    """
    adapter = (folder / ADAPTER).is_file()
    zero = _zero_tag(folder)
    parts = sharded_weights(folder)
    if not (adapter or zero or parts):
        return folder
    if target.is_dir():
        return target
    source = base if needs_base(folder) else own_configuration(folder) or folder
    if source is None:
        raise UserError(f"{folder}: has no config.json; name the model it belongs to as its `base`")
    partial = target.with_name(f"{target.name}.{uuid.uuid4().hex}.partial")
    partial.mkdir(parents=True)
    try:
        for companions in dict.fromkeys((source, folder)):
            _copy_companions(companions, partial)
        if adapter:
            _merge_adapter(folder, source, partial)
        elif zero is not None:
            _convert_zero(*zero, partial)
        else:
            assert parts is not None
            gather(parts, partial)
        follow_umask(partial)
        try:
            partial.rename(target)
        except OSError:
            if not target.is_dir():  # else somebody was faster, with the same folder
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _copy_companions(source: Path, target: Path) -> None:
    """Copy configuration and tokeniser: all files that are no weights."""
    for file in sorted(source.iterdir()):
        weights = any(file.match(p) for p in (*WEIGHTS, "*.index.json", "zero_to_fp32.py"))
        if file.is_file() and not weights and file.name not in (ADAPTER, "latest"):
            shutil.copyfile(file, target / file.name)


# --- DeepSpeed -----------------------------------------------------------------------------------


def _zero_tag(folder: Path) -> tuple[Path, str] | None:
    """Where a DeepSpeed checkpoint is and its tag; None if this is none, or weights are beside.

    A tag is the name of a folder within the checkpoint; the file ``latest`` names the newest.
    """
    if any(folder.glob("*.safetensors")) or any(folder.glob("*.bin")):
        return None
    if any(folder.glob(ZERO_STATES)):
        return folder.parent, folder.name
    latest = folder / "latest"
    return (folder, latest.read_text().strip()) if latest.is_file() else None


def _convert_zero(folder: Path, tag: str, target: Path) -> None:
    """Write the weights of a DeepSpeed checkpoint in the type that the configuration names.

    ``folder`` and ``tag`` say where it is; ``target`` has the configuration already and gets the
    weights. A tied output layer is the embedding itself and is not stored. ``weights_as_stored``
    cuts stacks of experts into one tensor for each expert, as checkpoint files have them.
    """
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import torch
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    from safetensors.torch import save_file

    from rlbhpc.engines.hf_model import make_module_without_data, weights_as_stored

    try:
        state = get_fp32_state_dict_from_zero_checkpoint(str(folder), tag)
    except (ValueError, OSError, KeyError, EOFError, RuntimeError, UnpicklingError) as error:
        raise UserError(f"{folder}: DeepSpeed cannot gather {tag!r}: {error}") from None
    config = configuration(target)
    name = config.get("dtype") or config.get("torch_dtype") or "float32"
    tied = config.get("tie_word_embeddings", False)
    weights = {
        key: tensor.to(getattr(torch, name)).contiguous().clone()
        for key, tensor in state.items()
        if not (tied and key == "lm_head.weight")
    }
    with suppress(UserError):  # vLLM samples models that only it knows how to build
        module = make_module_without_data(target)
        if weights.keys() <= module.state_dict().keys():
            weights = dict(weights_as_stored(module, weights.items()))
    save_file(weights, target / "model.safetensors", {"format": "pt"})


# --- adapters ------------------------------------------------------------------------------------


def _merge_adapter(adapter: Path, base: Path, target: Path) -> None:
    """Write W + s·B·A for every adapted weight W of the base, and the others as they are.

    B and A are the adapter's two factors and s its scale. ``_adapt_weight`` takes the tensors that
    it uses out of ``unmerged``, so what is left in the end belongs to no weight.
    """
    from safetensors.torch import load_file, save_file

    settings = json.loads((adapter / ADAPTER).read_text())
    if settings.get("peft_type") != "LORA":
        raise UserError(
            f"{adapter}: a {settings.get('peft_type')} adapter; only LORA can be merged"
        )
    for name in UNMERGEABLE:
        if settings.get(name):
            raise UserError(f"{adapter}: {name} cannot be merged; merge it where it was trained")
    if not (adapter / ADAPTER_WEIGHTS).is_file():
        raise UserError(f"{adapter}: no {ADAPTER_WEIGHTS}; save the adapter as safetensors")
    unmerged = load_file(adapter / ADAPTER_WEIGHTS)
    files = weight_files(base)
    if not files:
        raise UserError(f"{base}: no safetensors in it; save the base as safetensors")
    for file in files:
        weights = load_file(file)
        for name in weights:
            weights[name] = _adapt_weight(name, weights[name], unmerged, settings)
        save_file(weights, target / file.name, {"format": "pt"})
    for index in base.glob("*.safetensors.index.json") if len(files) > 1 else ():
        shutil.copyfile(index, target / index.name)
    if unmerged:
        raise UserError(
            f"{adapter}: {len(unmerged)} tensors belong to nothing in {base}, "
            f"among them {min(unmerged)}"
        )


def _adapt_weight(
    name: str, weight: torch.Tensor, unmerged: dict[str, torch.Tensor], settings: Mapping[str, Any]
) -> torch.Tensor:
    """The weight with its adapter's product added; tensors used are removed from ``unmerged``.

    ``name`` is the weight's name in the base model, and ``settings`` are the adapter's own. A
    weight without an adapter is returned as it is.
    """
    replacement = unmerged.pop(PREFIX + name, None)
    if replacement is not None:  # one of PEFT's `modules_to_save`, which are trained whole
        return replacement.to(weight.dtype)
    module = PREFIX + name.removesuffix(".weight")
    lora_a = unmerged.pop(f"{module}.lora_A.weight", None)
    lora_b = unmerged.pop(f"{module}.lora_B.weight", None)
    if lora_a is None or lora_b is None:
        return weight
    product = lora_b.float() @ lora_a.float()
    if settings.get("fan_in_fan_out"):
        product = product.T
    scale = _adapter_scale(module, rank=len(lora_a), settings=settings)
    return (weight.float() + scale * product).to(weight.dtype)


def _adapter_scale(module: str, rank: int, settings: Mapping[str, Any]) -> float:
    """Factor of an adapter's product: α/r, or α/√r where the adapter is rank-stabilised.

    r is the ``rank``. ``alpha_pattern`` gives some modules an α of their own.
    """
    alpha = float(settings.get("lora_alpha", rank))
    alpha_of_modules: dict[str, float] = settings.get("alpha_pattern") or {}
    for pattern, module_alpha in alpha_of_modules.items():
        if re.fullmatch(rf"(.*\.)?({pattern})", module):
            alpha = float(module_alpha)
            break
    is_rank_stabilised = settings.get("use_rslora")
    return alpha / (rank**0.5 if is_rank_stabilised else rank)
