"""The conclusions of a report as records for other programs."""

from __future__ import annotations

import json

from rlbhpc.report.aspect import Report
from rlbhpc.report.aspects.conclusions import conclusions_frame
from rlbhpc.report.aspects.samples import samples_frame


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
