"""``rlbhpc doctor``: what this site can do, and what to mind."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from rlbhpc.cli.table import print_json, print_table
from rlbhpc.errors import DONE, INCOMPLETE, UserError
from rlbhpc.launch.cluster import choose, folders
from rlbhpc.launch.doctor import examine, write_entry
from rlbhpc.launch.options import read_options
from rlbhpc.launch.rehearse import rehearse as run_rehearsal


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog="Example: rlbhpc doctor runs --write my-site; then rlbhpc doctor runs --rehearse",
)
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
@click.argument("sbatch", metavar="[SBATCH OPTIONS]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--write", "name", metavar="NAME", help="Write a first entry of the cluster table.")
@click.option("--rehearse", is_flag=True, help="Warn a job of a minute and see it come back.")
@click.option("--cluster", metavar="NAME|FILE", help="For --rehearse.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def doctor(
    folder: Path, sbatch: tuple[str, ...], name: str | None, rehearse: bool, cluster: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Look at this site and at FOLDER, where runs will be kept.

    Exit code 3 says that something was found that would not work.
    """
    options = read_options(sbatch)
    if rehearse:
        _, entry = choose(cluster)
        return DONE if run_rehearsal(folder, entry, options, click.echo) else INCOMPLETE
    found = examine(folder)
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        rows = [[one.what, one.found, one.verdict, one.advice] for one in found]
        print_table("This site", ["what", "found", "", "what to do"], rows)
    if name is not None:
        path = folders()[0] / f"{name}.yaml"
        try:
            write_entry(path)
        except FileExistsError:
            raise UserError(f"{path} exists; choose another name or remove it") from None
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}; name a folder in RLBHPC_CLUSTERS") from None
        click.echo(f"{path} written; read it and fill in what is missing", err=True)
    return INCOMPLETE if any(one.verdict == "bad" for one in found) else DONE
