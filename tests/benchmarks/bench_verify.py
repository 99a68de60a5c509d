"""Verification: verdicts a second beside calling Math-Verify for each response."""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections.abc import Callable, Iterator

from math_verify import LatexExtractionConfig, parse
from math_verify import verify as math_verify

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.running.batch import BatchVerifier, Item
from tests.benchmarks import Row
from tests.benchmarks.model_texts import answers, response

PROBLEMS, ANSWERS, COPIES, CHUNK = 400, 40, 11, 20
BY_MATH_VERIFY, DIFFERENT = 300, 600


def workload() -> Iterator[list[Item]]:
    """Chunks of responses: 40 answers to each problem, each in 11 texts that share nothing else."""
    draw = random.Random(5)
    texts = answers(draw)
    for start in range(0, PROBLEMS, CHUNK):
        chunk: list[Item] = []
        for index in range(start, start + CHUNK):
            pool = list(dict.fromkeys(itertools.islice(texts, ANSWERS)))
            problem = Problem(f"made/{index}", {"question": str(index)}, pool[0], "math")
            items = [
                (problem.gold, response(draw, answer), problem)
                for answer in pool
                for _ in range(COPIES)
            ]
            draw.shuffle(items)
            chunk += items
        yield chunk


def all_different() -> list[Item]:
    """Responses of which each gives another answer, to a gold answer of another shape."""
    draw = random.Random(9)
    different = list(dict.fromkeys(itertools.islice(answers(draw), DIFFERENT)))
    pairs = zip(reversed(different), different, strict=True)
    return [(gold, response(draw, answer), None) for gold, answer in pairs]


def by_math_verify(items: list[Item]) -> int:
    """What a harness without deduplication does for each response."""
    config = [LatexExtractionConfig(boxed_match_priority=0)]
    right = 0
    for gold, text, _ in items:
        right += math_verify(parse(f"${gold}$", config), parse(text, config))
    return right


def run() -> list[Row]:
    """A large-k workload whole, and answers that are all different."""
    logging.disable(logging.CRITICAL)
    batch = BatchVerifier("math")
    seconds, characters = 0.0, 0
    sample: list[Item] = []
    for chunk in workload():
        seconds += _core_seconds(lambda items=chunk: batch.verify_many(items))
        characters += sum(len(text) for _, text, _ in chunk)
        sample += chunk[: BY_MATH_VERIFY * CHUNK // PROBLEMS]
    responses = batch.tally.responses
    ours = responses / seconds
    theirs = len(sample) / _core_seconds(lambda: by_math_verify(sample))

    pairs = all_different()
    ours_different = len(pairs) / _core_seconds(lambda: BatchVerifier("math").verify_many(pairs))
    theirs_different = len(pairs) / _core_seconds(lambda: by_math_verify(pairs))
    share = ours_different / theirs_different
    return [
        Row("verdicts at large k", ours, "/s on one core", note=
            f"{responses} responses of {characters / responses:.0f} characters, all different, "
            f"{batch.tally.factor:.0f} for each answer to a problem; processor time"),
        Row("beside Math-Verify per response", ours / theirs, "x", ">= 20", ours / theirs >= 20,
            f"Math-Verify {theirs:.0f}/s"),
        Row("all answers different", share, "x", ">= 3", share >= 3,
            f"{ours_different:.0f}/s beside {theirs_different:.0f}/s"),
    ]  # fmt: skip


def _core_seconds(work: Callable[[], object]) -> float:
    """Processor time: other processes of the machine do not count."""
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    for row in run():
        print(row)
