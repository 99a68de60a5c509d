"""`rlbhpc init --base A --trained B` and `rlbhpc ask`: two models in, a study and an answer out."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rlbhpc.cli.main import cli
from rlbhpc.errors import UserError
from rlbhpc.launch.ask import draft, find_study, make_results
from rlbhpc.study.draft import write_study
from rlbhpc.study.load import load_study
from tests.launch.made import Stubs
from tests.problems import shapes
from tests.study.folder import write_model

CHECKPOINTS = Path(__file__).parents[2] / "configs/checkpoints"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with two models of Qwen's chat format and a staged set."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for name in ("base", "rl"):
        write_model(tmp_path / "models" / name)
        (tmp_path / "models" / name / "tokenizer.json").write_text('{"content": "<|im_start|>"}')
        config = {"model_type": "qwen2", "max_position_embeddings": 32_768}
        (tmp_path / "models" / name / "config.json").write_text(json.dumps(config))
    for name in ("math500", "aime24"):
        (tmp_path / "data" / name).mkdir(parents=True)
        shapes.jsonl(shapes.SHAPES[name][0], tmp_path / "data" / name)
    return tmp_path


def invoke(*words: str) -> str:
    return CliRunner().invoke(cli, words, catch_exceptions=False).output


def test_init_writes_a_study_that_checks_as_it_is(folder: Path) -> None:
    words = ("--base", "models/base", "--trained", "models/rl", "--cluster", "local")
    text = invoke("init", *words)
    assert text.count("qwen-boxed") == 2
    assert text.endswith("rl-against-base.yaml written; now: rlbhpc check rl-against-base.yaml\n")
    study = load_study(Path("rl-against-base.yaml"))
    assert study.comparisons() == [("base", "trained")]
    assert study.file.cluster == "local"
    assert {arm.prompt for arm in study.arms.values()} == {"qwen-boxed"}
    assert study.layout.root == folder / "runs/rl-against-base"
    assert invoke("check", "rl-against-base.yaml").endswith("samples in all\n")
    with pytest.raises(UserError, match=r"rl-against-base.yaml exists; choose another name with"):
        invoke("init", *words)


def test_what_is_no_folder_is_said_to_be_taken_for_a_model_of_the_hub(folder: Path) -> None:
    words = ["--base", "checkpoint/base", "--trained", "models/rl", "--cluster", "local"]
    output = CliRunner().invoke(cli, ["init", *words]).output
    assert "checkpoint/base: no such folder here, so a model of the hub; if it is none, " in output
    assert "models/rl: " not in output


@pytest.mark.parametrize(
    ("base", "trained", "sets", "message"),
    [
        (
            "models/bsae",
            "models/rl",
            None,
            r"--base models/bsae: no such folder; did you mean base",
        ),
        ("./none", "models/rl", None, r"no such folder, and no owner/name of a model on the hub"),
        ("models/rl", "models/rl", None, r"--base and --trained are both"),
        ("models/base", "models/rl", "math50", r"'math50' is unknown; nearest: math500"),
        ("models/base", "models/rl", ",", r"--on: names no problem set"),
    ],
)
def test_wrong_words_are_told(
    folder: Path, base: str, trained: str, sets: str | None, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        draft(base, trained, sets, "local")


def test_a_file_of_a_cluster_is_no_name_for_a_study(folder: Path) -> None:
    with pytest.raises(UserError, match=r"--cluster my/site.yaml: .* name site after copying"):
        draft("models/base", "models/rl", None, "my/site.yaml")


def ask_for(sets: str, cluster: str | None) -> Path:
    return find_study(draft("models/base", "models/rl", sets, cluster), None)


def test_ask_goes_on_with_an_edited_study_and_leaves_it_as_it_is(folder: Path) -> None:
    file = ask_for("math500", "local")
    edited = file.read_text().replace("temperature: 0.6", "temperature: 1.0")
    file.write_text(edited)
    assert ask_for("math500", "local") == file
    with pytest.raises(UserError, match="rlbhpc launch"):
        ask_for("math500,countdown", "local")
    assert file.read_text() == edited


def test_a_file_with_words_of_ones_own_above_it_is_left_as_it_is(folder: Path) -> None:
    """An apostrophe in them is no open quotation of a command."""
    file = ask_for("math500", "local")
    own = f"# Ann's study\n{file.read_text()}"
    file.write_text(own)
    with pytest.raises(UserError, match="Ann's study"):
        ask_for("math500", "local")
    assert file.read_text() == own


def test_a_slurm_that_is_away_leaves_no_file_in_the_way(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sbatch is here, and sinfo answers nobody: the advice that is given then works."""
    with monkeypatch.context() as patch:
        patch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
        patch.setattr("rlbhpc.launch.slurm.query", lambda *words, **more: None)
        with pytest.raises(UserError, match="--cluster local"):
            ask_for("math500", None)
    assert not list(folder.glob("*.yaml"))
    assert load_study(ask_for("math500", "local")).file.cluster == "local"


def test_a_machine_without_torch_says_so_before_it_begins(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch of jobs that cannot start took two minutes to say less."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    file = write_study(draft("models/base", "models/rl", None, "local"))
    with pytest.raises(UserError, match=r"engine hf needs torch, .*'\.\[train\]'"):
        make_results(file, print)
    assert not (folder / "runs").exists()


@pytest.mark.core
@pytest.mark.engine
@pytest.mark.slow
def test_an_answer_from_two_models_after_a_kill(tmp_path: Path) -> None:
    """Killed while it samples, the same words go on to the answer; then there is nothing to do."""
    words = [sys.executable, "-m", "rlbhpc", "ask", "--cluster", "local",
             "--base", str(CHECKPOINTS / "countdown-base"),
             "--trained", str(CHECKPOINTS / "countdown-rl")]  # fmt: skip

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(words, cwd=tmp_path, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip

    first = start()
    while not any(f.stat().st_size > 4096 for f in tmp_path.glob("runs/*/journals/*/*/*")):
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    first.kill()
    first.wait()
    drawn = {f: f.stat().st_size for f in tmp_path.glob("runs/*/journals/*/*/*")}
    second = start()
    output, progress = second.communicate()
    assert drawn, "it was killed before it had begun"
    assert second.returncode == 0, progress
    assert "trained against base on countdown" in output
    assert re.search(r"In 64 samples of each of 64 problems", output)
    assert "the whole report: " in progress
    begun = time.monotonic()
    again, progress = start().communicate()
    assert again == output
    assert "launch 0" not in progress
    *_, seconds = re.findall(r"^\[ *([0-9]+) s\] ", progress, re.M)
    assert int(seconds) <= time.monotonic() - begun


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    words = ("ask", "--base", "models/base", "--trained", "models/rl", "--dry-run", "--n", "3")
    result = CliRunner().invoke(cli, [*words, "--cluster", "local"], catch_exceptions=False)
    assert "qwen-boxed" in result.output and " tokens" in result.output
    assert [path for path in sorted(folder.rglob("*")) if "cache" not in path.parts] == before


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stubs:
    """A Slurm that takes every job and has none in its queue."""
    stubs = Stubs(tmp_path / "bin")
    stubs.add("sbatch", "echo 1")
    stubs.add("squeue")
    stubs.add("sinfo", "echo up")
    monkeypatch.setenv("PATH", f"{stubs.folder}:/usr/bin:/bin")
    return stubs


def test_nothing_is_submitted_that_nobody_has_confirmed(folder: Path, slurm: Stubs) -> None:
    file = ask_for("countdown", None)
    said: list[str] = []

    def refuse(cost: str) -> None:
        said.append(cost)
        raise UserError("no")

    with pytest.raises(UserError, match="no"):
        make_results(file, print, confirm=refuse)
    assert "GPU-hours" in said[0]
    assert not slurm.calls("sbatch")


def ask_by_words(*words: str) -> Result:
    models = ("--base", "models/base", "--trained", "models/rl")
    return CliRunner().invoke(cli, ["ask", *models, *words])


def test_every_option_of_ask_reaches_the_study_or_its_jobs(folder: Path, slurm: Stubs) -> None:
    (folder / "mine.jsonl").write_text('{"problem": "1 + 1?", "answer": "2"}\n')
    words = ("--on", "./mine.jsonl", "--n", "3", "--prompt", "boxed", "--set", "seed=5")
    result = ask_by_words(*words, "--yes", "-p", "gpu", "-A", "mine")
    study = load_study(folder / "rl-against-base.yaml", ["seed=5"])
    assert (study.n("base", "mine"), study.arms["base"].prompt) == (3, "boxed")
    assert study.problem_ids("mine")
    assert json.loads(study.layout.study.read_text())["study"]["seed"] == 5
    assert slurm.calls("sbatch"), result.output
    for script in study.layout.launches.glob("*/*.sbatch"):
        lines = script.read_text().splitlines()
        assert {"#SBATCH --partition=gpu", "#SBATCH --account=mine"} <= set(lines)


def test_a_search_says_its_whole_cost_before_it_is_submitted(folder: Path, slurm: Stubs) -> None:
    dry = ask_by_words("--prompt", "search", "--dry-run")
    assert dry.exit_code == 0, dry.output
    told = ask_by_words("--prompt", "search")
    assert "--yes" in str(told.exception)
    assert not slurm.calls("sbatch")
    study = load_study(folder / "rl-against-base.yaml")
    whole = sum(study.count_samples(arm) for arm in study.arms)
    tried = sum(study.count_samples(arm) for arm in study.tries)
    for output in (dry.output, str(told.exception)):
        assert f"{whole:,} samples" in output and f"{tried:,} samples" in output
    assert study.searching == ["base", "trained"]
