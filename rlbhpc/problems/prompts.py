"""Prompt templates: protocol strings in which ``{question}`` is the only placeholder.

A comparison of two models is one only if both saw the same bytes, so templates are files of their
own in ``templates/`` (a new prompt is one new file there), read as bytes and never formatted: a
brace in a question is a brace in the prompt. Where each text comes from stands in
``templates/README.md``.
"""

from __future__ import annotations

import difflib
import hashlib
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from rlbhpc.errors import UserError
from rlbhpc.problems.countdown import solve, trace_text
from rlbhpc.problems.problem import Problem

PLACEHOLDER: Final = "{question}"
#: The word that an arm has for its prompt where the best one is to be searched.
SEARCH: Final = "search"
# How Qwen2-VL and its successors mark an image; engines put the image's tokens in its place.
IMAGE: Final = "<|image_pad|>"
_TEMPLATES: Final = Path(__file__).with_name("templates")
# Control tokens of the chat formats in use. Others, such as <|begin_of_thought|>, some models were
# taught as plain text.
_MARK: Final = re.compile(
    r"<\|(?:im_start|im_end|im_sep|endoftext|begin_of_text|end_of_text|start_header_id"
    r"|end_header_id|eot_id|system|user|assistant|end|vision_start|vision_end|image_pad)\|>"
)


@dataclass(frozen=True)
class Prompt:
    """A prompt template.

    ``digest`` is 16 hex digits of SHA-256 over the template's UTF-8 bytes. ``without`` holds texts
    for the questions that are examples in ``text``, by :func:`question_key`.
    """

    name: str
    text: str
    digest: str
    without: Mapping[str, str] = field(default_factory=dict)

    @property
    def no_think(self) -> bool:
        """Whether it asks for the answer alone: ``no-think``, or a study's own of such a name."""
        return self.name.startswith("no-think")

    @property
    def marks(self) -> tuple[str, ...]:
        """The chat format's control tokens that the template writes, each once, in order."""
        return tuple(dict.fromkeys(_MARK.findall(self.text)))


def prompt_names() -> list[str]:
    """Names of the templates that come with the package."""
    return sorted(path.stem for path in _TEMPLATES.glob("*.txt"))


def get_prompt(name: str, folder: Path = Path()) -> Prompt:
    """Find a prompt template by name, or read the user's own (``.txt``) below ``folder``."""
    if name.endswith(".txt"):
        return _read_prompt(folder / name)
    if name not in prompt_names():
        near = difflib.get_close_matches(name, prompt_names(), n=1)
        hint = f"; nearest: {near[0]}" if near else ""
        raise UserError(
            f"prompt {name!r} is unknown{hint}; allowed: {', '.join(prompt_names())}, "
            "or the path of a template that ends in .txt"
        )
    return _shipped_prompt(name)


@cache
def _shipped_prompt(name: str) -> Prompt:
    return _read_prompt(_TEMPLATES / f"{name}.txt")


def _read_prompt(path: Path) -> Prompt:
    """Read a template byte for byte; its name is the file's, and its digest is of these bytes."""
    try:
        # Bytes, since text mode would turn \r\n into \n and so change the protocol.
        raw = path.read_bytes()
        text = raw.decode("utf-8")
    except OSError as error:
        raise UserError(f"prompt template {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"prompt template {path}: not UTF-8 at byte {error.start}") from None
    if PLACEHOLDER not in text:
        raise UserError(f"prompt template {path}: {PLACEHOLDER} stands nowhere in it")
    return Prompt(path.stem, text, hashlib.sha256(raw).hexdigest()[:16])


def render(prompt: Prompt, problem: Problem) -> str:
    """Put the problem's question into the template, literally and in one pass.

    An image mark is the text at which the model is shown an image. There must be as many marks as
    the problem has images, or the question would be about a figure that the model never sees.
    ``without`` has texts for the questions that are themselves examples in the template.
    """
    marks = prompt.text.count(IMAGE)
    if marks != len(problem.images):
        raise UserError(
            f"prompt {prompt.name!r} shows {marks} images ({IMAGE}) and problem {problem.id!r} "
            f"has {len(problem.images)}; take a prompt with as many image marks"
        )
    question = problem.fields["question"]
    text = prompt.text
    if prompt.without:
        text = prompt.without.get(question_key(question), text)
    return text.replace(PLACEHOLDER, question)


def question_key(question: str) -> str:
    """The words of a question, by which copies of it are known, whatever their case and spaces."""
    return " ".join(question.split()).casefold()


def check_tokens(
    prompt: Prompt,
    ids: Sequence[int],
    bos_id: int | None,
    encode: Callable[[str], Sequence[int]],
) -> None:
    """Refuse a prompt whose tokens a model was never trained on.

    Two mistakes show only as lower scores: a beginning-of-sequence token that both the template and
    the tokenizer have written, and a chat format that is not this model's, whose control tokens
    then fall apart into ordinary ones. ``ids`` are the tokens of the whole prompt, ``marks`` the
    control tokens that the template writes as text. ``encode`` adds no special tokens. ``bos_id``
    is the model's beginning-of-sequence token, if it has one.
    """
    # Further on it may be part of the format: SmolLM2 begins a text and every turn with one token.
    if bos_id is not None and list(ids[:2]) == [bos_id, bos_id]:
        raise UserError(
            f"prompt {prompt.name!r}: a prompt begins with two beginning-of-sequence tokens "
            f"({bos_id}); tokenise without added special tokens, or take it out of the template"
        )
    for mark in prompt.marks:
        token_count = len(encode(mark))
        if token_count != 1:
            raise UserError(
                f"prompt {prompt.name!r}: {mark} is {token_count} tokens for this model, "
                "not one, so the template is not in this model's chat format; take the prompt of "
                "its own format, or `completion` for a base model without one"
            )


# ---- shots ---------------------------------------------------------------------------------------
# Worked examples before a question: which problems they are, and what they answer.


Shot = tuple[str, str]
"""A question and its worked answer."""


def draw_shots(problems: Sequence[Problem], n: int, seed: int, source: str) -> list[Shot]:
    """Draw ``n + 1`` worked examples of a set, all different, in a seeded order.

    A *shot* is a question with its worked answer. Every question is shown the first ``n``; one that
    is itself among them is shown the last in place of itself. So a problem never sees its own
    answer, and all others see the same examples. ``source`` names the set in messages.
    """
    order = list(problems)
    random.Random(f"shots/{seed}").shuffle(order)
    shots = list(_distinct_shots(order, n + 1))
    if len(shots) <= n:
        raise UserError(
            f"{source} has {len(shots)} problems with a worked answer and no image; {n} shots need"
            f" {n + 1}, since a problem is never its own example"
        )
    return shots


def _distinct_shots(problems: Sequence[Problem], count: int) -> Iterator[Shot]:
    """Yield up to ``count`` worked examples of different questions.

    A *shot* is a question with its worked answer. Left out are problems without an answer, with
    images, or with the text ``{question}`` in them, which a template would replace. `question_key`
    takes questions that differ in case or spaces for the same.
    """
    shown: set[str] = set()
    for problem in problems:
        question = problem.fields["question"]
        answer = worked_answer(problem)
        has_placeholder = PLACEHOLDER in question or PLACEHOLDER in answer
        if not answer or problem.images or has_placeholder:
            continue
        if len(shown) < count and question_key(question) not in shown:
            shown.add(question_key(question))
            yield question, answer


def worked_answer(problem: Problem) -> str:
    """Return the answer that a worked example gives: the set's solution, ending in the answer.

    ``gold`` is the reference answer. A solution in mathematics that has no box gets a last line
    with the gold answer in one. Empty where there is neither solution nor gold.
    """
    extras = problem.extras
    if problem.verifier == "countdown":
        numbers, target = tuple(extras["numbers"]), extras["target"]
        return trace_text(solve(numbers, target, extras["operations"]) or [])
    if problem.verifier != "math" or "\\boxed" in problem.solution:
        return problem.solution or problem.gold
    box = f"The answer is $\\boxed{{{problem.gold}}}$." if problem.gold else ""
    return "\n".join(filter(None, (problem.solution, box)))
