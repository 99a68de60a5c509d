"""Verification: verdicts a second beside calling Math-Verify for each response."""

from __future__ import annotations

import itertools
import logging
import random
import statistics
import time
from collections.abc import Callable, Iterator

from math_verify import LatexExtractionConfig, parse
from math_verify import verify as math_verify

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.running.batch import BatchVerifier, Item
from tests.benchmarks import Row

RESPONSES, PROBLEMS, ANSWERS, CHUNK = 1_000_000, 500, 40, 50_000
REASONING = "We compare both sides, so $x^{2}+\\frac{1}{2}$ must equal $\\sqrt{7}$. Then " * 20


def answers(draw: random.Random) -> Iterator[str]:
    """Answers in the shapes of MATH500's gold answers: numbers, closed forms, tuples, …"""
    while True:
        a, b, c = draw.randrange(2, 10**6), draw.randrange(2, 999), draw.randrange(2, 99)
        shapes = [str(a)] * 12 + [f"{a}.{b}", f"-{a}", f"{a:,}", rf"\frac{{{a}}}{{{b}}}"] + [
            rf"\frac{{{a}\sqrt{{{b}}}}}{{{c}}}", rf"{a}\sqrt{{{b}}}", rf"{b}\pi", rf"{a}+{b}i",
            f"{c}x^2-{b}x+{a}", rf"{a}^\circ", f"({a},{b})", f"({b},{a}]", f"{a},{b}",
            f"{a:o}_{{8}}",
            rf"\begin{{pmatrix}}{a}\\{b}\end{{pmatrix}}", rf"\text{{ {b} cm}}",
        ]  # fmt: skip
        yield draw.choice(shapes)


def workload(count: int) -> Iterator[list[Item]]:
    """Chunks of responses of 1,500 characters to 500 problems with 40 answers each."""
    draw = random.Random(5)
    texts = answers(draw)
    problems = []
    for index in range(PROBLEMS):
        pool = list(dict.fromkeys(itertools.islice(texts, ANSWERS)))
        gold = pool[0]
        problems.append((Problem(f"made/{index}", {"question": str(index)}, gold, "math"), pool))
    weights = [1 / (rank + 1) for rank in range(ANSWERS)]  # few answers are common, many rare
    for start in range(0, count, CHUNK):
        chunk: list[Item] = []
        for index in range(start, min(count, start + CHUNK)):
            problem, pool = problems[index * PROBLEMS // count]
            (answer,) = draw.choices(pool, weights[: len(pool)])
            lead = f"{index}: {REASONING}"
            chunk.append((problem.gold, f"{lead}\\boxed{{{answer}}}.", problem))
        yield chunk


def by_math_verify(items: list[Item]) -> int:
    """What a harness without deduplication does for each response."""
    config = [LatexExtractionConfig(boxed_match_priority=0)]
    right = 0
    for gold, response, _ in items:
        right += math_verify(parse(f"${gold}$", config), parse(response, config))
    return right


def run() -> list[Row]:
    """A large-k workload whole, and answers that are all different."""
    logging.disable(logging.CRITICAL)
    batch = BatchVerifier("math")
    used = 0.0
    for chunk in workload(RESPONSES):
        start = time.process_time()
        batch.verify_many(chunk)
        used += time.process_time() - start
    ours = RESPONSES / used

    sample = list(itertools.islice(itertools.chain.from_iterable(workload(PROBLEMS)), 400))
    theirs = len(sample) / _median_core_seconds(lambda: by_math_verify(sample))

    texts = itertools.islice(answers(random.Random(9)), 4000)
    different = list(dict.fromkeys(texts))[:1500]
    golds = list(reversed(different))
    pairs: list[Item] = [
        (gold, f"So we get \\boxed{{{answer}}}.", None)
        for gold, answer in zip(golds, different, strict=True)
    ]

    def fresh() -> None:
        _forget()
        BatchVerifier("math").verify_many(pairs)

    mine = len(pairs) / _median_core_seconds(fresh)
    other = len(pairs) / _median_core_seconds(lambda: by_math_verify(pairs))
    return [
        Row("verdicts at large k", ours, "/s on one core", ">= 100,000", ours >= 1e5,
            f"{RESPONSES} responses, {batch.tally.factor:.0f} for each judged pair, "
            f"{batch.tally.in_worker} asked of a worker; processor time"),
        Row("beside Math-Verify per response", ours / theirs, "x", ">= 20", ours / theirs >= 20,
            f"Math-Verify {theirs:.0f}/s"),
        Row("all answers different", mine / other, "x", ">= 3", mine / other >= 3,
            f"{mine:.0f}/s beside {other:.0f}/s"),
    ]  # fmt: skip


def _median_core_seconds(work: Callable[[], object], runs: int = 3) -> float:
    """Median processor time: other processes of the machine do not count."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)


def _forget() -> None:
    """Empty every cache, so that a repetition reads all answers again."""
    from rlbhpc.verify.answer import extract, lexer, read
    from rlbhpc.verify.kinds import math

    lexer.tokenize.cache_clear()
    read.read.cache_clear()
    math._gold_value.cache_clear()
    extract._answer_of_ending.cache_clear()


if __name__ == "__main__":
    for row in run():
        print(row)
