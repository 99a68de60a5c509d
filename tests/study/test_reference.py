"""The reference page says of every key what the schema says: type, bounds, default, meaning."""

from __future__ import annotations

from pathlib import Path

from tools.make_docs import study_file

PAGE = Path(__file__).parents[2] / "docs/study-file.md"


def test_the_page_of_the_study_file_is_current() -> None:
    assert study_file() == PAGE.read_text(), "run `make docs`"
