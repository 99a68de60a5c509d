"""Files of other tools for tests, and a look at what became of them."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import xarray as xr

import rlbhpc
from rlbhpc.exchange.arriving import Target
from rlbhpc.exchange.imports import Importing, import_files
from rlbhpc.store.compact import compact
from rlbhpc.study.layout import Layout

RIGHT = 1
WRONG = 0
NO_ANSWER = 2
NO_ANSWER = 2
TIMEOUT = 3
ERROR = 5


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def take_in(
    run: Path, *paths: Path, judge: str | None = None, metric: str | None = None
) -> Importing:
    run.mkdir(exist_ok=True)
    return import_files(Layout(run), paths, Target("theirs", "set", "model"), metric, judge)


def take_in_pieces(run: Path, path: Path) -> None:
    """Take in a thousand responses of 80 MB of text in all, a batch of them at a time."""
    tracemalloc.start()
    done = take_in(run, path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert done.samples == 1000
    # A batch is 20 MB, held as row and as text.
    assert peak < 60e6


def cube_of(run: Path) -> xr.Dataset:
    compact(Layout(run))
    return rlbhpc.open_cube(run)["theirs/set"].to_dataset()


def verdicts(cube: xr.Dataset, problem: str, step: int = 0) -> list[int]:
    values = cube.verdict.sel(problem=f"set/{problem}", step=step).values
    return [int(value) for value in values if value >= 0]


def nemo_row(problem: str, predicted: str | None, right: bool, **more: Any) -> dict[str, Any]:
    return {
        "problem": problem, "expected_answer": "70", "generation": "thinking",
        "num_generated_tokens": 3492, "generation_start_time": 1752883422.5,
        "predicted_answer": predicted, "symbolic_correct": right, **more,
    }  # fmt: skip


def choice_row(doc: int, likelihoods: list[str], acc: float, **more: Any) -> dict[str, Any]:
    """A document of a multiple-choice task: a request a choice, no response."""
    return {
        "doc_id": doc, "doc": {"question": "?"}, "target": "1",
        "arguments": {
            f"gen_args_{n}": {"arg_0": "? Answer:", "arg_1": f" {letter}"}
            for n, letter in enumerate("AB")
        },
        "resps": [[[value, "False"]] for value in likelihoods],
        "filtered_resps": [[value, "False"] for value in likelihoods],
        "filter": "none", "metrics": ["acc"], "acc": acc, **more,
    }  # fmt: skip


def batch_request(custom_id: str, question: str) -> dict[str, Any]:
    """A line of the file that OpenAI's interface and ``vllm run-batch`` take."""
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": question},
    ]
    return {
        "custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions",
        "body": {"model": "m", "messages": messages, "max_tokens": 1000, "n": 2},
    }  # fmt: skip


def batch_response(custom_id: str, texts: list[str], finish: str = "stop") -> dict[str, Any]:
    """A line of the file that they give back."""
    choices = [
        {"index": n, "message": {"role": "assistant", "content": text}, "logprobs": None,
         "finish_reason": finish}
        for n, text in enumerate(texts)
    ]  # fmt: skip
    body = {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1711471533, "model": "m",
        "choices": choices,
        "usage": {"prompt_tokens": 24, "completion_tokens": 15, "total_tokens": 39},
    }  # fmt: skip
    return {
        "id": "batch_req_1", "custom_id": custom_id, "error": None,
        "response": {"status_code": 200, "request_id": "req_1", "body": body},
    }  # fmt: skip


def limit_row(idx: int, gt: str, preds: list[str]) -> dict[str, Any]:
    return {
        "idx": idx, "question": "How many?", "gt_cot": f"so {gt}", "gt": gt, "level": 3,
        "solution": f"so {gt}", "answer": gt,
        "code": [f"It is $\\boxed{{{pred}}}$." for pred in preds], "pred": preds,
        "report": ["Done"] * len(preds), "finish_reason": ["stop"] * (len(preds) - 1) + ["length"],
        "score": [pred == gt for pred in preds],
    }  # fmt: skip


def verl_row(prompt: str, score: float, step: int = 20, **more: Any) -> dict[str, Any]:
    return {
        "input": f"user\n{prompt}\nassistant\n", "output": f"Answer: {score}", "gts": "34",
        "score": score, "step": step, **more,
    }  # fmt: skip


def evalplus_row(task: str, base: str, plus: str | None) -> dict[str, Any]:
    return {
        "task_id": task, "solution": "def f(): ...", "base_status": base, "plus_status": plus,
        "base_fail_tests": [], "plus_fail_tests": [],
    }  # fmt: skip


def prediction_row(problem: str, **more: Any) -> dict[str, Any]:
    return {
        "question_id": problem, "output_list": ["[ANSWER] 3 [/ANSWER]", "no idea"],
        "pred_list": ["3", ""], "graded_list": [True, False], "pass@1": 0.5, **more,
    }  # fmt: skip
