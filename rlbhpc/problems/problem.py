"""The noun *Problem*: one question with its gold answer, whatever set it came from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rlbhpc import plugins
from rlbhpc.problems.deferred import Deferred


@dataclass(frozen=True)
class Problem:
    """One problem of a problem set.

    Attributes
    ----------
    id
        ``"<set>/<local id>"``. The set name is what stands before the first slash, so an id is
        unique across all sets of a study.
    fields
        The strings that a prompt template may use; ``question`` is always among them.
    gold
        The reference answer as the set states it (empty where tests decide, as in code).
    verifier
        Name in the verifier registry (``math``, ``code``, ``countdown``, ``visual``, ``choice``),
        or a file of the study's own, ``/folder/mine.py``.
    extras
        What only the verifier or the analysis needs (answer type, unit, tests, level): JSON
        values, and :class:`~rlbhpc.problems.deferred.Deferred` for what is too big to hold.
    images
        Paths or raw bytes of the images that belong to the prompt.
    solution
        A worked solution, where the set has one, for examples in prompts. No sample depends on it.
    """

    id: str
    fields: Mapping[str, str]
    gold: str
    verifier: str
    extras: Mapping[str, Any] = field(default_factory=dict)
    images: tuple[str | bytes, ...] = ()
    solution: str = ""

    @property
    def set_name(self) -> str:
        """The problem set that this problem belongs to."""
        return self.id.partition("/")[0]

    @property
    def pictures(self) -> tuple[bytes, ...]:
        """The images as bytes."""
        return tuple(i if isinstance(i, bytes) else Path(i).read_bytes() for i in self.images)

    @cached_property
    def content_hash(self) -> str:
        """16 hex digits over all that can change a response or its verdict, the id excluded."""
        verifier = plugins.label(self.verifier)
        decisive = [dict(self.fields), self.gold, verifier, dict(self.extras)]
        text = json.dumps(decisive, sort_keys=True, ensure_ascii=False, default=Deferred.digest_of)
        digest = hashlib.sha256(text.encode(errors="surrogatepass"))
        for image in self.images:
            digest.update(
                hashlib.sha256(image if isinstance(image, bytes) else image.encode()).digest()
            )
        return digest.hexdigest()[:16]
