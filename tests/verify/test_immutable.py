"""What is judged, and what was judged of it, changes no more once it exists."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import pytest

from rlbhpc.verify.verdict import Status

MODULES = (
    "answer.compare_scalar", "answer.value", "code.evalplus", "code.programs", "error_audit",
    "running.pool", "sandbox.job", "sandbox.probe", "sandbox.program", "verdict",
)  # fmt: skip
# What is counted up while a pool runs.
COUNTED = {"_Worker"}
WITH_SLOTS = ("answer.value", "verdict")


def classes(module: str) -> list[type[Any]]:
    """Data classes that a module defines."""
    names = vars(import_module(f"rlbhpc.verify.{module}")).values()
    own = [name for name in names if is_dataclass(name) and isinstance(name, type)]
    return [kind for kind in own if kind.__module__ == f"rlbhpc.verify.{module}"]


@pytest.mark.parametrize("module", MODULES)
def test_values_are_frozen(module: str) -> None:
    kinds = [kind for kind in classes(module) if kind.__name__ not in COUNTED]
    assert kinds
    for kind in kinds:
        value = object.__new__(kind)
        with pytest.raises(AttributeError):
            setattr(value, fields(kind)[0].name, 1)
        assert hasattr(value, "__dict__") != (module in WITH_SLOTS), kind


def test_codes_of_stored_verdicts() -> None:
    names = "MISSING WRONG RIGHT NO_ANSWER TIMEOUT FAILED ERROR".split()
    assert {int(status): status.name for status in Status} == dict(enumerate(names, start=-1))
