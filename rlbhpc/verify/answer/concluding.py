r"""A response that is its answer, and a last sentence that states one: no box, no phrase.

What stands last is only taken from a complete sentence whose form is known: a verb of a short list
and a value up to its end, in bold, behind a word such as "so", or as all that the response says. A
sentence that denies, hedges, bounds, supposes, quotes or names a part states nothing.
"""

from __future__ import annotations

import re
from typing import Final

from rlbhpc.verify.answer.commit import (
    COPULA,
    HEDGE,
    LETTERS,
    Extracted,
    fenced,
    is_value,
    judges,
    undelimited,
)
from rlbhpc.verify.answer.read import read
from rlbhpc.verify.answer.value import Region, Words

_BARE: Final = re.compile(r"[^\n]{1,120}")


def bare(body: str) -> Extracted | None:
    """Take a response that is nothing but an answer, as the no-think prompt asks for."""
    text = fenced(body.strip())
    if not _BARE.fullmatch(text) or HEDGE.search(text) or "box" in text or text[0] in "#<若设令":
        return None
    text = undelimited(text.rstrip("."))
    plain = any(c.isalnum() for c in text) and len(LETTERS.findall(text)) <= 2
    return Extracted(text, "bare") if plain else None


_CLOSING: Final = re.compile(
    r"(?:[^.\n]{0,120}\b)?(?:therefore|thus|hence|so(?!\s+far)|consequently|in conclusion|"
    r"finally)\b[^.\n]*?"
    r"(?:\b(?:is|are|equals|(?:should|must)\s+be|we\s+(?:get|obtain|have|find))\b|=)\s*"
    r"(?P<value>(?:[^.\n=]|\.(?=\d))+)",
    re.IGNORECASE,
)
_SUPPOSES: Final = re.compile(
    r"\b(?:or|if|wrong|incorrect|false|bound|suppose|case\s+\d|(?:first|other)\s+(?:root|part|case))\b|[\"“”?≈]|\\approx",
    re.IGNORECASE,
)
_LEAD: Final = (
    r"(?:(?:therefore|thus|hence|so|consequently|finally),?\s+|∴\s*|\$?\\therefore\s*|(?:so\s+)?we\s+"
    r"(?:conclude|find|get|obtain|have)(?:\s+that)?:?\s+|it\s+follows\s+that\s+|"
    r"(?:in\s[a-z ]+|as\s+an?\s+(?:fraction|decimal|percentage|mixed\s+number)):\s+|"
    r"taking\s[a-z ]+,\s+|total:?\s+|итого:\s*|"
    r"(?:следовательно|итак|таким\s+образом|"
    r"donc|somit|daher|por\s+lo\s+tanto|portanto|따라서|그러므로|よって|したがって|ゆえに),?、?\s*)"
)
_CHOSEN: Final = re.compile(
    r"(?:(?:therefore|thus|hence|so|only),?\s+)*(?:option|choice|answer)?\s*\**\(?([A-J])\)?\**\s+is\s+"
    r"(?:the\s+)?(?:correct|right)(?:\s+(?:answer|option|choice))?"
    rf"|(?:{_LEAD}(?:it\s+(?:is|must\s+be)\s+|(?:we|i)\s+(?:choose|pick|select)\s+)?|(?:i|we)\s+"
    r"(?:choose|pick|select)\s+|my\s+choice(?:\s+is|:)\s+)(?:the\s+)?(?:option|choice)?\s*\**"
    r"\(?([A-HJ])\)?\**",
    re.IGNORECASE,
)
# A whole sentence of a lead and mathematics that reads as a value: "So x = 2 or x = 3".
_LED: Final = re.compile(
    rf"{_LEAD}(?P<value>(?:[$\\(\[{{∠|√+-]|\d|[A-Za-z][A-Za-z0-9_^+*/(){{}} -]{{0,30}}=).*)",
    re.IGNORECASE,
)
_AFTERTHOUGHT: Final = re.compile(
    r" (?:in total|in all|altogether|left|(?:as|is) (?:the|our) (?:final )?answer)$"
)
_COMPLETE: Final = (".", "$", "**", "\\)", "\\]", "!", "。")
_BREAKS: Final = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n")


def closing(body: str) -> Extracted | None:
    """Find a last sentence that concludes with a value and is complete: "Therefore x = 7."."""
    text = body.rstrip()
    if not text.endswith(_COMPLETE):
        return None  # it may have been cut within a number
    sentences = _BREAKS.split(text[-400:].rstrip(" .!。"))
    before = sentences[-2] if len(sentences) > 1 else ""
    concluded = _concluded(sentences[-1].strip("* "))
    alone = not before and len(text) < 400
    return concluded or _stated(sentences[-1].strip(), before, alone)


def _concluded(sentence: str) -> Extracted | None:
    choice = _CHOSEN.fullmatch(sentence)
    if choice is not None and not HEDGE.search(sentence):
        return Extracted(choice[1] or choice[2], "closing")
    led = _LED.fullmatch(sentence)
    if led is not None and not HEDGE.search(sentence) and not _DENIES.search(sentence):
        conclusion = _taken(COPULA.sub("", led["value"]).replace("**", ""))
        if conclusion is not None:
            return conclusion
    match = _CLOSING.fullmatch(sentence)
    if match is None or HEDGE.search(sentence) or _SUPPOSES.search(sentence):
        return None
    value = _AFTERTHOUGHT.sub("", match["value"]).replace("**", "").strip(" *")
    value = value.removesuffix("\\)").removesuffix("\\]").strip(" $")
    value = value.removeprefix("\\(").removeprefix("\\[")
    few = len(LETTERS.findall(value)) <= 2 and not value.endswith(" more")
    return Extracted(value, "closing") if any(map(str.isdigit, value)) and few else None


# --- what a sentence states ----------------------------------------------------------------------

# Whatever one of these is in may deny, hedge, bound or suppose a value, or speak of another one.
_DENIES: Final = re.compile(
    r"n['’]t\b|['’]s\s+(?:answer|solution|result|value)|[?\"“”«»~≈]|\\approx|\\sim|(?<!\\)\b(?:"
    r"no|not(?!\s+(?:divisible|multiples?|relatively|prime|adjacent|including|counting))|never|neither|"
    r"nor|none|nobody|nothing|cannot|without(?!\s+(?:replacement|repetition|loss))|if|unless|"
    r"(?<!remainder\s)when|whenever|while|whether|until|suppos\w*|assum\w*|imagin\w*|pretend\w*|let|"
    r"were|would|could|might|may(?!\s+\d)|maybe|perhaps|possibly|probabl[ey]|presumabl[ey]|likely|"
    r"seem\w*|appears\s+to|looks?|thinks?|thought|belie\w+|guess\w*|estimat\w*|rough\w*|approx\w*|"
    r"about|around|nearly|almost|close|bound\w*|(?:upper|lower)\s+(?:limit|estimate)|exceed\w*|"
    r"wrong\w*|incorrect\w*|false\w*|mistak\w*|errors?|typos?|traps?|tempt\w*|naive\w*|claim\w*|"
    r"says?|said|states?|stated|told|tells?|(?:are|is|was)\s+given|given\s+that|asks?|asked|problem|"
    r"half|twice|before|denominator|numerator|subtract\w*|initial\w*|previous|last|earlier|question|hints?|examples?|e\.g|another|others?|else|instead|rather|except|besides|but|however|"
    r"though|although|despite|yet|still|second(?!s)(?<!per\ssecond)|third|"
    r"first(?!\s+(?:\d|\$|n\b|two|three|four|five|six|ten|hundred))|steps?\s*\d|cases?|"
    r"part\s+\(?[a-h1-9]|partial\w*|sub\w*total|so\s+far|intermediate|temporar\w*|"
    r"(?:one|some)\s+(?:root|solution|answer|value|option|possib\w+|factor|of)|depend\w*|"
    r"var(?:y|ies)|impossible|absurd|contradict\w*|reject\w*|discard\w*|exclud\w*|extraneous|invalid|"
    r"fail\w*|worst|distractor|eliminat\w*|gold|grader|reference|expected\s+answer|student|teacher|nicht|kein\w*|falsch\w*|wenn|"
    r"vielleicht|etwa|ungefähr|mindestens|höchstens|pas|peut\w*|environ|au\s+(?:plus|moins)|"
    r"faux|fausse|quizás?|tal\s+vez|menos|máximo|mínimo|incorrect[ao]|fals[ao]|não|talvez|"
    r"errad[ao])\b",
    re.IGNORECASE,
)
# A sentence before it that takes the last one back, or only supposes it.
_DOUBTS: Final = re.compile(
    r"\b(?:if|suppos\w*|assum\w*|imagin\w*|pretend\w*|guess\w*|unsure|not\s+sure|(?:don't|do\s+not)\s+"
    r"know|hypothe\w*|for\s+example|e\.g|say|claim\w*|wrong\w*|incorrect\w*|cases?|student|clearly\s+no"
    r"|false|mistake\w*|naive\w*|tempt\w*)\b",
    re.IGNORECASE,
)
_VERB: Final = (
    r"(?:is|are|was|equals|makes?|takes?|costs?|earns?|pays?|weighs|measures|has|have|had|contains|"
    r"gets?|got|sold|bought|spent|spends|collected|travel(?:s|led)|runs?|saves?|saved|needs?|lasts|"
    r"becomes|gives|yields|leaves|totals|made|makes|collects|will\s+be|falls\s+on|meets?\s+at|"
    r"(?:in|de)creased\s+by|starts\s+at|ends\s+at|covers|holds|reaches|arrives\s+at|"
    r"amounts\s+to|comes\s+to|works\s+out\s+to|(?:is|are)\s+equal\s+to|(?:is|are)\s+worth|"
    r"ist|sind|beträgt|betragen|est|sont|vaut|es|son|é|são)"
    r"(?:,?\s+(?:therefore|thus|hence|then|simply|exactly|indeed|precisely|also|"
    r"somit|daher|donc|por\s+tanto|insgesamt),?)?(?:\s+an?\s+(?:total|sum|profit|product|average|volume|area)\s+of)?"
)
_BOLD: Final = re.compile(
    rf"(?P<subject>[^*]*[\w,)$])\s+{_VERB}\s+(?:(?:an?|the|at|d(?:ie|er|as)\s+\w+|es)\s+)?"
    r"\*\*(?P<value>[^*]+)\*\*(?P<rest>[^*]*)",
    re.IGNORECASE,
)
_PLAIN: Final = re.compile(rf"(?P<subject>[^*=;:]*\w)\s+{_VERB}\s+(?P<value>[^*]+)", re.IGNORECASE)
_TWO_CLAIMS: Final = re.compile(rf"\b{_VERB}\s+[-$\d\\]", re.IGNORECASE)
# What may follow a bold value: how often, or a reason that holds no other value.
_AFTER: Final = re.compile(
    r"[\s,.]*(?:in\s+(?:total|all)|altogether|overall|(?:every|each|a|per)\s+(?:day|week|month|year|"
    r"hour|minute)(?:\s+at\s+the\s+[a-z' ]+)?|(?:since|because|as)\s[^\d$\\]*)?[\s.]*"
)
# "So the day is Monday": one word that concludes.
_CALLED: Final = re.compile(
    r"(?:therefore|thus|hence|so),?\s+(?:the\s+)?(?:[a-z]+\s+){1,4}(?:is|are)\s+(?:an?\s+)?"
    r"(?P<value>[a-z]+)",
    re.IGNORECASE,
)
_IT_IS: Final = re.compile(
    r"(?:(?:the|my)\s+answer\s+is(?:n['’]t|\s+not)\s+[^\s;,]{1,20}[;,]\s+)?(?:so\s+|but\s+)?it(?:'s|’s|\s+is)\s+(?P<value>[^\s,;]+)",
    re.IGNORECASE,
)
_NO_SOLUTIONS: Final = re.compile(
    r"(?:[^,;:]*,\s+)?(?:so|thus|hence|therefore),?\s+(?:(?:there\s+(?:is|are)|(?:the|this)\s+"
    r"(?:equation|system|inequality)\s+has)\s+(?P<none>no\s+(?:real\s+)?solutions?)|"
    r"(?P<nothing>no\s+such\s+[a-z]+\s+exists?|(?:the\s+)?limit\s+does\s+not\s+exist))",
    re.IGNORECASE,
)
_CHINESE: Final = re.compile(
    r"(?=.*[一-鿿])(?P<cue>(?:因此|所以|综上(?:所述)?|故)[,，]?)?(?P<subject>[^,，。:：=<>]{0,40}?)"
    r"(?:是|为|等于|一?共有|总共有|一?共需要|选|(?<![0-9A-Za-z+\-*/^)}])(?P<named>[a-zA-Z]\s*=))\s*(?P<value>[^。是为=]+)"
)
_CHINESE_DENIES: Final = re.compile(
    r"[不没未非无错误若设令约概近似至超少多余除剩另其第每几半倍界反负外一种认以可能或许题给出如果？?]"
)
_WITH_UNIT: Final = re.compile(r"(?:\w\s*=\s*)?\$([^$]+)\$\s*([A-Za-z/]{1,12})?")


def _stated(sentence: str, before: str, alone: bool) -> Extracted | None:
    """Return the value of a last sentence of a known form; ``alone``: it is the whole response."""
    chinese = _CHINESE.fullmatch(sentence.replace("**", "").replace("不同的", ""))
    if chinese is not None and (alone or chinese["cue"]):
        subject = chinese["subject"].removeprefix("实数")
        plain = _CHINESE_DENIES.search(subject) is None and HEDGE.search(sentence) is None
        return _taken(chinese["value"]) if plain and is_value(read(chinese["value"])) else None
    if _DOUBTS.search(before):
        return None
    none = _NO_SOLUTIONS.fullmatch(sentence)
    if none is not None:
        nothing = none["none"] or none["nothing"]
        denied = _DENIES.search(sentence[: -len(nothing)])
        return None if denied else Extracted(nothing, "closing")
    plain = _DENIES.search(sentence, 3) is None and "wait" not in sentence
    if alone and plain and read(sentence) in (Words("yes"), Words("no")):
        return Extracted(sentence, "closing")
    it = _IT_IS.fullmatch(sentence)
    if it is not None and not _DENIES.search(it["value"]):
        return _taken(it["value"].strip("*"), words=True)
    if _DENIES.search(sentence):
        return None
    named = _CALLED.fullmatch(sentence)
    if named is not None:
        return _taken(named["value"], words=True)
    bold = _BOLD.fullmatch(sentence)
    if bold is not None:
        value = bold["value"].rstrip(".")
        if _AFTER.fullmatch(bold["rest"]):
            return _taken(value, words=True)
        return _taken(f"{value} {bold['rest'].strip()}")
    stated = _PLAIN.fullmatch(sentence) if alone else None
    if stated is None or _TWO_CLAIMS.search(stated["subject"]) is not None:
        return None
    return _taken(stated["value"])


def _taken(text: str, words: bool = False) -> Extracted | None:
    """Return a text that reads as a value, or as few words where words may be the answer."""
    text = _AFTERTHOUGHT.sub("", text)
    formula = _WITH_UNIT.fullmatch(text)
    if formula is not None:
        text = f"{formula[1]} \\text{{ {formula[2]}}}" if formula[2] else formula[1]
    value = read(undelimited(text))
    plain = words and isinstance(value, Words) and not judges(value) and len(text.split()) < 3
    is_plain_value = (
        is_value(value)
        and value != Region(())
        and not text.endswith(" more")
        and len(LETTERS.findall(text)) < 9
    )
    return Extracted(undelimited(text), "closing") if plain or is_plain_value else None
