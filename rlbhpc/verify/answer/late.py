"""A commitment behind an answer, which replaces it."""

from __future__ import annotations

import re
from typing import Final

from rlbhpc.verify.answer.commit import (
    CUE,
    MAX_TRIES,
    Extracted,
    clause,
    cues,
    is_own,
    is_value,
    judges,
    marker,
    tag,
)
from rlbhpc.verify.answer.concluding import closing
from rlbhpc.verify.answer.doubt import REPLACES, TAKEN_BACK, is_withdrawn, taken_back
from rlbhpc.verify.answer.read import read
from rlbhpc.verify.answer.reconsidered import admits, reconsidered
from rlbhpc.verify.answer.value import Words


def late(rest: str, box: str) -> Extracted | None:
    """Find a commitment after the last box that replaces it: it reads as a value of its kind.

    Prose after a box is the rule (a check, a heading, a wish), so words replace only words, and
    only what is called the answer in a sentence of its own counts, or follows a retraction.
    """
    if not commits(rest):
        return None
    explicit = tag(rest) or marker(rest)
    if explicit is not None and is_value(read(explicit.text)):
        return explicit
    for cue in reversed(list(cues(rest))[-MAX_TRIES:]):
        groups = cue.groupdict()
        # A check computes results, too; and how many answers there are may be in the box.
        checks = cue[0][:6].lower() == "result" or groups.get("check") or groups.get("computed")
        if cue.re is CUE and not groups["strong"] and (checks or not is_own(rest, cue, late=True)):
            continue
        if groups.get("many") or groups.get("roots"):
            continue
        text = clause(rest[cue.end() : cue.end() + 300])
        value = None if text is None else read(text)
        words = isinstance(value, Words) and not judges(value) and isinstance(read(box), Words)
        if text is not None and value is not None and (is_value(value) or words):
            return Extracted(text, "phrase")
    corrected = _corrected(rest) or (_concluded(rest) if taken_back(rest) else None)
    if corrected is not None:
        return corrected
    instead = reconsidered(rest, box)
    return None if not instead else Extracted(instead, "closing")


def stands(rest: str, box: str) -> bool:
    """Whether a box that nothing replaces is still its writer's answer."""
    return not is_withdrawn(rest) and reconsidered(rest, box) is None


def unless_taken_back(body: str, phrased: Extracted | None) -> Extracted | None:
    """Return what a phrase committed to, or what replaces it once the writer went back on it."""
    back = list(TAKEN_BACK.finditer(body)) if phrased is not None else []
    own = (cue for cue in cues(body) if cue.re is not CUE or is_own(body, cue))
    if not back or any(cue.start() > back[-1].start() for cue in own):
        return phrased
    after = body[back[-1].start() :]
    surely = any(match["surely"] for match in back)
    concluded = _concluded(after) if surely or REPLACES.search(after) is not None else None
    replaced = surely and any(map(str.isdigit, after))
    return concluded or (None if replaced or is_withdrawn(after) else phrased)


# What a writer says of an answer that he puts in the place of another.
_CORRECTED: Final = re.compile(
    r"\b(?:(?:correct|revis|chang|updat|amend)\w*\s+(?:my|the|this|that)\s+(?:final\s+)?answer(?:\s+to)?|"
    r"the\s+(?:correct|right|true|only\s+valid)\s+[a-z]+\s+(?:is|are|should\s+be)|"
    r"the\s+(?:[a-z]+\s+){1,3}is\s+actually|"
    r"\b(?:take|use)(?=\s+\S+\s+as\s+(?:my|the|our)\s+(?:final\s+)?answer))(?:\s*[:：]\s*|\s+)"
    r"(?:[a-zA-Z(]+[^\s$]*\s*=\s*)?(?=[$\\\d(\[{-])"
    r"|(?=(?<![\w.$])(?:\$[^$]+\$|-?\d[\d,./]*)\s+is\s+(?:the|my|our)\s+(?:final\s+|correct\s+)?answer\b)",
    re.IGNORECASE,
)


def _corrected(rest: str) -> Extracted | None:
    for match in reversed(list(_CORRECTED.finditer(rest))):
        text = clause(re.sub(r"\s+(?:as|is)\s+(?:my|the|our)\b.*", ".", rest[match.end() :][:300]))
        if text is not None and is_value(read(text)):
            return Extracted(text.rpartition("=")[2].strip() or text, "phrase")
    return None


# A check concludes, too.
_CHECKS: Final = re.compile(
    r"\b(?:which|as\s+(?:required|expected|given|desired)|match\w*|satisf\w*|holds?|consistent)\b",
    re.IGNORECASE,
)


def _concluded(after: str) -> Extracted | None:
    concluded = closing(after)
    if concluded is None or _CHECKS.search(concluded.text) is not None:
        return None
    return concluded if is_value(read(concluded.text)) else None


def commits(rest: str) -> bool:
    """Whether the text behind a box holds anything that might replace it."""
    if len(rest) < 8:
        return False
    return (
        "####" in rest
        or "</answer>" in rest
        or any(map(bool, cues(rest)))
        or (taken_back(rest) or is_withdrawn(rest) or _CORRECTED.search(rest) is not None)
        or admits(rest)
    )
