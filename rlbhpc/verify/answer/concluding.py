r"""A response that is its answer, and a last sentence that states one: no box, no phrase.

What stands last is only taken from a complete sentence of a known form: a conclusion ("So x = 5"),
or a subject, a verb and a value. The value must be bold, led to ("so the sum is 5") or computed
("she has 2+3=5 apples", which vouches for itself), or the sentence is the whole response. The
subject is built of the words of ``subject_words.txt`` alone: any other word may deny, bound or
suppose, or name another quantity ("double the answer is 10"), and an answer that is missed costs
less than a wrong one that is let in.
"""

from __future__ import annotations

import re
from typing import Final

from rlbhpc.verify.answer.commit import LETTERS, Extracted, fenced, is_value, judges, undelimited
from rlbhpc.verify.answer.doubt import COPULA, DOUBT, HEDGE, LEADS, PERSON, TAKEN_BACK, is_known
from rlbhpc.verify.answer.read import read
from rlbhpc.verify.answer.value import Region, Words
from rlbhpc.verify.answer.vouched import COMPUTED, CROSS, vouched

_BARE: Final = re.compile(r"[^\n]{1,120}")
_ON_THE_WAY: Final = re.compile(r"(?:step|case|check|let)\b", re.IGNORECASE)


def bare(body: str) -> Extracted | None:
    """Take a response that is nothing but an answer, as the no-think prompt asks for."""
    text = fenced(body.strip())
    if not _BARE.fullmatch(text) or "box" in text or text[0] in "#<若设令":
        return None
    if HEDGE.search(text) or DOUBT.search(text) or _ON_THE_WAY.match(text):
        return None
    text = undelimited(text.rstrip("."))
    plain = any(c.isalnum() for c in text) and len(LETTERS.findall(text)) <= 2
    return Extracted(text, "bare") if plain else None


# It vouches for the end of a text that has no full stop, with its unit.
_ENDS_COMPUTED: Final = re.compile(
    rf"{COMPUTED.pattern}(?:[a-z]{{3,}}(?:\sof\s[a-z]+)?)?\Z|[^$]\$\d[\d,]*\.\d\d\Z"
)
_COMPLETE: Final = (".", "$", "**", "\\)", "\\]", "!", "。")
_SENTENCES: Final = re.compile(r"(?<=[.!?])\s++(?![=<>])|(?<=[。！？，])|,\s+so\s+|\n+")
_BREAKS: Final = re.compile(r"(?<=[.!?])\s++(?![=<>])|(?<=[。！？])|\n")
# The last of these in a sentence begins its conclusion.
_LEAD: Final = re.compile(
    rf"(?:^|[,;.:*]\s*|\band\s+)(?:{LEADS}\b|in\s+(?:total|all)\b|(?:all\s+)?together\b|"
    r"(?:this|that)\s+means(?:\s+that)?\b|that\s+makes\s+(?:it|[A-Z][a-z]+)\b)[,、:]?\s*"
    r"|,\s*which\s+(?:is\s+(?=\*\*|option\b|choice\b)|corresponds\s+to\s+(?=\(?[A-J]\b|choice|option|answer))|[,，]\s*即\s*(?=\$)"
    r"|(?:^|[,;.:*]\s*)(?:∴|\$?\\therefore|(?:final\s+)?(?:total|conclusion|result|solution)\**:\**|i\.e\.,?\s+(?=(?:choice|option)\b)|it\s+follows\s+that\s|"
    r"taking\s(?:square|cube)\s+roots,\s|"
    r"(?:in(?:\s(?:degrees|radians|minutes|and|words|list|set|interval|standard|simplest|lowest|mixed|"
    r"decimal|exact|form|notation|terms|total|all))+|"
    r"as\s+an?\s+(?:fraction|decimal|percentage|mixed\s+number)):)\s*",
    re.IGNORECASE,
)
# A number, or the letter of an option, that has the last line for itself.
_ALONE: Final = re.compile(r"\n\s*(?:[$€£]?\d[\d,]*|\(?[A-E]\)?)\Z")
# What ends a response behind its answer, within so many characters.
_TAIL: Final = 600
_COURTESY: Final = re.compile(
    r"(?:\s+(?:Q\.?E\.?D\.?|∎|■|□|🎉|✅|✓|(?:(?:I\s+)?hope\s+(?:this|that|it)\s+(?:helps|is\s+clear)|Let\s+me\s+know\s|"
    r"(?:Please\s+)?[Ff]eel\s+free\s|If\s+you\s+(?:have|need|want|would)\s)[^.!\n]*[.!]))+\s*\Z"
)
# These lead, too, where the sentence holds one value and nothing that voids it.
_LED: Final = re.compile(
    r"(?:that|this|which)\s+(?:leaves|makes|gives|comes|adds)\b|(?P<of>(?:adding|subtracting|multiplying|dividing|"
    r"simplifying|solving|combining|substituting|evaluating|expanding|factoring|taking|since|because|as))\b|(?:it|we)\s+follows?\b|"
    r".{1,40}\b(?:therefore|thus|hence)\b|"
    r"したがって|よって|따라서|por\s|asi\b|así\b|donc\b|il\s+reste|значит|どう",
    re.IGNORECASE,
)
_WE_FIND: Final = re.compile(
    r"(?:we|i)\s+(?:conclude|find|get|obtain|have|need)(?:\s+that)?:?\s+", re.IGNORECASE
)
_BOLD_LINE: Final = re.compile(r"\*\*[^*]+\*\*")
# "B) 12" as the last line; where others are listed, it is one of them.
_OPTION: Final = re.compile(r"^\(?[A-J]\)[ \t]+\S.{0,60}$", re.MULTILINE)
_ENDS_OPTION: Final = re.compile(r"\n\(?[A-J]\)[ \t]+\S+\Z")
_SOLVED: Final = re.compile(r"[=<>∈]|\\(?:[lg]eq?|in)\b|\bthat\b|answer$")


def closing(body: str) -> Extracted | None:
    """Find a last sentence that concludes with a value and is complete: "Therefore x = 7."."""
    text = (body[:-_TAIL] + _COURTESY.sub("", body[-_TAIL:])).rstrip()
    stated = _last_sentence(text)
    if stated is not None or not (text.endswith(_COMPLETE) or _ALONE.search(text)):
        return stated
    *_, before, sentence = ["", *_SENTENCES.split(text[-400:].rstrip(" .!。"))]
    if DOUBT.search(before) or TAKEN_BACK.search(before):
        return None
    opening = _LED.match(sentence)
    led = opening is not None or _LEAD.search(sentence) is not None or f", so {sentence}" in text
    if opening is not None and opening["of"] and ", " in sentence:
        sentence = sentence.rpartition(", ")[2]  # "Since it rains, …"
        concluded = None if DOUBT.search(text[-400:]) else _concluded(sentence)
        if concluded is not None:
            return concluded
    if re.fullmatch(r"\(?[A-E]\)?", sentence) and _ALONE.search(text):
        return Extracted(sentence, "closing")
    value = vouched(sentence, before, led=led)
    return None if value is None else Extracted(undelimited(value), "closing")


def _last_sentence(text: str) -> Extracted | None:
    last = text[-200:]
    if not text.endswith(_COMPLETE) and not (
        _ENDS_COMPUTED.search(last) or _ENDS_OPTION.search(last)
    ):
        return None  # it may have been cut within a number
    sentences = _BREAKS.split(text[-400:].rstrip(" .!。"))
    sentence, before = sentences[-1].strip(), sentences[-2] if len(sentences) > 1 else ""
    alone = not before and len(text) < 400
    line = text.rpartition("\n")[2].strip(" .!。") == sentence
    before = TAKEN_BACK.sub("", before)
    chinese = _CHINESE.fullmatch(
        _EQUALITY.sub("", sentence.replace("**", "").replace("不同的", ""))
    )
    if (
        chinese is not None
        and "即" not in chinese["value"]
        and (alone or chinese["cue"])
        and not DOUBT.search(before)
    ):
        return _taken(chinese["value"])
    for lead in reversed(list(_LEAD.finditer(sentence))):
        before = f"{before}, {sentence[: lead.start()]}"
        return None if DOUBT.search(before) else _concluded(sentence[lead.end() :])
    if DOUBT.search(before):
        return None
    opening = _WE_FIND.match(sentence)
    if opening is not None:
        return _concluded(sentence[opening.end() :]) if _SOLVED.search(sentence) else None
    if line and _BOLD_LINE.fullmatch(sentence):
        return _taken(sentence.strip("*"), words=True)
    option = _OPTION.fullmatch(sentence)
    if line and option is not None and not _OPTION.search("\n".join(sentences[:-1])):
        return _taken(sentence)
    return _fixed(sentence) or _stated(sentence, "alone" if alone else "line" if line else "bold")


# --- conclusions ---------------------------------------------------------------------------------

# A formula, with which a conclusion may begin.
_FORMULA: Final = re.compile(
    r"(?:[$\\(\[{∠|√+-]|\d|(?:[A-Za-z]+|(?:"
    r"(?<![A-Za-z])[A-Za-zα-ω](?![A-Za-z])|[\d_^+*/(){}, -])+)\s*=).*"
)
_CHOSEN: Final = re.compile(
    r"(?:only\s+)?(?:option|choice|answer)?\s*\(?([A-J])\)?\s+is\s+(?:the\s+)?(?:correct|right)"
    r"(?:\s+(?:answer|option|choice))?"
    r"|(?:it\s+(?:is|must\s+be)\s+|(?:(?:we|i)\s+)?(?:(?:would|should|will)\s+)?(?:choose|pick|select|go\s+(?:for|with))\s+|my\s+choice(?:\s+is|:)\s+)"
    r"(?:the\s+)?(?:answer\s+)?(?:option|choice)?\s*\(?([A-HJ])\)?(?:\s*[:.,]?\s+[^A-Z]+|,\s+.none\s+of\s.*)?",
    re.IGNORECASE,
)
_COMPARING: Final = re.compile(
    r"^(?:comparing|checking|looking\s+at|among|of)\s[^,\d$]*,\s*", re.IGNORECASE
)
# "Among the choices A. 2, B. 3, we choose B"
_LISTED: Final = re.compile(
    r"^(?:among|of)\s+(?:the|these)\s+(?:choices|options)\s.*,\s*(?=we\s|i\s)", re.IGNORECASE
)
_NO_SOLUTIONS: Final = re.compile(
    r"(?:(?:there\s+(?:is|are)|(?:the|this)\s+(?:equation|system|inequality)\s+has)\s+"
    r"(no\s+(?:real\s+)?solutions?)|(no\s+such\s+[a-z]+\s+exists?|(?:the\s+)?limit\s+does\s+not\s+exist))",
    re.IGNORECASE,
)
_IT_IS: Final = re.compile(
    r"(?:the|my)\s+answer\s+is(?:n['’]t|\s+not)\s+[^\s;,]{1,20}[;,]\s+it(?:['’]s|\s+is)\s+([^\s,;]+)"
    r"|(?:but\s+|(?:wait|hold\s+on)\W+)?(?:actually\W+)?it(?:['’]s|\s+(?:is|(?:should|must)\s+be))\s+"
    r"(?:actually\s+)?([^\s,;]+)(?:\s+(?:instead\s+of|rather\s+than)\s+\S+)?",
    re.IGNORECASE,
)


def _concluded(text: str) -> Extracted | None:
    """Return the value of what follows a word such as "so"."""
    opening = _WE_FIND.match(text)
    plain = text[opening.end() if opening is not None else 0 :].replace("**", "")
    formula = _taken(COPULA.sub("", plain)) if _FORMULA.fullmatch(plain) else None
    return formula or _fixed(text) or _fixed(f"choose {text}") or _stated(text, "led")


def _fixed(sentence: str) -> Extracted | None:
    plain = _COMPARING.sub("", sentence.replace("**", ""))
    plain = _LISTED.sub("", plain)
    choice = _CHOSEN.fullmatch(plain) or _NO_SOLUTIONS.fullmatch(plain)
    if choice is not None:
        return Extracted(choice[1] or choice[2], "closing")
    it = _IT_IS.fullmatch(plain)
    return None if it is None else _taken(it[1] or it[2], words=True)


# --- what a sentence states ----------------------------------------------------------------------

_IS: Final = (
    r"(?:(?:is|are)\s+equal\s+to|is|are|was|equals|(?:should|must|will|ha(?:s|ve)\s+to)\s+be|comes\s+to|amounts\s+to|totals|measures|"
    r"ist|sind|beträgt|est|sont|vaut|es|son|é|são)"
    r"(?:,?\s+(?:therefore|thus|hence|then|simply|exactly|indeed|also|somit|daher|donc|insgesamt),?)?"
)
_DOES: Final = (
    r"(?:(?:will|must|should|(?:has|have|had|needs?)\s+to)\s+)?"
    r"(?:makes?|takes?|costs?|earn(?:s|ed)?|pays?|paid|weighs?|has|have|had|contains?|gets?(?:\s+back)?|sold|bought|"
    r"spent|spends?|collect(?:s|ed)?|travel(?:s|led)?|saved?|needs?|lasts?|made|holds?|covers?|meet|arrives|meet\s+at|"
    r"arrives\s+at|ends\s+at|starts\s+at|runs?|ran|walks?|walked|drives?|drove|eats?|ate|drinks?|drank|"
    r"reads?|writes?|wrote|uses?|used|requires?|receives?|received|buys?|sells?|owes?|plays?|played|"
    r"works?|worked|produces?|gives?|gave|leaves?|sprints?|swims?|swam|bakes?|baked|picks?|picked)"
)
_VERB: Final = re.compile(
    rf"(?<!\S)(?P<is>{_IS})\s+|(?<!\S){_DOES}\s+"
    r"(?:a\s+(?:total|profit|sum|product|average|volume|area)\s+of\s+|when\s+|(?:the\s+)?equation\s+)?",
    re.IGNORECASE,
)
_LABEL: Final = re.compile(r"[^:=]+(?P<is>[:=])\s*")
_OWNER: Final = re.compile(rf"\b{PERSON}['’]s ")
# What may follow a bold value: how often, or a reason that holds no other value.
_AFTER: Final = re.compile(
    r"[\s,.]*(?:in\s+(?:total|all)|altogether|overall|(?:every|each|a|per)\s+(?:day|week|month|year|"
    r"hour|minute)(?:\s+at\s+the\s+[a-z' ]+)?|(?:since|because|as)\s[^\d$\\]*|"
    r"(?:attained|achieved|reached)\s+(?:at|when|for)\s+[$\\(]*[a-z]\s*=\s*[-−]?[\d./]+[$\\)]*)?"
    r"[\s.]*"
)
_AFTERTHOUGHT: Final = re.compile(
    r" (?:in total|in all|altogether|left|(?:as|is) (?:the|our) (?:final )?answer|from home|"
    r"in (?:a|one) (?:day|week|month|year))$"
)
_PLACE: Final = re.compile(
    r"(?<=\w) (?:in|at|for|from|on|of|over) (?:the|his|her|their|its|our|this|these) [a-z' ]+$"
)


def _stated(sentence: str, standing: str) -> Extracted | None:
    """Return the value of "subject verb value".

    ``standing``: the sentence is ``led`` to, ``alone``, a ``line`` of its own, or must be ``bold``
    or show the arithmetic that gives its value.
    """
    doubts = (DOUBT.search(sentence), HEDGE.search(sentence), TAKEN_BACK.search(sentence))
    if standing == "alone" and not any(doubts) and read(sentence) in (Words("yes"), Words("no")):
        return Extracted(sentence, "closing")
    sentence = _BOLD_LABEL.sub(r"\1", sentence)
    bold = _BOLD.fullmatch(sentence)
    if bold is not None and not bold[1].strip() and not bold[3].strip():
        if standing == "led" and not _VERB.search(bold[2]) and "=" not in bold[2]:
            return _taken(bold[2], words=True)
        sentence, bold = bold[2], None  # all of it is bold
    plain = sentence if bold is None else bold[1]
    verb = next(reversed(list(_VERB.finditer(plain))), None) or _LABEL.match(plain)
    if verb is None or (bold is not None and not _BEFORE_BOLD.fullmatch(plain, verb.end())):
        return None
    subject = plain[: verb.start("is" if verb["is"] else 0)].strip()
    named = not verb["is"] and re.fullmatch(rf"{PERSON}(?:(?:,|,? and) {PERSON})*", subject)
    subject = _OWNER.sub("his ", subject)
    if not named and not is_known(subject):
        return None
    if bold is not None:
        after = _AFTER.fullmatch(bold[3])
        return _taken(bold[2].rstrip(".") if after else f"{bold[2]}{bold[3]}", words=True)
    value = CROSS.sub(" * ", plain[verb.end() :])
    vouched = standing != "bold" or COMPUTED.match(value) is not None
    return _taken(value, standing == "led") if vouched else None


_BOLD: Final = re.compile(r"([^*]*)\*\*([^*]+)\*\*([^*]*)")
_BOLD_LABEL: Final = re.compile(r"\*\*([^*]*:)\*\*")
_BEFORE_BOLD: Final = re.compile(
    r"(?:(?:an?|the|at|d(?:ie|er|as)\s+(?:fläche|summe|wert|anzahl|länge))\s+)?|[\d\s+*/()^.-]+=\s*",
    re.IGNORECASE,
)
# Another statement in what should be a value, or the share of one.
_MORE: Final = re.compile(r"\b(?:is|are|was|has|roughly|nearly|almost|around)\b| more$")
_SIMPLER: Final = re.compile(
    r"^[^a-z]+,?\s+which\s+(?:simplifies|reduces|evaluates)\s+to\s+", re.IGNORECASE
)
_ASIDE: Final = re.compile(r"\s\((?:roughly|approximately|about|approx\.)\s[^()]*\)$")
_WITH_UNIT: Final = re.compile(r"(?:\w\s*=\s*)?\$([^$]+)\$\s*([A-Za-z/][A-Za-z/ ]{0,30})?")


def _taken(text: str, words: bool = False) -> Extracted | None:
    """Return a text that reads as a value, or as few words where words may be the answer."""
    place = _PLACE.search(text)
    if place is not None and is_known(place[0]):
        text = text[: place.start()]
    text = _SIMPLER.sub("", _AFTERTHOUGHT.sub("", text))
    if HEDGE.search(text) or _MORE.search(_ASIDE.sub("", text)):
        return None
    formula = _WITH_UNIT.fullmatch(text)
    if formula is not None:
        text = f"{formula[1]} \\text{{ {formula[2]}}}" if formula[2] else formula[1]
    value = read(undelimited(text))
    few = len(LETTERS.findall(text)) < 9
    words = words or any(map(str.isdigit, text))  # a date
    plain = words and isinstance(value, Words) and not judges(value) and len(text.split()) < 4
    sure = plain or (is_value(value) and value != Region(()) and few)
    return Extracted(undelimited(text), "closing") if sure else None


# --- Chinese -------------------------------------------------------------------------------------

# When a bound is reached; and how much is saved.
_EQUALITY: Final = re.compile(r"[,，]\s*当且仅当.{1,30}(?:取得?等号|等号成立|时取得?)$")
_CHINESE: Final = re.compile(
    r"(?=.*[一-鿿])(?P<cue>(?:因此|所以|综上(?:所述)?|故)[,，]?)?"
    r"(?:塔|楼|树|桥|河|山|宽|实数|质数|整数|这|个|的|它|他|她|们|我|三|两|长方形|正方形|三角形|圆|数列|函数|方程|不等式|"
    r"取值范围|通项公式|解集|定义域|值域|最大|最小|值|面积|周长|体积|总|人数|数|和|差|积|比|个数|"
    r"方法|方案|概率|期望|速度|距离|时间|长度|高|半径|角|度数|共|一|需要|答案|结果|"
    r"[a-zA-Z$ (){}^\d])*?"
    r"(?:是|为|等于|一?共有|总共有|一?共需要|选|(?<![0-9A-Za-z+\-*/^)}])[a-zA-Z]\s*=)"
    r"\s*(?P<value>\$[^$]*\$|[^。是为=]+)"
)
