"""A commitment behind the last box, which replaces it."""

from __future__ import annotations

import re
from typing import Final

from rlbhpc.verify.answer.commit import (
    CUE,
    MAX_TRIES,
    Extracted,
    clause,
    cues,
    is_value,
    judges,
    marker,
    tag,
)
from rlbhpc.verify.answer.concluding import closing
from rlbhpc.verify.answer.read import read
from rlbhpc.verify.answer.value import Words

_OPENS_SENTENCE: Final = re.compile(
    r"(?:^|[.!?:;。\n>]|\b(?:so|thus|hence|therefore|then|yes|actually|now|and|indeed)\b,?)[\s*#]*"
    r"(?:the|my|our|this)?\s*(?:correct|right|actual|true|new|corrected|revised|required)?\s*$",
    re.IGNORECASE,
)
_RETRACTION: Final = re.compile(
    r"\b(?:that|this|it|which|the\s+answer|my\s+answer)(?:\s+is|'s|\s+was)\s+(?:wrong|incorrect|"
    r"not\s+(?:right|correct))\b|\b(?:i\s+made\s+(?:a|an)|my)\s+(?:\w+\s+)?(?:mistake|error)\b"
    r"|\b(?:misread|oops|correction)\b",
    re.IGNORECASE,
)


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
        if cue.re is CUE and not groups["strong"] and not _opens_sentence(rest, cue):
            continue
        if groups.get("many") or groups.get("roots"):
            continue  # how many there are may be in the box
        text = clause(rest[cue.end() : cue.end() + 300])
        value = None if text is None else read(text)
        words = isinstance(value, Words) and not judges(value) and isinstance(read(box), Words)
        if text is not None and value is not None and (is_value(value) or words):
            return Extracted(text, "phrase")
    if _RETRACTION.search(rest) is not None or is_withdrawn(rest):
        concluded = closing(rest)
        if concluded is not None and is_value(read(concluded.text)):
            return concluded
    return None


_WITHDRAWN: Final = r"scratch\s+that|(?:answer|result)\s+above\s+(?:is|was)\s+(?:wrong|incorrect)"
# Words by which a writer goes back on an answer: the first kind always, the second perhaps.
_TAKEN_BACK: Final = re.compile(
    rf"\b(?P<surely>edit\s*:|sorry(?!\s+for)|oops|correction|{_WITHDRAWN}|misread)"
    r"|\b(?:hmm|wait|hold\s+on|on\s+second\s+thought)\b",
    re.IGNORECASE,
)
# What follows "wait" mostly is a check, whose last value is no answer.
_REPLACES: Final = re.compile(r"\b(?:must|should)\s+be\b|\bis\s+actually\b", re.IGNORECASE)
_NO_LONGER: Final = re.compile(rf"\b(?:{_WITHDRAWN})", re.IGNORECASE)


def is_withdrawn(rest: str) -> bool:
    """Whether the text behind an answer says that it holds no more."""
    return _NO_LONGER.search(rest) is not None


def unless_taken_back(body: str, phrased: Extracted | None) -> Extracted | None:
    """Return what a phrase committed to, or what replaces it once the writer went back on it."""
    back = list(_TAKEN_BACK.finditer(body)) if phrased is not None else []
    if not back or any(cue.start() > back[-1].start() for cue in cues(body)):
        return phrased
    after = body[back[-1].start() :]
    surely = any(match["surely"] for match in back)
    concluded = closing(after) if surely or _REPLACES.search(after) is not None else None
    if concluded is not None and is_value(read(concluded.text)):
        return concluded
    replaced = surely and any(map(str.isdigit, after))
    return None if replaced or is_withdrawn(after) else phrased


def commits(rest: str) -> bool:
    """Whether the text behind a box holds anything that might replace it."""
    if len(rest) < 8:
        return False
    marked = "####" in rest or "</answer>" in rest or _RETRACTION.search(rest) is not None
    return marked or is_withdrawn(rest) or any(True for _ in cues(rest))


def _opens_sentence(body: str, cue: re.Match[str]) -> bool:
    groups = cue.groupdict()
    if cue[0][:6].lower() == "result" or groups.get("check") or groups.get("computed"):
        return False  # a check computes results, too
    return _OPENS_SENTENCE.search(body[max(0, cue.start() - 60) : cue.start()]) is not None
