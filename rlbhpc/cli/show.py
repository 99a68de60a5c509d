"""``rlbhpc show``: look at problems, samples and responses."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from rlbhpc.cli import shared
from rlbhpc.cli.shared import print_json, print_table, tell, visible
from rlbhpc.engines.completion import finish_name
from rlbhpc.errors import DONE, NOTHING_TO_DO, UserError
from rlbhpc.store.questions import Question
from rlbhpc.store.samples import StoredSample
from rlbhpc.verify.verdict import Status
from rlbhpc.view.run import Browser, Choice, ProblemRow, SampleRow


@click.command(
    epilog="Examples: rlbhpc show runs/math --problem 17 --sample 3; "
    "rlbhpc show runs/math --arm base --thin"
)
@click.argument("run", type=click.Path(path_type=Path))
@shared.one_arm
@shared.one_step
@click.option("--problem", help="Problem id, with or without its set: show its samples.")
@click.option("--sample", type=click.IntRange(min=0), help="With --problem: show this response.")
@click.option("--thin", is_flag=True, help="Keep to problems solved at most twice.")
@click.option("--wrong", is_flag=True, help="Show samples, and of these the ones not right.")
@shared.as_json
def show(
    run: Path,
    arm: str | None,
    step: int | None,
    problem: str | None,
    sample: int | None,
    thin: bool,
    wrong: bool,
    as_json: bool,
) -> int:
    """Look at problems, samples and responses of the run in the folder RUN.

    Without --problem: every problem with its samples and how many are right. With --problem: its
    samples. With --problem and --sample: the response itself, with the question, its reference
    answer, verdict, tokens, seed and the file it stands in. Text of models is shown, never
    executed: control characters appear as pictures.
    """
    if sample is not None and problem is None:
        raise UserError("--sample needs --problem: say whose sample")
    browser = Browser(run, Choice(arm, step, problem, sample, thin, wrong))
    if sample is not None:
        return _show_responses(browser, as_json)
    if problem is not None or wrong:
        return _show_rows("Samples", SampleRow._fields, browser.samples(), as_json)
    return _show_rows("Problems", ProblemRow._fields, browser.problems(), as_json)


def _show_rows(
    title: str, columns: tuple[str, ...], rows: Iterable[ProblemRow | SampleRow], as_json: bool
) -> int:
    matches = [row._asdict() for row in rows]
    if as_json:
        print_json(matches, ascii_only=True)
    else:
        heads = [name.replace("_", " ") for name in columns]
        # A seed is a name, not a number to be grouped by thousands.
        table = [
            [
                visible(str(value), lines=False)
                if isinstance(value, str) or name == "seed"
                else value
                for name, value in row.items()
            ]
            for row in matches
        ]
        print_table(f"{title} ({len(matches):,})", heads, table)
    return DONE if matches else NOTHING_TO_DO


def _show_responses(browser: Browser, as_json: bool) -> int:
    matches = [(found, browser.question_of(found.sample.key)) for found in browser.responses()]
    if as_json:
        print_json([_values(*match) for match in matches], ascii_only=True)
        return DONE if matches else NOTHING_TO_DO
    for match in matches:
        values = _values(*match)
        texts = [values.pop("question"), values.pop("text")]
        if texts[0] is None:
            texts[0] = "(The question isn't stored in this run.)"
        for name, value in values.items():
            if value != "" and value is not None:
                label = f"{name.replace('_', ' ')}:"
                click.echo(f"{label:<14}{visible(str(value), lines=False)}")
        for text in texts:
            click.echo()
            click.echo(visible(text))
        click.echo()
    if not matches:
        tell("No such sample.")
    return DONE if matches else NOTHING_TO_DO


def _values(found: StoredSample, question: Question | None) -> dict[str, Any]:
    sample, origin = found
    key = sample.key
    tokens = sample.n_tokens
    has_logprobs = tokens > 0 and sample.logprob_sum == sample.logprob_sum
    return {
        "problem": key.problem,
        "sample": key.sample,
        "arm": key.arm,
        "step": key.step,
        "verdict": Status(sample.verdict).name.lower(),
        "rule": sample.rule,
        "answer": sample.answer,
        "reference": question and question.reference,
        "error": sample.error,
        "finish": finish_name(sample.finish),
        "n_tokens": tokens,
        "mean_logprob": sample.logprob_sum / tokens if has_logprobs else None,
        "mean_entropy": sample.entropy_sum / tokens if has_logprobs else None,
        "seed": sample.seed,
        "fingerprint": sample.fingerprint,
        "grader": sample.grader,
        "origin": origin,
        "question": question and question.question,
        "text": sample.text,
    }
