"""The verbs that take results in and hand them on: `import`, `export`, `select`."""

from __future__ import annotations

from pathlib import Path

import click

from rlbhpc.cli import shared
from rlbhpc.cli.shared import print_json, tell
from rlbhpc.debug_log import keep
from rlbhpc.errors import DONE, NOTHING_TO_DO, UserError
from rlbhpc.exchange.arriving import Target, impossible_checks
from rlbhpc.exchange.exports import FORMATS
from rlbhpc.exchange.exports import export as write
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


_LIST = "\n".join(f"  {ending:9} {form.what}" for ending, form in FORMATS.items())


@click.command(
    epilog="Example: rlbhpc export runs/math counts.csv",
    help="Write the results of the run in the folder RUN to OUT, a file or folder whose ending "
    f"says how.\n\n\b\n{_LIST}",
)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
def export(run: Path, out: Path) -> int:
    """Write results in the format that an ending names."""
    amount = write(Layout(run), out)
    click.echo(f"{out}: {amount or 'nothing to write'}")
    return DONE if amount else NOTHING_TO_DO


_WORDS = {"unsolved": "no right sample", "thin": "one or two right samples"}


@click.command(epilog="Example: rlbhpc select runs/math base omni-train 0.1-0.9 > middle.txt")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("arm")
@click.argument("problem_set", metavar="SET")
@click.argument("take", metavar="unsolved|thin|LOW-HIGH")
@click.option("--step", type=int, help="Of the arm's checkpoints; the first by default.")
def select(run: Path, arm: str, problem_set: str, take: str, step: int | None) -> int:
    """Print the ids of the problems of SET that ARM solves at a certain rate, one a line.

    unsolved: never in its samples; thin: once or twice; LOW-HIGH: in a share between the two, both
    included. A problem set of a study takes the file as `ids`. Problems without samples are left
    out.
    """
    from rlbhpc.store.reader import open_cube

    low, high = _bounds(take)
    tree = open_cube(run)
    path = f"{arm}/{problem_set}"
    if f"/{path}" not in tree.groups:
        groups = [node.path.strip("/") for node in tree.subtree if "verdict" in node]
        names = ", ".join(sorted(groups))
        raise UserError(f"{run}: no samples of {path}; there are {names}")
    counts = tree[path].to_dataset().rlb.counts()
    steps = counts["step"].values.tolist()
    if step is not None and step not in steps:
        raise UserError(f"{path}: no step {step}; there are {', '.join(map(str, steps))}")
    at_step = counts.sel(step=steps[0] if step is None else step)
    values = at_step["c"] if take in _WORDS else at_step.rlb.pass_at_k(1, ragged=True)
    sampled = at_step["n"].values > 0
    for problem, value in zip(
        at_step["problem"].values[sampled].tolist(), values.values[sampled].tolist(), strict=True
    ):
        if low <= value <= high:
            click.echo(problem)
    return DONE


def _bounds(take: str) -> tuple[float, float]:
    if take in _WORDS:
        return (0, 0) if take == "unsolved" else (1, 2)
    low, _, high = take.partition("-")
    try:
        bounds = float(low), float(high)
    except ValueError:
        bounds = (1.0, 0.0)
    if not 0 <= bounds[0] <= bounds[1] <= 1:
        raise UserError(f"{take!r}: allowed: unsolved, thin, or two shares such as 0.1-0.9")
    return bounds
