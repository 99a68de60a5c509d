"""The parent of one job's work, on the host and outside any container: claims, signals, requeue.

A copy of this folder lies in the folder of every launch, so a requeued job keeps the code that it
was launched with. It runs on the host's Python (3.9 or newer) and needs its standard library alone:
Slurm belongs to the host, since `scontrol` and the credentials that it needs are in no image.

    python -m host --drain 150 --last 22 --scratch DIR [--plan NAME --shards 1,2]
                   [--progress PATTERN] [--needs PATH] -- COMMAND

The command runs in a session of its own; `{}` in it stands for the shards that no other job has
claimed. A warning (USR1 or USR2 some time before the end, TERM shortly before it) is handed on as
TERM, once. What is left of the process group after the time is killed. Then the job is put back
into the queue, unless somebody ended it, or three runs in a row made nothing new.
"""

from __future__ import annotations

DONE, INCOMPLETE, NOTHING_TO_DO, USAGE, TRY_AGAIN = 0, 3, 4, 64, 75
