"""A folder as the Hugging Face Hub shows it: dataset card, Parquet, figures.

References
----------
huggingface.co/docs/hub/datasets-cards and .../datasets-manual-configuration
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import yaml

from rlbhpc import __version__, files
from rlbhpc.exchange.exports.every_eval_ever import Measurement, measurements
from rlbhpc.exchange.exports.tables import write_parquet
from rlbhpc.study.layout import Layout


def write_hub(layout: Layout, folder: Path) -> int:
    """Write ``README.md``, the samples and ``figures/``; the result is the number of samples."""
    with files.Sink(folder / "samples.parquet") as sink:
        sample_count = write_parquet(layout, sink)
    of_set: dict[str, list[Measurement]] = defaultdict(list)
    for measured in measurements(layout):
        of_set[measured.problem_set].append(measured)
    (folder / "figures").mkdir()
    for problem_set, results in of_set.items():
        _draw_curves(folder / "figures" / f"{problem_set}.png", problem_set, results)
    card = _card(layout.root.resolve().name, of_set)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return sample_count


def _draw_curves(path: Path, problem_set: str, results: Sequence[Measurement]) -> None:
    """Draw pass@k over k of every arm and step on one problem set, with intervals."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for measured in results:
        sizes = [score.k for score in measured.scores]
        axes.plot(sizes, [score.value for score in measured.scores], label=measured.name)
        lower = [score.lower for score in measured.scores]
        upper = [score.upper for score in measured.scores]
        axes.fill_between(sizes, lower, upper, alpha=0.2)
    axes.set(xscale="log", xlabel="k", ylabel="pass@k", title=problem_set)
    axes.legend()
    # Without the date and the version of the program, the same run gives the same bytes.
    figure.savefig(path, dpi=150, metadata={"Software": None})


def _card(name: str, of_set: dict[str, list[Measurement]]) -> str:
    """Text of the dataset card: YAML that names the table, then pass@k of each arm in words."""
    tables = [{"config_name": "samples", "data_files": "samples.parquet"}]
    head = {"pretty_name": name, "tags": ["pass-at-k", "rlbhpc"], "configs": tables}
    lines = ["---", yaml.safe_dump(head, sort_keys=False).rstrip(), "---", "", f"# {name}", ""]
    lines.append(f"Samples of language models and their pass@k, made by rlbhpc {__version__}.")
    for problem_set, results in of_set.items():
        lines += ["", f"## {problem_set}", "", f"![pass@k](figures/{problem_set}.png)", ""]
        lines += ["| arm | model | problems | pass@1 | largest k | pass@k |", "|---" * 6 + "|"]
        for measured in results:
            if measured.scores:
                first, last = measured.scores[0], measured.scores[-1]
                lines.append(
                    f"| {measured.name} | {measured.model} | {measured.problems} | "
                    f"{first.value:.1%} | {last.k} | {last.value:.1%} |"
                )
    return "\n".join(lines) + "\n"
