"""Plugins of an installed package: found by name, known by content, looked at before any job."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlbhpc import plugins
from rlbhpc.cli.main import cli
from rlbhpc.engines.engine import check_settings
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.registry import get_set
from rlbhpc.study.difference import diff
from rlbhpc.study.load import load_study
from rlbhpc.study.plugin_check import self_contained
from rlbhpc.study.study import Study
from rlbhpc.sweep.plan import make_plan, read_presence
from rlbhpc.sweep.remember import load_plan, store_study
from rlbhpc.train.algorithms import check_algorithm
from rlbhpc.train.recipes import check_recipes
from rlbhpc.train.rewards import make_reward
from rlbhpc.verify.registry import verifier
from rlbhpc.verify.running.pool import verify_apart
from rlbhpc.verify.verdict import Status
from tests.studies import plugged

ARMS = {
    "base": {"model": "base"},
    "sums": {"model": "base", "engine": "theirs"},
    "rl": {"model": "rl"},
}
STUDY = plugged(
    "theirs",
    "sign",
    "short",
    problem_sets={"sums": {"path": "sums.jsonl", "verifier": "sums"}},
    arms=ARMS,
    analysis={"statistics": ["all-right"]},
)
MODULES = {
    "theirs_sets": (
        "from rlbhpc.problems.problemset import FileSet, Source, make_problem\n"
        "def parse(name, record):\n"
        "    return make_problem(name, '', record.text('q'), record.text('a'), 'math')\n"
        "SET = FileSet(parse, Source())\n"
    ),
    "theirs_verifiers": (
        "def verify(gold, response, problem=None):\n    return len(response) % 2 == int(gold) % 2\n"
    ),
    "theirs_rewards": "def reward(judged):\n    return judged.n_tokens / judged.max_tokens\n",
    "theirs_algorithms": (
        "from rlbhpc.train.algorithms.algorithm import Algorithm, spread\n"
        "class Sign(Algorithm):\n"
        "    def advantages(self, signals):\n        return spread(signals.rewards, signals)\n"
    ),
    "theirs_engines": "from rlbhpc.engines.hf_engine import HfEngine as ENGINE\n",
    "theirs_statistics": "def statistic(n, c):\n    return (c == n).astype(float)\n",
}
ENTRY_POINTS = """
[rlbhpc.problem_sets]
sums = theirs_sets:SET
[rlbhpc.verifiers]
sums = theirs_verifiers:verify
[rlbhpc.rewards]
short = theirs_rewards:reward
[rlbhpc.algorithms]
sign = theirs_algorithms:Sign
[rlbhpc.engines]
theirs = theirs_engines:ENGINE
[rlbhpc.statistics]
all-right = theirs_statistics:statistic
[rlbhpc.aspects]
unused = theirs_nowhere:ASPECT
"""


def forget() -> None:
    """What a new process would not know of."""
    for name in MODULES:
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    plugins.all_entry_points.cache_clear()
    plugins.installed.cache_clear()
    plugins.installed_identity.cache_clear()


def metadata(site: Path, version: str) -> None:
    info = site / "rlb_theirs-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: rlb-theirs\nVersion: {version}\n"
    (info / "METADATA").write_text(text)
    (info / "entry_points.txt").write_text(ENTRY_POINTS)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, as pip leaves it, for this process and its children."""
    site = tmp_path / "site"
    metadata(site, "1.0")
    for name, text in MODULES.items():
        (site / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", f"{site}:{Path(__file__).parents[1]}")
    forget()
    yield site
    monkeypatch.undo()
    forget()


@pytest.fixture
def study(site: Path) -> Path:
    folder = site.parent / "study"
    folder.mkdir()
    make_tiny_model(folder / "model", hidden_size=32)
    (folder / "ask.txt").write_text("{question}\n")
    (folder / "sums.jsonl").write_text('{"q": "1+1?", "a": "2"}\n{"q": "2+3?", "a": "5"}\n')
    (folder / "theirs.yaml").write_text(STUDY)
    return folder / "theirs.yaml"


def prints(study: Study) -> dict[str, int]:
    """The fingerprint of each arm's samples: the first problem's."""
    return {block.arm: int(block.fingerprints[0]) for block in study.blocks()}


def check(study: Path) -> str:
    done = CliRunner().invoke(cli, ["check", str(study)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_all_plugins_of_a_study_are_known_by_package_and_content(study: Path) -> None:
    known = load_study(study).plugins
    assert set(known) == {
        "problem_sets:sums", "verifiers:sums", "rewards:short", "algorithms:sign",
        "engines:theirs", "statistics:all-right",
    }  # fmt: skip
    assert known["verifiers:sums"].startswith("sums@rlb-theirs-1.0:")
    assert known["verifiers:sums"] == verifier("sums").FINGERPRINT


@pytest.mark.parametrize(
    ("module", "stale"),
    [
        ("theirs_sets", set()),
        ("theirs_verifiers", {"rl"}),
        ("theirs_rewards", {"rl"}),
        ("theirs_algorithms", {"rl"}),
        ("theirs_engines", {"sums"}),
        ("theirs_statistics", set()),
    ],
)
def test_a_byte_of_a_module_makes_stale_what_it_decides(
    site: Path, study: Path, module: str, stale: set[str]
) -> None:
    before = load_study(study)
    with (site / f"{module}.py").open("a") as text:
        text.write("# a remark\n")
    forget()
    after = load_study(study)
    assert {arm for arm in prints(before) if prints(before)[arm] != prints(after)[arm]} == stale
    # What a set decides is known by its problems.
    assert (before.hash != after.hash) == (module != "theirs_sets")
    assert {block.arm for block in diff(before, after).blocks if not block.is_valid} == stale


def test_another_version_of_a_package_makes_the_same_stale(site: Path, study: Path) -> None:
    before = load_study(study)
    metadata(site, "1.1")
    forget()
    after = load_study(study)
    changed = {arm for arm in prints(before) if prints(before)[arm] != prints(after)[arm]}
    assert changed == {"rl", "sums"}


@pytest.mark.slow
def test_check_lists_installed_plugins(site: Path, study: Path) -> None:
    output = check(study)
    for plugin in ("sums", "all-right"):
        assert re.search(rf"{plugin} +rlb-theirs-1\.0:[0-9a-f]{{16}}", output)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("raise ValueError('no')\n", "verifiers 'sums' of theirs_verifiers:verify: ValueError: no"),
        (None, "theirs_verifiers:verify: ModuleNotFoundError: No module named 'theirs_verifiers'"),
    ],
)
def test_check_tries_installed_plugins(
    site: Path, study: Path, text: str | None, complaint: str
) -> None:
    module = site / "theirs_verifiers.py"
    module.unlink() if text is None else module.write_text(text)
    forget()
    with pytest.raises(UserError, match=complaint) as refusal:
        check(study)
    assert "\n" not in str(refusal.value)


def test_an_installed_verifier_judges_in_its_own_process(study: Path) -> None:
    [problem, _] = load_study(study).problems("sums")
    assert verify_apart(problem, "xx").status is Status.RIGHT
    verdict = verify_apart(replace(problem, gold="5"), "xx")
    assert verdict.status is Status.WRONG
    assert verdict.grader == load_study(study).plugins["verifiers:sums"]


def test_jobs_refuse_another_package_than_the_study_was_planned_with(
    site: Path, study: Path
) -> None:
    planned = self_contained(load_study(study))
    assert planned.plugins == load_study(study).plugins
    store_study(planned)
    missing = read_presence(planned.layout, list(planned.blocks()))
    path = make_plan(planned, missing, 1000).save(planned.layout.plans)
    load_plan(path)
    metadata(site, "2.0")
    forget()
    with pytest.raises(UserError, match=r"was planned with .*rlb-theirs-1\.0.*2\.0"):
        load_plan(path)


def test_a_problem_of_an_unknown_verifier_names_those_of_packages(site: Path) -> None:
    problem = Problem("sums/0", {"question": "?"}, "2", "sum")
    with pytest.raises(UserError, match=r"'sum': no such kind; allowed: .*, sums, or a file"):
        verify_apart(problem, "2")


@pytest.mark.slow
def test_only_what_a_study_names_is_looked_at(study: Path) -> None:
    looked = load_study(study).plugins
    assert "aspects:unused" not in looked
    assert "engines:theirs" in looked


def other_package(site: Path, kind: str, name: str) -> None:
    info = site / "rlb_other-2.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rlb-other\nVersion: 2.0\n")
    entries = f"[rlbhpc.{kind}]\n{name} = theirs_statistics:statistic\n"
    (info / "entry_points.txt").write_text(entries)
    forget()


@pytest.mark.parametrize(
    ("kind", "name", "use"),
    [
        ("problem_sets", "math500", get_set),
        ("verifiers", "math", verifier),
        ("rewards", "correct", lambda name: make_reward({name: 1.0})),
        ("algorithms", "grpo", check_algorithm),
        ("engines", "hf", lambda name: check_settings(name, {})),
    ],
)
def test_no_package_takes_a_name_of_rlbhpcs_own(
    site: Path, kind: str, name: str, use: Callable[[str], object]
) -> None:
    other_package(site, kind, name)
    complaint = f"{kind} '{name}' is rlbhpc's own, and rlb-other-2.0 registers theirs_statistics:"
    with pytest.raises(UserError, match=complaint) as refusal:
        use(name)
    assert "\n" not in str(refusal.value)


def test_no_package_takes_the_name_of_fine_tuning(site: Path, study: Path) -> None:
    recipe = STUDY[STUDY.index("    algorithm:") : STUDY.index("problem_sets:\n")]
    study.write_text(STUDY.replace(recipe, "    algorithm: sft\n    texts: texts.jsonl\n"))
    (study.parent / "texts.jsonl").write_text('{"prompt": "1+1?", "response": "2"}\n')
    check_recipes(load_study(study))
    other_package(site, "algorithms", "sft")
    with pytest.raises(UserError, match="rl: algorithms 'sft' is rlbhpc's own"):
        check_recipes(load_study(study))


def test_one_name_of_two_packages_is_refused_where_a_study_names_it(
    site: Path, study: Path
) -> None:
    other_package(site, "aspects", "unused")
    load_study(study)
    other_package(site, "verifiers", "sums")
    with pytest.raises(UserError, match="verifiers 'sums' is registered twice: ") as refusal:
        load_study(study)
    for package in ("theirs_verifiers:verify of rlb-theirs-1.0", "of rlb-other-2.0"):
        assert package in str(refusal.value)


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ("theirs_nowhere:ASPECT", "ModuleNotFoundError: No module named 'theirs_nowhere'"),
        ("theirs_broken.inner:ASPECT", "ValueError: not today"),
        ("theirs_rewards:gone", "AttributeError: module 'theirs_rewards' has no attribute 'gone'"),
    ],
)
def test_a_package_that_cannot_be_imported_is_one_line(site: Path, value: str, cause: str) -> None:
    (site / "theirs_broken").mkdir()
    (site / "theirs_broken" / "__init__.py").write_text("raise ValueError('not\\n today')\n")
    registered = f"[rlbhpc.aspects]\nunused = {value}\n"
    (site / "rlb_theirs-1.0.dist-info" / "entry_points.txt").write_text(registered)
    forget()
    with pytest.raises(UserError) as told:
        plugins.find("aspects", "unused")
    assert str(told.value) == f"aspects 'unused' of {value}: {cause}"
    if "gone" not in value:
        with pytest.raises(UserError) as told:
            plugins.identity("aspects:unused")
        assert str(told.value) == f"aspects 'unused' of {value}: {cause}"
