"""The core under newer versions of Python than the one that tests: what they lack is not used."""

from __future__ import annotations

import ast
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from rlbhpc.cli.main import EXTRAS

PACKAGE = Path(__file__).parents[1] / "rlbhpc"
FILES = sorted(PACKAGE.rglob("*.py"))
# What the release notes of 3.12 and 3.13 list as removed.
REMOVED = set(
    "aifc asynchat asyncore audioop cgi cgitb chunk crypt distutils imghdr imp lib2to3 mailcap "
    "msilib nis nntplib ossaudiodev pipes smtpd sndhdr spwd sunau telnetlib uu xdrlib".split()
)
# Packages of extras that no login node has are absent; a module of theirs is then left out.
IMPORT_ALL = f"""
import importlib, pkgutil, sys, warnings
import rlbhpc
warnings.filterwarnings("error", category=DeprecationWarning, module=r"rlbhpc(\\.|$)")
absent = {sorted(EXTRAS)!r}
sys.modules |= dict.fromkeys(absent)
imported = 0
for module in pkgutil.walk_packages(rlbhpc.__path__, "rlbhpc."):
    try:
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            imported += 1
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] not in absent:
            raise
print(imported)
"""


def imported(tree: ast.AST) -> set[str]:
    """Packages that a module imports anywhere in it."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


def test_no_module_is_of_an_older_python() -> None:
    """None imports what was removed, nor has an escape such as ``"\\d"``, soon an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = {path: imported(ast.parse(path.read_bytes())) & REMOVED for path in FILES}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.slow
def test_the_core_is_imported_without_a_deprecation_and_without_the_extras() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0.8 * len(FILES)
