"""Who works which shard, as files; and whether the one who said so is still there."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from .task import call, say

CLAIMS = Path("../../claims")


class Claims:
    """One file per shard that says who works it; nobody waits on it.

    The file `PLAN-SHARD.N` is created exclusively. Whoever finds that its holder is no longer known
    creates `.N+1`, exclusively again, so two who find it at once cannot both have it.
    """

    def __init__(self, plan: str, holder: str) -> None:
        self.plan = plan
        self.holder = holder
        self.own: list[Path] = []

    def take(self, shards: list[str]) -> tuple[list[str], dict[str, str]]:
        """Claim shards; returns those that are ours, and who holds each of the others."""
        ours = []
        others = {}
        for shard in shards:
            while True:
                generation, holder = self._newest(shard)
                if holder not in ("", self.holder) and alive(holder):
                    others[shard] = holder
                    break
                try:
                    is_ours = holder == self.holder or self._create(shard, generation + 1)
                except OSError as error:
                    say(f"{CLAIMS}: {error.strerror}; shard {shard} is worked without a claim")
                    is_ours = True
                if is_ours:
                    ours.append(shard)
                    break
        return ours, others

    def release(self) -> None:
        """Give back what is ours: what was made is on disk, and the rest anybody may make."""
        for path in self.own:
            with contextlib.suppress(OSError):
                path.unlink()

    def _newest(self, shard: str) -> tuple[int, str]:
        paths = {
            int(path.suffix[1:]): path
            for path in CLAIMS.glob(f"{self.plan}-{int(shard):05d}.*")
            if path.suffix[1:].isdigit()
        }
        if not paths:
            return -1, ""
        newest = max(paths)
        try:
            holder = paths[newest].read_text().strip()
        except OSError:
            return self._newest(shard)
        if holder == self.holder:
            self.own.append(paths[newest])
        return newest, holder

    def _create(self, shard: str, generation: int) -> bool:
        path = CLAIMS / f"{self.plan}-{int(shard):05d}.{generation}"
        partial = CLAIMS / f"{path.name}.{socket.gethostname()}.{os.getpid()}"
        CLAIMS.mkdir(exist_ok=True)
        try:
            partial.write_text(self.holder + "\n")
            # A link appears with its content; a file that is created is empty for a moment.
            os.link(partial, path)
        except FileExistsError:
            return False
        finally:
            partial.unlink(missing_ok=True)
        self.own.append(path)
        return True


def alive(holder: str) -> bool:
    """Whether the holder of a claim may still work: `slurm 101_3`, or `local HOST PID START`."""
    kind, _, name = holder.partition(" ")
    if kind == "local":
        host, _, process = name.partition(" ")
        pid, _, start = process.partition(" ")
        now = started(pid) if pid else ""
        # A claim of an older version has no start.
        return host != socket.gethostname() or (now != "" and start in ("", now))
    code, text = call("squeue", "--all", "--noheader", f"--jobs={name}", "--format=%T")
    if code != 0:
        # Without an answer it may well run; only what Slurm does not know is gone.
        return "nvalid job id" not in text
    return bool(text.strip())


def started(pid: str) -> str:
    """Clock tick at which a process started, empty once it ended: a pid soon is another's."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else fields[18]
