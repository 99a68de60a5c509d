"""A real Slurm: what a site says of a job, and jobs that can never start."""

from __future__ import annotations

import json

import pytest

from rlbhpc.launch.cluster import load_cluster
from tests.launch.made import tiny
from tests.launch.site import Site, site
from tests.launch.test_on_a_cluster import ids, study_at

__all__ = ["site"]
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]


def test_the_words_of_a_site_are_shown_and_never_taken_for_slurms(site: Site) -> None:
    study = study_at(site, tiny(1))
    words = ("launch", str(study), "--cluster", str(site.cluster()), "--submit")
    for told in ("Jobs need a QOS: add --qos=standard", "Wait for authentication\nand try again."):
        with site.words(refuse=told):
            refused = site.run(site.python, "-m", "rlbhpc", *words)
        assert refused.returncode == 64
        assert all(line in refused.stderr for line in told.splitlines()), refused.stderr
        assert not site.queue()
    with site.words(say="charged double"):
        assert "charged double" in site.rlbhpc(*words)
    site.idle()
    assert site.status(str(site.folder / "runs" / "tiny"))["missing"] == 0


def test_a_job_that_can_never_start_is_told_with_what_would_start_it(site: Site) -> None:
    """Longer than the partition allows, and more cores than the account may have at once."""
    study = study_at(site, tiny(1))
    words = ("launch", str(study), "--cluster", str(site.cluster()), "--submit")
    run = str(site.folder / "runs" / "tiny")
    site.root("sacctmgr", "-iQ", "modify", "account", "dev", "set", "GrpTRES=cpu=0")
    try:
        for options, reason, starter in (
            (("-p", "short", "-t", "30"), "PartitionTimeLimit", "-t"),
            ((), "AssocGrpCpuLimit", "other jobs"),
        ):
            site.rlbhpc(*words, *options)
            site.until(reason, lambda reason=reason: reason in str(site.queue()))
            (cause,) = json.loads(site.rlbhpc("doctor", run, "--json", codes=(3,)))
            assert reason in cause["cause"] and starter in cause["action"]
            (shown,) = site.status(run)["failures"]
            assert shown["cause"] == cause["cause"]
            site.rlbhpc("cancel", run)
            site.idle()
    finally:
        site.root("sacctmgr", "-iQ", "modify", "account", "dev", "set", "GrpTRES=cpu=-1")


def test_the_first_entry_of_a_site_asks_for_what_can_start(site: Site) -> None:
    table = site.folder / "mine.yaml"
    site.rlbhpc("doctor", str(site.folder), "--write", str(table), codes=(0, 3))
    entry = load_cluster(table)
    partition = site.root("scontrol", "show", "partition", str(entry.sample.partition)).stdout
    assert "MaxTime=01:00:00" in partition and entry.sample.time == "01:00:00"
    study = study_at(site, tiny(1))
    site.rlbhpc("launch", str(study), "--cluster", str(table), "--submit")
    site.idle()
    assert site.status(str(site.folder / "runs" / "tiny"))["missing"] == 0


def test_a_rehearsal_in_a_partition_that_is_down_says_so_and_leaves_nothing(
    site: Site,
) -> None:
    words = ("doctor", str(site.folder), "--rehearse", "--cluster", str(site.cluster()))
    site.root("scontrol", "update", "PartitionName=short", "State=DOWN")
    try:
        down = site.run(site.python, "-m", "rlbhpc", *words, "-p", "short")
        assert down.returncode == 75 and "PartitionDown" in down.stderr, down.stderr
    finally:
        site.root("scontrol", "update", "PartitionName=short", "State=UP")
    assert "it stays away" in site.rlbhpc(*words, "-p", "short")
    assert not list(site.folder.glob("rehearsal-*"))


def test_a_task_with_two_gpus_holds_two_copies(site: Site) -> None:
    study = study_at(site, tiny(2))
    table = site.cluster(sample={"partition": "low", "gpus": 2, "cpus": 2, "time": "30"})
    site.rlbhpc("launch", str(study), "--cluster", str(table), "--submit")
    site.idle()
    run = site.folder / "runs" / "tiny"
    assert site.status(str(run))["missing"] == 0
    attempts = [json.loads(path.read_text()) for path in (run / "attempts").glob("*.json")]
    assert sorted(attempt["devices"] for attempt in attempts) == [["0"], ["1"]]


def test_a_job_whose_setup_takes_slurm_out_of_its_path_comes_back(site: Site) -> None:
    """As `module purge` does where Slurm is a module."""
    purged = site.folder / "bin"
    purged.mkdir()
    for name in ("bash", "mkdir", "rm", "uname"):
        (purged / name).symlink_to(f"/usr/bin/{name}")
    study = study_at(site, tiny(250, max_tokens=64))
    table = site.cluster(setup=[f"export PATH={purged}"])
    site.rlbhpc("launch", str(study), "--cluster", str(table), "--submit")
    run = site.folder / "runs" / "tiny"
    (sampling, *_) = ids(site, run)
    (logs,) = (run / "launches").glob("*/logs")

    def begun() -> bool:
        return any("parent: job" in log.read_text() for log in logs.glob(f"*-{sampling}_0.log"))

    site.until("a task at work", begun)
    site.run("scancel", "--signal=USR1", "--batch", f"{sampling}_0")
    site.until("a requeue", lambda: site.restarts(sampling) == 1)
    site.idle()
    status = site.status(str(run))
    assert (status["missing"], status["failures"]) == (0, [])
