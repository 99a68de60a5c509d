"""Measure the math verifier on labelled responses, as they are and in variants; see --help.

The variants take away what makes an answer easy to find, cut the text, or add another task, as
base models do. All texts come from the file: nothing is made up but the words between two of them.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse
from math_verify.grader import verify as math_verify

from rlbhpc.verify import verify
from rlbhpc.verify.answer.statements import OPENINGS, STATEMENTS, TURN_ENDS

SEED = 20240501
BOX = re.compile(r"\\boxed\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")
CALCULATOR = re.compile(r"<<[^<>\n]*>>")


@dataclass(frozen=True)
class Labelled:
    """One line of the file."""

    gold: str
    response: str
    right: bool
    question: str


def read_labelled(path: Path) -> list[Labelled]:
    """Read a JSONL file with gold, response, right and, for other tasks, question."""
    rows = []
    for line in path.read_text("utf-8").splitlines():
        record = json.loads(line)
        question = record.get("question", "")
        rows.append(Labelled(str(record["gold"]), record["response"], record["right"], question))
    return rows


# --- variants: a text, or None where a variant is not for this response ---------------------------

Variant = Callable[[Labelled], str | None]


def _cut_marker(row: Labelled) -> tuple[str, str] | None:
    """Cut ``A: 18``, the last line of GSM8K's published solutions, off the solution."""
    solution, _, last_line = row.response.rstrip().rpartition("\n")
    return (solution, last_line[2:].strip()) if last_line.startswith("A:") else None


def _marked_as(form: str) -> Variant:
    def variant(row: Labelled) -> str | None:
        parts = _cut_marker(row)
        return None if parts is None else f"{parts[0]}\n{form.format(parts[1])}"

    return variant


def _unmarked(calculator: bool, ending: str) -> Variant:
    def variant(row: Labelled) -> str | None:
        parts = _cut_marker(row)
        if parts is None:
            return None
        return (parts[0] if calculator else CALCULATOR.sub("", parts[0])) + ending

    return variant


def _unboxed(row: Labelled) -> str | None:
    return BOX.sub(r"\1", row.response) if "\\boxed" in row.response else None


VARIANTS: dict[str, Variant] = {
    "as written": lambda row: row.response,
    "last line `#### 18`": _marked_as("#### {}"),
    "last line `The answer is 18.`": _marked_as("The answer is {}."),
    "last line in a box": _marked_as(r"\boxed{{{}}}"),
    "marker taken off": _unmarked(calculator=True, ending=""),
    "also without `<<…>>`": _unmarked(calculator=False, ending=""),
    "also with `I hope it is correct.`": _unmarked(False, "\nI hope it is correct."),
    "box taken off": _unboxed,
}


# --- another task behind an answer ----------------------------------------------------------------

# How a base model goes on with a task of its own: chat formats and headings of prompts.
CONTINUATIONS = (
    "<|im_end|>\n<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n{a}",
    "<|endoftext|>{q}\n{a}", "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n{q}\n{a}",
    "<|start_header_id|>user<|end_header_id|>\n\n{q}\n{a}", "</s><s>[INST] {q} [/INST] {a}",
    " [INST] {q} [/INST] {a}", "\n[INST] {q} [/INST]\n{a}",
    "<end_of_turn>\n<start_of_turn>user\n{q}<end_of_turn>\n<start_of_turn>model\n{a}",
    "<|user|>\n{q}<|end|>\n<|assistant|>\n{a}", "<｜User｜>{q}<｜Assistant｜>{a}",
    "\nuser\n{q}\nassistant\n{a}", "\n\nHuman: {q}\n\nAssistant: {a}", "\nUSER: {q} ASSISTANT: {a}",
    "\n\nUser: {q}\n\nAssistant: {a}", "\n\n### Human: {q}\n### Assistant: {a}",
    "\n\n### Instruction:\n{q}\n\n### Response:\n{a}", "\n\nInstruction: {q}\nOutput: {a}",
    "\n\nQ: {q}\nA: {a}", "\n\nQuestion: {q}\nAnswer: {a}",
    "\nQuestion 2: {q}\nSolution: {a}",
    "\n\n**Question:** {q}\n\n**Solution:** {a}", "\n\n## Question\n{q}\n\n## Answer\n{a}",
    "\n\nProblem:\n{q}\n\nSolution:\n{a}", "\n\nProblem 2. {q}\n{a}",
    "\n\n## Problem 2\n\n{q}\n\n{a}",
    "\n\n**Problem 2**\n{q}\n{a}", "\n\n### Problem: {q}\n{a}", "\n\nExercise 3. {q}\n{a}",
    "\n\nExample 2: {q}\n{a}", "\n\nTask: {q}\n{a}", "\n\nInput: {q}\nOutput: {a}",
    "\n\nPrompt: {q}\n{a}", "\n\n[Question]\n{q}\n[Solution]\n{a}", "\n\nNext problem: {q}\n{a}",
    "\n\nHere is another problem: {q}\n{a}", "\n\nNow let's try a similar question.\n{q}\n{a}",
    "\n\n---\n\n{q}\n\n{a}", "\n\n---\n\n## Another one\n\n{q}\n\n{a}", "\n\n***\n\n{q}\n\n{a}",
    "\n\n题目：{q}\n解答：{a}", "\n\n问题：{q}\n答案：{a}", "\n\n例2：{q}\n{a}",
    "\n\n【题目】{q}\n{a}",
    "\n\nPregunta: {q}\n{a}", "\n\nFrage: {q}\n{a}", "\n\nВопрос: {q}\n{a}",
    "\n\nЗадача 2. {q}\n{a}",
    "\n\nProblème : {q}\n{a}", "\n\n問題：{q}\n{a}", "\n\n문제: {q}\n{a}",
    "\n{q}\nPlease reason step by step, and put your final answer within \\boxed{{}}.\n{a}",
)  # fmt: skip


def kept_first_answers(rows: list[Labelled], each: int) -> dict[str, int]:
    """Count for each continuation how often the verdict stays that of the first answer alone."""
    draw = random.Random(SEED)
    questions = [row.question for row in rows if row.question]
    kept = {}
    for form in CONTINUATIONS:
        kept[form] = 0
        for _ in range(each):
            first, second = draw.sample(rows, 2)
            behind = form.format(q=draw.choice(questions), a=second.response)
            text = first.response.rstrip() + behind
            answer = verify("math", first.gold, first.response, None, "eos").answer
            kept[form] += verify("math", first.gold, text, None, "length").answer == answer
    return kept


# --- speed ----------------------------------------------------------------------------------------


def verdicts_a_second(
    judge: Callable[[str, str], object], texts: Iterable[tuple[str, str]]
) -> float:
    """Judge all texts once and say how many a second."""
    items = list(texts)
    start = time.perf_counter()
    for gold, response in items:
        judge(gold, response)
    return len(items) / (time.perf_counter() - start)


def _ours(gold: str, response: str) -> object:
    return verify("math", gold, response, None, "eos")


def _math_verify(gold: str, response: str) -> object:
    config = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())
    return math_verify(parse(f"${gold}$", config), parse(response, config))


def texts_by_kind(rows: list[Labelled], count: int) -> dict[str, list[tuple[str, str]]]:
    """Texts of each kind, and a mixture of them: 82 % boxed, 13 % unboxed, 5 % cut."""
    draw = random.Random(SEED)
    boxed = [row for row in rows if "\\boxed" in row.response]
    kinds: dict[str, list[tuple[str, str]]] = {"boxed": [], "unboxed": [], "cut": []}
    for number in range(count):
        row = boxed[number % len(boxed)]
        text = f"({number}) {row.response}"  # different texts: nothing is remembered
        kinds["boxed"].append((row.gold, text))
        kinds["unboxed"].append((row.gold, BOX.sub(r"\1", text)))
        kinds["cut"].append((row.gold, text[: draw.randrange(len(text) // 2, len(text))]))
    mixture = draw.sample(kinds["boxed"], count * 82 // 100)
    mixture += draw.sample(kinds["unboxed"], count * 13 // 100)
    mixture += draw.sample(kinds["cut"], count * 5 // 100)
    draw.shuffle(mixture)
    return {**kinds, "mixture": mixture}


# --- tables ---------------------------------------------------------------------------------------


def print_variants(rows: list[Labelled]) -> None:
    """Right answers found and wrong ones accepted under both readings."""
    print("| responses | right | strict | lenient | wrong | strict | lenient |")
    print("|---|---|---|---|---|---|---|")
    for name, variant in VARIANTS.items():
        counts = {True: [0, 0, 0], False: [0, 0, 0]}
        for row in rows:
            text = variant(row)
            if text is None:
                continue
            verdict = verify("math", row.gold, text, None, "eos")
            counts[row.right][0] += 1
            counts[row.right][1] += verdict.strict == 1
            counts[row.right][2] += verdict.right
        cells = [str(count) for label in (True, False) for count in counts[label]]
        print(f"| {name} | {' | '.join(cells)} |")


def print_cut(rows: list[Labelled]) -> None:
    """Responses cut at a random place: accepted before anything stated an answer, and in all."""
    draw = random.Random(SEED)
    accepted = unfinished = 0
    for row in rows:
        text = row.response[: draw.randrange(1, len(row.response))]
        if verify("math", row.gold, text, None, "length").right:
            accepted += 1
            unfinished += not (BOX.search(text) or re.search(r"####|^A:|answer", text, re.M))
    print(f"\ncut at random: {accepted} of {len(rows)} accepted, {unfinished} of them unfinished")


def print_patterns(rows: list[Labelled]) -> None:
    """In how many responses each pattern of the table occurs."""
    print("\n| pattern | occurs in |\n|---|---|")
    for pattern in (*TURN_ENDS, *OPENINGS, *STATEMENTS):
        regex = re.compile(pattern.regex, re.IGNORECASE | re.MULTILINE)
        found = sum(regex.search(row.response) is not None for row in rows)
        print(f"| {pattern.name} | {found} |")


def main() -> None:
    """Read the arguments and print the tables that they ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="+", help="JSONL: gold, response, right, question")
    parser.add_argument("--patterns", action="store_true", help="count the rules of extraction")
    parser.add_argument("--tasks", type=int, default=0, help="other tasks for each continuation")
    parser.add_argument("--speed", type=int, default=0, help="texts to time beside Math-Verify")
    arguments = parser.parse_args()
    rows = [row for path in arguments.file for row in read_labelled(path)]
    print_variants(rows)
    print_cut(rows)
    if arguments.patterns:
        print_patterns(rows)
    if arguments.tasks:
        kept = kept_first_answers(rows, arguments.tasks)
        total = len(kept) * arguments.tasks
        print(
            f"\nanother task behind the answer: the first kept in {sum(kept.values())} of {total}"
        )
        for form, count in kept.items():
            if count < arguments.tasks:
                print(f"  {count} of {arguments.tasks}: {form!r}")
    if arguments.speed:
        print("\n| texts | verdicts/s | Math-Verify | ratio |\n|---|---|---|---|")
        for kind, texts in texts_by_kind(rows, arguments.speed).items():
            ours = verdicts_a_second(_ours, texts)
            theirs = verdicts_a_second(_math_verify, texts[: max(1, len(texts) // 10)])
            print(f"| {kind} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.0f} |")


if __name__ == "__main__":
    main()
