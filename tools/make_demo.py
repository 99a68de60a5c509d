"""Write what `rlbhpc demo` unpacks: the samples of `tools/quickstart.sh --no-train`.

python -m tools.make_demo runs/quickstart-no-train
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path

import pandas as pd

from rlbhpc.cli.exchange import DEMO_ARMS, demo_file
from rlbhpc.engines.completion import Finish
from rlbhpc.exchange.exports import export
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import load_study
from rlbhpc.verify.verdict import Status

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Export a run and keep what an import reads."""
    run = Path(sys.argv[1])
    questions = {
        problem.id: {"question": problem.fields["question"], "gold": problem.gold}
        for problem in load_study(run / "study.json").problems("countdown-test")
    }
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "samples.parquet")
        export(Layout(run), table)
        samples = pd.read_parquet(table).sort_values(["problem", "sample"])
    for arm in DEMO_ARMS:
        path = ROOT / "rlbhpc" / demo_file(arm)
        path.parent.mkdir(exist_ok=True)
        # Without a time, so that the same samples give the same bytes.
        with gzip.GzipFile(path, "wb", mtime=0) as packed:
            for row in samples[samples["arm"] == arm].itertuples():
                record = {
                    "problem": row.problem.partition("/")[2],
                    "sample": row.sample,
                    "verdict": Status(row.verdict).name.lower(),
                    "finish": Finish(row.finish).name.lower(),
                    "n_tokens": row.n_tokens,
                    "answer": row.answer,
                    "response": row.text,
                }
                if row.sample == 0:
                    record |= questions[row.problem]
                packed.write(json.dumps(record).encode() + b"\n")


if __name__ == "__main__":
    main()
