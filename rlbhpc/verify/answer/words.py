"""Answers in words, and the prose around a value: a lead, a label, a remark, a domain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from rlbhpc.verify.answer.grammar import Unreadable, parse
from rlbhpc.verify.answer.lexer import Token, Tokens
from rlbhpc.verify.answer.numeric import Undecided, exact, numeric
from rlbhpc.verify.answer.units import SCALES, read_unit
from rlbhpc.verify.answer.value import (
    Choice,
    Clock,
    Interval,
    Node,
    Quantity,
    Region,
    Value,
    Words,
    num,
    symbols,
)

_ARTICLES: Final = frozenset(("a", "an", "the", "on"))
_EMPTY: Final = frozenset(
    "emptyset|no solution|no solutions|no real solution|no real solutions|none|empty set|empty|"
    "no such number|no real roots|no roots|there is no solution|there are no solutions|"
    "there are no real solutions|no such numbers|no answer exists|null set".split("|")
)
_UNDEFINED: Final = frozenset(
    "undefined|not defined|dne|does not exist|limit does not exist|doesn t exist|"
    "no limit exists|no maximum exists|no minimum exists|no derivative exists|"
    "indeterminate".split("|")
)
_INFINITE: Final = frozenset(
    "infinite|infinitely many|infinitely many solutions|infinity|unbounded".split("|")
)
_REALS: Final = frozenset(
    "all real numbers|all reals|real numbers|reals|all real|any real number|all real x".split("|")
)
_ONES: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
_PARTS: Final = "half third quarter fifth sixth seventh eighth ninth tenth eleventh twelfth".split()
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_DAYS: Final = frozenset("monday tuesday wednesday thursday friday saturday sunday".split())
_MONTHS: Final = (
    "january february march april may june july august september october november december"
).split()
# Words that change what follows them: prose with one of them cannot be skipped.
HEDGES: Final = frozenset(
    "not no never neither nor least most than over under between except unless either maybe "
    "perhaps might could possibly probably unknown cannot if below above minus plus without".split()
)


_VERDICTS: Final = frozenset("yes no true false".split())


def read_explained(tokens: Sequence[Token]) -> Value | None:
    """Read ``Yes, such a number exists`` and ``D. None of the above`` by what stands first."""
    if len(tokens) < 3 or tokens[1][0] != "o" or not any(k == "w" for k, _ in tokens[2:]):
        return None
    first, mark = tokens[0][1], tokens[1][1]
    if first in "ABCDEFGHIJ" and mark in (".", ":", ")"):
        rest = read_words(tokens[2:])
        return None if rest is None else Choice(first, rest)
    words = {text.lower() for _, text in tokens[2:]}
    plain = HEDGES.isdisjoint(words) and _VERDICTS.isdisjoint(words) and words.isdisjoint(_LIMITS)
    return Words(first.lower()) if first.lower() in _VERDICTS and mark in ",." and plain else None


_LIMITS: Final = frozenset("but only when sometimes".split())


def read_words(tokens: Sequence[Token]) -> Value | None:
    """Read tokens that are words throughout; None if they are not."""
    if not _are_words(tokens):
        return None
    words = [text for kind, text in tokens if kind in _KINDS_OF_WORDS]
    if len(words) == 1 and len(words[0]) == 1 and words[0].isupper():
        return Choice(words[0])
    small = [word.lower() for word in words]
    if len(words) == 2 and small[0] in ("option", "choice") and words[1] in "ABCDEFGHIJ":
        return Choice(words[1])
    while len(small) > 1 and small[0] in _ARTICLES:
        del small[0]
    text = " ".join(small)
    subject = _SUBJECTS.match(text)
    predicate = text if subject is None else text[subject.end() :]
    predicate = _SYNONYMS.get(predicate, predicate)
    return _meaning(text) or _meaning(predicate) or _spelled(small) or Words(predicate)


_KINDS_OF_WORDS: Final = ("w", "s", "f")


def _are_words(tokens: Sequence[Token]) -> bool:
    """Whether tokens are words and punctuation alone, and at least half of them words."""
    count = sum(kind == "w" for kind, _ in tokens)
    if count == 0 or (len(tokens) > 2 and count * 2 < len(tokens)):
        return False
    return all(kind in _KINDS_OF_WORDS or text in _PUNCTUATION for kind, text in tokens)


_PUNCTUATION: Final = frozenset(".,'-!\"()/`:;")


# What is read as one word where writers use several.
_SYNONYMS: Final = {
    "divergent": "diverges", "convergent": "converges", "mon": "monday", "tue": "tuesday",
    "tues": "tuesday", "wed": "wednesday", "thu": "thursday", "thur": "thursday",
    "thurs": "thursday", "fri": "friday", "sat": "saturday", "sun": "sunday",
}  # fmt: skip
_SUBJECTS: Final = re.compile(r"(?:it(?: is)?|there are|series|integral|sequence|limit) (?=\w)")
_NONE: Final = re.compile(
    r"(?:equation|system|inequality|it) has no (?:real |integer )?(?:solutions?|roots?)"
    r"|no (?:such |real |integer )*(?!(?:limit|maximum|minimum|derivative|such|real|integer) )"
    r"\w+ exists?"
)
# Real numbers of one sign, by how they are called.
_SIGNED: Final = {
    "positive": (False, False), "nonnegative": (False, True), "non negative": (False, True),
    "negative": (True, False), "nonpositive": (True, True), "non positive": (True, True),
}  # fmt: skip


def _of_one_sign(text: str) -> Interval | None:
    sign = text.removeprefix("all ").removesuffix(" numbers").removesuffix("s")
    if not sign.endswith(" real") or sign[:-5] not in _SIGNED:
        return None
    below, closed = _SIGNED[sign[:-5]]
    zero = num(0)
    return Interval(None, zero, False, closed) if below else Interval(zero, None, closed)


def _meaning(text: str) -> Value | None:
    if text in _EMPTY or _NONE.fullmatch(text):
        return Region(())
    if text in _UNDEFINED:
        return Words("undefined")
    if text in _INFINITE:
        return Quantity(Node("const", (), "oo"))
    if text in _REALS:
        return Region((Interval(None, None),))
    if text in ("noon", "midnight"):
        return Clock(12, 0, 0, "pm" if text == "noon" else "am")
    if text in ("negative infinity", "minus infinity"):
        return Quantity(Node("neg", (Node("const", (), "oo"),)))
    return _of_one_sign(text) or _spoken_time(text)


_SPOKEN: Final = re.compile(r"(?:(half|quarter) past|quarter (to)) (\w+)|(\w+) o clock")


def _spoken_time(text: str) -> Clock | None:
    """Read ``half past three``, ``a quarter to four`` and ``four o'clock``."""
    time = _SPOKEN.fullmatch(text.removeprefix("a "))
    hour = None if time is None else _whole([time[3] or time[4]])
    if time is None or hour is None or not 1 <= hour <= 12:
        return None
    if time[2]:
        return Clock(hour - 1 or 12, 45, 0)
    return Clock(hour, {"half": 30, "quarter": 15}.get(time[1], 0), 0)


def _spelled(words: list[str]) -> Quantity | None:
    """Read a number in words: ``one hundred and five``, ``two thirds``, ``one and a half``."""
    if len(words) == 2 and words[0] in _ONES[1:]:
        name = words[1].replace("fourth", "quarter").replace("halves", "half").removesuffix("s")
        if name in _PARTS:
            return Quantity(num(Fraction(_ONES.index(words[0]), _PARTS.index(name) + 2)))
    if words[-3:-1] == ["and", "a"] and words[-1] in ("half", "quarter"):
        whole = _whole(words[:-3])
        part = Fraction(1, 2 if words[-1] == "half" else 4)
        return None if whole is None else Quantity(num(whole + part))
    sign = -1 if words[0] in ("negative", "minus") else 1
    whole = _whole(words[sign < 0 :])
    return None if whole is None else Quantity(num(sign * whole))


def in_digits(tokens: Sequence[Token]) -> list[Token]:
    """Write the number of ``twenty-one students`` in digits; nothing for other words."""
    whole = _whole([text.lower() for kind, text in tokens[:-1] if kind == "w"])
    return [] if whole is None else [("n", str(whole)), tokens[-1]]


def _whole(words: list[str]) -> int | None:
    """Read a whole number below a billion; None for words that are none."""
    total, group, smallest = 0, 0, 10**9
    for word in words:
        after_tens = group % 10 == 0 and group % 100 >= 20
        if word == "and" and group:
            continue
        if word in _TENS and group % 100 == 0:
            group += (_TENS.index(word) + 2) * 10
        elif word in _ONES and (group % 100 == 0 or (after_tens and word in _ONES[1:10])):
            group += _ONES.index(word)
        elif word == "hundred" and 0 < group < 10:
            group *= 100
        elif word in ("thousand", "million") and group and SCALES[word] < smallest:
            smallest = SCALES[word]
            total, group = total + group * smallest, 0
        else:
            return None
    return total + group if words else None


_BASES: Final = {"binary": 2, "octal": 8, "decimal": 10, "hexadecimal": 16}


def spelled_base(word: str) -> int | None:
    """Return the base that a word such as ``five`` names."""
    if word.lower() in _BASES:
        return _BASES[word.lower()]
    quantity = _spelled([word.lower()])
    value = quantity.tree.value if quantity else None
    return None if value is None else int(value)


def read_date(tokens: Sequence[Token]) -> Words | None:
    """Read ``March 5``, ``5 March 2024``, ``March 5th``: month, day and year in one order."""
    months = [m for kind, t in tokens if kind == "w" and (m := _month(t))]
    numbers = [int(t) for kind, t in tokens if kind == "n" and t.isdigit() and len(t) <= 4]
    others = {t.lower() for kind, t in tokens if kind != "n" and not _month(t)}
    if len(months) != 1 or not 1 <= len(numbers) <= 2:
        return None
    others -= _DAYS
    if others - {",", ".", "st", "nd", "rd", "th", "of", "the", "s", "t", "n", "d", "r", "h", "^"}:
        return None
    days = [n for n in numbers if n <= 31]
    years = [n for n in numbers if n > 31]
    if len(days) != 1:
        return None
    return Words(f"{months[0]} {days[0]}" + "".join(f" {year}" for year in years))


def _month(word: str) -> str:
    low = word.lower()
    names = [m for m in _MONTHS if m == low or (len(low) == 3 and m.startswith(low))]
    return names[0] if names else ""


# --- prose around a value ------------------------------------------------------------------------


_LEADS: Final = frozenset(
    "is are be gives equals equal get obtain have answer value thus so hence then".split()
)


def after_prose(tokens: Tokens) -> Tokens | None:
    """Return what follows "… gives" and the like, where nothing before it hedges."""
    places = [
        index for index, (kind, text) in enumerate(tokens) if kind == "w" and text.lower() in _LEADS
    ]
    if not places or places[-1] + 1 >= len(tokens):
        return None
    lead = [text.lower() for kind, text in tokens[: places[-1]] if kind == "w"]
    return tokens[places[-1] + 1 :] if HEDGES.isdisjoint(lead) else None


_LABELS: Final = frozenset(
    "set solution solutions interval point points pair triple value values vector matrix answer "
    "coordinates roots function area length volume sum product probability number total maximum "
    "minimum distance radius perimeter angle ratio ordered result option order "
    "primes integers numbers limit vertex center centre focus segment side edge".split()
)
_CHANGES: Final = frozenset(
    "square cube root half third quarter twice double triple negative inverse reciprocal minus log "
    "opposite squared cubed times factorial other wrong binary octal hexadecimal".split()
)


def after_label(tokens: Tokens) -> Tokens | None:
    r"""Return what follows ``\text{The set }`` and the like: a name, and no condition."""
    count = next((index for index, (kind, _) in enumerate(tokens) if kind != "w"), len(tokens))
    words = [text.lower() for _, text in tokens[:count]]
    if not 0 < count <= 5 or count == len(tokens) or not HEDGES.isdisjoint(words):
        return None
    if _LABELS.isdisjoint(words) or not _CHANGES.isdisjoint(words) or words[-1] == "of":
        return None
    return tokens[count + (tokens[count] == ("o", ":")) :]


def after_subject(tokens: Tokens) -> Tokens:
    """Cut ``The limit is`` off a value, and off words where the subject says nothing of its own."""
    count = next((index for index, (kind, _) in enumerate(tokens) if kind != "w"), len(tokens))
    words = [text.lower() for _, text in tokens[:count]]
    place = next((index for index, word in enumerate(words) if word in ("is", "are")), 0)
    if words in (["diverges", "to"], ["tends", "to"]) and tokens[count:]:
        return tokens[2:] if words[0] == "tends" or ("s", "oo") in tokens else tokens
    if words in (["answer"], ["final", "answer"]) and tokens[count : count + 1] == [("o", ":")]:
        return tokens[count + 1 :]
    if _names_the_rest(words, tokens[count:]):
        return tokens[count:]
    if not 0 < place < min(7, len(tokens) - 1) or not (HEDGES | _CHANGES).isdisjoint(words):
        return tokens
    in_words = place + 1 < count and words[:2] != ["it", "is"]
    if in_words and (words[0] != "the" or place != 2 or words[1] not in _LABELS | _KINDS):
        return tokens
    return tokens[place + 1 :]


def _names_the_rest(words: list[str], rest: Tokens) -> bool:
    """Whether words such as ``The circle`` and ``The primes`` only say what the value after is."""
    if not 1 < len(words) < 4 or words[0] != "the" or not rest or rest[0][0] == "r":
        return False
    plain = _CHANGES.isdisjoint(words) and HEDGES.isdisjoint(words)
    return plain and words[-1] in _LABELS | _KINDS and rest[0] != ("o", ":")


_KINDS: Final = frozenset(
    "limit result series sequence function triangle shape curve graph conic figure statement "
    "equation system integral circle line ellipse parabola hyperbola plane polynomial "
    "quadrilateral polygon solid expression number".split()
)
# Words for signs, of which the longer come first.
_SIGNS: Final = tuple(
    (tuple(words.split()), sign)
    for words, sign in (
        ("less than or equal to", "<="), ("smaller than or equal to", "<="), ("at most", "<="),
        ("greater than or equal to", ">="), ("larger than or equal to", ">="), ("at least", ">="),
        ("no more than", "<="), ("no greater than", "<="), ("no less than", ">="),
        ("less than", "<"), ("smaller than", "<"), ("greater than", ">"), ("larger than", ">"),
    )
)  # fmt: skip


def in_signs(tokens: Tokens) -> Tokens:
    """Write ``x is at most 4`` as an inequality and ``minus 7`` as a number."""
    texts = tuple(text.lower() for _, text in tokens)
    if texts[0] in ("minus", "negative") and tokens[1:] and tokens[1][0] == "n":
        return [("o", "-"), *tokens[1:]]
    if not {"than", "most", "least"} & set(texts):
        return tokens
    for words, sign in _SIGNS:
        for start in range(1, len(texts) - len(words)):
            if texts[start : start + len(words)] == words:
                before = tokens[: start - (texts[start - 1] in ("is", "are"))]
                return [*before, ("r", sign), *tokens[start + len(words) :]]
    return tokens


_SUCH: Final = (("such", "that"), ("for", "which"), ("where",), ("with",), ("satisfying",))


def real_condition(tokens: Tokens) -> Tokens | None:
    """Return ``x <= 4`` of ``all real numbers x such that x <= 4``."""
    texts = [text.lower() for _, text in tokens]
    start = 3 if texts[:3] == ["the", "set", "of"] else 0
    start += texts[start : start + 1] == ["all"]
    if texts[start : start + 1] == ["reals"]:
        texts[start : start + 1] = ["real", "numbers"]
        tokens = [*tokens[:start], ("w", "real"), ("w", "numbers"), *tokens[start + 1 :]]
    named = tokens[start + 1 : start + 2]
    if texts[start : start + 1] != ["real"] or not named:
        return None
    if texts[start + 1] not in ("numbers", "values") and named[0][0] != "s":
        return None
    start += 1 + (named[0][0] != "s")
    rest = list(tokens[start + (texts[start : start + 1] == ["of"]) :])
    name = rest.pop(0) if rest and rest[0][0] == "s" else ("s", "x")
    for words in _SUCH:
        if tuple(text for _, text in rest[: len(words)]) == words:
            rest = rest[len(words) :]
            break
    if not any(kind == "r" for kind, _ in rest):
        return None
    return [name, *rest] if rest[0][0] == "r" else rest


def without_remark(tokens: Tokens) -> Tokens:
    """Cut a remark off the end that is known to change nothing: ``(rounded)``, ``(≈ 1.62)``."""
    for ending in _ENDINGS if tokens[-1][1] in _LAST_WORDS else ():
        texts = tuple(text for _, text in tokens[-len(ending) :])
        if texts == ending and len(tokens) > len(ending):
            return tokens[: -len(ending)]
    if ("w", "or") in tokens[1:-2]:
        position = _last_position(tokens[:-2], ("w", "or"))
        value, about, digits = tokens[:position], tokens[position + 1], tokens[position + 2 :]
        if about[1] in (*_ABOUT, "~") and _rounds(value, digits):
            return value  # "or about 4.9"
    if tokens[-1] != ("o", ")") or ("o", "(") not in tokens[1:]:
        return tokens
    opening = _last_position(tokens, ("o", "("))
    value, remark = tokens[:opening], tokens[opening + 1 : -1]
    return value if _adds_nothing(remark, value) else tokens


def _last_position(tokens: Tokens, token: Token) -> int:
    return len(tokens) - 1 - list(reversed(tokens)).index(token)


def _adds_nothing(remark: Tokens, value: Tokens) -> bool:
    """Whether a remark in parentheses shows the value rounded, counts its items, or says how."""
    if len(remark) > 1 and (remark[0] == ("r", "~") or remark[0][1] in _ABOUT):
        return _rounds(value, remark[1:])
    if not all(kind == "w" for kind, _ in remark):
        return False
    words = " ".join(text for _, text in remark)
    count = _COUNT.fullmatch(words)
    if count is not None:
        items = value.count(("o", ",")) + 1
        return items < len(_COUNTS) and _COUNTS[items] == count[1]
    return _REMARK.fullmatch(words) is not None and not read_unit(remark)


def _rounds(value: Tokens, digits: Tokens) -> bool:
    """Whether digits show a value that is no integer, rounded or cut off."""
    last = max((place for place, token in enumerate(value) if token == ("r", "=")), default=-1)
    try:
        tree, shown = parse(value[last + 1 :]), exact(parse(digits))
        if shown is None or symbols(tree):
            return False
        size = numeric(tree)
    except (Unreadable, Undecided, ArithmeticError, ValueError):
        return False
    unit = Fraction(1, 10 ** len(digits[-1][1].partition(".")[2]))
    whole = exact(tree)
    if size.imag or (whole is not None and whole.denominator == 1):
        return False
    rest = abs(size.real) - abs(float(shown))
    return (size.real < 0) == (shown < 0) and -unit / 2 <= rest < unit


_LAST_WORDS: Final = frozenset(("only", "solution", "root", "value"))
_ENDINGS: Final = (
    ("only",), *(("is", "the", "only", noun) for noun in ("solution", "root", "value")),
)  # fmt: skip
_ABOUT: Final = ("about", "approximately", "approx", "roughly")
_REMARK: Final = re.compile(
    r"(?:exact(?:ly)?|simplified|approximate(?:ly)?|in (?:simplest form|lowest terms)"
    r"|as (?:required|desired|expected)|(?:rounded )?to (?:one|two|three|four) decimal places?"
    r"|rounded|[A-E])"
)
_COUNT: Final = re.compile(
    r"(?:the )?(\w+) (?:primes|solutions|roots|values|numbers|integers|points|pairs|terms)"
)
_COUNTS: Final = "zero one two three four five six seven eight nine ten".split()


# ", k in Z", "where n is an integer" and the like at the end, as the texts of tokens.
_LINES: Final = frozenset((*"KLMNOPQRSTUVWXYZlmnp", "\\ell", "\\Gamma", "\\pi", "\\alpha"))
_DOMAIN: Final = re.compile(
    r" (?:[,;(] )*(?:(?:for|where|with|and|any|all|every|some) )*"
    r"(?:(?P<member>[a-zA-Z]) in (?:mathbb \{ Z \}|mathbb Z|Z)"
    r"|(?P<named>[a-zA-Z]) (?:is )?(?:an |any )?integers?|integers? (?P<last>[a-zA-Z])"
    r"|(?:real )?(?:numbers? |values? of )?(?P<real>[a-zA-Z]) in mathbb (?:\{ R \}|R)"
    r"|(?<=all )(?:real )?(?:numbers? |values? of )?(?P<every>[a-zA-Z]))(?: \))?$"
)


_DOMAIN_WORDS: Final = frozenset(
    (
        ("r", "in"),
        ("r", "!="),
        ("r", ">="),
        ("r", ">"),
        ("w", "integer"),
        ("w", "integers"),
        ("w", "all"),
    )
)


# ", x != -1" and the like behind a function of x, ", n >= 1" behind a term of a sequence.
_HOLE: Final = re.compile(
    r" (?:[,;(] )*(?:(?:for|where|with|all) )*"
    r"(?:(?P<name>[a-jlo-z]) != [-+\d./{} ]+|(?P<index>[kmn]) (?:>= [01]|> 0))(?: \))?$"
)
_TERM: Final = re.compile(r"[a-wA-W] (?:_ (\w)|_ \{ (\w) \}|\( (\w) \)) = ")


def without_domain(tokens: Tokens) -> Tokens:
    r"""Cut ``, k \in \mathbb{Z}`` off a family of values, and ``L:`` before an equation."""
    first = tokens[0][1]
    if first == "all" and tokens[1:2] and tokens[1][0] == "s":
        return tokens[1:]
    if first in _LINES and tokens[1:2] == [("o", ":")] and ("r", "=") in tokens:
        return tokens[2:]
    if _DOMAIN_WORDS.isdisjoint(tokens):
        return tokens
    text = " ".join(text for _, text in tokens)
    hole = _HOLE.search(text)
    if hole is not None and hole["index"]:
        term = _TERM.match(text)
        if term is None or hole["index"] not in term.groups():
            return tokens
    if hole is not None:
        function = _tokens_before(tokens, text, hole)
        if _is_function_of(function, hole["name"] or hole["index"]):
            return function
    domain = _DOMAIN.search(text)
    if domain is None:
        return tokens
    letter = next(name for name in domain.groups() if name)
    value = _tokens_before(tokens, text, domain)
    return value if ("s", letter) in value else tokens


def _tokens_before(tokens: Tokens, text: str, match: re.Match[str]) -> Tokens:
    """Return the tokens before a match in their texts, which single blanks join."""
    return tokens[: len(text[: match.start()].split(" "))]


def _is_function_of(tokens: Tokens, name: str) -> bool:
    """Whether tokens are an expression, or an equation, in a name that is not solved for."""
    symbol = ("s", name)
    relations = {text for kind, text in tokens if kind == "r"}
    if relations - {"="} or tokens[:2] == [symbol, ("r", "=")]:
        return False
    return symbol in tokens[1:]
