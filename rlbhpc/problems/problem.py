"""The noun *Problem*: one question with its gold answer, whatever set it came from."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Any, Final

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.problems.record import Deferred, number_text

#: What problem sets call their strata.
STRATA: Final = ("level", "difficulty", "subject")


@dataclass(frozen=True)
class Problem:
    """One problem of a problem set.

    ``id`` is ``"<set>/<local id>"``, unique across all sets of a study. ``fields`` are the strings
    that a prompt template may use; ``question`` is always among them. ``gold`` is the reference
    answer as the set states it, empty where tests decide, as in code. ``verifier`` is a name of
    the verifier registry, or a file of the study's own. ``extras`` hold what only the verifier or
    the analysis needs: JSON values, and :class:`~rlbhpc.problems.record.Deferred` for what is too
    big to hold. ``images`` are paths or raw bytes. ``solution`` is a worked solution for examples
    in prompts; no sample depends on it.
    """

    id: str
    fields: Mapping[str, str]
    gold: str
    verifier: str
    extras: Mapping[str, Any] = field(default_factory=dict)
    images: tuple[str | bytes, ...] = ()
    solution: str = ""

    def __post_init__(self) -> None:
        """Write a gold answer that is a number as text, and refuse texts that are none.

        ``gold`` is the reference answer; ``fields`` are the strings that a prompt may use.
        """
        gold: Any = self.gold
        is_number = isinstance(gold, Real) and not isinstance(gold, bool)
        # NaN, which tables have for nothing, is no answer.
        if is_number and abs(gold) < math.inf:
            object.__setattr__(self, "gold", number_text(gold))
        for name, value in {"gold": self.gold, **self.fields}.items():
            if not isinstance(value, str):
                raise TypeError(
                    f"problem {self.id}: its {name} is {value!r:.80}; allowed: a text"
                    f"{' or a number' * (name == 'gold')}; make one of it, as json.dumps does of "
                    "a list"
                )

    def __getstate__(self) -> dict[str, Any]:
        """Plain copies of what a set may give as a view, which cannot be pickled."""
        return vars(self) | {"fields": dict(self.fields), "extras": dict(self.extras)}

    @property
    def set_name(self) -> str:
        """The problem set that this problem belongs to."""
        return self.id.partition("/")[0]

    @property
    def strata(self) -> dict[str, str]:
        """What the set says of how hard the problem is and what it is about.

        A *stratum* is a property to group problems by: ``level``, ``difficulty`` or ``subject``.
        Those that the set does not state are left out.
        """
        strata = {}
        for name in STRATA:
            value = self.extras.get(name)
            if isinstance(value, list):
                value = ", ".join(map(str, value))
            if value:
                strata[name] = str(value)
        return strata

    @property
    def pictures(self) -> tuple[bytes, ...]:
        """The images as bytes."""
        return tuple(
            image if isinstance(image, bytes) else Path(image).read_bytes() for image in self.images
        )

    @cached_property
    def content_hash(self) -> str:
        """16 hex digits over all that can change a response or its verdict, the id excluded.

        A *deferred* extra is a large value left in its file; its digest stands for it.
        """
        verifier = plugins.label(self.verifier)
        content = [dict(self.fields), self.gold, verifier, dict(self.extras)]
        text = json.dumps(content, sort_keys=True, ensure_ascii=False, default=Deferred.digest_of)
        digest = hashlib.sha256(text.encode(errors="surrogatepass"))
        for image in self.images:
            image_bytes = image if isinstance(image, bytes) else image.encode()
            digest.update(hashlib.sha256(image_bytes).digest())
        return digest.hexdigest()[:16]


# The partial-prompt probe: the beginning of a question, to see whether a model knows the rest.
#
# A model that has read a benchmark completes its questions word for word, which it cannot do for
# one that it has never seen (Wu et al. 2025, "Reasoning or Memorization?", arXiv 2507.10532).


VERIFIER: Final = "probe"
#: What a response may do: go on as the question does, and answer the question.
COMPLETED: Final = "completed"
ANSWERED: Final = "answered"
BOTH: Final = f"{COMPLETED}, {ANSWERED}"
OUTCOMES: Final = (BOTH, COMPLETED, ANSWERED, "neither")
_WORDS: Final = re.compile(r"\s*\S+")


def make_probe(problem: Problem, share: float) -> Problem:
    """Return a problem that shows the first ``share`` of a question's words and asks for the rest.

    The rest is the gold answer. At least one word is shown and one is hidden. The problem itself
    stays in the extras, for the verifier that judges the answer.
    """
    question = problem.fields["question"]
    words = _WORDS.findall(question)
    if len(words) < 2:
        raise UserError(f"problem {problem.id}: a question of one word cannot be probed")
    # At least one word is shown, and at least one is left to complete.
    visible_words = min(max(1, math.ceil(share * len(words))), len(words) - 1)
    whole = {
        "question": question,
        "gold": problem.gold,
        "verifier": problem.verifier,
        "extras": dict(problem.extras),
    }
    return replace(
        problem,
        fields={**problem.fields, "question": "".join(words[:visible_words])},
        gold="".join(words[visible_words:]).strip(),
        verifier=VERIFIER,
        extras={"whole": whole},
        solution="",
    )


def whole_problem(problem: Problem) -> Problem:
    """Return the original problem of a probe, which shows only the beginning of its question."""
    whole: Mapping[str, Any] = problem.extras["whole"]
    return replace(
        problem,
        fields={**problem.fields, "question": whole["question"]},
        gold=whole["gold"],
        verifier=whole["verifier"],
        extras=whole["extras"],
    )
