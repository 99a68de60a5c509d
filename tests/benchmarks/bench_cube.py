"""Reading half of the store: verdicts to pass@k, curves, compaction, bytes and files.

The large cube (10⁸ verdicts) and the million samples are made here, in a temporary folder of about
1 GB, and removed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlbhpc.stats import pass_at_k, pass_curves
from rlbhpc.store import cube, parts, sample_rows
from rlbhpc.store.compact import compact
from rlbhpc.store.grid import Grid, seal_units
from rlbhpc.study.keys import Cell, SampleKey, sample_seed
from rlbhpc.study.layout import Layout
from tests.benchmarks import Row, in_loops, median_seconds, paired_medians

# A process of its own, so that the peak is that of this work alone.
TABLE = """
import json, sys, time
from pathlib import Path
import numpy as np
import rlbhpc
from rlbhpc.stats import pass_at_k
from rlbhpc.store import reader
path, ks = Path(sys.argv[1]), json.loads(sys.argv[2])
chunks = sorted(path.glob("base/made/verdict/c/*/*/*"))
def high_water():
    # Not ru_maxrss: that keeps the peak of the process that this one was forked from.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
bare = high_water()
times = {"table": [], "raw": [], "cpu": []}
for _ in range(6):
    start, cpu = time.perf_counter(), time.process_time()
    counts = rlbhpc.open_cube(path)["base/made"].to_dataset().rlb.counts()
    table = pass_at_k(counts.n.values, counts.c.values, ks).mean(axis=0)
    times["table"].append(time.perf_counter() - start)
    times["cpu"].append(time.process_time() - cpu)
    start = time.perf_counter()
    stored = sum(len(chunk.read_bytes()) for chunk in chunks)
    times["raw"].append(time.perf_counter() - start)
peak = high_water()
print(json.dumps({
    "table": sorted(times["table"][1:])[2], "raw": sorted(times["raw"][1:])[2],
    "cpu": sorted(times["cpu"][1:])[2],
    "peak": peak / 1024, "bare": bare / 1024, "stored": stored, "chunks": len(chunks),
    "pass": table.tolist(),
}))
"""

P = N = 10_000


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        return [*table_rows(Path(name)), *curve_rows(), *compaction_rows(Path(name))]


def table_rows(folder: Path) -> Iterator[Row]:
    """10⁸ verdicts to (n, c) to pass@k at 36 values of k."""
    ks = np.unique(np.geomspace(1, N, 40).astype(int))[-36:]
    right = verdict_cube(folder / "big.zarr")
    command = [sys.executable, "-c", TABLE, folder / "big.zarr", json.dumps(ks.tolist())]
    done = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    expected = pass_at_k(N, right[:, None], ks).mean(axis=0)
    assert np.allclose(done["pass"], expected, rtol=1e-12)
    note = (
        f"{done['chunks']} chunk files, {done['stored'] / 1e6:.1f} MB; reading these bytes raw "
        f"takes {done['raw'] * 1e3:.1f} ms; {done['cpu']:.2f} s of processor time"
    )
    yield in_loops("1e8 verdicts to pass@k at 36 k", done["table"], 5, note)
    peak, bare = done["peak"], done["bare"]
    yield Row("  peak memory", peak, "MB", "<= 500", peak <= 500, f"{bare:.0f} MB after imports")
    rate = P * N / done["table"] / 1e9
    yield Row("  verdicts decoded and counted", rate, "1e9/s")


def verdict_cube(path: Path) -> NDArray[np.int64]:
    """Write 10⁸ verdicts with Beta(0.25, 2) success rates; how many are right, by problem."""
    rng = np.random.default_rng(0)
    grid = Grid("made").grown({Cell("base", 0, f"made/{i}", 1): N for i in range(P)})
    root = cube.create(path)
    group = cube.create_samples(root, "base", "made", grid)
    right = []
    for row in range(grid.chunk_rows):
        rates = rng.beta(0.25, 2, (len(grid.problems_of_row(row)), 1))
        verdict = (rng.random((len(rates), N)) < rates).astype(np.int8)
        right.append(verdict.sum(axis=1, dtype=np.int64))
        cube.write_band(group, grid, row, 0, {"verdict": verdict[:, :, None]})
    cube.consolidate(path)
    return np.concatenate(right)


def curve_rows() -> Iterator[Row]:
    """Whole curves of 500 problems with 2,048 samples, against the product loop per problem."""
    rng = np.random.default_rng(1)
    n = 2048
    c = rng.binomial(n, rng.beta(0.25, 2, 500))

    def loop(problems: NDArray[np.int64]) -> NDArray[np.float64]:
        """What evaluation scripts do: a product per problem and k."""
        curves = np.ones((len(problems), n))
        for i, right in enumerate(problems.tolist()):
            for k in range(1, n - right + 1):
                curves[i, k - 1] = 1.0 - np.prod(1.0 - k / np.arange(n - right + 1, n + 1))
        return curves

    # The loop is timed on a tenth of the problems: it takes minutes on all.
    tenth = c[::10]
    assert np.allclose(pass_curves(n, tenth), loop(tenth), atol=1e-12)
    ours, theirs = paired_medians(lambda: pass_curves(n, c), lambda: loop(tenth), runs=3)
    ratio = 10 * theirs / ours
    note = f"the product loop takes {10 * theirs:.1f} s (a tenth of it timed): {ratio:,.0f} x"
    yield in_loops("curves of 500 problems, n = 2048, all k", ours, 0.2, note)
    grid = median_seconds(lambda: pass_at_k(n, c[:, None], 2 ** np.arange(12)))
    yield Row("  the same at 12 powers of two", grid * 1e3, "ms")


def compaction_rows(folder: Path) -> Iterator[Row]:
    """Two checkpoints of 500 problems × 1,024 samples with 1 KB texts, sealed, then compacted."""
    layout = Layout(folder / "run")
    grid = million(layout)
    start = time.perf_counter()
    compact(layout)
    seconds = time.perf_counter() - start
    total = len(grid.problems) * grid.n * len(grid.steps)
    yield in_loops("compaction of 1,024,000 samples from parts", seconds, 600)
    start = time.perf_counter()
    compact(layout, rebuild=True)
    yield Row("  again, from nothing", time.perf_counter() - start, "s")
    kinds: dict[str, int] = defaultdict(int)
    files = 0
    for base, _, names in os.walk(layout.cube.resolve()):
        for name in names:
            path = Path(base, name)
            files += 1
            parts = path.relative_to(layout.cube.resolve()).parts
            kinds[parts[2] if len(parts) > 3 and name != "zarr.json" else "metadata"] += (
                path.stat().st_size
            )
    parts = list(layout.parts("base", "made").glob("*.parquet"))
    kinds["parts"] = sum(path.stat().st_size for path in parts)
    for kind, size in sorted(kinds.items(), key=lambda item: -item[1]):
        yield Row(f"  bytes per sample, {kind}", size / total, "B")
    yield Row("  files of the cube, both checkpoints", files, "")
    yield Row("  files of the parts, both checkpoints", len(parts), "")
    size = sum(1 for _ in layout.root.rglob("*") if _.is_file())
    yield Row("  files in all, both checkpoints, two versions", size, "", "<= 300", size <= 300)


def million(layout: Layout) -> Grid:
    """Parts of a million samples, as sealing makes them."""
    steps, n = (0, 100), 1024
    cells = {Cell("base", s, f"made/{i}", 1): n for s in steps for i in range(500)}
    grid = Grid("made").grown(cells)
    grid.save(layout.grid("base", "made"))
    rng = np.random.default_rng(2)
    rates = dict(zip(grid.problems, rng.beta(0.25, 2, len(grid.problems)), strict=True))
    words = np.array([f"token{i}" for i in range(500)])
    pool = [" ".join(rng.choice(words, 130)) for _ in range(256)]
    for unit in seal_units("base", grid):
        groups = (rows(cell.step, cell.problem, rates[cell.problem], n, pool, rng) for cell in unit)
        parts.write(layout.parts("base", "made"), groups.__iter__, "none")
    return grid


def rows(
    step: int, problem: str, rate: float, n: int, pool: list[str], rng: np.random.Generator
) -> pa.Table:
    """Samples of one problem: a few common wrong answers and many rare ones."""
    right = rng.random(n) < rate
    wrong = np.minimum(rng.zipf(1.6, n), 100_000)
    tokens = rng.integers(100, 2500, n)
    answers = ["0" if r else str(w) for r, w in zip(right, wrong, strict=True)]
    values = {
        "arm": ["base"] * n,
        "step": np.full(n, step),
        "problem": [problem] * n,
        "sample": np.arange(n),
        "fingerprint": np.full(n, 1),
        "seed": [sample_seed(0, SampleKey("base", step, problem, i)) for i in range(n)],
        "digest": rng.integers(0, 1 << 62, n),
        "verdict": right.astype(np.int8),
        "finish": (rng.random(n) < 0.1).astype(np.int8),
        "paper": np.full(n, -1, np.int8),
        "n_tokens": tokens,
        "logprob_sum": -tokens * rng.gamma(4, 0.1, n),
        "entropy_sum": tokens * rng.gamma(4, 0.1, n),
        "answer": answers,
        "rule": ["rational"] * n,
        "grader": ["made"] * n,
        "text": [pool[int(i)] for i in rng.integers(0, len(pool), n)],
        "error": [""] * n,
    }
    columns = [
        _column(values[f.name], f.type) if f.name in values else pa.nulls(n, f.type)
        for f in sample_rows.ROWS
    ]
    return pa.table(columns, schema=sample_rows.ROWS)


def _column(values: object, kind: pa.DataType) -> pa.Array:
    array = pa.array(values)
    return (
        array.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else array.cast(kind)
    )
