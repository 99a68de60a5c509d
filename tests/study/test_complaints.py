"""What is said of a value that cannot stand where it does: whole lines."""

from __future__ import annotations

import pytest

from rlbhpc.errors import UserError
from rlbhpc.study.complaints import listed, nearest
from tests.study.test_expand import expanded

NAMES = "letters, digits and . _ + -, beginning with a letter or digit, at most 80 characters"
NAME = f"allowed: a name ({NAMES})"
SEED = "allowed: a whole number from 0 to 999,999,999,999,999,999"
TEXT = "text that is not empty, of at most 2,000 characters"
STOP = f"allowed: a list, of which each item is {TEXT}"
SHARE = "allowed: a number above 0 and up to 1"
DTYPE = "allowed: auto or bfloat16 or float16 or float32"
TURNS = "`system` and `thinking` belong to a chat format; name a model in `chat`"
ARM = {"model": "base", "prompt": "bare", "temperature": 1.0, "max_tokens": 9, "n": 4}
SERVED = {"endpoint": {"url": "http://a", "model": "m"}}
SHOTS = {"shots": {"from": "math500", "n": 1}}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("name", 2024, f'found 2024; {NAME}; to mean it as text, quote it: "2024"'),
        ("name", True, f'found true; {NAME}; to mean it as text, quote it: "true"'),
        ("name", "a b", f"found 'a b'; {NAME}"),
        ("seed", "7,000", f"found '7,000'; {SEED}; a number stands without quotes"),
        ("seed", "1_0", f"found '1_0'; {SEED}; a number stands without quotes"),
        ("seed", "x", f"found 'x'; {SEED}; a number stands without quotes"),
        ("arms/base/stop", 5, f"found 5; {STOP}; a list of one is [5]"),
        ("arms/base/stop", True, f"found true; {STOP}"),
        ("arms/base/stop", {"a": 1}, f"found a mapping; {STOP}"),
        ("models/rl/steps", [], "found 0 entries; allowed: at least 1"),
        ("models/rl/steps", [*range(1, 1_002)], "found 1001 entries; allowed: fewer"),
        (
            "verification/paper",
            "no",
            "found 'no'; allowed: true or false; YAML 1.2 has no other words for these",
        ),
        ("verification/paper", 1, "found 1; allowed: true or false"),
        ("engine/dtype", "float31", f"found 'float31'; {DTYPE}; did you mean float32?"),
        ("engine/dtype", 16, f"found 16; {DTYPE}"),
        ("storage/tokens", "xyz", "found 'xyz'; allowed: none or sampled or all"),
        (
            "analysis/compare",
            [{"base": "base", "trained": 5}],
            'found 5; allowed: a name from `arms`; to mean it as text, quote it: "5"',
        ),
        ("models/base/base/deep", 1, "found a mapping; allowed: a name from `models`"),
        ("models/base/train", 5, "found 5; allowed: a mapping with the keys from, recipe"),
        ("models/base/hub", "x", "found 'x'; allowed: owner/name, or owner/name@revision"),
        ("models/rl/path", "", "found ''; allowed: a path"),
        (
            "problem_sets/math500/fields",
            [1],
            f"found a list; allowed: a mapping from names to {TEXT}",
        ),
        ("recipes/rl/options", 5, "found 5; allowed: a mapping from names to any value"),
    ],
)
def test_a_value_is_told_with_what_is_allowed(key: str, value: object, said: str) -> None:
    with pytest.raises(UserError) as refused:
        expanded({key: value})
    place, _, message = str(refused.value).partition(": ")[2].partition(": ")
    assert message == said
    assert place.split("[")[0] == key.removesuffix("/deep").replace("/", ".")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (
            "sampling",
            {"temperature": 1.0, "max_tokens": 9, "prompt": "bare"},
            "arms.base.n: missing; give a whole number from 1 to 1,000,000, here or under `sampl"
            "ing` (1 more)",
        ),
        ("arms/new", {"n": 1}, "arms.new.model: missing; give a name from `models`"),
        (
            "prompts/new",
            {"shots": {"from": "math500"}},
            "prompts.new.shots.n: missing; give a whole number from 1 to 1,000",
        ),
        (
            "analysis/averages",
            [{"name": "a"}],
            "analysis.averages[0].problem_sets: missing; give a list, of which each item is a name"
            " from `problem_sets`",
        ),
        ("arms/a b", ARM, f"arms.a b: not a usable name; allowed: {NAMES}"),
        ("recipes/rl", {"seed": -1, "kl": -1}, f"recipes.rl.seed: found -1; {SEED} (2 more)"),
        ("arms/base", 5, "arms.base: found 5; allowed: a mapping with the keys model, prompt, "),
        ("recipes", 5, "recipes: found 5; allowed: a mapping from names to a mapping with the "),
        ("recipes/rl", 5, "recipes.rl: found 5; allowed: a mapping with the keys algorithm, "),
        ("sampling", 5, "sampling: found 5; allowed: a mapping with the keys prompt, temperatu"),
        ("sampling/temprature", 1, "sampling.temprature: unknown key; allowed: prompt, tempera"),
        (
            "engine/nme",
            "hf",
            "engine.nme: unknown key; allowed: name, dtype, tensor_parallel, options; did you mean"
            " name?",
        ),
        ("arms/new", {**ARM, "min_tokens": 10}, "arms.new: `min_tokens` 10 is more than `max_to"),
        ("models/new", {**SERVED, "base": "base"}, "models.new: `base` and `hub` go with `path`"),
        ("models/new", {**SERVED, "hub": "a/b"}, "models.new: `base` and `hub` go with `path`"),
        (
            "models/new",
            {"path": "/{step}", "steps": [0]},
            "models.new: `steps` begin above 0; step",
        ),
        (
            "models/new",
            {"path": "/{step}"},
            "models.new: a line of checkpoints needs `steps`, such ",
        ),
        ("models/new", {"train": {"recipe": "rl"}}, "models.new: a line of checkpoints needs `ste"),
        ("models/new", {"path": "/m", "steps": [1]}, "models.new: `steps` needs `train`, or a `pa"),
        ("models/new", {}, "models.new: give exactly one of `path`, `train` and `endpoint`"),
        ("prompts/new", {"thinking": False, **SHOTS}, f"prompts.new: {TURNS}"),
        ("prompts/new", {"system": "Be brief.", **SHOTS}, f"prompts.new: {TURNS}"),
        ("scores/new", {"model": "base"}, "scores.new: give either `responses` or `texts`"),
    ],
)
def test_a_mapping_is_told_by_its_first_mistake(key: str, value: object, said: str) -> None:
    with pytest.raises(UserError) as refused:
        expanded({key: value})
    assert str(refused.value).partition(": ")[2].startswith(said)


def test_what_stands_at_an_end_is_allowed() -> None:
    arm = {**ARM, "min_tokens": 9, "top_p": 1, "temperature": 0, "n": 1_000_000}
    file = expanded({"arms/new": arm, "models/rl/steps": [*range(1, 1_001)], "seed": 10**18 - 1})
    assert file.arms["new"].sampling().record() == {
        "temperature": 0.0, "top_p": 1.0, "max_tokens": 9, "stop": [], "min_tokens": 9,
    }  # fmt: skip


def test_a_long_list_of_options_is_cut() -> None:
    names = [f"n{number}" for number in range(25)]
    assert listed(names[:24]) == ", ".join(names[:24])
    assert listed(names) == ", ".join(names[:24]) + " … (1 more)"
    assert listed([]) == "none, as there are none"
    assert nearest("N1", names) == "; did you mean n1?"
    assert nearest("quite another", names) == ""


def test_one_mistake_of_a_sweep_is_told_once() -> None:
    with pytest.raises(UserError) as refused:
        expanded({"recipes/rl": {"algorithm": "grpo", "seed": [0, 1], "kl": -1}})
    assert str(refused.value).endswith("found -1; allowed: a number from 0 to 1,000")
