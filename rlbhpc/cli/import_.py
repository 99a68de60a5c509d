"""``rlbhpc import``: take in results that other tools measured."""

from __future__ import annotations

from pathlib import Path

import click

from rlbhpc.cli import shared
from rlbhpc.cli.table import print_json, tell
from rlbhpc.debug_log import keep
from rlbhpc.errors import DONE, NOTHING_TO_DO
from rlbhpc.exchange.arriving import Target, impossible_checks
from rlbhpc.exchange.imports import import_files
from rlbhpc.study.layout import Layout


@click.command(
    epilog="Example: rlbhpc import runs/published counts.csv --arm pythia-70m --set math"
)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--arm", required=True, help="Arm to put them in.")
@click.option("--set", "problem_set", required=True, help="Problem set that they answer.")
@click.option("--model", help="Model that was measured; the arm's name if not given.")
@click.option("--metric", help="Score that decides, where a file has several.")
@click.option(
    "--judge-again", "judge", metavar="VERIFIER", help="Judge the texts by this verifier."
)
@shared.as_json
def import_(
    run: Path,
    files: tuple[Path, ...],
    arm: str,
    problem_set: str,
    model: str | None,
    metric: str | None,
    judge: str | None,
    as_json: bool,
) -> int:
    """Put results from FILES into the run in the folder RUN.

    \b
    Formats, told apart by ending (and .gz) and content; a folder stands for the files in it:
      CSV, JSON       problem, n, c and possibly step in a row: counts
                      problem and correct, score or verdict in a row: a response; also JSON Lines
      HELM            per_instance_stats.json: counts of the metric that --metric names
      lm-eval         samples_*.jsonl of --log_samples; repeats need --judge-again
      inspect         .eval and .json logs; an epoch is a sample
      limit-of-RLVR   *.jsonl with idx, code, pred, score (also Qwen2.5-Math's evaluation)
      NeMo-Skills     output-rs*.jsonl; the seed is the sample
      verl            <step>.jsonl of rollout_data_dir or validation_data_dir
      EvalPlus        *_eval_results.json
      LiveCodeBench   *_eval_all.json
    --judge-again math compares the texts with the file's own reference answers by rlbhpc's grader.
    Importing the same files again changes nothing (exit code 4).
    """  # noqa: D301 - click takes the backspace as "leave the lines below as they are"
    run.mkdir(parents=True, exist_ok=True)
    target = Target(arm, problem_set, model or arm)
    layout = Layout(run)
    done = import_files(layout, files, target, metric, judge)
    keep(layout.logs, "import", layout.attempts)
    if as_json:
        numbers = ("samples", "failed", "known", "counts", "shortfalls")
        print_json({name: getattr(done, name) for name in numbers})
    else:
        parts = [
            f"{done.samples:,} samples" if done.samples else "",
            f"{done.failed:,} of them failed, neither right nor wrong" if done.failed else "",
            f"counts of {done.counts:,} problems" if done.counts else "",
            f"{done.known:,} known already" if done.known else "",
        ]
        click.echo(f"{arm}/{problem_set}: {', '.join(filter(None, parts)) or 'nothing'}.")
        if done.samples:
            click.echo(impossible_checks(done.absent))
    for line in done.shortfalls:
        tell(line)
    if done.error:
        tell(f"Some samples are neither right nor wrong: {done.error}")
    for line in done.unread:
        tell(
            f"Not read of {line}. Subfolders are not entered, and these files are of no known "
            "format; name what belongs to this arm."
        )
    for twin in done.twins:
        tell(
            f"{arm} and {twin} hold samples of the same file on {problem_set}: nothing can differ "
            "between them. Was one of the two files meant to be another?"
        )
    return DONE if done.samples or done.counts else NOTHING_TO_DO
