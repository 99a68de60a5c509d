"""A study of a base and a trained model that runs as it is: `rlbhpc init --base A --trained B`."""

from __future__ import annotations

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
from rlbhpc.study.content import model_config, stated_length

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
        return re.sub(r"[^A-Za-z0-9._+-]+", "-", self.folder.name).strip("-._+")[:36] or "model"

    @property
    def config(self) -> dict[str, Any]:
        """Its configuration; empty while it is not downloaded."""
        return model_config(self.folder)

    @property
    def is_toy(self) -> bool:
        """Whether it has so few words that it was made to try things out, on bare problems."""
        words = self.config.get("vocab_size")
        return isinstance(words, int) and words < _TOY_VOCABULARY


@dataclass(frozen=True)
class Draft:
    """What `rlbhpc init` was asked for."""

    base: ModelSource
    trained: ModelSource
    problem_sets: tuple[str, ...]
    cluster: str | None
    size: Size

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
        if self.cluster is not None:
            words += ["--cluster", self.cluster]
        return f"# {shlex.join(words)}"

    def text(self, folder: Path) -> str:
        """The study file, to lie in a folder."""
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
            "sampling:                                # what both arms share",
            f"  prompt: {self.prompt}",
            "  temperature: 0.6",
            "  top_p: 0.95",
            f"  max_tokens: {self._max_tokens}",
            f"  n: {self.size.n:<38}# samples per problem: the largest k",
            "",
            "arms:",
            "  base: {model: base}",
            "  trained: {model: trained}",
        ]
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
    def prompt(self) -> str:
        """One prompt for both models and all sets: two prompts would compare prompts."""
        prompts = {name: self._prompt(name) for name in self.problem_sets}
        if len(set(prompts.values())) > 1:
            listed = ", ".join(f"{name} {prompt}" for name, prompt in prompts.items())
            raise UserError(
                f"--on: these sets need different prompts ({listed}); write a study of each"
            )
        return prompts[self.problem_sets[0]]

    def _prompt(self, set_name: str) -> str:
        if set_name == GENERATED_SET:
            return "countdown" if self.base.is_toy else "countdown-words"
        if set_name in _PROMPTS:
            return _PROMPTS[set_name]
        return "qwen-boxed" if self._speaks_qwen() else "completion"

    def _speaks_qwen(self) -> bool:
        """Whether the base model has the marks of Qwen's chat format."""
        try:
            return '"<|im_start|>"' in (self.base.folder / "tokenizer.json").read_text()
        except OSError:
            return "qwen" in (self.base.hub or "").lower()

    @property
    def _max_tokens(self) -> int:
        """As many as fit, with room for the question."""
        if self.base.is_toy:
            return _TOY_TOKENS
        lengths = [stated_length(model.config) for model in (self.base, self.trained)]
        limits = [length * 3 // 4 for length in lengths if length is not None]
        return min([self.size.max_tokens, *limits])

    def _problem_set(self, name: str) -> str:
        entries = []
        if isinstance(get_set(name), FileSet):
            entries.append(f"path: data/{name}")
        if name == GENERATED_SET:
            entries.append("limit: 500" if self.size.limit is None else f"limit: {self.size.limit}")
        elif self.size.limit is not None:
            entries.append(f"limit: {self.size.limit}")
        if name in _SMALL_SETS and self.size.n_of_small_sets != self.size.n:
            entries.append(f"n: {self.size.n_of_small_sets}")
        return f"  {name}: {{{', '.join(entries)}}}"


def _model(name: str, source: ModelSource, folder: Path) -> list[str]:
    path = str(source.folder)
    if source.folder.is_relative_to(Path.cwd()):
        path = os.path.relpath(source.folder, folder)
    lines = [f"  {name}:", f"    path: {_quoted(path)}"]
    return [*lines, f"    hub: {source.hub}"] if source.hub else lines


def _quoted(text: str) -> str:
    plain = re.fullmatch(r"[A-Za-z0-9_./+-]+", text)
    return text if plain else "'" + text.replace("'", "''") + "'"


def read_sets(words: str) -> tuple[str, ...]:
    """Problem sets of ``--on math500,aime24``."""
    names = tuple(filter(None, (word.strip() for word in words.split(","))))
    for name in names:
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
            draft = Draft(models[0], models[1], sets, options.get("--cluster"), size)
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
