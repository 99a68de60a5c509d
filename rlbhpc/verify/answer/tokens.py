"""Lists of tokens: cut at separators, trimmed, their commas settled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from rlbhpc.verify.answer.lexer import Token

Tokens: TypeAlias = Sequence[Token]

_OPEN: Final = {"(": ")", "[": "]", "{": "}", "\\{": "\\}", "<(": ">)"}
_CLOSE: Final = frozenset(_OPEN.values())
_FILLERS: Final = frozenset("about approximately exactly roughly only both".split())


def settle_commas(tokens: Tokens, listed: bool) -> list[Token]:
    """Decide of each ``1,234`` whether it is a number or a list.

    Within brackets, and where a list is expected, tight digit groups are a list, unless a group
    begins with a zero, or other separators stand outside of the groups.
    """
    depth = 0
    others = any(text in (",", ";", "and", "or") for _, text in tokens)
    out: list[Token] = []
    for kind, text in tokens:
        depth += (text in ("(", "[", "\\{", "<(")) - (text in (")", "]", "\\}", ">)"))
        if kind == "n" and "," in text:
            groups = text.split(",")
            zero = any(group.startswith("0") for group in groups[1:])
            if not zero and (depth > 0 or (listed and not others)):
                for group in groups:
                    out += [("n", group), ("o", ",")]
                out.pop()
                continue
            text = text.replace(",", "")
        out.append((kind, text))
    return out


def cut(tokens: Tokens, *separators: Token) -> tuple[list[list[Token]], list[Token]]:
    """Cut tokens at separators that stand outside of all brackets."""
    if frozenset(separators).isdisjoint(tokens):
        return [list(tokens)], []
    pieces: list[list[Token]] = [[]]
    separators_met: list[Token] = []
    for token, depth in zip(tokens, _depths(tokens), strict=True):
        if depth == 0 and token in separators:
            pieces.append([])
            separators_met.append(token)
        else:
            pieces[-1].append(token)
    return pieces, separators_met


def closes_at_end(tokens: Tokens) -> bool:
    """Whether the bracket that opens the tokens is closed by their last one."""
    places = (place for place, depth in enumerate(_depths(tokens)) if depth == 0)
    return next(places, None) == len(tokens) - 1


def _depths(tokens: Tokens) -> Iterator[int]:
    """Yield how many brackets are open behind each token."""
    depth = 0
    for kind, text in tokens:
        if kind == "b" or (kind == "o" and text in _OPEN):
            depth += 1
        elif kind == "e" or (kind == "o" and text in _CLOSE):
            depth -= 1
        yield depth


_TRAILING: Final = frozenset((".", ",", ";", ":", '"', "\\\\"))
_LEADING: Final = frozenset((",", ";", ":", '"'))


def trim(tokens: Tokens) -> Tokens:
    """Strip punctuation, quotes, fillers and braces around the whole."""
    start, end = 0, len(tokens)
    while start < end:
        kind, text = tokens[start]
        inner = tokens[start:end]
        if tokens[end - 1][0] == "o" and tokens[end - 1][1] in _TRAILING:
            end -= 1
        elif (kind == "o" and text in _LEADING) or (kind == "w" and text.lower() in _FILLERS):
            start += 1
        elif text == "{" and len(inner) > 1 and closes_at_end(inner):
            start, end = start + 1, end - 1
        else:
            break
    return tokens[start:end]
