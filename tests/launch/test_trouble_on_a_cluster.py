"""A real Slurm where users do not see each other's jobs, images change and loading is preempted."""

from __future__ import annotations

import json

import pytest

from tests.launch.made import tiny
from tests.launch.site import SECOND, Site, site
from tests.launch.test_on_a_cluster import doubles, shard_tokens, study_at

__all__ = ["site"]
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(3600)]

SHARDS = 8


def test_two_users_share_a_run_where_jobs_of_others_are_hidden(site: Site) -> None:
    study = study_at(site, tiny(250, max_tokens=64))
    words = (
        "--cluster", str(site.cluster()), "--only", "sample", "--throttle", "2",
        "--shard-tokens", shard_tokens(study, SHARDS), "--submit",
    )  # fmt: skip
    run = site.folder / "runs" / "tiny"

    def running() -> list[str]:
        return [row.name for row in site.queue() if row.state == "RUNNING"]

    def shards(user: str) -> dict[str, list[int]]:
        answer = site.rlbhpc("status", str(run), "--json", codes=(3,), user=user)
        return json.loads(answer)["launches"][0]["shards"]

    with site.settings("PrivateData=jobs"):
        site.rlbhpc("launch", str(study), *words)
        site.until("two tasks at work", lambda: len(list((run / "claims").glob("*"))) == 2)
        seen = shards(SECOND)
        assert len(seen.get("running", ())) == 2, seen
        assert "stopped" not in seen, seen
        site.rlbhpc("launch", str(study), *words, user=SECOND)
        site.idle()
    assert site.status(str(run))["missing"] == 0
    assert doubles(run) == 0, "samples were drawn twice"
