"""The shape of the package, as `make lint` looks at it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_rooms_keep_their_order_and_records_are_frozen() -> None:
    command = [sys.executable, ROOT / "tools" / "check_structure.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("structure: ok\n", 0)
