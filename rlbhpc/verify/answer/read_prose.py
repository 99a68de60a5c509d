"""Prose around a value: a lead, a label, and the domain of its integers."""

from __future__ import annotations

import re
from typing import Final

from rlbhpc.verify.answer.tokens import Tokens
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
    "minimum distance radius perimeter angle ratio ordered result option".split()
)
_CHANGES: Final = frozenset(
    "square cube root half third quarter twice double triple negative inverse reciprocal minus log "
    "opposite squared cubed times factorial other wrong".split()
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


def exception(tokens: Tokens) -> Tokens | None:
    """Return what follows ``all real numbers except``."""
    texts = [text.lower() for _, text in tokens]
    if texts[0] != "all" or "except" not in texts:
        return None
    place = texts.index("except")
    rest = tokens[place + 1 + (texts[place + 1 : place + 2] in (["for"], ["at"])) :]
    real = "real" in texts[:place] or "reals" in texts[:place]
    return rest if rest and real else None


# ", k in Z", "where n is an integer" and the like at the end, as the texts of tokens.
_LINES: Final = frozenset((*"KLMNOPQRSTUVWXYZlmnp", "\\ell", "\\Gamma", "\\pi", "\\alpha"))
_DOMAIN: Final = re.compile(
    r" (?:[,;(] )*(?:(?:for|where|with|and|any|all|every|some) )*"
    r"(?:(?P<member>[a-zA-Z]) in (?:mathbb \{ Z \}|mathbb Z|Z)"
    r"|(?P<named>[a-zA-Z]) (?:is )?(?:an |any )?integers?|integers? (?P<last>[a-zA-Z]))(?: \))?$"
)


_DOMAIN_WORDS: Final = frozenset((("r", "in"), ("r", "!="), ("w", "integer"), ("w", "integers")))


# ", x != -1" and the like behind a function of x.
_HOLE: Final = re.compile(
    r" (?:[,;(] )*(?:(?:for|where|with) )*(?P<name>[a-z]) != [-\d./{} ]+(?: \))?$"
)


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
    if texts[1:2] == ["("] and texts[3:5] == [")", "="] and "!=" in texts:
        hole = _HOLE.search(" ".join(texts))
        if hole is not None and hole["name"] == texts[2]:
            return tokens[: len(" ".join(texts)[: hole.start()].split(" "))]
    domain = _DOMAIN.search(" ".join(texts))
    if domain is None:
        return tokens
    letter = domain["member"] or domain["named"] or domain["last"]
    rest = tokens[: len(" ".join(texts)[: domain.start()].split(" "))]
    return rest if any(kind == "s" and text == letter for kind, text in rest) else tokens
