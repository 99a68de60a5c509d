"""Two launches at once, by one person or two: no job twice, and who comes second is told."""

from __future__ import annotations

import errno
import getpass
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rlbhpc.errors import DONE, NOTHING_TO_DO, TRY_AGAIN, UserError
from rlbhpc.launch.api import write_prepared
from rlbhpc.launch.host.claims import SILENCE_LIMIT_SECONDS, host_name, start_tick
from rlbhpc.launch.launches import announce, cancel, claim_sending, describe_sender, local_workers
from rlbhpc.launch.prepare import prepare
from rlbhpc.study.layout import Layout
from tests.launch.launched import call, stubs
from tests.launch.made import ROOT, Stubs, study_in

__all__ = ["stubs"]
ME = getpass.getuser()
HERE = host_name()


@pytest.fixture
def other() -> Iterator[str]:
    """Another process of this user on this host."""
    process = subprocess.Popen(["sleep", "60"])
    yield f"{process.pid} {start_tick(str(process.pid))}"
    process.kill()
    process.wait()


def hold(layout: Layout, text: str, age: float = 0.0) -> Path:
    layout.launches.mkdir(parents=True, exist_ok=True)
    path = layout.launches / "sending.0"
    path.write_text(text + "\n")
    os.utime(path, (path.stat().st_mtime - age,) * 2)
    return path


def noted(folder: Path, name: str, text: str, age: float = 0.0) -> Path:
    path = folder / f"sample-{name}"
    path.write_text(text + "\n")
    os.utime(path, (path.stat().st_mtime - age,) * 2)
    return path


def test_two_who_sample_at_once_see_each_other_and_no_note_that_is_stale(
    tmp_path: Path, other: str
) -> None:
    alive = noted(tmp_path, "00000001", f"local {HERE} {other} {ME} sample")
    elsewhere = noted(tmp_path, "00000002", "local far 17 4 ann sample", SILENCE_LIMIT_SECONDS / 2)
    silent = noted(tmp_path, "00000003", "local far 18 4 ann sample", SILENCE_LIMIT_SECONDS * 2)
    killed = noted(tmp_path, "00000004", f"local {HERE} {os.getpid()} 1 {ME} sample")
    before = {alive, elsewhere}
    with announce(tmp_path, "sample") as others:
        assert len(others) == 2
        assert f"process {other.split()[0]} on {HERE}" in others[0]
        assert "ann" in others[1] and "process 17 on far" in others[1]
        assert not silent.exists() and not killed.exists()
        with announce(tmp_path, "sample") as seen:
            assert [f"process {os.getpid()} on {HERE}" in line for line in seen].count(True) == 1
    assert set(tmp_path.iterdir()) == before


def test_a_note_that_nobody_can_write_or_read_keeps_nobody_from_sampling(tmp_path: Path) -> None:
    (tmp_path / "claims").write_text("in the way")
    with announce(tmp_path / "claims", "sample") as others:
        assert others == []
    noted(tmp_path, "00000001", "cut", SILENCE_LIMIT_SECONDS * 2)
    with announce(tmp_path, "sample") as others:
        assert others == []


def test_a_launch_drafted_before_anothers_jobs_were_sent_sends_none(
    tmp_path: Path, stubs: Stubs
) -> None:
    path, study = study_in(tmp_path / "s")
    ours, theirs = prepare(path, shard_tokens=150), prepare(path, shard_tokens=300)
    write_prepared(theirs).submit(say=lambda line: None)
    sent = len(stubs.calls("sbatch"))
    stubs.add("squeue", "echo '1_[0-1]|PENDING|Priority|ann'")
    launch = write_prepared(ours)
    with pytest.raises(UserError, match=r"launch 0001 of .* not counted when launch 0002") as late:
        launch.submit()
    assert late.value.code == TRY_AGAIN
    assert len(stubs.calls("sbatch")) == sent
    # What is planned again counts them, in the same folder where nothing else has changed.
    stubs.add("squeue")
    assert call("launch", path, "--submit", "--shard-tokens", 150)[0] == DONE
    stubs.add("squeue", "echo '1_[0-1]|PENDING|Priority|ann'")
    assert set(launch.submit(say=lambda line: None)) == {"sample", "compact", "report"}
    assert [p.name for p in study.layout.launches.iterdir() if p.is_dir()].count("0002") == 1


@pytest.mark.parametrize("cluster", ["generic", "local"])
def test_what_was_planned_while_slurm_was_silent_is_sent_when_it_answers(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch, cluster: str
) -> None:
    """Without a Slurm, as on a laptop that the run was copied to, there is nobody to ask."""
    path, _ = study_in(tmp_path / "s")
    write_prepared(prepare(path, shard_tokens=300)).submit(say=lambda line: None)
    sent = len(stubs.calls("sbatch"))
    busy = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    stubs.add("squeue", f"echo '{busy}' >&2; exit 1")
    launch = write_prepared(prepare(path, cluster=cluster))
    with pytest.raises(UserError, match=r"is gone, move .*0001 away"):
        launch.submit()
    assert len(stubs.calls("sbatch")) == sent
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("rlbhpc.launch.send._run_as_processes", lambda *rest: {})
    launch = write_prepared(prepare(path, cluster="local"))
    assert launch.submit(say=lambda line: None) == {}


def test_what_somebody_else_wrote_and_did_not_send_is_theirs(tmp_path: Path, stubs: Stubs) -> None:
    """Their folder may not be ours to write, and their jobs are looked for under their name."""
    path, study = study_in(tmp_path / "s")
    theirs = write_prepared(prepare(path)).folder / "launch.json"
    theirs.write_text(theirs.read_text().replace(f'"user": "{ME}"', '"user": "ann"'))
    before = theirs.read_text()
    assert call("launch", path, "--submit")[0] == DONE
    assert theirs.read_text() == before
    assert (study.layout.launches / "0002" / "submitted").exists()
    assert not (theirs.parent / "submitted").exists()


@pytest.mark.parametrize("cluster", ["local", "generic"])
def test_who_comes_second_is_told_who_is_at_work(
    tmp_path: Path, stubs: Stubs, other: str, cluster: str
) -> None:
    path, study = study_in(tmp_path / "s")
    launch = write_prepared(prepare(path, cluster=cluster))
    hold(study.layout, f"local {HERE} {other} {ME} runs launch 0007")
    told = f"{ME} runs launch 0007 .process {other.split()[0]} on {HERE}.; wait for its end"
    for attempt in (launch.submit, lambda: prepare(path, cluster=cluster)):
        with pytest.raises(UserError, match=told) as refused:
            attempt()
        assert refused.value.code == TRY_AGAIN
    assert not stubs.calls("sbatch")


def test_cancel_stops_the_launch_that_somebody_submits_and_no_other(
    tmp_path: Path, stubs: Stubs, other: str
) -> None:
    path, study = study_in(tmp_path / "s")
    first, second = (write_prepared(prepare(path, shard_tokens=n)).folder for n in (300, 150))
    hold(study.layout, f"local {HERE} {other} {ME} submits launch 0001")
    assert cancel(study.layout).at_work.startswith(f"{ME} submits launch 0001")
    assert [(folder / "cancelled").exists() for folder in (first, second)] == [True, False]


def test_jobs_in_the_queue_are_seen_from_this_machine(tmp_path: Path, stubs: Stubs) -> None:
    path, _ = study_in(tmp_path / "s")
    assert call("launch", path, "--submit")[0] == DONE
    stubs.add("squeue", f"echo '1_[0-3]|RUNNING|None|{ME}'")
    code, result = call("launch", path, "--cluster", "local", "--submit")
    assert code == NOTHING_TO_DO
    assert "launch 0001 is in the queue" in result.stderr


def test_a_job_that_outlived_its_launcher_is_waited_for(
    tmp_path: Path, stubs: Stubs, other: str
) -> None:
    path, study = study_in(tmp_path / "s")
    study.layout.claims.mkdir(parents=True)
    (study.layout.claims / "abc-00000.0").write_text(f"local {HERE} {other}\n")
    with pytest.raises(UserError, match=f"process {other.split()[0]} on this machine works an"):
        prepare(path)
    # On another machine nobody can say, and what cannot be read is no process of this one.
    (study.layout.claims / "abc-00000.0").write_text("local elsewhere 1 1\n")
    (study.layout.claims / "abc-00001.0").mkdir()
    assert prepare(path).jobs


def test_claims_are_listed_once_however_many_there_are(
    tmp_path: Path, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand shards may be claimed; to list them for each took minutes."""
    layout = Layout(tmp_path)
    layout.claims.mkdir()
    for shard in range(30):
        (layout.claims / f"abc-{shard:05d}.0").write_text(f"slurm 10{shard}_3\n")
    # The newest generation counts, and the process that holds it now.
    for generation, holder in ((9, "4194305 1"), (10, other)):
        (layout.claims / f"abc-00007.{generation}").write_text(f"local {HERE} {holder}\n")
    (layout.claims / f"abc-00008.1.{HERE}.77.partial").write_text(f"local {HERE} {other}\n")
    listed: list[str] = []
    glob = Path.glob
    monkeypatch.setattr(
        Path, "glob", lambda path, pattern: listed.append(pattern) or glob(path, pattern)
    )
    assert local_workers(layout) == {"abc-00007": other.split()[0]}
    assert len(listed) == 1


@pytest.mark.parametrize(
    ("text", "age", "holds"),
    [
        (f"local {HERE} {{other}} {ME} runs launch 0001", SILENCE_LIMIT_SECONDS + 60, True),
        (f"local {HERE} 4194305 1 {ME} runs launch 0001", 0.0, False),
        ("local elsewhere 1 1 ann runs launch 0001", 0.0, True),
        ("local elsewhere 1 1 ann runs launch 0001", SILENCE_LIMIT_SECONDS + 60, False),
        # A host may hide the processes of others.
        (f"local {HERE} 4194305 1 ann runs launch 0001", 0.0, True),
    ],
)
def test_the_lock_of_who_has_ended_keeps_nobody_out(
    tmp_path: Path, other: str, text: str, age: float, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if " ann " in text:
        monkeypatch.setenv("LOGNAME", ME)
        monkeypatch.setattr(os, "getuid", lambda: -1)
    layout = Layout(tmp_path)
    hold(layout, text.format(other=other), age)
    if holds:
        with (
            pytest.raises(UserError, match="runs launch 0001"),
            claim_sending(layout.launches, "x"),
        ):
            pass
        return
    with claim_sending(layout.launches, "submits launch 0002"):
        # To this process it is no hindrance, to every other it is.
        assert describe_sender(layout) == ""
        imports = "import pathlib, sys; from rlbhpc.launch.launches import Layout, describe_sender"
        code = f"{imports}; print(describe_sender(Layout(pathlib.Path(sys.argv[1]))))"
        told = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], text=True, capture_output=True, check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert told.stdout == f"{ME} submits launch 0002 (process {os.getpid()} on {HERE})\n"
        with pytest.raises(UserError, match="0002"), claim_sending(layout.launches, "x"):
            pass
    assert describe_sender(layout) == ""


@pytest.mark.parametrize("reason", ["Is a directory", "it is empty"])
def test_a_lock_that_cannot_be_read_is_somebodys_for_a_while(tmp_path: Path, reason: str) -> None:
    path = tmp_path / "sending.0"
    path.touch() if reason == "it is empty" else path.mkdir()
    told = f"^an unknown job: sending.0: {reason}; remove it if nobody works it; wait for its end,"
    with pytest.raises(UserError, match=told), claim_sending(tmp_path, "x"):
        pass
    os.utime(path, (path.stat().st_mtime - SILENCE_LIMIT_SECONDS - 60,) * 2)
    with claim_sending(tmp_path, "x"):
        assert (tmp_path / "sending.1").exists()


def test_a_file_system_without_hard_links_has_the_lock_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(existing: Path, new: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", existing, None, new)

    monkeypatch.setattr(os, "link", refuse)
    told = f"{ME} submits launch 0001 .process {os.getpid()} on {HERE}.; wait"
    with claim_sending(tmp_path, "submits launch 0001"):
        with pytest.raises(UserError, match=told), claim_sending(tmp_path, "x"):
            pass
        (path,) = tmp_path.iterdir()
        assert path.stat().st_mode & 0o777 == 0o644
    assert not list(tmp_path.iterdir())


def test_who_comes_while_another_writes_its_name_shares_the_lock_with_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow disk: the file in which the first writes its name is empty as the second looks."""
    write = Path.write_text

    def slow(path: Path, text: str) -> int:
        monkeypatch.setattr(Path, "write_text", write)
        path.touch()
        assert stack.enter_context(claim_sending(tmp_path, "submits launch 0002")) is None
        return path.write_text(text)

    monkeypatch.setattr(Path, "write_text", slow)
    with ExitStack() as stack, pytest.raises(UserError, match="submits launch 0002"):  # noqa: SIM117
        with claim_sending(tmp_path, "submits launch 0001"):
            pass
    assert not list(tmp_path.iterdir())


def test_a_launch_that_is_sent_twice_at_the_same_moment_is_sent_once(
    tmp_path: Path, stubs: Stubs
) -> None:
    """Of four processes each either sends all that is left, or is told who does."""
    path, _ = study_in(tmp_path / "s")
    launch = write_prepared(prepare(path))
    stubs.add("sbatch", 'mkdir "$0.at-work" || exit 1; n=$(ls -d "$0".id* 2>/dev/null | wc -l);'
              ' mkdir "$0.id$n"; rmdir "$0.at-work"; echo $((n + 1))')  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(stubs.folder)}
    senders = [
        subprocess.Popen(["bash", "submit.sh"], cwd=launch.folder, env=environment,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]  # fmt: skip
    answers = [(*process.communicate(), process.returncode) for process in senders]
    assert {code for *_, code in answers} <= {DONE, TRY_AGAIN}, answers
    assert DONE in {code for *_, code in answers}
    assert len(stubs.calls("sbatch")) == 3
    assert (launch.folder / "submitted").read_text().count("?") == 3
