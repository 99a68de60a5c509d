"""1,000 mistakes in the shipped study and cluster files, told by ``check`` and ``plan`` alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.study.shipped import Mistake, mistakes, shipped_folder
from tests.study.test_mutations import called, is_one_clear_line


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_a_mistake_in_a_shipped_file_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, soak: bool
) -> None:
    """What would end a job in a traceback ends ``check`` and ``plan`` in one line and exit 64."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("MISTRAL_API_KEY", "not-a-secret")
    configs = shipped_folder(tmp_path / "site")
    stream = mistakes(seed=1)
    refused = 0
    for _ in range(1_000 if soak else 100):
        mistake = next(stream)
        file = configs / mistake.file
        shipped = file.read_bytes()
        file.write_bytes(mistake.content)
        if mistake.file.startswith("clusters/"):
            codes = {told(mistake, "plan", configs / "quickstart-no-train.yaml", "--cluster", file)}
        else:
            codes = {told(mistake, verb, file, "--json") for verb in ("check", "plan")}
        file.write_bytes(shipped)
        assert len(codes) == 1, f"check and plan disagree on {mistake}"
        refused += 64 in codes
    assert refused > (800 if soak else 80), "what is accepted is a small part"


def told(mistake: Mistake, *words: object) -> int:
    """The exit code of a verb, whose complaint is one clear line."""
    code, out, err = called(*map(str, words))
    if code == 0:
        assert not mistake.misspelt, f"accepted: {mistake}"
    else:
        assert code == 64, f"{mistake}\n{err}"
        assert is_one_clear_line(err), f"{mistake}\n{err}"
        assert out == "", mistake
    return code
