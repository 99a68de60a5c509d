r"""Commitments in prose: what a response calls its answer outside of any box.

A tag, GSM8K's marker, a phrase ("the answer is …"), a heading above a formula, a sentence that
concludes. A phrase is only a commitment if what follows it reads as a value, or as a few words
that are no judgement of the solution: "I hope this final answer is clear" commits to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from rlbhpc.verify.answer.read import read
from rlbhpc.verify.answer.value import Choice, Opaque, Value, Words


class Extracted(NamedTuple):
    """An answer as the response wrote it, and the rule that found it."""

    text: str
    rule: str

    @property
    def stated(self) -> bool:
        """Whether the response called it its answer, so that the strict reading has it too."""
        return self.rule not in LENIENT_RULES


#: Rules that take an answer which the response doesn't call one.
LENIENT_RULES: Final = ("bare", "last value")


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
_MAX_TRIES: Final = 8
# Within the clause of a value.
_HEDGE: Final = re.compile(
    r"\b(?:maybe|perhaps|possibly|probably|presumably|unsure|(?:don['’]t|do\s+not)\s+know|guess\w*|might|could|"
    r"not|unknown|either|i think|depends|cannot|can't|approximately one of)\b|\?",
    re.IGNORECASE,
)
_LEADS: Final = (
    r"(?:therefore|thus|hence|so(?!\s+far)|consequently|finally|in\s+conclusion|altogether|overall|"
    r"итого|следовательно|итак|таким\s+образом|donc|somit|daher|also|por\s+lo\s+tanto|portanto|quindi|"
    r"따라서|그러므로|よって|したがって|ゆえに|因此|所以|综上(?:所述)?|故)"
)
# What may stand before "answer is" in its sentence.
_OWN: Final = re.compile(
    rf"(?:^|[^\w'’\"“ \t]|所以|因此|\b(?:{_LEADS}|then|yes|actually|now|and|indeed|that|but|is|"
    r"only\s+one|we\s+conclude)\b,?)"
    r"[\s*#_]*(?:the|my|our|this)?\s*(?:correct|right|actual|true|new|corrected|revised|required|requested|"
    r"exact|desired|numerical|best|正确的?|最[后終终]|最終的な|최종|правильный|окончательный)?\s*$",
    re.IGNORECASE,
)
# "It is" at the end of a Japanese or a Korean sentence.
_COPULA: Final = re.compile(r"\s*(?:です|である|だ|입니다|이다|이에요)$")
_MAX_WORDS: Final = 4
# Characters at the end among which the last value is sought.
_TAIL: Final = 2000
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


# "A: 12" above "B: 15" is an option that is weighed, or one of two amounts.
_MARKER: Final = re.compile(r"(?:####|^A:(?=[^\n]*+(?!\s*^B:)))[ \t]*([^\n]+)", re.MULTILINE)


def marker(body: str) -> Extracted | None:
    """``#### 18`` as GSM8K ends its solutions; a Markdown heading looks alike and is none."""
    for match in reversed(list(_MARKER.finditer(body))[-_MAX_TRIES:]):
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
    for cue in reversed(list(cues(body))[-_MAX_TRIES:]):
        text = clause(body[cue.end() : cue.end() + 300])
        if cue.groupdict().get("comma") and cue[0][-1] not in ":：":
            text = _COMMA.sub(r"\1.\2", text or "") or None
        if text is None or _in_code(body, cue) or (cue.re is CUE and not _is_own(body, cue)):
            continue
        value = read(text)
        if is_value(value) or (isinstance(value, Words) and not judges(value)):
            return Extracted(text, "phrase")
        if isinstance(value, Opaque):
            unread = unread or text
    return Extracted(unread, "phrase") if unread else None


# "3,5" where a comma divides whole from parts; with three of them, it may divide thousands.
_COMMA: Final = re.compile(r"^(-?\d+),(\d{1,2}|\d{4,})(?=\s|$)")


def _is_own(body: str, cue: re.Match[str]) -> bool:
    """Whether "answer is" begins its sentence, so that it speaks of the whole task."""
    return _OWN.search(body[max(0, cue.start() - 60) : cue.start()]) is not None


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
_LETTERS: Final = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")


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
        return None if _HEDGE.search(after) or after[:3].lower() == "or " else undelimited(block[1])
    if text[:1] == "`" and (end := text.find("`", 1)) > 0:
        return text[1:end].strip() or None
    lone = _ONE_BOLD.match(_sentence(text))
    if lone is not None and not _HEDGE.search(text) and is_value(read(lone[1])):
        return undelimited(lone[1])
    if bold and (end := text.find("**")) > 0 and not _HEDGE.search(_sentence(text[end:])):
        text = text[:end]
    math = _MATH.match(text)
    if math is not None:
        rest = _EXPLAINS.sub("", _sentence(text[math.end() :]))
        if _HEDGE.search(rest):
            return None
        unit = rest.strip(" *,")
        if not unit:
            return _inner(math)
        if re.fullmatch(r"[A-Za-z%]{1,12}", unit):
            return f"{_inner(math)} \\text{{ {unit}}}"
    line = _EXPLAINS.sub("", _sentence(text)).strip(" \t*_")
    if not line or _HEDGE.search(line):
        return None
    line = _COPULA.sub("", _LEAD.sub("", line))
    formula = _MATH.match(line)
    if formula is not None and not line[formula.end() :].strip(" *.,!"):
        return _inner(formula)
    short = len(_LETTERS.findall(line)) <= _MAX_WORDS and len(line) <= 120
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
# --- the last value ------------------------------------------------------------------------------

# "16 - 3 = <<16-3=13>>13": what GSM8K's solutions note for a calculator.
_CALCULATOR: Final = re.compile(r"<<[^<>\n]*>>")
_FORMULA_LINES: Final = re.compile(r"(?<=\\\[)\s+|\s+(?=\\\])")
_SENTENCES: Final = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_VALUES: Final = re.compile(
    r"\$\$(.+?)\$\$|\$([^$\n]*[^$\s\\])\$(?!\d)|\\\((.+?)\\\)|\\\[(.+?)\\\]"
    r"|([-−]?\\[dt]?frac\{[^{}]+\}\{[^{}]+\})"
    r"|((?<![\w.{^])[-−]?[$€£]?\d[\d,]*(?:\.\d+)?(?:\s?/\s?\d+)?\s?(?:\\?%)?)"
)
_BARE: Final = re.compile(r"[^\n]{1,120}")
# "Therefore x = 5"
_LED: Final = re.compile(r"[A-Za-z]{2,},?\s.*\d")


def last_value(body: str) -> Extracted | None:
    """Find the last value of the last sentence that holds one, in a response that was finished.

    Of a calculation it is the result: "80 / 10 = 8 weeks to collect 200". A sentence that calls
    something the answer is left to :func:`phrase`, which has refused it.
    """
    tail = _FORMULA_LINES.sub(" ", _CALCULATOR.sub("", body)[-_TAIL:])
    for sentence in reversed(_SENTENCES.split(tail)):
        values: list[str] = []
        results: list[str] = []
        for match in _VALUES.finditer(sentence):
            text = _inner(match).rpartition("=")[2].strip().rstrip(".,;")
            if is_value(read(text)):
                values.append(text)
                if sentence[: match.start()].rstrip().endswith("="):
                    results.append(text)
        if values:
            called = CUE.search(sentence) is not None
            return None if called else Extracted((results or values)[-1], "last value")
    return None


def bare(body: str) -> Extracted | None:
    """Take a response that is nothing but an answer, as the no-think prompt asks for."""
    text = fenced(body.strip())
    if not _BARE.fullmatch(text) or text[0] in "#<" or _HEDGE.search(text) or _LED.match(text):
        return None
    text = undelimited(text.rstrip("."))
    plain = any(c.isalnum() for c in text) and len(_LETTERS.findall(text)) <= 2
    return Extracted(text, "bare") if plain else None


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
