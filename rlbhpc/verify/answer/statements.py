r"""Statements of an answer outside of a box, and the last value of a text.

A tag, GSM8K's marker, and a phrase ("the answer is …") state an answer, the phrase only if the
whole clause behind it is a value, or a few words that are no judgement of the solution.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from rlbhpc.verify.answer.patterns import STATEMENTS, compiled
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

# Characters at the end of a text in which the last value is sought, and tries of one rule.
_TAIL: Final = 2000
_MOST_TRIES: Final = 8
_MOST_WORDS: Final = 4
_MOST_CLAUSE: Final = 300


def is_value(value: Value) -> bool:
    """Whether a value is mathematics or a choice, rather than words or something unread."""
    if isinstance(value, Choice) and value.rest is not None:
        return is_value(value.rest) or isinstance(value.rest, Words)
    return not isinstance(value, Words | Opaque)


# --- tag and marker ------------------------------------------------------------------------------

_JSON: Final = re.compile(
    r"[{,]\s*\"(?:final[_ ])?answer\"\s*:\s*(?:\"([^\"]*)\"|([^\",{}\s]+))\s*[,}]"
)


def tag(text: str) -> Extracted | None:
    """``<answer>…</answer>`` or JSON's ``"answer": …``; what is not closed may have been cut."""
    if 'answer"' in text and (fields := list(_JSON.finditer(text))):
        return Extracted(fields[-1][1] or fields[-1][2] or "", "tag")
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, end) if end >= 0 else -1
    if start < 0:
        return None
    inner = text[start + len("<answer>") : end].strip()
    phrased = marker(inner) or phrase(inner)
    if phrased is not None:
        return Extracted(phrased.text, "tag")
    return Extracted(undelimited(inner), "tag") if inner else None


# "A: 12" above "B: 15" is an option that is weighed, or one of two amounts.
_MARKER: Final = re.compile(r"(?:####|^A:(?=[^\n]*+(?!\s*^B:)))[ \t]*([^\n]+)", re.MULTILINE)
_BEGINS_AS_VALUE: Final = re.compile(r"[-+$£€\\(\[.]*\s*[\d\\]")


def marker(text: str) -> Extracted | None:
    """``#### 18`` as GSM8K ends its solutions; a Markdown heading looks alike and is none."""
    if "####" not in text and "A:" not in text:
        return None
    for match in reversed(list(_MARKER.finditer(text))[-_MOST_TRIES:]):
        answer = undelimited(match[1].strip().rstrip("."))
        is_last = text.endswith(match[1])
        if is_last and answer.lower() in ("yes", "no", "true", "false"):
            return Extracted(answer, "marker")
        is_expression = is_last and not re.search("[A-Za-z]{3}", answer)
        begins_as_value = is_expression or _BEGINS_AS_VALUE.match(answer)
        if begins_as_value and is_value(read(answer)):
            return Extracted(answer, "marker")
    return None


# --- phrases -------------------------------------------------------------------------------------

_PHRASES: Final = tuple(row for row in STATEMENTS if row.name.startswith("phrase"))
_PHRASE: Final = compiled(_PHRASES)
# Parts of the words that begin a phrase; a search for one is many times faster than the pattern.
_STEMS: Final = ("nswer", "NSWER", "ns:", "ption is", "hoice is", "答", "故选", "选项")
_BEFORE_STEM: Final = 16
# A heading that stands alone on its line; the answer is what follows it.
_HEADING: Final = re.compile(
    r"^[#* \t]*+(?:the\s+)?(?:final\s+)?(?:answers?)[ \t]*+[:：]?[* \t]*+"
    r"$(?=\n)",
    re.IGNORECASE | re.MULTILINE,
)
# What may stand before "answer is" in its sentence, so that it speaks of the whole task.
_OWN: Final = re.compile(
    r"(?:^|[^\w'’\"“ \t]|所以|因此|故|最[后终]|\b(?:therefore|thus|hence|so|consequently|finally|"
    r"then|yes|and|indeed|that|but|is|we\s+conclude|in\s+conclusion)\b,?)"
    r"[\s*#_]*(?:the|my|our|this)?\s*(?:correct|right|final|desired|required|正确的?|最[后终])?\s*"
    r"(?:final\s+)?$",
    re.IGNORECASE,
)
# What a writer says of a solution, or where it is to be found: no answer to the question.
_JUDGEMENTS: Final = frozenset(
    "correct incorrect right wrong clear valid verified confirmed consistent reasonable below "
    "above follows complete accurate exact final here boxed obvious unique integer simplified "
    "satisfied done given shown found obtained reached unchanged helpful simplest form".split()
)


def phrase(text: str) -> Extracted | None:
    """Find the last "answer is …" or heading whose whole clause holds a plain answer."""
    for cue in _last_cues(text):
        answer = clause(text[cue.end() : cue.end() + _MOST_CLAUSE])
        if answer is None or (cue.re is _PHRASE and not _speaks_of_the_task(text, cue.start())):
            continue
        value = read(answer)
        if is_value(value):
            return Extracted(answer, "phrase")
        if isinstance(value, Words) and _JUDGEMENTS.isdisjoint(value.text.split()):
            return Extracted(answer, "phrase")
    return None


def _last_cues(text: str) -> list[re.Match[str]]:
    """Return phrases and headings from the last one backwards, up to a few."""
    positions = set()
    for stem in _STEMS:
        end = len(text)
        for _ in range(_MOST_TRIES):
            end = text.rfind(stem, 0, end)
            if end < 0:
                break
            positions.add(end)
    cues: dict[int, re.Match[str]] = {}
    for position in sorted(positions, reverse=True)[:_MOST_TRIES]:
        line = text.rfind("\n", 0, position) + 1
        heading = _HEADING.match(text, line)
        cue = heading or _PHRASE.search(text, max(line, position - _BEFORE_STEM), position + 80)
        if cue is not None:
            cues[cue.end()] = cue
    return [cues[end] for end in sorted(cues, reverse=True)]


def _speaks_of_the_task(text: str, start: int) -> bool:
    return _OWN.search(text[max(0, start - 60) : start]) is not None


# A run of text that ends at a full stop which is no decimal point, or at the line's end.
_SENTENCE: Final = re.compile(
    r"(?:[^.。\n]|\.(?=\d)|(?<=\b[ap])\.\s?m\b\.?|(?<=\bsq)\.|(?<=\bapprox)\.|(?<=\bi)\.(?=e))*"
)
_MATH: Final = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
# What explains an answer without changing it.
_EXPLANATION: Final = re.compile(
    r"(?:,\s*(?:and\s+)?(?:as|which|where|when|so|i\.e|namely|not)|,?\s+(?:because|since))\b.*"
    r"|\s+as\s+(?:required|desired|expected|claimed)\b.*",
    re.IGNORECASE | re.DOTALL,
)
_WORD: Final = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
# "Solution:\n\n1. First, …": the steps of a solution, whose first number is no answer.
_STEPS: Final = re.compile(
    r"[\s*_:：]*\n[ \t*_(]*\d{1,2}[.)][*_]*[ \t]+\S"
    r"|[ \t*_:：]*1[.)] [^\n]*(?:\n(?!2[.)] )[^\n]*)*\n2[.)] "
)
_FENCED: Final = re.compile(r"```\w*\n([^\n`]{1,120})\n\s*```")
_HEDGE: Final = re.compile(r"\b(?:maybe|perhaps|probably|might|could|not|unknown|either)\b|\?")


def clause(text: str) -> str | None:
    """Read the answer that follows a phrase; None if what follows is prose or a list of steps."""
    if _STEPS.match(text) or text.lstrip(" \t\n*:：=").startswith("___"):
        return None
    text = text.lstrip(" \t\n*:：=_")
    fenced = _FENCED.match(text)
    if fenced is not None:
        return undelimited(fenced[1])
    formula = _MATH.match(text)
    start = 0 if formula is None else formula.end()  # a formula may hold full stops and line breaks
    end = start + len(_sentence(text[start:]))
    behind = _EXPLANATION.sub("", text[start:end]).strip(" *,")
    if _HEDGE.search(behind.lower()):
        return None
    if formula is not None:
        if not behind:
            return _content(formula)
        if re.fullmatch(r"[A-Za-z%]{1,12}", behind):
            return f"{_content(formula)} \\text{{ {behind}}}"
    answer = (text[:start] + behind if formula is None else text[:end]).strip(" \t*_")
    is_short = len(_WORD.findall(answer)) <= _MOST_WORDS and len(answer) <= 120
    return undelimited(answer) if answer and is_short else None


def _sentence(text: str) -> str:
    match = _SENTENCE.match(text)
    return "" if match is None else match[0]


def _content(match: re.Match[str]) -> str:
    """Return the group of a match that took part in it."""
    return next(group for group in match.groups() if group is not None).strip()


def undelimited(text: str) -> str:
    """Strip the emphasis and the math delimiters around a whole answer."""
    if len(text) > _TAIL:
        return text
    text = text.strip().strip("*").strip().rstrip("!")
    match = _MATH.fullmatch(text.rstrip(" ."))
    return text if match is None else _content(match)


# --- the last value ------------------------------------------------------------------------------

# "16 - 3 = <<16-3=13>>13": what GSM8K's solutions note for a calculator.
_CALCULATOR: Final = re.compile(r"<<[^<>\n]*>>")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_NUMBER: Final = r"\d[\d,]*(?:\.\d+)?(?:\s\d+/\d+)?"
_MACRO: Final = r"\\(?:[dtc]?frac|sqrt|pi|binom)(?:\[\d\])?(?:\{[^{}]*\})*(?![A-Za-z])"
_FACTOR: Final = rf"(?:{_NUMBER}|{_MACRO}|[π√])"
# "36\pi", "2^{10}", "3:4", "$1,234.50", "1/3", "25%"
_PLAIN_VALUE: Final = (
    rf"(?<![A-Za-z0-9_.{{^])[-−]?[$€£]?{_FACTOR}"
    rf"(?:\^\{{[^{{}}]*\}}|(?:\s?/\s?|\^|:(?=\d)|)[-−]?{_FACTOR})*(?:\s?\\?%)?"
)
_VALUES: Final = re.compile(
    r"\$\$(.+?)\$\$|\$([^$\n]*[^$\s\\])\$(?!\d)|\\\((.+?)\\\)|\\\[(.+?)\\\]" rf"|({_PLAIN_VALUE})"
)


def last_value(text: str) -> Extracted | None:
    """Find the last value of the last sentence that holds one, in a response that was finished.

    Of a calculation it is the result: "80 / 10 = 8 weeks to collect 200".
    """
    tail = text[-_TAIL:].replace("\\[\n", "\\[ ").replace("\n\\]", " \\]")
    for sentence in _sentences_from_the_end(_CALCULATOR.sub("", tail)):
        values: list[str] = []
        results: list[str] = []
        for match in _VALUES.finditer(sentence):
            answer = _content(match).rpartition("=")[2].strip().rstrip(".,;")
            if is_value(read(answer)):
                values.append(answer)
                if sentence[: match.start()].rstrip().endswith("="):
                    results.append(answer)
        if values:
            return Extracted((results or values)[-1], "last value")
    return None


def _sentences_from_the_end(text: str) -> Iterator[str]:
    for line in reversed(text.split("\n")):
        yield from reversed(_SENTENCE_END.split(line))


_LINE: Final = re.compile(r"[^\n]{1,120}")
_PROSE: Final = re.compile(r"[A-Za-z]{2,},?\s.*\d")  # "Therefore x = 5"


def bare(text: str) -> Extracted | None:
    """Take a response that is nothing but a value."""
    answer = text.strip()
    if not _LINE.fullmatch(answer) or answer[0] in "#<" or _PROSE.match(answer):
        return None
    answer = undelimited(answer.rstrip("."))
    is_plain = any(char.isalnum() for char in answer) and len(_WORD.findall(answer)) <= 2
    return Extracted(answer, "bare") if is_plain and not isinstance(read(answer), Opaque) else None
