"""The verbs that begin a study of two models: `init`, `ask`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from rlbhpc.cli import shared
from rlbhpc.cli.report import exit_code
from rlbhpc.cli.shared import print_json, print_table, screen, tell
from rlbhpc.debug_log import keep
from rlbhpc.errors import DONE, UserError
from rlbhpc.launch.ask import describe_dry_run, draft, fetch, find_study, make_results
from rlbhpc.launch.script import read_options
from rlbhpc.report.gather import gather
from rlbhpc.report.page import PAGE
from rlbhpc.report.terminal import print_answer, print_sentences
from rlbhpc.study.draft import Draft, read_template, template_menu, write_new, write_study
from rlbhpc.study.load import load_study


def pair_options(required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options that name two models and what to ask them; `rlbhpc ask` has the same."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            click.option("-o", "--output", type=click.Path(path_type=Path),
                         help="The study file. Default: named after the models or the template."),
            click.option("--cluster", metavar="NAME", help="An entry of the cluster table, or "
                         "'local'. Default: by the host's name; without Slurm this machine."),
            click.option("--prompt", metavar="NAME|FILE.txt",
                         help="For both models. Default: what each model's makers ask it by."),
            click.option("--n", type=click.IntRange(min=1), help="Samples per problem."),
            click.option("--on", "sets", metavar="SET,SET",
                         help="Problem sets, or a .jsonl file of yours. Default: math500; of tiny "
                         "models countdown, which needs no download."),
            click.option("--trained", metavar="FOLDER|HUB", required=required,
                         help="The model that was trained from it."),
            click.option("--base", metavar="FOLDER|HUB", required=required,
                         help="The base model: a folder, or owner/name on the hub."),
        ):  # fmt: skip
            command = option(command)
        return command

    return decorate


@click.command(
    epilog="Examples: rlbhpc init --base Qwen/Qwen2.5-7B --trained checkpoints/rl --on math500; "
    "rlbhpc init countdown"
)
@click.argument("name", metavar="[TEMPLATE]", required=False)
@pair_options(required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the menu as JSON.")
def init(
    name: str | None, base: str | None, trained: str | None, sets: str | None, n: int | None,
    prompt: str | None, cluster: str | None, output: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Write a study file to start from.

    With --base and --trained: a study of these two models that runs as it is. TEMPLATE is for
    studies of another kind; without any words their menu is shown.
    """
    if base and trained and name is None:
        pair = draft(base, trained, sets, cluster, n, prompt)
        target = write_study(pair, output)
        _tell_prompts(pair, click.echo)
        for model in filter(None, (pair.base.hub, pair.trained.hub)):
            click.echo(f"{model}: no such folder here, so a model of the hub; if it is none, "
                       f"correct it in {target}")  # fmt: skip
        click.echo(f"{target} written; now: rlbhpc check {target}")
        return
    if base or trained or sets or n or prompt or cluster:
        raise click.UsageError("--base and --trained go together, without a TEMPLATE")
    menu = template_menu()
    if as_json:
        print_json(menu)
        return
    if name is None:
        print_table(
            "Templates of rlbhpc init TEMPLATE", ["template", "for"], template_menu().items()
        )
        click.echo("Two models: rlbhpc init --base FOLDER|HUB --trained FOLDER|HUB")
        if not sys.stdin.isatty():
            return
        name = click.prompt("Template", type=click.Choice(list(menu)), show_choices=False)
    target = output or Path(f"{name}.yaml")
    write_new(target, read_template(name))
    click.echo(f"{target} written; edit it, then: rlbhpc check {target}")


def _tell_prompts(pair: Draft, say: Callable[[str], None]) -> None:
    """Say by which prompt each model is asked, and why."""
    for name, model, asking in zip(
        ("base", "trained"), (pair.base, pair.trained), pair.askings, strict=True
    ):
        say(f"{name} {model.name}: prompt {asking.prompt} ({asking.reason})")


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
    begun = time.monotonic()

    def say(line: str) -> None:
        tell(f"[{time.monotonic() - begun:5.0f} s] {line}")

    options = read_options(sbatch)
    pair = draft(base, trained, sets, cluster, n, prompt)
    _tell_prompts(pair, say)
    if dry_run:
        describe_dry_run(pair, overrides, say)
        return DONE
    fetch(pair, say)
    file = find_study(pair, output)
    study = load_study(file, overrides)
    samples = sum(block.size for block in study.blocks())
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
