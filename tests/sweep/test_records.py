"""Records of a sweep are shared by the threads of a worker: only what counts samples changes."""

from __future__ import annotations

from rlbhpc import sweep
from tests.records import changeable


def test_only_what_counts_samples_can_be_changed() -> None:
    assert changeable(sweep) == {"Line", "Wave"}
