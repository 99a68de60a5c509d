"""Seeded mistakes in the study and cluster files that the project ships.

Each mutation changes one place of one file: what a slip of the hand, a wrong memory of the schema
or a careless search-and-replace does to it. ``misspelt`` ones are invalid by construction.
"""

from __future__ import annotations

import copy
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from rlbhpc.engines.tiny import make_tiny_model
from tests.study.mutations import DUMPER, Path_, paths_of, put, rename, value_of
from tests.sweep.study_folder import study_folder

CONFIGS: Final = Path(__file__).parents[2] / "configs"
STUDIES: Final = sorted(
    path.relative_to(CONFIGS).as_posix()
    for path in (*CONFIGS.glob("*.yaml"), *CONFIGS.glob("study/*.yaml"))
    if path.stem not in {"countdown", "common"}
)
CLUSTERS: Final = sorted(path.name for path in CONFIGS.glob("clusters/*.yaml"))

WRONG_TYPES: Final[list[Any]] = [
    [], {}, [[]], {"a": 1}, True, "text", "", "3", "1e-6", 3.7, [1, "a", None], [{"a": []}], [1, 2],
    {"sweep": [1, "a"]}, "2001-12-14", [True], "null",
]  # fmt: skip
NUMBERS: Final[list[Any]] = [
    0, -1, -(10**30), 10**30, 10**400, 1e308, -1e308, 1e-320, 0.5, -0.5, 1.5, float("nan"),
    float("inf"), float("-inf"),
]  # fmt: skip
TEXTS: Final = [
    "\u202eesrever", "nul\0byte", "\x1b]0;title\x07", "e\u0301\u0301\u0301", "\U0001f600" * 3,
    "\u2028line", "ma\u0442h500", "\ufeffbom", "x" * 70_000, "a\nb", "\uff11\uff12",
]  # fmt: skip


@dataclass(frozen=True)
class Mistake:
    """One file of the shipped ones with one mistake in it."""

    file: str
    kind: str
    note: str
    content: bytes
    misspelt: bool = False


def shipped_folder(folder: Path) -> Path:
    """The shipped files with everything there that they name; returns the folder of configs."""
    for name in STUDIES:
        if name.startswith("study/"):
            study_folder(folder / Path(name).stem, Path(name).stem)
            shutil.copytree(folder / Path(name).stem, folder, dirs_exist_ok=True)
            shutil.rmtree(folder / Path(name).stem)
    configs = folder / "configs"
    for path in (*CONFIGS.glob("*.yaml"), *CONFIGS.glob("clusters")):
        copy_one = shutil.copytree if path.is_dir() else shutil.copyfile
        copy_one(path, configs / path.name)
    tiny = make_tiny_model(folder / "tiny", hidden_size=32)
    for model in ("configs/checkpoints/countdown-base", "configs/checkpoints/countdown-rl",
                  "runs/quickstart/models/distilled/step-1500"):  # fmt: skip
        shutil.copytree(tiny, folder / model)
    return configs


def mistakes(seed: int) -> Iterator[Mistake]:
    """Mistakes without end, the kinds and the files in turn."""
    rng = random.Random(f"shipped/{seed}")
    files = [*STUDIES, *(f"clusters/{name}" for name in CLUSTERS)]
    texts = {file: (CONFIGS / file).read_text() for file in files}
    while True:
        for make in KINDS:
            # Clusters are short, studies are what people write.
            file = rng.choice(STUDIES if rng.random() < 0.85 else files)
            yield make(rng, file, texts[file])


def _dumped(file: str, kind: str, note: str, tree: Any, misspelt: bool = False) -> Mistake:
    text = yaml.dump(tree, Dumper=DUMPER, sort_keys=False, allow_unicode=True)
    return Mistake(file, kind, note, text.encode(), misspelt)


def _tree_and_place(rng: random.Random, text: str) -> tuple[Any, Path_]:
    """What a file holds, and a place in it: in four of ten an option, where it has any."""
    tree = copy.deepcopy(yaml.safe_load(text))
    paths = list(paths_of(tree))
    options = [path for path in paths if "options" in path[:-1]]
    return tree, rng.choice(options if options and rng.random() < 0.4 else paths)


def _replaced(kind: str, values: list[Any]) -> Any:
    def make(rng: random.Random, file: str, text: str) -> Mistake:
        tree, path = _tree_and_place(rng, text)
        value = rng.choice(values)
        put(tree, path, value)
        return _dumped(file, kind, f"{path} = {value!r:.60}", tree)

    return make


def _delete(rng: random.Random, file: str, text: str) -> Mistake:
    tree, path = _tree_and_place(rng, text)
    del value_of(tree, path[:-1])[path[-1]]
    return _dumped(file, "deletion", str(path), tree)


def _misspell(rng: random.Random, file: str, text: str) -> Mistake:
    """A key of the schema, or an option of a recipe or an engine, in another spelling."""
    tree = yaml.safe_load(text)
    free = {"models", "problem_sets", "recipes", "arms", "scores", "match_entropy", "environment"}
    inner = {"architecture", "options", "rewards", "traces"}
    keys = [
        path
        for path in paths_of(tree)
        if isinstance(path[-1], str)
        and not (len(path) == 2 and path[0] in free)
        and "architecture" not in path[:-1]
        and not (file.startswith("clusters/") and inner & {*path[:-1]})
    ]
    path = rng.choice(keys)
    word = str(path[-1])
    i = rng.randrange(len(word))
    wrong = rng.choice([word[:i] + word[i] + word[i:], word[:i] + "q" + word[i + 1 :], word + "s_"])
    rename(tree, path, wrong)
    return _dumped(file, "misspelling", f"{path} as {wrong}", tree, misspelt=True)


def _misspell_name(rng: random.Random, file: str, text: str) -> Mistake:
    tree = yaml.safe_load(text)
    words = [path for path in paths_of(tree) if isinstance(value_of(tree, path), str)]
    path = rng.choice(words)
    word = value_of(tree, path)
    i = rng.randrange(max(1, len(word)))
    put(tree, path, word[:i] + rng.choice("qzjk ") + word[i + 1 :])
    return _dumped(file, "other word", str(path), tree)


def _nest(rng: random.Random, file: str, text: str) -> Mistake:
    tree, path = _tree_and_place(rng, text)
    depth = rng.choice([3, 30, 500, 5_000])
    opening, closing = rng.choice([("[", "]"), ("{a: ", "}")])
    put(tree, path, "NESTED")
    dumped = yaml.dump(tree, Dumper=DUMPER, sort_keys=False)
    deep = opening * depth + "1" + closing * depth
    return Mistake(file, "nesting", f"{path} {depth}", dumped.replace("NESTED", deep).encode())


def _alias(rng: random.Random, file: str, text: str) -> Mistake:
    tree, path = _tree_and_place(rng, text)
    bomb = "&a0 [x, x, x]"
    for i in range(1, 20):
        bomb = f"&a{i} [{bomb}, {', '.join([f'*a{i - 1}'] * 8)}]"
    value = rng.choice([bomb, "&loop [*loop]", "&loop {a: *loop}", "*nowhere", "{<<: [1]}", "&x 1"])
    put(tree, path, "ALIASED")
    dumped = yaml.dump(tree, Dumper=DUMPER, sort_keys=False)
    return Mistake(file, "alias", f"{path} {value[:20]}", dumped.replace("ALIASED", value).encode())


def _duplicate(rng: random.Random, file: str, text: str) -> Mistake:
    lines = [*text.splitlines()]
    keyed = [i for i, line in enumerate(lines) if line.split("#")[0].strip().endswith(":")]
    keyed += [i for i, line in enumerate(lines) if line and line[0].isalpha()]
    i = rng.choice(keyed)
    key = lines[i].split(":")[0]
    twice = [*lines, f"{key.strip()}: 1", f"{key.strip()}: 1"]
    return Mistake(file, "duplicate key", key.strip(), "\n".join(twice).encode(), misspelt=True)


KINDS: Final = [
    _replaced("wrong type", WRONG_TYPES), _replaced("number", NUMBERS), _replaced("text", TEXTS),
    _delete, _misspell, _misspell, _misspell_name, _nest, _alias, _duplicate,
    _replaced("wrong type", WRONG_TYPES), _replaced("number", NUMBERS),
]  # fmt: skip
