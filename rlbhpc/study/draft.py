"""A study of a base and a trained model that runs as it is: `rlbhpc init --base A --trained B`."""

from __future__ import annotations

import json
import os
import re
import shlex
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.problems.problemset import FileSet
from rlbhpc.problems.registry import get_set
from rlbhpc.study.complaints import nearest
from rlbhpc.study.lineage import model_config, stated_length

#: What is answered where nobody names a set; tiny models get what needs no download.
DEFAULT_SET: Final = "math500"
GENERATED_SET: Final = "countdown"
# Few problems, so many samples of each.
_SMALL_SETS: Final = ("aime24", "aime25", "amc23")
# Sets that ask in another way than for a boxed answer.
_PROMPTS: Final = {
    "humaneval+": "evalplus",
    "mbpp+": "evalplus",
    "livecodebench": "livecodebench",
    "geometry3k": "easyr1",
    "mathvista": "easyr1",
    "mathvision": "easyr1",
}
# Texts that show that a response is over and the model goes on with a turn or question of its own.
_STOPS: Final = {
    **dict.fromkeys(("qwen-boxed", "evalplus", "livecodebench", "easyr1"), ("\nuser\n",)),
    "completion": ("\nQuestion:",),
    "completion-boxed": ("\nQuestion:",),
}
_TOKENS_WITHOUT_STOP: Final = 2048
# How makers name models that answer in a chat format.
_INSTRUCT: Final = re.compile(r"(?i)(?<![a-z])(?:instruct|chat|it|sft|thinking|distill)(?![a-z])")
# How files of problems name what a study calls otherwise.
_FIELDS: Final = {
    "question": ("question", "problem", "prompt"),
    "gold": ("gold", "answer", "target", "solution"),
    "id": ("id", "uid", "problem_id", "unique_id"),
}
_HUB_NAME: Final = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
_TOY_VOCABULARY: Final = 4096
_TOY_TOKENS: Final = 64


@dataclass(frozen=True)
class Size:
    """How much is drawn."""

    n: int
    n_of_small_sets: int
    limit: int | None
    max_tokens: int
    words: str


ON_GPUS: Final = Size(256, 1024, None, 16_384, "for GPUs")
ON_CPUS: Final = Size(
    64, 64, 64, 256, "for a machine without GPUs: a first look; for an answer raise `n` and `limit`"
)


@dataclass(frozen=True)
class ModelSource:
    """A model as the user names it: a folder, or owner/name of the hub."""

    folder: Path
    hub: str | None = None

    @classmethod
    def read(cls, option: str, word: str) -> ModelSource:
        """Take a folder that is there for a folder, anything like owner/name for the hub's."""
        folder = Path(word).expanduser()
        if folder.is_dir():
            return cls(folder.absolute())
        if _HUB_NAME.fullmatch(word) and not folder.parent.is_dir():
            name = word.partition("@")[0].partition("/")[2]
            return cls(Path("models", name).absolute(), word)
        names = [path.name for path in folder.parent.iterdir()] if folder.parent.is_dir() else []
        raise UserError(
            f"{option} {word}: no such folder{nearest(folder.name, names)}, and no owner/name of a"
            " model on the hub"
        )

    @property
    def name(self) -> str:
        """A word for names of files."""
        return _slug(self.folder.name) or "model"

    @property
    def config(self) -> dict[str, Any]:
        """Its configuration; empty while it is not downloaded."""
        return model_config(self.folder)

    @property
    def is_instruct(self) -> bool:
        """Whether its makers say that it answers in its own chat format."""
        return _INSTRUCT.search(self.hub or self.folder.name) is not None

    @property
    def speaks_qwen(self) -> bool:
        """Whether it has the marks of Qwen's chat format."""
        try:
            return '"<|im_start|>"' in (self.folder / "tokenizer.json").read_text()
        except OSError:
            return "qwen" in (self.hub or "").lower()

    @property
    def is_toy(self) -> bool:
        """Whether it has so few words that it was made to try things out, on bare problems."""
        words = self.config.get("vocab_size")
        return isinstance(words, int) and words < _TOY_VOCABULARY


@dataclass(frozen=True)
class Asking:
    """How a model is asked, and why so: a prompt, and texts that end a response.

    ``chat`` is the model whose chat format the prompt is put into.
    """

    prompt: str
    reason: str
    chat: str = ""

    @property
    def stop(self) -> tuple[str, ...]:
        """A chat format has an end of its own."""
        return () if self.chat else _STOPS.get(self.prompt, ())

    @property
    def settings(self) -> str:
        """The same as settings of a study."""
        return f"prompt: {self.prompt}" + (f", stop: {json.dumps(self.stop)}" if self.stop else "")


@dataclass(frozen=True)
class Draft:
    """What `rlbhpc init` was asked for."""

    base: ModelSource
    trained: ModelSource
    problem_sets: tuple[str, ...]
    cluster: str | None
    size: Size
    n: int | None = None
    given_prompt: str | None = None

    @property
    def name(self) -> str:
        """Name of the study, of its file and of its results."""
        return f"{self.trained.name}-against-{self.base.name}"

    @property
    def command(self) -> str:
        """The command that writes this study: its first line, by which it is known again."""
        words = ["rlbhpc", "init", "--base", self.base.hub or str(self.base.folder),
                 "--trained", self.trained.hub or str(self.trained.folder),
                 "--on", ",".join(self.problem_sets)]  # fmt: skip
        for option, value in (
            ("--cluster", self.cluster), ("--n", self.n), ("--prompt", self.given_prompt),
        ):  # fmt: skip
            if value is not None:
                words += [option, str(value)]
        return f"# {shlex.join(words)}"

    def text(self, folder: Path) -> str:
        """The study file, to lie in a folder."""
        base, trained = self.askings
        chats = [asking.chat for asking in dict.fromkeys((base, trained)) if asking.chat]
        lines = [
            self.command,
            f"# Sizes {self.size.words}. Every key is explained in docs/study-file.md.",
            "",
            f"name: {self.name}",
            f"question: Did training move the boundary of {self.base.name},"
            " or only how efficiently it samples?",
            "",
            "models:",
            *_model("base", self.base, folder),
            *_model("trained", self.trained, folder),
            "    base: base                           # the pair to compare",
            "",
            "problem_sets:",
            *(self._problem_set(name) for name in self.problem_sets),
            "",
            *(line for model in chats for line in ("prompts:", _chat_entry(model), "")),
            "sampling:                                # what both arms share",
            "  temperature: 0.6",
            "  top_p: 0.95",
            f"  max_tokens: {self._max_tokens}",
            f"  n: {self.n or self.size.n:<38}# samples per problem: the largest k",
            "",
            "arms:                                    # how each model is asked",
            f"  base: {{model: base, {base.settings}}}",
            f"  trained: {{model: trained, {trained.settings}}}",
        ]
        if base.prompt != trained.prompt:
            lines += ["", "analysis: {compare: [{base: base, trained: trained}]}"]
        if self.size is ON_GPUS:
            lines += [
                "",
                "scores:                                  # perplexity of the trained answers",
                "  trained-under-base: {responses: trained, model: base}",
                "  trained-under-trained: {responses: trained, model: trained}",
            ]
        else:
            lines += ["", "engine: {name: hf}                       # needs no GPU"]
        if self.cluster is not None:
            lines += ["", f"cluster: {self.cluster}"]
        return "\n".join(lines) + "\n"

    @property
    def askings(self) -> tuple[Asking, Asking]:
        """How the base and the trained model are asked: alike where both are of one kind."""
        if self.given_prompt is not None:
            asking = Asking(self.given_prompt, "as --prompt says")
            return asking, asking
        of_sets = {name: _PROMPTS.get(name, "") for name in self.problem_sets}
        if GENERATED_SET in of_sets:
            of_sets[GENERATED_SET] = "countdown" if self.base.is_toy else "countdown-words"
        base = self._asking_of_model("base", self.base)
        if len(set(of_sets.values())) > 1:
            names = (f"{name} {prompt or base.prompt}" for name, prompt in of_sets.items())
            raise UserError(
                f"--on: these sets need different prompts ({', '.join(names)}); write a study of"
                " each, or name one with --prompt"
            )
        if prompt := of_sets[self.problem_sets[0]]:
            asking = Asking(prompt, f"what {self.problem_sets[0]} is asked by")
            return asking, asking
        if self.trained.is_instruct and not self.base.is_instruct:
            return base, self._asking_of_model("trained", self.trained)
        return base, base

    def _asking_of_model(self, name: str, model: ModelSource) -> Asking:
        """How a model is asked for a boxed answer."""
        if model.is_instruct:
            return Asking(f"{name}-chat", "an instruct model: its own chat format", name)
        if model.speaks_qwen:
            return Asking("qwen-boxed", "Qwen's chat marks: the prompt of the large-k study")
        return Asking("completion-boxed", "a base model: completion, asked for a box")

    @property
    def _max_tokens(self) -> int:
        """As many as fit, with room for the question."""
        if self.base.is_toy:
            return _TOY_TOKENS
        most = self.size.max_tokens
        if not all(asking.stop or asking.chat for asking in self.askings):
            most = min(most, _TOKENS_WITHOUT_STOP)
        lengths = [stated_length(model.config) for model in (self.base, self.trained)]
        limits = [length * 3 // 4 for length in lengths if length is not None]
        return min([most, *limits])

    def _problem_set(self, name: str) -> str:
        entries = []
        if is_own_file(name):
            fields = ", ".join(f"{key}: {field}" for key, field in fields_of(Path(name)).items())
            entries = [f"path: {_quoted(str(Path(name).absolute()))}", f"fields: {{{fields}}}"]
            entries.append("verifier: math")
            if self.size.limit is not None:
                entries.append(f"limit: {self.size.limit}")
            return f"  {_slug(Path(name).stem)}: {{{', '.join(entries)}}}"
        if isinstance(get_set(name), FileSet):
            entries.append(f"path: data/{name}")
        if name == GENERATED_SET:
            entries.append("limit: 500" if self.size.limit is None else f"limit: {self.size.limit}")
        elif self.size.limit is not None:
            entries.append(f"limit: {self.size.limit}")
        if name in _SMALL_SETS and self.n is None and self.size.n_of_small_sets != self.size.n:
            entries.append(f"n: {self.size.n_of_small_sets}")
        return f"  {name}: {{{', '.join(entries)}}}"


def _model(name: str, source: ModelSource, folder: Path) -> list[str]:
    path = str(source.folder)
    if source.folder.is_relative_to(Path.cwd()):
        path = os.path.relpath(source.folder, folder)
    lines = [f"  {name}:", f"    path: {_quoted(path)}"]
    return [*lines, f"    hub: {source.hub}"] if source.hub else lines


def _chat_entry(model: str) -> str:
    return f"  {model}-chat: {{chat: {model}, template: boxed}}"


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip("-._+")[:36]


def is_own_file(word: str) -> bool:
    """Whether a word of ``--on`` is a file of the user's."""
    return word.endswith((".jsonl", ".json"))


def fields_of(file: Path) -> dict[str, str]:
    """Which fields of a file's first record hold the question, the answer and the id."""
    try:
        text = file.read_text()
        records = (
            json.loads(text) if file.suffix == ".json" else [json.loads(text.partition("\n")[0])]
        )
        record = dict(records[0])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"--on {file}: no JSON Lines or JSON list of records: {error}") from None
    fields = {}
    for key, names in _FIELDS.items():
        found = [name for name in names if name in record]
        if found:
            fields[key] = found[0]
        elif key != "id":
            raise UserError(
                f"--on {file}: found the fields {', '.join(record)}; allowed for the {key}: "
                f"{', '.join(names)}; else name it under `fields` in a study file"
            )
    return fields


def _quoted(text: str) -> str:
    plain = re.fullmatch(r"[A-Za-z0-9_./+-]+", text)
    return text if plain else "'" + text.replace("'", "''") + "'"


def read_sets(words: str) -> tuple[str, ...]:
    """Problem sets of ``--on math500,aime24``."""
    names = tuple(filter(None, (word.strip() for word in words.split(","))))
    for name in names:
        if is_own_file(name):
            fields_of(Path(name))
        else:
            get_set(name)
    if not names:
        raise UserError("--on: names no problem set")
    return tuple(dict.fromkeys(names))


def write_study(draft: Draft, target: Path | None = None) -> Path:
    """Write the study file; one that is there is never overwritten."""
    file = target or Path(f"{draft.name}.yaml")
    write_new(file, draft.text(file.absolute().parent))
    return file


def unedited_draft(file: Path) -> Draft | None:
    """The draft that a study file was written from; None for a file that was changed since."""
    text = file.read_text()
    # The first line of somebody's own file may be anything, such as "# Ann's study".
    with suppress(UserError, KeyError, ValueError):
        words = shlex.split(text.partition("\n")[0])[3:]
        options = dict(zip(words[::2], words[1::2], strict=False))
        models = [ModelSource.read(name, options[name]) for name in ("--base", "--trained")]
        for size in (ON_GPUS, ON_CPUS):
            sets = read_sets(options["--on"])
            n = int(options["--n"]) if "--n" in options else None
            prompt = options.get("--prompt")
            draft = Draft(models[0], models[1], sets, options.get("--cluster"), size, n, prompt)
            if draft.text(file.absolute().parent) == text:
                return draft
    return None


def write_new(file: Path, text: str) -> None:
    """Write a file that must not be there yet."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Exclusive: a study that somebody has edited is never overwritten.
        with file.open("x") as stream:
            stream.write(text)
    except (OSError, ValueError) as error:
        if isinstance(error, FileExistsError) and file.exists():
            raise UserError(f"{file} exists; choose another name with -o") from None
        raise UserError(f"{file} cannot be written: {error}") from None
