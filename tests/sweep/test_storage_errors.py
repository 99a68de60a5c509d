"""A disk that fails under a sweep: the error is told once, whichever thread meets it first."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from rlbhpc.engines.completion import Completion, Finish
from rlbhpc.errors import USAGE, UserError
from rlbhpc.store import journal
from rlbhpc.store.sample_rows import Sample
from rlbhpc.study.keys import SampleKey
from rlbhpc.sweep.attempt import Attempt
from rlbhpc.sweep.judge import SampleRequest
from rlbhpc.sweep.plan import Plan, Shard, Span
from rlbhpc.sweep.worker import Recorder

NONE = np.zeros(1, np.float32)
_FORKSERVER = multiprocessing.get_context("forkserver")


class EveryAnswerIsWrong:
    """Stands in for the judge: rows come at once, so that only storing can fail."""

    def samples(self, batch: Sequence[tuple[SampleRequest, Completion]]) -> Iterator[Sample]:
        for asked, _ in batch:
            yield Sample(asked.key, asked.fingerprint, asked.seed, 0, 0, 1, -1.0, 1.0)


def asked(arm: str, index: int) -> tuple[SampleRequest, Completion]:
    key = SampleKey(arm, 0, "math/1", index)
    return SampleRequest(key, 1, 7), Completion(
        index, np.zeros(1, np.int32), NONE, NONE, "", Finish.EOS
    )


def recorder(folder: Path, stored: list[Sample]) -> Recorder:
    def place(arm: str, set_name: str) -> Path:
        return folder / arm / set_name

    return Recorder(EveryAnswerIsWrong(), place, "a", stored.append)  # type: ignore[arg-type]


def unwritable(folder: Path) -> Path:
    """A place where no journal can be made, for root as well: a file stands in its way."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "broken").write_text("")
    return folder


def test_an_error_of_the_last_sample_is_raised_when_the_recorder_closes(tmp_path: Path) -> None:
    stored: list[Sample] = []
    with pytest.raises(UserError, match=r"ENOTDIR") as refused:  # noqa: SIM117
        with recorder(unwritable(tmp_path), stored) as out:
            out.put(*asked("broken", 0))
    assert refused.value.code == USAGE
    assert stored == []


def test_an_error_of_storing_outweighs_one_of_sampling(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"ENOTDIR") as refused:  # noqa: SIM117
        with recorder(unwritable(tmp_path), []) as out:
            out.put(*asked("broken", 0))
            raise RuntimeError("the engine stopped")
    assert isinstance(refused.value.__cause__, RuntimeError)


def test_the_first_error_is_told_where_others_follow_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing the journals may fail as well; what it says is not why the sample was not stored."""
    real = os.fsync

    def fails_at_the_end(fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").readlink().suffix == ".journal":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    with pytest.raises(UserError, match=r"ENOTDIR"), recorder(unwritable(tmp_path), []) as out:
        out.put(*asked("sound", 0))
        out.put(*asked("broken", 0))
        monkeypatch.setattr(os, "fsync", fails_at_the_end)


def test_the_journals_of_other_arms_are_closed_whole(tmp_path: Path) -> None:
    stored: list[Sample] = []
    with pytest.raises(UserError), recorder(unwritable(tmp_path), stored) as out:
        out.put(*asked("sound", 0))
        out.put(*asked("broken", 0))
    index = journal.read_index(tmp_path / "sound" / "math" / "a.journal")
    assert index.closed
    assert len(index.records) == len(stored) == 1


def _save(plan: Plan, folder: Path, start: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    plan.save(folder)


def test_two_who_save_one_plan_both_succeed(tmp_path: Path) -> None:
    spans = tuple(Span("base", "math", 0, f"math/{i}", 0, 64) for i in range(2000))
    plan = Plan("hash", (Shard(0, "hf", "base", 0, 1, spans),))
    for trial in range(6):
        start = _FORKSERVER.Barrier(4)
        folder = tmp_path / str(trial)
        saving = [_FORKSERVER.Process(target=_save, args=(plan, folder, start)) for _ in range(4)]
        for process in saving:
            process.start()
        for process in saving:
            process.join()
        assert [process.exitcode for process in saving] == [0] * 4
        assert [path.name for path in folder.iterdir()] == [f"{plan.name}.json"]
        assert Plan.load(folder / f"{plan.name}.json") == plan


def test_a_record_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "attempts").write_text("")
    with pytest.raises(UserError, match=r"attempts.*\((ENOTDIR|EEXIST)\)"):
        Attempt(tmp_path / "attempts", "plan", 0)


def test_an_attempts_record_is_whole_json_after_each_stage(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, "plan", 0)
    attempt.record_loaded()
    attempt.record_end("done", samples=3)
    assert json.loads(attempt.path.read_text())["samples"] == 3
    assert [path.name for path in tmp_path.iterdir()] == [attempt.path.name]
