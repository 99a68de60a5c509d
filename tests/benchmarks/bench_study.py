"""What it costs to resolve a study and to hold a million keys."""

from __future__ import annotations

import os
import tempfile
import tracemalloc
from pathlib import Path

from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from tests.benchmarks import Row, median_seconds
from tests.study.folder import write_arms

PROBLEMS, SAMPLES, ARMS = 500, 500, 4


def run() -> list[Row]:
    """Measure loading, blocks and the stored record of a study of a million samples."""
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
        file = write_arms(Path(name) / "work", PROBLEMS, SAMPLES, ARMS)
        study = load_study(file)
        text = study.to_json()
        tracemalloc.start()
        blocks = list(study.blocks())
        memory = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
        size = sum(block.size for block in blocks)
        rows = [
            ("load and check", lambda: load_study(file)),
            ("fingerprints of all keys, as blocks", lambda: list(study.blocks())),
            ("read the stored study", lambda: Study.from_json(text)),
        ]
        return [
            Row("samples of the study", size, "samples"),
            *(Row(what, median_seconds(work) * 1e3, "ms") for what, work in rows),
            Row("memory of the blocks", memory, "MB"),
        ]
