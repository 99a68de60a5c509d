"""What the registry says of an engine is what the engine takes."""

from __future__ import annotations

import importlib
import inspect

import pytest

from rlbhpc.engines.engine import ENGINES

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("kind", ENGINES)
def test_the_settings_of_an_engine_are_its_keyword_arguments(kind: str) -> None:
    engine = ENGINES[kind]
    maker = getattr(importlib.import_module(engine.module), engine.name)
    taken = inspect.signature(maker).parameters.values()
    assert engine.settings == tuple(p.name for p in taken if p.kind is p.KEYWORD_ONLY)
