"""What completion and type checkers see of the package, before anything of it was used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PUBLIC = {
    "rlbhpc": {"open_cube", "launch", "stats", "__version__"},
    "rlbhpc.launch": {"Launch", "find", "write"},
    "rlbhpc.stats": {"pass_at_k", "answer", "pythia"},
}


@pytest.mark.parametrize("module", PUBLIC)
def test_a_fresh_import_offers_its_public_names_and_no_others(module: str) -> None:
    code = f"import {module} as m; print(*dir(m)); [getattr(m, name) for name in dir(m)]"
    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    offered = set(printed.stdout.split())
    assert offered >= PUBLIC[module]
    assert not offered & {"Any", "TYPE_CHECKING", "annotations", "partial", "sys", "importlib"}


@pytest.mark.slow
def test_a_type_checker_knows_the_public_names_and_refuses_a_misspelt_one(tmp_path: Path) -> None:
    script = tmp_path / "theirs.py"
    script.write_text(
        "import rlbhpc\n"
        "rlbhpc.open_cube('x').subtree\n"
        "rlbhpc.launch.find('x.yaml').folder\n"
        "rlbhpc.stats.pythia()\n"
        "rlbhpc.open_cub('x')\n"
        "rlbhpc.launch.finds('x')\n"
        "rlbhpc.stats.pythias()\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(script)]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    errors = [line for line in printed.splitlines() if script.name in line and " error: " in line]
    refused = {int(line.partition(".py:")[2].partition(":")[0]) for line in errors}
    assert refused == {5, 6, 7}, printed
