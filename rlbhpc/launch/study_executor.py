"""submitit's executor for scripts that lie in a launch's folder: it writes and sends texts.

A study's jobs need no pickle: what each task calls stands in its script, and what it made is read
from the samples. So a job is found again, in any session, from the folder and its id.
"""

from __future__ import annotations

import getpass
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from submitit.core.utils import FailedJobError, JobPaths, UncompletedJobError
from submitit.slurm.slurm import SlurmExecutor, SlurmInfoWatcher, SlurmJob

from rlbhpc.launch import slurm
from rlbhpc.launch.host.task import id_in, launching_environment

LOG_LINES = 40


class StudyPaths(JobPaths):
    """Files of one job: its script and its log."""

    def __init__(self, folder: Path, job_id: str, script: str, prefix: str) -> None:
        super().__init__(folder, job_id=job_id)
        self._script = script
        self._prefix = prefix

    @property
    def submission_file(self) -> Path:
        """The script."""
        return self.folder / f"{self._script}.sbatch"

    @property
    def stdout(self) -> Path:
        """The log, into which both streams go."""
        return self.folder / "logs" / f"{self._prefix}-{self._script}-{self.job_id}.log"

    @property
    def stderr(self) -> Path:
        """The same log."""
        return self.stdout


class QueueWatcher(SlurmInfoWatcher):
    """States of jobs from one squeue for all; from sacct, where it answers, once they are gone.

    ``clusters`` has those of each job where the site has several; ``users``, who launched it.
    """

    def __init__(self, delay_s: int = 60) -> None:
        super().__init__(delay_s)
        self.clusters: dict[str, str] = {}
        self.users: dict[str, str] = {}

    def update(self) -> None:
        """Ask once for all jobs that are not known to have ended."""
        pending = self._registered - self._finished
        self._num_calls += 1
        self._last_status_check = time.time()
        for clusters in {self.clusters.get(name, "") for name in pending}:
            self._ask(
                {name for name in pending if self.clusters.get(name, "") == clusters}, clusters
            )
        self._finished |= {name for name in pending if self.is_done(name, mode="cache")}

    def _ask(self, names: set[str], clusters: str) -> None:
        rows = slurm.queue({int(name.split("_")[0]) for name in names}, clusters)
        if rows is None:
            return
        queued = {row.name: row.state for row in rows}
        # Where Slurm leaves tasks out, the row has the name of the array.
        gone = {name for name in names if not queued.keys() & {name, name.split("_")[0]}}
        since = time.strftime("%Y-%m-%d", time.localtime(self._start_time - 90 * 24 * 3600))
        numbers = {int(name.split("_")[0]) for name in gone}
        ended = {row.name: row.state for row in slurm.account(numbers, since, clusters) or ()}
        for name in names:
            states = ended if name in gone else queued
            state = states.get(name) or states.get(name.split("_")[0])
            self._info_dict[name] = {"State": state or self._unseen(name, clusters)}

    def _unseen(self, name: str, clusters: str) -> str:
        """State of a job of which neither the queue nor the accounting has a row.

        One of this user's has ended, nobody knows how; one of another user's may be hidden.
        """
        is_ours = self.users.get(name, "") in ("", getpass.getuser())
        return "ENDED" if is_ours or not slurm.hides_jobs(clusters) else "UNKNOWN"


class StudyJob(SlurmJob[str]):
    """One job, or one task of an array, of a launch; made from its folder and id alone."""

    watcher = QueueWatcher()

    def __init__(
        self, folder: Path | str, job_id: str, tasks: Sequence[int] = (0,), script: str = "",
        prefix: str = "", clusters: str = "", user: str = "",
        has_made: Callable[[str], bool] | None = None,
    ) -> None:  # fmt: skip
        self.watcher.clusters[job_id] = clusters
        self.watcher.users[job_id] = user
        self._has_made = has_made
        super().__init__(folder, job_id, tasks)
        self._paths = StudyPaths(Path(folder), job_id, script, prefix)

    def cancel(self, check: bool = True) -> None:
        """Cancel it, on the cluster that has it."""
        clusters = self.watcher.clusters[self.job_id]
        where = [f"--clusters={clusters}"] if clusters else []
        with launching_environment():
            subprocess.run(["scancel", *where, self.job_id], check=check)

    def _get_outcome_and_result(self) -> tuple[str, Any]:
        """How it ended: its state, or the end of its log.

        Where no accounting says how, what it was to make says whether it ended well.
        """
        state = self.state
        is_made = state == "ENDED" and self._has_made is not None and self._has_made(self.job_id)
        if is_made or state == "COMPLETED":
            return "success", state
        lines = (self.stdout() or "no log").splitlines()[-LOG_LINES:]
        raise UncompletedJobError("\n".join([f"job {self.job_id} is {state}", *lines]))


class StudyExecutor(SlurmExecutor):
    """One script of a launch: ``text`` is what lies in the folder, ``send`` is sbatch."""

    job_class = StudyJob

    def __init__(
        self, folder: Path, script: str, prefix: str, calls: int = 0, clusters: str = "",
        user: str = "", has_made: Callable[[str], bool] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(folder)
        self.user = user
        self.has_made = has_made
        self.clusters = clusters
        self.script = script
        self.prefix = prefix
        self.calls = calls

    @classmethod
    def affinity(cls) -> int:
        """Scripts can be written anywhere, also where there is no srun."""
        return 2

    def text(self, head: str, options: Mapping[str, str], set_up: list[str], command: str) -> str:
        """The whole script, with options of sbatch by their long names."""
        more = {name: text or True for name, text in options.items() if name != "job-name"}
        self.update_parameters(
            job_name=options["job-name"], additional_parameters=more, setup=set_up,
            use_srun=False, stderr_to_stdout=True, wckey=None,
        )  # fmt: skip
        text = self._make_submission_file_text(command, "")
        return text.replace("# Parameters", f"{head}\n", 1)

    def send(self, dependency: str = "", say: Callable[[str], None] = print) -> list[StudyJob]:
        """Submit the script, once; raises submitit's FailedJobError with the words of sbatch.

        What a site has to say of a job that it takes is handed to ``say``.
        """
        after = [f"--dependency={dependency}"] if dependency else []
        command = ["sbatch", "--parsable", *after, f"{self.script}.sbatch"]
        with launching_environment():
            done = subprocess.run(
                command, cwd=self.folder, capture_output=True, text=True, errors="replace",
                check=False,
            )  # fmt: skip
        words = done.stderr.strip()
        if done.returncode != 0:
            raise FailedJobError(words)
        if words:
            say(words)
        return self.jobs(id_in(done.stdout, f"{self.prefix}-{self.script}"))

    def jobs(self, number: str) -> list[StudyJob]:
        """The job of an id, or all tasks of the array."""
        names = [f"{number}_{task}" for task in range(self.calls)] or [number]
        place = (self.script, self.prefix, self.clusters, self.user, self.has_made)
        return [StudyJob(self.folder, name, (0,), *place) for name in names]
