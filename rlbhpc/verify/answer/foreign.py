"""Words of Chinese, Japanese and Russian in an answer: conjunctions, scales, measure words."""

from __future__ import annotations

from typing import Final

Token = tuple[str, str]

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
_CHANGES: Final = frozenset("百千万亿半多余或不非以上下倍成分")


def foreign_tokens(piece: str) -> list[Token]:
    """Read a run of another script: a word, of which a leading power of ten is cut off."""
    out: list[Token] = []
    while len(piece) > 1 and piece[0] in _SCALE_SIGNS and piece not in ("千克", "千米"):
        out.append(("w", piece[0]))
        piece = piece[1:]
    if piece[0] in _MEASURES and _CHANGES.isdisjoint(piece):
        piece = piece[0]  # 种方法: what is counted follows its measure word
    if "分之" in piece:
        bottom, _, top = piece.partition("分之")
        if bottom in _DIGITS and top in _DIGITS:
            out.extend(
                (("n", str(_DIGITS.index(top))), ("o", "/"), ("n", str(_DIGITS.index(bottom))))
            )
            return out
    token = _FOREIGN.get(piece.lower(), ("w", piece))
    if token is not None:
        out.append(token)
    return out
