"""Launching from Python: what `rlbhpc launch` does, with submitit's jobs as the answer."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from submitit.core.core import Executor, Job
from submitit.local.local import LocalExecutor
from submitit.slurm.slurm import SlurmExecutor

from rlbhpc.errors import UserError
from rlbhpc.launch.cluster import HERE, Resources, choose
from rlbhpc.launch.folder import write_launch
from rlbhpc.launch.launches import launch_in, launches, layout_of
from rlbhpc.launch.local import run_here
from rlbhpc.launch.options import merged, read_options
from rlbhpc.launch.prepare import Prepared, prepare
from rlbhpc.launch.script import resource_options
from rlbhpc.launch.send import send


@dataclass(frozen=True)
class Launch:
    """A launch whose scripts lie in ``folder``."""

    folder: Path

    def submit(
        self, width: int | None = None, say: Callable[[str], None] = print
    ) -> dict[str, list[Job[str]]]:
        """Submit what was not submitted; submitit's jobs by the name of the script.

        On the cluster ``local`` the jobs have ended when this returns; ``width`` is how many tasks
        run at once.
        """
        if launch_in(self.folder).record["cluster"] == HERE:
            return run_here(self.folder, width, say)
        return {name: list(jobs) for name, jobs in send(self.folder, say).items()}

    def jobs(self) -> dict[str, list[Job[str]]]:
        """What was submitted, in this session or another, as submitit's jobs."""
        return {name: list(jobs) for name, jobs in launch_in(self.folder).submitted_jobs().items()}


def write(
    study: str | Path, cluster: str | None = None, sbatch: Sequence[str] = (), **more: Any
) -> Launch:
    """Write the scripts of what is missing of a study; nothing is submitted.

    ``cluster`` is a name of the cluster table, a path of one of its files, or ``local``;
    ``sbatch`` are options such as ``["-p", "gpu"]``; ``more`` are ``overrides``, ``only``,
    ``width``, ``throttle``, ``shard_tokens`` and ``retry_failed``, as of `rlbhpc launch`.
    """
    prepared = prepare(Path(study), cluster=cluster, options=read_options(sbatch), **more)
    if not prepared.jobs:
        raise UserError("; ".join(prepared.notes) or f"{study}: nothing is missing")
    return written(prepared)


def written(prepared: Prepared) -> Launch:
    """Write what was prepared."""
    return Launch(write_launch(prepared.draft, prepared.jobs))


def find(run: str | Path, number: int | None = None) -> Launch:
    """A launch of a run or study file: the newest, or that of a number."""
    layout = layout_of(Path(run))
    folders = launches(layout)
    named = [folder for folder in folders if number is None or int(folder.path.name) == number]
    if not named:
        what = "nothing was launched" if number is None else f"there is no launch {number}"
        raise UserError(f"{layout.root}: {what}")
    return Launch(named[-1].path)


class SiteExecutor(SlurmExecutor):
    """submitit's executor with a site filled in, over which wins what its user sets."""

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        """Drop what the site says of the same things, or of rivals such as --gres."""
        site = self.parameters.get("additional_parameters", {})
        own = kwargs.pop("additional_parameters", {})
        names = dict.fromkeys((*own, *(name.replace("_", "-") for name in kwargs)), "")
        left = {name: text for name, text in merged(site, names).items() if name not in names}
        super()._internal_update_parameters(**kwargs, additional_parameters={**left, **own})


def executor(
    cluster: str | None = None,
    kind: Literal["sample", "train", "light"] = "light",
    folder: str | Path = "submitit",
) -> Executor:
    """A submitit executor with the site filled in, for any function.

    What you set with ``update_parameters`` wins over the site's values.
    Functions and results are pickled, and run in this very environment outside any container.
    """
    name, entry = choose(cluster)
    if name == HERE:
        return LocalExecutor(folder)
    resources: Resources = getattr(entry, kind)
    plain = SiteExecutor(folder)
    variables = sorted(entry.environment.items())
    exports = [f"export {name}={shlex.quote(text)}" for name, text in variables]
    parameters = {
        # By their long names, options of the site rival nothing else.
        "additional_parameters": merged(resource_options(entry, resources), resources.options),
        "signal_delay_s": entry.warning,
        "setup": [*entry.setup, *exports],
        "array_parallelism": entry.throttle,
    }
    plain.update_parameters(**{name: value for name, value in parameters.items() if value})
    return plain
