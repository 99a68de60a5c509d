"""The ``rlbhpc`` command: a table of verbs, each imported only when it is called.

``rlbhpc --help`` must answer at once on a login node with a cold file system, so the table holds
every verb's one-line summary and nothing of the rooms behind it is imported to print it.
"""

from __future__ import annotations

import atexit
import difflib
import importlib
import io
import keyword
import logging
import os
import platform
import pwd
import shlex
import sys
import threading
import warnings
from errno import ENOENT
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO

import click

from rlbhpc import __version__
from rlbhpc.debug_log import DebugLog
from rlbhpc.errors import (
    DONE,
    INCOMPLETE,
    NOTHING_TO_DO,
    TRY_AGAIN,
    USAGE,
    LeftOutWarning,
    UserError,
)

log = logging.getLogger(__name__)
# Verbs that multiply thousands of small matrices. OpenBLAS's threads double their processor time
# and shorten nothing, and on a login node the processors are everybody's.
ONE_THREAD_VERBS: Final = {"ask", "report"}
# What the processes that a verb starts are as verbose by.
VERBOSE: Final = "RLBHPC_VERBOSE"
# Packages that a login node can do without, and the extra that brings each.
EXTRAS: Final = {
    "torch": "train", "transformers": "train", "deepspeed": "train", "vllm": "vllm",
    "tensorboard": "boards",
}  # fmt: skip


# Each verb with its module in rlbhpc.cli and the line that ``--help`` shows: first those of every
# study, then the others, both in the order of the work.
MAIN_VERBS: Final = {
    "demo": ("exchange", "Write a small run to look at; needs no models."),
    "ask": ("ask", "From two models to an answer in one command."),
    "init": ("ask", "Write a commented study file to start from."),
    "check": ("check", "Check a study file and show what it expands to."),
    "train": ("train", "Train the models of a study."),
    "launch": ("jobs", "Write batch scripts for a cluster; submit them."),
    "watch": ("ask", "Sample the checkpoints of a training as they appear."),
    "status": ("jobs", "Show how far a run is."),
    "report": ("report", "Say what a run shows: words, figures, tables."),
    "view": ("report", "Look through a run in a browser."),
    "show": ("report", "Look at problems, samples and responses."),
    "import": ("exchange", "Take in results that other tools measured."),
    "export": ("exchange", "Write results as Parquet, CSV or JSON."),
}
MORE_VERBS: Final = {
    "stage": ("exchange", "Fetch problem sets, or check those fetched before."),
    "plan": ("sampling", "Say which samples are missing."),
    "sample": ("sampling", "Make what is missing, on this machine."),
    "run": ("sampling", "Work some shards of a stored plan."),
    "select": ("exchange", "Print problems by how often an arm solves them."),
    "score": ("scoring", "Score texts under models, for perplexity."),
    "match-entropy": ("scoring", "Find the temperature of equal entropy."),
    "verify": ("verify", "Judge what a run holds anew."),
    "audit": ("verify", "Find out how often verdicts are wrong, by people."),
    "seal": ("store", "Seal journals into Parquet parts."),
    "compact": ("store", "Bring the cube up to date with all samples."),
    "gc": ("store", "Remove journals that are sealed."),
    "merge": ("store", "Take in samples of the same study drawn elsewhere."),
    "cancel": ("jobs", "End a run's jobs; nothing is lost."),
    "doctor": ("jobs", "Look at this site: Slurm, containers, files."),
}
VERBS: Final = {**MAIN_VERBS, **MORE_VERBS}


def _be_verbose(context: click.Context, parameter: click.Parameter, verbose: bool) -> None:
    if verbose and isinstance(context.obj, DebugLog):
        context.obj.screen_level = logging.DEBUG
        os.environ[VERBOSE] = "1"


# Before a verb or behind it; a verb's own option of this name wins.
verbose_option: Final = click.option(
    "--verbose", is_flag=True, envvar=VERBOSE, expose_value=False, callback=_be_verbose,
    help="Say on stderr what happens, and why.",
)  # fmt: skip


class LazyGroup(click.Group):
    """A click group whose commands are imported on use.

    A verb is the click command of its name in its module: dashes as underscores, and with an
    underscore behind it where Python keeps the word for itself (``import``).
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words before the verb, of which some print a text and are done."""
        try:
            return super().parse_args(ctx, args)
        except BrokenPipeError:
            _drop_output(sys.stdout)
            raise click.exceptions.Exit(DONE) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb; what a reader left out is printed, and what looks done is not.

        A `LeftOutWarning` says that stored samples could not be read. Where they count as
        incomplete, a verb that ended well ends with `INCOMPLETE` all the same.
        """
        asks_help = not {"-h", "--help"}.isdisjoint(ctx.args)
        with warnings.catch_warnings():
            warnings.simplefilter("always", LeftOutWarning)
            gaps = _print_gaps()
            try:
                code = super().invoke(ctx)
            except BrokenPipeError:
                # The reader (a pager, head) went away, perhaps while a verb worked as it printed.
                # Click would end with 1.
                _drop_output(sys.stdout)
                code = DONE if asks_help else TRY_AGAIN
        looks_done = code in {None, DONE, NOTHING_TO_DO}
        if looks_done and any(gap.incomplete for gap in gaps):
            return INCOMPLETE
        return code

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs, those of every study first."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one verb, and give its click command.

        `VERBS` has the module and the summary of each verb. The command is the function of the
        verb's name, with an underscore behind a word that Python keeps for itself.
        """
        if cmd_name not in VERBS:
            matches = difflib.get_close_matches(cmd_name, VERBS)
            hint = f"did you mean {matches[0]!r}?" if matches else f"there are {', '.join(VERBS)}"
            ctx.fail(f"no verb {cmd_name!r}; {hint}")
        if cmd_name in ONE_THREAD_VERBS:
            for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
                os.environ.setdefault(variable, "1")  # NumPy reads it when it is loaded
        module_name, _ = VERBS[cmd_name]
        module = importlib.import_module(f"rlbhpc.cli.{module_name}")
        function_name = cmd_name.replace("-", "_")
        if keyword.iskeyword(function_name):
            function_name += "_"
        command = getattr(module, function_name)
        assert isinstance(command, click.Command)
        if not any("--verbose" in parameter.opts for parameter in command.params):
            verbose_option(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the verb table without importing any verb."""
        for heading, verbs in (("Verbs", MAIN_VERBS), ("More verbs", MORE_VERBS)):
            with formatter.section(heading):
                formatter.write_dl([(name, summary) for name, (_, summary) in verbs.items()])


def _print_gaps() -> list[LeftOutWarning]:
    """Print each warning that a reader left something out, once; gives the list that collects them.

    A gap is such a warning. Call it where warnings are caught: it replaces the function that shows
    them. Other warnings are shown as before; ``place`` and ``options`` are what Python passes for
    them.
    """
    gaps: list[LeftOutWarning] = []
    show_warning = warnings.showwarning

    def show_gap(message: Any, *place: Any, **options: Any) -> None:
        """Print and collect a warning if it is a gap; show any other as Python does."""
        if not isinstance(message, LeftOutWarning):
            show_warning(message, *place, **options)
        elif str(message) not in map(str, gaps):
            gaps.append(message)
            log.debug("left out: %s", message)
            click.echo(f"rlbhpc: {message}", err=True)

    warnings.showwarning = show_gap
    return gaps


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 3 incomplete but resumable, 4 nothing to do, "
    "64 usage or configuration, 75 try again.",
)
@click.version_option(__version__, prog_name="rlbhpc")
@verbose_option
def cli() -> None:
    """Did RL training move a model's reasoning boundary, or only its sampling efficiency?"""
    words = shlex.join(sys.argv[1:])
    system = f"Python {platform.python_version()} on {platform.node()}"
    log.debug("%s, %s, in %s: %s", __version__, system, os.environ.get("PWD"), words)


def main(args: list[str] | None = None) -> NoReturn:
    """Run the command line and turn every outcome into an exit code.

    Without ``args`` this is the whole process: it takes the words of the command line, and may end
    without waiting for threads that still sample. A debug log is dropped where nothing was done.
    """
    if args is None:
        _print_any_text()
        _name_user()
    with DebugLog() as debug_log:
        code = _outcome(args, debug_log)
        log.debug("exit code %d", code)
        if code == NOTHING_TO_DO:
            debug_log.drop()
    if args is None and any(thread.daemon for thread in threading.enumerate()):
        _leave(code)
    sys.exit(code)


def _print_any_text() -> None:
    """Print what a terminal cannot show as its code point, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _name_user() -> None:
    """Give a user whom the machine does not know, as in a container, the home that Docker gives.

    Python, torch and vLLM look for name and home in the environment first. `getpwuid` raises
    KeyError for such a user.
    """
    if not {"HOME", "USER"} <= os.environ.keys():
        try:
            pwd.getpwuid(os.getuid())
        except KeyError:
            os.environ.setdefault("HOME", "/")
            os.environ.setdefault("USER", str(os.getuid()))


def _outcome(args: list[str] | None, debug_log: DebugLog) -> int:
    """Run a verb and turn what it raises into a line and an exit code.

    A verb returns its exit code, or nothing if all is done. Errors that a user can mend become one
    line, in the debug log with their traceback; others are raised.
    """
    try:
        result: Any = cli.main(args, prog_name="rlbhpc", standalone_mode=False, obj=debug_log)
        return result if isinstance(result, int) else DONE
    except click.exceptions.NoArgsIsHelpError as error:
        _say(error.format_message(), err=False)
        return USAGE
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        command = context.command_path if context else "rlbhpc"
        message = " ".join(error.format_message().split()).rstrip(".")
        _say(f"{command}: {message}; see {command} --help")
        return USAGE
    except click.exceptions.Exit as error:
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        _say("rlbhpc: interrupted; the same command again goes on from here")
        return TRY_AGAIN
    except (UserError, OSError, MemoryError, ModuleNotFoundError) as error:
        log.debug("refused", exc_info=True)
        refusal = _explain_error(error)
        _say(f"rlbhpc: {refusal}")
        return refusal.code
    except Exception:
        log.debug("not foreseen", exc_info=True)
        raise


def _explain_error(
    error: UserError | OSError | MemoryError | ModuleNotFoundError,
) -> UserError:
    """What went wrong as an error of one line, with its exit code; raises what nobody can explain.

    `EXTRAS` names, for each package that may be absent, the extra of rlbhpc that installs it.
    ENOENT is the error of a file or folder that is not there.
    """
    if isinstance(error, UserError):
        return error
    if isinstance(error, OSError):
        # A file system refuses something where no verb expected it.
        from rlbhpc.files import explain

        path = error.filename2 or error.filename or "a file or the standard output"
        if error.errno == ENOENT and error.filename is None:
            path = "the working folder"  # of all that may be missing, it alone has no name
        return explain(error, Path(os.fsdecode(path)), "; what was stored before is safe")
    if isinstance(error, MemoryError):
        cause = str(error) or "of Python"
        return UserError(
            f"cannot allocate memory ({cause}); with more, give the same command again", TRY_AGAIN
        )
    if error.name in EXTRAS:
        extra = f"in a checkout, pip install '.[{EXTRAS[error.name]}]'"
        return UserError(f"this needs {error.name}, which is not here: {extra}")
    raise error


def _say(text: str, err: bool = True) -> None:
    """Print a last line where somebody, or a disk, takes it; the exit code is what it is."""
    try:
        click.echo(text, err=err)
    except OSError:
        _drop_output(sys.stderr if err else sys.stdout)


def _drop_output(stream: TextIO) -> None:
    """Let a stream whose reader went away lead nowhere; Python complains when it flushes it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _leave(code: int) -> NoReturn:
    """End a process in which a thread still samples, as after a full disk or a drain.

    Python would stop it in the middle of torch's code, which aborts the process: exit code 134
    instead of the one that says whether the same command helps later.
    """
    # On a busy machine zarr would close its loop while that runs, and print the error.
    atexit.unregister(getattr(sys.modules.get("zarr.core.sync"), "cleanup_resources", object))
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # as it is where the shell closed it
            stream.flush()
    os._exit(code)
