r"""LaTeX, or what a model takes for it, as a flat list of tokens.

Everything that only styles an answer disappears here; what two writers write in two ways gets one
name. The tokens joined by blanks are the canonical form of an answer: equal canonical forms mean
the same answer.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from rlbhpc.verify.answer.value import table_lines


class Kind(StrEnum):
    """What a token is. ``commands.txt`` has the same words."""

    NUMBER = "number"
    SYMBOL = "symbol"  # a letter, or a macro that stands for one
    WORD = "word"
    FUNCTION = "function"
    RELATION = "relation"
    CURRENCY = "currency"
    BEGIN = "begin"  # of an environment
    END = "end"
    MARK = "mark"  # operators, brackets and punctuation
    UNKNOWN = "unknown"  # a macro that means nothing here


class Token(NamedTuple):
    """A piece of an answer."""

    kind: Kind
    text: str


Tokens: TypeAlias = Sequence[Token]


def mark(text: str) -> Token:
    """Return the token of an operator, a bracket or a punctuation mark."""
    return Token(Kind.MARK, text)


COMMA: Final = mark(",")
COLON: Final = mark(":")
OPEN_PARENTHESIS: Final = mark("(")
CLOSE_PARENTHESIS: Final = mark(")")
OPEN_BRACE: Final = mark("{")
CLOSE_BRACE: Final = mark("}")
EQUALS: Final = Token(Kind.RELATION, "=")
AND: Final = Token(Kind.WORD, "and")
OR: Final = Token(Kind.WORD, "or")

# Beyond this an answer is compared as text and not read at all.
MAX_CHARS: Final = 4000
_MAX_TEXT_DEPTH: Final = 8


# --- Unicode mathematics as LaTeX ----------------------------------------------------------------

_VULGAR_FRACTIONS: Final = "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒"

_GREEK_SIGNS: Final = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ϵ": "epsilon",
    "ζ": "zeta", "η": "eta", "θ": "theta", "ϑ": "theta", "κ": "kappa", "λ": "lambda", "μ": "mu",
    "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau", "φ": "phi",
    "ϕ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega", "Γ": "Gamma", "Δ": "Delta", "Θ": "Theta",
    "Λ": "Lambda", "Ξ": "Xi", "Π": "Pi", "Σ": "Sigma", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega",
}  # fmt: skip

_MATH_SIGNS: Final = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "﹣": "-",
    "×": r"\times ", "⋅": r"\cdot ", "·": r"\cdot ", "∙": r"\cdot ", "•": r"\cdot ",
    "÷": r"\div ", "∕": "/", "⁄": "/", "∶": ":",
    "±": r"\pm ", "∓": r"\mp ", "∞": r"\infty ", "≤": r"\le ", "≦": r"\le ", "⩽": r"\le ",
    "≥": r"\ge ", "≧": r"\ge ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "≅": r"\approx ",
    "≡": r"\equiv ", "∈": r"\in ", "∪": r"\cup ", "∩": r"\cap ", "∅": r"\emptyset ",
    "∖": r"\setminus ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}",
    "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}", "√": r"\sqrt ", "∛": r"\sqrt[3] ", "∜": r"\sqrt[4] ",
    "°": r"^\circ ", "º": r"^\circ ", "˚": r"^\circ ", "∘": r"\circ ",
    "′": "'", "’": "'", "‘": "'", "″": "''", "“": '"', "”": '"',
    "∠": r"\angle ", "△": r"\triangle ", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ",
    "⌉": r"\rceil ", "⟨": r"\langle ", "⟩": r"\rangle ", "∣": "|", "…": r"\ldots ",
    "⋯": r"\ldots ", "→": r"\to ", "⇒": r"\implies ", "∑": r"\sum ", "∏": r"\prod ",
    "∫": r"\int ", "∧": r"\land ", "∨": r"\lor ", "℃": r"^\circ C", "℉": r"^\circ F",
    "，": ",", "、": ",", "；": ";", "：": ":", "。": ".", "（": "(", "）": ")", "％": r"\%",
    "µ": r"\mu ", "✓": "", "\u2061": "", "\u200b": "", "\ufeff": "", "\u00ad": "",
    "£": "£", "€": "€", "¥": "¥", "₹": "₹",
}  # fmt: skip

_SUPERSCRIPTS: Final = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni", strict=True))
_SUBSCRIPTS: Final = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙₖₓ", "0123456789+-()nkx", strict=True))
_RAISED_RUN: Final = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_LOWERED_RUN: Final = re.compile(f"[{''.join(_SUBSCRIPTS)}]+")
# Digits with a bar above them, as repeating decimals are typed.
_BARRED_DIGITS: Final = re.compile("(?:\\d[\u0304\u0305])+")
_ROOT_OF_NUMBER: Final = re.compile(r"([√∛∜])\s*(\d+(?:\.\d+)?)")


def _write_vulgar_fraction(sign: str) -> str:
    top, bottom = unicodedata.normalize("NFKC", sign).split("⁄")
    return f"\\frac{{{top}}}{{{bottom}}}"


_UNICODE_TO_LATEX: Final = str.maketrans(
    _MATH_SIGNS
    | {sign: f"\\{name} " for sign, name in _GREEK_SIGNS.items()}
    | {sign: _write_vulgar_fraction(sign) for sign in _VULGAR_FRACTIONS}
)


def to_latex(text: str) -> str:
    """Write Unicode mathematics as ASCII LaTeX; what has no such form stays as it is.

    Superscripts and vulgar fractions go first: NFKC, which makes plain letters of special ones,
    would turn ``x²`` into ``x2`` and ``3½`` into ``31/2``.
    """
    if text.isascii():
        return text
    text = _RAISED_RUN.sub(lambda run: f"^{{{_translate(run[0], _SUPERSCRIPTS)}}}", text)
    text = _LOWERED_RUN.sub(lambda run: f"_{{{_translate(run[0], _SUBSCRIPTS)}}}", text)
    # Each digit is followed by the sign of its bar.
    text = _BARRED_DIGITS.sub(lambda run: f"\\overline{{{run[0][::2]}}}", text)
    text = _ROOT_OF_NUMBER.sub(r"\1{\2}", text)
    text = unicodedata.normalize("NFKC", text.translate(_UNICODE_TO_LATEX))
    return text.translate(_UNICODE_TO_LATEX)  # NFKC may bring back signs of the table


def _translate(signs: str, table: dict[str, str]) -> str:
    return "".join(table[sign] for sign in signs)


# --- the text before it is cut into tokens -------------------------------------------------------

# Digit groups whose separator can only be a thousands mark: 10{,}080  11,\! 111  1~000  1 000.
_DIGIT_GROUPS: Final = re.compile(
    r"(?<![\d.,_^])\d{1,3}(?:(?:,\s?\\!\s?|\s?\{\s*(?:,|\\,)\s*\}|\\[,;: ]|~| )\d{3})+(?![\d])"
)
_NO_DIGITS: Final = re.compile(r"[^\d]+")
_DOUBLED_BACKSLASH: Final = re.compile(r"\\\\(?=[A-Za-z])")
_VECTOR: Final = r"\\(?:vec|mathbf|boldsymbol|bm)"
_REWRITES: Final = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # TeX takes one digit where no brace stands: \frac12 is one half, \frac1{10} one tenth.
        (r"\\([dtc]?frac|[dt]?binom)\s*(\d)\s*(\d)(?!\d)", r"\\\1{\2}{\3}"),
        (r"\\([dtc]?frac|[dt]?binom)\s*(\d)\s*(?=[{\\A-Za-z])", r"\\\1{\2}"),
        # 12^{th}, 12th
        (r"(?<=\d)\s*\^\s*(\{)?(\\(?:text|mathrm)\{)?(?:st|nd|rd|th)(?(2)\})(?(1)\})", ""),
        (r"(?<=\d)(?:st|nd|rd|th)$", ""),
        # A product of vectors does not commute.
        (rf"({_VECTOR}\{{\s*[A-Za-z]\s*\}})\s*\\times(?=\s*{_VECTOR})", r"\1\\text{ cross }"),
    )
)


# A decimal with a bar over the digits that repeat.
_REPEATING_DECIMAL: Final = re.compile(
    r"(\d*)\.(\d*)\\(?:overline|bar|overbar)\s*\{(\d{1,200})\}(?:\\l?dots|\.\.\.)?"
)


def _write_as_fraction(decimal: re.Match[str]) -> str:
    r"""Write ``0.1\overline{6}`` as ``\frac{1}{6}``."""
    whole, decimals, period = decimal.groups()
    nines = int("9" * len(period) + "0" * len(decimals))
    value = Fraction(f"{whole or 0}.{decimals or 0}") + Fraction(int(period), nines)
    return f"\\frac{{{value.numerator}}}{{{value.denominator}}}"


def _normalize(text: str) -> str:
    """Return an answer's text with all settled that a token at a time could not show.

    That is a dollar sign that means money, doubled backslashes, and commas and blanks in numbers:
    ``10{,}080`` is 10080.
    """
    if text[:1] == "$" and text[1:2].isdigit() and text.count("$") == 1:
        text = f"\\{text}"  # money, and no formula
    if "\\\\" in text and "\\begin" not in text:
        text = _DOUBLED_BACKSLASH.sub(r"\\", text)
    text = text.replace("{}^\\circ", "^\\circ")
    text = _DIGIT_GROUPS.sub(lambda groups: _NO_DIGITS.sub("", groups[0]), text)
    text = _REPEATING_DECIMAL.sub(_write_as_fraction, text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return text.replace("np.", "")  # as Minerva writes np.arcsin


# --- tokens --------------------------------------------------------------------------------------

_PIECE: Final = re.compile(
    r"(?P<space>\s+)"
    # 1,234 may be a number or two: the reader, which knows what stands around it, decides.
    r"|(?P<grouped>(?<!\d,)\d{1,3}(?:,\d{3})+(?![\d,]|\.\d*,)(?:\.\d+)?)"
    r"|(?P<number>(?:\d+(?:\.\d+|\.(?=\s*/))?|\.\d+)(?:[eE][+-]?\d+(?!\d*[.a-zA-Z]))?)"
    r"|(?P<letters>[A-Za-z]+)"
    r"|(?P<other_script>[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0400-\u04ff]+)"
    r"|(?P<macro>\\(?:[A-Za-z]+|.))"
    r"|(?P<relation><=|>=|!=|==|=>|->|[=<>])"
    r"|(?P<mark>\.\.\.+|\*\*|''|[-+*/^_(){}\[\],;:!|&.%'\"~])"
    r"|(?P<other>.)",
    re.DOTALL,
)

# Macros that only style what they stand before.
_STYLES: Final = frozenset(
    "big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr displaystyle textstyle "
    "scriptstyle limits nolimits quad qquad enspace thinspace hfill hfil rm bf it sf tt mathstrut "
    "nonumber therefore because middle , ; : ! ( ) [ ] / @ mathop mathrel mathbin strut left right "
    "mathbf boldsymbol bm pmb mathit mathsf mathtt mathcal mathscr mathfrak emph underline vec "
    "overrightarrow boxed fbox ensuremath notag smash Large large normalsize small "
    "hline checkmark qed blacksquare".split()
)
# Macros that disappear with their argument.
_INVISIBLE: Final = frozenset(
    "color textcolor colorbox hspace vspace hskip phantom vphantom hphantom tag label".split()
)
_TEXT_MACROS: Final = frozenset(
    "text textrm textnormal textbf textit textsf texttt mbox hbox mathrm operatorname textup "
    "textsc mathord".split()
)


def _load_commands() -> dict[str, Token]:
    """Read which token each LaTeX command stands for."""
    commands = {}
    for line in table_lines("commands.txt"):
        kind, text, *names = line.split()
        commands.update(dict.fromkeys(names, Token(Kind(kind), text)))
    return commands


_COMMANDS: Final = _load_commands()

FUNCTION_NAMES: Final = frozenset(
    "sin cos tan cot sec csc arcsin arccos arctan arccot sinh cosh tanh coth asin acos atan log ln "
    "lg exp max min gcd lcm det arg Re Im deg ker dim".split()
)
_GREEK_MACROS: Final = frozenset(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau "
    "upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega hbar "
    "ell".split()
)
# Words that keep their meaning without a backslash or \text around them.
_BARE_COMMANDS: Final = {
    "sqrt": _COMMANDS["sqrt"], "frac": _COMMANDS["frac"],
    "infinity": _COMMANDS["infty"], "inf": _COMMANDS["infty"],
    "infty": _COMMANDS["infty"], "pi": Token(Kind.SYMBOL, "\\pi"), "cup": _COMMANDS["cup"],
    "theta": Token(Kind.SYMBOL, "\\theta"), "times": _COMMANDS["times"],
    "percent": mark("%"), "percentage": mark("%"), "pct": mark("%"),
}  # fmt: skip
# Words of two and three letters; any others are products of variables.
_SHORT_WORDS: Final = frozenset(
    "and or no yes odd even mod cm mm km kg mg lb lbs oz ft yd mi hr min sec mph kmh mL ml dm nm "
    "gm hrs mins rad per DNE two one six ten the an not are was for see you any all but can has "
    "its our his her who of by it is day men dog egg boy pen hat toy hen pig cow gal".split()
)
_CAPITALIZED_SHORT_WORDS: Final = frozenset(map(str.capitalize, _SHORT_WORDS))


@lru_cache(maxsize=1024)
def tokenize(text: str) -> tuple[Token, ...]:
    """Cut an answer into tokens; unknown characters stay as marks."""
    lexer = _Lexer()
    lexer.read(_normalize(to_latex(text)), is_prose=False)
    return tuple(lexer.tokens)


class _Lexer:
    """Collects the tokens of a text."""

    def __init__(self) -> None:
        self.tokens: list[Token] = []

    def append(self, kind: Kind, text: str) -> None:
        self.tokens.append(Token(kind, text))

    def read(self, text: str, is_prose: bool, depth: int = 0) -> None:
        r"""Append the tokens of a text to ``self.tokens``.

        ``is_prose``: the text stands in ``\text{…}``, so that every run of letters is a word and no
        product of variables. ``depth``: how deep such texts nest. ``_PIECE`` matches at any
        position; the name of the group that matched says of what sort the piece is. ``read_macro``
        may take an argument with it, so it returns where to go on.
        """
        position = 0
        while position < len(text):
            match = _PIECE.match(text, position)
            assert match is not None
            position = match.end()
            piece = match[0]
            if match.lastgroup in ("number", "grouped"):
                self.append(Kind.NUMBER, piece.rstrip("."))
            elif match.lastgroup == "letters":
                self.read_letters(piece, is_prose)
            elif match.lastgroup == "other_script":
                self.append(Kind.WORD, piece)
            elif match.lastgroup == "macro":
                position = self.read_macro(piece[1:], text, position, depth)
            elif match.lastgroup == "relation":
                self.append(Kind.RELATION, "=" if piece == "==" else piece)
            elif match.lastgroup == "mark":
                self.read_mark(piece, is_prose)
            elif piece in "£€¥₹":
                self.append(Kind.CURRENCY, piece)
            elif match.lastgroup == "other" and piece != "$":
                self.append(Kind.SYMBOL if piece.isalpha() else Kind.MARK, piece)

    def read_letters(self, letters: str, is_prose: bool) -> None:
        """Append a run of letters: one word, one function, or a product of variables.

        ``is_prose``: letters are words here whatever they spell. Elsewhere a run of up to three
        letters that is no known word is a product: ``xy`` is x times y.
        """
        if is_prose:
            self.append(Kind.WORD, letters)
        elif letters in FUNCTION_NAMES:
            self.append(Kind.FUNCTION, letters)
        elif letters in _BARE_COMMANDS:
            self.tokens.append(_BARE_COMMANDS[letters])
        elif len(letters) >= 4 or letters in _SHORT_WORDS or letters in _CAPITALIZED_SHORT_WORDS:
            self.append(Kind.WORD, letters)
        else:
            for letter in letters:
                self.append(Kind.SYMBOL, letter)

    def read_mark(self, text: str, is_prose: bool) -> None:
        r"""Append an operator or a punctuation mark under the name that all its spellings share.

        ``is_prose``: it stands in ``\text{…}``, where braces only group. ``**`` is a power, as in
        Python.
        """
        is_invisible = text == "~" or (is_prose and text in "{}")
        if text == "**":
            self.append(Kind.MARK, "^")
        elif text.startswith("..."):
            self.append(Kind.MARK, "...")
        elif text == "''":
            self.tokens += [mark("'"), mark("'")]
        elif not is_invisible:
            self.append(Kind.MARK, text)

    def read_macro(self, name: str, text: str, position: int, depth: int) -> int:
        r"""Append what a LaTeX macro stands for; return the position in the text to go on at.

        ``name`` is the macro without its backslash, ``position`` the one after it, ``depth`` how
        many ``\text{…}`` are open. Macros in ``_STYLES`` append nothing, those in ``_INVISIBLE``
        vanish with their argument; ``_COMMANDS`` maps the known ones to their tokens.
        ``_group_end`` is the position after the brace that closes a group.
        """
        if name in ("left", "right"):
            return position + 1 if text[position : position + 1] == "." else position
        if name in _STYLES or name.isspace():
            return position
        if name in _INVISIBLE:
            brace = text.find("{", position)
            has_argument = brace >= 0 and not text[position:brace].strip()
            return _group_end(text, brace) if has_argument else position
        if name in ("begin", "end"):
            return self.read_environment(name, text, position)
        if name in _TEXT_MACROS:
            return self.read_text_macro(name, text, position, depth)
        if name in _COMMANDS:
            self.tokens.append(_COMMANDS[name])
        elif name in FUNCTION_NAMES:
            self.append(Kind.FUNCTION, name)
        elif name in _GREEK_MACROS:
            self.append(Kind.SYMBOL, "\\" + name)
        else:
            self.append(Kind.UNKNOWN, "\\" + name)
        return position

    def read_environment(self, macro: str, text: str, position: int) -> int:
        r"""Append the begin or the end of an environment; return the position after its name.

        ``macro`` is ``begin`` or ``end``; the name follows ``position`` in braces. The columns of
        ``\begin{array}{cc}`` are skipped. ``_group_end`` is the position after the closing brace.
        """
        brace = text.find("{", position)
        if brace < 0:
            return position
        end = _group_end(text, brace)
        name = text[brace + 1 : end - 1].strip().rstrip("*")
        self.append(Kind.BEGIN if macro == "begin" else Kind.END, name)
        takes_columns = macro == "begin" and name in ("array", "tabular")
        has_columns = takes_columns and text[end : end + 1] == "{"
        return _group_end(text, end) if has_columns else end

    def read_text_macro(self, name: str, text: str, position: int, depth: int) -> int:
        r"""Append the content of ``\text{…}`` as words; return the position after it.

        ``name`` is the macro (``text``, ``mathrm``, …), ``position`` the one after it, ``depth``
        how many such texts are open. A text that holds a formula in dollar signs is read as
        mathematics.
        """
        while text[position : position + 1] in (" ", "*"):
            position += 1
        if text[position : position + 1] != "{" or depth > _MAX_TEXT_DEPTH:
            return position
        end = _group_end(text, position)
        content = text[position + 1 : end].removesuffix("}")
        if content in FUNCTION_NAMES or content in _BARE_COMMANDS:
            self.read_letters(content, is_prose=False)
        elif name == "mathrm" and content in _UPRIGHT_SYMBOLS:
            self.append(Kind.SYMBOL, content)
        else:
            is_prose = _DOLLAR.search(content) is None
            self.read(content, is_prose, depth + 1)
        return end


# Letters that some writers set upright, and no units.
_UPRIGHT_SYMBOLS: Final = frozenset("ei")
# A formula within a text: \text{$x$ or $y$}; \$ is money.
_DOLLAR: Final = re.compile(r"(?<!\\)\$")
_BRACE: Final = re.compile(r"\\.|[{}]", re.DOTALL)


def _group_end(text: str, position: int) -> int:
    r"""Return the position after the brace that closes the one at a position, or the text's end.

    ``_BRACE`` also matches escaped characters, so that ``\{`` counts as no brace.
    """
    depth = 0
    for brace in _BRACE.finditer(text, position):
        if brace[0] == "{":
            depth += 1
        elif brace[0] == "}":
            depth -= 1
            if depth == 0:
                return brace.end()
    return len(text)


# --- the canonical form --------------------------------------------------------------------------


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
    if len(tokens) == 1 and tokens[0].kind is Kind.NUMBER and tokens[0].text.isdecimal():
        return tokens[0].text.lstrip("0") or "0"
    form = " ".join(map(_canonical_token, tokens))
    return "0" if form == "- 0" else form


def _canonical_token(token: Token) -> str:
    """Return a token as the canonical form of an answer writes it: ``0.50`` and ``.5`` are ``.5``.

    The leading zero of an integer stays, for it may mean something: 9:05.
    """
    text = token.text
    if token.kind is Kind.WORD and len(text) == 1:
        return f'"{text}"'  # a unit such as m, and no letter
    if token.kind is not Kind.NUMBER or "." not in text or "e" in text.lower():
        return text
    digits = text.rstrip("0").rstrip(".") or "0"
    return digits[1:] if digits.startswith("0.") else digits


# --- lists of tokens -----------------------------------------------------------------------------

_CLOSING: Final = {"(": ")", "[": "]", "{": "}", "\\{": "\\}", "<(": ">)"}
_CLOSING_MARKS: Final = frozenset(_CLOSING.values())
_LIST_BRACKETS: Final = frozenset(("(", "[", "\\{", "<("))
_LIST_ENDS: Final = frozenset((")", "]", "\\}", ">)"))
_LIST_SEPARATORS: Final = frozenset((",", ";", "and", "or"))
_MEANINGLESS_WORDS: Final = frozenset("about approximately exactly roughly only both".split())


def settle_commas(tokens: Tokens, is_list_expected: bool) -> list[Token]:
    """Return the tokens with each ``1,234`` settled: a number, or a list of numbers.

    Within brackets, and where a list is expected, tight digit groups are a list, unless a group
    begins with a zero, or other separators stand outside of the groups. ``depth`` counts the
    brackets that are open.
    """
    has_separators = any(token.text in _LIST_SEPARATORS for token in tokens)
    settled: list[Token] = []
    depth = 0
    for token in tokens:
        depth += token.text in _LIST_BRACKETS
        depth -= token.text in _LIST_ENDS
        if token.kind is not Kind.NUMBER or "," not in token.text:
            settled.append(token)
            continue
        groups = token.text.split(",")
        may_be_list = depth > 0 or (is_list_expected and not has_separators)
        if may_be_list and not any(group.startswith("0") for group in groups[1:]):
            for group in groups:
                settled += [Token(Kind.NUMBER, group), COMMA]
            settled.pop()  # the comma behind the last group
        else:
            settled.append(Token(Kind.NUMBER, "".join(groups)))
    return settled


def split_at(tokens: Tokens, *separators: Token) -> tuple[list[Tokens], list[Token]]:
    """Split tokens at separators outside of all brackets; return the pieces and the separators.

    There is one piece more than separators, and a piece may be empty. ``_depths`` gives for each
    token how many brackets are open behind it.
    """
    if frozenset(separators).isdisjoint(tokens):
        return [tokens], []
    pieces: list[Tokens] = []
    separators_met: list[Token] = []
    start = 0
    for position, depth in enumerate(_depths(tokens)):
        if depth == 0 and tokens[position] in separators:
            pieces.append(tokens[start:position])
            separators_met.append(tokens[position])
            start = position + 1
    pieces.append(tokens[start:])
    return pieces, separators_met


def closes_at_end(tokens: Tokens) -> bool:
    """Whether the bracket that opens the tokens is closed by their last one."""
    for position, depth in enumerate(_depths(tokens)):
        if depth == 0:
            return position == len(tokens) - 1
    return False


def _depths(tokens: Tokens) -> Iterator[int]:
    """Yield for each token how many brackets and environments are open behind it."""
    depth = 0
    for kind, text in tokens:
        if kind is Kind.BEGIN or (kind is Kind.MARK and text in _CLOSING):
            depth += 1
        elif kind is Kind.END or (kind is Kind.MARK and text in _CLOSING_MARKS):
            depth -= 1
        yield depth


_TRAILING_MARKS: Final = frozenset(map(mark, (".", ",", ";", ":", '"', "\\\\")))
_LEADING_MARKS: Final = frozenset(map(mark, (",", ";", ":", '"')))


def trim(tokens: Tokens) -> Tokens:
    """Strip punctuation, quotes, empty words and braces around all tokens.

    ``closes_at_end`` says whether the brace at the beginning closes at the last token, so that the
    two enclose everything.
    """
    while tokens:
        first = tokens[0]
        if tokens[-1] in _TRAILING_MARKS:
            tokens = tokens[:-1]
        elif first in _LEADING_MARKS or first.text.lower() in _MEANINGLESS_WORDS:
            tokens = tokens[1:]
        elif first == OPEN_BRACE and len(tokens) > 1 and closes_at_end(tokens):
            tokens = tokens[1:-1]
        else:
            break
    return tokens


def texts_of(tokens: Tokens) -> tuple[str, ...]:
    """Return the texts of tokens."""
    return tuple(token.text for token in tokens)
