"""Records of launching are handed to several jobs and threads: none of them changes."""

from __future__ import annotations

from rlbhpc import launch
from tests.records import changeable


def test_what_is_written_down_of_a_launch_stays_as_it_is() -> None:
    assert changeable(launch) == set()
