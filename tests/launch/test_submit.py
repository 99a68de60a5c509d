"""submit.sh against an sbatch that is late, noisy, full or down."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launch.made import TRAINED, Stubs, cluster_of, launch_in

# Hands out ids from 101 on, as `sbatch --parsable` on a federated site does.
ACCEPT = 'n=$(( $(cat "$HOME/n" 2>/dev/null || echo 100) + 1 )); echo $n >"$HOME/n"; echo "$n;site"'


@pytest.fixture
def launch(tmp_path: Path) -> Path:
    return launch_in(tmp_path / "s", cluster_of(tmp_path, max_array_size=2), text=TRAINED)


@pytest.fixture
def stubs(tmp_path: Path) -> Stubs:
    found = Stubs(tmp_path / "bin")
    found.add("sbatch", ACCEPT)
    found.add("squeue")
    found.add("sleep")
    return found


def lines(launch: Path) -> list[str]:
    return (launch / "submitted").read_text().splitlines()


def test_one_sbatch_per_script_in_an_order_that_has_all_ids(launch: Path, stubs: Stubs) -> None:
    done = stubs.run("bash", "submit.sh", cwd=launch)
    assert done.returncode == 0, done.stderr
    calls = stubs.calls("sbatch")
    scripts = [words[-1] for words in calls]
    assert sorted(scripts) == sorted(path.name for path in launch.glob("*.sbatch"))
    ids = dict(line.split() for line in lines(launch))
    by_script = {words[-1].removesuffix(".sbatch"): words[1:-1] for words in calls}
    assert by_script["train-rl"] == []
    assert by_script["sample-rl-10.000"] == [f"--dependency=afterany:{ids['train-rl']}"]
    assert by_script["report"] == [f"--dependency=afterany:{ids['compact']}"]
    assert len(by_script["compact"][0].split(":")) == len(calls) - 1


def test_again_submits_nothing_twice(launch: Path, stubs: Stubs) -> None:
    stubs.run("bash", "submit.sh", cwd=launch)
    first = lines(launch)
    assert stubs.run("bash", "submit.sh", cwd=launch).returncode == 0
    assert len(stubs.calls("sbatch")) == len(first)
    assert lines(launch) == first


def test_noise_around_the_id_is_passed_over(launch: Path, stubs: Stubs) -> None:
    stubs.add("sbatch", f"echo 'sbatch: 12 core hours left'; {ACCEPT}; echo 'Welcome 2 all'")
    assert stubs.run("bash", "submit.sh", cwd=launch).returncode == 0
    assert lines(launch)[0] == "train-rl 101"


def test_a_time_out_is_waited_for_longer_and_longer(launch: Path, stubs: Stubs) -> None:
    late = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    stubs.add(
        "sbatch",
        f'c=$(( $(cat "$HOME/c" 2>/dev/null || echo 0) + 1 )); echo $c >"$HOME/c"\n'
        f'if [ $c -le 3 ]; then echo "{late}" >&2; exit 1; fi\n{ACCEPT}',
    )
    assert stubs.run("bash", "submit.sh", cwd=launch).returncode == 0
    assert stubs.calls("sleep") == [["5"], ["15"], ["45"]]


def test_a_job_that_was_taken_although_the_answer_was_late_is_not_submitted_again(
    launch: Path, stubs: Stubs
) -> None:
    stubs.add("sbatch", "echo 'sbatch: error: Socket timed out on send/recv operation'; exit 1")
    stubs.add("squeue", "echo 55; echo 55")
    assert stubs.run("bash", "submit.sh", cwd=launch).returncode == 0
    assert lines(launch)[0] == "train-rl 55"
    assert len(stubs.calls("sbatch")) == len(lines(launch))
    asked = stubs.calls("squeue")[0]
    assert any(word.startswith("--name=trained-") and word.endswith("-train-rl") for word in asked)


@pytest.mark.parametrize(
    ("answer", "code", "advice"),
    [
        ("Job violates accounting/QOS policy (QOSMaxSubmitJobPerUserLimit)", 75, "--width"),
        ("Batch job submission failed: Job violates accounting/QOS policy", 75, "max_jobs"),
        ("Invalid account or account/partition combination specified", 64, "cluster's file"),
        ("Unable to contact slurm controller (connect failure)", 75, "later"),
    ],
)
def test_a_refusal_says_what_to_change_and_nothing_is_lost(
    launch: Path, stubs: Stubs, answer: str, code: int, advice: str
) -> None:
    stubs.add(
        "sbatch",
        f'case "$*" in *compact*) echo "sbatch: error: {answer}" >&2; exit 1;; esac\n{ACCEPT}',
    )
    done = stubs.run("bash", "submit.sh", cwd=launch)
    assert done.returncode == code
    assert advice in done.stderr
    before = lines(launch)
    stubs.add("sbatch", ACCEPT)
    assert stubs.run("bash", "submit.sh", cwd=launch).returncode == 0
    assert lines(launch)[: len(before)] == before
    assert len(lines(launch)) == len(list(launch.glob("*.sbatch")))


def test_a_job_that_slurm_has_forgotten_is_no_longer_waited_for(launch: Path, stubs: Stubs) -> None:
    stubs.add(
        "sbatch",
        'case "$*" in *:101*) echo "sbatch: error: Job dependency problem" >&2; exit 1;; esac\n'
        + ACCEPT,
    )
    stubs.add("squeue", 'case "$*" in *--job=101) exit 1;; esac')
    assert stubs.run("bash", "submit.sh", cwd=launch).returncode == 0
    compact = [words for words in stubs.calls("sbatch") if words[-1] == "compact.sbatch"][-1]
    assert ":101" not in compact[1]
    assert compact[1].startswith("--dependency=afterany:10")


def test_variables_of_the_shell_do_not_win_over_the_scripts(launch: Path, stubs: Stubs) -> None:
    stubs.add("sbatch", f'[ -z "${{SBATCH_ARRAY_INX-}}" ] || exit 1\n{ACCEPT}')
    assert stubs.run("bash", "submit.sh", cwd=launch, SBATCH_ARRAY_INX="0-9").returncode == 0
