r"""A commitment behind an answer, which replaces it, and a box that its writer goes back on.

Most prose behind a box checks or explains it. A writer who admits a fault and does not come back to
the box voids it: the answer is then the last value of the last sentence, other than that of the
box, or there is none.
"""

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
from rlbhpc.verify.answer.value import Opaque, Words


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
    instead = _reconsidered(rest, box)
    return None if not instead else Extracted(instead, "closing")


def stands(rest: str, box: str) -> bool:
    """Whether a box that nothing replaces is still its writer's answer."""
    return not is_withdrawn(rest) and _reconsidered(rest, box) is None


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
        or _ADMITS.search(rest) is not None
        or _CONTRASTS.search(rest) is not None
    )


# --- a box that its writer goes back on -----------------------------------------------------------

#: How a writer admits a fault; BOX stands for what the box holds.
_ADMISSIONS: Final = (
    r"mistake|slip|error|wrong(?:ly)?|incorrect(?:ly)?|apolog\w+|double[- ]counts?",
    r"BOX[^.]{0,30}\sextraneous",
    r"(?:i|we)\s+(?:had\s+|have\s+)?(?:now\s+)?(?:forgot(?:ten)?|overlooked|misread|miscounted|"
    r"missed|misinterpreted|misstated|reali[sz]e)",
    r"(?:did\s+not|didn['’]t)\s+(?:include|account|consider|notice)",
    r"not\s+(?:quite\s+|fully\s+|entirely\s+)?(?:right|correct|convinced|reliable)",
    r"(?:can['’]t|cannot)\s+be\s+(?:right|correct|true)",
    r"does(?:n['’]t|\s+not)\s+(?:match|work|fit|hold|look\s+right|seem\s+right)",
    r"correct\s+(?:myself|my|this|that)|revis(?:e|ing)|withdraw\w*|recheck\w*|re-?count\w*",
    r"(?:be|is|was)\s+changed|should\s+have|on\s+(?:reflection|second\s+thoughts?)",
    r"(?:is|are)\s+(?:really|in\s+fact|actually)|(?:problem|question)\s+(?:has|is\s+about|wants)",
    r"(?:it\s+was|as)\s+.{3,40}\s+(?:that\s+they\s+wanted|was\s+asked)",
    r"(?:not|than|instead\s+of)\s+(?=\$?BOX)",
    r"either\s+\S+\s+or\s+\S+|correction\s*:|erratum|edit\s*:|ignore|disregard|"
    r"(?:be|is)\s+(?:replaced\s+by|corrected\s+to)|(?:that|this)\s+is\s+(?:now\s+)?(?:my|the)\s+answer",
    r"BOX\S*\s+is(?:n['’]t|\s+not|\s+un|\s+in)|not\s+(?:justified|attainable|possible)|stand\s+by\s+it",
    r"(?:can['’]t|cannot)\s+be\s+answered|(?:i|we)\s+(?:only\s+)?(?:guessed|notice)|then\s+again|oh\s+wait",
    r"(?:that|this|it)\s+would\s+(?:be|have\s+been)\s+for",
    r"me\s+equivoqu[eé]|trompé|erreur|fehler|falsch",
)
_ADMITS: Final = re.compile(
    rf"\b(?:{'|'.join(_ADMISSIONS)})|计算错|算错|看错|漏掉|错了|不对", re.IGNORECASE
)
# Perhaps with the box, which is then looked at.
_CONTRASTS: Final = re.compile(r"\b(?:not|than|instead\s+of)\s+\$?(?=[\d\\-])")
# Others' errors, and what is only advised.
_REMARKS: Final = re.compile(
    r"\b(?:common|often|students?|people|one\s+(?:might|may|could|would)|would\s+(?:be|give|have)|tempting|"
    r"if|were|to\s+(?:include|forget|say|claim|assume|think)|(?:do\s+not|don['’]t)\s+forget|careful|remember|note\s+that|avoid|easy\s+to|many|some|"
    r"any\s+(?:errors?|mistakes?)|no\s+(?:errors?|mistakes?)|rounding|margin\s+of|relative|percent(?:age)?\s+error)\b"
    r"|注意|否则|避免",
    re.IGNORECASE,
)
_AFFIRMS: Final = re.compile(
    r"\b(?:(?:is|are|was|were)\s+(?:indeed\s+|still\s+|also\s+)?(?:correct|right|fine|valid|confirmed|consistent|"
    r"unchanged)|checks?\s+out|matches|holds|works|confirm(?:s|ed)|verified|stands?|"
    r"(?:remains?|stays?)\b|as\s+(?:expected|required|stated|claimed|before)|so\s+(?:all|everything)\s+is|"
    r"good|great|consistent|agrees?)\b|✓|✅|符合|正确|成立",
    re.IGNORECASE,
)
_UNSURE: Final = re.compile(r"\b(?:which|whether|not|(?:don|can|isn)['’]t)\b", re.IGNORECASE)
_SENTENCES: Final = re.compile(r"(?<=[.!?])\s+(?![=<>])|(?<=[。！？])|\n+")
_VALUES: Final = re.compile(
    r"\$([^$]+)\$|\\\((.+?)\\\)|(?<![\w.])(-?[$€£]?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?)(?![\w]|[.,]\d)"
)
_MOST: Final = 8000


def _reconsidered(rest: str, box: str) -> str | None:
    """Return what replaces a box: the empty text where nothing does and the box is void.

    None where the box stands.
    """
    if len(rest) > _MOST:
        return None
    named = _named(rest.lstrip("$"), box)  # of the box's formula
    sentences = [s for s in _SENTENCES.split(named) if any(map(str.isalnum, s))]
    remarks = [_REMARKS.search(s) is not None for s in sentences]
    admitted = [
        i for i, s in enumerate(sentences)
        if _ADMITS.search(s)
        and not (remarks[i] or (i and remarks[i - 1] and s.lower().startswith(("that", "this"))))
    ]  # fmt: skip
    if not admitted or any(map(_affirms, sentences[admitted[-1] + 1 :])):
        return None
    if re.search(r"\beither\b", sentences[-1]):
        return ""
    values = _others(sentences[-1].replace("BOX", f"${box}$"), box)
    if values is None:
        return None
    return values[-1] if values else ""


def _affirms(sentence: str) -> bool:
    return _AFFIRMS.search(sentence) is not None and _UNSURE.search(sentence) is None


def _named(rest: str, box: str) -> str:
    r"""Put BOX for each value that is the box's, however it is written: ``\frac12``."""
    boxed = read(box)

    def name(found: re.Match[str]) -> str:
        text = next(filter(None, found.groups()))
        return "BOX" if text == box or read(text) == boxed else found[0]

    return _VALUES.sub(name, rest)


def _others(sentence: str, box: str) -> list[str] | None:
    """Return the values of a sentence that are not the box's; None if that is its only one."""
    texts = [next(filter(None, match.groups())) for match in _VALUES.finditer(sentence)]
    texts = [text.rpartition("=")[2].strip() for text in texts]
    boxed = read(box)
    values = [text for text in texts if not isinstance(read(text), Opaque | Words)]
    others = [text for text in values if read(text) != boxed]
    return None if values and not others else others
