"""What a file of the cluster table may say, and what one that says nothing means."""

from __future__ import annotations

from dataclasses import is_dataclass
from importlib import import_module
from pkgutil import iter_modules

import pytest
from pydantic import ValidationError

from rlbhpc import launch as room
from rlbhpc.launch.cluster import Cluster, Resources

LIMITS = [
    (Resources, "nodes", 1, 1, 4_096),
    (Resources, "gpus", 0, 0, 64),
    (Resources, "cpus", 4, 1, 1_024),
    (Cluster, "gpu_memory", None, 1, 1_024),
    (Cluster, "max_array_size", 1_001, 1, 4_000_000),
    (Cluster, "max_jobs", None, 1, None),
    (Cluster, "throttle", None, 1, None),
    (Cluster, "warning", 180, 1, 65_535),
    (Cluster, "kill_wait", 30, 1, 65_535),
]


@pytest.mark.parametrize(("entry", "key", "default", "least", "most"), LIMITS)
def test_a_number_has_a_default_and_limits(
    entry: type[Cluster | Resources], key: str, default: int | None, least: int, most: int | None
) -> None:
    assert getattr(entry(), key) == default
    within = [least] if most is None else [least, most]
    assert [getattr(entry(**{key: value}), key) for value in within] == within
    for value in [least - 1] if most is None else [least - 1, most + 1]:
        with pytest.raises(ValidationError, match=key):
            entry(**{key: value})


def test_jobs_of_a_plain_site() -> None:
    site = Cluster()
    jobs = [(job.gpus, job.cpus, job.time) for job in (site.sample, site.train, site.light)]
    assert jobs == [(1, 8, "04:00:00"), (1, 8, "04:00:00"), (0, 2, "01:00:00")]


def test_what_a_launch_hands_on_cannot_be_changed() -> None:
    modules = [import_module(f"{room.__name__}.{m.name}") for m in iter_modules(room.__path__)]
    classes = {c for m in modules for c in vars(m).values() if isinstance(c, type)}
    own = [c for c in classes if is_dataclass(c) and c.__module__.startswith(room.__name__)]
    assert {c.__name__ for c in own if not c.__dataclass_params__.frozen} == set()
