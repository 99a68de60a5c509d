"""`rlbhpc init` and `rlbhpc check`, as a user runs them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click import BadParameter, UsageError
from click.testing import CliRunner, Result

from rlbhpc.cli.main import cli, main
from rlbhpc.errors import UserError
from rlbhpc.study.draft import read_template, template_menu
from rlbhpc.study.load import load_study
from tests.study.folder import write_folder


@pytest.fixture
def study_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return write_folder(tmp_path / "work")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, catch_exceptions=False)


def test_the_tables_show_the_expansion(study_file: Path) -> None:
    text = run("check", str(study_file)).output
    assert text.startswith(
        f"Study small, hash {load_study(study_file).hash}, seed 7\nDoes it move?"
    )
    for words in ("hot-t1.0", "hot-t1.2", "trained from base by grpo", "holdout[3]", "endpoint"):
        assert words in text
    assert text.rstrip().endswith("128 samples in all")
    assert "\x1b" not in text, "no colours in a pipe"
    without = run("check", str(study_file), "--set", "question=null").output
    assert re.match(r"Study small, hash \w+, seed 7\nResults in ", without)


def test_no_samples_have_their_reason(study_file: Path) -> None:
    """Arms leave out what a recipe trains on, and here there is no other set."""
    lines = study_file.read_text().splitlines()
    kept = "\n".join(line for line in lines if "math500: {" not in line)
    study_file.write_text(kept.replace(", problem_sets: [math500]", ""))
    text = run("check", str(study_file)).output
    assert "base, line, rl, hot-t1.0, hot-t1.2, far: no problem set is left to answer; " in text
    assert text.endswith("0 samples in all\n")


def test_json_says_the_same_and_more(study_file: Path) -> None:
    shown = json.loads(run("check", str(study_file), "--json").output)
    assert shown["samples"] == 128
    assert [arm["arm"] for arm in shown["arms"]] == [*load_study(study_file).arms]
    assert shown["comparisons"][0] == {"base": "base", "trained": "rl"}
    assert shown["since_last_run"] is None
    assert shown["resolved"]["arms"]["rl"]["stop"] == ["</answer>"]
    assert shown["resolved"]["models"]["rl"]["train"]["from"] == "base"


def test_what_an_engine_does_not_know_is_refused_before_its_job(study_file: Path) -> None:
    words = ("check", str(study_file), "--set", "engine.options.gpu_memory_utilization=0.9")
    with pytest.raises(UserError, match=r"engine \w+: no setting 'gpu_memory_utilization'; it has"):
        run(*words)


@pytest.mark.parametrize("verb", ["check", "plan", "sample"])
def test_a_verifier_that_is_not_there_is_refused_before_its_job(
    study_file: Path, verb: str
) -> None:
    name = next(iter(load_study(study_file).problem_sets))
    with pytest.raises(UserError, match=rf"{name}\.verifier: found 'mth'; .*did you mean math\?"):
        run(verb, str(study_file), "--set", f"problem_sets.{name}.verifier=mth")


@pytest.mark.parametrize(
    ("verb", "words", "error", "message"),
    [
        ("sample", ["--arm", "rll"], BadParameter, "'rll' is none of base, "),
        ("score", ["--score", "x"], BadParameter, "--score: 'x' is none of "),
        ("match-entropy", ["--match", "x"], BadParameter, "--match: 'x' is none of "),
        ("train", ["x"], UserError, "model 'x' is none of base, "),
    ],
)
def test_a_name_that_a_study_has_not_is_told(
    study_file: Path, verb: str, words: list[str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        CliRunner().invoke(
            cli, [verb, str(study_file), *words], standalone_mode=False, catch_exceptions=False
        )


@pytest.mark.parametrize("rows", ["-1", "0", "1.5", "many", "true"])
def test_counts_of_an_engine_are_counts(study_file: Path, rows: str) -> None:
    """Rows of -1 passed the check, and the job went round for ever without a sample."""
    with pytest.raises(
        UserError, match=r"engine \w+: rows is .*; allowed: a whole number, at least"
    ):
        run("check", str(study_file), "--set", f"engine.options.rows={rows}")


@pytest.mark.parametrize("verb", ["check", "plan"])
@pytest.mark.parametrize("option", ["clipp=0.2", "epochs=3 times", "mini_batch=-4"])
def test_options_of_a_recipe_are_refused_before_its_job(
    study_file: Path, verb: str, option: str
) -> None:
    pytest.importorskip("torch", reason="an algorithm says which options it has")
    words = (verb, str(study_file), "--set", f"recipes.grpo.options.{option}")
    with pytest.raises(UserError, match=rf"recipes.grpo: .*{option.partition('=')[0]}"):
        run(*words)


def test_a_study_is_checked_without_reading_an_engine(study_file: Path) -> None:
    """Both take many seconds to be read, and a login node may have neither."""
    words = [
        "import sys; from rlbhpc.cli.main import cli; cli(sys.argv[1:], standalone_mode=False)",
        "assert not {'transformers', 'vllm'} & set(sys.modules)",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "; ".join(words), "check", str(study_file)],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


def test_set_wins_over_the_file(study_file: Path) -> None:
    shown = json.loads(
        run("check", str(study_file), "--json", "--set", "arms.rl.n=3", "--set", "name=x").output
    )
    assert shown["name"] == "x"
    assert shown["resolved"]["arms"]["rl"]["n"] == 3


def test_a_damaged_record_of_the_last_run_is_told(
    study_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = load_study(study_file)
    study.layout.root.mkdir(parents=True)
    for damaged in ('{"format": 1', "[]", study.to_json().replace('"math500"', '"math501"')):
        study.layout.study.write_text(damaged)
        with pytest.raises(SystemExit) as stop:
            main(["check", str(study_file)])
        assert stop.value.code == 64
        assert str(study.layout.study) in capsys.readouterr().err


def test_a_mistake_is_one_line_and_exit_64(
    study_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["check", str(study_file), "--set", "arms.rl.temprature=1"])
    assert stop.value.code == 64
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("rlbhpc: --set: arms.rl.temprature: unknown key; allowed: ")
    assert captured.err.endswith("did you mean temperature?\n")


def test_init_writes_a_template_and_never_over_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        run("init", "vision").output
        == "vision.yaml written; edit it, then: rlbhpc check vision.yaml\n"
    )
    assert Path("vision.yaml").read_text() == read_template("vision")
    Path("vision.yaml").write_text("mine")
    with pytest.raises(SystemExit) as stop:
        main(["init", "vision"])
    assert stop.value.code == 64
    assert "vision.yaml exists" in capsys.readouterr().err
    assert Path("vision.yaml").read_text() == "mine"
    run("init", "code", "-o", "deep/er/mine.yaml")
    assert Path("deep/er/mine.yaml").read_text() == read_template("code")


def test_init_shows_its_menu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = run("init").output
    for name, purpose in template_menu().items():
        assert name in text
        assert purpose in text
    assert not list(tmp_path.iterdir())


def test_a_pair_of_models_goes_without_a_template() -> None:
    for words in (["--base", "a"], ["countdown", "--base", "a", "--trained", "b"], ["--on", "x"]):
        with pytest.raises(UsageError, match="--base and --trained go together, without a TEMPL"):
            CliRunner().invoke(cli, ["init", *words], standalone_mode=False, catch_exceptions=False)


def test_init_names_the_nearest_template(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["init", "temprature"])
    assert stop.value.code == 64
    assert "did you mean temperature?" in capsys.readouterr().err
