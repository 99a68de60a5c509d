r"""Commitments in prose: what a response calls its answer outside of any box.

A tag, GSM8K's marker, a phrase ("the answer is …"), a heading above a formula, a sentence that
concludes. A phrase is only a commitment if what follows it reads as a value, or as a few words
that are no judgement of the solution: "I hope this final answer is clear" commits to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from rlbhpc.verify.answer.doubt import COPULA, DOUBT, HEDGE, OWN, PERSON, is_known
from rlbhpc.verify.answer.read import read
from rlbhpc.verify.answer.value import Choice, Opaque, Value, Words


class Extracted(NamedTuple):
    """An answer as the response wrote it, and the rule that found it."""

    text: str
    rule: str


_LINK: Final = (
    r"(?:\s+(?:is|are|was|equals|becomes|(?:should|must|would|will)\s+(?:be|equal)|"
    r"(?:comes|works|turns)\s+out\s+to(?:\s+be)?)\b(?:\s+(?:indeed|therefore|thus|then|simply|"
    r"equal\s+to|given\s+by))?|\s*[:：=])"
)
_ABOUT: Final = (
    r"(?:\s+(?:i|we)\s+(?:get|got|obtain|find|found|want|need|seek))?"
    r"(?P<about>\s+(?:to|for|of|in)\s+(?:the|this|our)\s+[a-z ]{3,40}?|,\s[a-z ]{3,50},)?"
)
CUE: Final = re.compile(
    rf"(?P<strong>\bfinal\s+)?\b(?:answer(?P<many>s)?|result|ans|solution(?:\s+set|(?P<roots>s))?|"
    rf"(?:correct|right)\s+(?:option|choice))\b{_ABOUT}\**{_LINK}"
    r"|【答案】|(?<!错误)(?<!错误的)(?<!不正确)(?<!不正确的)(?P<chinese>最终)?(?:答案?|选项|(?P<check>结果))\s*(?:应?该?[是为]|等于|选|[:：])|故选\s*[:：]?"
    r"|\b(?:(?:la|le|el|a|o|il|lo|die|das)\s+)?(?:(?:bonne|richtige|korrekte|endgültige)\s+)?"
    r"(?P<comma>r[eé]ponse|solution|respuesta|resposta|risposta|antwort|soluci[oó]n|solução|soluzione|lösung|"
    r"(?P<computed>r[eé]sultat|resultado|risultato|ergebnis))"
    r"(?:\s+(?:finale?|correct[ae]|corret[ao]|corretta))?\s*(?:\b(?:est|es|é|è|ist|lautet)\b|[:：])"
    r"(?:\s+(?:also|somit|daher|donc|portanto)\b)?"
    r"|\bAns\.\s*(?=[$\\\d-])|(?:ответ|đáp\s+(?:án|số)|答え|正解|정답|답|جواب|الجواب)\s*(?:[:：=—–-]|は|은|는|هو|là)"
    r"|(?:odpowiedź|antwoord|yanıt|cevap|jawaban|svar|उत्तर|উত্তর|คำตอบ)\s*[:：=]",
    re.IGNORECASE,
)
# A heading that stands alone on its line; the answer is what follows it.
_HEADING: Final = re.compile(
    r"^[#* \t]*+(?:the\s+)?(?:final\s+)?(?:answers?|results?|solution set)[ \t]*+[:：]?[* \t]*+"
    r"$(?=\n)",
    re.IGNORECASE | re.MULTILINE,
)
MAX_TRIES: Final = 8
_MAX_WORDS: Final = 4
# What a writer says of a solution, or where it is to be found: no answer to the question.
_JUDGEMENTS: Final = frozenset(
    "correct incorrect right wrong clear valid verified confirmed consistent reasonable below "
    "above follows complete accurate exact final here boxed obvious unique integer simplified "
    "satisfied done given shown found obtained reached unchanged helpful simplest form correcta "
    "correcto correcte correta corretta richtig korrekt".split()
)


_JSON: Final = re.compile(
    r"[{,]\s*\"(?:final[_ ])?answer\"\s*:\s*(?:\"([^\"]*)\"|([^\",{}\s]+))\s*[,}]"
)


def tag(body: str) -> Extracted | None:
    """``<answer>…</answer>`` or JSON's ``"answer": …``; what is not closed may have been cut."""
    if 'answer"' in body and (named := list(_JSON.finditer(body))):
        return Extracted(named[-1][1] or named[-1][2] or "", "tag")
    end = body.rfind("</answer>")
    start = body.rfind("<answer>", 0, end) if end >= 0 else -1
    if start < 0:
        return None
    inner = body[start + len("<answer>") : end].strip()
    phrased = marker(inner) or phrase(inner)
    if phrased is not None:
        return Extracted(phrased.text, "tag")
    return Extracted(undelimited(inner), "tag") if inner else None


_MARKER: Final = re.compile(r"####[ \t]*([^\n]+)")


def marker(body: str) -> Extracted | None:
    """``#### 18`` as GSM8K ends its solutions; a Markdown heading looks alike and is none."""
    for match in reversed(list(_MARKER.finditer(body))[-MAX_TRIES:]):
        line = undelimited(match[1].strip().rstrip("."))
        last = body.endswith(match[1]) and not re.search("[A-Za-z]{3}", line)  # an expression
        begins = last or re.match(r"[-+$£€\\(\[.]*\s*[\d\\]", line)
        yes_or_no = body.endswith(match[1]) and line.lower() in ("yes", "no", "true", "false")
        if yes_or_no or (begins and is_value(read(line))):
            return Extracted(line, "marker")
    return None


def phrase(body: str) -> Extracted | None:
    """Find the last "answer is …" or heading whose clause holds a plain answer."""
    unread: str | None = None
    for cue in reversed(list(cues(body))[-MAX_TRIES:]):
        text = clause(body[cue.end() : cue.end() + 300])
        if cue.groupdict().get("comma") and cue[0][-1] not in ":：":
            text = _COMMA.sub(r"\1.\2", text or "") or None
        if text is None or _in_code(body, cue) or (cue.re is CUE and not is_own(body, cue)):
            continue
        value = read(text)
        if is_value(value) or (isinstance(value, Words) and not judges(value)):
            return Extracted(text, "phrase")
        if isinstance(value, Opaque):
            named = cue[0][-1] in ":：" and re.search("answer|答", cue[0], re.IGNORECASE)
            counted = _only_number(text) if named else None
            if counted is not None:
                return Extracted(counted, "phrase")
            unread = unread or text
    return Extracted(unread, "phrase") if unread else None


# "3,5" where a comma divides whole from parts; with three of them, it may divide thousands.
_COMMA: Final = re.compile(r"^(-?\d+),(\d{1,2}|\d{4,})(?=\s|$)")


def is_own(body: str, cue: re.Match[str], late: bool = False) -> bool:
    """Whether "answer is" speaks of the writer's answer; ``late``: in a sentence of its own."""
    before = body[max(0, cue.start() - 60) : cue.start()]
    clause = _CLAUSES.split(before)[-1]
    case = _FOR_A_CASE.search(clause)
    if case is not None and not is_known(case[1]):
        return False  # "For the smaller board, the answer is 5"
    own = OWN.search(re.sub(r"[^\w\s]", "", clause) if late else before)
    about = cue["about"] is None or is_known(cue["about"])
    if body.startswith(">", body.rfind("\n", 0, cue.start()) + 1) and _OUTSIDE.search(
        body, cue.end()
    ):
        return False  # a quotation that is talked about
    return own is not None and about and DOUBT.search(clause) is None


_FOR_A_CASE: Final = re.compile(r"^\s*for\s+(?:the|an?)\s+([^,]+),[^,]*$", re.IGNORECASE)
_OUTSIDE: Final = re.compile(r"\n[ \t]*[^>\s]")
_CLAUSES: Final = re.compile(r"[.!?:;。\n>]")
_CODE: Final = re.compile(r"```(?!text|txt|latex|markdown|output)[a-z]", re.IGNORECASE)


def _in_code(body: str, cue: re.Match[str]) -> bool:
    """Whether a cue stands within a block of code: ``ans = 5`` is no commitment there."""
    if body.count("```", 0, cue.start()) % 2 == 0:
        return False
    return _CODE.match(body, body.rfind("```", 0, cue.start())) is not None


def cues(body: str) -> Iterator[re.Match[str]]:
    """Yield cues and headings in the order of the text."""
    matches = [*CUE.finditer(body), *_HEADING.finditer(body)]
    yield from sorted(matches, key=lambda match: match.end())


def is_value(value: Value) -> bool:
    """Whether a value is mathematics or a choice, rather than words or something unread."""
    if isinstance(value, Choice) and value.rest is not None:
        return is_value(value.rest) or isinstance(value.rest, Words)
    return not isinstance(value, Words | Opaque)


def judges(words: Words) -> bool:
    """Whether words judge a solution instead of stating an answer."""
    return not _JUDGEMENTS.isdisjoint(words.text.split())


# --- clauses -------------------------------------------------------------------------------------

# A run of text that ends at a full stop which is no decimal point, or at the line's end.
_SENTENCE: Final = re.compile(
    r"(?:[^.。\n]|\.(?=\d)|(?<=\b[ap])\.\s?m\b\.?|(?<=\bsq)\.|(?<=\bapprox)\.|(?<=\bi)\.(?=e)|(?<=\bi\.e)\.)*"
)
_MATH: Final = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
# What explains or contrasts an answer without changing it.
_EXPLAINS: Final = re.compile(
    r"(?:,|\s+\()\s*(?:and\s+)?(?:not|as|since|because|which|where|rather|when|so|i\.e|namely)\b.*"
    r"|\s+(?:because|since|as\s+(?:required|desired|expected|claimed|needed))\b.*"
    r"|,\s*none\s+of\s+(?:the\s+above|these)$"
    # "6 (six more stickers than Ben)", but not "6 (mod 7)" nor "6 (in base 7)"
    r"|\s+\((?![^)]*\b(?:mod\w*|base|times|or|hundred|thousand|million|billion|dozen|percent|squared|cubed)\b)"
    r"(?:[a-z]+\s+){3,}[A-Za-z]+\)$",
    re.IGNORECASE | re.DOTALL,
)
# "The largest $n$ is": a subject without any number in it.
_LEAD: Final = re.compile(
    r"^(?!(?:yes|no|true|false)\b)(?:[^\d$\\=]|\$[^$\d=]*\$|\\\([^\d=]*?\\\))*\b(?:is|are|equals|be)\b[\s:]*",
    re.IGNORECASE,
)
LETTERS: Final = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")


def clause(text: str) -> str | None:
    """Read the answer that follows a phrase; None if what follows is prose or a hedge."""
    if _LIST_ITEM.match(text):
        return None
    text = _FACTORIAL.sub(r"$\1$", text)
    bold = _BOLD_OPTION.sub("**", text).lstrip(" \t\n:：=_").startswith("**")
    if text.lstrip(" \t\n*:：=").startswith("___"):
        return None  # a blank to be filled in
    text = _REPEATING.sub(r"\1\\ldots ", text)
    text = _SMALL_OPTION.sub(lambda option: option[0].upper(), text)
    text = _BOLD_LIST.sub(r"\1", _BOLD_OPTION.sub("**", text))
    bullets = _BULLETS.match(text)
    if bullets is not None:
        text = ", ".join(re.findall(_BULLET, bullets[0])) + text[bullets.end() :]
    text = text.lstrip(" \t\n*:：=_")
    block = _FENCED.match(text)
    if block is not None:
        after = _sentence(text[block.end() :].lstrip())
        return None if HEDGE.search(after) or after[:3].lower() == "or " else undelimited(block[1])
    if text[:1] == "`" and (end := text.find("`", 1)) > 0:
        return text[1:end].strip() or None
    lone = _ONE_BOLD.match(_sentence(text))
    if lone is not None and not HEDGE.search(text) and is_value(read(lone[1])):
        return undelimited(lone[1])
    if bold and (end := text.find("**")) > 0 and not HEDGE.search(_sentence(text[end:])):
        text = text[:end]
    math = _MATH.match(text)
    if math is not None:
        rest = _EXPLAINS.sub("", _sentence(text[math.end() :]))
        if HEDGE.search(rest):
            return None
        unit = rest.strip(" *,")
        if not unit:
            return _inner(math)
        if re.fullmatch(r"[A-Za-z%]{1,12}", unit):
            return f"{_inner(math)} \\text{{ {unit}}}"
    line = _EXPLAINS.sub("", _sentence(text)).strip(" \t*_")
    if not line or HEDGE.search(line):
        return None
    line = COPULA.sub("", _LEAD.sub("", line))
    formula = _MATH.match(line)
    if formula is not None and not line[formula.end() :].strip(" *.,!"):
        return _inner(formula)
    short = len(LETTERS.findall(line)) <= _MAX_WORDS and len(line) <= 120
    return undelimited(line) if line and short else None


# "Solution:\n\n1. First, …": the steps of a solution, whose first number is no answer.
_LIST_ITEM: Final = re.compile(
    r"[\s*_:：]*\n[ \t*_(]*\d{1,2}[.)][*_]*[ \t]+\S"
    r"|[ \t*_:：]*1[.)] [^\n]*(?:\n(?!2[.)] )[^\n]*)*\n2[.)] "
)
# A sign that another follows ends no sentence: "5!." is 120, "5!" may be 5.
_FACTORIAL: Final = re.compile(r"(?<![\w.^}/*)!$-])(\d+!)(?=[.,;])(?!,\d)")
_BULLET: Final = r"\n[ \t]*[-*•][ \t]+([^\n]*[^\n.,; ])[.,; ]*"
_BULLETS: Final = re.compile(rf"[:：*\s]*(?={_BULLET})(?:{_BULLET})+")
# "Tina has **20** stickers left"
_ONE_BOLD: Final = re.compile(r"[A-Za-z][A-Za-z' ]*\*\*([^*]+)\*\*[A-Za-z ]*$")
# "0.3333...": its dots end no sentence.
_REPEATING: Final = re.compile(r"(\d\.\d*?(\d{1,6})\2{2,})\.\.\.")
# "Answer: c) 18"
_SMALL_OPTION: Final = re.compile(
    r"^\s*(?:\(?[a-e]\)(?=\s+[^\n)]+(?:\n|$))|\([a-e]\)(?=\.?\s*(?:\n|$)))"
)
_BOLD_OPTION: Final = re.compile(r"^[ \t]*(?:option|choice)\s+\*\*(?=\(?[A-J]\b)", re.IGNORECASE)
# "**2** and **3**" is one list.
_BOLD_LIST: Final = re.compile(r"\*\*(\s*(?:,|,?\s*and|,?\s*or)\s*)\*\*")
# Whole sentences that say how many of a thing somebody has, and nothing else.
_COUNTED: Final = re.compile(
    rf"(?:{PERSON}\s+(?:has|have|needs?|bought|sold|earned|paid|spent|ate)"
    r"|The\s+(?:temperature|total|cost|price)\s+(?:is|was))\s+"
    r"(?P<number>[-−]?[$€£]?\d[\d,]*(?:\.\d+)?(?:\s*[a-z]+)?)"
)
_COUNTED_IN_RUSSIAN: Final = re.compile(
    r"(?P<number>-?\d+(?:[.,]\d+)?)\s+(?!тысяч|миллион|миллиард|процент|сот|десят|дюжин|с\b|и\b|или\b)[а-яё]+"
)
_COUNTED_IN_CHINESE: Final = re.compile(
    # Signs and words with which a subject denies, bounds and supposes nothing.
    r"(?:长方形|正方形|三角形|半径|直径|周长|面积|体积|速度|时间|平均|现在|今年|全程|原来|[现原售定]价|"
    r"[小明红华刚丽强李王张他她它们我这里个一共总甲乙丙两地人班校店本书车船桥楼树圆同学老师的还剩下相])*"
    r"(?:是|为|有|相?距|(?:便宜|节省|增长|减少|降低|提高)了|"
    r"需?要|(?:需?要)?[买卖走行跑花用付吃剩得赚要长宽高重]了?|剩下)\s*"
    r"(?P<number>[-−]?\d+(?:\.\d+)?\s*(?:[个只人名页天岁张本件条辆棵支颗朵元米克吨升秒]|"
    r"(?:千|[平立]方|厘|分|毫|平方厘|平方千|平方分)?米(?:/(?:秒|分|时|小时))?|千克|公里|"
    r"毫升|小时|分钟|\\?%))(?:[书苹果花树]{0,2})"
)


def _only_number(line: str) -> str | None:
    """Return the number of ``John has 15 apples`` with its sign and noun."""
    sentence = line.strip(" *.")
    match = _COUNTED.fullmatch(sentence) or _COUNTED_IN_RUSSIAN.fullmatch(sentence)
    match = match or _COUNTED_IN_CHINESE.fullmatch(sentence)
    return None if match is None else match["number"]


_FENCED: Final = re.compile(r"```\w*\n([^\n`]{1,120})\n\s*```")


def fenced(text: str) -> str:
    """Return the one line of a code block that a text begins with, else the text."""
    match = _FENCED.match(text)
    return text if match is None else match[1]


def _sentence(text: str) -> str:
    match = _SENTENCE.match(text)
    return match[0] if match is not None else ""


def _inner(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group is not None).strip()


# "4:6, or 2:3 in lowest terms"
_REDUCED: Final = re.compile(
    r"^(\d{1,9})[:/](\d{1,9}),? or (?=(\d{1,9})[:/](\d{1,9}) in (?:lowest terms|simplest form))"
    r"| in (?:lowest terms|simplest form)$"
)


def _unless_unequal(terms: re.Match[str]) -> str:
    equal = terms[1] is None or int(terms[1]) * int(terms[4]) == int(terms[2]) * int(terms[3])
    return "" if equal else terms[0]


def undelimited(text: str) -> str:
    """Strip the emphasis and the math delimiters around a whole answer."""
    if len(text) > 2000:
        return text
    text = _REDUCED.sub(_unless_unequal, text.strip().strip("*").strip().rstrip("!"))
    match = _MATH.fullmatch(text.rstrip(" ."))
    return _inner(match) if match is not None else text
