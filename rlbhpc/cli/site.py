"""The verbs for a site: `doctor`, `image`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from rlbhpc.cli import shared
from rlbhpc.cli.jobs import few
from rlbhpc.cli.shared import print_json, print_table, tell
from rlbhpc.errors import DONE, INCOMPLETE, UserError
from rlbhpc.files import sha256_of
from rlbhpc.launch import container
from rlbhpc.launch.cluster import choose, folders
from rlbhpc.launch.doctor import examine, write_entry
from rlbhpc.launch.doctor import rehearse as run_rehearsal
from rlbhpc.launch.launches import layout_of
from rlbhpc.launch.script import read_options
from rlbhpc.launch.status import diagnose
from rlbhpc.study.layout import Layout


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog="Example: rlbhpc doctor runs --write my-site; then rlbhpc doctor runs --rehearse",
)
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
@click.argument("sbatch", metavar="[SBATCH OPTIONS]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--write", "name", metavar="NAME", help="Write a first cluster entry (or FILE.yaml).")
@click.option(
    "--rehearse",
    is_flag=True,
    help="Warn one task and cancel another: the one comes back, the other stays away.",
)
@click.option("--cluster", metavar="NAME|FILE", help="For --rehearse.")
@shared.as_json
def doctor(
    folder: Path, sbatch: tuple[str, ...], name: str | None, rehearse: bool, cluster: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Look at this site and at FOLDER, where runs will be kept; or at a run, and why jobs ended.

    Of a run's folder or a study file that was launched it names each cause that ended jobs or keeps
    them from starting, the line of the log that shows it, and what mends it. Exit code 3 says that
    something was found that does not work.
    """
    options = read_options(sbatch)
    if rehearse:
        _, entry = choose(cluster)
        return DONE if run_rehearsal(folder, entry, options, click.echo) else INCOMPLETE
    if name is None and (folder.is_file() or (folder / "study.json").is_file()):
        return _of_run(layout_of(folder), as_json)
    checks = examine(folder)
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        rows = [[check.what, check.found, check.verdict, check.advice] for check in checks]
        print_table("This site", ["what", "found", "", "what to do"], rows)
    if name is not None:
        path = _place_of_entry(name)
        try:
            write_entry(path)
        except OSError as error:
            if isinstance(error, FileExistsError) and path.exists():
                raise UserError(f"{path} exists; choose another name or remove it") from None
            advice = "name a folder in RLBHPC_CLUSTERS"
            raise UserError(f"{error.filename}: {error.strerror}; {advice}") from None
        tell(f"{path} written; read it and fill in what is missing")
    return INCOMPLETE if any(check.verdict == "bad" for check in checks) else DONE


def _place_of_entry(name: str) -> Path:
    """The file of a cluster's entry: what ends in .yaml is a path, as for ``--cluster``."""
    if name.endswith(".yaml"):
        return Path(name)
    if not name or "/" in name:
        raise UserError(f"--write: a name without '/', or a path that ends in .yaml; got {name!r}")
    return folders()[0] / f"{name}.yaml"


def _of_run(layout: Layout, as_json: bool) -> int:
    causes, now = diagnose(layout)
    code = INCOMPLETE if causes else DONE
    if as_json:
        print_json([asdict(cause) for cause in causes])
        return code
    for cause in causes:
        click.echo(f"{cause.cause} ({few(cause.jobs)})")
        if cause.evidence:
            click.echo(f"    {cause.evidence}")
        click.echo(f"    next: {cause.action}")
    if not causes:
        jobs = sum((now.queue or {}).values())
        text = f"{jobs} jobs are in the queue." if jobs else "rlbhpc status says what is missing."
        text = f"At work: {now.at_work}." if now.at_work else text
        click.echo(f"No job of {layout.root} ended badly. {text}")
    return code


@click.group(epilog="Example: rlbhpc image build cpu -o images/rlbhpc-cpu.sif")
def image() -> None:
    """Build and check the Apptainer images that jobs run in.

    Where images cannot be built, build them elsewhere from the same checkout and copy the .sif.
    """


@image.command(epilog="Example: rlbhpc image build gpu -o /project/images/rlbhpc-gpu.sif")
@click.argument("kind", type=click.Choice(container.KINDS))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Default: rlbhpc-KIND.sif.")
def build(kind: str, output: Path | None) -> int:
    """Build the image KIND from the checkout's containers/KIND.def."""
    sif = container.build(kind, output or Path(f"rlbhpc-{kind}.sif"))
    click.echo(f"{sif}: sha256 {sha256_of(sif)}")
    return DONE


@image.command(epilog="Example: rlbhpc image verify rlbhpc-gpu.sif")
@click.argument("sif", type=click.Path(path_type=Path))
@shared.as_json
def verify(sif: Path, as_json: bool) -> int:
    """Check that rlbhpc starts in the image SIF; show its labels and digest."""
    record = container.verify(sif)
    if as_json:
        print_json(record)
        return DONE
    for name, value in sorted(record["labels"].items()):
        click.echo(f"{name}: {value}")
    click.echo(f"{record['rlbhpc']}\nsha256 {record['sha256']}")
    return DONE
