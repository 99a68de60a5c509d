"""``rlbhpc audit``: how often verdicts are wrong, by people who read a sample blindly."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from rlbhpc.cli import shared
from rlbhpc.cli.shared import print_json, print_table, visible
from rlbhpc.debug_log import keep
from rlbhpc.errors import DONE, NOTHING_TO_DO
from rlbhpc.study.layout import Layout
from rlbhpc.sweep.again import StoredRun
from rlbhpc.sweep.audit import (
    Answers,
    Audit,
    Shown,
    crosstable,
    disagreements,
    draw,
    exchange_judgements,
    read_again,
)
from rlbhpc.verify.error_audit import (
    ErrorRate,
    ErrorRates,
    Judgement,
    Side,
    Word,
    load_error_rates,
    load_judgements,
    store_judgement,
)
from rlbhpc.verify.kinds.judge import open_judge

_KEYS: Final[Mapping[str, Word]] = {"r": "right", "w": "wrong", "u": "unclear"}
_SHOWN: Final = 20
_ANSWER: Final = 60


@click.command(
    epilog="Examples: rlbhpc audit runs/math; rlbhpc audit runs/math --judgements mine.jsonl; "
    "rlbhpc audit runs/math --judge http://localhost:8000/v1/some-model"
)
@click.argument("run", type=click.Path(path_type=Path))
@shared.one_arm
@shared.one_step
@click.option("--responses", type=click.IntRange(min=5), default=200, show_default=True,
    help="Draw about so many responses of each arm on each problem set.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Which responses.")
@click.option("--judgements", type=click.Path(path_type=Path, dir_okay=False),
    help="Take judgements from this file of JSON lines, and write what is to be read into it.",
)  # fmt: skip
@click.option("--judge", metavar="URL/MODEL",
    help="Ask a served model, or the model in a folder, where rules could not read an answer.",
)  # fmt: skip
@click.option("--key-env", help="With --judge: the environment variable with the server's key.")
@shared.judging_workers
@shared.as_json
def audit(
    run: Path, arm: str | None, step: int | None, responses: int, seed: int,
    judgements: Path | None, judge: str | None, key_env: str | None, workers: int, as_json: bool,
) -> int:  # fmt: skip
    """Find out how often the verdicts of the run in the folder RUN are wrong, for each arm.

    Draws responses and shows question, response and reference answer, but neither arm nor verdict.
    You say whether the answer is right: r, w, or u for unclear; q ends, and the same command goes
    on. First come right answers to problems that are hardly ever solved, then those on which
    Math-Verify or a judge disagrees. What you say becomes rates of false right and false wrong
    verdicts with intervals, which `rlbhpc report` carries into its answer.

    Verdicts stay as they are. What Math-Verify and the judge say is kept beside them, in the run's
    folder audit/.
    """
    layout = Layout(run)
    keep(layout.logs, "audit", layout.attempts)
    stored = StoredRun(layout, arm, step)
    answers = read_again(stored, workers, open_judge(judge, key_env) if judge else None)
    sample = draw(stored, answers, responses, seed)
    if judgements is not None:
        taken = exchange_judgements(layout, sample, judgements)
        waiting = _count_waiting(layout, sample)
        shared.tell(f"{judgements}: {taken:,} judgements taken; {waiting:,} to read")
        if waiting:
            shared.tell(
                'Write "right", "wrong" or "unclear" as the judgement of any line, then give the '
                "same command again."
            )
    elif not as_json and _is_terminal():
        _read_responses(layout, sample)
    rates = load_error_rates(layout)
    if as_json:
        print_json(_record(layout, sample, answers, rates))
    else:
        _print(layout, sample, answers, rates)
    return DONE if sample.strata else NOTHING_TO_DO


# --- at the terminal -----------------------------------------------------------------------------


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _read_responses(layout: Layout, sample: Audit) -> None:
    """Show one response after the other until there is none, or the reader quits."""
    queue = sample.queue(load_judgements(layout))
    for number, key in enumerate(queue, start=1):
        click.clear()
        click.echo(_page(sample.shown[key], f"{number:,} of {len(queue):,}"))
        word = _asked_word()
        if word is None:
            return
        store_judgement(layout, Judgement(key, word, reader=os.environ.get("USER", "")))


def _page(shown: Shown, place: str) -> str:
    sections = (("Question", shown.question), ("Response", shown.response), ("Gold", shown.gold))
    texts = [f"{click.style(name, bold=True)}\n{visible(text)}\n" for name, text in sections]
    return "\n".join([*texts, f"({place}) Is its answer right? r, w, u for unclear, q to quit"])


def _asked_word() -> Word | None:
    while True:
        letter = click.getchar().lower()
        if letter in ("q", "\x03", "\x04"):
            return None
        if letter in _KEYS:
            return _KEYS[letter]


# --- what came of it -----------------------------------------------------------------------------


def _count_waiting(layout: Layout, sample: Audit) -> int:
    return len(sample.queue(load_judgements(layout)))


def _print(
    layout: Layout, sample: Audit, answers: Answers, rates: Mapping[Side, ErrorRates]
) -> None:
    heads = ["rules", "Math-Verify", "judge", "answers", "samples"]
    print_table("Answers by reader", heads, crosstable(answers.values()))
    disputed = disagreements(answers.values())
    if disputed:
        rows = [
            [reading.problem, _short(reading.gold), _short(reading.text),
             "right" if reading.right else "wrong", reading.rule, reading.math_verify,
             reading.judge or "-", reading.samples]
            for reading in disputed[:_SHOWN]
        ]  # fmt: skip
        heads = ["problem", "gold", "answer", "rules", "rule", "Math-Verify", "judge", "samples"]
        print_table("Answers on which a second reader disagrees", heads, rows)
        if len(disputed) > _SHOWN:
            click.echo(f"and {len(disputed) - _SHOWN:,} more in {layout.second_readings}\n")
    heads = ["arm", "false right, %", "of read", "false wrong, %", "of read"]
    rows = [
        [str(side), _share(r.false_right), r.false_right.read, _share(r.false_wrong),
         r.false_wrong.read]
        for side, r in rates.items()
    ]  # fmt: skip
    print_table("Error rates of the verdicts, with 95 % intervals", heads, rows)
    remaining = _count_waiting(layout, sample)
    if remaining:
        click.echo(
            f"{remaining:,} drawn responses are to be read: give the command at a terminal, or "
            "with --judgements FILE."
        )


def _share(rate: ErrorRate) -> str:
    if math.isnan(rate.rate):
        return "unknown"
    return f"{100 * rate.rate:.2f} [{100 * rate.low:.2f}, {100 * rate.high:.2f}]"


def _record(
    layout: Layout, sample: Audit, answers: Answers, rates: Mapping[Side, ErrorRates]
) -> dict[str, Any]:
    return {
        "error_rates": [
            side._asdict() | {name: _rate_record(rate) for name, rate in both._asdict().items()}
            for side, both in rates.items()
        ],
        "strata": [
            stratum.side._asdict()
            | {"name": stratum.name, "size": stratum.size, "drawn": len(stratum.drawn)}
            for stratum in sample.strata
        ],
        "to_read": _count_waiting(layout, sample),
        "second_readings": [
            dict(zip(("rules", "math_verify", "judge", "answers", "samples"), row, strict=True))
            for row in crosstable(answers.values())
        ],
    }


def _rate_record(rate: ErrorRate) -> dict[str, Any]:
    record = vars(rate).copy()
    if math.isnan(rate.rate):
        record["rate"] = None
    return record


def _short(text: str) -> str:
    """Model text fit for a line of a terminal."""
    return visible(text if len(text) <= _ANSWER else text[: _ANSWER - 1] + "…", lines=False)
