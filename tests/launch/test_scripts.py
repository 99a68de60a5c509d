"""Generated scripts, run with stub commands: what arrives where, whatever things are called."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from pathlib import Path

import pytest

from rlbhpc.errors import UserError
from rlbhpc.launch.api import write_launch
from rlbhpc.launch.doctor import rehearse
from rlbhpc.launch.script import read_options
from tests.launch.made import (
    SAMPLED,
    TRAINED,
    Stubs,
    cluster_of,
    jobs_in,
    launch_in,
    slurm_variables,
)

ODD = ["plain", "with space", "quote'\"s", "new\nline", "$(touch pwned) `touch pwned`;&|<>*?"]


@pytest.fixture
def stubs(tmp_path: Path) -> Stubs:
    found = Stubs(tmp_path / "bin")
    for name in ("rlbhpc", "scontrol", "torchrun", "srun"):
        found.add(name)
    # `apptainer exec OPTIONS IMAGE COMMAND…` runs the command, as the real one does.
    found.add("apptainer", 'while [[ "$1" != *.sif ]]; do shift; done; shift; exec "$@"')
    found.add("module")
    return found


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("inside", [False, True])
def test_every_script_runs_its_command_in_any_folder(
    name: str, inside: bool, tmp_path: Path, stubs: Stubs
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    keys = {"container": {"image": "/images/one.sif"}} if inside else {}
    cluster = cluster_of(tmp_path, rlbhpc=["rlbhpc"], **keys)
    refused = "line break" if "\n" in name else "cannot be bound" if inside and "'" in name else ""
    if refused:
        with pytest.raises(UserError, match=refused):
            launch_in(folder / "s", cluster)
        return
    launch = launch_in(folder / "s", cluster)
    for script in sorted(launch.glob("*.sbatch")):
        task = 1 if "shards=" in script.read_text() else None
        done = stubs.run("bash", str(script), cwd=tmp_path, **slurm_variables(launch, task))
        assert done.returncode == 0, done.stderr
        chdir = next(line for line in script.read_text().splitlines() if "--chdir=" in line)
        assert shlex.split(chdir)[1] == f"--chdir={launch}", "logs are found from any folder"
    (plan,) = (launch / "../../plans").iterdir()
    assert stubs.calls("rlbhpc") == [
        ["compact", "../..", "--seal"],
        ["report", "../.."],
        ["run", f"../../plans/{plan.name}", "--shards", "1", "--grace", "136"],
    ]
    if inside:
        words = stubs.calls("apptainer")[0]
        assert str(launch.parents[1]) in words or str(folder / "s") in words
        assert "--cleanenv" in words
    assert not list(tmp_path.rglob("pwned"))
    assert not list(tmp_path.rglob("rlbhpc-7")), "the folder on the node is removed"


def test_the_setup_of_a_site_may_read_variables_that_are_not_set(
    tmp_path: Path, stubs: Stubs
) -> None:
    """As conda's does: `conda.sh: line 26: PS1: unbound variable` ended jobs that set -u."""
    (tmp_path / "conda.sh").write_text('CONDA_OLD_PS1="$PS1"\nexport PROJ="$PROJ_LIB:conda"\n')
    setup = [f"source {tmp_path}/conda.sh", "module load apptainer"]
    launch = launch_in(tmp_path / "s", cluster_of(tmp_path, rlbhpc=["rlbhpc"], setup=setup))
    variables = slurm_variables(launch)
    done = stubs.run("bash", str(launch / "report.sbatch"), cwd=tmp_path, **variables)
    assert done.returncode == 0, done.stderr
    assert stubs.calls("rlbhpc") == [["report", "../.."]]
    assert stubs.calls("module") == [["load", "apptainer"]]


def test_values_of_a_study_have_no_effect_on_the_shell(tmp_path: Path, stubs: Stubs) -> None:
    text = TRAINED.replace(
        "name: trained", "name: trained\nquestion: '$(touch pwned)`touch pwned`'"
    )
    folder = tmp_path / "$(touch pwned)"
    cluster = cluster_of(
        tmp_path, rlbhpc=["rlbhpc"], environment={"ODD": "$(touch pwned)'\"`touch pwned`"}
    )
    launch = launch_in(folder, cluster, text=text)
    for script in sorted(launch.glob("*.sbatch")):
        stubs.run("bash", str(script), cwd=tmp_path, **slurm_variables(launch, 0))
    assert not list(tmp_path.rglob("pwned"))
    (train,) = (words for words in stubs.calls("rlbhpc") if words[0] == "train")
    assert train == ["train", "study.json", "rl"]


def test_a_task_without_its_checkpoint_says_so_and_runs_nothing(
    tmp_path: Path, stubs: Stubs
) -> None:
    launch = launch_in(tmp_path / "s", cluster_of(tmp_path, rlbhpc=["rlbhpc"]), text=TRAINED)
    done = stubs.run("bash", "sample-rl-20.sbatch", cwd=launch, **slurm_variables(launch, 0))
    assert done.returncode == 3
    assert "step-20/config.json is not there" in done.stderr
    assert not stubs.calls("rlbhpc")


def test_scores_follow_the_samples_and_precede_the_cube(tmp_path: Path, stubs: Stubs) -> None:
    text = SAMPLED + "scores:\n  own: {model: base, responses: base}\n"
    launch = launch_in(tmp_path / "s", cluster_of(tmp_path, rlbhpc=["rlbhpc"]), text=text)
    jobs = json.loads((launch / "launch.json").read_text())["jobs"]
    assert {name: job["after"] for name, job in jobs.items()} == {
        "sample": [], "score": ["sample"], "compact": ["score"], "report": ["compact"],
    }  # fmt: skip
    assert list(jobs) == ["sample", "score", "compact", "report"]
    done = stubs.run("bash", "score.sbatch", cwd=launch, **slurm_variables(launch))
    assert done.returncode == 0, done.stderr
    assert stubs.calls("rlbhpc") == [["score", "study.json"]]
    assert "#SBATCH --gres=gpu:1" in (launch / "score.sbatch").read_text()


def test_training_on_several_nodes_runs_under_srun_and_torchrun(
    tmp_path: Path, stubs: Stubs
) -> None:
    stubs.add("srun", 'while [[ "$1" == --* ]]; do shift; done; exec "$@"')
    stubs.add("scontrol", "echo node7; echo node8")
    stubs.add("python")
    cluster = cluster_of(tmp_path, train={"nodes": 2, "gpus": 4, "cpus": 16}, rlbhpc=["rlbhpc"])
    launch = launch_in(tmp_path / "s", cluster, text=TRAINED, options=read_options(["-c", "32"]))
    done = stubs.run(
        "bash", "train-rl.sbatch", cwd=launch, SLURM_JOB_NODELIST="node[7-8]",
        SLURM_JOB_NUM_NODES="2", **slurm_variables(launch),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (words,) = stubs.calls("python")
    assert words[:6] == ["-m", "rlbhpc.train.ranks", "--nproc-per-node", "4", "--nnodes", "2"]
    assert words[words.index("--rdzv-endpoint") + 1] == "node7:20007"
    assert "--cpus-per-task=32" in stubs.calls("srun")[0]
    # The parent's own srun removes on every node what each of them has made.
    assert stubs.calls("srun")[1][1:3] == ["rm", "-rf"]


def test_names_stay_words_of_sbatch(tmp_path: Path) -> None:
    launch = launch_in(tmp_path / "s", cluster_of(tmp_path), text=SAMPLED)
    for script in launch.glob("*.sbatch"):
        lines = [x for x in script.read_text().splitlines() if x.startswith("#SBATCH")]
        assert lines == sorted(lines)
        assert all(line.isascii() and " " not in line[8:] for line in lines)


def test_the_digest_of_the_image_goes_into_the_attempts(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tmp_path / "one.sif"
    image.write_bytes(b"image")
    cluster = cluster_of(tmp_path, container={"image": str(image)})
    stubs.add("rlbhpc", 'echo "image is $APPTAINERENV_RLBHPC_IMAGE"')
    one, jobs = jobs_in(tmp_path / "s", cluster)
    expected = hashlib.sha256(b"image").hexdigest()
    for launch in (write_launch(one, jobs), write_launch(one, jobs)):
        done = stubs.run("bash", "sample.sbatch", cwd=launch, **slurm_variables(launch, 0))
        assert f"image is {expected}" in done.stdout, done.stderr
        # Read once: the second launch finds it in the record of the first.
        monkeypatch.setattr("rlbhpc.files.sha256_of", lambda path: pytest.fail("read again"))


def test_a_job_refuses_an_image_that_is_not_the_recorded_one(tmp_path: Path, stubs: Stubs) -> None:
    image = tmp_path / "one.sif"
    image.write_bytes(b"image")
    cluster = cluster_of(tmp_path, container={"image": str(image)})
    stubs.add("rlbhpc")
    launch = write_launch(*jobs_in(tmp_path / "s", cluster))

    def worked() -> tuple[int, str, int]:
        before = len(stubs.calls("rlbhpc"))
        done = stubs.run("bash", "sample.sbatch", cwd=launch, **slurm_variables(launch, 0))
        return done.returncode, done.stderr, len(stubs.calls("rlbhpc")) - before

    # The same content at another time, as of a copy, is the same image.
    os.utime(image, (7, 7))
    code, _, calls = worked()
    assert (code, calls) == (0, 1)
    image.write_bytes(b"other image")
    code, text, calls = worked()
    assert (code, calls) == (64, 0)
    (line,) = [line for line in text.splitlines() if line.startswith("rlbhpc: ")]
    assert str(image) in line and "launch again" in line


def test_a_rehearsal_without_the_sites_python_ends_at_once(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{stubs.folder}:/usr/bin:/bin")
    stubs.add(
        "sbatch",
        "SLURM_ARRAY_TASK_ID=0 SLURM_JOB_ID=7 bash rehearsal.sbatch 2>log; echo 7",
    )
    stubs.add("scancel")
    stubs.add("squeue")
    lines: list[str] = []
    cluster = cluster_of(tmp_path, rlbhpc=["rlbhpc"], python="/no/such/python3")
    assert not rehearse(tmp_path / "runs", cluster, {}, lines.append)
    assert lines[-1].startswith("not: ")
    assert "/no/such/python3" in lines[-1]
