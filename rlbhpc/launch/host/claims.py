"""Who works which shard, as files; and whether the one who said so is still there."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path

from .task import hides_jobs, run_command, say

CLAIMS = Path("../../claims")
# A holder that was silent for so many seconds is gone; a sign of life comes every minute at least.
SILENCE_LIMIT_SECONDS = 300.0
# The PID namespace that Linux begins with, by the number of its file.
FIRST_PID_NAMESPACE = 0xEFFFFFFC
# Place of the start time in /proc/PID/stat, counted from the field behind the process's state.
START_TIME_FIELD = 18


class Claims:
    """One file for each thing that one job at a time works, which says who; nobody waits on it.

    The file `NAME.N` is created exclusively. Whoever finds that its holder is no longer known
    creates `.N+1`, exclusively again, so two who find it at once cannot both have it.
    """

    def __init__(self, folder: Path, holder: str) -> None:
        self.folder = folder
        self.holder = holder
        self.own_paths: list[Path] = []

    def take(self, name: str) -> bool:
        """Claim something, or say who works it; whether this job may work it.

        `claim` gives the holder, which is who works it in words, if that is somebody else. Where no
        file can be written the job works without a claim.
        """
        try:
            holder = self.claim(name)
        except OSError as error:
            say(f"{self.folder / name}: {error.strerror}; it is worked without a claim")
            return True
        if holder:
            say(f"{name} is worked by {holder}")
        return not holder

    def claim(self, name: str) -> str:
        """Claim something by its name; returns who else holds it, or nothing if it is ours now.

        A claim is the file NAME.GENERATION with its holder as text. A holder that is gone is not
        removed: the next generation is created, which only one job can do. If another was faster,
        look again.
        """
        while True:
            generation, holder = read_newest_claim(self.folder, name)
            path = self.folder / f"{name}.{generation}"
            if holder == self.holder:
                self.own_paths.append(path)
                return ""
            if holder and is_held(path, holder, is_own_file(path)):
                return holder
            next_path = self.folder / f"{name}.{generation + 1}"
            if create_claim(next_path, self.holder):
                self.own_paths.append(next_path)
                return ""

    def show_life(self) -> None:
        """Touch the claims, for those who cannot see our processes."""
        for path in self.own_paths:
            with contextlib.suppress(OSError):
                os.utime(path)

    def release(self) -> None:
        """Give back what is ours: what was made is on disk, and the rest anybody may make."""
        while self.own_paths:
            with contextlib.suppress(OSError):
                self.own_paths.pop().unlink()


def list_generations(folder: Path, name: str = "*") -> dict[str, int]:
    """Generation of the newest claim of each name.

    A claim is the file NAME.GENERATION; a name gets a new generation when the holder of the old one
    is gone.
    """
    newest: dict[str, int] = {}
    for path in folder.glob(f"{name}.[0-9]*"):
        number = path.suffix[1:]
        if number.isdigit():
            newest[path.stem] = max(int(number), newest.get(path.stem, 0))
    return newest


def read_newest_claim(folder: Path, name: str) -> tuple[int, str]:
    """Generation and holder of the newest claim of this name; −1 and nobody if there is none.

    A claim is the file NAME.GENERATION, whose text says who holds it. One that cannot be read, or
    was written to a moment ago and is still empty, counts as held by somebody unknown.
    """
    while True:
        generation = list_generations(folder, name).get(name, -1)
        if generation < 0:
            return -1, ""
        path = folder / f"{name}.{generation}"
        try:
            holder = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            if os.path.lexists(path):
                reason = getattr(error, "strerror", "no text")
                return generation, describe_unknown_holder(path, reason)
            continue  # it was given back meanwhile
        if not holder and seconds_silent(path) < SILENCE_LIMIT_SECONDS:
            holder = describe_unknown_holder(path, "it is empty")
        return generation, holder


def describe_unknown_holder(path: Path, reason: str) -> str:
    """Holder of a claim that says nothing of it."""
    return f"an unknown job: {path.name}: {reason}; remove it if nobody works it"


def create_claim(path: Path, holder: str) -> bool:
    """Make a claim, a file with its holder as text; False if somebody else was faster."""
    # Only what ends in a number is a claim, so nobody reads this file before it is whole.
    partial = path.with_name(f"{path.name}.{socket.gethostname()}.{os.getpid()}.partial")
    path.parent.mkdir(exist_ok=True)
    try:
        partial.write_text(holder + "\n")
        # Whoever shares the folder may read it, whatever the umask.
        partial.chmod(0o644)
        try:
            # A link appears with its content.
            os.link(partial, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links, where a claim is empty for a moment
            path.open("x").close()
            partial.replace(path)
    except FileExistsError:
        return False
    finally:
        partial.unlink(missing_ok=True)
    return True


def seconds_silent(path: Path) -> float:
    """Seconds since the last sign of life of a claim's holder; infinite if the claim is gone."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return float("inf")


def is_own_file(path: Path) -> bool:
    """Whether this user made a claim."""
    try:
        return path.stat().st_uid == os.getuid()
    except OSError:  # given back meanwhile
        return True


def is_held(path: Path, holder: str, is_ours: bool) -> bool:
    """Whether a claim counts; its last sign of life decides where nobody here sees its holder."""
    holder_lives = is_alive(holder, is_ours)
    if holder_lives is None:
        return seconds_silent(path) < SILENCE_LIMIT_SECONDS
    return holder_lives


def is_alive(holder: str, is_ours: bool) -> bool | None:
    """Whether a holder may still work: `slurm 101_3`, or `local HOST PID START` and more words.

    A holder is a job of Slurm, or a process with its host and the clock tick at which it started.
    ``is_ours`` says that this user made the claim; jobs and processes of others may be hidden from
    us. None where it cannot be seen from here, and where the text names no holder.
    """
    kind, *words = holder.split()
    if kind == "local" and len(words) >= 3:
        host, pid, start = words[:3]
        return _is_process_alive(host, pid, start, is_ours)
    if kind == "slurm":
        return _is_job_alive(words[0], is_ours)
    return None


def _is_process_alive(host: str, pid: str, start: str, is_ours: bool) -> bool | None:
    """Whether a process lives; None on another host, and where a host hides it from others.

    ``start`` is the clock tick at which it started. Process ids are given out again, so one with
    another start is not this process. ``is_ours``: it is of this user, from whom nothing is hidden.
    """
    if host != host_name():
        return None
    current_start = start_tick(pid)
    if current_start:
        return start == current_start
    return False if is_ours else None


def _is_job_alive(job_id: str, is_ours: bool) -> bool | None:
    """Whether Slurm still has a job; None where Slurm is silent, or may hide it from others.

    A job that Slurm has forgotten is an "Invalid job id". So is one of another user at a site that
    hides jobs, which its configuration says. ``is_ours``: the job is of this user.
    """
    code, answer = run_command("squeue", "--all", "--noheader", f"--jobs={job_id}", "--format=%T")
    if code != 0 and "nvalid job id" not in answer:
        return None
    if code == 0 and answer.strip():
        return True
    if is_ours:
        return False
    _, config = run_command("scontrol", "show", "config")
    return None if hides_jobs(config) else False


def host_name() -> str:
    """Name of this host; a PID namespace that is not its first counts as a host of its own.

    Each namespace, such as a container's, numbers its processes by itself. A process in another one
    looks from here as if it had ended, and may be alive.
    """
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        namespace = FIRST_PID_NAMESPACE
    suffix = f"@{namespace}" if namespace != FIRST_PID_NAMESPACE else ""
    return socket.gethostname() + suffix


def start_tick(pid: str) -> str:
    """Clock tick at which a process started; empty once it ended.

    Process ids are given out again, so the id and the start together name a process. State Z is one
    that has ended and was not waited for.
    """
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The program's name stands in brackets and may hold blanks.
    state, *fields = status.rpartition(")")[2].split()
    return "" if state == "Z" else fields[START_TIME_FIELD]
