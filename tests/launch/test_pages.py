"""The commands of the pages on clusters and on trouble, run against stubs of Slurm."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from rlbhpc.errors import DONE, INCOMPLETE, NOTHING_TO_DO
from rlbhpc.study.load import load_study
from rlbhpc.verify.verdict import Status
from tests.launch.launched import call, stubs
from tests.launch.made import ROOT, SAMPLED, Stubs, study_in
from tests.sweep.conftest import keys_of
from tests.sweep.test_plan import row, store

__all__ = ["stubs"]
ARM = "base: {model: base, prompt: countdown, temperature: 1.0, max_tokens: 12, n: 8}"
COMPARED = SAMPLED.replace(
    "base: {path: model}", "base: {path: model}\n  rl: {path: ../rl}"
).replace(ARM, f"{ARM}\n  {ARM.replace('base', 'rl')}")
# What a page says for a reader's own, and what it is here.
OURS = {
    "/path/to/runs": "results", "FOLDER": "results", "NAME": "my-site", "STUDY": "s/study.yaml",
    "RUN": "s/runs/sampled", "N": "0",
}  # fmt: skip
# A verb whose operand a page leaves out.
OPERANDS = {
    "cancel": "STUDY", "check": "STUDY", "compact": "RUN", "launch": "STUDY", "plan": "STUDY",
    "status": "STUDY",
}  # fmt: skip
# What needs a network is run in tests/problems/test_stage.py, weights in train/test_provenance.py.
ELSEWHERE = ("stage", "train")
# The task of a rehearsal, which a real Slurm would warn, bring back and cancel.
REHEARSED = """
printf 'started\\ndrained\\nstarted\\ndrained\\n' >events; echo 7
"""


def commands() -> list[str]:
    """Every command of the two pages, in a line of its own or within one."""
    texts = [(ROOT / "docs" / name).read_text() for name in ("clusters.md", "troubleshooting.md")]
    found = [
        command
        for text in texts
        for pattern in (r"`rlbhpc ([^`]+)`", r"(?m)^rlbhpc (.+?)(?: +#.*)?$")
        for command in re.findall(pattern, text)
    ]
    return sorted({command for command in found if command.split()[0] not in ELSEWHERE})


def words_of(command: str, problem: str) -> list[str]:
    words = shlex.split(command.replace("VERB …", "status STUDY"))
    if words[0] in OPERANDS and (len(words) == 1 or words[1].startswith("--")):
        words.insert(1, OPERANDS[words[0]])
    return [OURS.get(word, problem if word == "ID" else word) for word in words]


@pytest.mark.parametrize("command", commands())
def test_a_command_of_a_page_does_what_it_says(
    command: str, tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a run of two models with all samples, on a site that has Slurm."""
    shutil.copytree(study_in(tmp_path / "other")[0].parent / "model", tmp_path / "rl")
    (tmp_path / "rl" / "model.safetensors").write_bytes(b"trained")
    path, _ = study_in(tmp_path / "s", COMPARED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLBHPC_CLUSTERS", str(tmp_path / "clusters"))
    assert call("launch", path, "--submit")[0] == DONE
    study = load_study(path)
    keys = keys_of(study)
    store(study, [row(study, key, Status.RIGHT) for key in keys])
    stubs.add("sbatch", REHEARSED)
    code, result = call(*words_of(command, keys[0].problem))
    assert code in (DONE, INCOMPLETE, NOTHING_TO_DO), result.output
    assert result.stdout
