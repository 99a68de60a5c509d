"""Where a response ends, token by token, with a tokeniser of one byte a token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlbhpc.engines.completion import Finish, Request
from rlbhpc.engines.tiny import SPECIAL, byte_tokenizer
from rlbhpc.engines.tokens import StopText, Tokens, before_stop
from rlbhpc.errors import UserError
from rlbhpc.problems.prompts import Prompt
from rlbhpc.study.keys import Sampling

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokens")
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tokens(folder: Path) -> Tokens:
    return Tokens(folder)


def stopping(tokens: Tokens, *stop: str, ids: tuple[int, ...] = ()) -> StopText:
    return StopText(tokens, Sampling(1.0, 1.0, 99, stop=stop, stop_token_ids=ids))


END = 256


@pytest.mark.parametrize(
    ("text", "end", "expected", "finish"),
    [
        ("so 4", None, "so 4", Finish.LENGTH),
        ("so 4", END, "so 4", Finish.EOS),
        ("so STOP 4", None, "so ", Finish.STOP_STRING),
        ("a END b STOP", None, "a ", Finish.STOP_STRING),
        ("so STOP", END, "so ", Finish.STOP_STRING),
        ("so 4", ord("!"), "so 4", Finish.EOS),  # a stop token leaves no text
        ("so! 4", None, "so! 4", Finish.LENGTH),
    ],
)
def test_a_response_ends_at_its_first_stop(
    tokens: Tokens, text: str, end: int | None, expected: str, finish: Finish
) -> None:
    mark = tokens.encode("!")
    stop = stopping(tokens, "STOP", "END", ids=mark)
    last = [] if end is None else [end if end == END else mark[0]]
    ids = np.array([*tokens.encode(text), *last], np.int32)
    numbers = np.arange(len(ids), dtype=np.float32)
    done = stop.complete(Request(3, (1,), 5), ids, -numbers, numbers)
    assert (done.tag, done.text, done.finish, done.error) == (3, expected, finish, "")
    assert done.token_ids is ids
    assert (done.logprobs == -numbers).all() and (done.entropies == numbers).all()


@pytest.mark.parametrize(
    ("text", "reached"),
    [
        ("so", False), ("so STO", False), ("so STOP", True), ("STOP", True),
        ("so STOP" + "." * 30, False),
    ],
)  # fmt: skip
def test_a_stop_string_is_looked_for_at_the_end(tokens: Tokens, text: str, reached: bool) -> None:
    row = np.array([*tokens.encode(text), *[9] * 20], np.int32)
    length = len(tokens.encode(text))
    assert stopping(tokens, "STOP").reached(row, length) is reached
    assert stopping(tokens).reached(row, length) is False
    # The last token alone is what may complete it: a tail of a few tokens is read.
    assert stopping(tokens, "aé", "STOP").tail == 4 + 8


def test_the_first_of_several_stops_cuts() -> None:
    assert before_stop("a b c", ("c", "b")) == ("a ", True)
    assert before_stop("a b c", ("d",)) == ("a b c", False)
    assert before_stop("a", ("a",)) == ("", True)


def test_a_stop_token_that_there_is_not_is_refused(folder: Path, tokens: Tokens) -> None:
    stopping(tokens, ids=(0, 258))
    with pytest.raises(UserError) as refused:
        stopping(tokens, ids=(0, 259))
    assert str(refused.value) == (
        f"sampling.stop_token_ids: the model of {folder} has no token 259; allowed: 0 to 258"
    )


def write(folder: Path, **files: Any) -> Path:
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_ends_are_those_of_all_files_and_of_the_tokeniser(tmp_path: Path) -> None:
    byte_tokenizer().save_pretrained(tmp_path)
    assert Tokens(tmp_path).eos == {END}
    write(tmp_path, config={"eos_token_id": 5}, generation_config={"eos_token_id": [7, 8]})
    tokens = Tokens(tmp_path)
    assert tokens.eos == {5, 7, 8, END} and tokens.end == END
    write(tmp_path, config={"eos_token_id": None}, generation_config={})
    assert Tokens(tmp_path).eos == {END}
    no_end = byte_tokenizer()
    no_end.eos_token = None
    no_end.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="names an end-of-text token, so no response would ever en"):
        Tokens(tmp_path)
    write(tmp_path, config={"eos_token_id": [9, 3]})
    assert Tokens(tmp_path).end == 3


def test_a_second_beginning_of_text_is_dropped(tmp_path: Path) -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = byte_tokenizer()
    tokenizer.bos_token = SPECIAL[1]
    begin = tokenizer.convert_tokens_to_ids(SPECIAL[1])
    tokenizer._tokenizer.post_processor = TemplateProcessing(
        single=f"{SPECIAL[1]} $A", special_tokens=[(SPECIAL[1], begin)]
    )
    tokenizer.save_pretrained(tmp_path)
    tokens = Tokens(tmp_path)
    a = tokens.tokenizer("a", add_special_tokens=False)["input_ids"]
    assert tokens.encode_all(["a", f"{SPECIAL[1]}a"]) == [(begin, *a)] * 2
    assert tokens.encode("") == (begin,)
    tokens.check_prompt(Prompt("chat", SPECIAL[2], "0" * 16), "a")
    assert tokens.decode([begin, *a, END]) == "a"
    spaced = "it 's , no ."
    assert tokens.decode(tokens.encode(spaced)) == spaced
