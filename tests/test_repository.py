"""What people expect of a repository beside its code, and that it names what is there."""

from __future__ import annotations

import tomllib
from pathlib import Path

import jinja2
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_dockerfile_copies_what_is_there() -> None:
    lines = (ROOT / "containers" / "Dockerfile").read_text().splitlines()
    copied = [name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]]
    assert {"pyproject.toml", "rlbhpc", "configs"} <= set(copied)
    assert all((ROOT / name).exists() for name in copied)


def test_the_conda_recipe_needs_what_the_package_needs() -> None:
    text = (ROOT / "conda" / "meta.yaml").read_text()
    recipe = yaml.safe_load(
        jinja2.Template(text).render(
            load_file_data=lambda path, from_recipe_dir: {"project": PROJECT}, PYTHON="python"
        )
    )
    assert recipe["package"]["version"] == PROJECT["version"]
    assert recipe["requirements"]["run"][1:] == PROJECT["dependencies"]


def test_hooks_run_files_that_are_there() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    words = [word for hook in config["repos"][0]["hooks"] for word in hook["entry"].split()]
    scripts = [word for word in words if word.startswith("tools/")]
    assert scripts and all((ROOT / script).is_file() for script in scripts)
