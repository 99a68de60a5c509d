"""Studies to start from: `rlbhpc init TEMPLATE`, and one of two models, `--base A --trained B`."""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.problems.problemset import FileSet
from rlbhpc.problems.prompts import SEARCH
from rlbhpc.problems.registry import get_set
from rlbhpc.study.complaints import listed, nearest
from rlbhpc.study.lineage import model_config, stated_length
from rlbhpc.study.search import STOPS
from rlbhpc.study.tree import is_file

# A template is one YAML file whose first line, a comment, says what it is for.
TEMPLATES: Final = Path(__file__).with_name("templates")
#: What is answered where nobody names a set; tiny models get what needs no download.
DEFAULT_SET: Final = "math500"
GENERATED_SET: Final = "countdown"
GENERATED_PROBLEMS: Final = 500
# Few problems, so many samples of each.
_SMALL_SETS: Final = ("aime24", "aime25", "amc23")
# Sets that ask in another way than for a boxed answer.
_PROMPTS_OF_SETS: Final = {
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
    SEARCH: STOPS,
}
_MAX_TOKENS_WITHOUT_STOP: Final = 2048
# How makers name models that answer in a chat format. Qwen3-8B is one, too, and has a base.
_CHAT_MODEL: Final = re.compile(
    r"(?i)(?<![a-z])(?:instruct|chat|it|sft|think|thinking|distill|tulu|magistral)(?![a-z])"
    r"|^(?:qwen/)?qwen3-[\d.]+b(?:-a[\d.]+b)?$"
)
# Models that were trained from a base in a chat format of their own making, as OLMo 3's.
_ZERO_MODEL: Final = re.compile(r"(?i)(?<![a-z])rl-zero(?![a-z])")
# How files of problems name what a study calls otherwise.
_FIELD_NAMES: Final = {
    "question": ("question", "problem", "prompt"),
    "gold": ("gold", "answer", "target", "solution"),
    "id": ("id", "uid", "problem_id", "unique_id"),
}
_HUB_NAME: Final = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
_TOY_VOCABULARY: Final = 4096
_TOY_MAX_TOKENS: Final = 64


def template_menu() -> dict[str, str]:
    """Name and one-line purpose of every template."""
    menu = {}
    for file in sorted(TEMPLATES.glob("*.yaml")):
        first_line = file.read_text().partition("\n")[0]
        menu[file.stem] = first_line.removeprefix("#").strip()
    return menu


def read_template(name: str) -> str:
    """Text of one template."""
    names = template_menu()
    if name not in names:
        raise UserError(f"no template {name!r}; allowed: {listed(names)}{nearest(name, names)}")
    return (TEMPLATES / f"{name}.yaml").read_text()


@dataclass(frozen=True)
class Size:
    """How much is drawn; ``limit`` is the maximum of problems of a set."""

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
        """Read the user's word for a model: an existing folder, or else owner/name on the hub.

        ``option`` is the command-line option that the word stood behind, for messages. A model of
        the hub gets the folder ``models/<name>``, to which it is to be downloaded.
        """
        folder = Path(word).expanduser()
        if folder.is_dir():
            return cls(folder.absolute())
        parent_exists = folder.parent.is_dir()
        if _HUB_NAME.fullmatch(word) and not parent_exists:
            name = word.partition("@")[0].partition("/")[2]
            return cls(Path("models", name).absolute(), word)
        names = [path.name for path in folder.parent.iterdir()] if parent_exists else []
        raise UserError(
            f"{option} {word}: no such folder{nearest(folder.name, names)}, and no owner/name of a"
            " model on the hub"
        )

    @property
    def name(self) -> str:
        """A word for names of files."""
        return _file_word(self.folder.name) or "model"

    @property
    def published_name(self) -> str:
        """The name that its makers gave it, by which its kind is known."""
        return (self.hub or self.folder.name).partition("@")[0]

    @property
    def config(self) -> dict[str, Any]:
        """Its configuration; empty while it is not downloaded."""
        return model_config(self.folder)

    @property
    def is_chat_model(self) -> bool:
        """Whether its makers say that it answers in its own chat format."""
        return _CHAT_MODEL.search(self.published_name) is not None

    @property
    def is_qwen(self) -> bool:
        """Whether it is of a family whose base models know Qwen's chat marks.

        A model of the hub is known by its name, so that a download changes no prompt. A local
        folder must state a Qwen type and have the marks in its tokenizer; the marks alone say
        nothing, for OLMo 3 has them in its tokenizer too.
        """
        if self.hub is not None:
            return "qwen" in self.hub.lower()
        tokenizer = self.folder / "tokenizer.json"
        is_qwen_model = str(self.config.get("model_type")).startswith("qwen")
        return is_qwen_model and is_file(tokenizer) and "<|im_start|>" in tokenizer.read_text()

    @property
    def is_toy(self) -> bool:
        """Whether it has so few words that it was made to try things out, on bare problems."""
        vocabulary_size = self.config.get("vocab_size")
        return isinstance(vocabulary_size, int) and vocabulary_size < _TOY_VOCABULARY


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
        stop = f", stop: {json.dumps(self.stop)}" if self.stop else ""
        return f"prompt: {self.prompt}{stop}"


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
        """The command that writes this study, as a comment: the first line of its file."""
        options = {
            "--base": self.base.hub or self.base.folder,
            "--trained": self.trained.hub or self.trained.folder,
            "--on": ",".join(self.problem_sets),
            "--cluster": self.cluster,
            "--n": self.n,
            "--prompt": self.given_prompt,
        }
        words = ["rlbhpc", "init"]
        for option, value in options.items():
            if value is not None:
                words += [option, str(value)]
        return f"# {shlex.join(words)}"

    def text(self, folder: Path) -> str:
        """The study file, to lie in a folder."""
        base, trained = self.askings
        lines = [
            self.command,
            f"# Sizes {self.size.words}. Every key is explained in docs/study-file.md.",
            "",
            f"name: {self.name}",
            f"question: Did training move the boundary of {self.base.name},"
            " or only how efficiently it samples?",
            "",
            "models:",
            *_model_lines("base", self.base, folder),
            *_model_lines("trained", self.trained, folder),
            "    base: base                           # the pair to compare",
            "",
            "problem_sets:",
            *(self._problem_set_line(name) for name in self.problem_sets),
            "",
        ]
        for model in dict.fromkeys((base.chat, trained.chat)):
            if model:
                lines += ["prompts:", f"  {model}-chat: {{chat: {model}, template: boxed}}", ""]
        lines += [
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
        """How the base and the trained model are asked; both alike unless only one is a chat model.

        An *asking* is a prompt with the reason for it, and the model whose chat format it takes.
        The order decides: the user's own prompt, then one that the problem sets prescribe, then the
        kind of model. `_chat_asking` asks in the chat format of a model, `_completion_asking` as a
        base model is asked.
        """
        prompt_of_sets = self._prompt_of_sets()
        if self.given_prompt is not None:
            shared = Asking(self.given_prompt, "as --prompt says")
        elif prompt_of_sets is not None:
            shared = Asking(prompt_of_sets, f"what {self.problem_sets[0]} is asked by")
        elif self.base.is_chat_model:
            shared = _chat_asking("base")
        elif _ZERO_MODEL.search(self.trained.published_name):
            reason = "the chat format in which the trained model learnt from the base"
            shared = Asking("trained-chat", reason, "trained")
        elif self.trained.is_chat_model:
            return _completion_asking(self.base), _chat_asking("trained")
        else:
            shared = _completion_asking(self.base)
        return shared, shared

    def _prompt_of_sets(self) -> str | None:
        """The prompt that all problem sets prescribe; None if they only want the answer in a box.

        Sets that prescribe different prompts are refused, unless the user named one prompt for all.
        ``GENERATED_SET`` is the puzzle Countdown; a *toy* is a tiny model made to try things out.
        """
        prompts = {name: _PROMPTS_OF_SETS.get(name) for name in self.problem_sets}
        if GENERATED_SET in prompts:
            prompts[GENERATED_SET] = "countdown" if self.base.is_toy else "countdown-words"
        if len(set(prompts.values())) > 1 and self.given_prompt is None:
            boxed = _completion_asking(self.base).prompt
            names = [f"{name} {prompt or boxed}" for name, prompt in prompts.items()]
            raise UserError(
                f"--on: these sets need different prompts ({', '.join(names)}); write a study of"
                " each, or name one with --prompt"
            )
        return prompts[self.problem_sets[0]]

    @property
    def _max_tokens(self) -> int:
        """The longest response, in tokens, that fits both models.

        It is the draft's own size, less for prompts that nothing ends, and at most three quarters
        of each model's context: the last quarter is left for the question. ``stop`` are texts that
        end a response; a chat format (``chat``) has an end of its own. `stated_length` is the
        context in tokens, if the model's configuration states it.
        """
        if self.base.is_toy:
            return _TOY_MAX_TOKENS
        limits = [self.size.max_tokens]
        if not all(asking.stop or asking.chat for asking in self.askings):
            limits.append(_MAX_TOKENS_WITHOUT_STOP)
        for model in (self.base, self.trained):
            context = stated_length(model.config)
            if context is not None:
                limits.append(context * 3 // 4)
        return min(limits)

    def _problem_set_line(self, name: str) -> str:
        """Return the line of one problem set, such as ``math500: {path: data/math500}``, indented.

        ``name`` is a registered set, or the path of the user's own file of problems. A set that is
        read from files gets the folder to which it is downloaded; a generated one needs a
        ``limit``. Small sets get more samples per problem (``n``) to make up for their size.
        """
        entries = {}
        limit = self.size.limit
        if is_own_file(name):
            fields = [f"{key}: {field}" for key, field in fields_of(Path(name)).items()]
            entries["path"] = _quoted(str(Path(name).absolute()))
            entries["fields"] = f"{{{', '.join(fields)}}}"
            entries["verifier"] = "math"
        elif isinstance(get_set(name), FileSet):
            entries["path"] = f"data/{name}"
        if name == GENERATED_SET and limit is None:
            limit = GENERATED_PROBLEMS
        if limit is not None:
            entries["limit"] = str(limit)
        if name in _SMALL_SETS and self.n is None and self.size.n_of_small_sets != self.size.n:
            entries["n"] = str(self.size.n_of_small_sets)
        word = _file_word(Path(name).stem) if is_own_file(name) else name
        settings = [f"{key}: {value}" for key, value in entries.items()]
        return f"  {word}: {{{', '.join(settings)}}}"


def _chat_asking(model: str) -> Asking:
    """Ask both models in the chat format of one, ``base`` or ``trained``."""
    return Asking(f"{model}-chat", "an instruct model: its own chat format", model)


def _completion_asking(base: ModelSource) -> Asking:
    """How a base model is asked for a boxed answer."""
    if base.is_qwen:
        return Asking("qwen-boxed", "Qwen's chat marks: the prompt of the large-k study")
    return Asking("completion-boxed", "a base model: completion, asked for a box")


def _model_lines(name: str, source: ModelSource, folder: Path) -> list[str]:
    """Return the lines of the study file for one model.

    ``name`` is the model's name in the study. The path is written relative to ``folder``, where the
    study file will lie, as long as the model is below the current folder.
    """
    path = str(source.folder)
    if source.folder.is_relative_to(Path.cwd()):
        path = os.path.relpath(source.folder, folder)
    lines = [f"  {name}:", f"    path: {_quoted(path)}"]
    if source.hub is not None:
        lines.append(f"    hub: {source.hub}")
    return lines


def _file_word(text: str) -> str:
    """A text as a word that names may hold."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip("-._+")[:36]


def is_own_file(word: str) -> bool:
    """Whether a word of ``--on`` is a file of the user's."""
    return word.endswith((".jsonl", ".json"))


def fields_of(file: Path) -> dict[str, str]:
    """Find out which fields of a file's first record hold the question, the answer and the id.

    The result maps ``question``, ``gold`` (the answer) and perhaps ``id`` to names of fields.
    """
    try:
        text = file.read_text()
        if file.suffix == ".json":
            record = dict(json.loads(text)[0])
        else:
            record = dict(json.loads(text.partition("\n")[0]))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"--on {file}: no JSON Lines or JSON list of records: {error}") from None
    fields = {}
    for key, names in _FIELD_NAMES.items():
        present = [name for name in names if name in record]
        if present:
            fields[key] = present[0]
        elif key != "id":
            raise UserError(
                f"--on {file}: found the fields {', '.join(record)}; allowed for the {key}: "
                f"{', '.join(names)}; else name it under `fields` in a study file"
            )
    return fields


def _quoted(text: str) -> str:
    """A text as YAML writes it."""
    is_plain = re.fullmatch(r"[A-Za-z0-9_./+-]+", text)
    return text if is_plain else "'" + text.replace("'", "''") + "'"


def read_sets(words: str) -> tuple[str, ...]:
    """Read the word behind ``--on``, such as ``math500,aime24``, as names of problem sets.

    A name that is no registered set, and a file without the needed fields, are refused here.
    """
    names = [word.strip() for word in words.split(",") if word.strip()]
    if not names:
        raise UserError("--on: names no problem set")
    for name in names:
        if is_own_file(name):
            fields_of(Path(name))
        else:
            get_set(name)
    return tuple(dict.fromkeys(names))


def write_study(draft: Draft, target: Path | None = None) -> Path:
    """Write the study file; one that is there is never overwritten."""
    file = target or Path(f"{draft.name}.yaml")
    write_new(file, draft.text(file.absolute().parent))
    return file


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
