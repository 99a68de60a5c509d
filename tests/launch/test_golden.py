"""The text of generated scripts, compared with what was read and found right.

RLBHPC_GOLDEN=1 writes the texts anew; read the difference before it is committed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from rlbhpc.study.study import Study
from tests.launch.made import SAMPLED, TRAINED, cluster_of, launch_in

GOLDEN = Path(__file__).parent / "golden"
CASES = {
    "plain": ({}, {"text": SAMPLED}),
    "container": (
        {
            "account": "project_1",
            "setup": ["module load apptainer"],
            "stage": "/local/models",
            "sample": {"partition": "gpu", "gpus": 1, "options": {"constraint": "a100"}},
            "container": {"image": "/images/rlbhpc.sif", "flags": ["--nv"], "binds": ["/data"]},
        },
        {"text": SAMPLED, "options": {"time": "30", "qos": "short"}},
    ),
    "nodes": (
        {"sample": {"gpus": 4, "nodes": 2, "cpus": 16}},
        {"text": SAMPLED},
    ),
    "trained": (
        {"max_array_size": 2, "train": {"gpus": 4, "nodes": 2, "cpus": 16}, "throttle": 1},
        {"text": TRAINED},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_texts_are_as_they_were_found_right(case: str, tmp_path: Path) -> None:
    keys, more = CASES[case]
    folder = tmp_path / "study"
    folder.mkdir()
    made = launch_in(folder / "s", cluster_of(folder, **keys), **more)
    # Digests change with whatever a study means by now; the scripts are the subject here.
    plan = json.loads((made / "launch.json").read_text())["plan"]
    study = Study.from_json((made / "study.json").read_text())
    texts = {
        path.name: path.read_text()
        .replace(str(folder), "/there")
        .replace(sys.executable, "/venv/bin/python")
        .replace(study.hash, "<study>")
        .replace(plan, "<plan>")
        .replace(plan[:6], "<pl>")
        for path in sorted(made.iterdir())
        if path.suffix == ".sbatch" or path.name == "submit.sh"
    }
    home = GOLDEN / case
    if os.environ.get("RLBHPC_GOLDEN"):
        home.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (home / name).write_text(text)
    assert set(texts) == {path.name for path in home.iterdir()}
    for name, text in texts.items():
        assert text == (home / name).read_text(), f"{case}/{name}"
