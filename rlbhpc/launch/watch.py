"""Follow the checkpoints of anybody's training: keep each new one, sample it, answer anew.

A checkpoint is taken once nothing in its folder changed between two looks and its weights are
whole. Its files are linked into a folder of ours (copied from another file system), so that the
training may remove them while they wait for a GPU. Everything is read from disk at each look, so
the same command goes on after any interruption.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rlbhpc.errors import UserError
from rlbhpc.files import put
from rlbhpc.launch.ask import Say, fetch, make_results
from rlbhpc.study.draft import Draft
from rlbhpc.study.layout import Layout

# How trainers name the folder of a step: Transformers and TRL, verl and DeepSpeed, OpenRLHF,
# prime-rl.
STEP_FOLDER: Final = re.compile(r"(?:checkpoint-|global_step_?|step_?)(\d+)(?:_hf)?")
KEPT_FOLDER: Final = re.compile(r"step-(\d+)")
WEIGHT_FILES: Final = ("*.safetensors", "*.bin", "*.pt", "*.distcp")
# What only a trainer needs to go on. DeepSpeed's `*_optim_states.pt` stay: they hold the weights.
TRAINER_FILES: Final = (
    "optimizer*", "optim_world_size_*", "scheduler*", "rng_state*", "extra_state_world_size_*",
    "training_args.bin", "critic",
)  # fmt: skip
STEPS_LINE: Final = re.compile(r"^    steps: \[.*\]", re.MULTILINE)

# Size and time of change in seconds of each file, by its name within the checkpoint.
Signature = dict[str, tuple[int, int]]


def checkpoint_signature(folder: Path) -> Signature:
    """Size and time of change of each file of a checkpoint, by which a change of it is noticed.

    Files that only the trainer needs, such as the optimizer's, are left out, and so is a file that
    vanishes meanwhile.
    """
    signature: Signature = {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if any(Path(name).match(pattern) for name in relative.parts for pattern in TRAINER_FILES):
            continue
        try:
            if path.is_file():
                stat = path.stat()
                signature[str(relative)] = (stat.st_size, int(stat.st_mtime))
        except FileNotFoundError:
            continue
    return signature


def has_whole_weights(folder: Path) -> bool:
    """Whether a checkpoint has weights, and all those that its safetensors files announce.

    A model in several files has an index that names the file of each tensor; it may be written
    before they are.
    """
    if not any(path for pattern in WEIGHT_FILES for path in folder.rglob(pattern)):
        return False
    try:
        for index in folder.rglob("*.safetensors.index.json"):
            shards = set(json.loads(index.read_text())["weight_map"].values())
            if not all((index.parent / shard).is_file() for shard in shards):
                return False
        return all(_is_whole(path) for path in folder.rglob("*.safetensors"))
    except (OSError, ValueError, LookupError):
        return False


def _is_whole(path: Path) -> bool:
    """Whether a safetensors file is as long as its header says.

    The file is: the header's length in 8 bytes, the header as JSON, and the tensors. The header
    gives where each tensor begins and ends, counted from the header's end.
    """
    with path.open("rb") as stream:
        header_bytes = int.from_bytes(stream.read(8), "little")
        if header_bytes > path.stat().st_size:
            return False
        header = json.loads(stream.read(header_bytes))
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    return path.stat().st_size == 8 + header_bytes + max(ends, default=0)


class CheckpointKeeper:
    """Takes finished checkpoints of a training into ``kept_folder``, as ``step-N``."""

    def __init__(self, training_folder: Path, kept_folder: Path, every_steps: int = 1) -> None:
        self.training_folder = training_folder
        self.kept_folder = kept_folder
        self.every_steps = every_steps
        self._last_signatures: dict[int, Signature] = {}

    def kept_steps(self) -> list[int]:
        """Steps that were taken, in order."""
        matches = (KEPT_FOLDER.fullmatch(path.name) for path in self.kept_folder.glob("step-*"))
        return sorted(int(match[1]) for match in matches if match)

    def take_finished(self) -> list[int]:
        """Take the checkpoints that did not change since the last look; give their steps.

        To take one is to link its files into the folder of kept checkpoints. A signature is the
        size and time of each file: the same at two looks means that the training has finished
        writing.
        """
        taken_steps = []
        for step, folder in self._checkpoints():
            signature = checkpoint_signature(folder)
            is_settled = self._last_signatures.get(step) == signature
            self._last_signatures[step] = signature
            # A training that was restarted writes other weights under the same step.
            is_new = signature != checkpoint_signature(self._kept_checkpoint(step))
            if is_settled and is_new and has_whole_weights(folder) and self._take(step, folder):
                taken_steps.append(step)
        return taken_steps

    def _checkpoints(self) -> Iterator[tuple[int, Path]]:
        """Each step's folder in the training's, of the steps that are wanted."""
        for folder in sorted(self.training_folder.iterdir()):
            match = STEP_FOLDER.fullmatch(folder.name)
            if match and folder.is_dir() and int(match[1]) % self.every_steps == 0:
                yield int(match[1]), folder

    def _kept_checkpoint(self, step: int) -> Path:
        """Our folder of a step, whether it is there yet or not."""
        return self.kept_folder / f"step-{step}"

    def _take(self, step: int, folder: Path) -> bool:
        """Link a checkpoint's files into our folder; False if it was removed meanwhile.

        The links are made in a partial folder, which gets its name once the weights in it are
        whole.
        """
        partial = self.kept_folder / f"{uuid.uuid4().hex}.partial"
        try:
            for name in checkpoint_signature(folder):
                target = partial / name
                target.parent.mkdir(parents=True, exist_ok=True)
                _link_or_copy(folder / name, target)
            if not has_whole_weights(partial):
                return False
            if self._kept_checkpoint(step).exists():
                self._kept_checkpoint(step).rename(partial.with_suffix(".replaced"))
            partial.rename(self._kept_checkpoint(step))
        except FileNotFoundError:
            return False
        finally:
            shutil.rmtree(partial, ignore_errors=True)
            shutil.rmtree(partial.with_suffix(".replaced"), ignore_errors=True)
        return True


def _link_or_copy(source: Path, target: Path) -> None:
    """Make ``target`` a hard link, which takes no space, or a copy on another file system."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copy2(source, target)


def study_text(draft: Draft, folder: Path, kept_folder: Path, steps: Sequence[int]) -> str:
    """The study file of a watched training: the trained model is the line of kept checkpoints."""
    _, _, text = draft.text(folder).partition("\n")
    text = "# Written by `rlbhpc watch`, which keeps the line `steps`. All else is yours.\n" + text
    pattern = os.path.relpath(kept_folder, folder) + "/step-{step}"
    line = f"  trained:\n    path: {json.dumps(pattern)}\n    steps: {list(steps)}"
    return re.sub(r"^  trained:\n    path: .*", lambda _: line, text, count=1, flags=re.MULTILINE)


def update_steps(file: Path, steps: Sequence[int]) -> None:
    """Write into a study file which checkpoints there are; all else in it is its user's.

    The line `steps: [...]` of the watched model is replaced, which `STEPS_LINE` matches.
    """
    text, replaced = STEPS_LINE.subn(f"    steps: {list(steps)}", file.read_text(), count=1)
    if not replaced:
        raise UserError(
            f"{file}: no line `    steps: [...]`, where the steps that were found are kept; "
            "put it back below the path of the watched model"
        )
    put(file, text.encode())


def watch_training(
    training_folder: Path, draft: Draft, file: Path, say: Say, *,
    seconds: float, every_steps: int, last_step: int | None,
    overrides: Sequence[str] = (), options: dict[str, str] | None = None,
) -> Iterator[Layout]:  # fmt: skip
    """Sample every checkpoint of a training as it appears; give the run after each round.

    Checkpoints are looked for every ``seconds``, by a thread, also while others are sampled. The
    watch ends after ``last_step``, else never. ``draft`` says what to ask of the two models, and
    ``file`` is the study file that is written from it, with the kept steps. `make_results` launches
    what is missing and waits.
    """
    kept_folder = file.absolute().parent / "watched" / draft.name
    kept_folder.mkdir(parents=True, exist_ok=True)
    for leftover in (*kept_folder.glob("*.partial"), *kept_folder.glob("*.replaced")):
        shutil.rmtree(leftover, ignore_errors=True)
    keeper = CheckpointKeeper(training_folder, kept_folder, every_steps)
    fetch(draft, say)
    has_changed = threading.Event()
    has_ended = threading.Event()

    def keep_looking() -> None:
        while not has_ended.is_set():
            if taken_steps := keeper.take_finished():
                say(f"new checkpoints: {', '.join(map(str, taken_steps))}")
                has_changed.set()
            has_ended.wait(seconds)

    has_changed.set()  # what an earlier watch has taken may not be sampled yet
    looker = threading.Thread(target=keep_looking, name="watch", daemon=True)
    looker.start()
    try:
        while True:
            while not has_changed.wait(seconds):
                if not looker.is_alive():
                    raise UserError(f"{training_folder}: cannot be read any more")
            has_changed.clear()
            steps = keeper.kept_steps()
            if not steps:
                continue
            if not file.exists():
                put(file, study_text(draft, file.absolute().parent, kept_folder, steps).encode())
            update_steps(file, steps)
            yield make_results(file, say, overrides, options)
            if last_step is not None and steps[-1] >= last_step:
                return
    finally:
        has_ended.set()
        looker.join()
