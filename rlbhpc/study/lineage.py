"""Which models come before which, and which of their checkpoints are on disk."""

from __future__ import annotations

from collections.abc import Iterable

from rlbhpc.study.study import Study


def training_order(study: Study, models: Iterable[str]) -> list[str]:
    """Those of the models that the study trains, and all that these start from, bases first."""
    ordered: list[str] = []

    def add(name: str) -> None:
        entry = study.models[name]
        if entry.train is None or name in ordered:
            return
        if entry.train.from_ is not None:
            add(entry.train.from_)
        ordered.append(name)

    for name in models:
        add(name)
    return ordered


def there(study: Study, model: str, step: int) -> bool:
    """Whether a checkpoint can be sampled now: a folder has its final name when it is whole."""
    if study.models[model].endpoint is not None:
        return True
    return (study.folder(model, step) / "config.json").is_file()


def untrained(study: Study, models: Iterable[str]) -> list[str]:
    """Models that still have to be trained, bases first."""
    return [
        name
        for name in training_order(study, models)
        if not all(there(study, name, step) for step in study.models[name].steps or [])
    ]
