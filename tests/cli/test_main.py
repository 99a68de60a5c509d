"""The command line as a whole: light to start, honest exit codes, every verb documented."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rlbhpc.cli import main as cli_main
from rlbhpc.cli.main import VERBS, cli, main
from rlbhpc.errors import UserError
from tests.studies import untrained, write_unloadable_model

HEAVY = {
    "torch",
    "vllm",
    "transformers",
    "deepspeed",
    "xarray",
    "zarr",
    "pandas",
    "rich",
    "pydantic",
}


@pytest.mark.parametrize(
    "code",
    [
        "import rlbhpc",
        "from rlbhpc.cli.main import main; main(['--help'])",
    ],
)
def test_starting_imports_nothing_heavy(code: str) -> None:
    script = (
        "import sys, json, atexit\n"
        "atexit.register(lambda: print('\\n' + json.dumps(sorted(sys.modules))))\n" + code
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(out.stdout.splitlines()[-1])}
    assert not loaded & HEAVY


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_has_help_with_an_example(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert f"rlbhpc {name}" in result.output, "the help shows no example"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        ([], 64),
        (["no-such-verb"], 64),
        (["--no-such-option"], 64),
    ],
)
def test_exit_codes(arguments: list[str], code: int) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == code


def test_an_unknown_verb_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    name = next(iter(VERBS))
    with pytest.raises(SystemExit):
        main([name[:-1]])
    assert name in capsys.readouterr().err


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (UserError("study.yaml:3: n: found -1"), 64, "rlbhpc: study.yaml:3: n: found -1"),
        (UserError("later", code=75), 75, "later"),
        (ModuleNotFoundError(name="torch"), 64, "torch, which is not here"),
        (KeyboardInterrupt(), 75, "interrupted"),
        (FileNotFoundError(2, "getcwd"), 75, "rlbhpc: the working folder: No such file or d"),
        (click.exceptions.Exit(5), 5, ""),
    ],
)
def test_what_a_verb_raises_becomes_an_exit_code(
    raised: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    verb = click.Command("x", callback=partial(fail, raised))
    monkeypatch.setattr(cli_main.cli, "get_command", lambda ctx, name: verb)
    with pytest.raises(SystemExit) as caught:
        main(["x"])
    assert caught.value.code == code
    err = capfd.readouterr().err
    assert said in err
    assert "Traceback" not in err


@pytest.mark.parametrize("raised", [ModuleNotFoundError(name="own"), ZeroDivisionError()])
def test_what_is_a_fault_of_the_code_ends_with_its_traceback(
    raised: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    verb = click.Command("x", callback=partial(fail, raised))
    monkeypatch.setattr(cli_main.cli, "get_command", lambda ctx, name: verb)
    with pytest.raises(type(raised)):
        main(["x"])


def fail(raised: BaseException) -> None:
    raise raised


# What runs in a thread as the process ends, and whether it is left without waiting for Python.
LEFT = """
import atexit, os, sys, threading, time
from rlbhpc.cli.main import main

class Late:
    def __del__(self, write=os.write):
        write(1, b"ended by Python\\n")

late = Late()
atexit.register(print, "at exit")
THREAD
sys.argv = ["rlbhpc", "--version"]
main(WORDS)
"""
THREAD = "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
# What a busy machine does to the loop of zarr, which is given 0.2 s to end.
LOOP = "from zarr.core import sync; sync._get_loop().call_soon_threadsafe(time.sleep, 2)"


@pytest.mark.parametrize(
    ("thread", "words", "closed", "out"),
    [
        (THREAD, "", "", "at exit\n"),
        (THREAD, "", "2>&-", "at exit\n"),
        (LOOP, "", "", "at exit\n"),
        (THREAD, "['--version']", "", "at exit\nended by Python\n"),
        ("", "", "", "at exit\nended by Python\n"),
    ],
)
def test_a_thread_that_still_works_is_left(thread: str, words: str, closed: str, out: str) -> None:
    script = LEFT.replace("THREAD", thread).replace("WORDS", words)
    shell = ["bash", "-c", f'"$@" {closed}', "bash", sys.executable, "-c", script]
    done = subprocess.run(shell, capture_output=True, text=True, check=True)
    assert done.stdout.partition("\n")[2] == out
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--help", 0),
        ("--version", 0),
        ("init --help", 0),
        ("init countdown", 75),  # which might have had more to do
        ("", 64),
        ("no-such-verb", 64),
        ("status nowhere", 64),
    ],
)
@pytest.mark.parametrize("both", [False, True])
def test_a_reader_that_went_away_is_no_error_text(
    tmp_path: Path, words: str, code: int, both: bool
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "rlbhpc", *words.split()],
        cwd=tmp_path, check=False, stdout=writer, stderr=writer if both else subprocess.PIPE,
    )  # fmt: skip
    os.close(writer)
    assert done.returncode == code
    assert both or done.stderr.count(b"\n") == (words in {"no-such-verb", "status nowhere"})


def test_the_shell_completes_verbs_without_loading_them() -> None:
    environment = {
        "COMP_WORDS": "rlbhpc com", "COMP_CWORD": "1", "_RLBHPC_COMPLETE": "bash_complete",
    }  # fmt: skip
    result = CliRunner().invoke(cli, [], prog_name="rlbhpc", env=environment)
    assert result.output == "plain,compact\n"


UNKNOWN = (
    "import os, pwd; from rlbhpc.cli.main import main; "
    "os.getuid = lambda: 12345; pwd.getpwuid = {}.__getitem__; main()"
)


@pytest.mark.parametrize(
    ("environment", "printed"),
    [
        ({"PYTHONIOENCODING": "utf-8"}, b"\\udce9\xe2\x86\x92"),
        ({"PYTHONIOENCODING": "ISO-8859-15"}, b"\\udce9\\u2192"),
    ],
)
def test_any_locale_will_do(environment: dict[str, str], printed: bytes, tmp_path: Path) -> None:
    name = b"\xe9\xe2\x86\x92"  # as Latin-1 and as UTF-8 have it
    done = subprocess.run(
        [sys.executable, "-m", "rlbhpc", "init", "algorithms", "-o", name],
        cwd=tmp_path, env=os.environ | environment, capture_output=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert printed in done.stdout
    assert "rl-grpo …" in (tmp_path / os.fsdecode(name)).read_text("utf-8")


def test_a_user_whom_the_machine_does_not_know_launches(tmp_path: Path) -> None:
    write_unloadable_model(tmp_path / "model")
    (tmp_path / "study.yaml").write_text(untrained("x"))
    places = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", UNKNOWN, "launch", "study.yaml", "--cluster", "local"],
        cwd=tmp_path, env=places, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    (record,) = tmp_path.glob("runs/x/launches/*/launch.json")
    assert json.loads(record.read_text())["user"] == "12345"


def test_a_refusal_keeps_its_exit_code_where_its_log_has_no_room(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "rlbhpc", "status", "nowhere"]
        assert subprocess.run(command, cwd=tmp_path, stderr=full, check=False).returncode == 64
