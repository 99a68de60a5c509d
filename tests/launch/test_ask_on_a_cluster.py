"""`rlbhpc ask --cluster`, killed while its jobs are in the queue: the same words go on."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.launch.made import tiny
from tests.launch.site import Site, site
from tests.launch.test_on_a_cluster import study_at

__all__ = ["site"]
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(3600)]


def test_ask_goes_on_after_a_kill_while_its_jobs_are_in_the_queue(site: Site) -> None:
    study_at(site, tiny(1))  # for its model
    shutil.copytree(site.folder / "model", site.folder / "rl")
    site.environment["RLBHPC_CLUSTERS"] = str(site.cluster().parent)
    pair = ("--base", "model", "--trained", "rl", "--cluster", "site")
    site.rlbhpc("init", *pair)
    study = site.folder / "rl-against-model.yaml"
    text = study.read_text().replace("limit: 500", "limit: 8").replace("n: 256", "n: 4  ")
    study.write_text(text + "engine: {name: hf, dtype: float32, options: {rows: 32}}\n")
    site.own()
    run = site.folder / "runs" / "rl-against-model"
    words = (site.python, "-m", "rlbhpc", "ask", *pair, "--yes")
    with ThreadPoolExecutor(1) as background:
        first = background.submit(site.run, *words)
        site.until("jobs in the queue", lambda: bool(site.queue()) or first.done())
        site.until("a launch", lambda: any(run.glob("launches/*/submitted")) or first.done())
        assert not first.done(), first.result().stderr
        site.kill(set(), "rlbhpc ask")
        assert first.result().returncode != 0
    done = site.run(*words)
    assert done.returncode == 0, done.stderr
    assert "trained against base on countdown" in done.stdout
    assert not site.queue(), "it waited for all of its jobs"
    found = site.status(str(run))
    assert (found["missing"], found["failures"]) == (0, [])
    assert (run / "report" / "report.html").is_file()
    assert list((run / "logs").glob("ask-*.log")), "each call has its debug log"
    launches = sorted((run / "launches").iterdir())
    again = site.run(*words)
    assert again.stdout == done.stdout
    assert sorted((run / "launches").iterdir()) == launches, "nothing was left to launch"
