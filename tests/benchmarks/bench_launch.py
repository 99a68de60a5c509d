"""Launching: how fast status is, and how near predictions come."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rlbhpc.launch import status
from rlbhpc.launch.prepare import gpu_hours, measured_rates
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.sample_rows import Sample
from rlbhpc.study.keys import SampleKey
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.attempt import read_attempts
from rlbhpc.sweep.plan import make_plan, read_presence
from rlbhpc.sweep.remember import store_study
from tests.benchmarks import Row, in_loops, median_seconds
from tests.studies import HF_BY_32, untrained, write_unloadable_model

PROBLEMS, N = 500, 2_000


def run() -> list[Row]:
    return [*looks(), *predictions()]


def looks(problems: int = PROBLEMS, n: int = N) -> Iterator[Row]:
    """Status of a million samples that lie in 40 journals, nothing sealed."""
    with tempfile.TemporaryDirectory() as name:
        study = _study(Path(name), problems, n, 12)
        store_study(study)
        prints = {
            p: study.request_fingerprint("base", 0, p) for p in study.problem_ids("countdown")
        }
        writers = [
            JournalWriter(study.layout.journals("base", "countdown"), str(i)) for i in range(40)
        ]
        for number, (problem, print_) in enumerate(prints.items()):
            for index in range(n):
                key = SampleKey("base", 0, problem, index)
                row = Sample(key, print_, 1, 0, 0, 12, -1.0, 1.0)
                writers[(number * 7 + index) % 40].append(row)
        for writer in writers:
            writer.close()
        found = status.status(study.layout)
        assert not found.missing
        seconds = median_seconds(lambda: status.status(study.layout), runs=3)
        count = problems * n
        yield in_loops(f"status of {count:,} samples", seconds, 20)


def predictions() -> Iterator[Row]:
    """A real run of two shards against what was predicted from a smaller one before it."""
    from rlbhpc.engines.tiny import make_tiny_model

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        study = _study(folder, 12, 256, 48)
        make_tiny_model(folder / "model", hidden_size=64)
        _call("sample", str(folder / "study.yaml"), "--set", "arms.base.n=64")
        study = load_study(folder / "study.yaml")
        rates = measured_rates(read_attempts(study.layout))
        assert rates is not None
        before = {path.name for path in study.layout.attempts.iterdir()}
        present = read_presence(study.layout, list(study.blocks()))
        total = sum(block.missing for block in present)
        tokens = make_plan(study, present, 10**12).tokens
        plan = make_plan(study, present, tokens // 2)
        assert len(plan.shards) == 2
        expected_seconds = gpu_hours(plan, rates, 1) * 3600
        store_study(study)
        path = plan.save(study.layout.plans)
        # As array tasks do it: each shard in a process of its own.
        for number in range(2):
            _call("run", str(path), "--shards", str(number))
        spent = 0.0
        for path in study.layout.attempts.iterdir():
            if path.name not in before:
                one = json.loads(path.read_text())
                spent += one["ended"] - one["started"]
        ratio = expected_seconds / spent
        what = f"predicted time of 2 shards, {total:,} samples, against the real one"
        yield Row(what, ratio, "x", "0.75 to 1.25", 0.75 <= ratio <= 1.25)


def _study(folder: Path, problems: int, n: int, tokens: int) -> Study:
    write_unloadable_model(folder / "model")
    text = untrained("large", problems, n=n, max_tokens=tokens, engine=HF_BY_32)
    (folder / "study.yaml").write_text(text)
    return load_study(folder / "study.yaml")


def _call(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "rlbhpc", *words], check=True, capture_output=True)


if __name__ == "__main__":
    for row in run():
        print(row)
