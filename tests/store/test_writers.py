"""The test of all writers, shortened: what the table in docs/samples-on-disk.md stands on."""

from __future__ import annotations

from tests.store.writers import COUNT, Losses, flip, kill


def losses(name: str) -> Losses:
    counted = Losses()
    kill(name, counted, 2)
    flip(name, counted, 60)
    return counted


def test_a_journal_loses_no_finished_sample_and_tells_each_flipped_bit() -> None:
    counted = losses("rlbhpc")
    assert (counted["kills"], counted["lost"], counted["unreadable"]) == (2, 0, 0)
    assert (counted["flips"], counted["silent"]) == (60, 0)
    assert counted["told"] > 0
    assert counted["lost_by_flip"] == 1


def test_the_test_sees_what_plain_lines_lose() -> None:
    counted = losses("jsonl")
    assert counted["lost"] > 0
    assert counted["silent"] > 0
    assert counted["lost_by_flip"] == COUNT
