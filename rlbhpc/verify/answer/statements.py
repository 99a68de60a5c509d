r"""How an answer is found in a text: the table of patterns, statements of an answer, last values.

A tag, GSM8K's marker, and a phrase ("the answer is …") state an answer, the phrase only if the
whole clause behind it is a value, or a few words that are no judgement of the solution.

``fired`` counts the real responses in which a pattern occurred: 3,040 labelled ones (GSM8K
solutions of four GPT-3 models, Qwen2.5-Math on MATH), 3,638 of the base models Rho-1-1B and 7B
(GSM8K, MATH) and 64 of SmolLM2-135M at temperature 1. ``tools/measure_grader.py --patterns`` counts
anew, in these or in a user's own responses. The first two sets were drawn with stop strings, so
what ends a turn or opens another task has its source in the format that a base model repeats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from rlbhpc.verify.answer.read import read
from rlbhpc.verify.answer.value import Choice, Unread, Value, Words


class Pattern(NamedTuple):
    """One rule: what it finds, what that means, and where it was met."""

    name: str
    regex: str
    meaning: str
    example: str
    source: str
    fired: int = 0


# Marks that end a turn wherever they stand.
TURN_ENDS: Final = (
    Pattern("ChatML", r"<\|(?:im_end|im_start|endoftext)\|>", "end of the turn",
            "<|im_end|>", "Qwen, SmolLM"),
    Pattern("Llama 3", r"<\|(?:eot_id|end_of_text|start_header_id|begin_of_text)\|>",
            "end of the turn", "<|eot_id|>", "Llama 3"),
    Pattern("Llama 2", r"</s>|\[/?INST\]|<<SYS>>", "end of the turn", "[INST]",
            "Llama 2, Mistral"),
    Pattern("Gemma", r"<(?:start|end)_of_turn>|<eos>", "end of the turn", "<end_of_turn>", "Gemma"),
    Pattern("DeepSeek", r"<｜(?:(?:begin|end)▁of▁sentence|User|Assistant)｜>", "end of the turn",
            "<｜User｜>", "DeepSeek"),
    Pattern("role in bars", r"<\|(?:user|assistant|system|end|return|start)\|>", "end of the turn",
            "<|user|>", "Phi, Zephyr, GLM, gpt-oss"),
)  # fmt: skip

_TASK_NOUN: Final = (
    r"(?:question|problem|exercise|example|task|instruction|input|prompt|query|"
    r"(?:homework|practice|word) problem|q)"
)
_OTHER: Final = r"(?:another|next|new|similar|different|second|third|related|follow-?up|bonus)"
_EMPHASIS: Final = r"[#* \t\[(<【]*"
# Beginnings of another task: what stands behind them is no part of a response that has committed.
# They are sought in small letters.
OPENINGS: Final = (
    Pattern("role",
            r"\n[#* \t]*(?:user|human|assistant|system|student)[* \t]*(?:[:：]|(?=\n))",
            "another turn", "\nHuman: ", "Vicuna, Claude 2, ChatML as plain text"),
    Pattern("heading",
            rf"\n{_EMPHASIS}(?:{_OTHER} )?{_TASK_NOUN}(?: statement)? ?(?:#?\d+ ?)?"
            r"[*\])>】]*[ \t]*[:：]"
            rf"|\n{_EMPHASIS}{_TASK_NOUN} ?#?\d+(?:[.)\]*]|[ \t]*(?=\n))"
            rf"|\n(?:#+|\*\*|\[)[ \t]*{_TASK_NOUN}[* \t\]]*(?=\n)",
            "another question", "\nQuestion: ", "few-shot prompts of GSM8K, MATH, Alpaca", 3),
    Pattern("heading in another language",
            rf"\n{_EMPHASIS}(?:题目?|问题?|例题?|問題?|문제|вопрос|задача|pregunta|frage|problème|"
            r"swali|প্রশ্ন|ప్రశ్న|โจทย์)"
            r"[ \t]*(?:[一二三四五\d]+[ \t]*)?[*\])】]*[ \t]*(?:[:：】.]|(?=\n))",
            "another question", "\n题目：", "prompts of MGSM and CMATH"),
    Pattern("rule",
            r"\n[ \t]*(?:-{3,}|\*{3,}|_{3,}|={3,})[ \t]*\n(?!\W{0,20}(?:the\s+)?(?:final|answer|"
            r"result|conclusion|summary|step|part|case|solution|therefore|thus|so|hence|check|"
            r"verif|note|最终|答案|结论|总结))",
            "another text", "\n---\n## ", "Markdown"),
    Pattern("instruction",
            r"please reason step by step, and put your final answer within",
            "the prompt again",
            "\nPlease reason step by step, and put your final answer within \\boxed{}.",
            "chat template of Qwen2.5-Math"),
)  # fmt: skip

_LINK: Final = (
    r"(?:\s+(?:is|are|was|equals|becomes|(?:should|must|would|will)\s+be)\b(?:\s+(?:therefore|thus|"
    r"then|simply|equal\s+to|given\s+by)\b)?|\s*[:：=])"
)
_OBJECT: Final = r"(?:\s+(?:to|for|of)\s+(?:the|this|our)\s+[a-z ]{3,40}?|\s+(?:i|we)\s+get)?"
# What states an answer outside of a box.
STATEMENTS: Final = (
    Pattern("box", r"\\f?boxed\b|\\fbox", "what it holds; the last one counts", r"\boxed{18}",
            "MATH", 961),
    Pattern("tag", r"<answer>", "what it holds, if it is closed", "<answer>18</answer>",
            "prompts of DeepSeek-R1-Zero"),
    Pattern("marker", r"####|^A:", "the rest of its line", "#### 18", "GSM8K", 2635),
    Pattern("phrase",
            r"(?:\b(?:answer|ans|(?:correct|right)\s+(?:option|choice))s?\b"
            rf"{_OBJECT}\**{_LINK})",
            "its clause, if all of it is a value", "The answer is 18.",
            "few-shot prompts of GSM8K and Minerva", 3288),
)  # fmt: skip


def compile_patterns(*patterns: Pattern, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    """Compile patterns to one."""
    return re.compile("|".join(pattern.regex for pattern in patterns), flags)


# --- what was found ------------------------------------------------------------------------------

#: Rules that take an answer which the response doesn't call one.
LENIENT_RULES: Final = ("bare", "last value")


class Extracted(NamedTuple):
    """An answer as the response wrote it, and the rule that found it."""

    text: str
    rule: str

    @property
    def stated(self) -> bool:
        """Whether the response called it its answer, so that the strict reading has it too."""
        return self.rule not in LENIENT_RULES


def _is_mathematical(value: Value) -> bool:
    """Whether a value is mathematics or a choice, rather than words or something unread."""
    if isinstance(value, Choice) and value.content is not None:
        return not isinstance(value.content, Unread)
    return not isinstance(value, Words | Unread)


_FORMULA: Final = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_MAX_DELIMITED_CHARS: Final = 2000


def without_delimiters(text: str) -> str:
    """Strip the emphasis and the math delimiters around a whole answer."""
    if len(text) > _MAX_DELIMITED_CHARS:
        return text
    text = text.strip().strip("*").strip().rstrip("!")
    formula = _FORMULA.fullmatch(text.rstrip(" ."))
    return text if formula is None else _matched_group(formula)


def _matched_group(match: re.Match[str]) -> str:
    """Return the group of a match that took part in it."""
    groups = [group for group in match.groups() if group is not None]
    return groups[0].strip()


# --- tag and marker ------------------------------------------------------------------------------

_MAX_MARKERS: Final = 8
# "A: 12" above "B: 15" is an option that is weighed, or one of two amounts.
_MARKER: Final = re.compile(r"(?:####|^A:(?=[^\n]*+(?!\s*^B:)))[ \t]*([^\n]+)", re.MULTILINE)
_BEGINS_AS_VALUE: Final = re.compile(r"[-+$£€\\(\[.]*\s*[\d\\]")
_LONG_WORD: Final = re.compile("[A-Za-z]{3}")


def find_tag(text: str) -> Extracted | None:
    """Find the last ``<answer>…</answer>``; what is not closed may have been cut.

    If the content has a marker (``#### 18``) or a phrase ("the answer is 18") of its own, only the
    answer there counts. ``"tag"`` is the name of the rule.
    """
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, end) if end >= 0 else -1
    if start < 0:
        return None
    content = text[start + len("<answer>") : end].strip()
    statement = find_marker(content) or find_phrase(content)
    answer = without_delimiters(content) if statement is None else statement.text
    return Extracted(answer, "tag") if answer else None


def find_marker(text: str) -> Extracted | None:
    """Find the last ``#### 18`` or ``A: 18`` that holds a value, as GSM8K ends its solutions.

    A Markdown heading looks like GSM8K's marker and is none. So what follows must begin as a value
    does, or end the text as a short expression. ``read`` gives the value of a text,
    ``_is_mathematical`` says whether that is more than words.
    """
    if "####" not in text and "A:" not in text:
        return None
    markers = list(_MARKER.finditer(text))[-_MAX_MARKERS:]
    for match in reversed(markers):
        answer = without_delimiters(match[1].strip().rstrip("."))
        is_last = text.endswith(match[1])
        is_expression = is_last and not _LONG_WORD.search(answer)
        may_be_value = is_expression or _BEGINS_AS_VALUE.match(answer)
        if may_be_value and _is_mathematical(read(answer)):
            return Extracted(answer, "marker")
    return None


# --- phrases -------------------------------------------------------------------------------------

_PHRASE: Final = compile_patterns(*(row for row in STATEMENTS if row.name == "phrase"))
# Parts of the words that begin a phrase; a search for one is many times faster than the pattern.
_PHRASE_STEMS: Final = ("nswer", "NSWER", "ns:", "ption is", "hoice is")
_CHARS_BEFORE_STEM: Final = 16
_CHARS_BEHIND_STEM: Final = 80
_CHARS_BEFORE_PHRASE: Final = 60
_MAX_PHRASES: Final = 8
_MAX_CLAUSE_CHARS: Final = 300
_MAX_ANSWER_CHARS: Final = 120
_MAX_ANSWER_WORDS: Final = 4
# What may stand before "answer is" in its sentence, so that it speaks of the whole task.
_SENTENCE_OPENING: Final = re.compile(
    r"(?:^|[^\w'’\"“ \t]|\b(?:therefore|thus|hence|so|consequently|finally|"
    r"then|yes|and|indeed|that|but|is|we\s+conclude|in\s+conclusion)\b,?)"
    r"[\s*#_]*(?:the|my|our|this)?\s*(?:correct|right|final|desired|required)?\s*(?:final\s+)?$",
    re.IGNORECASE,
)
# What a writer says of a solution, or where it is to be found: no answer to the question.
_JUDGEMENTS: Final = frozenset(
    "correct incorrect right wrong clear valid verified confirmed consistent reasonable below "
    "above follows complete accurate exact final here boxed obvious unique integer simplified "
    "satisfied done given shown found obtained reached unchanged helpful simplest form".split()
)


def find_phrase(text: str) -> Extracted | None:
    """Find the last "answer is …" whose whole clause holds a plain answer.

    ``_last_phrases`` has the matches of such phrases, the last one first. ``read_clause`` returns
    the answer that follows, or None if that is prose. What stands before the phrase must begin a
    sentence, so that it speaks of the whole task. Words are an answer unless they judge the
    solution ("correct").
    """
    for phrase in _last_phrases(text):
        answer = read_clause(text[phrase.end() : phrase.end() + _MAX_CLAUSE_CHARS])
        before = text[max(0, phrase.start() - _CHARS_BEFORE_PHRASE) : phrase.start()]
        if answer is None or _SENTENCE_OPENING.search(before) is None:
            continue
        value = read(answer)
        is_verbal = isinstance(value, Words) and _JUDGEMENTS.isdisjoint(value.text.split())
        if is_verbal or _is_mathematical(value):
            return Extracted(answer, "phrase")
    return None


def _last_phrases(text: str) -> list[re.Match[str]]:
    """Return the matches of phrases such as "the answer is": up to a few, the last one first.

    A *stem* is a part of such a phrase, ``nswer``; finding one is many times faster than the
    pattern. So the last stems are found first, and the pattern is tried around each. Stems of one
    phrase give one match, which its end identifies.
    """
    stem_positions = set()
    for stem in _PHRASE_STEMS:
        position = len(text)
        for _ in range(_MAX_PHRASES):
            position = text.rfind(stem, 0, position)
            if position < 0:
                break
            stem_positions.add(position)
    phrases: dict[int, re.Match[str]] = {}
    for position in sorted(stem_positions, reverse=True)[:_MAX_PHRASES]:
        line_start = text.rfind("\n", 0, position) + 1
        start = max(line_start, position - _CHARS_BEFORE_STEM)
        phrase = _PHRASE.search(text, start, position + _CHARS_BEHIND_STEM)
        if phrase is not None:
            phrases[phrase.end()] = phrase
    return [phrases[end] for end in sorted(phrases, reverse=True)]


# A run of text that ends at a full stop which is no decimal point, or at the line's end.
_SENTENCE: Final = re.compile(
    r"(?:[^.。\n]|\.(?=\d)|(?<=\b[ap])\.\s?m\b\.?|(?<=\bsq)\.|(?<=\bapprox)\.|(?<=\bi)\.(?=e))*"
)
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
_HEDGE: Final = re.compile(r"\b(?:maybe|perhaps|probably|might|could|not|unknown|either)\b|\?")


def read_clause(text: str) -> str | None:
    """Return the answer that follows a phrase; None if prose or a list of steps follows.

    ``text`` is what stands behind "the answer is". An answer is a formula, or the rest of the
    sentence if that has few words. What only explains it ("because …") is cut off, and a hedge
    ("maybe") refuses it.
    """
    if _STEPS.match(text):
        return None
    text = text.lstrip(" \t\n*:：=_")
    formula = _FORMULA.match(text)
    # A formula may hold full stops and line breaks.
    formula_end = 0 if formula is None else formula.end()
    clause = text[:formula_end] + _first_sentence(text[formula_end:])
    behind_formula = _EXPLANATION.sub("", clause[formula_end:]).strip(" *,")
    if _HEDGE.search(behind_formula.lower()):
        return None
    if formula is not None and not behind_formula:
        return _matched_group(formula)
    answer = (behind_formula if formula is None else clause).strip(" \t*_")
    has_few_words = len(_WORD.findall(answer)) <= _MAX_ANSWER_WORDS
    is_short = has_few_words and len(answer) <= _MAX_ANSWER_CHARS
    return without_delimiters(answer) if answer and is_short else None


def _first_sentence(text: str) -> str:
    sentence = _SENTENCE.match(text)
    return "" if sentence is None else sentence[0]


# --- the last value ------------------------------------------------------------------------------

_MAX_TAIL_CHARS: Final = 2000
# "16 - 3 = <<16-3=13>>13": what GSM8K's solutions note for a calculator.
_CALCULATOR_NOTE: Final = re.compile(r"<<[^<>\n]*>>")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_NUMBER: Final = r"\d[\d,]*(?:\.\d+)?(?:\s\d+/\d+)?"
_MACRO: Final = r"\\(?:[dtc]?frac|sqrt|pi|binom)(?:\[\d\])?(?:\{[^{}]*\})*(?![A-Za-z])"
_FACTOR: Final = rf"(?:{_NUMBER}|{_MACRO}|[π√])"
# "36\pi", "2^{10}", "3:4", "$1,234.50", "1/3", "25%"
_PLAIN_VALUE: Final = (
    rf"(?<![A-Za-z0-9_.{{^])[-−]?[$€£]?{_FACTOR}"
    rf"(?:\^\{{[^{{}}]*\}}|(?:\s?/\s?|\^|:(?=\d)|)[-−]?{_FACTOR})*(?:\s?\\?%)?"
)
_VALUE: Final = re.compile(
    r"\$\$(.+?)\$\$|\$([^$\n]*[^$\s\\])\$(?!\d)|\\\((.+?)\\\)|\\\[(.+?)\\\]" rf"|({_PLAIN_VALUE})"
)


def find_last_value(text: str) -> Extracted | None:
    """Find the last value of the last sentence that holds one, in a response that was finished.

    Of a calculation it is the result: "80 / 10 = 8 weeks to collect 200". So values behind an
    equals sign go first. ``read`` gives the value of a text, ``_is_mathematical`` says whether that
    is more than words.
    """
    tail = text[-_MAX_TAIL_CHARS:].replace("\\[\n", "\\[ ").replace("\n\\]", " \\]")
    for sentence in _sentences_from_the_end(_CALCULATOR_NOTE.sub("", tail)):
        values: list[str] = []
        results: list[str] = []
        for match in _VALUE.finditer(sentence):
            value = _matched_group(match).rpartition("=")[2].strip().rstrip(".,;")
            if _is_mathematical(read(value)):
                values.append(value)
                is_result = sentence[: match.start()].rstrip().endswith("=")
                results += [value] if is_result else []
        if values:
            return Extracted((results or values)[-1], "last value")
    return None


def _sentences_from_the_end(text: str) -> Iterator[str]:
    for line in reversed(text.split("\n")):
        yield from reversed(_SENTENCE_END.split(line))


_SHORT_LINE: Final = re.compile(r"[^\n]{1,120}")
_SENTENCE_WITH_NUMBER: Final = re.compile(r"[A-Za-z]{2,},?\s.*\d")  # "Therefore x = 5"
_MAX_BARE_WORDS: Final = 2


def find_bare_value(text: str) -> Extracted | None:
    """Take a response that is nothing but a value; None for any other.

    It is one short line of at most two words. ``read`` gives ``Unread`` for what is no value.
    """
    line = text.strip()
    if not _SHORT_LINE.fullmatch(line) or line[0] in "#<" or _SENTENCE_WITH_NUMBER.match(line):
        return None
    answer = without_delimiters(line.rstrip("."))
    has_content = any(char.isalnum() for char in answer)
    if not has_content or len(_WORD.findall(answer)) > _MAX_BARE_WORDS:
        return None
    return None if isinstance(read(answer), Unread) else Extracted(answer, "bare")
