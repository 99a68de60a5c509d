"""The verbs that tend a run's store: `seal`, `compact`, `gc`, `merge`."""

from __future__ import annotations

from pathlib import Path

import click

from rlbhpc.cli import shared
from rlbhpc.cli.shared import print_json, print_rows, tell
from rlbhpc.debug_log import keep
from rlbhpc.errors import DONE, INCOMPLETE, NOTHING_TO_DO
from rlbhpc.store import left_out
from rlbhpc.store.compact import compact as derive_cube
from rlbhpc.store.left_out import Note
from rlbhpc.store.merge import merge as merge_runs
from rlbhpc.store.parts import TokenPolicy
from rlbhpc.store.reader import purged_notes
from rlbhpc.store.seal import IDLE_HOURS, seal_and_clean, seal_run
from rlbhpc.store.seal import gc as remove_sealed
from rlbhpc.store.sources import Sources, groups_of_run
from rlbhpc.study.layout import Layout


@click.command(epilog="Example: rlbhpc seal runs/math --tokens all")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--tokens",
    type=click.Choice(["none", "sampled", "all"]),
    help="Whose token ids, log-probs and entropies to keep; sums are kept of all. 'sampled' is "
    "1 % and every right answer to a rarely solved problem. Default: storage.tokens of the study.",
)
@click.option(
    "--verify", is_flag=True, help="Read everything, also what is sealed; note what is damaged."
)
@shared.as_json
def seal(run: Path, tokens: TokenPolicy | None, verify: bool, as_json: bool) -> int:
    """Seal the journals of the run in the folder RUN into Parquet parts.

    A range of problems is sealed when all its samples are there. Journals stay; see gc. Jobs may
    go on writing. Exit code 3 says that ranges are still incomplete or that samples were left
    out, 4 that there was nothing new.
    """
    layout = Layout(run)
    keep(layout.logs, "seal", layout.grids)
    groups = seal_run(layout, tokens, verify=verify)
    rows = []
    notes: list[Note] = []
    # ``sealed`` counts ranges of problems that are now in Parquet parts, ``open`` those that lack
    # samples.
    for (arm, set_name), sealing in groups.items():
        notes += sealing.notes
        rows.append({
            "arm": arm,
            "problem_set": set_name,
            "new_parts": len(sealing.made),
            "sealed": sealing.sealed,
            "open": sealing.open,
            "damaged_samples": sealing.damaged,
        })  # fmt: skip
    left_out.warn_left_out(run, notes)
    if as_json:
        print_json({"groups": rows, "notes": [note.text for note in notes]})
    else:
        print_rows("Ranges of problems", rows)
    if any(sealing.open for sealing in groups.values()):
        return INCOMPLETE
    return DONE if any(sealing.made for sealing in groups.values()) else NOTHING_TO_DO


@click.command(epilog="Example: rlbhpc compact runs/math")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--rebuild", is_flag=True, help="Take nothing over from the cube that is there.")
@click.option(
    "--seal", is_flag=True,
    help="First seal journals and remove those that are sealed, as the jobs of a launch do.",
)  # fmt: skip
def compact(run: Path, rebuild: bool, seal: bool) -> int:
    """Bring the cube of the run in the folder RUN up to date with all samples.

    The cube is derived from journals and parts, which stay as they are. Its bytes depend on the
    samples alone, so that it can be deleted and derived anew at any time, also while jobs are
    writing. Exit code 4 says that there was nothing new.
    """
    layout = Layout(run)
    keep(layout.logs, "compact", layout.grids)
    if seal:
        seal_and_clean(layout)
    # The cube lies in bands of problems; one whose samples are the same is kept, as a link.
    derived = derive_cube(layout, rebuild=rebuild)
    left_out.warn_left_out(run, derived.notes)
    if derived.new:
        click.echo(f"{layout.cube}: {derived.bands:,} bands derived, {derived.linked:,} kept.")
    else:
        click.echo(f"{layout.cube} holds everything already.")
    return DONE if derived.new else NOTHING_TO_DO


@click.command(epilog="Example: rlbhpc gc runs/math")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--idle",
    type=click.FloatRange(min=0),
    default=IDLE_HOURS,
    show_default=True,
    help="Hours without change after which a journal that was never closed has no writer any "
    "more. 0 is safe when no job of the study is running.",
)
def gc(run: Path, idle: float) -> int:
    """Remove the journals of the run in the folder RUN whose samples are sealed.

    All parts are read and checked first. Exit code 3 says that some samples cannot be used, 4
    that there was nothing to remove.
    """
    layout = Layout(run)
    keep(layout.logs, "gc", layout.grids)
    removed = 0
    freed_bytes = 0
    notes: list[Note] = []
    # A group is the samples of one arm on one problem set.
    for arm, set_name in groups_of_run(layout):
        cleaning = remove_sealed(layout, arm, set_name, idle_hours=idle)
        removed += len(cleaning.removed)
        freed_bytes += cleaning.freed
        for journal in cleaning.kept:
            tell(str(journal))
        notes += [skipped.note for skipped in cleaning.skipped]
    left_out.warn_left_out(run, notes)
    click.echo(f"{removed:,} files removed, {freed_bytes / 1e6:,.1f} MB freed.")
    return DONE if removed else NOTHING_TO_DO


@click.command(epilog="Example: rlbhpc merge runs/math /media/stick/math")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("other", type=click.Path(path_type=Path))
def merge(run: Path, other: Path) -> int:
    """Copy into the run in the folder RUN what the folder OTHER has of the same study.

    Everything is compared first: two different samples with one key, or a problem that was asked
    in two ways, stop the merge before anything is copied. OTHER stays as it is. Exit code 3 says
    that files or samples were left out, 4 that there was nothing new.
    """
    layout = Layout(run)
    keep(layout.logs, "merge", layout.grids)
    merged = merge_runs(layout, Layout(other))
    left_out.warn_left_out(run, [skipped.note for skipped in merged.skipped])
    left_out.warn_left_out(other, purged_notes(Sources.survey(Layout(other))))
    click.echo(f"{merged.added:,} new samples, {len(merged.copied):,} files copied to {run}.")
    return DONE if merged.copied else NOTHING_TO_DO
