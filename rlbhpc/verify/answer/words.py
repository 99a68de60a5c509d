"""Answers in words, and the prose around a value: a lead, a label, a domain."""

from __future__ import annotations

import re
from typing import Final

from rlbhpc.verify.answer.lexer import COLON, Kind, Token, Tokens, texts_of
from rlbhpc.verify.answer.quantity import HEDGES
from rlbhpc.verify.answer.value import (
    INFINITY,
    OPTION_LETTERS,
    Choice,
    Interval,
    Quantity,
    Region,
    Value,
    Words,
)

# --- words ---------------------------------------------------------------------------------------

_ARTICLES: Final = frozenset(("a", "an", "the", "on"))
_WORD_KINDS: Final = (Kind.WORD, Kind.SYMBOL, Kind.FUNCTION)
_PUNCTUATION: Final = frozenset(".,'-!\"()/`:;")
_EMPTY_SET: Final = Region(())
_MEANINGS: Final[dict[str, Value]] = {
    **dict.fromkeys(
        ("emptyset", "no solution", "no solutions", "no real solution", "no real solutions",
         "none", "empty set", "empty", "no such number", "no such numbers", "no real roots",
         "no roots", "there is no solution", "there are no solutions",
         "there are no real solutions", "null set"),
        _EMPTY_SET,
    ),
    **dict.fromkeys(
        ("undefined", "not defined", "dne", "does not exist", "limit does not exist",
         "doesn t exist", "no limit exists", "indeterminate"),
        Words("undefined"),
    ),
    **dict.fromkeys(
        ("infinite", "infinitely many", "infinitely many solutions", "infinity", "unbounded"),
        Quantity(INFINITY),
    ),
    **dict.fromkeys(
        ("all real numbers", "all reals", "real numbers", "reals", "all real", "any real number"),
        Region((Interval(None, None),)),
    ),
    "divergent": Words("diverges"),
    "convergent": Words("converges"),
}  # fmt: skip


def read_words(tokens: Tokens) -> Value | None:
    """Return the meaning of tokens that are words throughout; None if they are not.

    A capital letter alone, or behind "option", is a choice. ``_MEANINGS`` has the values that
    phrases such as "no solution" and "all real numbers" stand for. Other words are ``Words``: text
    in small letters without articles before it.
    """
    if not _are_words(tokens):
        return None
    words = [token.text for token in tokens if token.kind in _WORD_KINDS]
    if len(words) == 1 and len(words[0]) == 1 and words[0].isupper():
        return Choice(words[0])
    lower_words = [word.lower() for word in words]
    if len(words) == 2 and lower_words[0] in ("option", "choice") and words[1] in OPTION_LETTERS:
        return Choice(words[1])
    while len(lower_words) > 1 and lower_words[0] in _ARTICLES:
        del lower_words[0]
    text = " ".join(lower_words)
    return _MEANINGS.get(text) or Words(text)


def _are_words(tokens: Tokens) -> bool:
    """Whether tokens are words and punctuation alone, and at least half of them words."""
    word_count = sum(token.kind is Kind.WORD for token in tokens)
    if word_count == 0 or (len(tokens) > 2 and word_count * 2 < len(tokens)):
        return False
    return all(token.kind in _WORD_KINDS or token.text in _PUNCTUATION for token in tokens)


# --- prose around a value ------------------------------------------------------------------------

_LEAD_WORDS: Final = frozenset(
    "is are be gives equals equal get obtain have answer value thus so hence then".split()
)
_LABEL_WORDS: Final = frozenset(
    "set solution solutions interval point points pair triple value values vector matrix answer "
    "coordinates roots function area length volume sum product probability number total maximum "
    "minimum distance radius perimeter angle ratio ordered result option order "
    "primes integers numbers limit vertex center centre focus segment side edge".split()
)
_TRANSFORMING_WORDS: Final = frozenset(
    "square cube root half third quarter twice double triple negative inverse reciprocal minus log "
    "opposite squared cubed times factorial other wrong binary octal hexadecimal".split()
)
_MAX_LABEL_WORDS: Final = 5


def without_prose(tokens: Tokens) -> Tokens | None:
    """Return the value behind ``… gives`` or ``The set``; None where no such prose stands first."""
    return _after_lead(tokens) or _after_label(tokens)


def _after_lead(tokens: Tokens) -> Tokens | None:
    """Return what follows "… gives" and the like; None without such a lead.

    The last lead counts. A word before it that hedges ("not", "least") makes the rest no plain
    value: None as well.
    """
    leads = [
        index
        for index, token in enumerate(tokens)
        if token.kind is Kind.WORD and token.text.lower() in _LEAD_WORDS
    ]
    if not leads:
        return None
    words = {token.text.lower() for token in tokens[: leads[-1]] if token.kind is Kind.WORD}
    return tokens[leads[-1] + 1 :] if HEDGES.isdisjoint(words) else None


def _after_label(tokens: Tokens) -> Tokens | None:
    r"""Return what follows ``\text{The set }`` and the like; None where no such label stands first.

    A label is a few words, of which one names a kind of value ("area"). None of them may hedge
    ("not") or transform what follows ("half").
    """
    kinds = [token.kind for token in tokens]
    word_count = next((i for i, kind in enumerate(kinds) if kind is not Kind.WORD), len(tokens))
    words = [token.text.lower() for token in tokens[:word_count]]
    if not 0 < word_count <= _MAX_LABEL_WORDS or word_count == len(tokens) or words[-1] == "of":
        return None
    is_label = not _LABEL_WORDS.isdisjoint(words)
    if not is_label or not (HEDGES | _TRANSFORMING_WORDS).isdisjoint(words):
        return None
    value = tokens[word_count:]
    return value[1:] if value[0] == COLON else value


# ", k in Z", "where n is an integer" and the like at the end, as the texts of tokens.
_DOMAIN: Final = re.compile(
    r" (?:[,;(] )*(?:(?:for|where|with|and|any|all|every|some) )*"
    r"(?:(?P<member>[a-zA-Z]) in (?:mathbb \{ Z \}|mathbb Z|Z)"
    r"|(?P<named>[a-zA-Z]) (?:is )?(?:an |any )?integers?|integers? (?P<last>[a-zA-Z])"
    r"|(?:real )?(?:numbers? |values? of )?(?P<real>[a-zA-Z]) in mathbb (?:\{ R \}|R)"
    r"|(?<=all )(?:real )?(?:numbers? |values? of )?(?P<every>[a-zA-Z]))(?: \))?$"
)
_DOMAIN_TEXTS: Final = frozenset(("in", "integer", "integers", "all"))


def without_domain(tokens: Tokens) -> Tokens:
    r"""Cut ``, k \in \mathbb{Z}`` off a family of values.

    The family is what stands before it, and must contain the variable of the domain. The pattern is
    matched on the texts of the tokens, joined by blanks.
    """
    texts = texts_of(tokens)
    if _DOMAIN_TEXTS.isdisjoint(texts):
        return tokens
    text = " ".join(texts)
    domain = _DOMAIN.search(text)
    if domain is None:
        return tokens
    letter = next(name for name in domain.groups() if name)
    # As many texts stand before the match as tokens belong to the family.
    family = tokens[: len(text[: domain.start()].split(" "))]
    return family if Token(Kind.SYMBOL, letter) in family else tokens
