"""The hostile and the honest programs once more: as an ordinary user, and in a container."""

from __future__ import annotations

import os
import pwd
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

PACKAGES = next(path for path in sys.path if path.endswith("site-packages"))
SUITES = ("tests/verify/test_code_hostile.py", "tests/verify/test_code_honest.py")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the ordinary user; those of pytest are root's alone."""
    made = Path(tempfile.mkdtemp(prefix="rlbhpc-container-"))
    shutil.chown(made, USER if os.geteuid() == 0 else None)
    yield made
    shutil.rmtree(made)


def variables() -> dict[str, str]:
    """Environment in which this checkout and its packages are found."""
    return {
        "PYTHONPATH": f"{ROOT}:{PACKAGES}", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
        "RLBHPC_SOAK": os.environ.get("RLBHPC_SOAK", ""),
    }  # fmt: skip


def as_user() -> list[str]:
    """Words before a command that has the ordinary user run it."""
    return ["runuser", "-u", USER, "--"] if os.geteuid() == 0 else []


def inside(folder: Path) -> list[str]:
    """Words before a command that has it run in the container, with nothing of the outside."""
    given = ",".join(f"{name}={value}" for name, value in variables().items())
    words = ["apptainer", "--silent", "exec", "--cleanenv", "--no-home", "--pwd", str(ROOT)]
    words += ["--bind", f"{ROOT}:{ROOT}:ro,{PACKAGES}:{PACKAGES}:ro,{folder}", "--env", given]
    return [*as_user(), "env", f"HOME={folder}", *words, str(IMAGE), "python3"]


def run_suites(python: list[str], folder: Path) -> None:
    """Run both suites and see that each ran at every tier."""
    report = folder / "report.xml"
    words = ["-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={ROOT}", f"--junitxml={report}"]
    suites = [str(ROOT / suite) for suite in SUITES]
    done = subprocess.run(
        [*python, *words, *suites], cwd=folder, capture_output=True, text=True, check=False
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


def ordinary_python(folder: Path) -> list[str]:
    """Words that start Python as the ordinary user, or skip."""
    python = f"/usr/bin/python3.{sys.version_info.minor}"
    if os.geteuid() != 0:
        pytest.skip("everything runs as an ordinary user here")
    if not Path(python).exists() or USER not in {user.pw_name for user in pwd.getpwall()}:
        pytest.skip(f"no {python}, or no user {USER} of `make cluster-up`, here")
    places = {"HOME": str(folder), "TMPDIR": str(folder)}
    given = [f"{name}={value}" for name, value in (variables() | places).items()]
    return [*as_user(), "env", "-C", str(ROOT), *given, python]


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_tier_holds_for_an_ordinary_user(folder: Path) -> None:
    run_suites(ordinary_python(folder), folder)


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_tier_holds_inside_apptainer(folder: Path) -> None:
    if shutil.which("apptainer") is None or not IMAGE.is_file():
        pytest.skip("no Apptainer, or no image of `make cluster-up`, here")
    run_suites(inside(folder), folder)


# A run that waits and one that sleeps, beside others; what each comes to is printed.
HIDDEN = """
from rlbhpc.verify.sandbox.box import Sandbox, SandboxError
from rlbhpc.verify.sandbox.job import Job, Limits
from rlbhpc.verify.sandbox.job import Tier
from tests.verify.busy import busy_processes, one_processor
from tests.verify.sandbox.test_box import ONE_THREAD
with one_processor(), Sandbox(Tier()) as sandbox, busy_processes(40):
    for text in ("import time; time.sleep(99)", ONE_THREAD):
        try:
            print(sandbox.run(Job(text), limits=Limits(cpu=0.2)).cause)
        except SandboxError as error:
            print(error)
"""


@pytest.mark.cluster
@pytest.mark.slow
def test_waiting_is_told_from_sleep_where_a_site_hides_processes(folder: Path) -> None:
    """Under hidepid nobody sees what another process has waited; there is no verdict then."""
    hide = ["unshare", "-m", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "-"]
    if subprocess.run([*hide, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may mount a /proc that hides processes")
    words = [*hide, *ordinary_python(folder), "-c", HIDDEN]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    slept, waited = said.stdout.splitlines() or ["", said.stderr]
    assert slept == "wall"
    assert waited.startswith("the node is too busy")
