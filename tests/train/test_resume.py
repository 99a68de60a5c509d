"""A training run that is killed again and again ends with the very weights of one that was not."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import DONE, NOTHING_TO_DO, TRY_AGAIN
from rlbhpc.problems.prompts import get_prompt, render
from rlbhpc.problems.registry import load_set
from rlbhpc.problems.sets.generated import KINDS, Kind, make_proposing_task
from rlbhpc.store import cube, tables
from rlbhpc.study.load import load_study
from rlbhpc.train.checkpoint import list_states
from tests.children import Child

pytestmark = [pytest.mark.engine, pytest.mark.slow]

STUDY = """
name: toy
models:
  base: {path: MODEL}
  taught: {train: {from: base, recipe: teaching}, steps: [6]}
  rl: {train: {from: taught, recipe: rl}, steps: [2, 5]}
recipes:
  teaching:
    algorithm: sft
    problems: toy-train
    prompt: countdown
    prompts_per_step: 8
    learning_rate: 3e-3
    options: {traces: {hit: 0.5, count: 60}, save_every: 2}
  rl:
    algorithm: ALGORITHM
    problems: toy-train
    prompt: countdown
    prompts_per_step: 3
    samples_per_prompt: 3
    max_tokens: 16
    learning_rate: 1e-3
    kl: 0.01
    options: {save_every: 2, mini_batch: 3, rewards: {correct: 1.0, brevity: 1.0}}
problem_sets:
  toy-train: {set: countdown, subset: train, limit: 10}
  toy-test: {set: countdown, subset: test, limit: 2}
  identity: {set: program-tasks, subset: identity}
  more: {set: countdown, subset: test, limit: 5, seed: 1}
arms:
  teacher:
    {model: base, prompt: countdown, temperature: 1.0, max_tokens: 16, n: 1,
     problem_sets: [toy-train]}
  rl:
    {model: rl, prompt: countdown, temperature: 1.0, max_tokens: 16, n: 2,
     problem_sets: [toy-test]}
engine: {name: hf, dtype: float32}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("m") / "tiny", hidden_size=32)


# What each algorithm changes of the recipe above: its own memory must come through a kill, too.
OWN = {
    "ttrl": "options: {save_every: 2, mini_batch: 3, learn_from: 2}",
    "rlpr": 'options: {save_every: 2, mini_batch: 3, opening: "=", closing: "", think: false, '
    "average_from: 1, filter_from: 3, max_refills: 3}",
    "absolute-zero": "problems: identity\n    prompts_per_step: 12\n    samples_per_prompt: 1\n"
    "    max_tokens: 56\n    kl: 0\n    options: {save_every: 2, mini_batch: 6, tries: 3}",
    "episodes": "max_tokens: 40\n    options: {save_every: 2, mini_batch: 3, "
    "rewards: {correct: 1.0, brevity: 1.0}, "
    "turns: {limit: 2, tools: [calculator], format: blocks}}",
}


# What mixes and replays, on problems of which half the responses are right.
DRAWN = "    problems: toy-train\n    prompt: countdown\n    prompts_per_step: 3"
EVEN = "def verify(gold, response, problem=None):\n    return len(response) % 2 == 0\n"
OPTIONS = "save_every: 2, mini_batch: 3, rewards: {correct: 1.0, brevity: 1.0}"
MIXED = {
    "mixture": DRAWN.replace(
        "problems: toy-train",
        "mixture: [{problems: toy-train, weight: 2}, {problems: more, prompt: completion}]\n"
        "    schedule: [{from: 3, weights: {more: 1}}]",
    ),
    "selection": DRAWN + "\n    teacher: {arm: teacher, keep: all}",
    "replay": DRAWN,
}
OWN |= {
    "mixture": f"options: {{{OPTIONS}}}",
    "selection": f"options: {{{OPTIONS}, success_rate: [0.3, 0.9], select_every: 2, "
    "retry_passes: 3, hints: 0.5}",
    "replay": f"options: {{{OPTIONS}, replays: 1, replay_buffer: 4}}",
}
# What the dynamics of a run must show for it to be about its subject.
SHOWN = {"selection": "selection/left_out", "replay": "replay/responses"}
MEMORY = {"rlpr": ("usual", "without"), "absolute-zero": ("deduction", "abduction", "induction")}


def write(folder: Path, model: Path, algorithm: str) -> Path:
    path = folder / "toy.yaml"
    name = "grpo" if algorithm in ("episodes", *MIXED) else algorithm
    text = STUDY.replace("MODEL", str(model)).replace("ALGORITHM", name)
    for line in OWN.get(algorithm, "").split("\n    "):
        key = line.partition(":")[0]
        if key:
            text = re.sub(
                rf"(  rl:\n    algorithm(?:.|\n)*?\n    ){key}: .*", rf"\g<1>{line}", text
            )
    if algorithm in MIXED:
        text = text.replace(DRAWN, MIXED[algorithm])
        text = text.replace("train, limit: 10", "train, limit: 4, verifier: ./even.py")
        (folder / "even.py").write_text(EVEN)
    if algorithm in TAUGHT:
        teaching = text.partition("  teaching:\n")[2].partition("  rl:\n")[0]
        text = text.replace(teaching, TEACHING)
        text = text.replace("steps: [6]", "steps: [150]")
        (folder / "texts.jsonl").write_text(TAUGHT[algorithm]())
    path.write_text(text)
    return path


TEACHING = """    algorithm: sft
    texts: texts.jsonl
    prompts_per_step: 6
    learning_rate: 1e-2
    options: {save_every: 40}
"""


def lesson(kind: Kind) -> str:
    """How to propose and solve about the identity: a model of no skill has to know the form."""
    identity = {p.extras["kind"]: p for p in load_set("program-tasks", None, "identity")}
    about = identity[kind if kind != "induction" else "deduction"].extras
    new = "input: [1]\ninput: [2]\nmessage: x"
    if kind != "induction":
        new = "def f(x):\n    return x\ninput: [2]"
    proposal = make_proposing_task("t", kind, [about], 0)
    pairs = [(proposal, new), (identity[kind], identity[kind].gold)]
    rows = [{"prompt": problem.fields["question"] + "\n", "response": response}
            for problem, response in pairs]  # fmt: skip
    return "".join(json.dumps(row) + "\n" for row in rows)


def outcome(study: Path) -> dict[str, str]:
    """Digests of models, dynamics and texts, of what the algorithm remembers, and of the cube."""
    layout = load_study(study).layout
    patterns = ("models/**/*.safetensors", "**/dynamics.jsonl", "**/tables.jsonl")
    files = {path: path.read_bytes() for pattern in patterns for path in layout.root.glob(pattern)}
    newest = list_states(layout.states("rl"))[-1] / "progress.json"
    files[newest] = json.dumps(json.loads(newest.read_text())["store"]).encode()
    cube_folder = study.with_name("cube")
    tables._write_trainings(cube.create(cube_folder), layout)
    files |= {path: path.read_bytes() for path in cube_folder.rglob("*") if path.is_file()}
    shutil.rmtree(cube_folder)
    return {
        str(path.relative_to(study.parent)): hashlib.sha256(data).hexdigest()
        for path, data in sorted(files.items())
    }


def call() -> str:
    """How to call the calculator, whatever is asked."""
    turns = [
        ["model", "```calculator\n1+1\n```\n"], ["tool", "```output\n2\n```\n"], ["model", "2"],
    ]  # fmt: skip
    problems = load_set("countdown", None, "train", limit=6)
    prompt = get_prompt("countdown")
    rows = [{"prompt": render(prompt, problem), "response": turns} for problem in problems]
    return "".join(json.dumps(row) + "\n" for row in rows)


# What a model is taught from texts, where an algorithm needs a form that chance does not give.
TAUGHT: dict[str, Callable[[], str]] = {
    "absolute-zero": lambda: "".join(map(lesson, KINDS)),
    "episodes": call,
}


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param("grpo", marks=pytest.mark.core),
        *(
            pytest.param(name, marks=pytest.mark.by_turns(2))
            for name in ("ppo", "ttrl", "rlpr", "absolute-zero", "episodes")
        ),
        *(pytest.param(name, marks=pytest.mark.by_turns(3)) for name in MIXED),
    ],
)
def test_killed_training_ends_with_the_same_weights(
    model: Path, tmp_path: Path, soak: bool, algorithm: str
) -> None:
    straight = tmp_path / "straight"
    straight.mkdir()
    study = write(straight, model, algorithm)
    if algorithm == "selection":
        assert Child("sample", str(study), "--arm", "teacher").ended() == DONE
        shutil.copytree(straight / "runs", tmp_path / "sampled")
    start = time.monotonic()
    assert Child("train", str(study)).ended() == DONE
    duration = time.monotonic() - start
    expected = outcome(straight / "toy.yaml")
    models = [name for name in expected if name.endswith(".safetensors")]
    assert len(models) == 3  # one taught, two of RL
    assert any("cube/rollouts/rl/advantage" in name for name in expected)
    newest = list_states(load_study(straight / "toy.yaml").layout.states("rl"))[-1]
    remembered = json.loads((newest / "progress.json").read_text())["store"]
    assert set(MEMORY.get(algorithm, ())) <= set(remembered)
    log = load_study(straight / "toy.yaml").layout.training("rl") / "dynamics.jsonl"
    shown = [row.get(SHOWN.get(algorithm), 0.0) for row in tables.log_lines(log)]
    assert (max(shown) > 0) == (algorithm in SHOWN)
    turns = [row.get("num_turns/mean", 0.0) for row in tables.log_lines(log)]
    assert (max(turns) > 1) == (algorithm == "episodes")

    rng = random.Random(7)
    kills = runs = 0
    while kills < (30 if soak else 2 if algorithm in OWN else 3):
        runs += 1
        folder = tmp_path / f"killed-{runs}"
        folder.mkdir()
        study = write(folder, model, algorithm)
        if algorithm == "selection":
            shutil.copytree(tmp_path / "sampled", folder / "runs")
        code = TRY_AGAIN
        while code not in (DONE, NOTHING_TO_DO):
            child = Child("train", str(study))
            start = time.monotonic()
            child.wait(rng.uniform(0.2, 1.0) * duration)
            child.send(rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGUSR2]))
            code = child.ended()
            if code in (DONE, NOTHING_TO_DO):  # the machine is faster than it was
                duration = min(duration, time.monotonic() - start)
            else:  # or slower: what comes too soon after a start would come so for ever
                duration *= 1.05
            kills += code not in (DONE, NOTHING_TO_DO)
        assert outcome(study) == expected
