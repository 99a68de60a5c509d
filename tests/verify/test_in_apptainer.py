"""The hostile and the honest programs once more, inside a container and as an ordinary user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch.site import IMAGE, ROOT, USER
from tests.verify.conftest import TIERS

SUITES = ("tests/verify/test_code_hostile.py", "tests/verify/test_code_honest.py")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the ordinary user; those of pytest are root's alone."""
    made = Path(tempfile.mkdtemp(prefix="rlbhpc-container-"))
    shutil.chown(made, USER if os.geteuid() == 0 else None)
    yield made
    shutil.rmtree(made)


def inside(folder: Path) -> list[str]:
    """Words before a command that has it run in the container, with nothing of the outside."""
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    variables = {
        "PYTHONPATH": f"{ROOT}:{packages}", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
        "RLBHPC_SOAK": os.environ.get("RLBHPC_SOAK", ""),
    }  # fmt: skip
    given = ",".join(f"{name}={value}" for name, value in variables.items())
    words = ["apptainer", "--silent", "exec", "--cleanenv", "--no-home", "--pwd", str(ROOT)]
    words += ["--bind", f"{ROOT}:{ROOT}:ro,{packages}:{packages}:ro,{folder}", "--env", given]
    user = ["runuser", "-u", USER, "--"] if os.geteuid() == 0 else []
    return [*user, "env", f"HOME={folder}", *words, str(IMAGE)]


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_tier_holds_inside_apptainer(folder: Path) -> None:
    if shutil.which("apptainer") is None or not IMAGE.is_file():
        pytest.skip("no Apptainer, or no image of `make cluster-up`, here")
    report = folder / "report.xml"
    command = ["python3", "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}", *SUITES]
    done = subprocess.run(
        [*inside(folder), *command], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
    ran: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        name, _, tier = case.attrib["name"].rstrip("]").partition("[")
        if case.find("skipped") is None and tier in TIERS:
            ran[f"{name} {tier}"] += 1
    for suite in (
        "test_hostile_programs_at_every_tier",
        "test_awkward_honest_programs_at_every_tier",
    ):
        assert {f"{suite} {tier}" for tier in TIERS} <= ran.keys()
