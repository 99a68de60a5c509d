"""The numbers of a report as tidy tables: one row per observation, one column per variable."""

from __future__ import annotations

import json

import pandas as pd

from rlbhpc.report.aspects import aspects_of
from rlbhpc.report.aspects.conclusions import conclusions_frame
from rlbhpc.report.aspects.samples import samples_frame
from rlbhpc.report.gather import Report


def tables(report: Report) -> dict[str, pd.DataFrame]:
    """Every table of a report by name, also those of steps before the last; none is empty."""
    return {
        name: frame
        for aspect in aspects_of(report)
        for name, frame in aspect.frames(report).items()
    }


def as_records(report: Report) -> str:
    """Conclusions, samples and notes as JSON, missing numbers as null."""
    frames = {
        "conclusions": conclusions_frame(report),
        "samples": samples_frame(report.measured),
    }
    records = {
        name: json.loads(frame.to_json(orient="records", double_precision=15))
        for name, frame in frames.items()
    }
    return json.dumps({"name": report.name, **records, "notes": report.notes}, indent=2)
