"""How the numbers were made, and what they stand on."""

from __future__ import annotations

import json
from importlib.metadata import version

from rlbhpc import __version__
from rlbhpc.report.gather import Report
from rlbhpc.report.markup import Node, el, table


def methods(report: Report) -> list[Node]:
    """Estimators, versions and provenance."""
    s = report.settings
    versions = {"rlbhpc": __version__} | {
        name: version(name) for name in ("numpy", "scipy", "xarray", "matplotlib")
    }
    provenance = json.dumps(report.provenance, ensure_ascii=False, indent=1, sort_keys=True)
    return [
        el(
            "p",
            "pass@k of a problem is 1 − C(n − c, k) / C(n, k) for n judged and c right samples, "
            "and of a set its mean over problems; where a problem has fewer than k samples there "
            "is none.",
        ),
        el(
            "p",
            f"Intervals are {100 * s.prob:g} % for problems like these, from {s.replicates:,} "
            f"bootstrap replicates over problems with seed {s.seed}, shared by all curves of the "
            "same problems, so that differences are paired. Words claim a lead only where the "
            "simultaneous band lies on one side of 0 and the sign-flip test says that anything "
            "moved.",
        ),
        el(
            "p",
            "A crossing set holds every k at which the difference is compatible with 0. Coverage "
            "compares equal numbers of samples, with McNemar's exact test. p-values are adjusted "
            "by Holm's method over the comparisons of this report. The gap is "
            "pass@K of the base − pass@1 of the trained model.",
        ),
        table("Versions", ["package", "version"], list(versions.items())),
        el("p", f"Study {report.study_hash or '(none)'}, run {report.folder.name}."),
        el(
            "details",
            el("summary", "Provenance of the samples"),
            el("pre", provenance),
        ),
    ]
