"""A site that does its worst to a launch: each disturbance touches what it touches, and no more.

A seeded tenth of a hundred runs by default, all with RLBHPC_SOAK=1, five to a round. After each
round the cube is that of an undisturbed local run, byte for byte; the accounting shows that nothing
but what was touched ran again; and the journals, that no sample was drawn twice.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from rlbhpc.launch.slurm import QueueRow, parse_ids
from rlbhpc.store.compact import compact
from rlbhpc.study.layout import Layout
from tests.launch.made import tiny
from tests.launch.site import NODES, SECOND, STATE, USER, Site, opened
from tests.launch.test_on_a_cluster import digest, doubles, local_cube, shard_tokens, study_at

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(14_400)]

SHARDS = 8
Task = tuple[int, int]


@dataclass
class Touched:
    """What a round has done so far: tasks that may run again, and tasks that must stay away."""

    restarted: set[Task] = field(default_factory=set)
    #: And until when they may have begun before.
    cancelled: dict[Task, datetime] = field(default_factory=dict)


class Round:
    """One study on one partition, and what goes wrong with it."""

    def __init__(self, site: Site, study: Path, partition: str, rng: random.Random) -> None:
        self.site = site
        self.study = study
        self.rng = rng
        self.run = site.folder / "runs" / "tiny"
        kind = {"partition": partition, "time": "10", "cpus": 1}
        table = site.cluster(sample=kind, light=kind, warning=20)
        self.words = (
            "--cluster", str(table), "--only", "sample", "--shard-tokens",
            shard_tokens(study, SHARDS),
        )  # fmt: skip
        self.touched = Touched()

    def launch(self, user: str = USER) -> None:
        self.site.rlbhpc(
            "launch", str(self.study), *self.words, "--submit", codes=(0, 4), user=user
        )

    def running(self) -> list[QueueRow]:
        return [row for row in self.site.queue() if row.state == "RUNNING" and row.task >= 0]

    def at_work(self) -> set[Task]:
        """What runs, those that compact and report among it."""
        return {(row.job, row.task) for row in self.site.queue() if row.state == "RUNNING"}

    def a_task(self) -> QueueRow | None:
        """A task that runs; waits for one, as long as there are jobs."""
        rows: list[QueueRow] = []

        def look() -> bool:
            rows[:] = self.running()
            return bool(rows) or not self.site.queue()

        self.site.until("a running task", look)
        return self.rng.choice(rows) if rows else None

    def on_node(self, node: str) -> set[Task]:
        """Tasks that run, or just end, on a node."""
        done = self.site.root("squeue", "-h", "-w", node, "-o", "%i")
        return {task for line in done.stdout.split() for task in parse_ids(line)}

    def _cancelled(self, tasks: set[Task]) -> None:
        """Note that no such task may begin from now on, but for a start that is under way."""
        end = datetime.now() + timedelta(seconds=2)
        for task in tasks:
            self.touched.cancelled.setdefault(task, end)

    # What goes wrong. Each says in `touched` what may run again, and what must not.

    def scancel_a_task(self) -> None:
        if row := self.a_task():
            self.site.run("scancel", f"{row.job}_{row.task}")
            self._cancelled({(row.job, row.task)})

    def scancel_an_array(self) -> None:
        if row := self.a_task():
            own = {(r.job, r.task) for r in self.site.queue() if r.job == row.job}
            self.site.run("scancel", str(row.job))
            self._cancelled(own)

    def scancel_all_of_the_user(self) -> None:
        everything = {(row.job, row.task) for row in self.site.queue()}
        self.site.run("scancel", f"--user={USER}")
        self._cancelled(everything)

    def cancel(self) -> None:
        everything = {(row.job, row.task) for row in self.site.queue()}
        self.site.rlbhpc("cancel", str(self.run), codes=(0, 4))
        self._cancelled(everything)

    def requeue_a_task(self) -> None:
        if row := self.a_task():
            self.touched.restarted.add((row.job, row.task))
            self.site.run("scontrol", "requeue", f"{row.job}_{row.task}")

    def warn_a_task(self) -> None:
        if row := self.a_task():
            self.touched.restarted.add((row.job, row.task))
            number = self.rng.choice(["USR1", "USR2", "TERM"])
            self.site.run("scancel", f"--signal={number}", "--batch", f"{row.job}_{row.task}")

    def _kill(self, patterns: list[str]) -> None:
        if row := self.a_task():
            self.touched.restarted.add((row.job, row.task))
            own = {f"SLURM_ARRAY_JOB_ID={row.job}", f"SLURM_ARRAY_TASK_ID={row.task}"}
            for pattern in patterns:
                self.site.kill(own, pattern)

    def kill_a_worker(self) -> None:
        self._kill(["-m rlbhpc run"])

    def kill_a_parent(self) -> None:
        self._kill(["-m host"])

    def kill_both(self) -> None:
        self._kill(["-m host", "-m rlbhpc run"])

    def node_goes_down(self) -> None:
        node = self.rng.choice(NODES)
        self.touched.restarted |= self.on_node(node)
        self.site.root("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
        # A node that comes back before its old jobs have ended is drained by Slurm.
        time.sleep(self.rng.uniform(12, 15))
        self.site.root("scontrol", "update", f"nodename={node}", "state=resume")

    def node_drains(self) -> None:
        node = self.rng.choice(NODES)
        self.site.root("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
        time.sleep(self.rng.uniform(1, 4))
        self.site.root("scontrol", "update", f"nodename={node}", "state=resume")

    def suspended_and_resumed(self) -> None:
        if row := self.a_task():
            name = f"{row.job}_{row.task}"
            self.site.root("scontrol", "suspend", name)
            time.sleep(self.rng.uniform(1, 4))
            self.site.root("scontrol", "resume", name)

    def controller_restarts(self) -> None:
        self.site.daemons(f"stop {STATE}/pid/slurmctld.pid slurmctld")
        time.sleep(self.rng.uniform(0, 3))
        self.site.daemons("start_slurmctld")
        self.site.until("slurmctld", self.site.answers)

    def controller_restarts_while_submitting(self) -> None:
        self.cancel()
        self.site.idle()
        self.site.daemons(f"stop {STATE}/pid/slurmctld.pid slurmctld")
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(self.launch)
            time.sleep(self.rng.uniform(1, 6))
            self.site.daemons("start_slurmctld")
            sent.result()
        self.site.until("slurmctld", self.site.answers)

    def accounting_stops(self) -> None:
        self.site.daemons(f"stop {STATE}/pid/slurmdbd.pid slurmdbd")
        self.site.status(str(self.run))
        self.site.daemons("start_slurmdbd")

    def preempted(self) -> None:
        node = self.rng.choice(NODES)
        self.touched.restarted |= self.on_node(node)
        self.site.run(
            "sbatch", "-p", "high", "--exclusive", "-w", node, "-t", "1", "-o", "/dev/null",
            "--wrap", "sleep 3",
        )  # fmt: skip
        # What begins on the node before the preemption is preempted as well.
        time.sleep(2)
        self.touched.restarted |= self.on_node(node)

    def time_limit_of_a_minute(self) -> None:
        if row := self.a_task():
            self.touched.restarted.add((row.job, row.task))
            self.site.root("scontrol", "update", f"JobId={row.job}_{row.task}", "TimeLimit=1")

    def disk_is_full(self) -> None:
        self.touched.restarted |= self.at_work()
        filler = self.site.folder / "runs" / "filler"
        subprocess.run(
            ["dd", "if=/dev/zero", f"of={filler}", "bs=1M"], check=False, capture_output=True
        )
        end = time.monotonic() + self.rng.uniform(1, 3)
        # A task that starts now may be back in the queue soon.
        while time.monotonic() < end:
            self.touched.restarted |= self.at_work()
        self.touched.restarted |= self.at_work()
        filler.unlink()

    def study_is_edited(self) -> None:
        text = self.study.read_text()
        self.study.write_text(text.replace("temperature: 1.0", "temperature: 0.1"))
        time.sleep(self.rng.uniform(1, 3))
        self.study.write_text(text)

    def second_launch(self) -> None:
        before = self.site.queue()
        self.launch()
        if before and self.touched == Touched():
            # What a killed parent left is nobody's any more, and is launched rightly.
            assert len(self.site.queue()) <= len(before), "it added jobs of one's own"

    def second_user(self) -> None:
        self.launch(SECOND)

    def by_hand_again(self) -> None:
        scripts = sorted((self.run / "launches").glob("*/sample*.sbatch"))
        script = self.rng.choice(scripts)
        # From another folder than the script's: its log must be found all the same.
        done = self.site.run("sbatch", str(script))
        assert done.returncode == 0, done.stderr

    # What must hold.

    def starts(self) -> dict[Task, list[datetime]]:
        """When each task of the run's launches was started, by the accounting."""
        self.site.until("slurmdbd", lambda: self.site.root("sacct", "-n").returncode == 0)
        ids = {
            line.split()[1]
            for path in (self.run / "launches").glob("*/submitted")
            for line in path.read_text().splitlines()
            if not line.endswith("?")
        }
        answer = self.site.root(
            "sacct", "--duplicates", "-X", "-n", "-P", "-j", ",".join(ids), "-S", "now-1days",
            "-o", "JobID,Start",
        ).stdout  # fmt: skip
        started: dict[Task, list[datetime]] = {}
        for line in answer.splitlines():
            name, start = line.split("|")
            if start not in ("Unknown", "None"):
                for task in parse_ids(name):
                    started.setdefault(task, []).append(datetime.fromisoformat(start))
        return started

    def status_is_squeue(self) -> None:
        """Between two looks a job may end; it has to agree once in a few."""
        for _ in range(6):
            ids = {
                int(line.split()[1])
                for path in (self.run / "launches").glob("*/submitted")
                for line in path.read_text().splitlines()
                if not line.endswith("?")
            }
            rows = [row for row in self.site.queue() if row.job in ids]
            queue = self.site.status(str(self.run))["queue"]
            if queue is not None and sum(queue.values()) == len(rows):
                return
        raise AssertionError(f"status says {queue}, squeue {rows}")


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of its own, so that a full one is full for this run alone."""
    folder.mkdir()
    size = ["-o", "size=64m,mode=2775"]
    subprocess.run(["mount", "-t", "tmpfs", *size, "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


KINDS = (
    "second_launch", "requeue_a_task", "warn_a_task", "kill_a_worker", "kill_a_parent", "kill_both",
    "node_goes_down", "node_drains", "suspended_and_resumed", "controller_restarts",
    "controller_restarts_while_submitting", "accounting_stops", "preempted",
    "time_limit_of_a_minute", "disk_is_full", "study_is_edited", "second_user", "by_hand_again",
    "scancel_a_task", "scancel_an_array", "scancel_all_of_the_user", "cancel",
)  # fmt: skip
A_ROUND = 5
#: Partitions whose jobs are requeued after a warning, requeued at once, and cancelled.
PREEMPTED = ("low", "abrupt", "cancel")


def rounds(total: int) -> list[tuple[int, str, tuple[str, ...]]]:
    """Seed, partition and disturbances of each round; every kind comes before one comes again.

    Within a round they keep the order of `KINDS`: a second launch adds nothing while nothing was
    touched, and what ends all jobs comes last.
    """
    rng = random.Random(2027)
    modes = itertools.cycle(PREEMPTED)
    pool: list[str] = []
    rounds = []
    for seed in range(total // A_ROUND):
        if len(pool) < A_ROUND:
            pool += rng.sample(KINDS, len(KINDS))
        names = tuple(sorted(pool[:A_ROUND], key=KINDS.index))
        pool = pool[A_ROUND:]
        partition = next(modes) if "preempted" in names else rng.choice(PREEMPTED)
        rounds.append((seed, partition, names))
    return rounds


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Path, dict[str, str]]]:
    """The cluster, a study on it, and the cube of an undisturbed local run."""
    with opened(tmp_path_factory.mktemp("chaos")) as site:
        study = study_at(site, tiny(250, max_tokens=64))
        yield site, study, local_cube(site, study)


TOTAL = 100 if os.environ.get("RLBHPC_SOAK") == "1" else 10


@pytest.mark.parametrize(("seed", "partition", "disturbances"), rounds(TOTAL))
def test_only_what_was_touched_starts_again(
    place: tuple[Site, Path, dict[str, str]], seed: int, partition: str, disturbances: list[str]
) -> None:
    site, study, expected = place
    with small_disk(site.folder / "runs"):
        site.own()
        try:
            disturbed(Round(site, study, partition, random.Random(seed)), disturbances, expected)
        finally:
            site.calm()


def disturbed(play: Round, disturbances: list[str], expected: dict[str, str]) -> None:
    """One study with some disturbances."""
    site = play.site
    play.launch()
    for name in disturbances:
        if not site.queue():
            play.launch()
        time.sleep(play.rng.uniform(0, 4))
        getattr(play, name)()
        play.status_is_squeue()
        print(f"{name}: {play.touched}", flush=True)
    site.idle()
    assert not site.left_behind(), "a job is left behind"
    if site.status(str(play.run))["missing"]:
        # Somebody ended jobs, or killed a parent: the same command goes on from there.
        play.launch()
        site.idle()
    # The accounting may be seconds behind, so it is asked once, of all that was.
    starts = play.starts()
    again = {task: times for task, times in starts.items() if len(times) > 1}
    assert again.keys() <= play.touched.restarted, f"more ran again than touched: {again}"
    for task, end in play.touched.cancelled.items():
        late = [start for start in starts.get(task, ()) if start > end]
        assert not late, f"{task}, cancelled until {end}, came back: {late}"
    status = site.status(str(play.run))
    assert status["missing"] == 0, status
    assert doubles(play.run) == 0, "samples were drawn twice"
    assert digest(compact(Layout(play.run)).store) == expected
