"""The scripts of ``analysis/`` as aspects that a study names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rlbhpc import plugins
from rlbhpc.report.aspect import Aspect, Report

FOLDER = Path(__file__).parents[2] / "analysis"
#: Scripts that hold an aspect.
ASPECTS = sorted(path.stem for path in FOLDER.glob("*.py") if "\nASPECT = " in path.read_text())


def script(name: str) -> Any:
    """The module of a script, loaded as that of a study's own aspect is."""
    plugin = plugins.find("aspects", str(FOLDER / f"{name}.py"))
    assert plugin is not None and isinstance(plugin.value, Aspect)
    return plugin.module


def with_scripts(report: Report, *scripts: str) -> Report:
    """A report of a study that names these; all of them if none is given."""
    names = tuple(str(FOLDER / f"{name}.py") for name in scripts or ASPECTS)
    return replace(report, settings=replace(report.settings, aspects=names))
