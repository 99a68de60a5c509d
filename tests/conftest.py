"""Shared switches of the test suite."""

from __future__ import annotations

import importlib.util
import os
import signal
import zlib
from collections import Counter
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import settings

# A property is right or wrong, not slow: how long an example takes tells of the host's load.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

SHARED = Path(os.environ.get("RLBHPC_SHARED", Path(__file__).parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared_reference() -> Path:
    """The reference folder beside the checkout; a stranger's clone has none."""
    if not (SHARED / "reference").is_dir():
        pytest.skip("no ../shared beside this checkout")
    return SHARED / "reference"


def pytest_configure() -> None:
    """Let tests that interrupt the program do so also in a batch script's background job.

    A shell starts such jobs with SIGINT ignored, and they and their children inherit that. The day
    is set once, so that parallel processes that start around midnight choose the same tests.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("RLBHPC_TEST_DAY", str(datetime.now(UTC).toordinal()))


def choose_by_turns(items: list[pytest.Item], day: int) -> list[pytest.Item]:
    """Choose of the cases of each test that is marked ``by_turns(n)`` each n-th, others each day.

    Tests without the mark are all chosen.
    """
    chosen: list[pytest.Item] = []
    cases_before: Counter[str] = Counter()
    for item in items:
        marker = item.get_closest_marker("by_turns")
        if marker is None:
            chosen.append(item)
            continue
        test_name = item.nodeid.partition("[")[0]
        turn = zlib.crc32(test_name.encode()) + cases_before[test_name]
        cases_before[test_name] += 1
        if (turn + day) % marker.args[0] == 0:
            chosen.append(item)
    return chosen


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests that take turns for another day, except in a soak and where named one by one.

    The tests of a soak have ten times their limit, since they do ten times their work.
    """
    if os.environ.get("RLBHPC_SOAK") != "1":
        if not any("::" in argument for argument in config.args):
            chosen = choose_by_turns(items, int(os.environ["RLBHPC_TEST_DAY"]))
            for_another_day = set(items) - set(chosen)
            config.hook.pytest_deselected(items=list(for_another_day))
            items[:] = chosen
        return
    for item in items:
        own = item.get_closest_marker("timeout")
        seconds = own.args[0] if own else float(config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(10 * seconds), append=False)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs torchvision on the path, where tools/test.sh puts it, if it was installed."""
    if item.get_closest_marker("torchvision") and importlib.util.find_spec("torchvision") is None:
        pytest.skip("no torchvision beside torch: tools/install_torchvision.sh installs it")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With RLBHPC_REQUIRE=all a test that finds something absent fails, so no skip hides a hole."""
    report = yield
    if (
        os.environ.get("RLBHPC_REQUIRE") == "all"
        and report.skipped
        and not hasattr(report, "wasxfail")
    ):
        report.outcome = "failed"
        report.longrepr = f"skipped although RLBHPC_REQUIRE=all: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def soak() -> bool:
    """Whether the long versions run whole (``make soak``) or as a seeded tenth."""
    return os.environ.get("RLBHPC_SOAK") == "1"
