"""Write what the model of ``configs/calculator.yaml`` learns from: Countdown with a calculator.

A lesson is a worked trace that reaches its target. The calculator is asked for each step, and the
answer then lists the steps. Problems are of the training half.

Example: python -m tools.calculator_traces runs/calculator/lessons.jsonl
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from rlbhpc.engines.episode import Blocks
from rlbhpc.problems.countdown import Worked, read_rules, work_traces
from rlbhpc.problems.prompts import get_prompt, render

RULES: Final = Path(__file__).parents[1] / "configs" / "countdown.yaml"
TOOL: Final = "calculator"
LESSONS: Final = 12_800


def make_lesson(worked: Worked) -> dict[str, object]:
    """A prompt with its episode, as ``texts`` of a recipe take them."""
    blocks = Blocks([TOOL])
    segments = []
    for step in worked.response.splitlines():
        expression, _, value = step.partition("=")
        call = f"```{TOOL}\n{expression}\n```\n"
        ((before, result, behind),) = blocks.frame(call, [value])
        segments.append(("model", call))
        segments.append((TOOL, before + result + behind))
    segments.append(("model", worked.response))
    return {"prompt": render(get_prompt("countdown"), worked.problem), "response": segments}


def main(path: Path) -> None:
    """Write the lessons to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    traces = work_traces("countdown", read_rules(RULES), LESSONS, 1.0, 2)
    lines = [json.dumps(make_lesson(worked)) for worked in traces]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
