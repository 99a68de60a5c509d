r"""How an answer is found in a text, as one table: each rule with its example and its source.

``fired`` counts the real responses in which a pattern occurred: 3,040 labelled ones (GSM8K
solutions of four GPT-3 models, Qwen2.5-Math on MATH), 3,638 of the base models Rho-1-1B and 7B
(GSM8K, MATH) and 64 of SmolLM2-135M at temperature 1. ``tools/measure_grader.py --patterns`` counts
anew, in these or in a user's own responses. The first two sets were drawn with stop strings, so
what ends a turn or opens another task has its source in the format that a base model repeats.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple


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

_ITEM: Final = (
    r"(?:question|problem|exercise|example|task|instruction|input|prompt|query|"
    r"(?:homework|practice|word) problem|q)"
)
_OTHER: Final = r"(?:another|next|new|similar|different|second|third|related|follow-?up|bonus)"
_MARKS: Final = r"[#* \t\[(<【]*"
# Beginnings of another task: what stands behind them is no part of a response that has committed.
# They are sought in small letters.
OPENINGS: Final = (
    Pattern("role",
            r"\n[#* \t]*(?:user|human|assistant|system|student)[* \t]*(?:[:：]|(?=\n))",
            "another turn", "\nHuman: ", "Vicuna, Claude 2, ChatML as plain text"),
    Pattern("heading",
            rf"\n{_MARKS}(?:{_OTHER} )?{_ITEM}(?: statement)? ?(?:#?\d+ ?)?[*\])>】]*[ \t]*[:：]"
            rf"|\n{_MARKS}{_ITEM} ?#?\d+(?:[.)\]*]|[ \t]*(?=\n))"
            rf"|\n(?:#+|\*\*|\[)[ \t]*{_ITEM}[* \t\]]*(?=\n)",
            "another question", "\nQuestion: ", "few-shot prompts of GSM8K, MATH, Alpaca", 3),
    Pattern("heading in another language",
            rf"\n{_MARKS}(?:题目?|问题?|例题?|练习|題目?|問題?|質問|問い|문제|질문|вопрос|задача|"
            r"pregunta|problema|ejercicio|frage|aufgabe|exercice|problème|pergunta|exercício|"
            r"domanda|esercizio|câu hỏi|bài toán|soal|soru|swali|প্রশ্ন|ప్రశ్న|โจทย์)"
            r"[ \t]*(?:[一二三四五\d]+[ \t]*)?[*\])】]*[ \t]*(?:[:：】.]|(?=\n))"
            r"|\n[^\w\n]*(?:下一|另一|再来一)[道个]?题",
            "another question", "\n题目：", "prompts of MGSM and CMATH"),
    Pattern("rule",
            r"\n[ \t]*(?:-{3,}|\*{3,}|_{3,}|={3,})[ \t]*\n(?!\W{0,20}(?:the\s+)?(?:final|answer|"
            r"result|conclusion|summary|step|part|case|solution|therefore|thus|so|hence|check|"
            r"verif|note|最终|答案|结论|总结))",
            "another text", "\n---\n## ", "Markdown"),
    Pattern("announcement",
            rf"\n[^\n.$\\]{{0,60}}?\b{_OTHER}\s(?:\w+\s)?{_ITEM}\b",
            "another question", "\nHere is another problem", "chat"),
    Pattern("instruction",
            r"(?:reason|think) step by step|请(?:通过)?逐步推理"
            r"|put (?:your|the) (?:final )?answer (?:with)?in\s*\$?\\?boxed",
            "the prompt again", "\nPlease reason step by step", "prompts of Qwen2.5-Math"),
)  # fmt: skip

_LINK: Final = (
    r"(?:\s+(?:is|are|was|equals|becomes|(?:should|must|would|will)\s+be)\b(?:\s+(?:therefore|thus|"
    r"then|simply|equal\s+to|given\s+by)\b)?|\s*[:：=])"
)
_SUBJECT: Final = r"(?:\s+(?:to|for|of)\s+(?:the|this|our)\s+[a-z ]{3,40}?|\s+(?:i|we)\s+get)?"
# What states an answer outside of a box.
STATEMENTS: Final = (
    Pattern("box", r"\\f?boxed\b|\\fbox", "what it holds; the last one counts", r"\boxed{18}",
            "MATH", 961),
    Pattern("tag", r"<answer>|\"(?:final[_ ])?answer\"\s*:", "what it holds, if it is closed",
            "<answer>18</answer>", "R1 prompts, JSON"),
    Pattern("marker", r"####|^A:", "the rest of its line", "#### 18", "GSM8K", 2635),
    Pattern("phrase",
            r"(?:\b(?:answer|ans|(?:correct|right)\s+(?:option|choice))s?\b"
            rf"{_SUBJECT}\**{_LINK})",
            "its clause, if all of it is a value", "The answer is 18.",
            "few-shot prompts of GSM8K and Minerva", 3288),
    Pattern("phrase in Chinese",
            r"(?:答案?|选项)\s*(?:应?该?[是为]|等于|选|[:：])|故选\s*[:：]?",
            "its clause, if all of it is a value", "答案是18", "Qwen in Chinese, CMATH"),
)  # fmt: skip


def compiled(patterns: tuple[Pattern, ...], flags: int = re.IGNORECASE) -> re.Pattern[str]:
    """Compile patterns to one."""
    return re.compile("|".join(pattern.regex for pattern in patterns), flags)
