"""A real Slurm where users do not see each other's jobs, images change and loading is preempted."""

from __future__ import annotations

import hashlib
import json
import shutil

import pytest

from tests.launch.made import tiny
from tests.launch.site import IMAGE, NODES, SECOND, STATE, Site, site
from tests.launch.test_on_a_cluster import doubles, ids, shard_tokens, study_at

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

    def shards(user: str) -> dict[str, list[int]]:
        answer = site.rlbhpc("status", str(run), "--json", codes=(3,), user=user)
        shards_of_state: dict[str, list[int]] = json.loads(answer)["launches"][0]["shards"]
        return shards_of_state

    with site.settings("PrivateData=jobs"):
        site.rlbhpc("launch", str(study), *words)
        site.until("two tasks at work", lambda: len(list((run / "claims").glob("*"))) == 2)
        seen = shards(SECOND)
        assert len(seen.get("running", ())) == 2, seen
        assert "stopped" not in seen, seen
        # Whether the jobs that it can't see wait or are gone is unknown: nothing is drawn twice.
        site.rlbhpc("launch", str(study), *words, user=SECOND, codes=(4,))
        site.idle()
    assert site.status(str(run))["missing"] == 0
    assert doubles(run) == 0, "samples were drawn twice"


def test_jobs_that_waited_while_the_image_changed_refuse_the_other_one(site: Site) -> None:
    if not IMAGE.is_file():
        pytest.skip("no image here: make cluster-up")
    study = study_at(site, tiny(2))
    image = site.folder / "one.sif"
    shutil.copy(IMAGE, image)
    inside = site.image()
    inside["container"] = {**inside["container"], "image": str(image)}  # type: ignore[dict-item]
    words = (str(study), "--cluster", str(site.cluster(**inside)), "--only", "sample", "--submit")
    for node in NODES:
        site.root("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    site.rlbhpc("launch", *words)
    with image.open("ab") as file:
        file.write(b"another build")
    for node in NODES:
        site.root("scontrol", "update", f"nodename={node}", "state=resume")
    site.idle()
    run = site.folder / "runs" / "tiny"
    assert not list((run / "attempts").glob("*")), "nothing was drawn in another image"
    (cause, *_) = json.loads(site.rlbhpc("doctor", str(run), "--json", codes=(3,)))
    assert str(image) in cause["evidence"] and "launch again" in cause["evidence"]
    site.rlbhpc("launch", *words)
    site.idle()
    assert site.status(str(run))["missing"] == 0, site.last_words()
    recorded = {json.loads(path.read_text())["image"] for path in (run / "attempts").glob("*.json")}
    assert recorded == {hashlib.sha256(image.read_bytes()).hexdigest()}


def test_a_job_that_is_preempted_while_it_loads_comes_back_every_time(site: Site) -> None:
    study = study_at(site, tiny(2))
    loads, loaded = site.folder / "loads", site.folder / "loaded"
    slow = site.folder / "slow.sh"
    slow.write_text(
        f"""trap 'exit 75' TERM
echo "$SLURMD_NODENAME" >>{loads}
until [ -e {loaded} ]; do sleep 0.2; done
exec {site.python} -m rlbhpc "$@"
"""
    )
    table = site.cluster(rlbhpc=["sh", str(slow)])
    site.rlbhpc("launch", str(study), "--cluster", str(table), "--only", "sample", "--submit")
    run = site.folder / "runs" / "tiny"
    task = f"{ids(site, run)[0]}_0"

    def nodes() -> list[str]:
        return loads.read_text().split() if loads.exists() else []

    for times in range(4):
        site.until("a model that loads", lambda: len(nodes()) > times)  # noqa: B023
        words = ("-p", "high", "--exclusive", "-w", nodes()[-1], "-t", "1", "-o", "/dev/null")
        site.run("sbatch", *words, "--wrap", "sleep 1")
        site.until("a requeue", lambda: site.restarts(task) > times or not site.queue())  # noqa: B023
        assert site.restarts(task) == times + 1, site.last_words()
    loaded.touch()
    site.idle()
    status = site.status(str(run))
    assert (status["missing"], status["failures"]) == (0, [])


# What a session in Python makes of tasks of which one was cancelled before it began.
ASK_FOR_RESULTS = """
import json, sys
import rlbhpc

jobs = rlbhpc.launch.find(sys.argv[1]).jobs()["sample"]
ends = [job.exception() for job in jobs]
print(json.dumps([[job.state, end and type(end).__name__] for job, end in zip(jobs, ends)]))
"""


def test_a_task_that_was_cancelled_before_it_began_is_no_success_in_python(site: Site) -> None:
    study = study_at(site, tiny(2))
    words = ("--cluster", str(site.cluster()), "--shard-tokens", shard_tokens(study, 3))
    for node in NODES:
        site.root("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    site.rlbhpc("launch", str(study), *words, "--only", "sample", "--submit")
    run = site.folder / "runs" / "tiny"
    site.run("scancel", f"{ids(site, run)[0]}_1")
    for node in NODES:
        site.root("scontrol", "update", f"nodename={node}", "state=resume")
    site.idle()
    for accounting in ("on", "off"):
        if accounting == "off":
            site.daemons(f"stop {STATE}/pid/slurmdbd.pid slurmdbd")
        done = site.run(site.python, "-c", ASK_FOR_RESULTS, str(run))
        assert done.returncode == 0, done.stderr
        ends = json.loads(done.stdout.splitlines()[-1])
        assert [end for _, end in ends] == [None, "UncompletedJobError", None], ends
