"""What Slurm says of our jobs, where there is a Slurm and as far as it answers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

# squeue prints pending tasks of an array as one row: 12_[3,5-8%4].
_PENDING = re.compile(r"^(\d+)_\[([^\]%]*)(?:%\d+)?\]$")
TIMEOUT = 20.0


class Row(NamedTuple):
    """One job, or one task of an array; ``task`` is −1 for a job that is no array."""

    job: int
    task: int
    state: str
    reason: str


def ask(*command: str) -> str | None:
    """Answer of a command of Slurm; None where there is none or it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def queue() -> list[Row] | None:
    """All of the user's jobs in the queue, with one question; None if Slurm does not answer."""
    answer = ask("squeue", "--me", "--noheader", "--format=%i|%T|%r")
    return None if answer is None else read_rows(answer)


def account(jobs: Iterable[int], since: str) -> list[Row] | None:
    """How jobs ended, by the accounting; None where there is no accounting.

    The start is always given: sacct would leave out what began before midnight.
    """
    wanted = ",".join(str(job) for job in sorted(set(jobs)))
    if not wanted:
        return []
    answer = ask(
        "sacct", "--allocations", "--noheader", "--parsable2", f"--starttime={since}",
        f"--jobs={wanted}", "--format=JobID,State,ExitCode",
    )  # fmt: skip
    return None if answer is None else read_rows(answer)


def read_rows(text: str) -> list[Row]:
    """Rows of ``id|state|reason`` lines; what is not one is passed over."""
    rows = []
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) != 3:
            continue
        name, state, reason = parts
        # "CANCELLED by 1000", and OUT_OF_ME+ where a column was too narrow.
        state = state.split(" ")[0].rstrip("+")
        state = "OUT_OF_MEMORY" if state.startswith("OUT_OF_ME") else state
        rows += [Row(job, task, state, reason) for job, task in _ids(name)]
    return rows


def _ids(name: str) -> list[tuple[int, int]]:
    pending = _PENDING.match(name)
    if pending:
        return [(int(pending[1]), task) for task in numbers(pending[2])]
    job, _, task = name.partition("_")
    if job.isdigit() and (task.isdigit() or not task):
        return [(int(job), int(task) if task else -1)]
    return []


def numbers(text: str) -> list[int]:
    """Numbers of a list such as 3,5-8."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, dash, last = part.partition("-")
        found += range(int(first), int(last if dash else first) + 1)
    return found


def ranges(found: Iterable[int]) -> str:
    """The inverse of `numbers`: 3,5-8."""
    parts: list[list[int]] = []
    for number in sorted(set(found)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def submitted(folder: Path) -> dict[str, int]:
    """Ids of a launch's jobs by the name of the script, from the file that submit.sh writes."""
    try:
        lines = (folder / "submitted").read_text().splitlines()
    except FileNotFoundError:
        return {}
    pairs = (line.split(" ") for line in lines)
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def live(folders: Iterable[Path]) -> list[Row] | None:
    """Jobs of some launches that are in the queue; None if Slurm does not answer."""
    rows = queue()
    if rows is None:
        return None
    mine = {job for folder in folders for job in submitted(folder).values()}
    return [row for row in rows if row.job in mine]
