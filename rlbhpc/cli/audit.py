"""``rlbhpc audit``: would another reader of answers, or another grader, have said the same?"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

import click

from rlbhpc.cli import shared
from rlbhpc.cli.shared import print_json, print_table, visible
from rlbhpc.debug_log import keep
from rlbhpc.errors import DONE
from rlbhpc.report.aspect import Report
from rlbhpc.report.aspects.graders import audited, survival
from rlbhpc.report.gather import gather, read_pair
from rlbhpc.report.phrases import bounds, percent
from rlbhpc.study.layout import Layout
from rlbhpc.sweep.audit import Side, audit_run
from rlbhpc.verify.audit.style import JUDGINGS
from rlbhpc.verify.audit.witness_replay import FAILS

_RESPONSES: Final = 2000
_SHOWN: Final = 10
_TAIL: Final = 60


@click.command(
    epilog="Examples: rlbhpc audit runs/math; rlbhpc audit runs/math --responses 10000 "
    "--workers 8; rlbhpc audit runs/math --share 0.002"
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--compare", metavar="BASE:TRAINED", multiple=True,
    help="Compare these arms, not those of the study; may be given again.",
)  # fmt: skip
@click.option("--responses", type=click.IntRange(min=1), default=_RESPONSES, show_default=True,
    help="Responses of each arm, equally many to each problem.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Which responses.")
@click.option(
    "--share", type=click.FloatRange(min=0, max=1), default=0.01, show_default=True,
    help="List the responses where more than this share is judged otherwise.",
)  # fmt: skip
@shared.judging_workers
@shared.as_json
def audit(
    run: Path, compare: tuple[str, ...], responses: int, seed: int, share: float, workers: int,
    as_json: bool,
) -> int:  # fmt: skip
    """Judge a sample of the responses in the folder RUN under other readers and another grader.

    Answers are read in three ways (as this project reads them, the last box alone, the last value)
    and graded by two graders (this project's, Math-Verify), for the base and the trained arm of
    each comparison. It says whether each conclusion survives, and lists responses that are judged
    otherwise. `rlbhpc report` shows the same from then on.
    """
    report = gather(run, [read_pair(text) for text in compare])
    layout = Layout(run)
    keep(layout.logs, "audit", layout.attempts)
    record = audit_run(layout, _sides(report), responses, seed, workers, _SHOWN)
    if as_json:
        print_json(record)
        return DONE
    comparisons = audited(report)
    for comparison in comparisons:
        rows = [
            [judged.judging, *(percent(rate) for rate in judged.rates),
             bounds(judged.difference, 0, sign=True), bounds(judged.difference, -1, sign=True),
             "yes" if judged.survives else "no"]
            for judged in comparison.judged
        ]  # fmt: skip
        heads = ["reader, grader", "base, %", "trained, %", "difference at k = 1",
                 f"at k = {comparison.k:,}", "survives"]  # fmt: skip
        print_table(comparison.title, heads, rows)
    for cell in record["cells"]:
        _print_cell(cell, share)
    for comparison in comparisons:
        click.echo(survival(comparison))
    return DONE


def _sides(report: Report) -> list[Side]:
    """Both sides of every comparison; without one, every arm at its last step."""
    compared = [side for cell in report.final for side in (cell.base, cell.trained)]
    last = {(cell.arm, cell.problem_set): cell for cell in report.measured}
    sides = compared or last.values()
    return list(dict.fromkeys(Side(side.arm, side.problem_set, side.step) for side in sides))


def _print_cell(cell: dict[str, Any], share: float) -> None:
    """Shares of an arm's responses that each judging sees otherwise, and some of those."""
    name = f"{cell['arm']}, step {cell['step']}, {cell['problem_set']}"
    shares = {judging: count / cell["responses"] for judging, count in cell["differing"].items()}
    rows = [[judging, cell["differing"][judging], percent(shares[judging])] for judging in shares]
    heads = ["reader, grader", "judged otherwise", f"of {cell['responses']:,}, %"]
    print_table(name, heads, rows[1:])
    replays = Counter(case["replay"] or "without a witness" for case in cell["witnesses"])
    replayed = ", ".join(f"{count:,} {word}" for word, count in sorted(replays.items()))
    click.echo(
        f"What {sum(replays.values()):,} distinct right answers rest on: {replayed or 'none'}."
    )
    failing = [
        [case["problem"], _short(case["answer"]), visible(case["witness"], lines=False)]
        for case in cell["witnesses"]
        if case["replay"] == FAILS
    ]
    if failing:
        print_table("Right answers whose witness fails", ["problem", "answer", "witness"], failing)
    click.echo()
    listed = [
        [case["judging"], case["problem"], _short(case["gold"]), _short(case["answer"]),
         "right" if case["right"] else "not right", _short(case["response"])]
        for case in sorted(cell["differences"], key=lambda case: JUDGINGS.index(case["judging"]))
        if shares[case["judging"]] > share
    ]  # fmt: skip
    if listed:
        print_table(
            f"{name}: judged otherwise, where that is more than {share:.1%} "
            f"(at most {_SHOWN} of each; --json has them whole)",
            ["reader, grader", "problem", "gold", "answer", "judged", "response ends"], listed,
        )  # fmt: skip


def _short(text: str) -> str:
    return visible(text if len(text) <= _TAIL else "…" + text[-_TAIL + 1 :], lines=False)
