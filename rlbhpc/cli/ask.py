"""The verbs that begin a study of two models, or of a training: `init`, `ask`, `watch`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from rlbhpc.cli import shared
from rlbhpc.cli.report import exit_code
from rlbhpc.cli.shared import print_table, screen, tell
from rlbhpc.debug_log import keep
from rlbhpc.errors import DONE, UserError
from rlbhpc.launch.ask import describe_dry_run, draft, fetch, find_study, make_results
from rlbhpc.launch.script import read_options
from rlbhpc.launch.watch import watch_training
from rlbhpc.report.gather import gather
from rlbhpc.report.page import PAGE
from rlbhpc.report.terminal import print_answer, print_sentences
from rlbhpc.report.write import write_report
from rlbhpc.study.draft import Draft, read_template, template_menu, write_new, write_study
from rlbhpc.study.load import load_study


def pair_options(required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that gives a command the options that name two models and what to ask them.

    Several commands have the same ones. ``required`` says whether both models must be named.
    """
    options = (
        click.option("--base", metavar="FOLDER|HUB", required=required,
                     help="The base model: a folder, or owner/name on the hub."),
        click.option("--trained", metavar="FOLDER|HUB", required=required,
                     help="The model that was trained from it."),
        click.option("--on", "sets", metavar="SET,SET",
                     help="Problem sets, or a .jsonl file of yours. Default: math500; of tiny "
                     "models countdown, which needs no download."),
        click.option("--n", type=click.IntRange(min=1), help="Samples per problem."),
        click.option("--prompt", metavar="NAME|FILE.txt",
                     help="For both models, or 'search' for the best of several. Default: what "
                     "each model's makers ask it by."),
        click.option("--cluster", metavar="NAME", help="An entry of the cluster table, or "
                     "'local'. Default: by the host's name; without Slurm this machine."),
        click.option("-o", "--output", type=click.Path(path_type=Path),
                     help="The study file. Default: named after the models or the template."),
    )  # fmt: skip

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):  # click lists the one that is applied last first
            command = option(command)
        return command

    return decorate


@click.command(
    epilog="Examples: rlbhpc init --base Qwen/Qwen2.5-7B --trained checkpoints/rl --on math500; "
    "rlbhpc init countdown"
)
@click.argument("name", metavar="[TEMPLATE]", required=False)
@pair_options(required=False)
def init(
    name: str | None, base: str | None, trained: str | None, sets: str | None, n: int | None,
    prompt: str | None, cluster: str | None, output: Path | None,
) -> None:  # fmt: skip
    """Write a study file to start from.

    With --base and --trained: a study of these two models that runs as it is. TEMPLATE is for
    studies of another kind; without any words their menu is shown.
    """
    if base and trained and name is None:
        _write_pair_study(draft(base, trained, sets, cluster, n, prompt), output)
        return
    if base or trained or sets or n or prompt or cluster:
        raise click.UsageError("--base and --trained go together, without a TEMPLATE")
    menu = template_menu()
    if name is None:
        print_table("Templates of rlbhpc init TEMPLATE", ["template", "for"], menu.items())
        click.echo("Two models: rlbhpc init --base FOLDER|HUB --trained FOLDER|HUB")
        if not sys.stdin.isatty():
            return
        name = click.prompt("Template", type=click.Choice(list(menu)), show_choices=False)
    target = output or Path(f"{name}.yaml")
    write_new(target, read_template(name))
    click.echo(f"{target} written; edit it, then: rlbhpc check {target}")


def _write_pair_study(pair: Draft, output: Path | None) -> None:
    """Write the study file of two models and say what was assumed.

    ``pair`` is the draft of that study. A model with ``hub`` is named as on the hub, owner/name,
    since there is no such folder here.
    """
    target = write_study(pair, output)
    _tell_prompts(pair, click.echo)
    for model in (pair.base, pair.trained):
        if model.hub:
            click.echo(
                f"{model.hub}: no such folder here, so a model of the hub; if it is none, correct"
                f" it in {target}"
            )
    click.echo(f"{target} written; now: rlbhpc check {target}")


def _tell_prompts(pair: Draft, say: Callable[[str], None]) -> None:
    """Say by which prompt each model is asked, and why."""
    base_asking, trained_asking = pair.askings
    say(f"base {pair.base.name}: prompt {base_asking.prompt} ({base_asking.reason})")
    say(f"trained {pair.trained.name}: prompt {trained_asking.prompt} ({trained_asking.reason})")


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog="Example: rlbhpc ask --base Qwen/Qwen2.5-7B --trained checkpoints/rl -p gpu",
)
@click.argument("sbatch", metavar="[SBATCH OPTIONS]...", nargs=-1, type=click.UNPROCESSED)
@pair_options(required=True)
@shared.overrides
@click.option("--dry-run", is_flag=True, help="Say what would be done; write and submit nothing.")
@click.option("-y", "--yes", is_flag=True, help="Submit without asking first.")
def ask(
    sbatch: tuple[str, ...], base: str, trained: str, sets: str | None, n: int | None,
    prompt: str | None, cluster: str | None, output: Path | None, overrides: tuple[str, ...],
    dry_run: bool, yes: bool,
) -> int:  # fmt: skip
    """Ask whether training moved the boundary of --base: write the study, run it, print the answer.

    Before it submits to a cluster it says what that costs, and asks. The same command after any
    interruption goes on with what is left. To change the study, edit the file that it names first
    and call it again. Options that sbatch knows are passed on: -p -A -t and more.
    """
    say = _start_clock()
    options = read_options(sbatch)
    pair = draft(base, trained, sets, cluster, n, prompt)
    _tell_prompts(pair, say)
    if dry_run:
        describe_dry_run(pair, overrides, say)
        return DONE
    fetch(pair, say)
    file = find_study(pair, output)
    study = load_study(file, overrides)
    samples = sum(study.count_samples(arm) for arm in study.arms)
    say(f"study {file}: {samples:,} samples in all, sizes {pair.size.words}")
    keep(study.layout.logs, "ask")
    layout = make_results(file, say, overrides, options, None if yes else _confirm)
    report = gather(layout.root)
    console = screen()
    print_answer(report, console)
    print_sentences(report, console)
    say(f"the whole report: {layout.report / PAGE}")
    return exit_code(report)


def _confirm(cost: str) -> None:
    """Ask whether to submit what costs so much."""
    if not sys.stdin.isatty():
        raise UserError(f"{cost}; nobody is here to confirm that: give --yes to submit it")
    click.confirm(f"Submit to {cost}?", abort=True, err=True)


def _start_clock() -> Callable[[str], None]:
    """A function that prints lines on stderr, each with the seconds since now."""
    start = time.monotonic()

    def say(line: str) -> None:
        seconds = time.monotonic() - start
        tell(f"[{seconds:5.0f} s] {line}")

    return say


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog="Example: rlbhpc watch checkpoints/grpo --base Qwen/Qwen2.5-7B --n 64 --every 100",
)
@click.argument("checkpoints", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("sbatch", metavar="[SBATCH OPTIONS]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--base", metavar="FOLDER|HUB", required=True, help="What the training started from.")
@click.option("--on", "sets", metavar="SET,SET", help="Problem sets, or a .jsonl file of yours.")
@click.option("--n", type=click.IntRange(min=1), help="Samples per problem.")
@click.option("--prompt", metavar="NAME|FILE.txt", help="Default: what the base's makers ask by.")
@click.option("--cluster", metavar="NAME", help="An entry of the cluster table, or 'local'.")
@click.option("--every", type=click.IntRange(min=1), default=1, help="Only steps divisible by it.")
@click.option("--last", type=click.IntRange(min=1), metavar="STEP", help="End after this step.")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=60.0, show_default=True,
              help="Between two looks for checkpoints.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The study file.")
@shared.overrides
def watch(
    checkpoints: Path, sbatch: tuple[str, ...], base: str, sets: str | None, n: int | None,
    prompt: str | None, cluster: str | None, every: int, last: int | None, seconds: float,
    output: Path | None, overrides: tuple[str, ...],
) -> int:  # fmt: skip
    """Follow a training that writes to the folder CHECKPOINTS: sample each new checkpoint.

    Reads what TRL, Transformers, verl, OpenRLHF, DeepSpeed and prime-rl write, FSDP and ZeRO
    states too. A checkpoint is taken once it is whole, and kept by hard links below `watched/`, so
    that the training may remove its own. After each round the answer is printed and the report
    written anew. Ends after --last, or when you press Ctrl-C; the same command goes on.
    """
    say = _start_clock()
    pair = draft(base, str(checkpoints), sets, cluster, n, prompt)
    file = output or Path(f"{pair.name}.yaml")
    rounds = watch_training(
        checkpoints, pair, file, say, seconds=seconds, every_steps=every, last_step=last,
        overrides=overrides, options=read_options(sbatch),
    )  # fmt: skip
    for layout in rounds:
        keep(layout.logs, "watch", layout.grids)
        report = gather(layout.root)
        print_answer(report, screen())
        page, *_ = write_report(report, None)
        say(f"the report: {page}")
    return DONE
