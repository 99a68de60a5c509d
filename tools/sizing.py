"""Write docs/sizing.md: what each file of ``configs/study`` asks for when its sets are whole.

Models and problem sets are stand-ins of the right number, so nothing has to be downloaded.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlbhpc.launch.prepare import Rates, gpu_hours
from rlbhpc.study.load import load_study
from rlbhpc.sweep.plan import Plan, make_plan, read_presence
from tests.sweep import study_folder as made
from tools import step_cost

#: Problems of each set as it is published, before a study takes its part. LiveCodeBench: those of
#: the benchmark's window, and one older.
PROBLEMS = {
    "gsm8k": 1319, "math": 12_000, "dapo-math": 14_000, "math500": 500, "minerva": 272,
    "olympiadbench": 675, "aime24": 30, "aime25": 30, "amc23": 40, "omni-math-rule": 2821,
    "humaneval+": 164, "mbpp+": 378, "livecodebench": 280, "geometry3k": 601, "mathvista": 460,
    "mathvision": 114, "mmlu-pro": 12_032, "gpqa": 198, "theoremqa": 750,
    "aime26": 30, "hmmt26": 33, "webinstruct-verified": 2000, "rlpr-train": 2000,
}  # fmt: skip
#: Mean response tokens that the table assumes.
LENGTHS = {
    "ablations": 800, "algorithms": 800, "code": 800, "distillation": 4000, "magistral": 12000,
    "absolute-zero": 400, "absolute-zero-table": 800, "olmo3": 6000,
    "controls": 800, "exploration": 800, "rlpr": 600, "ttrl": 800,
    "math": 800, "math_stopped": 800, "perplexity": 800, "recipes": 800, "temperature": 800,
    # Sampled tokens, rejected ones included: some 800 of a plain sample, 18,000 of one of p^4.
    "power": 2800,
    # Over all turns.
    "tools": 1200,
    "vision": 400,
}  # fmt: skip
RATE, START, SHARD = 3000.0, 120.0, 50_000_000
#: What a stored response takes, sealed or not.
BYTES_PER_TOKEN, BYTES_PER_SAMPLE = 6.0, 120.0
TEXTS, NAMES = (
    ("problem", "question", "Question", "prompt", "question_content"),
    ("id", "pid", "unique_id", "idx", "problem_idx", "Record ID"),
)
ROOT = Path(__file__).parents[1]


def table() -> Iterator[str]:
    """Lines of the table."""
    yield "| file | arms | samples | mean length | tokens | GPU-hours | shards | GB |"
    yield "|---|---|---|---|---|---|---|---|"
    for name in sorted(LENGTHS):
        yield row(name, LENGTHS[name])


def row(name: str, length: int) -> str:
    """One study, planned with nothing there."""
    with tempfile.TemporaryDirectory() as folder:
        file = made.study_folder(Path(folder), name, whole)
        study, full = load_study(file, ()), load_study(file, ("sampling.stop_after=0",))
        there = read_presence(study.layout, list(study.blocks()))
        asked = make_plan(full, read_presence(full.layout, list(full.blocks())), SHARD)
        # A plan expects responses as long as they may be; here they have the length assumed.
        shorter = asked.samples * length / asked.tokens
        plan = make_plan(study, there, round(SHARD / shorter))
        arms = len(study.arms)
    samples = round(asked.samples * plan.tokens / asked.tokens)
    hours = gpu_hours(plan, Rates(RATE / shorter, START, ""), 1)
    cells = [
        f"`{name}.yaml`", arms, f"{samples:,}", f"{length:,}", f"{in_billions(plan, shorter)}",
        f"{hours:,.0f}", len(plan.shards), f"{megabytes(samples, length) / 1000:,.0f}",
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def in_billions(plan: Plan, shorter: float) -> str:
    return f"{plan.tokens * shorter / 1e9:,.1f} billion"


def megabytes(samples: int, length: int) -> float:
    return samples * (BYTES_PER_SAMPLE + BYTES_PER_TOKEN * length) / 1e6


def whole(name: str) -> list[dict[str, Any]]:
    """As many different records as the set has, all like the first of its shape.

    Another stands before them where recipes train on a part that the first does not belong to.
    """
    first, *rest = made.records(name)
    others = {"math": rest[:1], "livecodebench": rest[-1:]}.get(name, [])
    return [*others, *(different(first, i) for i in range(PROBLEMS[name] - len(others)))]


def different(record: dict[str, Any], number: int) -> dict[str, Any]:
    changed: dict[str, Any] = {
        key: f"{record[key]} {number}" for key in TEXTS if isinstance(record.get(key), str)
    }
    changed |= {key: f"{number}" for key in NAMES if key in record}
    for key in ("task_id", "question_id"):
        if key in record:
            changed[key] = f"{str(record[key]).partition('/')[0]}/{number}"
    if "extra_info" in record:
        changed["extra_info"] = {"index": f"{number}"}
    return record | changed


if __name__ == "__main__":
    head = (ROOT / "tools" / "pages" / "sizing.md").read_text()
    head = head.replace("MEMORY", "\n".join(step_cost.memory_rows()))
    head = head.replace("SECONDS", "\n".join(step_cost.seconds_rows()))
    (ROOT / "docs" / "sizing.md").write_text("\n".join([head, *table(), ""]))
