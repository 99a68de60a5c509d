"""Who submits or runs a launch of a study right now: one at a time, whoever and wherever."""

from __future__ import annotations

import getpass
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.files import explain
from rlbhpc.launch.host.claims import (
    SILENT,
    age,
    alive,
    create,
    generations,
    here,
    is_held,
    newest,
    started,
)
from rlbhpc.study.layout import Layout

NAME = "sending"
# Seconds between two signs of life.
BEAT = 30.0


def sender(layout: Layout) -> str:
    """Who submits or runs a launch, in words; empty if nobody but this process does."""
    _, holder, is_own = _holder(layout.launches)
    return "" if is_own else holder


def at_work(layout: Layout) -> str:
    """The same, or a job on this machine that outlived whoever launched it."""
    if holder := sender(layout):
        return holder
    for pid in claimed_here(layout).values():
        return f"process {pid} on this machine works an earlier launch"
    return ""


def claimed_here(layout: Layout) -> dict[str, str]:
    """Processes of this machine that work a shard, by the name of the claim: PLAN-SHARD."""
    pids = {}
    for name, generation in sorted(generations(layout.claims).items()):
        try:
            claim = (layout.claims / f"{name}.{generation}").read_text().strip()
        except (OSError, UnicodeDecodeError):  # given back meanwhile, or none of this machine's
            continue
        if claim.startswith(f"local {here()} ") and alive(claim, is_ours=False):
            pids[name] = claim.split()[2]
    return pids


@contextmanager
def lock(folder: Path, what: str) -> Iterator[None]:
    """Be the only one who does ``what`` in the folder of all launches; refuse if somebody does.

    As with shards, whoever finds a holder that ended makes the next file, exclusively: two who find
    it at once cannot both have it.
    """
    own = f"{_this_process()} {getpass.getuser()} {what}"
    try:
        while True:
            generation, holder, _ = _holder(folder)
            if holder:
                raise UserError(f"{holder}; wait for its end, then run this again", TRY_AGAIN)
            path = folder.absolute() / f"{NAME}.{generation + 1}"
            if create(path, own):
                break
    except OSError as error:
        raise explain(error, folder / NAME, "; nothing was submitted") from None
    ended = threading.Event()
    threading.Thread(target=_beat, args=(path, ended), daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        path.unlink(missing_ok=True)


@contextmanager
def note(folder: Path, verb: str) -> Iterator[list[str]]:
    """Say in a folder that this process runs a verb; who else says so, in words.

    A note keeps nobody from anything: those who see each other share the work as they can. It is
    there before the others are read, so that of two who begin at once one sees the other. What a
    killed process left is removed.
    """
    path = folder.absolute() / f"{verb}-{secrets.token_hex(4)}"
    with suppress(OSError):  # a folder of somebody else, who sees nothing of this
        create(path, f"{_this_process()} {getpass.getuser()} {verb}")
    others = []
    for other in sorted(folder.absolute().glob(f"{verb}-{'[0-9a-f]' * 8}")):
        if other != path:
            with suppress(OSError, ValueError):  # it ended meanwhile, or was cut
                host, pid, start, user, _ = other.read_text().split()
                if is_held(other, f"local {host} {pid} {start}", user == getpass.getuser()):
                    others.append(f"{user}'s `rlbhpc {verb}` (process {pid} on {host})")
                else:
                    other.unlink()
    ended = threading.Event()
    threading.Thread(target=_beat, args=(path, ended), daemon=True).start()
    try:
        yield others
    finally:
        ended.set()
        with suppress(OSError):
            path.unlink()


def _beat(path: Path, ended: threading.Event) -> None:
    while not ended.wait(BEAT):
        with suppress(OSError):
            os.utime(path)


def _holder(folder: Path) -> tuple[int, str, bool]:
    """Newest generation of the lock; who holds it, in words; and whether it is this process."""
    generation, text = newest(folder, NAME)
    path = folder / f"{NAME}.{generation}"
    words = text.split(maxsplit=4)
    if len(words) < 5 or not words[1].isdigit():  # nobody, or a file that cannot be read
        return generation, "" if age(path) > SILENT else text, False
    host, pid, start, user, what = words
    is_at_work = is_held(path, f"local {host} {pid} {start}", user == getpass.getuser())
    holder = f"{user} {what} (process {pid} on {host})" if is_at_work else ""
    return generation, holder, text.startswith(f"{_this_process()} ")


def _this_process() -> str:
    pid = str(os.getpid())
    return f"{here()} {pid} {started(pid) or 0}"
