"""A study that brings all its parts, and what one byte of each makes stale."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from rlbhpc import plugins
from rlbhpc.cli.main import cli
from rlbhpc.engines.completion import Finish
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.launch.prepare import try_own_rewards
from rlbhpc.problems.problem import Problem
from rlbhpc.study.difference import diff
from rlbhpc.study.layout import Layout
from rlbhpc.study.lineage import begin_training
from rlbhpc.study.load import load_study
from rlbhpc.study.plugin_check import self_contained
from rlbhpc.study.study import Study
from rlbhpc.sweep.remember import store_study
from rlbhpc.train.rewards import Judged, make_reward
from rlbhpc.verify.registry import verify
from rlbhpc.verify.running.pool import reject_raising_verifier
from rlbhpc.verify.verdict import Status, Verdict
from tests.studies import plugged

STUDY = plugged(
    "own",
    "./algorithm.py:Sign",
    "./reward.py",
    problem_sets={
        "sums": {"set": "./sums.py", "path": "sums.jsonl", "verifier": "./verifier.py"},
        "plain": {
            "path": "plain.jsonl",
            "fields": {"question": "ask", "gold": "sum", "id": "uid", "level": "hard"},
        },
    },
    analysis={"statistics": ["./statistic.py"], "aspects": ["./aspect.py"]},
)
FILES = {
    "ask.txt": "{question}\n",
    "sums.jsonl": '{"q": "1+1?", "a": "2"}\n{"q": "2+3?", "a": "5"}\n',
    "plain.jsonl": '{"ask": "4+4?", "sum": 8, "uid": "a", "hard": 3}\n',
    "sums.py": """
from rlbhpc.problems.problemset import FileSet, Source, make_problem

def parse(name, record):
    return make_problem(name, "", record.text("q"), record.text("a"), "math")

SET = FileSet(parse, Source())
""",
    "verifier.py": """
def verify(gold, response, problem=None):
    return len(response) % 2 == int(gold) % 2
""",
    "reward.py": """
def reward(judged):
    return judged.n_tokens / judged.max_tokens
""",
    "algorithm.py": """
from dataclasses import dataclass
from rlbhpc.train.algorithms.algorithm import Algorithm, group_mean, spread

@dataclass(frozen=True)
class Sign(Algorithm):
    scale: float = 1.0

    def advantages(self, signals):
        centred = signals.rewards - group_mean(signals.rewards, signals.groups)
        return spread(self.scale * centred.sign(), signals)
""",
    "statistic.py": """
def statistic(n, c):
    return (c == n).astype(float)
""",
    "aspect.py": """
from rlbhpc.report.aspect import Aspect, Part
from rlbhpc.report.markup import el

ASPECT = Aspect(Part.SAMPLES, lambda report: [el("p", "An aspect of this study.")])
""",
}
KINDS = {
    "sums.py": "problem_sets",
    "verifier.py": "verifiers",
    "reward.py": "rewards",
    "algorithm.py": "algorithms",
    "statistic.py": "statistics",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "study"
    folder.mkdir()
    make_tiny_model(folder / "model", hidden_size=32)
    (folder / "own.yaml").write_text(STUDY)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def prints(study: Study) -> dict[tuple[str, str], int]:
    """The fingerprint of each block of samples: the first problem's."""
    return {(b.arm, b.set_name): int(b.fingerprints[0]) for b in study.blocks()}


def run(*words: object) -> str:
    done = CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(
    ("file", "stale"),
    [
        ("sums.py", set()),
        ("verifier.py", {("rl", "sums"), ("rl", "plain")}),
        ("reward.py", {("rl", "sums"), ("rl", "plain")}),
        ("algorithm.py", {("rl", "sums"), ("rl", "plain")}),
        ("statistic.py", set()),
        ("aspect.py", set()),
    ],
)
def test_a_byte_of_a_plugin_makes_stale_what_it_decides(
    folder: Path, file: str, stale: set[tuple[str, str]]
) -> None:
    before = load_study(folder / "own.yaml")
    with (folder / file).open("a") as text:
        text.write("# a remark\n")
    after = load_study(folder / "own.yaml")
    changed = {block for block in prints(before) if prints(before)[block] != prints(after)[block]}
    assert changed == stale
    # What a set decides is known by its problems.
    assert (before.hash != after.hash) == (file != "sums.py")


@pytest.mark.slow
def test_a_byte_of_an_engine_makes_stale_what_it_draws(folder: Path) -> None:
    engine = folder / "engine.py"
    engine.write_text("from rlbhpc.engines.hf_engine import HfEngine as ENGINE\n")
    arm = f"arms.mine={{model: base, engine: {engine}}}"
    before = load_study(folder / "own.yaml", [arm])
    assert str(engine) in before.plugins
    with engine.open("a") as text:
        text.write("# a remark\n")
    after = load_study(folder / "own.yaml", [arm])
    changed = {block for block in prints(before) if prints(before)[block] != prints(after)[block]}
    assert changed == {("mine", "sums"), ("mine", "plain")}
    ours = load_study(folder / "own.yaml", ["arms.mine={model: base}"])
    for old, new in ((before, after), (after, ours)):
        reasons = {block.because for block in diff(old, new).blocks if block.arm == "mine"}
        assert reasons == {("other engine",)}
    # Whichever of rlbhpc's own engines draws a sample, it counts; so do those of before.
    named = load_study(folder / "own.yaml", [arm, "arms.base.engine=vllm"])
    assert prints(named) == prints(after)


@pytest.mark.parametrize(("keep", "other"), [("right", True), ("all", False)])
def test_a_byte_of_a_verifier_changes_what_right_answers_teach(
    folder: Path, keep: str, other: bool
) -> None:
    changes = [
        f"recipes={{pupil: {{algorithm: sft, teacher: {{arm: base, keep: {keep}}}}}}}",
        "models.rl={train: {from: base, recipe: pupil}, steps: [1]}",
    ]
    before = load_study(folder / "own.yaml", changes)
    with (folder / "verifier.py").open("a") as text:
        text.write("# a remark\n")
    after = load_study(folder / "own.yaml", changes)
    assert (before.digests["rl"][1] != after.digests["rl"][1]) == other


def test_a_training_goes_on_only_by_the_verifier_that_it_began_with(folder: Path) -> None:
    begin_training(load_study(folder / "own.yaml"), "rl")
    begin_training(load_study(folder / "own.yaml"), "rl")
    with (folder / "verifier.py").open("a") as text:
        text.write("# a remark\n")
    with pytest.raises(UserError, match=r"model rl: the training in .* was begun by recipe"):
        begin_training(load_study(folder / "own.yaml"), "rl")


def test_a_byte_of_a_teachers_engine_makes_another_model(folder: Path) -> None:
    engine = folder / "engine.py"
    engine.write_text("from rlbhpc.engines.hf_engine import HfEngine as ENGINE\n")
    changes = [
        "recipes={pupil: {algorithm: sft, teacher: {arm: base}}}",
        "models.rl={train: {from: base, recipe: pupil}, steps: [1]}",
        f"arms.base.engine={engine}",
    ]
    before = load_study(folder / "own.yaml", changes)
    with engine.open("a") as text:
        text.write("# a remark\n")
    after = load_study(folder / "own.yaml", changes)
    assert before.digests["rl"][1] != after.digests["rl"][1]


def test_a_set_of_ones_own_makes_stale_the_problems_that_it_changes(folder: Path) -> None:
    before = load_study(folder / "own.yaml")
    text = FILES["sums.py"].replace('record.text("q")', '"Add: " + record.text("q")')
    (folder / "sums.py").write_text(text)
    after = load_study(folder / "own.yaml")
    changed = {block for block in prints(before) if prints(before)[block] != prints(after)[block]}
    # The recipe trains on them, so all samples of the trained model change too.
    assert changed == {("base", "sums"), ("rl", "sums"), ("rl", "plain")}


def test_two_problems_of_one_id_are_refused_whoever_loads_them(folder: Path) -> None:
    """As a table's index may repeat: the second took the place of the first."""
    (folder / "sums.py").write_text(
        "from rlbhpc.problems.problem import Problem\n"
        "from rlbhpc.problems.problemset import ProblemSet\n"
        "class Table(ProblemSet):\n"
        "    def load(self, selection):\n"
        "        return [Problem('sums/0', {'question': q}, '2', 'math') for q in ('1+1', '0+2')]\n"
        "SET = Table()\n"
    )
    with pytest.raises(UserError, match=r"sums\.py: 2 problems have the id 'sums/0'; allowed: one"):
        load_study(folder / "own.yaml")


@pytest.mark.parametrize(
    ("problems", "complaint"),
    [
        ("[Problem('sums/0', {'question': '?'}, [2], 'math')]", "problem sums/0: its gold is [2]"),
        ("[{'id': 'sums/0', 'question': '?'}]", "AttributeError: 'dict' object has no attribute"),
        ("None", "TypeError: 'NoneType' object is not iterable"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_set_that_is_no_file_set_is_refused_in_one_line(
    folder: Path, problems: str, complaint: str
) -> None:
    """It ended in a traceback."""
    (folder / "sums.py").write_text(
        "from rlbhpc.problems.problem import Problem\n"
        "from rlbhpc.problems.problemset import ProblemSet\n"
        "class Table(ProblemSet):\n"
        f"    def load(self, selection):\n        return {problems}\n"
        "SET = Table()\n"
    )
    with pytest.raises(UserError, match=re.escape(complaint)) as error:
        load_study(folder / "own.yaml")
    assert f": {folder / 'sums.py'}: loading its problems: " in str(error.value)


def test_a_set_under_which_the_file_system_fails_may_be_tried_again(folder: Path) -> None:
    """A worker ended with 64, which says that its study is wrong."""
    study = load_study(folder / "own.yaml")
    (folder / "sums.py").write_text(
        "from rlbhpc.problems.problemset import ProblemSet\n"
        "class Table(ProblemSet):\n"
        "    def load(self, selection):\n        raise OSError(5, 'Input/output error')\n"
        "SET = Table()\n"
    )
    with pytest.raises(UserError, match="Input/output error") as error:
        study.problems("sums")
    assert error.value.code == TRY_AGAIN


def test_a_study_can_be_moved_with_its_plugins(folder: Path) -> None:
    before = load_study(folder / "own.yaml")
    moved = folder.parent / "elsewhere"
    shutil.move(folder, moved)
    after = load_study(moved / "own.yaml")
    assert prints(before) == prints(after)
    assert before.hash == after.hash


def test_fields_of_records_are_named_in_the_study(folder: Path) -> None:
    [problem] = load_study(folder / "own.yaml").problems("plain")
    assert (problem.id, problem.gold, problem.fields["question"]) == ("plain/a", "8", "4+4?")
    assert problem.extras["level"] == 3
    assert problem.verifier == "math"


def test_a_copy_that_was_begun_is_made_anew(folder: Path) -> None:
    """A kill right after the folder was made leaves it empty."""
    study = load_study(folder / "own.yaml")
    for name, identity in study.plugins.items():
        copy = study.layout.plugin(identity.rpartition("@")[2], Path(name).name)
        copy.parent.mkdir(parents=True, exist_ok=True)
    copies = self_contained(study).plugins
    assert len(copies) == len(study.plugins)
    for copied in copies:
        assert plugins.path_of(copied).read_text() in FILES.values()


def test_jobs_read_copies_by_content(folder: Path) -> None:
    study = load_study(folder / "own.yaml")
    stored = Study.from_json(self_contained(study).to_json())
    (folder / "verifier.py").write_text("broken(")
    copy = stored.problem_sets["sums"].verifier
    assert copy is not None
    assert Path(copy).read_text() == FILES["verifier.py"]
    assert Path(copy).is_relative_to(Layout(folder / "runs" / "own").root)
    recipe = stored.file.recipes["rl"]
    assert recipe.algorithm.endswith("algorithm.py:Sign")
    assert Path(recipe.algorithm.removesuffix(":Sign")).is_file()
    assert stored.hash == study.hash


#: What a problem set's file may hold instead of a set, and what is said of it.
BROKEN = {
    "x = 1\n": "no `SET` in it, only x; name another one as",
    "SET = 3\n": "found 3; allowed: a ProblemSet",
    "\nimport nothing_like_it\n": "sums.py:2: ModuleNotFoundError",
    "x = (\n": "SyntaxError: '(' was never closed",
    "raise SystemExit(3)\n": "sums.py:1: SystemExit: 3",
}


@pytest.mark.parametrize(("text", "complaint"), BROKEN.items())
def test_a_broken_plugin_is_one_line(folder: Path, text: str, complaint: str) -> None:
    (folder / "sums.py").write_text(text)
    with pytest.raises(UserError) as error:
        load_study(folder / "own.yaml")
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_a_plugin_that_is_not_there_is_one_line(folder: Path) -> None:
    (folder / "reward.py").unlink()
    with pytest.raises(UserError, match=r"reward\.py: cannot be read: No such file"):
        load_study(folder / "own.yaml")


@pytest.mark.slow
def test_check_says_what_it_found_in_a_plugin(folder: Path) -> None:
    output = run("check", folder / "own.yaml")
    for name, kind in KINDS.items():
        assert name in output, kind
    for identity in load_study(folder / "own.yaml").plugins.values():
        assert identity.replace("@", " ") in " ".join(output.split())


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("return None if response == '' else True", "an empty response, it raised TypeError: the "),
        ("raise SystemExit(1)", "judging its reference answer, it raised SystemExit: 1"),
        ("return open('table.txt').read() == gold", "it raised FileNotFoundError: "),
    ],
)
def test_check_calls_a_verifier_before_any_sample(folder: Path, body: str, complaint: str) -> None:
    (folder / "table.txt").write_text("2")
    (folder / "verifier.py").write_text(f"def verify(gold, response, problem=None):\n    {body}\n")
    [problem, _] = load_study(folder / "own.yaml").problems("sums")
    with pytest.raises(UserError) as error:
        reject_raising_verifier(problem)
    assert str(error.value).startswith(f"{folder}/verifier.py: {problem.id}: judging ")
    assert complaint in str(error.value)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("return judged.verdict.right / len(judged.text)", "sums/.*: ZeroDivisionError: division"),
        ("return float(open('table.txt').read())", "sums/.*: FileNotFoundError: "),
        ("return float(open(__file__[:-9] + 'table.txt').read())", "sums/.*: FileNotFoundError: "),
        ("print('hi'); return judged.logprobs[0]", None),
    ],
)
def test_check_calls_a_reward_before_any_rollout(
    folder: Path, body: str, complaint: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who heard of it after the first rollout had waited in a queue for that."""
    (folder / "table.txt").write_text("1")
    (folder / "reward.py").write_text(f"def reward(judged):\n    {body}\n")
    monkeypatch.chdir(folder)
    study = load_study(folder / "own.yaml")
    if complaint is None:
        try_own_rewards(study, ["rl"])
        return
    with pytest.raises(UserError, match=f"reward {folder}/reward.py: on a response to {complaint}"):
        try_own_rewards(study, ["rl"])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("grade = len\n", "verifier.py: no `verify` in it, only grade"),
        ("import helper\nverify = helper.verify\n", "jobs have a copy of this file alone"),
    ],
)
def test_check_looks_at_a_verifier_as_jobs_will(
    folder: Path, text: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "table.txt").write_text("2")
    (folder / "helper.py").write_text("def verify(gold, response, problem=None): return True\n")
    (folder / "verifier.py").write_text(text)
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match=complaint):
        run("check", "own.yaml")


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("np.bool_(1)", Status.RIGHT),
        ("np.array(0.0)", Status.WRONG),
        ("1", Status.RIGHT),
        ("0.0", Status.WRONG),
        ("0.5", Status.ERROR),
        ("float('nan')", Status.ERROR),
        ("'right'", Status.ERROR),
        ("sys.exit()", Status.ERROR),
    ],
)
def test_what_a_verifier_may_give(tmp_path: Path, value: str, status: Status) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        f"import sys\nimport numpy as np\ndef verify(gold, response, problem): return {value}\n"
    )
    assert verify(str(file), "2", "3").status is status


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("sys.exit(3)", "SystemExit: 3"),
        ("None", "it gave None; allowed: a number, or NaN"),
        ("{'score': 1.0}", "it gave {'score': 1.0}; allowed"),
        ("[1.0]", "it gave [1.0]; allowed"),
        ("-math.inf", "it gave -inf; allowed"),
        ("10**400", "it gave 1000"),
    ],
)
def test_a_response_without_a_reward_is_one_line(
    tmp_path: Path, value: str, complaint: str
) -> None:
    """An infinite reward would make weights of NaN."""
    with pytest.raises(UserError) as error:
        rewarded(tmp_path, f"def reward(judged): return {value}\n")
    assert f"mine.py: on a response to sums/1: {complaint}" in str(error.value)


@pytest.mark.parametrize("value", ["True", "np.float32(1)", "np.array(1.0)", "Decimal(1)"])
def test_what_a_reward_may_give(tmp_path: Path, value: str) -> None:
    assert rewarded(tmp_path, f"def reward(judged): return {value}\n") == 1.0


@pytest.mark.parametrize("parameters", ["solution_str, ground_truth", "*, completions", ""])
def test_a_reward_of_other_parameters_is_refused_at_once(tmp_path: Path, parameters: str) -> None:
    """As rewards of other frameworks have them: not after the first rollout."""
    with pytest.raises(
        UserError, match=r"its parameters are \(.*\); it is called as reward\(judged"
    ):
        rewarded(tmp_path, f"def reward({parameters}): return 1.0\n")


def rewarded(folder: Path, text: str) -> float:
    """What a reward of these lines gives for one response."""
    file = folder / "mine.py"
    head = "import math, sys\nfrom decimal import Decimal\nimport numpy as np\n"
    file.write_text(head + text)
    problem = Problem("sums/1", {"question": "1+1?"}, "2", "math")
    judged = Judged(problem, "", 0, 8, Finish.EOS, Verdict(Status.WRONG))
    return make_reward({str(file): 1.0})(judged)


@pytest.mark.slow
def test_who_edits_a_verifier_is_told_of_the_verdicts_before(folder: Path) -> None:
    study = folder / "own.yaml"
    store_study(load_study(study))
    verdicts_kept = "Stored samples of sums keep the verdicts of the verifier before"
    assert verdicts_kept not in run("check", study)
    with (folder / "verifier.py").open("a") as text:
        text.write("# a remark\n")
    assert verdicts_kept in run("check", study)
    assert store_study(load_study(study)) == ["sums"]
    assert store_study(load_study(study)) == []


@pytest.mark.slow
def test_a_study_of_plugins_runs_from_training_to_the_report(folder: Path) -> None:
    study = folder / "own.yaml"
    run("train", study)
    run("sample", study)
    root = folder / "runs" / "own"
    # Edited after the sampling: verbs on the run use the bytes that it was run with.
    (folder / "statistic.py").write_text("broken(")
    run("compact", root)
    run("report", root)
    frame = pd.read_csv(root / "report" / "own_statistics.csv")
    assert {"statistic.py"} == set(frame["statistic"])
    assert {"base", "rl"} == set(frame["arm"])
    assert "An aspect of this study." in (root / "report" / "report.html").read_text()
    grader = plugins.identity(str(folder / "verifier.py"))
    problems = load_study(root / "study.json").problems("sums")
    for problem in problems:
        shown = run("show", root, "--problem", problem.id, "--sample", 0, "--json")
        for row in json.loads(shown):
            right = len(row["text"]) % 2 == int(problem.gold) % 2
            assert (row["verdict"] == "right") == right
            assert row["grader"] == grader
