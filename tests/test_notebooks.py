"""The notebooks of docs/ run from top to bottom."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs/notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    names: dict[str, Any] = {}
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        exec(compile(tree, path.name, "exec"), names)
        if isinstance(tree.body[-1], ast.Expr):  # what a notebook shows
            assert repr(eval(ast.unparse(tree.body[-1]), names))
