"""Check that nothing that is printed depends on the type of processor.

BLAS, numpy, torch and oneDNN choose code by what a processor can. Each setting makes one of them
choose as on another type, and under each three stored runs are reported. Pages, tables, claims and
terminals must have the same bytes everywhere.

python -m tools.dispatch          under each setting the goldens, quick tests and a quickstart, too
python -m tools.dispatch ci       the goldens and a quickstart under one setting, another each day
python -m tools.dispatch reports  the reports and the goldens under each
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
# What numpy can do without on this machine, by its own names.
_CPU: Any = np.show_config(mode="dicts")["SIMD Extensions"]
OPTIONAL: list[str] = _CPU["found"]
AVX512 = [name for name in OPTIONAL if name.startswith(("AVX512", "X86_V4"))]
AVX2 = [name for name in OPTIONAL if name in ("AVX2", "FMA3", "X86_V3")]
SETTINGS: dict[str, dict[str, str]] = {
    "as it is": {},
    "BLAS of Nehalem": {"OPENBLAS_CORETYPE": "Nehalem"},
    "BLAS of Haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "BLAS of Zen": {"OPENBLAS_CORETYPE": "Zen"},
    "BLAS of SkylakeX": {"OPENBLAS_CORETYPE": "SkylakeX"},
    "numpy without AVX512": {"NPY_DISABLE_CPU_FEATURES": " ".join(AVX512)},
    "numpy without AVX2": {"NPY_DISABLE_CPU_FEATURES": " ".join([*AVX512, *AVX2])},
    "torch without vectors": {"ATEN_CPU_CAPABILITY": "default"},
    "oneDNN of AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
}
GOLDENS = [
    "tests/stats/test_goldens.py",
    *(f"tests/report/test_{part}.py" for part in ("golden", "pooled", "page", "drawings")),
]
QUICK = ["-m", "not engine and not slow and not cluster"]


def settings_here() -> dict[str, dict[str, str]]:
    """The settings that this processor can follow."""
    without = set() if AVX512 else {"BLAS of SkylakeX", "numpy without AVX512"}
    return {name: changes for name, changes in SETTINGS.items() if name not in without}


def output_of(name: str, changes: Mapping[str, str], command: Sequence[str | Path]) -> str | None:
    """What a command prints under a setting; None where it fails, and then its end is shown."""
    environment = {**os.environ, **changes, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    passed = done.returncode == 0 or (
        done.returncode == 3 and "report" in command
    )  # samples missing
    print(f"{name}: {' '.join(map(str, command[1:4]))}: {'passed' if passed else 'FAILED'}")
    if not passed:
        print(done.stdout[-4000:], done.stderr[-2000:])
    return done.stdout if passed else None


def pytest(*words: str) -> list[str]:
    """Run tests in as many processes as cores."""
    return [sys.executable, "-m", "pytest", "-q", "-n", "auto", *words]


def reported(name: str, changes: Mapping[str, str], runs: Path, out: Path) -> dict[str, bytes]:
    """Everything that reports of the stored runs print under a setting, by file."""
    printed = {}
    for run in sorted(runs.iterdir()):
        folder = out / run.name
        report: list[str | Path] = [
            sys.executable,
            "-m",
            "rlbhpc",
            "report",
            run,
            "--terminal",
            "-v",
            "-o",
            folder,
        ]
        terminal = output_of(name, changes, report)
        if terminal is None:
            return {}
        printed[f"{run.name} in the terminal"] = terminal.replace(str(out), "OUT").encode()
        files = (path for path in folder.iterdir() if path.suffix != ".parquet")
        printed |= {f"{run.name}/{path.name}": path.read_bytes() for path in files}
    return printed


def differing(printed: Mapping[str, bytes], expected: Mapping[str, bytes]) -> list[str]:
    """Say for each file that differs which line does first, old and new."""
    found = [f"{name} is missing in one of them" for name in sorted(printed.keys() ^ expected)]
    for name in sorted(printed.keys() & expected):
        lines, before = (files[name].decode().split("\n") for files in (printed, expected))
        pairs = [i for i in range(min(len(lines), len(before))) if lines[i] != before[i]]
        if pairs:
            first = pairs[0]
            found.append(f"{name}:{first + 1}\n  was {before[first]}\n  is  {lines[first]}")
        elif len(lines) != len(before):
            found.append(f"{name} has {len(lines)} lines, not {len(before)}")
    return found


def main() -> int:
    """Check under every setting, and count what failed."""
    part = sys.argv[1] if len(sys.argv) > 1 else "all"
    settings = settings_here()
    today = list(settings)[datetime.now(UTC).toordinal() % len(settings)]
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder, "runs")
        subprocess.run(
            [sys.executable, "-m", "tests.report.stored_runs", runs], cwd=ROOT, check=True
        )
        outs = [Path(folder, f"out{number}") for number in range(len(settings))]
        # A report computes in one thread.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            reports = list(pool.map(reported, settings, settings.values(), repeat(runs), outs))
        expected = reports[0]
        for number, (name, changes) in enumerate(settings.items()):
            moved = differing(reports[number], expected)
            print("\n".join(moved) or f"{name}: the same bytes in {len(expected)} files")
            failures += bool(moved) + (not reports[number])
            if part == "ci" and name != today:
                continue
            tests = QUICK if part == "all" else GOLDENS
            failures += output_of(name, changes, pytest(*tests)) is None
            if part != "reports":
                output = f"--set=output={folder}/quickstart{number}"
                quickstart = ["bash", "tools/quickstart.sh", "--no-train", output]
                failures += output_of(name, changes, quickstart) is None
    print(f"{failures} failed" if failures else f"all {len(settings)} settings agree")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
