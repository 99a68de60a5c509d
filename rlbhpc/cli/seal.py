"""``rlbhpc seal``: journals into parts."""

from __future__ import annotations

from pathlib import Path

import click

from rlbhpc.cli import shared
from rlbhpc.debug_log import keep
from rlbhpc.errors import DONE, INCOMPLETE, NOTHING_TO_DO
from rlbhpc.store import left_out
from rlbhpc.store.parts import TokenPolicy
from rlbhpc.store.seal import seal_run
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
    keep(layout.logs, "seal", layout.attempts)
    done = seal_run(layout, tokens, verify=verify)
    rows = [
        {
            "arm": arm,
            "problem_set": set_name,
            "new_parts": len(sealed.made),
            "sealed": sealed.sealed,
            "open": sealed.open,
            "damaged_samples": sealed.damaged,
        }
        for (arm, set_name), sealed in done.items()
    ]
    notes = [note for sealed in done.values() for note in sealed.notes]
    left_out.tell(run, notes)
    if as_json:
        print_json({"groups": rows, "notes": [note.text for note in notes]})
    else:
        print_rows("Ranges of problems", rows)
    if any(sealed.open for sealed in done.values()):
        return INCOMPLETE
    return DONE if any(sealed.made for sealed in done.values()) else NOTHING_TO_DO
