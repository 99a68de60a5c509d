"""What prose around an answer may say: one list of each for phrases, last sentences and take-backs.

How a writer doubts, supposes, denies or takes back, and the words that change nothing.
"""

from __future__ import annotations

import re
from typing import Final

from rlbhpc.verify.answer.tables import words

_UNSURE: Final = (
    r"maybe|perhaps|possibly|probably|presumably|unsure|not\s+sure|"
    r"(?:don['’]t|do\s+not)\s+know|guess\w*"
)
# Within the clause of a value.
HEDGE: Final = re.compile(
    rf"\b(?:{_UNSURE}|might|could|not|unknown|either|i think|depends|cannot|can't|"
    r"approximately one of)\b|\?",
    re.IGNORECASE,
)
# Within what stands before an answer: its clause, or the sentence before.
DOUBT: Final = re.compile(
    rf"\b(?:{_UNSURE}|if|suppos\w*|assum(?:e|ing)|ignoring|had\s+\w+\s+been|were\s+(?:it|we|there)\b|"
    r"without(?!\s+(?:replacement|repetition|loss))|imagin\w*|pretend\w*|whether|hypothe\w*|for\s+example|e\.g|"
    r"(?<!the\s)case\s+\w\b|says?|claim\w*|according\s+to|think\w*|student|clearly\s+no|naive\w*|tempt\w*)\b"
    r"|\b(?:wrong|incorrect|false|untrue|not\s+true|mistake|not\s+the\s+case)(?!\w)[^,]*$",
    re.IGNORECASE,
)
# Words by which a writer goes back on an answer: the first kind always, the second perhaps.
TAKEN_BACK: Final = re.compile(
    r"\b(?P<surely>edit\s*:|(?:wait|hold\s+on)\W+(?P<instead>(?:no|actually)\W+)*"
    r"(?=(?:it|that(?(instead)|(?=\S*\s+(?:is\s+)?(?:actually|\S+$))))"  # "that's 2+3" checks
    r"(?:['’]s|\s+is)\s+(?:actually\s+)?\$?-?\d)|"
    r"(?:sorry(?!\s+for)|oops|correction|misread|"
    r"(?P<withdrawn>scratch\s+that|(?:answer|result)\s+above\s+(?:is|was)\s+(?:wrong|incorrect))|"
    r"(?:that|this|it|which|(?:the|my)\s+answer)(?:\s+is|['’]s|\s+was)\s+(?:wrong|incorrect|"
    r"not\s+(?:right|correct|what\s+\w+\s+want\w*))|(?:that|this|it)\s+can(?:['’]t|not)\s+be\s+"
    r"(?:right|correct|true)|no,?\s+wait|(?:i\s+made\s+an?|my)\s+(?:\w+\s+)?(?:mistake|error))\b)"
    r"|\b(?:hmm|wait|hold\s+on|on\s+second\s+thought)\b",
    re.IGNORECASE,
)
# Words by which a writer begins anew: what is then concluded replaces what stands before.
_BEGINS_ANEW: Final = re.compile(
    r"\b(?:but\s+wait|reconsider|re-?calculat\w+|redo\w*|extraneous|(?:should|must)\s+double|"
    r"(?:solv|calculat|comput|count)ing\s+again)\b",
    re.IGNORECASE,
)
# Words by which a writer gives up.
_GIVEN_UP: Final = re.compile(
    r"\b(?:(?:am|['’]m|are|['’]re|was|were)\s+(?:not\s+able|unable)|can(?:not|['’]t))\s+(?:to\s+)?"
    r"(?:determine|decide|tell)\s+(?:the|an)\s+answer\b"
    r"|\b(?:maybe|perhaps)\s+(?:it(?:['’]s|\s+is)\s+)?\$?-?\d(?!.*\b(?:no|indeed|correct|right)\b)",
    re.IGNORECASE | re.DOTALL,
)
_DENIED_AFTER: Final = re.compile(
    r"[$\s)\]*}\\]*(?:(?:is|was|would\s+be)\s+(?:what\s+a|(?:the\s+)?wrong|incorrect|not\b|too\b)|"
    r"\?\s+no\b)",
    re.IGNORECASE,
)
# What follows "wait" mostly is a check, whose last value is no answer.
REPLACES: Final = re.compile(r"\b(?:must|should)\s+be\b|\bis\s+actually\b", re.IGNORECASE)
#: Words that lead to a conclusion, in the languages of the phrases.
LEADS: Final = (
    r"(?:therefore|thus|hence|so(?!\s+far)|consequently|finally|in\s+conclusion|altogether|overall|"
    r"итого|следовательно|итак|таким\s+образом|donc|somit|daher|also|por\s+lo\s+tanto|portanto|quindi|"
    r"따라서|그러므로|よって|したがって|ゆえに|因此|所以|综上(?:所述)?|故)"
)
# What may stand before "answer is" in its sentence, so that it is the writer's own and whole.
OWN: Final = re.compile(
    rf"(?:^|[^\w'’\"“ \t]|所以|因此|\b(?:{LEADS}|then|yes|actually|now|and|indeed|that|but|is|"
    r"only\s+one|we\s+conclude)\b,?)"
    r"[\s*#_]*(?:the|my|our|this)?\s*(?:correct|right|actual|true|new|corrected|revised|required|requested|"
    r"exact|desired|numerical|best|正确的?|最[后終终]|最終的な|최종|правильный|окончательный)?\s*$",
    re.IGNORECASE,
)
# "It is" at the end of a Japanese or a Korean sentence.
COPULA: Final = re.compile(r"\s*(?:です|である|だ|입니다|이다|이에요)$")
# A name, and none of the words that deny or count when they begin a sentence.
PERSON: Final = (
    r"(?!(?:No\w*|Neither|Each|Every\w*|Some\w*|Any\w*|Wh\w*|If|Both|Half|Twice|Only|\w*ly|"
    r"Almost|About|Over|Under|Another|Perhaps|Maybe)\b)[A-Z][a-z]*"
)


def is_withdrawn(rest: str) -> bool:
    """Whether the text behind an answer says that it holds no more."""
    taken = any(match["withdrawn"] for match in TAKEN_BACK.finditer(rest))
    denied = _DENIED_AFTER.match(rest) or _GIVEN_UP.search(rest)
    return taken or denied is not None


def taken_back(rest: str) -> bool:
    """Whether the text behind an answer surely goes back on it, or begins anew."""
    surely = any(match["surely"] for match in TAKEN_BACK.finditer(rest))
    return surely or _BEGINS_ANEW.search(rest) is not None


_KNOWN: Final = frozenset(words("subject_words.txt"))
# What qualifies a noun in words that are known, too: "that are not divisible by 3".
_QUALIFIES: Final = re.compile(
    r"(?:that|which)\s+(?:are|is)\s+(?:not\s+)?(?=divisible|multiples?|prime|coprime|relatively)"
    r"|\bis\s+(?=divided)|\b(?:\d+(?:th|st|nd|rd)|first|second|third|fourth|fifth|sixth|nth)\s+"
    r"(?=terms?\b|digits?\b|\d|\$|n\b|ten\b)|number\s+of\s+(?!others)[a-z]+s\b|"
    r"(?:at\s+least|at\s+most|exactly)\s+one|percent\s+error|\d\s+or\s+(?=\d)|"
    r"\$[^$=]*\$|\\\([^=]*?\\\)|\b[a-zA-Z]\b(?!['’])|-?\d[\d.,]*",
)
_MARKS: Final = re.compile(r"[\s,()+*/^-]+")


def is_known(subject: str) -> bool:
    """Whether all words of a subject are known to name a quantity and to deny or bound nothing."""
    words = filter(None, _MARKS.split(_QUALIFIES.sub(" ", subject).lower()))
    return all(not {word, word.removesuffix("s"), f"{word}s"}.isdisjoint(_KNOWN) for word in words)
