"""Unicode mathematics written back as LaTeX, words of other scripts as tokens, and tables."""

from __future__ import annotations

import re
import unicodedata
from importlib import resources
from typing import Final


def lines(name: str) -> list[str]:
    """Lines of a file, without blank ones and comments."""
    text = resources.files("rlbhpc.verify.answer").joinpath(name).read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


Token = tuple[str, str]

_VULGAR: Final = "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒↉"

_GREEK: Final = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ϵ": "epsilon",
    "ζ": "zeta", "η": "eta", "θ": "theta", "ϑ": "theta", "κ": "kappa", "λ": "lambda", "μ": "mu",
    "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau", "φ": "phi",
    "ϕ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega", "Γ": "Gamma", "Δ": "Delta", "Θ": "Theta",
    "Λ": "Lambda", "Ξ": "Xi", "Π": "Pi", "Σ": "Sigma", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega",
}  # fmt: skip

_SIGNS: Final = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "﹣": "-", "⁃": "-",
    "×": r"\times ", "✕": r"\times ", "✖": r"\times ", "⋅": r"\cdot ", "·": r"\cdot ",
    "∙": r"\cdot ", "•": r"\cdot ", "÷": r"\div ", "∕": "/", "⁄": "/", "∶": ":",
    "±": r"\pm ", "∓": r"\mp ", "∞": r"\infty ", "≤": r"\le ", "≦": r"\le ", "⩽": r"\le ",
    "≥": r"\ge ", "≧": r"\ge ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "≅": r"\approx ",
    "≃": r"\approx ", "≡": r"\equiv ", "∈": r"\in ", "∪": r"\cup ", "∩": r"\cap ",
    "∅": r"\emptyset ", "⌀": r"\emptyset ", "∖": r"\setminus ", "ℝ": r"\mathbb{R}",
    "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}",
    "√": r"\sqrt ", "∛": r"\sqrt[3] ", "∜": r"\sqrt[4] ", "°": r"^\circ ", "º": r"^\circ ",
    "˚": r"^\circ ", "∘": r"\circ ", "′": "'", "’": "'", "‘": "'", "″": "''", "“": '"', "”": '"',
    "∠": r"\angle ", "△": r"\triangle ", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ",
    "⌉": r"\rceil ", "⟨": r"\langle ", "⟩": r"\rangle ", "〈": r"\langle ", "〉": r"\rangle ",
    "∣": "|", "…": r"\ldots ", "⋯": r"\ldots ", "→": r"\to ", "⇒": r"\implies ",
    "∑": r"\sum ", "∏": r"\prod ", "∫": r"\int ", "∂": r"\partial ", "∇": r"\nabla ",
    "ℏ": r"\hbar ", "∧": r"\land ", "∨": r"\lor ", "℃": r"^\circ C", "℉": r"^\circ F",
    "¢": r"\text{ cents}",
    "，": ",", "、": ",", "；": ";", "：": ":", "。": ".", "（": "(", "）": ")", "％": r"\%",
    "µ": r"\mu ", "✓": "", "✔": "",
    "\u2061": "", "\u200b": "", "\u200c": "", "\u200d": "", "\u2060": "",
    "\ufeff": "", "\u00ad": "", "£": "£", "€": "€", "¥": "¥", "₹": "₹",
}  # fmt: skip

_SUPER: Final = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni", strict=True))
_SUB: Final = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙₖₓ", "0123456789+-()nkx", strict=True))

# A fraction typed as raised digits, a slash and lowered ones: ³⁄₄.
_SMALL: Final = re.compile("([⁰¹²³⁴⁵⁶⁷⁸⁹]+)[⁄/∕]([₀₁₂₃₄₅₆₇₈₉]+)")
_RAISED: Final = re.compile(f"[{''.join(_SUPER)}]+")
_LOWERED: Final = re.compile(f"[{''.join(_SUB)}]+")
# A digit with a bar or a dot above it, as repeating decimals are typed.
_BARRED: Final = re.compile("(?:\\d[\u0304\u0305])+")
_DOTTED: Final = re.compile("(\\d)\u0307")
_ROOT: Final = re.compile(r"[√∛∜]\s*(\d+(?:\.\d+)?)")


def _vulgar(sign: str) -> str:
    top, bottom = unicodedata.normalize("NFKC", sign).split("⁄")
    return f"\\frac{{{top}}}{{{bottom}}}"


_TABLE: Final = str.maketrans(
    _SIGNS
    | {sign: f"\\{name} " for sign, name in _GREEK.items()}
    | {sign: _vulgar(sign) for sign in _VULGAR}
)


def _fraction(top: str, bottom: str) -> str:
    above = "".join(_SUPER[c] for c in top)
    below = "".join(_SUB[c] for c in bottom)
    return f"\\frac{{{above}}}{{{below}}}"


def to_latex(text: str) -> str:
    """Write Unicode mathematics as ASCII LaTeX; what has no such form stays as it is.

    Superscripts and vulgar fractions go first: NFKC would turn ``x²`` into ``x2`` and ``3½`` into
    ``31/2``.
    """
    if text.isascii():
        return text
    text = _SMALL.sub(lambda run: _fraction(run[1], run[2]), text)
    text = _RAISED.sub(lambda run: "^{" + "".join(_SUPER[c] for c in run[0]) + "}", text)
    text = _LOWERED.sub(lambda run: "_{" + "".join(_SUB[c] for c in run[0]) + "}", text)
    text = _BARRED.sub(lambda run: "\\overline{" + run[0][::2] + "}", text)
    text = _DOTTED.sub(r"\\dot{\1}", text)
    text = _ROOT.sub(lambda root: root[0][0] + "{" + root[1] + "}", text)
    text = text.translate(_TABLE)
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", text)
    # NFKC leaves the digits of other scripts alone, and may bring back signs of the table.
    text = "".join(
        str(unicodedata.decimal(c)) if not c.isascii() and c.isdecimal() else c for c in text
    )
    return text.translate(_TABLE)


# --- other scripts: conjunctions, scales, measure words ------------------------------------------


_FOREIGN: Final[dict[str, Token | None]] = {
    "或": ("w", "or"), "或者": ("w", "or"), "или": ("w", "or"), "和": ("w", "and"),
    "以及": ("w", "and"), "且": ("w", "and"), "и": ("w", "and"), "无解": ("w", "emptyset"),
    "空集": ("w", "emptyset"), "故选": None, "选": None, "答案": None, "答案是": None,
    "答案为": None,
    "答": None, "共": None, "共有": None, "一共": None, "一共有": None, "总共": None,
    "总共有": None, "约": None, "约为": None, "です": None, "ответ": None,
    "还剩": None, "还有": None, "剩下": None,
    "或是": ("w", "or"), "因此": None, "所以": None, "故": None, "是": None, "为": None,
}  # fmt: skip
_DIGITS: Final = ("零", *"一二三四五六七八九十")
_SCALE_SIGNS: Final = "百千万亿"
_MEASURES: Final = frozenset("个只名种次张本件条辆棵支颗位套组对道间朵個块页")
# Signs that make another number of what stands before them, or deny it.
_CHANGES: Final = frozenset("百千万亿半多余或不非以上下倍成分打双")


def is_chinese_noun(word: str) -> bool:
    """Whether a word in Chinese counts things, and neither changes nor denies a number."""
    return "\u4e00" <= word[0] <= "\u9fff" and _CHANGES.isdisjoint(word)


def foreign_tokens(piece: str) -> list[Token]:
    """Read a run of another script: a word, of which a leading power of ten is cut off."""
    out: list[Token] = []
    while len(piece) > 1 and piece[0] in _SCALE_SIGNS and piece not in ("千克", "千米"):
        out.append(("w", piece[0]))
        piece = piece[1:]
    if piece[0] in _MEASURES and _CHANGES.isdisjoint(piece):
        piece = piece[0]  # 种方法: what is counted follows its measure word
    bottom, _, top = piece.partition("分之")
    if bottom in _DIGITS and top in _DIGITS:
        out.extend((("n", str(_DIGITS.index(top))), ("o", "/"), ("n", str(_DIGITS.index(bottom)))))
        return out
    token = _FOREIGN.get(piece.lower(), ("w", piece))
    if token is not None:
        out.append(token)
    return out
