"""A folder in which the study files of these tests find what they name."""

from __future__ import annotations

import json
from pathlib import Path

STUDY = """\
# A small study that uses every section.
name: small
question: Does it move?
seed: 7
models:
  base: {path: models/base}
  line:
    path: models/line-{step}
    steps: [100, 200]
    base: base
  rl:
    train: {from: base, recipe: grpo}
    steps: [150, 300]
  far:
    endpoint: {url: "http://localhost:8000/v1", model: m, key_env: MY_KEY, context: 8192}
problem_sets:
  math-train: {set: math500, path: math500.jsonl, subset: "train[3]"}
  math500: {path: math500.jsonl, subset: "holdout[3]", n: 8}
recipes:
  grpo:
    algorithm: grpo
    problems: math-train
    prompt: r1-verl
    learning_rate: 1e-6
    max_tokens: 512
    options: {clip_low: 0.2, kl_kind: k3}
sampling:
  prompt: qwen-boxed
  temperature: 0.6
  top_p: 0.95
  max_tokens: 1024
  stop: ["</answer>"]
  n: 16
arms:
  base: {model: base}
  line: {model: line, steps: [0, 200]}
  rl: {model: rl}
  hot: {model: base, temperature: [1.0, 1.2], prompt: own.txt}
  far: {model: far, problem_sets: [math500]}
verification: {timeout: 5.0}
scores:
  rl-under-base: {responses: rl, model: base}
  outside: {texts: texts.jsonl, model: base}
match_entropy:
  rl-matched: {arm: rl, to: base}
analysis:
  compare: [{base: base, trained: rl}, {base: base, trained: hot}]
  k: [1, 8]
engine: {name: hf, dtype: float32, options: {rows: 64}}
storage: {tokens: all}
cluster: dev
"""


def write_model(folder: Path, holds: int = 32_768, weights: bytes = b"weights") -> None:
    """A checkpoint folder as far as a login node looks into it."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": holds}))
    (folder / "model.safetensors").write_bytes(weights + folder.name.encode())


def write_problems(file: Path, count: int = 5) -> None:
    """MATH500 in the shape of its public file."""
    records = [
        {
            "problem": f"What is {i} + 1?",
            "solution": f"\\boxed{{{i + 1}}}",
            "answer": str(i + 1),
            "subject": "Algebra",
            "level": 1,
            "unique_id": f"test/algebra/{i}.json",
        }
        for i in range(count)
    ]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def write_folder(folder: Path) -> Path:
    """Everything that STUDY names, and STUDY itself; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("base", "line-100", "line-200"):
        write_model(folder / "models" / name)
    write_problems(folder / "math500.jsonl")
    (folder / "own.txt").write_text("Q: {question}\nA:")
    (folder / "texts.jsonl").write_text('{"prompt": "p", "response": "r"}\n')
    file = folder / "study.yaml"
    file.write_text(STUDY)
    return file


def write_arms(folder: Path, problems: int, n: int, arms: int, max_tokens: int = 1024) -> Path:
    """A study of one model at so many temperatures, as many arms."""
    file = write_folder(folder)
    write_problems(folder / "math500.jsonl", problems)
    temperatures = ", ".join(f"0.{i}" for i in range(1, arms + 1))
    file.write_text(
        "name: large\n"
        "models: {base: {path: models/base}}\n"
        "problem_sets: {math500: {path: math500.jsonl}}\n"
        f"arms: {{base: {{model: base, prompt: qwen-boxed, temperature: [{temperatures}],"
        f" max_tokens: {max_tokens}, n: {n}}}}}\n"
    )
    return file
