"""tools/test.sh runs all its parts, also after one that failed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_a_failure_stops_no_later_part(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n[ $(wc -l < {calls}) -ne 1 ]\n')
    python.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["bash", ROOT / "tools" / "test.sh", "core"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "quick" in done.stdout
    assert len(calls.read_text().splitlines()) == 2
