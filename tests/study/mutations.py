"""A generator of broken study files, seeded: every way in which a file goes wrong in practice.

Each mutation says what it must lead to. ``broken`` ones are invalid by construction, so accepting
one is a failure. ``open`` ones depend on where they hit (deleting an optional key leaves a valid
file), so they may be accepted, and then the caller looks at what the file was taken to mean.
"""

from __future__ import annotations

import copy
import gzip
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.study.folder import STUDY

# Would leave a file of this name behind if any of them reached a shell, a template or an import.
PAWN = "pwned"
SHELL = [
    f"$(touch {PAWN})",
    f"`touch {PAWN}`",
    f"; touch {PAWN} #",
    f"| touch {PAWN}",
    f"&& touch {PAWN}",
    f"' ; touch {PAWN} ; '",
    f'" ; touch {PAWN} ; "',
    f"\ntouch {PAWN}\n",
    f"${{IFS}}$(touch${{IFS}}{PAWN})",
    f"<(touch {PAWN})",
    f"../../{PAWN}",
    f"{{{{ cycler.__init__.__globals__.os.system('touch {PAWN}') }}}}",
    f"%(touch {PAWN})s",
    f"{{0.__class__}}{PAWN}",
    "-rf",
    "*",
    "~root",
    "a\0b",
    "\x1b]0;owned\x07",
    "\u202e reversed",
    "x" * 300,
]
TAGS = [
    f'!!python/object/apply:os.system ["touch {PAWN}"]',
    f'!!python/object/new:subprocess.Popen [["touch", "{PAWN}"]]',
    "!!python/name:os.system",
    "!!python/module:os",
    "!!binary aGVsbG8=",
    "!!set {a, b}",
    "!!timestamp 2001-12-14",
    "!env HOME",
    "!include /etc/passwd",
    "!<tag:example.com,2000:x> y",
    "!!str 5",
]
RETYPED: list[Any] = [
    [], {}, [[]], {"a": 1}, True, "text", "", 3.7, -1, 0, 10**30, 1e308, float("nan"),
    float("inf"), ["a", 1, None], [{"a": []}], "2001-12-14", "0x1F", "1_000", "yes", [True],
]  # fmt: skip

Path_ = tuple[str | int, ...]


@dataclass(frozen=True)
class Mutation:
    """One file: how it came about, its bytes, and whether it is invalid by construction."""

    kind: str
    note: str
    content: bytes
    broken: bool
    overrides: tuple[str, ...] = ()


Tree = dict[str, Any]
Maker = Callable[[random.Random], Mutation]
Change = Callable[[random.Random, Tree], str]


def mutations(seed: int) -> Iterator[Mutation]:
    """Broken files without end, the kinds in turn."""
    rng = random.Random(f"mutations/{seed}")
    while True:
        for make in KINDS:
            # The huge ones take as long as all others together.
            if make is not huge or rng.random() < 0.25:
                yield make(rng)


PARSED = yaml.safe_load(STUDY)
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def _tree() -> Tree:
    tree = copy.deepcopy(PARSED)
    assert isinstance(tree, dict)
    return tree


def breaking(change: Change) -> Maker:
    """A kind of broken files: of STUDY's tree, changed; the change returns its note."""
    return _maker(change, broken=True)


def editing(change: Change) -> Maker:
    """The same where the file may still be valid."""
    return _maker(change, broken=False)


def _maker(change: Change, broken: bool) -> Maker:
    def make(rng: random.Random) -> Mutation:
        tree = _tree()
        note = change(rng, tree)
        return Mutation(change.__name__.replace("_", " "), note, _dump(tree), broken)

    return make


def paths_of(value: Any, here: Path_ = ()) -> Iterator[Path_]:
    """Key paths of everything in a tree."""
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value)
        if isinstance(value, list) else ()
    )  # fmt: skip
    for key, child in entries:
        yield (*here, key)
        yield from paths_of(child, (*here, key))


def value_of(tree: Any, path: Path_) -> Any:
    for step in path:
        tree = tree[step]
    return tree


def put(tree: Any, path: Path_, value: Any) -> None:
    value_of(tree, path[:-1])[path[-1]] = value


def rename(tree: Any, path: Path_, name: str) -> None:
    """Rename a key in place, keeping the order."""
    parent = value_of(tree, path[:-1])
    renamed = {(name if key == path[-1] else key): value for key, value in parent.items()}
    parent.clear()
    parent.update(renamed)


def _dump(tree: Any) -> bytes:
    return yaml.dump(tree, Dumper=DUMPER, sort_keys=False, allow_unicode=True).encode()


def _is_free_name(path: Path_) -> bool:
    """Whether a key is a name of the user's choice."""
    named = {"models", "problem_sets", "recipes", "arms", "scores", "match_entropy"}
    return (len(path) == 2 and path[0] in named) or "options" in path[:-1]


def _misspelt(rng: random.Random, word: str) -> str:
    i = rng.randrange(len(word))
    return rng.choice(
        [
            word[:i] + word[i + 1 :] + "x",
            word[:i] + word[i] * 2 + word[i:],
            word.upper() + "S",
            word[:i] + rng.choice("qzjk") + word[i + 1 :] + "_",
            word + " ",
            " " + word + "-",
        ]
    )


@editing
def delete_key(rng: random.Random, tree: Tree) -> str:
    path = rng.choice(list(paths_of(tree)))
    parent = value_of(tree, path[:-1])
    del parent[path[-1]]
    return str(path)


@breaking
def delete_needed(rng: random.Random, tree: Tree) -> str:
    path = rng.choice(
        [
            ("name",), ("models",), ("arms",), ("problem_sets",), ("arms", "base", "model"),
            ("models", "rl", "train", "recipe"), ("recipes", "grpo", "algorithm"),
            ("sampling", "temperature"), ("sampling", "n"), ("sampling", "prompt"),
            ("sampling", "max_tokens"), ("models", "rl", "steps"), ("models", "base", "path"),
            ("models", "base"), ("arms", "base"), ("recipes", "grpo"), ("recipes",),
            ("match_entropy", "rl-matched", "to"), ("scores", "outside", "texts"),
        ]
    )  # fmt: skip
    del value_of(tree, path[:-1])[path[-1]]
    return str(path)


def delete_line(rng: random.Random) -> Mutation:
    lines = STUDY.splitlines()
    del lines[rng.randrange(len(lines))]
    return Mutation("delete line", "", "\n".join(lines).encode(), False)


@breaking
def misspell_key(rng: random.Random, tree: Tree) -> str:
    keys = [p for p in paths_of(tree) if isinstance(p[-1], str) and not _is_free_name(p)]
    path = rng.choice(keys)
    word = _misspelt(rng, str(path[-1]))
    rename(tree, path, word)
    return f"{path} as {word!r}"


@breaking
def misspell_name(rng: random.Random, tree: Tree) -> str:
    path = rng.choice(
        [
            ("arms", "base", "model"), ("arms", "rl", "model"), ("models", "line", "base"),
            ("models", "rl", "train", "from"), ("models", "rl", "train", "recipe"),
            ("recipes", "grpo", "problems"), ("recipes", "grpo", "prompt"), ("sampling", "prompt"),
            ("problem_sets", "math500", "set"), ("arms", "far", "problem_sets", 0),
            ("scores", "rl-under-base", "model"), ("scores", "rl-under-base", "responses"),
            ("match_entropy", "rl-matched", "arm"), ("engine", "name"), ("engine", "dtype"),
            ("analysis", "compare", 0, "base"), ("storage", "tokens"),
        ]
    )  # fmt: skip
    parent = value_of(tree, path[:-1])
    word = _misspelt(rng, parent.get(path[-1], "math500") if path[-1] != 0 else "math500")
    parent[path[-1]] = word
    return f"{path} as {word!r}"


@editing
def retype(rng: random.Random, tree: Tree) -> str:
    path = rng.choice(list(paths_of(tree)))
    value = rng.choice(RETYPED)
    put(tree, path, value)
    return f"{path} = {value!r}"


@breaking
def out_of_range(rng: random.Random, tree: Tree) -> str:
    path, values = rng.choice(
        [
            (("sampling", "temperature"), [-0.1, 60, "0.6", float("nan"), float("inf"), [0.6, -1]]),
            (("sampling", "top_p"), [0, 1.1, -1, "1", [], [2]]),
            (("sampling", "max_tokens"), [0, -5, 32_768, 10**9, 1.5, "1024"]),
            (("sampling", "n"), [0, -1, 1.0, "16", 10**9, [16, 0]]),
            (("models", "line", "steps"), [[], [0], [-1], [100, 100], 100, [150], ["100"]]),
            (("arms", "line", "steps"), [[1], [-1], [200, 200], [100.0], "all"]),
            (("problem_sets", "math500", "limit"), [0, -1, 1.5, "10"]),
            (("problem_sets", "math500", "subset"), ["test", "train[9]", "train[0]", "../x"]),
            (("recipes", "grpo", "learning_rate"), [0, -1e-6, "0.001", 100]),
            (("analysis", "confidence"), [0, 1, 95, "0.95"]),
            (("verification", "timeout"), [0, -1, 1e9]),
            (("seed",), [-1, 10**19, 1.5, "7"]),
            (("name",), ["", "..", "a/b", ".hidden", "-x", "a b", "x" * 81, "é"]),
        ]
    )
    value = rng.choice(values)
    put(tree, path, value)
    return f"{path} = {value!r}"


@breaking
def wrong_path(rng: random.Random, tree: Tree) -> str:
    path = rng.choice(
        [
            ("models", "base", "path"), ("models", "line", "path"), ("arms", "hot", "prompt"),
            ("problem_sets", "math500", "path"), ("scores", "outside", "texts"), ("include",),
        ]
    )  # fmt: skip
    value = rng.choice(
        [
            "no/such/place", "/dev/zero", "/proc/self/mem", "math500.jsonl/x", "$NO_SUCH_VAR/x",
            "models", "x" * 5_000, "/", "study.yaml/..", "~nobody-of-this-name/x", "own.txt/",
            "models/base/model.safetensors", "a\nb",
        ]
    )  # fmt: skip
    if path[-1] == "prompt":
        value += ".txt"
    elif path[-1] == "texts" and value.startswith(("own", "models/")):
        value = "models"  # any file will do for texts, a folder will not
    put(tree, path, value)
    return f"{path} = {value[:40]!r}"


@breaking
def cycle(rng: random.Random, tree: Tree) -> str:
    which = rng.randrange(5)
    if which == 0:
        tree["models"]["rl"]["train"]["from"] = "rl"
    elif which == 1:
        tree["models"]["base"]["base"] = rng.choice(["base", "line", "rl"])
    elif which == 2:
        tree["recipes"]["grpo"]["teacher"] = {"arm": "rl"}
    elif which == 3:
        tree["include"] = rng.choice(["study.yaml", ["./study.yaml"], "../other/study.yaml"])
    else:
        tree["models"] |= {
            f"m{i}": {"train": {"from": f"m{(i + 1) % 60}", "recipe": "grpo"}, "steps": [1]}
            for i in range(60)
        }
    return str(which)


def nest(rng: random.Random) -> Mutation:
    tree = _tree()
    path = rng.choice(list(paths_of(tree)))
    depth = rng.choice([30, 200, 3_000])
    opening, closing = rng.choice([("[", "]"), ("{a: ", "}")])
    deep = opening * depth + "1" + closing * depth
    put(tree, path, "NESTED")
    return Mutation("nest", f"{path} {depth}", _dump(tree).replace(b"NESTED", deep.encode()), True)


def huge(rng: random.Random) -> Mutation:
    tree = _tree()
    which = rng.randrange(9)
    if which == 0:
        tree["question"] = "x" * 2_000_000
    elif which == 1:
        tree["arms"]["base"]["stop"] = ["x"] * 60_000
    elif which == 2:
        tree["models"] |= {f"m{i}": {"path": "models/base"} for i in range(12_000)}
    elif which == 3:
        tree["sampling"] |= {
            k: [0.1 + i / 200 for i in range(100)] for k in ("temperature", "top_p")
        }
    elif which == 4:
        tree["q" * 300_000] = 1
    elif which == 5:
        tree["name"] = "n" * 400_000
    elif which == 6:
        return Mutation("huge", "spaces", STUDY.encode() + b" " * 1_100_000, True)
    elif which == 7:
        tree["seed"] = "DIGITS"
        return Mutation("huge", "digits", _dump(tree).replace(b"DIGITS", b"9" * 200_000), True)
    else:
        tree["arms"]["base"]["steps"] = list(range(5_000))
    return Mutation("huge", str(which), _dump(tree), True)


def binary(rng: random.Random) -> Mutation:
    raw = STUDY.encode()
    at = rng.randrange(len(raw))
    which = rng.randrange(7)
    content = [
        lambda: rng.randbytes(2_000),
        lambda: raw[:at] + b"\xff\xfe" + raw[at:],
        lambda: raw[:at] + b"\0" + raw[at:],
        lambda: gzip.compress(raw),
        lambda: STUDY.encode("utf-16"),
        lambda: b"",
        lambda: b"\x7fELF" + rng.randbytes(200),
    ][which]()
    return Mutation("binary", str(which), content, True)


def garble(rng: random.Random) -> Mutation:
    text = list(STUDY)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(text))
        if rng.random() < 0.5:
            del text[at]
        else:
            text.insert(at, rng.choice("[]{}:-&*!|>%@`'\"#,?\t\n "))
    return Mutation("garble", "", "".join(text).encode(), False)


def truncate(rng: random.Random) -> Mutation:
    raw = STUDY.encode()
    return Mutation("truncate", "", raw[: rng.randrange(len(raw) * 6 // 10)], True)


def tag(rng: random.Random) -> Mutation:
    tree = _tree()
    path = rng.choice(list(paths_of(tree)))
    text = rng.choice(TAGS)
    put(tree, path, "TAGGED")
    return Mutation("tag", f"{path} {text}", _dump(tree).replace(b"TAGGED", text.encode()), True)


def anchor(rng: random.Random) -> Mutation:
    which = rng.randrange(6)
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
    )
    maps = "b0: &b0 {x: 1}\n" + "".join(
        f"b{i}: &b{i} {{{', '.join(f'k{j}: *b{i - 1}' for j in range(9))}}}\n" for i in range(1, 12)
    )
    extra = [
        bomb,
        maps,
        "loop: &loop [*loop]\n",
        "loop: &loop {a: {b: *loop}}\n",
        "lost: *nowhere\n",
        "merged: {<<: [1, 2]}\n",
    ][which]
    text = extra + STUDY if rng.random() < 0.5 else STUDY + extra
    return Mutation("anchor", str(which), text.encode(), True)


def duplicate(rng: random.Random) -> Mutation:
    lines = STUDY.splitlines()
    top = [i for i, line in enumerate(lines) if line[0] not in "# "]
    line = lines[rng.choice(top)].split(":")[0] + ": 1"
    return Mutation("duplicate", line, "\n".join([*lines, line]).encode(), True)


def document(rng: random.Random) -> Mutation:
    content = rng.choice(
        ["---\n" + STUDY + "---\nname: x\n", "- a\n- b\n", "just text\n", "5\n", "null\n", "# x\n"]
    )
    return Mutation("document", content[:10], content.encode(), True)


def shell_value(rng: random.Random) -> Mutation:
    path, text = rng.choice(strings()), rng.choice(SHELL)
    if rng.random() < 0.3:
        text = str(value_of(PARSED, path)) + text
    return with_text(path, text)


@breaking
def shell_everywhere(rng: random.Random, tree: Tree) -> str:
    for path in [p for p in paths_of(tree) if isinstance(value_of(tree, p), str)]:
        put(tree, path, rng.choice(SHELL))
    return ""


def strings() -> list[Path_]:
    """Where STUDY has text."""
    return [path for path in paths_of(PARSED) if isinstance(value_of(PARSED, path), str)]


def with_text(path: Path_, text: str) -> Mutation:
    """STUDY with one text replaced."""
    tree = _tree()
    put(tree, path, text)
    return Mutation("shell value", f"{path} = {text[:40]!r}", _dump(tree), False)


@breaking
def shell_key(rng: random.Random, tree: Tree) -> str:
    path = rng.choice([p for p in paths_of(tree) if isinstance(p[-1], str) and "options" not in p])
    text = rng.choice(SHELL)
    rename(tree, path, text)
    return f"{path} as {text[:40]!r}"


def override(rng: random.Random) -> Mutation:
    text = rng.choice(
        [
            "", "=", "name", "=x", "name=", "name=a b", "arms..n=1", "arms.base.n.x=1",
            "arms.base.n=!!python/name:os.system", f"name=$(touch {PAWN})", "arms.base.n=[",
            "arms.base.n=-1", "sampling.temprature=1", "models.base.path=nowhere", "arms=5",
            "arms.base.n={a: 1}", "seed=1\n2", f"`touch {PAWN}`=1", "arms.base=null=x", ".=1",
            "a" * 5_000 + "=1", "arms.base.model=*x", "arms.base.steps=[5]",
        ]
    )  # fmt: skip
    return Mutation("override", text[:40], STUDY.encode(), True, (text,))


KINDS: list[Maker] = [
    delete_key, delete_needed, delete_line, misspell_key, misspell_name, retype, out_of_range,
    wrong_path, cycle, nest, huge, binary, garble, truncate, tag, anchor, duplicate, document,
    shell_value, shell_value, shell_everywhere, shell_key, override,
]  # fmt: skip


def write(mutation: Mutation, folder: Path) -> Path:
    """Put a mutation where the files that it names are."""
    file = folder / "study.yaml"
    file.write_bytes(mutation.content)
    return file
