"""LaTeX, or what a model takes for it, as a flat list of tokens.

Everything that only styles an answer disappears here; what two writers write in two ways gets one
name. The tokens joined by blanks are the canonical form of an answer: equal canonical forms mean
the same answer.

Kinds of tokens: ``n`` number, ``s`` symbol of one letter or macro, ``w`` word, ``f`` function,
``r`` relation, ``c`` currency, ``b``/``e`` begin and end of an environment, ``o`` the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from rlbhpc.verify.answer.glyphs import Token as Token
from rlbhpc.verify.answer.glyphs import foreign_tokens, lines, to_latex
from rlbhpc.verify.answer.units import unit_named

# Beyond this an answer is compared as text and not read at all.
MAX_CHARS: Final = 4000

_TOKEN: Final = re.compile(
    r"(?P<space>\s+)"
    # 1,234 may be a number or two: the reader, which knows what stands around it, decides.
    r"|(?P<run>(?<!\d,)\d{1,3}(?:,\d{3})+(?![\d,]|\.\d*,)(?:\.\d+)?)"
    r"|(?P<num>(?:\d+(?:\.\d+|\.(?=\s*/))?|\.\d+)(?:[eE][+-]?\d+(?!\d*[.a-zA-Z]))?)"
    r"|(?P<word>[A-Za-z]+)"
    r"|(?P<foreign>[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0400-\u04ff]+)"
    r"|(?P<macro>\\(?:[A-Za-z]+|.))"
    r"|(?P<rel><=|>=|!=|==|=>|->|[=<>])"
    r"|(?P<op>\.\.\.+|\*\*|''|[-+*/^_(){}\[\],;:!|&.%'\"~])"
    r"|(?P<other>.)",
    re.DOTALL,
)

# Digit groups whose separator can only be a thousands mark: 10{,}080  11,\! 111  1~000  1 000.
_GROUPS: Final = re.compile(
    r"(?<![\d.,_^])\d{1,3}(?:(?:,\s?\\!\s?|\s?\{\s*(?:,|\\,)\s*\}|\\[,;: ]|~| |'|_)\d{3})+(?![\d])"
)
_GROUP_MARKS: Final = re.compile(r"[^\d]+")
_DECIMAL_COMMA: Final = re.compile(r"(?<=\d)\{\s*,\s*\}(?=\d)")
# 1,00,000: groups of two before the last three; one begins with a zero, or it may be a list.
_INDIAN: Final = re.compile(r"(?<![\d.,])(?=[\d,]*,0)\d{1,2}(?:,\d{2})+,\d{3}(?![\d,])(?:\.\d+)?")
_EUROPEAN: Final = re.compile(
    r"(?<![\d.,])\d{1,3}(?:\.\d{3})+,\d+(?![\d.,])|(?<![\d.,])\d{1,3}(?:\.\d{3}){2,}(?![\d.,])"
)
# Unit symbols after a number and a space: 5\,m  3~kg  9.8\ m/s^2  12 AU.
_UNIT_TAIL: Final = re.compile(
    r"(?:(?<=[\d}])|(?<=\\pi))((?:\s|\\[,;:! ]|~)+)"
    r"([A-Za-z]{1,4}(?:\^\{?-?\d\}?)?(?:[\s/*]{1,3}[A-Za-z]{1,4}(?:\^\{?-?\d\}?)?){0,3})\s*\.?\s*$"
)
_NAMES: Final = re.compile(r"[A-Za-z]+")
_DOLLAR: Final = re.compile(r"(?<!\\)\$")
_ROW_SKIP: Final = re.compile(r"(\\\\)\s*\[-?[\d.]+\s*(?:pt|em|ex|mm|cm)\]")
_DOUBLED: Final = re.compile(r"\\\\(?=[A-Za-z])")

_WRITTEN: Final = (
    ("{:}", ":"), ("{}^\\circ", "^\\circ"), ("per cent", "percent"), ("US\\$", "\\$"),
)  # fmt: skip
_VECTOR: Final = r"\\(?:vec|mathbf|boldsymbol|bm)"
_REWRITTEN: Final = tuple(
    (re.compile(pattern), plain)
    for pattern, plain in (
        (r"(?<!\d)(\d{1,2})点(\d\d)分?", r"\1:\2"),
        (r"\{([^{}]*)\\over(?![a-z])([^{}]*)\}", r"\\frac{\1}{\2}"),
        # TeX takes one digit where no brace stands: \frac12 is one half, \frac1{10} one tenth.
        (r"\\([dtc]?frac|[dt]?binom)\s*(\d)\s*(\d)(?!\d)", r"\\\1{\2}{\3}"),
        (r"\\([dtc]?frac|[dt]?binom)\s*(\d)\s*(?=[{\\A-Za-z])", r"\\\1{\2}"),
        (r"(?<=\d)!=(?=\s*\d)", "! ="),  # 5!=120
        # 135^{\text{o}}: a degree sign that was typed as a letter.
        (r"(?<=\d)\s*\^\s*(\{)?\\(?:text|mathrm)\{o\}(?(1)\})", r"^\\circ "),
        (r"(?<=\d)\s*[xX]\s*(?=10\s?\^)", r"\\times "),
        # 12^{th}, 12th
        (r"(?<=\d)\s*\^\s*(\{)?(\\(?:text|mathrm)\{)?(?:st|nd|rd|th)(?(2)\})(?(1)\})", ""),
        (r"(?<=\d)(?:st|nd|rd|th)$", ""),
        # A product of vectors does not commute.
        (rf"({_VECTOR}\{{\s*[A-Za-z]\s*\}})\s*\\times(?=\s*{_VECTOR})", r"\1\\text{ cross }"),
    )
)

_DROPPED: Final = frozenset(
    "big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr displaystyle textstyle "
    "scriptstyle limits nolimits quad qquad enspace thinspace hfill hfil rm bf it sf tt mathstrut "
    "nonumber therefore because middle , ; : ! ( ) [ ] / @ mathop mathrel mathbin strut left right "
    "mathbf boldsymbol bm pmb mathit mathsf mathtt mathcal mathscr mathfrak emph underline vec "
    "overrightarrow boxed fbox ensuremath notag smash Large large normalsize small "
    "hline checkmark qed blacksquare".split()
)
_ARGUMENT_DROPPED: Final = frozenset(
    "color textcolor colorbox hspace vspace hskip phantom vphantom hphantom tag label".split()
)
_TEXT: Final = frozenset(
    "text textrm textnormal textbf textit textsf texttt mbox hbox mathrm operatorname textup "
    "textsc mathord".split()
)
# Which token a command is; tokens hold no blanks.
_COMMANDS: Final[dict[str, Token]] = {
    command: (kind, text)
    for kind, text, *commands in map(str.split, lines("commands.txt"))
    for command in commands
}

FUNCTIONS: Final = frozenset(
    "sin cos tan cot sec csc arcsin arccos arctan arccot sinh cosh tanh coth asin acos atan log ln "
    "lg exp max min gcd lcm det arg Re Im cis sgn sign deg ker dim erf".split()
)
_GREEK: Final = frozenset(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau "
    "upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega hbar "
    "ell".split()
)
# Words that keep their meaning without a backslash or \text around them.
_PLAIN: Final[dict[str, Token]] = {
    "sqrt": ("f", "sqrt"), "pi": ("s", "\\pi"), "infinity": ("s", "oo"), "inf": ("s", "oo"),
    "infty": ("s", "oo"), "theta": ("s", "\\theta"), "alpha": ("s", "\\alpha"),
    "beta": ("s", "\\beta"), "lambda": ("s", "\\lambda"), "frac": ("f", "frac"),
    "binom": ("f", "binom"), "cbrt": ("f", "cbrt"), "abs": ("f", "abs"), "floor": ("f", "floor"),
    "ceil": ("f", "ceil"), "cup": ("o", "cup"), "choose": ("o", "choose"),
    "times": ("o", "*"), "union": ("o", "cup"),
}  # fmt: skip
_MONEY: Final = {"USD": "$", "EUR": "€", "GBP": "£", "INR": "₹", "Rs": "₹"}
_SHORT_WORDS: Final = frozenset(
    "and or no yes odd even mod cm mm km kg mg lb lbs oz ft yd mi hr min sec mph kmh mL ml dm nm "
    "gm hrs mins rad per DNE two one six ten the an not are was for see you any all but can has "
    "its our his her who of by it is day men dog egg boy pen hat toy hen pig cow gal".split()
)


@lru_cache(maxsize=1024)
def tokenize(text: str) -> tuple[Token, ...]:
    """Cut an answer into tokens; unknown characters stay as ``o`` tokens."""
    tokens: list[Token] = []
    _cut(_prepare(to_latex(text)), False, tokens)
    return tuple(tokens)


def _prepare(text: str) -> str:
    """Settle on the text what a token at a time could not see."""
    if text.startswith("**") and text.endswith("**"):
        text = text.strip("*")
    if text[:1] == "$" and text[1:2].isdigit() and text.count("$") == 1:
        text = f"\\{text}"  # money, and no formula
    if text.endswith("\\") and not text.endswith("\\\\"):
        text = text[:-1]  # a backslash-blank whose blank was trimmed
    if "\\\\" in text:
        text = _ROW_SKIP.sub(r"\1", text)
    if "\\\\" in text and "\\begin" not in text:
        text = _DOUBLED.sub(r"\\", text)
    for written, plain in _WRITTEN:
        text = text.replace(written, plain)
    if text.count("{,}") > 1:
        text = text.replace("{,}", ",")
    text = _GROUPS.sub(lambda run: _GROUP_MARKS.sub("", run[0]), text)
    if "," in text:
        text = _DECIMAL_COMMA.sub(".", text)
        text = _INDIAN.sub(lambda run: run[0].replace(",", ""), text)
    text = _EUROPEAN.sub(lambda run: run[0].replace(".", "").replace(",", "."), text)
    for pattern, plain in _REWRITTEN:
        text = pattern.sub(plain, text)
    text = _UNIT_TAIL.sub(_as_text, text)
    return text.replace("np.", "").replace("math.", "")


def _as_text(tail: re.Match[str]) -> str:
    r"""Write ``\,m`` as ``\text{ m}`` where every name after the space is a unit."""
    names = _NAMES.findall(tail[2])
    close = tail[1].isspace() or not tail[1]
    letter = close and len(names[0]) < 2 and "/" not in tail[2]
    if letter or not all(unit_named(name) for name in names):
        return tail[0]
    return f"\\text{{ {tail[2]}}}"


_BRACE: Final = re.compile(r"\\.|[{}]", re.DOTALL)


def _group_end(text: str, position: int) -> int:
    """Position after the brace that closes the one at ``at``; the end of the text if none does."""
    depth = 0
    for brace in _BRACE.finditer(text, position):
        if brace[0] == "{":
            depth += 1
        elif brace[0] == "}":
            depth -= 1
            if depth == 0:
                return brace.end()
    return len(text)


def _cut(text: str, prose: bool, out: list[Token], depth: int = 0) -> None:
    """Append the tokens of ``text``; in prose every run of letters is a word."""
    position, end = 0, len(text)
    while position < end:
        match = _TOKEN.match(text, position)
        assert match is not None
        position, kind, piece = match.end(), match.lastgroup, match[0]
        if kind == "space":
            continue
        if kind in ("num", "run"):
            out.append(("n", piece.rstrip(".")))
        elif kind == "word":
            _word(piece, prose, out)
        elif kind == "foreign":
            out.extend(foreign_tokens(piece))
        elif kind == "macro":
            position = _macro(piece[1:], text, position, prose, out, depth)
        elif kind == "rel":
            out.append(("r", "=" if piece == "==" else piece))
        elif kind == "op" or piece == '"':
            _operator(piece, prose, out)
        elif piece in "£€¥₹":
            out.append(("c", piece))
        elif piece != "$":
            out.append(("o" if not piece.isalpha() else "s", piece))


def _word(piece: str, prose: bool, out: list[Token]) -> None:
    if piece in _MONEY:
        out.append(("c", _MONEY[piece]))
    elif prose:
        out.append(("w", piece))
    elif piece in FUNCTIONS:
        out.append(("f", piece))
    elif piece in _PLAIN:
        out.append(_PLAIN[piece])
    elif piece.lower() in ("percent", "percentage", "pct"):
        out.append(("o", "%"))
    elif len(piece) >= 4 or piece in _SHORT_WORDS or _starts_sentence(piece):
        out.append(("w", piece))
    else:
        out.extend(("s", letter) for letter in piece)


def _starts_sentence(piece: str) -> bool:
    """Whether a short word has a capital alone; two of them name a segment."""
    low = piece.lower()
    return low in ("and", "or") or (low in _SHORT_WORDS and piece == low.capitalize())


def _operator(piece: str, prose: bool, out: list[Token]) -> None:
    if piece == "**":
        out.append(("o", "^"))
    elif piece.startswith("..."):
        out.append(("o", "..."))
    elif piece == "''" or (piece == '"' and out[-2:-1] == [("o", "'")]):
        out.extend((("o", "'"), ("o", "'")))
    elif piece == "~" or (piece in "{}" and prose):
        return
    else:
        out.append(("o", piece))


def _macro(name: str, text: str, position: int, prose: bool, out: list[Token], depth: int) -> int:
    """Append what one macro stands for and return the position after it."""
    if name in ("left", "right", "bigl", "bigr", "middle") and position < len(text):
        if text[position] == "|":
            out.append(("o", "|(" if name.endswith(("left", "l")) else "|)"))
            return position + 1
        return position + 1 if text[position] == "." else position
    if name in _DROPPED or name.isspace():
        return position
    if name in _ARGUMENT_DROPPED:
        brace = text.find("{", position)
        return (
            _group_end(text, brace) if brace >= 0 and not text[position:brace].strip() else position
        )
    if name in ("begin", "end"):
        return _environment(name, text, position, out)
    if name in _TEXT:
        return _text(name, text, position, out, depth)
    if name in _COMMANDS:
        out.append(_COMMANDS[name])
    elif name in FUNCTIONS:
        out.append(("f", name))
    elif name in _GREEK:
        out.append(("s", "\\" + name))
    elif name == '"' or name == "'":
        out.append(("o", name))
    else:
        out.append(("u", "\\" + name))
    return position


def _environment(name: str, text: str, position: int, out: list[Token]) -> int:
    brace = text.find("{", position)
    if brace < 0:
        return position
    after = _group_end(text, brace)
    kind = text[brace + 1 : after - 1].strip().rstrip("*")
    out.append(("b" if name == "begin" else "e", kind))
    if name == "begin" and kind in ("array", "tabular") and text[after : after + 1] == "{":
        after = _group_end(text, after)
    return after


def _text(name: str, text: str, position: int, out: list[Token], depth: int) -> int:
    r"""Append the words of ``\text{…}``; ``\mathrm{e}`` and the like are symbols."""
    while position < len(text) and text[position] in " *":
        position += 1
    if position >= len(text) or text[position] != "{" or depth > 8:
        return position
    after = _group_end(text, position)
    content = text[position + 1 : after - 1 if text[after - 1] == "}" else after]
    stripped = content.strip(" ~")
    if content == stripped and (stripped in FUNCTIONS or stripped in _PLAIN):
        out.append(("f", stripped) if stripped in FUNCTIONS else _PLAIN[stripped])
    elif name == "mathrm" and len(stripped) == 1 and stripped.isalpha() and content == stripped:
        counted = bool(out) and (out[-1][0] == "n" or out[-1][1] == "}") and stripped not in "ei"
        out.append(("w" if counted and unit_named(stripped) else "s", stripped))
    elif _DOLLAR.search(content):
        for index, part in enumerate(_DOLLAR.split(content)):
            _cut(part, index % 2 == 0, out, depth + 1)
    else:
        _cut(content, True, out, depth + 1)
    return after


def canonical(text: str) -> str:
    """Return the canonical form of an answer: its tokens, joined.

    Numbers lose leading zeros and trailing decimal zeros, so ``033`` and ``27.0`` are ``33`` and
    ``27``; an answer too long to be read stays as it is.
    """
    text = text.strip()
    if text.isdecimal() and text.isascii():
        return text.lstrip("0") or "0"
    if len(text) > MAX_CHARS:
        return text
    tokens = tokenize(text)
    if len(tokens) == 1 and tokens[0][0] == "n" and tokens[0][1].isdecimal():
        return tokens[0][1].lstrip("0") or "0"
    form = " ".join(map(_canonical_token, tokens))
    return "0" if form == "- 0" else form


def _canonical_token(token: Token) -> str:
    """Write one token; a leading zero stays, for it may mean something: 9:05."""
    kind, text = token
    if kind == "w" and len(text) == 1:
        return f'"{text}"'  # a unit such as m, and no letter
    if kind != "n" or "." not in text or "e" in text.lower():
        return text
    digits = text.rstrip("0").rstrip(".") or "0"
    return digits[1:] if digits.startswith("0.") else digits


# --- lists of tokens -----------------------------------------------------------------------------


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
