"""The throw-away cluster of `make cluster-up`, used as its ordinary user."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlbhpc.launch import slurm

ROOT = Path(__file__).parents[2]
STATE = Path(os.environ.get("RLBHPC_CLUSTER_STATE", "/tmp/rlbhpc-cluster"))
IMAGE = Path(os.environ.get("RLBHPC_TEST_IMAGE", "/var/cache/rlbhpc/bare.sif"))
USER = "rlbhpc-dev"
SECOND = "rlbhpc-dev2"
NODES = ("n1", "n2", "n3")
# As long as one of the tests may wait for the cluster; nothing here takes so long.
STEP_SECONDS = 600.0


class Site:
    """Commands on the cluster, as its user or as root, and the user's own folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.own()
        self.python = _python()
        self.packages = next(path for path in sys.path if path.endswith("site-packages"))
        self.environment = {
            "PYTHONPATH": f"{ROOT}:{self.packages}", "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(STATE / "home"), "DS_ACCELERATOR": "cpu", "TMPDIR": "/tmp",
        }  # fmt: skip

    def own(self) -> None:
        """Give everything in the folder to the user."""
        subprocess.run(["chown", "-R", f"{USER}:{USER}", str(self.folder)], check=True)
        subprocess.run(["chmod", "g+rwxs", str(self.folder)], check=True)

    def cluster(self, **keys: object) -> Path:
        """A cluster table for this site."""
        light = {"partition": "low", "time": "10", "cpus": 1}
        table = {
            "account": "dev", "sample": light, "train": light, "light": light, "warning": 40,
            "kill_wait": 10, "max_array_size": 5, "python": self.python,
            "rlbhpc": [self.python, "-m", "rlbhpc"],
            "environment": {k: self.environment[k] for k in ("PYTHONPATH", "OMP_NUM_THREADS",
                            "PYTHONDONTWRITEBYTECODE", "DS_ACCELERATOR")},
            **keys,
        }  # fmt: skip
        path = self.folder / "site.yaml"
        path.write_text(yaml.safe_dump(table))
        self.own()
        return path

    def image(self) -> dict[str, object]:
        """Keys of a cluster table for work inside the image.

        The image of `make cluster-up` has Python alone: what the tests run on is bound into it. A
        whole one, such as that of containers/cpu.def, must do with what it has.
        """
        probe = ["apptainer", "exec", "--cleanenv", str(IMAGE), "rlbhpc", "--version"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            alone = {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
            return {"container": {"image": str(IMAGE)}, "rlbhpc": ["rlbhpc"], "environment": alone}
        binds = [str(ROOT), self.packages]
        return {
            "container": {"image": str(IMAGE), "binds": binds},
            "rlbhpc": ["python3", "-m", "rlbhpc"],
        }

    def run(self, *command: str, user: str = USER) -> subprocess.CompletedProcess[str]:
        """A command as a user, inside the cluster's network; a group may write what it makes."""
        home = self.environment["HOME"]
        return subprocess.run(
            [str(STATE / "enter"), "sh", "-c", 'umask 002; HOME=$0 exec "$@"', home, *command],
            cwd=self.folder, env={**self.environment, "RLBHPC_CLUSTER_USER": user}, text=True,
            capture_output=True, check=False, timeout=STEP_SECONDS,
        )  # fmt: skip

    def rlbhpc(self, *words: str, codes: tuple[int, ...] = (0,), user: str = USER) -> str:
        """A command of rlbhpc as a user; its output."""
        done = self.run(self.python, "-m", "rlbhpc", *words, user=user)
        assert done.returncode in codes, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def status(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.rlbhpc("status", run, "--json", codes=(0, 3)))
        return found

    def root(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command as root, inside the cluster's network."""
        pid = (STATE / "pid" / "network.pid").read_text().strip()
        spaces = [f"--net=/proc/{pid}/ns/net", f"--uts=/proc/{pid}/ns/uts"]
        return subprocess.run(
            ["nsenter", *spaces, *command], text=True, capture_output=True, check=False,
            env={**os.environ, "SLURM_CONF": str(STATE / "etc" / "slurm.conf")}, timeout=120,
        )  # fmt: skip

    def daemons(self, *calls: str) -> None:
        """Functions of slurm/daemons.sh, such as `start_slurmctld`."""
        lines = [f"state={STATE}", f". {ROOT}/slurm/daemons.sh", *calls]
        subprocess.run(
            ["bash", "-c", "\n".join(lines)], check=True, timeout=120, capture_output=True
        )

    @contextmanager
    def settings(self, *lines: str) -> Iterator[None]:
        """Lines of slurm.conf that hold for a while, such as ``PrivateData=jobs``."""
        extra = STATE / "etc" / "extra.conf"
        before = extra.read_text()
        try:
            extra.write_text("".join(f"{line}\n" for line in lines))
            self.root("scontrol", "reconfigure")
            self.until("slurmctld", self.answers)
            yield
        finally:
            extra.write_text(before)
            self.root("scontrol", "reconfigure")
            self.until("slurmctld", self.answers)

    @contextmanager
    def words(self, **texts: str) -> Iterator[None]:
        """What job_submit.lua tells whoever submits: ``say``, or ``refuse`` with these words."""
        paths = {name: STATE / "etc" / name for name in texts}
        try:
            for name, path in paths.items():
                path.write_text(texts[name])
            yield
        finally:
            for path in paths.values():
                path.unlink(missing_ok=True)

    def queue(self) -> list[slurm.QueueRow]:
        """The jobs of both users."""
        done = self.root("squeue", f"--user={USER},{SECOND}", "--noheader", "--format=%i|%T|%r|%u")
        return slurm.parse_rows(done.stdout) if done.returncode == 0 else []

    def restarts(self, job: str) -> int:
        """How often Slurm has started a job again."""
        answer = self.root("scontrol", "--oneliner", "show", "job", job).stdout
        return int(answer.partition("Restarts=")[2].split()[0])

    def processes(self, variables: set[str], pattern: str = "") -> list[str]:
        """Ids of the users' processes with these variables, and a word on the command line."""
        ids = []
        for line in self.left_behind().splitlines():
            pid, _, command = line.partition(" ")
            try:
                text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if pattern in command and variables <= set(text.split("\0")):
                ids.append(pid)
        return ids

    def kill(self, variables: set[str], pattern: str = "") -> None:
        """End such processes without a warning."""
        for pid in self.processes(variables, pattern):
            subprocess.run(["kill", "-KILL", pid], check=False, capture_output=True)

    def answers(self) -> bool:
        return self.root("timeout", "5", "scontrol", "ping").returncode == 0

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for the cluster; it answers in its own time."""
        end = time.monotonic() + STEP_SECONDS
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(
                    f"{what}: not in {STEP_SECONDS:g} s\n{self.queue()}\n{self.last_words()}"
                )
            time.sleep(0.5)

    def last_words(self) -> str:
        """The end of each log of a job, for a reader who has nothing else of a test that failed."""
        logs = sorted(self.folder.glob("**/launches/*/logs/*"))
        return "\n".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in logs)

    def idle(self) -> None:
        """Wait until the queue is empty."""
        self.until("an empty queue", lambda: self.answers() and not self.queue())

    def calm(self) -> None:
        """End everything of the users and mend the nodes."""
        self.daemons("start_slurmdbd", "start_slurmctld")
        self.until("slurmctld", self.answers)
        self.root("scancel", f"--user={USER}")
        self.root("scancel", f"--user={SECOND}")
        self.root("sacctmgr", "-iQ", "modify", "user", USER, "set", "MaxSubmitJobs=-1")
        self.root("sacctmgr", "-iQ", "delete", "qos", "closed")
        for node in NODES:
            self.root("scontrol", "update", f"nodename={node}", "state=resume")
        self.idle()
        processes = self.left_behind()
        assert not processes, processes

    def left_behind(self) -> str:
        """Processes of the user that no job owns any more."""
        processes = subprocess.run(
            ["pgrep", "-u", f"{USER},{SECOND}", "-a"], text=True, capture_output=True, check=False
        ).stdout
        # What has ended and waits for somebody to ask how holds nothing any more.
        return "".join(line for line in processes.splitlines(True) if "<defunct>" not in line)


def _python() -> str:
    """A Python of our version that the user may run."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for one in (sys.executable, f"/usr/bin/{version}"):
        done = subprocess.run(
            ["runuser", "-u", USER, "--", one, "-c", ""], capture_output=True, check=False
        )
        if done.returncode == 0:
            return one
    raise AssertionError(f"{USER} can run no {version}")


@contextmanager
def opened(folder: Path) -> Iterator[Site]:
    """The cluster with a folder of its user's on it; it is up, or the test is left out."""
    if os.geteuid() != 0 or not (STATE / "enter").is_file():
        pytest.skip("no throw-away cluster here: make cluster-up, as root")
    pwd.getpwnam(USER)
    opened_site = Site(STATE / "home" / f"{folder.parent.name}-{folder.name}")
    opened_site.idle()
    try:
        yield opened_site
        opened_site.calm()
    finally:
        shutil.rmtree(opened_site.folder, ignore_errors=True)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """The cluster, for one test."""
    with opened(tmp_path) as opened_site:
        yield opened_site
