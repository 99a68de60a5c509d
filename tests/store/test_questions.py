"""What a run asked is read again, also where its file is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlbhpc.errors import LeftOutWarning, UserError
from rlbhpc.store.grid import Grid
from rlbhpc.store.questions import Question, put_questions, read_questions, stored_questions
from rlbhpc.study.layout import Layout
from tests.store.made import ARM, SET, cells

ASKED = {f"{SET}/0": Question("1 + 1?", "2")}


def test_a_damaged_file_of_questions_is_told_and_left_out(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    key = put_questions(layout, ARM, SET, ASKED)
    Grid("m", provenance=key).grown(cells(range(1), 2)).save(layout.grid(ARM, SET))
    assert read_questions(layout, ARM, SET) == ASKED
    (path,) = layout.root.glob("questions/**/*.json")
    path.write_bytes(path.read_bytes().replace(b"1 + 1", b"1 + 2"))
    with pytest.raises(UserError, match="damaged"):
        stored_questions(layout, ARM, SET)
    with pytest.warns(LeftOutWarning, match=f"1 damaged.*{path.name}"):
        assert read_questions(layout, ARM, SET) == {}
