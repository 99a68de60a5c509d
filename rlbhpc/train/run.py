"""What one training run is made of: prompts, a judge of responses, and where its models go."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlbhpc.engines.hf.backend import Sight
from rlbhpc.problems.problem import Problem
from rlbhpc.train.algorithms.algorithm import Algorithm
from rlbhpc.train.rewards import Judged
from rlbhpc.train.settings import Settings
from rlbhpc.verify.verdict import Verdict

# How images are cut; transformers 5 writes the second where older versions wrote the first.
EYES = ("preprocessor_config.json", "processor_config.json")


@dataclass(frozen=True)
class Prompt:
    """A problem with its prompt, tokenised once; an image is marked by one token."""

    problem: Problem
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Judge:
    """What turns a completion into a reward: a verifier and a reward function.

    ``verify`` is told the problem, the text and how it ended.
    """

    verify: Callable[[Problem, str, str], Verdict]
    reward: Callable[[Judged], float]


@dataclass(frozen=True)
class Export:
    """Where the model of one step goes, and what its record says of it: see ``study.origin``."""

    folder: Path
    made_by: str
    run: str


@dataclass(frozen=True)
class Run:
    """One training run.

    ``name`` is the model of the study that comes out of it, and enters the seeds of its rollouts.
    It starts from ``base``, keeps training state and dynamics in ``folder``, and puts the model at
    each step where ``exports`` says. A penalty is measured against ``reference``, None for
    ``base``. ``ask`` puts a problem that an algorithm makes itself into the recipe's prompt.
    """

    name: str
    base: Path
    folder: Path
    exports: dict[int, Export]
    settings: Settings
    algorithm: Algorithm
    prompts: Sequence[Prompt]
    judge: Judge
    sight: Sight | None = None
    reference: Path | None = None
    ask: Callable[[Problem], Prompt] | None = None

    @property
    def identity(self) -> str:
        """Digest of what must stay the same for a run to go on."""
        parts = [
            self.name,
            self.settings.essence,
            repr(self.algorithm),
            *(f"{p.problem.content_hash} {p.ids}" for p in self.prompts),
            (self.base / "config.json").read_text(),
        ]
        if any(p.problem.images for p in self.prompts):  # how many tokens an image is
            files = [self.base / name for name in EYES]
            parts.append(next(file for file in files if file.is_file()).read_text())
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
