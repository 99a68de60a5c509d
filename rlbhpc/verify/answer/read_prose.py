"""Prose around a value: a lead, a label, and the domain of its integers."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from rlbhpc.verify.answer.exact import Undecided, exact
from rlbhpc.verify.answer.grammar import parse
from rlbhpc.verify.answer.numerals import Unreadable
from rlbhpc.verify.answer.numeric import numeric
from rlbhpc.verify.answer.tokens import Tokens
from rlbhpc.verify.answer.tree import symbols
from rlbhpc.verify.answer.units import read_unit
from rlbhpc.verify.answer.words import HEDGES

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
    if tokens[-1][1] in _LAST_WORDS:
        for ending in _ENDINGS:
            if tuple(text for _, text in tokens[-len(ending) :]) == ending and len(tokens) > len(
                ending
            ):
                return tokens[: -len(ending)]
    if ("w", "or") in tokens[1:-2]:
        start = len(tokens) - 3 - list(reversed(tokens[:-2])).index(("w", "or"))
        rest = tokens[start + 2 :]
        if tokens[start + 1][1] in (*_ABOUT, "~") and _rounds(tokens[:start], rest):
            return tokens[:start]  # "or about 4.9"
    if tokens[-1] != ("o", ")") or ("o", "(") not in tokens[1:]:
        return tokens
    start = len(tokens) - 1 - list(reversed(tokens)).index(("o", "("))
    remark = tokens[start + 1 : -1]
    if len(remark) > 1 and (remark[0] == ("r", "~") or remark[0][1] in _ABOUT):
        return tokens[:start] if _rounds(tokens[:start], remark[1:]) else tokens
    if not all(kind == "w" for kind, _ in remark):
        return tokens
    words = " ".join(text for _, text in remark)
    count = _COUNT.fullmatch(words)
    if count is not None:
        items = tokens[:start].count(("o", ",")) + 1
        return tokens[:start] if _COUNTS[items : items + 1] == [count[1]] else tokens
    return tokens[:start] if _REMARK.fullmatch(words) and not read_unit(remark) else tokens


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
    r"|(?P<named>[a-zA-Z]) (?:is )?(?:an |any )?integers?|integers? (?P<last>[a-zA-Z]))(?: \))?$"
)


_DOMAIN_WORDS: Final = frozenset(
    (("r", "in"), ("r", "!="), ("r", ">="), ("r", ">"), ("w", "integer"), ("w", "integers"))
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
    texts = [text for _, text in tokens]
    hole = _HOLE.search(" ".join(texts))
    if hole is not None:
        rest = tokens[: len(" ".join(texts)[: hole.start()].split(" "))]
        name = ("s", hole["name"] or hole["index"])
        term = _TERM.match(" ".join(texts))
        if hole["index"] and (term is None or hole["index"] not in term.groups()):
            return tokens
        relations = {text for kind, text in rest if kind == "r"}
        if name in rest[1:] and relations <= {"="} and rest[:2] != [name, ("r", "=")]:
            return rest
    domain = _DOMAIN.search(" ".join(texts))
    if domain is None:
        return tokens
    letter = domain["member"] or domain["named"] or domain["last"]
    rest = tokens[: len(" ".join(texts)[: domain.start()].split(" "))]
    return rest if any(kind == "s" and text == letter for kind, text in rest) else tokens
