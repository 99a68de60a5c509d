"""Prompts that a study makes: examples, chat formats, system turns, the switch for thinking."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rlbhpc.errors import UserError
from rlbhpc.problems.prompts import render
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study

# Qwen3's and Llama's formats, as far as their order of turns and the switch go.
CHAT = (
    "{{ bos_token }}{%- for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content | trim }}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{ '<think>\n\n</think>\n\n' }}{%- endif %}{% endif %}"
)
SHOTS = "{template: completion, shots: {from: math-train, n: 2, seed: 5}}"


@pytest.fixture
def chatty(study_file: Path) -> Path:
    config = {"chat_template": CHAT, "bos_token": {"content": "<s>"}, "eos_token": "<|im_end|>"}
    (study_file.parent / "models/base/tokenizer_config.json").write_text(json.dumps(config))
    return study_file


def with_prompt(study_file: Path, entry: str) -> Study:
    return load_study(study_file, [f"prompts={{mine: {entry}}}", "arms.base.prompt=mine"])


def test_examples_are_worked_solutions_and_never_the_problem_itself(study_file: Path) -> None:
    study = with_prompt(study_file, SHOTS)
    prompt = study.prompts["mine"]
    problems = study.problems("math500") + study.problems("math-train")
    assert len(prompt.without) == 2
    replaced = 0
    for problem in problems:
        text = render(prompt, problem)
        *examples, last = text.split("\n\n")
        assert last == f"Question: {problem.fields['question']}\nAnswer: "
        assert len(examples) == 2
        assert all(
            re.fullmatch(r"Question: What is (\d) \+ 1\?\nAnswer: \\boxed{\d}", e) for e in examples
        )
        assert problem.fields["question"] not in "".join(examples)
        replaced += prompt.text.rpartition("Question:")[0] != text.rpartition("Question:")[0]
    assert replaced == 2


def test_examples_are_part_of_the_fingerprint(study_file: Path) -> None:
    def prints(entry: str) -> set[int]:
        return set(
            with_prompt(study_file, entry).block("base", "math-train", 0).fingerprints.tolist()
        )

    before = prints(SHOTS)
    assert before == prints(SHOTS)
    for other in (SHOTS.replace("n: 2", "n: 1"), SHOTS.replace("seed: 5", "seed: 6")):
        assert not before & prints(other)
    # Another solution, which no fingerprint of the set's own problems knows of.
    file = study_file.parent / "math500.jsonl"
    file.write_text(file.read_text().replace('"solution": "', '"solution": "So '))
    assert not before & prints(SHOTS)


def test_the_study_goes_through_json_with_its_examples(study_file: Path) -> None:
    study = with_prompt(study_file, SHOTS)
    again = Study.from_json(study.to_json())
    assert again.prompts == study.prompts and again.hash == study.hash


def test_sets_that_give_examples_are_answered_by_who_names_them(study_file: Path) -> None:
    shots = SHOTS.replace("math-train, n: 2", "math500, n: 1")
    assert with_prompt(study_file, shots).sets("base") == ()
    named = load_study(
        study_file, [f"prompts={{mine: {shots}}}", "arms.base.problem_sets=[math500]"]
    )
    assert named.sets("base") == ("math500",)


def test_a_chat_format_has_system_examples_and_question_in_turns(chatty: Path) -> None:
    entry = "{chat: base, system: Be brief., shots: {from: math500, n: 1}, thinking: true}"
    study = with_prompt(chatty, entry)
    text = study.prompts["mine"].text
    turns = re.findall(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", text)
    assert [role for role, _ in turns] == ["system", "user", "assistant", "user"]
    assert turns[0][1] == "Be brief." and turns[-1][1] == "{question}"
    assert turns[2][1] == f"\\boxed{{{int(turns[1][1][8]) + 1}}}"
    assert text.startswith("<s><|im_start|>") and text.endswith("<|im_start|>assistant\n")


def test_thinking_is_switched_by_the_models_own_format(chatty: Path) -> None:
    on, off = (
        with_prompt(chatty, f"{{chat: base, thinking: {word}}}") for word in ("true", "false")
    )
    assert off.prompts["mine"].text.endswith("<think>\n\n</think>\n\n")
    assert "think" not in on.prompts["mine"].text
    assert on.prompts["mine"].digest != off.prompts["mine"].digest


def test_a_chat_format_may_have_a_file_of_its_own(chatty: Path) -> None:
    folder = chatty.parent / "models/base"
    config = {"chat_template": [{"name": "default", "template": CHAT}], "bos_token": None}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    text = with_prompt(chatty, "{chat: base}").prompts["mine"].text
    assert text == "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    own = "{% for message in messages %}\n  {% if loop.first %}\n{{ messages | tojson }}\n"
    end = "  {% endif %}\n  {% break %}\n{% endfor %}"
    (folder / "chat_template.jinja").write_text(own + end)
    text = with_prompt(chatty, "{chat: base, system: é}").prompts["mine"].text
    assert text == (
        '[{"role": "system", "content": "é"}, {"role": "user", "content": "{question}"}]\n'
    )
    (folder / "tokenizer_config.json").write_text("[]")
    with pytest.raises(UserError, match=r"models/base: no tokenizer_config\.json that can be read"):
        with_prompt(chatty, "{chat: base}")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("{template: completion}", "give `chat`, `shots` or both"),
        ("{system: Be brief., shots: {from: math500, n: 1}}", "name a model in `chat`"),
        ("{chat: nobody}", "unknown model 'nobody'"),
        ("{chat: far}", "model far has no folder of its own"),
        ("{chat: line}", "model line has no folder of its own"),
        ("{template: qwen-boxed, shots: {from: math500, n: 1}}", "examples are turns of their own"),
        ("{template: completion, shots: {from: math500, n: 9}}", "9 shots need 10"),
        ("{template: completion, shots: {from: nothing, n: 1}}", "unknown problem set 'nothing'"),
        ("{template: completion, shots: {from: math500, n: 0}}", "allowed: a whole number from 1"),
    ],
)
def test_what_cannot_be_made_is_told_in_one_line(chatty: Path, entry: str, words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)) as error:
        with_prompt(chatty, entry)
    assert "\n" not in str(error.value) and "prompts.mine" in str(error.value)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (CHAT.replace("enable_thinking", "other"), "cannot switch thinking"),
        ("{{ raise_exception('no system turn') }}", "no system turn"),
        ("{{ messages.__class__.__mro__ }}", "refuses this prompt"),
        ("{% for", "refuses this prompt"),
        ("Hello", "leaves the question out"),
        (None, "it has no chat format"),
        ([{"name": "tools", "template": CHAT}], "it has no chat format"),
        ([{"name": "default", "template": "Hello"}], "leaves the question out"),
    ],
)
def test_a_chat_format_that_cannot_do_it_is_told(
    chatty: Path, template: object, words: str
) -> None:
    config = chatty.parent / "models/base/tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": template}))
    setting = ", thinking: true" if words == "cannot switch thinking" else ""
    with pytest.raises(UserError, match=words):
        with_prompt(chatty, f"{{chat: base{setting}}}")
