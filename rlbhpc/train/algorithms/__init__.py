"""RL algorithms: rewards, groups and lengths in, per-token advantages out.

To add one, write a frozen dataclass derived from
:class:`~rlbhpc.train.algorithms.algorithm.Algorithm`, in ``algorithms/<name>.py`` or beside its
relatives, and put its line into :data:`ALGORITHMS`.
"""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any, cast

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.study.complaints import from_options

if TYPE_CHECKING:  # torch, which a look at the names does not need
    from rlbhpc.train.algorithms.algorithm import Algorithm

# Name in a recipe -> module and class.
ALGORITHMS = {
    "ppo": ("ppo", "PPO"),
    "grpo": ("grpo", "GRPO"),
    "dr_grpo": ("grpo", "DrGRPO"),
    "reinforce++": ("reinforce", "ReinforcePP"),
    "reinforce++_baseline": ("reinforce", "ReinforcePPBaseline"),
    "rloo": ("reinforce", "RLOO"),
    "remax": ("reinforce", "ReMax"),
    "dapo": ("grpo", "DAPO"),
    "maxrl": ("grpo", "MaxRL"),
    "ttrl": ("ttrl", "TTRL"),
    "rlpr": ("rlpr", "RLPR"),
    "absolute-zero": ("absolute_zero", "AbsoluteZero"),
    "gspo": ("grpo", "GSPO"),
    "cispo": ("grpo", "CISPO"),
    "clip-cov": ("exploration", "ClipCov"),
    "kl-cov": ("exploration", "KLCov"),
    "pass-at-k": ("exploration", "PassAtK"),
    "negative": ("reinforce", "NegativeSample"),
    "unlikeliness": ("grpo", "Unlikeliness"),
    "success-gate": ("grpo", "SuccessGate"),
    "prorl": ("grpo", "ProRL"),
    "on-policy-distillation": ("reinforce", "OnPolicyDistillation"),
}


def make_algorithm(name: str, preset: str | None = None, **settings: Any) -> Algorithm:
    """Build an algorithm by name; ``preset`` fills what a framework does, ``settings`` override.

    ``PRESETS`` of an algorithm's class has settings by the name of a framework. ``from_options``
    makes the algorithm and refuses a setting that it does not have.

    Examples
    --------
    >>> make_algorithm("grpo", preset="trl").eps
    0.0001
    """
    cls = algorithm_class(name)
    if preset is not None and preset not in cls.PRESETS:
        presets = ", ".join(cls.PRESETS) or "none"
        raise UserError(f"preset of {name}: found {preset!r}; allowed: {presets}")
    chosen = {**(cls.PRESETS[preset] if preset else {}), **settings}
    return from_options(cls, chosen, name)


def algorithm_class(name: str) -> type[Algorithm]:
    """Find the class of an algorithm, perhaps a study's own; its dataclass fields are settings.

    Modules are imported only when needed, since they load torch. A plugin is a class that a study's
    file or an installed package brings.
    """
    check_algorithm(name)
    if name in ALGORITHMS:
        module, class_name = ALGORITHMS[name]
        cls = getattr(importlib.import_module(f"rlbhpc.train.algorithms.{module}"), class_name)
        return cast("type[Algorithm]", cls)
    from rlbhpc.train.algorithms.algorithm import Algorithm

    plugin = plugins.find("algorithms", name)
    assert plugin is not None
    if not (isinstance(plugin.value, type) and issubclass(plugin.value, Algorithm)):
        raise UserError(
            f"algorithm {name}: found {plugin.value!r}; allowed: an Algorithm's subclass"
        )
    return plugin.value


def check_algorithm(name: str) -> None:
    """Refuse the name of an algorithm that does not exist.

    A name is one of the package's own, ``sft``, a file of the study, or one that an installed
    package brings. A plugin must not take the name of one of the package's own.
    """
    if name in ("sft", *ALGORITHMS):
        plugins.reject_own_name("algorithms", name)
        return
    if plugins.is_file(name) or name in plugins.installed("algorithms"):
        return
    names = [*ALGORITHMS, *plugins.installed("algorithms")]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; nearest: {near[0]}" if near else ""
    raise UserError(
        f"algorithm: found {name!r}{hint}; allowed: sft, {', '.join(names)}, "
        "or a file such as ./mine.py"
    )
