"""The registry of metrics, and the pages and names that follow from it."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rlbhpc.stats
from analysis.perplexity_over_steps import perplexity_over_steps
from rlbhpc.errors import UserError
from rlbhpc.stats import (
    answer,
    delta_se_interval,
    difference_curve,
    extrapolate,
    fixed_curve,
    pass_curve,
)
from rlbhpc.stats.design import look, smallest_loss
from rlbhpc.stats.metrics import METRICS, metric
from tools.make_docs import metrics_page

PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"
HEAD = Path(__file__).parents[2] / "tools" / "pages" / "statistics.md"
MODULES = sorted(module.name for module in pkgutil.iter_modules(rlbhpc.stats.__path__))


def test_the_page_is_current() -> None:
    expected = HEAD.read_text() + "\n" + metrics_page()
    assert PAGE.read_text() == expected, "run tools/make_docs.py"


def test_links_of_the_page_lead_to_its_sections() -> None:
    text = metrics_page()
    titles = re.findall(r"^### (.+)$", text, re.MULTILINE)
    links = re.findall(r"^\| \[(.+?)\]\(#(.+?)\)", text, re.MULTILINE)
    assert [name for name, _ in links] == titles == [entry.name for entry in METRICS]
    assert len({anchor for _, anchor in links}) == len(links)


def test_entries_are_complete() -> None:
    names = [n.lower() for entry in METRICS for n in (entry.name, *entry.aliases)]
    assert len(names) == len(set(names))
    for entry in METRICS:
        assert entry.summary.endswith("."), entry.name
        assert entry.formula
        assert entry.low < entry.high
        assert entry.needs
        assert entry.advised_per_k >= entry.samples_per_k
        module, _, name = entry.where.rpartition(".")
        assert getattr(importlib.import_module(module), name) is entry.function


def test_metrics_are_found_by_any_name() -> None:
    assert metric("PASS@K").name == "pass@k"
    assert metric("crossover").name == "crossing"
    every = sorted(name.lower() for entry in METRICS for name in (entry.name, *entry.aliases))
    for name, close in (("pass@q", ["pass@k", "pass@1", "g-pass@k"]), ("zzz", every)):
        with pytest.raises(UserError) as refused:
            metric(name)
        assert str(refused.value) == f"metric '{name}' is unknown; perhaps {', '.join(close)}"


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = importlib.import_module(f"rlbhpc.stats.{name}")
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert not result.failed


def test_public_names_resolve() -> None:
    for name in rlbhpc.stats.__all__:
        assert callable(getattr(rlbhpc.stats, name))
    with pytest.raises(AttributeError, match="no attribute 'pass_at_q'"):
        _ = rlbhpc.stats.pass_at_q


def test_names_survive_the_import_of_their_modules() -> None:
    # A submodule becomes an attribute of the package and could hide the function.
    code = (
        "import rlbhpc.stats.pass_at_k, rlbhpc.stats.decision, rlbhpc.stats.metrics\n"
        "import rlbhpc.stats as s\n"
        "assert all(callable(getattr(s, n)) for n in s.__all__)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_room_loads_nothing_heavy_for_counts() -> None:
    code = (
        "import sys; from rlbhpc.stats import pass_at_k\n"
        "assert not {'xarray', 'scipy', 'torch', 'dask', 'matplotlib'} & set(sys.modules)\n"
        "from rlbhpc.stats import answer, extrapolate\n"
        "assert not {'xarray', 'torch', 'dask', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("function", "defaults"),
    [
        (
            answer,
            {"k": None, "margin": 0.02, "seed": 0, "errors": (None, None), "clusters": None},
        ),
        (look, {"margin": 0.02, "comparisons": 1}),
        (smallest_loss, {"comparisons": 1, "rates": None, "stop_after": (0, 0)}),
        (perplexity_over_steps, {"responses": 32}),
        (fixed_curve, {"k": None, "prob": 0.95}),
        (pass_curve, {"k": None, "prob": 0.95}),
        (difference_curve, {"k": None, "prob": 0.95}),
        (delta_se_interval, {"k": 256, "prob": 0.95}),
        (extrapolate, {"prob": 0.95, "beyond": False}),
    ],
)
def test_what_holds_where_nothing_is_said(
    function: Callable[..., object], defaults: dict[str, object]
) -> None:
    parameters = inspect.signature(function).parameters.values()
    assert {p.name: p.default for p in parameters if p.default is not p.empty} == defaults
