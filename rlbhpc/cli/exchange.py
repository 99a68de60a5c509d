"""The verbs that fetch, take in and hand on: `demo`, `stage`, `import`, `export`, `select`."""

from __future__ import annotations

import math
from importlib.resources import as_file
from importlib.resources import files as resource_files
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from rlbhpc.cli import shared
from rlbhpc.cli.shared import print_json, print_table, tell
from rlbhpc.debug_log import keep
from rlbhpc.errors import DONE, NOTHING_TO_DO, UserError
from rlbhpc.exchange.arriving import Target, impossible_checks
from rlbhpc.exchange.exports import FORMATS
from rlbhpc.exchange.exports import export as write
from rlbhpc.exchange.imports import import_files
from rlbhpc.problems import stage as staging
from rlbhpc.problems.registry import set_names
from rlbhpc.study.layout import Layout

if TYPE_CHECKING:
    from rlbhpc.exchange.imports import Importing

# Characters of a revision that are printed.
REVISION_WIDTH: Final = 12


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
    if not names and only_check:
        names = tuple(staging.staged_set_names(to))
        if not names:
            raise UserError(f"{to}: nothing staged in it")
    if not names:
        raise UserError(f"name a set: {', '.join(set_names())}")
    if revision is not None and (len(names) != 1 or only_check):
        raise UserError("--revision goes with one set to fetch")
    manifests = []
    states = []
    for name in names:
        if only_check:
            manifest = staging.check(to / name)
            is_new = False
        else:
            # A call that fetches nothing makes no folder.
            keep(to / "logs", "stage", to)
            manifest, is_new = staging.stage(name, to, revision)
            keep(to / "logs", "stage", to)
        manifests.append(manifest)
        states.append("fetched" if is_new else "unchanged")
    if as_json:
        print_json({manifest.set: manifest.__dict__ for manifest in manifests})
    else:
        rows = []
        for manifest, state in zip(manifests, states, strict=True):
            parts = manifest.problems
            rows.append([
                manifest.set,
                state,
                str(manifest.source.get("revision", "-"))[:REVISION_WIDTH],
                len(manifest.files),
                ", ".join(f"{name} {part['count']:,}" for name, part in parts.items()),
                ", ".join(part["digest"] for part in parts.values()),
            ])  # fmt: skip
        columns = ("set", "state", "revision", "files", "problems", "digest")
        print_table(f"Problem sets under {to}", columns, rows)
    return DONE if only_check or "fetched" in states else NOTHING_TO_DO


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
    run: Path, files: tuple[Path, ...], arm: str, problem_set: str, model: str | None,
    metric: str | None, judge: str | None, as_json: bool,
) -> int:  # fmt: skip
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
      batches         of OpenAI or vLLM: requests, responses, and rows of problem and gold
    --judge-again math compares the texts with the file's own reference answers by rlbhpc's grader.
    Importing the same files again changes nothing (exit code 4).
    """  # noqa: D301 - click takes the backspace as "leave the lines below as they are"
    run.mkdir(parents=True, exist_ok=True)
    layout = Layout(run)
    imported = import_files(layout, files, Target(arm, problem_set, model or arm), metric, judge)
    keep(layout.logs, "import", layout.grids)
    if as_json:
        keys = ("samples", "failed", "known", "counts", "shortfalls")
        print_json({key: getattr(imported, key) for key in keys})
    else:
        click.echo(f"{arm}/{problem_set}: {_describe_import(imported)}.")
        if imported.samples:
            click.echo(impossible_checks(imported.absent))
    for line in imported.shortfalls:
        tell(line)
    if imported.error:
        tell(f"Some samples are neither right nor wrong: {imported.error}")
    for line in imported.unread:
        tell(
            f"Not read of {line}. Subfolders are not entered, and these files are of no known "
            "format; name what belongs to this arm."
        )
    return DONE if imported.samples or imported.counts else NOTHING_TO_DO


def _describe_import(imported: Importing) -> str:
    """What was taken in, in words.

    "known" are samples that an earlier import had taken in. Counts are numbers of samples and right
    ones of a problem, without the samples themselves.
    """
    parts = []
    if imported.samples:
        parts.append(f"{imported.samples:,} samples")
    if imported.failed:
        parts.append(f"{imported.failed:,} of them failed, neither right nor wrong")
    if imported.counts:
        parts.append(f"counts of {imported.counts:,} problems")
    if imported.known:
        parts.append(f"{imported.known:,} known already")
    return ", ".join(parts) or "nothing"


_FORMAT_LIST = "\n".join(f"  {ending:9} {form.what}" for ending, form in FORMATS.items())


@click.command(
    epilog="Example: rlbhpc export runs/math counts.csv",
    help="Write the results of the run in the folder RUN to OUT, a file or folder whose ending "
    f"says how.\n\n\b\n{_FORMAT_LIST}",
)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
def export(run: Path, out: Path) -> int:
    """Write results in the format that an ending names."""
    amount = write(Layout(run), out)
    click.echo(f"{out}: {amount or 'nothing to write'}")
    return DONE if amount else NOTHING_TO_DO


@click.command(epilog="Example: rlbhpc select runs/math base omni-train 0.1-0.9 > middle.txt")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("arm")
@click.argument("problem_set", metavar="SET")
@click.argument("rate", metavar="LOW-HIGH")
@click.option("--step", type=int, help="Of the arm's checkpoints; the first by default.")
def select(run: Path, arm: str, problem_set: str, rate: str, step: int | None) -> int:
    """Print the ids of the problems of SET that ARM solves at a certain rate, one a line.

    LOW-HIGH: in a share of its samples between the two, both included; 0-0 is never. A problem set
    of a study takes the file as `ids`. Problems without samples are left out.
    """
    from rlbhpc.store.reader import open_cube

    low, high = _read_bounds(rate)
    # The cube has a group for each arm and problem set; n counts samples, and c right ones.
    tree = open_cube(run)
    group = f"{arm}/{problem_set}"
    if f"/{group}" not in tree.groups:
        groups = sorted(node.path.strip("/") for node in tree.subtree if "verdict" in node)
        raise UserError(f"{run}: no samples of {group}; there are {', '.join(groups)}")
    counts = tree[group].to_dataset().rlb.counts()
    steps = counts["step"].values.tolist()
    if step is None:
        step = steps[0]
    if step not in steps:
        raise UserError(f"{group}: no step {step}; there are {', '.join(map(str, steps))}")
    at_step = counts.sel(step=step)
    # pass@1 is the share of right samples; ragged: problems may have different numbers of them.
    values = at_step.rlb.pass_at_k(1, ragged=True).values
    is_chosen = (at_step["n"].values > 0) & (low <= values) & (values <= high)
    for problem in at_step["problem"].values[is_chosen].tolist():
        click.echo(problem)
    return DONE


def _read_bounds(text: str) -> tuple[float, float]:
    """Lowest and highest share of right samples.

    Bounds that cannot be read become NaN, which the check of their order refuses as well.
    """
    low, _, high = text.partition("-")
    try:
        bounds = float(low), float(high)
    except ValueError:
        bounds = (math.nan, math.nan)
    if not 0 <= bounds[0] <= bounds[1] <= 1:
        raise UserError(f"{text!r}: allowed: two shares such as 0.1-0.9")
    return bounds


# The arms of the demo, which are also the names of the files of its samples.
DEMO_ARMS: Final = ("base", "rl")


def demo_file(arm: str) -> str:
    """The file of an arm's samples, below the package; tools/make_demo.py writes it."""
    return f"cli/demo_samples/{arm}.jsonl.gz"


@click.command(epilog="Example: rlbhpc demo && rlbhpc report demo --compare base:rl --terminal")
@click.argument("folder", type=click.Path(path_type=Path), default="demo")
def demo(folder: Path) -> int:
    """Write a small run to FOLDER ("demo" by default), to try report, view, show and export on.

    A base model and the same model after RL answered 128 problems of Countdown 256 times each.
    They are the quickstart's, and their samples come with the package.
    """
    layout = Layout(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sample_count = 0
    for arm in DEMO_ARMS:
        with as_file(resource_files("rlbhpc") / demo_file(arm)) as path:
            imported = import_files(layout, (path,), Target(arm, "countdown", arm), None, None)
        sample_count += imported.samples
    if not sample_count:
        click.echo(f"{folder} holds the demo already.")
        return NOTHING_TO_DO
    click.echo(
        f"{folder}: {sample_count:,} samples of {' and '.join(DEMO_ARMS)} on 128 problems. Try:"
    )
    click.echo(f"  rlbhpc report {folder} --compare base:rl --terminal   # the answer")
    click.echo(f"  rlbhpc report {folder} --compare base:rl --open       # the page")
    click.echo(f"  rlbhpc view {folder} --open                           # the responses")
    return DONE
