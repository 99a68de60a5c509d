"""What follows the samples and is not up to date with them: the cube, the report."""

from __future__ import annotations

from rlbhpc.errors import UserError
from rlbhpc.store import versions
from rlbhpc.store.sources import Sources
from rlbhpc.study.layout import Layout

PAGE = "report.html"


def behind(layout: Layout) -> list[str]:
    """Names of the jobs whose result is missing or older than what it is made from."""
    version = versions.current(layout)
    if version is None or not layout.groups():
        return ["compact", "report"] if layout.groups() else []
    try:
        if (version.sources or {}).get("inputs") != Sources.survey(layout).inputs:
            return ["compact", "report"]
        report_written = (layout.report / PAGE).stat().st_mtime
        return ["report"] if report_written < version.folder.stat().st_mtime else []
    except FileNotFoundError:
        return ["report"]
    except (OSError, UserError):
        return ["compact", "report"]
