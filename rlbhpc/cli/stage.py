"""``rlbhpc stage``: fetch problem sets, or check folders that were fetched before."""

from __future__ import annotations

from pathlib import Path

import click

from rlbhpc.cli.shared import print_json, print_table
from rlbhpc.debug_log import keep
from rlbhpc.errors import DONE, NOTHING_TO_DO, UserError
from rlbhpc.problems import stage as staging
from rlbhpc.problems.registry import set_names


@click.command(
    epilog="Example: rlbhpc stage math500 aime24 --to data, "
    "then on a node without a network: rlbhpc stage --to data --check"
)
@click.argument("names", metavar="[SET]...", nargs=-1)
@click.option(
    "--to", type=click.Path(path_type=Path), default=Path("data"), show_default=True,
    help="Folder that holds one folder per set.",
)  # fmt: skip
@click.option("--revision", metavar="REV", help="Commit, tag or branch on the hub (one set only).")
@click.option(
    "--check", "only_check", is_flag=True, help="Compare with the manifest; fetch nothing."
)
@click.option("--json", "as_json", is_flag=True, help="Print the manifests as JSON.")
def stage(
    names: tuple[str, ...], to: Path, revision: str | None, only_check: bool, as_json: bool
) -> int:
    """Fetch problem sets into folders with a manifest of revision and hashes.

    A set that is there already and matches its manifest is left alone. Without a network this says
    which command to run where. With --check and no SET, everything staged under --to is checked.
    """
    names = names or (tuple(staging.staged(to)) if only_check else ())
    if not names:
        raise UserError(
            f"{to}: nothing staged in it" if only_check else f"name a set: {', '.join(set_names())}"
        )
    if revision is not None and (len(names) != 1 or only_check):
        raise UserError("--revision goes with one set to fetch")
    manifests, fetched = [], []
    for name in names:
        if only_check:
            manifest, new = staging.check(to / name), False
        else:
            # A call that fetches nothing makes no folder.
            keep(to / "logs", "stage", to)
            manifest, new = staging.stage(name, to, revision)
            keep(to / "logs", "stage", to)
        manifests.append(manifest)
        fetched.append(new)
    if as_json:
        print_json({manifest.set: manifest.__dict__ for manifest in manifests})
    else:
        print_table(
            f"Problem sets under {to}",
            ("set", "state", "revision", "files", "problems", "digest"),
            [
                (
                    manifest.set,
                    "fetched" if new else "unchanged",
                    str(manifest.source.get("revision", "-"))[:12],
                    len(manifest.files),
                    ", ".join(
                        f"{key} {part['count']:,}" for key, part in manifest.problems.items()
                    ),
                    ", ".join(part["digest"] for part in manifest.problems.values()),
                )
                for manifest, new in zip(manifests, fetched, strict=True)
            ],
        )
    return DONE if only_check or any(fetched) else NOTHING_TO_DO
