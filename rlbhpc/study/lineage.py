"""Checkpoints: what decides their answers, what made them, and whether they are the study's own.

Only bytes are read, never a tensor, so this runs on a login node. A digest is kept in the user's
cache folder under (path, size, times of change) of each file: the first one of a 7B model takes
as long as reading 15 GB, every later one a few milliseconds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.files import put, sha256_of, temporary_path
from rlbhpc.study.schema import FREE_OPTIONS, Recipe, Teacher
from rlbhpc.study.study import Study

# The files of a checkpoint folder that decide its answers.

WEIGHTS: Final = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
# Configuration, tokenizer and preprocessor files: each can change an answer.
SETTINGS: Final = (
    "*.json",
    "*.jinja",
    "*.model",
    "*.tiktoken",
    "merges.txt",
    "vocab.txt",
    "*.py",
)
# Training state and notes, of no effect on an answer.
WITHOUT_EFFECT: Final = (
    "optimizer.*",
    "scheduler.*",
    "rng_state*",
    "training_args.*",
    "trainer_state.json",
    "zero_to_fp32.py",
    "manifest.json",
    "origin.json",
)
# DeepSpeed's optimizer states hold the float32 weights too, which count where there are no others.
OPTIMIZER_STATES: Final = ("*optim_states*",)
LOADABLE_WEIGHTS: Final = ("*.safetensors", "*.bin", "*.gguf")
# Folders of other formats of the same model, kept apart from the weights in use.
OTHER_FORMATS: Final = ("original", "onnx", "runs", "logs")
MAX_LFS_POINTER_BYTES: Final = 200
# Smaller files are read faster than their digest is looked up.
MIN_CACHED_BYTES: Final = 1 << 16
SHA256_DIGITS: Final = 64


class FileMark(NamedTuple):
    """One file as it was when it was read: size, times in nanoseconds, SHA-256."""

    size: int
    modified: int
    changed: int
    sha256: str


FileMarks = dict[str, FileMark]
"""The files of a checkpoint that count, by their path in it."""


def content_digest(folder: Path) -> str:
    """32 hex digits over names, sizes and contents of all files that decide a model's answers."""
    return digest_marks(mark_files(folder))


def mark_files(folder: Path) -> FileMarks:
    """Return size, times and SHA-256 of every file of a checkpoint that decides its answers.

    A *mark* is this record of one file; the keys are paths below ``folder``. A folder without
    weights is refused, as are weights that Git LFS has not fetched.
    """
    files = content_files(folder)
    weights = [file for file in files if _matches(file.name, WEIGHTS)]
    if not weights:
        raise UserError(
            f"{folder}: no weights in it ({', '.join(WEIGHTS)}); give the folder of a checkpoint"
        )
    _reject_lfs_pointers(weights)
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        marks = list(pool.map(_mark_file, files))
    names = [file.relative_to(folder).as_posix() for file in files]
    return dict(zip(names, marks, strict=True))


def _reject_lfs_pointers(weights: list[Path]) -> None:
    """Refuse weights of which Git LFS has fetched only pointers: small text files in their place.

    One format that is there whole is enough, so it is an error only if every format (file ending)
    has pointers.
    """
    pointers = []
    for file in weights:
        is_small = _size_and_times(file)[0] < MAX_LFS_POINTER_BYTES
        if is_small and file.read_bytes().startswith(b"version https://git-lfs"):
            pointers.append(file)
    # Mistral's own format, consolidated.safetensors, stands beside the one that is read.
    missing = {file.suffix for file in pointers if not file.name.startswith("consolidated")}
    if pointers and missing >= {file.suffix for file in weights}:
        raise UserError(f"{pointers[0]}: a pointer of Git LFS; run `git lfs pull` there")


def digest_marks(marks: FileMarks) -> str:
    """The digest of a checkpoint by its files."""
    lines = [f"{name}\0{mark.size}\0{mark.sha256}" for name, mark in marks.items()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def changed_content(folder: Path, marks: FileMarks) -> str | None:
    """Return the digest of a checkpoint whose files are not those of the marks; None if they are.

    A *mark* is the size, times and SHA-256 of a file as it was. While sizes and times are the same,
    no file is read: 15 GB cost a few milliseconds.
    """
    now = {file.relative_to(folder).as_posix(): file for file in content_files(folder)}
    if now.keys() == marks.keys():
        is_untouched = [_size_and_times(now[name]) == mark[:3] for name, mark in marks.items()]
        if all(is_untouched):
            return None
    digest = content_digest(folder)
    return None if digest == digest_marks(marks) else digest


def _mark_file(file: Path) -> FileMark:
    size, modified, changed = _size_and_times(file)
    return FileMark(size, modified, changed, file_digest(file))


def _size_and_times(file: Path) -> tuple[int, int, int]:
    """Size in bytes, and the times of modification and change in nanoseconds."""
    try:
        status = file.stat()
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def content_files(folder: Path) -> list[Path]:
    """Return the files of a checkpoint that decide its answers, sorted by path.

    Left out are other formats of the same model, checkpoints below this one, notes and training
    state; DeepSpeed's optimizer files count only if there are no other weights. ``subfolders[:]``
    is what tells `os.walk` where to go on.
    """
    files = []
    for parent, subfolders, names in os.walk(folder, followlinks=False):
        subfolders[:] = [name for name in subfolders if _belongs_to_model(Path(parent, name))]
        files += [Path(parent, name) for name in names if _decides_answers(name)]
    if any(_matches(file.name, LOADABLE_WEIGHTS) for file in files):
        files = [file for file in files if not _matches(file.name, OPTIMIZER_STATES)]
    return sorted(files, key=lambda file: file.relative_to(folder).as_posix())


def _decides_answers(name: str) -> bool:
    """Whether a file of this name can change what a model answers."""
    return _matches(name, WEIGHTS + SETTINGS) and not _matches(name, WITHOUT_EFFECT)


def _belongs_to_model(subfolder: Path) -> bool:
    """Whether a folder inside of a checkpoint is part of it."""
    if subfolder.name in OTHER_FORMATS or subfolder.name.startswith("."):
        return False
    # A folder with a configuration of its own is another checkpoint, saved below this one.
    return not (subfolder / "config.json").exists()


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def file_digest(file: Path) -> str:
    """Return the SHA-256 of one file, from the cache if the file has not changed since.

    The cache file's name follows from the path, size, times and inode. A small file is hashed at
    once, which is faster than looking it up.
    """
    try:
        status = file.stat()
        if status.st_size < MIN_CACHED_BYTES:
            return sha256_of(file)
        cache_file = _cache_file(file, status)
        digest = _read_cached(cache_file)
        if digest is None:
            digest = sha256_of(file)
            _write_cached(cache_file, digest)
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None
    return digest


def _cache_file(file: Path, status: os.stat_result) -> Path:
    """Where the digest of a file is cached."""
    # The inode's own time cannot be set back, unlike the time of modification that `cp -p` keeps.
    identity = [
        str(file.resolve()), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino,
    ]  # fmt: skip
    name = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:40]
    return _cache_folder() / name[:2] / name[2:]


@cache
def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "rlbhpc" / "digests"


def _read_cached(cache_file: Path) -> str | None:
    """A digest of the cache; None where there is none, or where the home cannot be read."""
    try:
        digest = cache_file.read_text()
    except OSError:
        return None
    return digest if len(digest) == SHA256_DIGITS else None


def _write_cached(cache_file: Path, digest: str) -> None:
    """Write a cache entry whole or not at all; a cache that cannot be written is no failure."""
    with contextlib.suppress(OSError):
        cache_file.parent.mkdir(parents=True, exist_ok=True)
        with temporary_path(cache_file.parent) as partial:
            partial.write_text(digest)
            partial.replace(cache_file)


def model_config(folder: Path) -> dict[str, Any]:
    """Read ``config.json`` of a model folder; empty if there is none (an adapter, for example)."""
    file = folder / "config.json"
    try:
        config = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file}: not readable as JSON ({error})") from None
    if not isinstance(config, dict):
        raise UserError(f"{file}: holds no object; a model configuration is one")
    return config


# What configurations call the number of positions.
_LENGTH_KEYS: Final = (
    "max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length",
)  # fmt: skip


def stated_length(config: dict[str, Any]) -> int | None:
    """Return the maximum tokens, prompt and response together, that a model's configuration states.

    None if it states none. For a model with images it is the limit of its language model. Rotary
    scaling adds nothing: transformers and vLLM take the stated length as the one that the scaling
    reaches.
    """
    config = _language_config(config)
    for key in _LENGTH_KEYS:
        if isinstance(config.get(key), int):
            length: int = config[key]
            return length
    return None


def steady_length(config: dict[str, Any]) -> int | None:
    """Return the longest text, in tokens, up to which a model's rotary frequencies do not change.

    With LongRoPE (Phi-3, Phi-4-mini) the frequencies depend on the longest text of a batch: beyond
    the original length all texts of the batch get others. So the engine ``hf`` and training stay
    below that length. For every other model it is the stated length.
    """
    length = stated_length(config)
    config = _language_config(config)
    scaling = config.get("rope_parameters") or config.get("rope_scaling")
    if length is None or not isinstance(scaling, dict):
        return length
    if scaling.get("rope_type", scaling.get("type")) not in ("longrope", "su"):
        return length
    key = "original_max_position_embeddings"
    return min(length, config.get(key) or scaling.get(key) or length)


def _language_config(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of the language model, where a model has others beside it."""
    text_config = config.get("text_config")
    return {**config, **text_config} if isinstance(text_config, dict) else config


# The noun *Origin*: what a checkpoint was made by, and what it was when it was whole.
#
# A trained model's digest comes from the study's text, so that samples can be planned before the
# model exists. The record beside the weights says which digest they were made for; what a study
# says and what lies on disk are compared before anything is drawn.


ORIGIN_FILE: Final = "origin.json"
# Hex digits of a digest that a message shows.
SHOWN_DIGITS: Final = 12


@dataclass(frozen=True)
class Origin:
    """A record beside weights or training state.

    ``made_by`` is the digest of what they are made from: base, recipe, data and, of a checkpoint,
    step. A training that starts from nothing gets a new name, ``run``. ``files`` are those of the
    checkpoint when they were whole; empty for training state.
    """

    made_by: str
    run: str
    files: FileMarks = field(default_factory=dict)

    def changed(self, folder: Path) -> str | None:
        """Digest of the files in ``folder`` if they are no longer those of the record."""
        return changed_content(folder, self.files)

    @property
    def content(self) -> str:
        """Digest of the files when they were whole."""
        return digest_marks(self.files)


def read_origin(folder: Path) -> Origin | None:
    """The record of a folder; None where there is none."""
    return read_record(folder / ORIGIN_FILE)


def read_record(path: Path) -> Origin | None:
    """Read an origin record: what a checkpoint was made from, in which run, and its files then.

    None if there is no such file.
    """
    try:
        record = json.loads(path.read_bytes())
        files = {name: FileMark(*mark) for name, mark in record["files"].items()}
        return Origin(str(record["made_by"]), str(record["run"]), files)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UserError(f"{path}: not a record of where a checkpoint comes from") from None


def record_checkpoint(folder: Path, made_by: str, run: str) -> None:
    """Write down what a checkpoint was made by; all its other files are there."""
    _write_origin(folder / ORIGIN_FILE, Origin(made_by, run, mark_files(folder)))


def _begin_run(folder: Path, made_by: str) -> Origin:
    """Return the record of a training folder, and write it first if there is none.

    ``made_by`` is the digest of what the model is made from: base, recipe and data. The run gets a
    random name. All ranks of a training call this at once: the hard link lets one of them win, and
    all of them read what that one wrote.
    """
    target = folder / ORIGIN_FILE
    with temporary_path(folder) as partial:
        _write_origin(partial, Origin(made_by, uuid.uuid4().hex))
        try:
            os.link(partial, target)  # whole or not at all, and by one of the ranks
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            partial.replace(target)
    origin = read_origin(folder)
    assert origin is not None
    return origin


def _write_origin(path: Path, origin: Origin) -> None:
    put(path, json.dumps(asdict(origin), indent=1).encode())


# Digests of the models of a study.


def digest_of(content: Any) -> str:
    """32 hex digits over JSON-like values."""
    text = json.dumps(content, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Digests:
    """Computes the digests that a study does not hold yet, each once.

    A checkpoint on disk has the digest of its files. One that the study trains has the digest of
    what it is made from: base, recipe, data and step. It keeps that digest once it is trained, so
    samples can be planned before the model exists.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self.known: dict[tuple[str, int], str] = {}
        for model, by_step in study.digests.items():
            for step, digest in by_step.items():
                self.known[model, step] = digest

    def digest(self, model: str, step: int) -> str:
        """Digest of one model at one step."""
        if (model, step) not in self.known:
            self.known[model, step] = self._compute(model, step)
        return self.known[model, step]

    def _compute(self, model: str, step: int) -> str:
        """Compute the digest that identifies the content of one model at one step.

        ``entry`` is the model's entry in the study. A served model is known by its name at the
        server, a trained one by what it is made from, and any other by its files. At step 0 a line
        of checkpoints is its base. An adapter's digest includes its base, without which it is no
        model. `_last_digest` is the digest of a model at its last checkpoint.
        """
        entry = self.study.models[model]
        if entry.endpoint is not None:
            # The address may change while the model stays; nothing more is known of its content.
            return digest_of(["endpoint", entry.endpoint.model, entry.endpoint.chat])
        base = self.study.base(model)
        if entry.steps is not None and step == 0:
            assert base is not None
            return self._last_digest(base)
        if entry.train is not None:
            return digest_of([*self._training_content(model), step])
        folder = self.study.folder(model, step)
        files_digest = content_digest(folder)
        if base is not None and not model_config(folder):
            # An adapter, or weights without a configuration: only with its base is it a model.
            return digest_of(["on", self._last_digest(base), files_digest])
        return files_digest

    def _last_digest(self, model: str) -> str:
        """Digest of a model at its last checkpoint."""
        return self.digest(model, self.study.last_step(model))

    def training(self, model: str) -> str:
        """Digest of a whole training: of what all its checkpoints are made from."""
        return digest_of(self._training_content(model))

    def _training_content(self, model: str) -> list[Any]:
        """Return all that a training's result depends on but the step: its base and its recipe.

        The base enters as a digest, the recipe with the contents of what it names.
        """
        base = self.study.base(model)
        training = self.study.models[model].train
        assert training is not None
        base_digest = None if base is None else self._last_digest(base)
        recipe = self.study.file.recipes[training.recipe]
        return ["train", base_digest, self._recipe_content(recipe)]

    def _recipe_content(self, recipe: Recipe) -> dict[str, Any]:
        """Return a recipe's settings with contents in place of names.

        So a renamed prompt or data file changes no digest, and another content under the same name
        does. ``FREE_OPTIONS`` change nothing in the result, so they are left out. The teacher is a
        model or an arm whose responses are learnt from.
        """
        study = self.study
        record = recipe.model_dump(mode="json", by_alias=True)
        options = record["options"]
        for name in FREE_OPTIONS & options.keys():
            del options[name]
        # Left out where there is none, so that no recipe of before is another now.
        del record["mixture"], record["schedule"]
        if recipe.mixture:
            prompts = [study.prompts[component.prompt or ""] for component in recipe.components]
            sets = [self._set_content(component.problems) for component in recipe.components]
            record["mixture"] = [sets, [prompt.digest for prompt in prompts], recipe.stages]
        if recipe.problems is not None:
            record["problems"] = self._set_content(recipe.problems)
        if recipe.prompt is not None:
            record["prompt"] = study.prompts[recipe.prompt].digest
        if recipe.texts is not None:
            record["texts"] = study.text_digests[recipe.texts]
        teacher = options.get("teacher")
        if isinstance(teacher, str) and teacher in study.models:
            options["teacher"] = self._last_digest(teacher)
        if recipe.teacher is not None:
            record["teacher"]["arm"] = self._teacher_content(recipe.teacher)
        return cast(dict[str, Any], plugins.replace_references(record, study.plugins))

    def _set_content(self, set_name: str) -> dict[str, str]:
        """Return the hash of each problem of a set, and the identity of a verifier of one's own."""
        return {**self.study.problem_hashes[set_name], **self._plugin_verifier(set_name)}

    def _teacher_content(self, teacher: Teacher) -> dict[str, Any]:
        """Return what the responses depend on that a training takes from a teacher.

        The teacher is an arm of the study (a model under one prompt and sampling setting) at its
        last step. Per problem set it is the number of samples per problem, the problems' hashes,
        and where sampling ends early the number of right ones. Verifiers matter only if the right
        responses alone are kept. `_plugin_verifier` gives the identity of a verifier of the user's
        own.
        """
        study = self.study
        arm = study.arms[teacher.arm]
        content_of_sets = {}
        for set_name in study.sets(arm.name):
            content: list[Any] = [study.n(arm.name, set_name), dict(study.problem_hashes[set_name])]
            stop_after = study.stop_after(arm.name, set_name)
            if stop_after:
                content.append(stop_after)
            if teacher.keep == "right":
                content += self._plugin_verifier(set_name).values()
            content_of_sets[set_name] = content
        sampling = arm.sampling
        settings = [sampling.temperature, sampling.top_p, sampling.max_tokens, list(sampling.stop)]
        return {
            "model": self.digest(arm.model, arm.steps[-1]),
            "prompt": study.prompts[arm.prompt].digest,
            "sampling": [*settings, *sampling.extras().items()],
            "sets": content_of_sets,
            **study.plugin_engine(arm.name),
        }

    def _plugin_verifier(self, set_name: str) -> dict[str, str]:
        """``verifier`` and its content, where a set has none of rlbhpc's: it decides rewards.

        A problem's hash holds its verifier's name alone, for no sample of an arm depends on it.
        """
        name = self.study.problem_sets[set_name].verifier or ""
        identity = plugins.planned_identity(self.study.plugins, "verifiers", name)
        return {} if identity is None else {"verifier": identity}


# Checkpoints on disk beside what the study says of them.
#
# A checkpoint counts as the study's when the record beside it names the digest that the study gives
# it and its files are those of the record.


RETRAIN_ADVICE: Final = (
    "give the new training another model name, or move this model's folders below models/ and "
    "training/ of the run away to train it anew"
)


def training_order(study: Study, models: Iterable[str]) -> list[str]:
    """Return the ``models`` that the study trains, and all that these start from, bases first."""
    ordered: list[str] = []

    def add(name: str) -> None:
        """Append a model behind the models that it is trained from, unless it is there already.

        A model that the study does not train is passed over. ``from_`` is the start of the
        training.
        """
        training = study.models[name].train
        if training is None or name in ordered:
            return
        if training.from_ is not None:
            add(training.from_)
        ordered.append(name)

    for name in models:
        add(name)
    return ordered


def checkpoint_exists(study: Study, model: str, step: int) -> bool:
    """Whether a checkpoint can be sampled now: a folder has its final name when it is whole."""
    if study.models[model].endpoint is not None:
        return True
    return (study.folder(model, step) / "config.json").is_file()


def untrained_models(study: Study, models: Iterable[str]) -> list[str]:
    """Return the models that still have to be trained, bases first.

    A model counts as trained if all its checkpoints are there. Checkpoints on disk that were made
    from something else than the study says are refused.
    """
    ordered = training_order(study, models)
    reject_foreign_models(study, ordered)
    untrained = []
    for name in ordered:
        steps = study.models[name].steps or []
        if not all(checkpoint_exists(study, name, step) for step in steps):
            untrained.append(name)
    return untrained


def reject_foreign_models(study: Study, models: Iterable[str]) -> None:
    """Refuse trained models on disk that are not what the study says of them."""
    for name in training_order(study, models):
        complaint = compare_model(study, name)
        if complaint is not None:
            raise UserError(complaint)


def compare_model(study: Study, model: str) -> str | None:
    """Say why what lies on disk of a trained model is not the study's; None if it is.

    Beside every checkpoint, and in the folder of the training itself, lies a record: ``made_by`` is
    the digest of what it was made from (base, recipe, data), ``run`` the name of that one training.
    Each checkpoint must be what the study says, and all of them must come from the run in the
    folder. ``study.layout.states(model)`` is the folder of states from which a training can go on.
    `Digests.training` gives the digest that the study says, `compare_checkpoint` the complaint
    about a single checkpoint.
    """
    steps = study.models[model].steps or []
    runs_by_step = {}
    for step in steps:
        if not checkpoint_exists(study, model, step):
            continue
        complaint = compare_checkpoint(study, model, step)
        if complaint is not None:
            return complaint
        origin = read_origin(study.folder(model, step))
        assert origin is not None
        runs_by_step[step] = origin.run
    folder = study.layout.training(model)
    training = read_origin(folder)
    if training is None:
        # States to go on from, but nothing that says what they were made from.
        if any(study.layout.states(model).glob("step-*")):
            return _no_record_complaint(model, folder)
        # The state of a training that is over may be deleted.
        is_finished = len(runs_by_step) == len(steps)
        foreign_steps = [] if is_finished else list(runs_by_step)
    else:
        digest = Digests(study).training(model)
        if training.made_by != digest:
            return (
                f"model {model}: the training in {folder} was begun by recipe "
                f"{training.made_by[:SHOWN_DIGITS]}, and the study now says "
                f"{digest[:SHOWN_DIGITS]}; restore the recipe, {RETRAIN_ADVICE}"
            )
        foreign_steps = [step for step, run in runs_by_step.items() if run != training.run]
    if foreign_steps:
        return (
            f"model {model}: the checkpoint of step {min(foreign_steps)} is of another training "
            f"than the one in {folder}, and one model may not be made of two; {RETRAIN_ADVICE}"
        )
    return None


def compare_checkpoint(study: Study, model: str, step: int) -> str | None:
    """Say why one trained checkpoint on disk is not what the study says of it; None if it is.

    The record beside the weights (``origin``) must name the digest that the study gives this model
    and step, and the files must still be those that it lists.
    """
    folder = study.folder(model, step)
    origin = read_origin(folder)
    digest = study.digests[model][step]
    if origin is None:
        return _no_record_complaint(model, folder)
    if origin.made_by != digest:
        return (
            f"model {model}: {folder} was made by {origin.made_by[:SHOWN_DIGITS]} (base, recipe "
            f"and data), and the study now says {digest[:SHOWN_DIGITS]}; restore them, "
            f"{RETRAIN_ADVICE}"
        )
    content = origin.changed(folder)
    if content is not None:
        return (
            f"model {model}: the weights in {folder} are {content[:SHOWN_DIGITS]}, and were "
            f"{origin.content[:SHOWN_DIGITS]} when they were trained; restore them, name the "
            f"changed ones by `path:`, or {RETRAIN_ADVICE}"
        )
    return None


def _no_record_complaint(model: str, folder: Path) -> str:
    return (
        f"model {model}: {folder} has no record of the recipe that made it, as `rlbhpc train` "
        "writes one; name weights that you bring as a model of their own by `path:`, or "
        f"{RETRAIN_ADVICE}"
    )


def check_weights(study: Study, model: str, step: int) -> None:
    """Refuse weights on disk that are not those to which the study gave its digest.

    It is called where weights are loaded, perhaps days after the study was read. A model that the
    study trains has a record beside its weights. Of a given one the study's folder holds the files'
    sizes, times and hashes; only if these differ is the digest computed anew.
    """
    digest = study.digests[model][step]
    if study.models[model].train is not None:
        if checkpoint_exists(study, model, step):
            complaint = compare_checkpoint(study, model, step)
            if complaint is not None:
                raise UserError(complaint)
        return
    folder = study.folder(model, step)
    record = read_record(study.layout.contents(digest))
    if record is not None and record.changed(folder) is None:
        return
    # Without the digests that the study holds, they are computed from the files.
    digest_now = Digests(replace(study, digests={})).digest(model, step)
    if digest_now != digest:
        raise UserError(
            f"model {model}: {folder} is {digest_now[:SHOWN_DIGITS]}, and was "
            f"{digest[:SHOWN_DIGITS]} when its work was planned; restore it, or run the same "
            "command on the study again for the new weights"
        )


def record_given_models(study: Study) -> None:
    """Write down the sizes, times and hashes of the weights that the study was given.

    Workers later compare the files with this record, which lies in the study's folder under the
    model's digest. Models that the study trains have records of their own.
    """
    for name, entry in study.models.items():
        if entry.path is None:
            continue
        for step in entry.steps or [0]:
            digest = study.digests[name][step]
            path = study.layout.contents(digest)
            if not path.exists():
                _write_origin(path, Origin(digest, "", mark_files(study.folder(name, step))))


def begin_training(study: Study, model: str) -> Origin:
    """The record of a model's training, which begins it where there is none."""
    complaint = compare_model(study, model)
    if complaint is not None:
        raise UserError(complaint)
    return _begin_run(study.layout.training(model), Digests(study).training(model))
