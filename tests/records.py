"""What must hold of the records that the modules of a room hand around."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import is_dataclass
from types import ModuleType


def changeable(room: ModuleType) -> set[str]:
    """Names of the dataclasses of a room that can be changed once they are made."""
    names = set()
    for found in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
        for value in vars(importlib.import_module(found.name)).values():
            if isinstance(value, type) and is_dataclass(value) and value.__module__ == found.name:
                params = value.__dataclass_params__  # type: ignore[attr-defined]
                names |= set() if params.frozen else {value.__name__}
    return names
