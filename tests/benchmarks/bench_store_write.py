"""The writing half of the store: appends, resume scans, sealing, bytes and files.

The texts are made up: lines that the responses to a problem share, with other numbers in them.
Compression ratios of real responses differ; rates and file counts do not depend on them.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rlbhpc.store import frames, parts, sample_rows, seal
from rlbhpc.store.grid import Grid
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.sample_rows import Sample
from rlbhpc.study.keys import Cell, SampleKey
from rlbhpc.study.layout import Layout
from tests.benchmarks import Row, in_loops, median_seconds
from tests.store import reading

ARM, SET, PROBLEMS, N, ATTEMPTS = "base", "math", 500, 2048, 40
TOKENS = 300
WORDS = (
    "the sum of x and y is then we have that so therefore equals apples number compute let us "
    "consider next step square root triangle angle side length because both sides divide by"
).split()


def texts(problem: int, count: int) -> list[str]:
    """Responses of 1 KB to one problem."""
    lot = random.Random(problem)
    lines = [" ".join(lot.choices(WORDS, k=16)) + " {}" for _ in range(30)]
    return [
        "\n".join(lot.choice(lines).format(lot.randrange(10_000)) for _ in range(14))[:1000]
        for _ in range(count)
    ]


def sample(problem: int, index: int, text: str, tokens: int = 0) -> Sample:
    lot = np.random.default_rng([problem, index]) if tokens else None
    values = -lot.exponential(0.3, tokens).astype(np.float16) if lot else np.empty(0, np.float16)
    ids = lot.zipf(1.3, tokens).clip(0, 150_000).astype(np.int32) if lot else np.empty(0, np.int32)
    key = SampleKey(ARM, 0, f"{SET}/{problem}", index)
    seed = hash((problem, index)) & (2**63 - 1)
    return Sample(
        key, problem + 1, seed, int(seed % 7 == 0), 0, TOKENS, -0.3 * TOKENS, 0.5 * TOKENS,
        str(seed % 50), "rational", "math-1", text, token_ids=ids, logprobs=values,
        entropies=-values,
    )  # fmt: skip


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [*appends(folder / "appends"), *million(folder / "run"), *sizes(folder / "sizes")]


def appends(folder: Path, count: int = 5000) -> Iterator[Row]:
    """Journal against an Arrow IPC stream with a batch per sample."""
    rows = [sample(i % 7, i, text) for i, text in enumerate(texts(1, count))]
    number = iter(range(1000))

    def ours() -> None:
        with JournalWriter(folder, f"attempt-{next(number)}") as out:
            for row in rows:
                out.append(row)

    folder.mkdir()
    plain = pa.schema(
        [
            (f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type)
            for f in sample_rows.ROWS
        ]
    )
    bodies = [sample_rows.encode(row) for row in rows[:500]]
    batches = [
        sample_rows.decode_rows([data], np.array([1])).cast(plain).to_batches()[0]
        for data in bodies
    ]
    stream = folder / "stream.arrows"

    def theirs() -> None:
        with stream.open("wb", buffering=0) as file, pa.ipc.new_stream(file, plain) as out:
            for batch in batches:
                out.write_batch(batch)

    rate, other = count / median_seconds(ours), len(batches) / median_seconds(theirs)
    size = (folder / "attempt-0.journal").stat().st_size / count
    yield Row("appends, texts of 1 KB", rate, "samples/s", ">= 20,000", rate >= 20_000)
    yield Row(
        "  against Arrow IPC, a batch per sample", rate / other, "x faster", "> 1", rate > other
    )
    yield Row("  bytes per sample, journal", size, "B")
    yield Row("  bytes per sample, Arrow IPC", stream.stat().st_size / len(batches), "B")
    yield from flips(folder, plain, batches)


def flips(folder: Path, plain: pa.Schema, batches: list[pa.RecordBatch]) -> Iterator[Row]:
    """Single flipped bits that change what is read without a word, of 200."""
    path = folder / "attempt-0.journal"
    whole = reading.read_journal(path).table

    def read_ours() -> pa.Table | None:
        found = reading.read_journal(path)
        return None if found.skipped else found.table

    stream = folder / "stream.arrows"

    def read_theirs() -> pa.Table | None:
        try:
            table = pa.ipc.open_stream(stream.read_bytes()).read_all()
            table.validate(full=True)
        except (pa.ArrowException, OSError):
            return None
        return table

    for what, file, read, expected in (
        ("journal", path, read_ours, whole),
        ("Arrow IPC", stream, read_theirs, pa.Table.from_batches(batches, plain)),
    ):
        silent = silent_flips(file, read, expected)
        ok = silent == 0 if what == "journal" else None
        yield Row(f"  flipped bits read as other data, {what}", silent, "of 200", "0", ok)


def silent_flips(file: Path, read: Callable[[], pa.Table | None], expected: pa.Table) -> int:
    data, lot, silent = file.read_bytes(), random.Random(1), 0
    for _ in range(200):
        flipped = bytearray(data)
        flipped[lot.randrange(len(data))] ^= 1 << lot.randrange(8)
        file.write_bytes(flipped)
        found = read()
        silent += found is not None and not found.equals(expected)
    file.write_bytes(data)
    return silent


def million(root: Path) -> Iterator[Row]:
    """Resume scans, sealing and files of 500 problems × 2,048 samples, a thousandth missing."""
    layout = Layout(root)
    asked = Grid("model").grown({Cell(ARM, 0, f"{SET}/{p}", p + 1): N for p in range(PROBLEMS)})
    asked.save(layout.grid(ARM, SET))
    fill(layout)

    def missing() -> int:
        return len(np.argwhere(reading.scan(layout, ARM, SET, asked).missing))

    wanted = PROBLEMS * N
    held_back = len(range(0, wanted, 1000))
    assert missing() == held_back
    seconds = median_seconds(missing) * 1e6 / wanted
    yield in_loops("resume scan of 10^6, all in journals", seconds, 4)
    size = sum(path.stat().st_size for path in layout.journals(ARM, SET).iterdir())
    yield Row("  for comparison: reading these journals' bytes", read_all(layout), "s")
    with JournalWriter(layout.journals(ARM, SET), "last") as out:
        for at in range(0, wanted, 1000):
            out.append(sample(at // N, at % N, "late"))
    both = sum(1 for path in root.rglob("*") if path.is_file())
    start = time.perf_counter()
    done = seal.seal(layout, ARM, SET, asked, "sampled")
    seconds = time.perf_counter() - start
    yield Row("sealing, 10^6 samples", seconds * 1e6 / wanted, "s")
    assert (done.open, missing()) == (0, 0)
    files = sum(1 for path in root.rglob("*") if path.is_file())
    yield Row("files of 500 x 2,048 with all journals", files, "files", "<= 300", files <= 300)
    seconds = time.perf_counter()
    seal.gc(layout, ARM, SET)
    yield Row("gc: reading all parts again", time.perf_counter() - seconds, "s")
    assert missing() == 0
    seconds = median_seconds(missing) * 1e6 / wanted
    yield in_loops("resume scan of 10^6, sealed", seconds, 1)
    sealed = sum(path.stat().st_size for path in layout.parts(ARM, SET).iterdir())
    yield Row("bytes per sample, journal to part", size / sealed, "x smaller")
    yield Row("files after gc", files - both + 1, "files")
    one = median_seconds(
        lambda: reading.rows(layout, ARM, SET, ["text"], problems={f"{SET}/77"}), runs=5
    )
    yield Row("2,048 responses to one problem", one * 1e3, "ms")


def fill(layout: Layout) -> None:
    """Journals of 40 attempts, each with a share of every problem, as jobs would leave them."""
    writers = [JournalWriter(layout.journals(ARM, SET), f"attempt-{a:02}") for a in range(ATTEMPTS)]
    for problem in range(PROBLEMS):
        for index, text in enumerate(texts(problem, N)):
            if (problem * N + index) % 1000:
                writers[index % ATTEMPTS].append(sample(problem, index, text))
    for writer in writers:
        writer.close()


def read_all(layout: Layout) -> float:
    paths = sorted(layout.journals(ARM, SET).iterdir())
    return statistics.median(
        median_seconds(lambda: [len(path.read_bytes()) for path in paths], 1, 0) for _ in range(3)
    )


def sizes(root: Path) -> Iterator[Row]:
    """Bytes by kind, with per-token values of every sample kept."""
    layout = Layout(root)
    problems, n = 16, 256
    with JournalWriter(layout.journals(ARM, SET), "one") as out:
        for problem in range(problems):
            for index, text in enumerate(texts(problem, n)):
                out.append(sample(problem, index, text, TOKENS))
    asked = Grid("model").grown({Cell(ARM, 0, f"{SET}/{p}", p + 1): n for p in range(problems)})
    (part,) = seal.seal(layout, ARM, SET, asked, "all").made
    metadata = pq.read_metadata(part)
    kinds: Counter[str] = Counter(footer=len(parts.read_footer(part)))
    for group in range(metadata.num_row_groups):
        for column in metadata.row_group(group).to_dict()["columns"]:
            name = column["path_in_schema"].partition(".")[0]
            kind = name if name in {"text", *sample_rows.PER_TOKEN} else "keys, verdicts, sums"
            kinds[kind] += column["total_compressed_size"]
    for kind, size in sorted(kinds.items()):
        per_token = kind in sample_rows.PER_TOKEN
        count = problems * n * (TOKENS if per_token else 1)
        yield Row(f"part: {kind}", size / count, "B/token" if per_token else "B/sample")
    index = frames.RECORD.itemsize
    yield Row("journal: index", index, "B/sample")
    whole = out.path.stat().st_size / (problems * n)
    yield Row(f"journal: frame, 1 KB text and {TOKENS} tokens", whole - index, "B/sample")


if __name__ == "__main__":
    for row in run():
        print(row)
