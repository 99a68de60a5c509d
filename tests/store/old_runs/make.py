"""Draw a run as a version of this package stores it, for ``tests/store/test_old_runs.py``.

From the root of a checkout of that version::

    python /path/to/make.py TARGET.tar.gz

The responses are those of a tiny random model, which never solves anything, so the verdicts are
made up before they are stored. Arm ``sealed`` is in parts; arm ``open`` in two journals: one of a
process that was killed, one that was closed.
"""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

STUDY = """
name: old
models:
  base: {path: model}
problem_sets:
  countdown: {subset: test, limit: 3}
arms:
  sealed: {model: base, prompt: countdown, temperature: 1.0, max_tokens: 12, n: 4}
  open: {model: base, prompt: countdown, temperature: 1.3, max_tokens: 12, n: 8}
engine: {name: hf, dtype: float32, options: {rows: 4}}
"""
KILLED_AFTER = 7
KILLED = 9


def call(*words, killed_after=None, seals=True):
    """Run a verb with made up verdicts; the samples that it stored go to ``drawn.jsonl``."""
    from rlbhpc.cli.main import main

    try:
        from rlbhpc.store.journal import JournalWriter
    except ImportError:  # an older version
        from rlbhpc.store.writer import JournalWriter

    try:
        from rlbhpc.cli import sampling as sample
    except ImportError:  # an older version
        from rlbhpc.cli import sample

    append, stored = JournalWriter.append, []

    def append_judged(writer, row):
        row = replace(row, verdict=len(row.text) % 2, answer=str(row.n_tokens))
        append(writer, row)
        stored.append(row)
        with Path("drawn.jsonl").open("a") as lines:
            values = [*row.key, row.fingerprint, row.seed, row.verdict, row.n_tokens, row.answer]
            lines.write(json.dumps([*values, row.text, row.token_ids.tolist()]) + "\n")
        if len(stored) == killed_after:
            os._exit(KILLED)

    JournalWriter.append = append_judged
    if not seals and hasattr(sample, "seal_and_clean"):
        sample.seal_and_clean = lambda layout: None
    main([*words])


def child(*words, code=(0,), **options):
    """Call in a process of its own."""
    command = f"import make; make.call(*{words!r}, **{options!r})"
    environment = os.environ | {"PYTHONPATH": f"{Path.cwd()}:{Path(__file__).parent}"}
    done = subprocess.run([sys.executable, "-c", command], cwd=FOLDER, env=environment)
    assert done.returncode in code, (words, done.returncode)


def pack(folder, target):
    """Keep what holds samples; the rest says where and when it was made."""

    def anonymous(member):
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(target, "w:gz") as tar:
        tar.add(folder / "drawn.jsonl", "drawn.jsonl", filter=anonymous)
        for name in ("cube.zarr", "cubes", "grids", "journals", "parts"):
            tar.add(folder / "runs" / "old" / name, name, filter=anonymous)


if __name__ == "__main__":
    from rlbhpc.engines.tiny import make_tiny_model

    with tempfile.TemporaryDirectory() as name:
        FOLDER = Path(name)
        make_tiny_model(FOLDER / "model", hidden_size=32)
        (FOLDER / "study.yaml").write_text(STUDY)
        child("sample", "study.yaml", "--arm", "sealed", code=(0, 3))
        # Some versions seal at the end of sampling by themselves.
        child("seal", "runs/old", code=(0, 3, 4))
        child("gc", "runs/old", "--idle", "0", code=(0, 4))
        child("sample", "study.yaml", killed_after=KILLED_AFTER, code=(KILLED,))
        child("sample", "study.yaml", seals=False)
        child("compact", "runs/old")
        pack(FOLDER, Path(sys.argv[1]))
