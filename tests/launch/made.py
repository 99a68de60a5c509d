"""Studies, clusters and stub commands for the tests of launching."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

import yaml

from rlbhpc.launch.api import write_launch
from rlbhpc.launch.cluster import Cluster, load_cluster
from rlbhpc.launch.jobs import Job, jobs_of
from rlbhpc.launch.script import Draft
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.plan import make_plan, read_presence
from tests.studies import HF_BY_32, trained, untrained, write_unloadable_model

ROOT = Path(__file__).parents[2]
SAMPLED = untrained("sampled")
TRAINED = trained("trained", [10, 20], {"max_tokens": 12})
# Lines of `scontrol --oneliner show job` and `show partition`, whole, as Slurm 22.05 prints them.
JOB = (
    "JobId=9 ArrayJobId=7 ArrayTaskId=2 ArrayTaskThrottle=4 JobName=tiny-0a1b2c-0001-sample "
    "UserId=ann(1000) GroupId=ann(1000) MCS_label=N/A Priority=4294901752 Nice=0 Account=dev "
    "QOS=normal JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 "
    "Reboot=0 ExitCode=0:0 RunTime=00:00:05 TimeLimit=00:05:00 TimeMin=N/A "
    "SubmitTime=2026-11-24T08:07:01 EligibleTime=2026-11-24T08:07:02 "
    "AccrueTime=2026-11-24T08:07:02 StartTime=2026-11-24T08:07:09 EndTime=2026-11-24T08:12:09 "
    "Deadline=N/A PreemptEligibleTime=2026-11-24T08:07:09 PreemptTime=None SuspendTime=None "
    "SecsPreSuspend=0 LastSchedEval=2026-11-24T08:07:09 Scheduler=Main Partition=gpu "
    "AllocNode:Sid=login1:4242 ReqNodeList=(null) ExcNodeList=(null) NodeList=n7 BatchHost=n7 "
    "NumNodes=1 NumCPUs=8 NumTasks=1 CPUs/Task=8 ReqB:S:C:T=0:0:*:* "
    "TRES=cpu=8,mem=64G,node=1,billing=8,gres/gpu=1 Socks/Node=* NtasksPerN:B:S:C=1:0:*:* "
    "CoreSpec=* MinCPUsNode=8 MinMemoryNode=64G MinTmpDiskNode=0 Features=(null) "
    "DelayBoot=00:00:00 OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null) "
    "Command=/a b/launches/0001/sample.sbatch WorkDir=/a b/launches/0001 Comment=rlbhpc:tiny "
    "StdErr=/a b/launches/0001/logs/x.log StdIn=/dev/null StdOut=/a b/launches/0001/logs/x.log "
    "Power= TresPerNode=gres:gpu:1"
)
PARTITION = (
    "PartitionName=gpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO "
    "QoS=N/A DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO "
    "MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED "
    "Nodes=n[1-16] PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO "
    "OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=1024 TotalNodes=16 "
    "SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED "
    "TRES=cpu=1024,mem=8T,node=16,billing=1024,gres/gpu=64"
)


def study_in(folder: Path, text: str = SAMPLED) -> tuple[Path, Study]:
    """Write a study with a model that nothing loads, and load the study."""
    folder.mkdir(parents=True)
    # A path in a study is one line; the study itself may lie in any folder.
    model = next(p for p in (folder, *folder.parents) if "\n" not in str(p)) / "model"
    write_unloadable_model(model)
    path = folder / "study.yaml"
    path.write_text(text.replace("path: model", f"path: {json.dumps(str(model))}"))
    return path, load_study(path)


def tiny(n: int, max_tokens: int = 12) -> str:
    """A study that jobs really sample."""
    return untrained("tiny", limit=23, n=n, max_tokens=max_tokens, engine=HF_BY_32)


def tiny_trained(n: int, steps: Sequence[int] = (1, 2), **recipe: object) -> str:
    """A study that jobs really train and sample."""
    recipe = {
        "prompts_per_step": 4, "samples_per_prompt": 4, "max_tokens": 12, "learning_rate": 1e-3,
        **recipe,
    }  # fmt: skip
    return trained("tiny", steps, recipe, (8, 8), sampling={"n": n}, engine=HF_BY_32)


def cluster_of(folder: Path, **keys: object) -> Cluster:
    path = folder / "site.yaml"
    path.write_text(yaml.safe_dump(keys))
    return load_cluster(path)


def jobs_in(
    folder: Path,
    cluster: Cluster,
    text: str = SAMPLED,
    shard_tokens: int = 150,
    options: dict[str, str] | None = None,
    width: int | None = None,
) -> tuple[Draft, list[Job]]:
    _, study = study_in(folder, text)
    plan = make_plan(study, read_presence(study.layout, list(study.blocks())), shard_tokens)
    plan.save(study.layout.plans)
    draft = Draft(study, plan.name, cluster, "site", options or {})
    return draft, jobs_of(study, plan, cluster, width)


def launch_in(folder: Path, cluster: Cluster, **keys: object) -> Path:
    return write_launch(*jobs_in(folder, cluster, **keys))  # type: ignore[arg-type]


def shown(line: str = JOB, **fields: object) -> str:
    """A line of scontrol with other values in some of its fields."""
    for name, text in fields.items():
        line, count = re.subn(rf"(?<!\S){name}=\S*", f"{name}={text}", line, count=1)
        assert count == 1, name
    return line


class Stubs:
    """Commands that stand in for those of a site; each call is recorded with its arguments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls_file = folder / "calls"
        folder.mkdir()

    def add(self, name: str, body: str = "") -> None:
        """A command that records its call and then runs some lines of bash."""
        path = self.folder / name
        path.write_text(
            "#!/bin/bash\n"
            "{ printf '%s\\0' " + name + " \"$@\"; printf '\\n\\0'; } >>"
            f"'{self.calls_file}'\n{body}\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def calls(self, name: str) -> list[list[str]]:
        """Arguments of every call of one command, in order."""
        if not self.calls_file.exists():
            return []
        records = self.calls_file.read_text().split("\n\0")
        split = [record.split("\0")[:-1] for record in records]
        return [words[1:] for words in split if words and words[0] == name]

    def run(self, *command: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.folder}:/usr/bin:/bin", "HOME": str(self.folder),
            "PYTHONPATH": str(ROOT), **more,
        }  # fmt: skip
        return subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, check=False,
            timeout=60,
        )  # fmt: skip


def slurm_variables(folder: Path, task: int | None = None) -> dict[str, str]:
    found = {"SLURM_JOB_ID": "7", "SLURM_SUBMIT_DIR": str(folder), "TMPDIR": os.fspath(folder)}
    if task is not None:
        found |= {"SLURM_ARRAY_JOB_ID": "6", "SLURM_ARRAY_TASK_ID": str(task)}
    return found
