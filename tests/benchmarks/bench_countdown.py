"""Countdown: verdicts and worked traces a second on one core."""

from __future__ import annotations

from rlbhpc.problems.countdown import Rules, work_traces
from rlbhpc.verify.kinds.countdown import verify
from tests.benchmarks import Row, median_seconds

COUNT = 20_000


def run() -> list[Row]:
    """Half of the responses are traces, half one expression after a cue; three in ten are right."""
    worked = list(work_traces("countdown", Rules(), COUNT, hit=0.3, seed=0))
    answers = [(one.problem.gold, one.response) for one in worked]
    answers += [(gold, f"So the answer is (3+{i % 13})*7-2*{i % 11}.") for i, (gold, _) in
                enumerate(answers)]  # fmt: skip

    def judge() -> int:
        return sum(verify(gold, response).right for gold, response in answers)

    def write() -> int:
        return sum(1 for _ in work_traces("countdown", Rules(), COUNT, hit=0.3, seed=1))

    minute = 60 * len(answers) / median_seconds(judge)
    return [
        Row("Countdown verdicts", minute, "/min on one core", ">= 1e6", minute >= 1e6),
        Row("Countdown worked traces", COUNT / median_seconds(write), "/s on one core"),
    ]


if __name__ == "__main__":
    for row in run():
        print(row)
