"""From two models to samples: what is asked, where it runs, and what a reader sees meanwhile."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlbhpc.errors import DONE, INCOMPLETE, TRY_AGAIN, UserError
from rlbhpc.launch import ask
from rlbhpc.launch.host.claims import start_tick
from rlbhpc.store.compact import compact
from rlbhpc.study.draft import ON_CPUS, ON_GPUS, Draft, ModelSource, Size
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.remember import store_study
from tests.launch.launched import ME, call, stubs
from tests.launch.made import Stubs, study_in
from tests.study.folder import write_model
from tests.sweep.conftest import keys_of
from tests.sweep.test_plan import row, store

__all__ = ["stubs"]
JOBS = "48 samples; jobs sample, compact, report"
HUB = {"x": "o/x", "y": "o/y"}
STUCK = "48 samples are missing and the last launch changed nothing; "


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two models, on a machine of which nothing but its programs is known."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLBHPC_CLUSTERS", str(tmp_path / "tables"))
    for name in ("base", "rl"):
        write_model(tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    ("cluster", "has_slurm", "gpus", "size"),
    [
        ("local", True, "", ON_CPUS),
        ("local", True, "0", ON_GPUS),
        ("generic", False, "", ON_GPUS),
        (None, True, "", ON_GPUS),
        (None, False, "", ON_CPUS),
        (None, False, "0", ON_GPUS),
    ],
)
def test_as_much_is_drawn_as_the_place_of_the_work_can(
    pair: Path, monkeypatch: pytest.MonkeyPatch, cluster: str | None, has_slurm: bool, gpus: str,
    size: Size,
) -> None:  # fmt: skip
    stubs = Stubs(pair / "bin")
    monkeypatch.setenv("PATH", str(stubs.folder))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    if has_slurm:
        stubs.add("sbatch")
    study = ask.draft("base", "rl", None, cluster)
    assert (study.size, study.problem_sets, study.cluster) == (size, ("math500",), cluster)


def test_a_toy_is_asked_what_needs_no_download(pair: Path) -> None:
    (pair / "base" / "config.json").write_text('{"vocab_size": 259}')
    assert ask.draft("base", "rl", None, "local").problem_sets == ("countdown",)
    assert ask.draft("base", "rl", "aime24,math500", "local").problem_sets == ("aime24", "math500")


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ("genric", r"no cluster 'genric' in the table; there are .*; did you mean generic"),
        (
            "my/site.yaml",
            r"--cluster my/site.yaml: a study names an entry of the cluster table; "
            "name site after copying the file to .*/tables$",
        ),
    ],
)
def test_a_cluster_that_no_study_can_name_is_refused(
    pair: Path, cluster: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        ask.draft("base", "rl", None, cluster)


def test_models_and_sets_are_fetched_once(pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is generated, or lies there, is fetched from nowhere."""
    fetched: list[str] = []

    def stage_model(hub: str, folder: Path) -> bool:
        fetched.append(f"{hub} {folder.name}")
        return hub == "o/x"

    def stage(name: str, folder: Path) -> tuple[SimpleNamespace, None]:
        fetched.append(f"{name} {folder}")
        return SimpleNamespace(problems={"a": {"count": 1_000}, "b": {"count": 234}}), None

    monkeypatch.setattr(ask, "stage_model", stage_model)
    monkeypatch.setattr(ask, "stage", stage)
    (pair / "data" / "aime24").mkdir(parents=True)
    there, x, y = (ModelSource(pair / name, hub) for name, hub in (("a", None), *HUB.items()))
    lines: list[str] = []
    ask.fetch(Draft(there, y, ("countdown", "aime24", "math500"), None, ON_CPUS), lines.append)
    ask.fetch(Draft(x, y, ("countdown",), None, ON_CPUS), lines.append)
    assert fetched == ["o/y y", "math500 data", "o/x x", "o/y y"]
    assert lines == ["fetched math500, 1,234 problems", f"fetched o/x into {pair / 'x'}"]


def results(path: Path) -> tuple[list[str], UserError]:
    """What is said of a study whose samples nobody makes, and how that ends."""
    lines: list[str] = []
    with pytest.raises(UserError) as stopped:
        ask.make_results(path, lines.append)
    return lines, stopped.value


def without_ids(lines: list[str]) -> list[str]:
    """Without the lines that name what was submitted, such as compact: 2, and without the cost."""
    told = [line for line in lines if not re.fullmatch(r"[\w-]+: \d+", line)]
    return [re.sub(r", about [^;]*", "", line) for line in told]


def test_a_login_node_does_no_work_while_its_slurm_is_away(tmp_path: Path, stubs: Stubs) -> None:
    path, study = study_in(tmp_path / "s")
    stubs.add("sinfo", "exit 1")
    lines, error = results(path)
    assert lines == []
    assert error.code == TRY_AGAIN
    assert str(error) == (
        "sbatch is here but Slurm does not answer; try again later, or work on this machine with"
        " --cluster local"
    )
    assert not study.layout.launches.exists()


def fail(study: Study) -> None:
    folder = study.layout.launches / "0001" / "failures"
    folder.mkdir(exist_ok=True)
    record = {"stalls": 1, "recovered": False, "runs": [{"cause": "died of signal 11"}]}
    (folder / "1_0.json").write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("happens", "cause"),
    [
        (lambda study: None, "its logs say why"),
        (fail, "died of signal 11: read the end of its log (rlbhpc doctor RUN shows it), then"
               " launch again"),
    ],
)  # fmt: skip
def test_what_launching_again_does_not_help_ends_with_its_cause(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[Study], None], cause: str,
) -> None:  # fmt: skip
    """A change of the queue is one line; the second launch that makes nothing is the last."""
    path, study = study_in(tmp_path / "s")
    monkeypatch.setattr(ask, "SECONDS_BETWEEN_LOOKS", 0.0)
    stubs.add("sinfo")
    stubs.add(
        "squeue",
        'c=$(cat "$0.c" 2>/dev/null || echo 0); echo $((c + 1)) >"$0.c"\n'
        "case $c in 0|1) echo '1_0|RUNNING|None|me';; 2) echo '1_0|PENDING|BeginTime|me';;"
        " 3) exit 1;; esac",
    )
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        happens(study)

    with pytest.raises(UserError) as stopped:
        ask.make_results(path, say)
    missing = "48 samples are missing; in the queue: "
    assert without_ids(lines) == [
        f"launch 0001 on cluster generic: {JOBS}",
        f"{missing}1 running",
        f"{missing}1 pending (BeginTime)",
        "48 samples are missing; Slurm does not answer",
        f"launch 0002 on cluster generic: {JOBS}",
    ]
    assert str(stopped.value) == f"{STUCK}{cause}. See rlbhpc doctor {study.layout.root}"
    assert stopped.value.code == INCOMPLETE


def test_samples_without_a_report_are_said_to_be_there(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, study = study_in(tmp_path / "s")
    stubs.add("sinfo")
    store(study, [row(study, key) for key in keys_of(study)])
    # Jobs of a cluster have an environment of their own.
    monkeypatch.setattr(
        ask, "_reject_absent_engines", lambda study: pytest.fail("asked for torch here")
    )
    lines, error = results(path)
    assert "compact: 1" in lines
    assert without_ids(lines) == [
        f"launch {number} on cluster generic: 0 samples; jobs compact, report"
        for number in ("0001", "0002")
    ]
    assert str(error) == (
        "no report was made and the last launch changed nothing; its logs say why. See rlbhpc"
        f" doctor {study.layout.root}"
    )


def test_jobs_that_outlived_a_kill_are_waited_for(tmp_path: Path, stubs: Stubs) -> None:
    """They end with all that was asked for, so that nothing is left to launch."""
    path, study = study_in(tmp_path / "s")
    path.write_text(f"{path.read_text()}cluster: local\n")
    store_study(load_study(path))
    store(study, [row(study, key) for key in keys_of(study)])
    process = subprocess.Popen(["sleep", "60"])
    study.layout.claims.mkdir()
    claim = study.layout.claims / "abc-00000.0"
    claim.write_text(f"local {socket.gethostname()} {process.pid} {start_tick(str(process.pid))}")
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        process.kill()
        process.wait()
        compact(study.layout)
        study.layout.report.mkdir()
        (study.layout.report / "report.html").touch()

    assert ask.make_results(path, say) == study.layout
    assert lines == [
        f"process {process.pid} on this machine works an earlier launch; waiting for its end"
    ]


def test_who_asks_again_while_jobs_wait_launches_nothing(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, study = study_in(tmp_path / "s")
    monkeypatch.setattr(ask, "SECONDS_BETWEEN_LOOKS", 0.0)
    stubs.add("sinfo")
    assert call("launch", path, "--submit")[0] == DONE
    stubs.add("squeue", f"echo '1_0|PENDING|Priority|{ME}'")
    lines: list[str] = []

    def say(line: str) -> None:
        """The jobs make all and end."""
        lines.append(line)
        store(study, [row(study, key) for key in keys_of(study)])
        compact(study.layout)
        study.layout.report.mkdir()
        (study.layout.report / "report.html").touch()
        stubs.add("squeue")

    assert ask.make_results(path, say) == study.layout
    assert lines == ["48 samples are missing; in the queue: 1 pending (Priority)"]
    assert [folder.name for folder in study.layout.launches.iterdir()] == ["0001"]


def test_nobody_waits_for_hidden_jobs_that_show_no_sign_of_life(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be gone for ever: who asks is told whose they are."""
    path, study = study_in(tmp_path / "s")
    waiting = SimpleNamespace(sleep=lambda seconds: pytest.fail("it waits"))
    monkeypatch.setattr(ask, "time", waiting)
    stubs.add("sinfo")
    assert call("launch", path, "--submit")[0] == DONE
    record = study.layout.launches / "0001" / "launch.json"
    record.write_text(record.read_text().replace(f'"user": "{ME}"', '"user": "ann"'))
    stubs.add("scontrol", "echo 'PrivateData = jobs'")
    stubs.add("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    _, error = results(path)
    assert "launch 0001 of ann" in str(error) and "rlbhpc cancel" in str(error)
    assert [folder.name for folder in study.layout.launches.iterdir()] == ["0001"]
