"""Who works which shard, as files; and whether the one who said so is still there."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path

from .task import call, hides_jobs, say

CLAIMS = Path("../../claims")
# Seconds; a sign of life comes every minute at least.
SILENT = 300.0
# The PID namespace that Linux begins with, by the number of its file.
FIRST_SPACE = 0xEFFFFFFC


class Claims:
    """One file for each thing that one job at a time works, which says who; nobody waits on it.

    The file `NAME.N` is created exclusively. Whoever finds that its holder is no longer known
    creates `.N+1`, exclusively again, so two who find it at once cannot both have it.
    """

    def __init__(self, folder: Path, holder: str) -> None:
        self.folder = folder
        self.holder = holder
        self.own: list[Path] = []

    def take(self, name: str) -> bool:
        """Claim something, or say who works it; without a claim where no file can be written."""
        try:
            holder = self.claim(name)
        except OSError as error:
            say(f"{self.folder / name}: {error.strerror}; it is worked without a claim")
            return True
        if holder:
            say(f"{name} is worked by {holder}")
        return not holder

    def claim(self, name: str) -> str:
        """Claim something; returns who else holds it, if somebody does."""
        while True:
            generation, holder = newest_claim(self.folder, name)
            path = self.folder / f"{name}.{generation}"
            if holder == self.holder:
                self.own.append(path)
                return ""
            if holder and is_held(path, holder, is_own_file(path)):
                return holder
            path = self.folder / f"{name}.{generation + 1}"
            if create_claim(path, self.holder):
                self.own.append(path)
                return ""

    def beat(self) -> None:
        """Say that we are still here, for those who cannot see our processes."""
        for path in self.own:
            with contextlib.suppress(OSError):
                os.utime(path)

    def release(self) -> None:
        """Give back what is ours: what was made is on disk, and the rest anybody may make."""
        while self.own:
            with contextlib.suppress(OSError):
                self.own.pop().unlink()


def generations(folder: Path, name: str = "*") -> dict[str, int]:
    """Generation of the newest claim of each name."""
    newest_of: dict[str, int] = {}
    for path in folder.glob(f"{name}.[0-9]*"):
        number = path.suffix[1:]
        if number.isdigit():
            newest_of[path.stem] = max(int(number), newest_of.get(path.stem, 0))
    return newest_of


def newest_claim(folder: Path, name: str) -> tuple[int, str]:
    """Generation and holder of the newest claim of this name; −1 and nobody if there is none."""
    while True:
        generation = generations(folder, name).get(name, -1)
        if generation < 0:
            return -1, ""
        path = folder / f"{name}.{generation}"
        try:
            holder = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            # One that was given back meanwhile is gone; one that is there is somebody's.
            if os.path.lexists(path):
                return generation, unknown_holder(path, getattr(error, "strerror", "no text"))
            continue
        if not holder and seconds_silent(path) < SILENT:
            holder = unknown_holder(path, "it is empty")
        return generation, holder


def unknown_holder(path: Path, reason: str) -> str:
    """Holder of a claim that says nothing of it."""
    return f"an unknown job: {path.name}: {reason}; remove it if nobody works it"


def create_claim(path: Path, holder: str) -> bool:
    """Make a claim, unless somebody else was faster."""
    # What ends in a number is a claim; this is none yet.
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
    """Seconds since the last sign of life of a claim's holder; infinite if it is gone."""
    try:
        sign = path.stat().st_mtime
    except OSError:
        return float("inf")
    silence = time.time() - sign
    if silence < SILENT:
        return silence
    # Signs have the time of the file server, from which a host's clock may be far.
    probe = path.with_name(f"{path.name}.{socket.gethostname()}.{os.getpid()}.partial")
    try:
        probe.touch()
        silence = probe.stat().st_mtime - sign
        probe.unlink()
    except OSError:  # somebody else's folder, who reads nothing but this
        pass
    return silence


def is_own_file(path: Path) -> bool:
    """Whether this user made a claim."""
    try:
        return path.stat().st_uid == os.getuid()
    except OSError:  # given back meanwhile
        return True


def is_held(path: Path, holder: str, is_ours: bool) -> bool:
    """Whether a claim counts; its last sign of life decides where nobody here sees its holder."""
    lives = is_alive(holder, is_ours)
    return seconds_silent(path) < SILENT if lives is None else lives


def is_alive(holder: str, is_ours: bool) -> bool | None:
    """Whether a holder may still work: `slurm 101_3`, or `local HOST PID START` and more words.

    None where that cannot be seen from here: a process of another host, or of another user on a
    host that hides it; a job of another user where Slurm hides those, or that Slurm says nothing
    of; a file that says nothing of its holder.
    """
    kind, *words = holder.split()
    if kind == "local" and len(words) >= 3:
        host, pid, start = words[:3]
        if host != host_name():
            return None
        now = start_tick(pid)
        if now:
            return start == now
        return False if is_ours else None
    if kind != "slurm":
        return None
    code, text = call("squeue", "--all", "--noheader", f"--jobs={words[0]}", "--format=%T")
    if code != 0 and "nvalid job id" not in text:
        return None
    if code == 0 and text.strip():
        return True
    return None if not is_ours and hides_jobs(call("scontrol", "show", "config")[1]) else False


def host_name() -> str:
    """Name of this host; a PID namespace that is not its first counts as a host of its own.

    Who is in another one looks as if it had ended, and may be alive.
    """
    try:
        space = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        space = FIRST_SPACE
    return socket.gethostname() + (f"@{space}" if space != FIRST_SPACE else "")


def start_tick(pid: str) -> str:
    """Clock tick at which a process started, empty once it ended: a pid soon is another's."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else fields[18]
