"""Golden texts of every prompt, and what rendering and checking must not get wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.prompts import check_tokens, get_prompt, prompt_names, render

SYSTEM = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"

# Written out here a second time, so that no editor, hook or checkout can change a protocol unseen.
GOLDEN = {
    "qwen-boxed": SYSTEM + "<|im_start|>user\nQ\nPlease reason step by step, and put your final "
    "answer within \\boxed{}.<|im_end|>\n<|im_start|>assistant\n",
    "qwen-math-cot": "<|im_start|>system\nPlease reason step by step, and put your final answer "
    "within \\boxed{}.<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n",
    "r1-verl": "A conversation between User and Assistant. The user asks a question, and the "
    "Assistant solves it. The assistant first thinks about the reasoning process in the mind and "
    "then provides the user with the answer. The reasoning process and answer are enclosed within "
    "<think> </think> and <answer> </answer> tags, respectively, i.e., <think> reasoning process "
    "here </think> <answer> answer here </answer>. User: Q\nAssistant:",
    "r1-answer": "A conversation between User and Assistant. The user asks a question, and the "
    "Assistant solves it. The Assistant reasons step by step and puts the final answer within "
    "<answer> </answer> tags, i.e., <answer> answer here </answer>. User: Q\nAssistant:",
    "dapo": SYSTEM + "<|im_start|>user\nSolve the following math problem step by step. The last "
    "line of your response should be of the form Answer: $Answer (without quotes) where $Answer is "
    "the answer to the problem.\n\nQ\n\nRemember to put your answer on its own line after "
    '"Answer:".<|im_end|>\n<|im_start|>assistant\n',
    "dapo-large-k": "A conversation between user and assistant. The user asks a question, and the "
    "assistant solves it. The time limit is set to 20,480 tokens. If the assistant's response "
    "exceeds this limit, a progressively increasing penalty with the number of tokens exceeded "
    "will be applied.\nuser\nSolve the following math problem step by step. The last line of your "
    "response should be of the form Answer: $Answer (without quotes) where $Answer is the answer "
    'to the problem.\nQ\nRemember to put your answer on its own line after "Answer:".\nassistant',
    "code-r1": "<|im_start|>system\nYou are a helpful programming assistant. The user will ask you "
    "a question and you as the assistant solve it. The assistant first thinks how to solve the "
    "task through reasoning and then provides the user with the final answer. The reasoning "
    "process and answer are enclosed within <think>...</think> and <answer>...</answer> tags, "
    "respectively.<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n",
    "livecodebench": SYSTEM + "<|im_start|>user\nYou will be given a question (problem "
    "specification) and will generate a correct Python program that matches the specification and "
    "passes all tests. You will NOT return anything except for the program.\n\nQuestion: Q\n\n"
    "<|im_end|>\n<|im_start|>assistant\n```python\n",
    "evalplus": "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
    "assistant.<|im_end|>\n<|im_start|>user\nPlease provide a self-contained Python script that "
    "solves the following problem in a markdown code block:\n```\nQ\n```\n<|im_end|>\n"
    "<|im_start|>assistant\nBelow is a Python script with a self-contained function that solves "
    "the problem and passes corresponding tests:\n```python\n",
    "easyr1": "<|im_start|>system\nYou FIRST think about the reasoning process as an internal "
    "monologue and then provide the final answer.\n The reasoning process MUST BE enclosed within "
    "<think> </think> tags. The final answer MUST BE put in \\boxed{}.<|im_end|>\n"
    "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Q<|im_end|>\n<|im_start|>assistant\n",
    "simplerl-abel": "Question:\nQ\nAnswer:\nLet's think step by step.\n",
    "open-reasoner": "A conversation between User and Assistant. The User asks a question, and the "
    "Assistant solves it. The Assistant first thinks about the reasoning process in the mind and "
    "then provides the User with the answer. The reasoning process is enclosed within <think> "
    "</think> and answer is enclosed within <answer> </answer> tags, respectively, i.e., <think> "
    "reasoning process here </think> <answer> answer here </answer>. User: You must put your "
    "answer inside <answer> </answer> tags, i.e., <answer> answer here </answer>. And your final "
    "answer will be extracted automatically by the \\boxed{} tag.\nThis is the problem:\nQ\n"
    "Assistant: <think>",
    "boxed": "Q\nPlease reason step by step, and put your final answer within \\boxed{}.",
    "completion": "Question: Q\nAnswer: ",
    "completion-boxed": (
        "Question: Q\nPlease reason step by step, and put your final answer within \\boxed{}.\n"
        "Answer: "
    ),
    "no-think": SYSTEM + "<|im_start|>user\nQ\nGive the final answer alone, within \\boxed{}. Do "
    "not reason, explain or calculate in writing.<|im_end|>\n<|im_start|>assistant\n",
    "countdown": "Q\n",
    "countdown-words": "Use every number on the left of the arrow exactly once, with +, - and *, "
    "to reach the number on the right: Q\nThink step by step, then write the expression after "
    '"Answer:".\n',
    "bare": "Q",
}


def problem(question: str, images: int = 0) -> Problem:
    return Problem("s/1", {"question": question}, "1", "math", images=(b"png",) * images)


def test_every_prompt_is_golden() -> None:
    assert prompt_names() == sorted(GOLDEN)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name: str) -> None:
    assert render(get_prompt(name), problem("Q", images=name == "easyr1")) == GOLDEN[name]


@given(st.text())
def test_questions_are_put_in_literally(question: str) -> None:
    text = render(get_prompt("qwen-boxed"), problem(question))
    assert text == GOLDEN["qwen-boxed"].replace("\nQ\n", f"\n{question}\n")


@pytest.mark.parametrize("question", ["{question}", "{}{0}{question!r}", r"\1 \g<0> $1 %s"])
def test_a_question_is_never_formatted(question: str) -> None:
    assert render(get_prompt("completion"), problem(question)) == f"Question: {question}\nAnswer: "


def test_a_studys_own_file_is_read_byte_for_byte(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_bytes("a\r\n{question}\r\n é ".encode())
    prompt = get_prompt("mine.txt", tmp_path)
    assert (prompt.name, render(prompt, problem("Q"))) == ("mine", "a\r\nQ\r\n é ")
    (tmp_path / "mine.txt").write_bytes("a\n{question}\r\n é ".encode())
    assert get_prompt("mine.txt", tmp_path).digest != prompt.digest


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"no place", "{question} stands nowhere"),
        (b"\xff{question}", "not UTF-8 at byte 0"),
        (None, "No such file"),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    if content is not None:
        (tmp_path / "p.txt").write_bytes(content)
    with pytest.raises(UserError) as told:
        get_prompt("p.txt", tmp_path)
    assert complaint in str(told.value) and str(tmp_path / "p.txt") in str(told.value)


def test_unknown_names_offer_the_nearest() -> None:
    with pytest.raises(UserError, match="nearest: qwen-boxed; allowed: bare, "):
        get_prompt("qwen_boxed")


def test_a_doubled_bos_is_refused() -> None:
    prompt = get_prompt("completion")
    check_tokens(prompt, [1, 7, 8], 1, lambda text: [7])
    check_tokens(prompt, [7, 8], None, lambda text: [7])
    check_tokens(prompt, [1, 7, 8, 1, 9], 1, lambda text: [7])
    with pytest.raises(UserError, match=r"begins with two beginning-of-sequence tokens \(1\)"):
        check_tokens(prompt, [1, 1, 7, 8], 1, lambda text: [7])


def test_a_foreign_chat_format_is_refused() -> None:
    known = {"<|im_start|>": [5], "<|im_end|>": [6]}
    check_tokens(get_prompt("qwen-boxed"), [5, 6], None, lambda text: known[text])
    with pytest.raises(UserError, match=r"<\|im_start\|> is 12 tokens for this model"):
        check_tokens(get_prompt("qwen-boxed"), [5, 6], 1, lambda text: list(text.encode()))
    # A prompt without marks suits every model.
    check_tokens(get_prompt("r1-verl"), [5, 6], 1, lambda text: list(text.encode()))


def test_too_few_or_too_many_images_are_refused() -> None:
    for name, images in (("qwen-boxed", 1), ("easyr1", 0), ("easyr1", 2)):
        with pytest.raises(UserError, match=f"has {images}"):
            render(get_prompt(name), problem("Q", images))
