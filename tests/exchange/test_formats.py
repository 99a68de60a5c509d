"""A small file of every format: what is read of it, and what becomes of it when it is damaged."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest

from rlbhpc import exchange
from rlbhpc.errors import UserError
from rlbhpc.exchange.formats import FORMATS
from rlbhpc.store.compact import compact
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Status
from tests.exchange.made import (
    batch_request,
    batch_response,
    choice_row,
    evalplus_row,
    limit_row,
    nemo_row,
    prediction_row,
    take_in,
)

EXPECTED = Path(__file__).with_name("read.txt")


def originals() -> dict[str, str]:
    """A small whole file of every format that is text."""
    evalplus = {"hash": "x", "eval": {"t/0": [evalplus_row("t/0", "pass", "fail")]}}
    livecodebench = [
        {"question_id": "q", "output_list": ["a"], "code_list": ["b"], "graded_list": [True]}
    ]
    lm_eval = {
        "doc_id": 0, "target": "4", "resps": [["4"]], "filtered_resps": ["4"], "filter": "none",
        "exact_match": 1.0,
    }  # fmt: skip
    inspect = {
        "samples": [
            {"id": 1, "epoch": 1, "target": "4", "scores": {"match": {"value": "C", "answer": "4"}},
             "output": {"choices": [{"message": {"content": "4"}, "stop_reason": "stop"}],
                        "usage": {"output_tokens": 3}}}
        ]
    }  # fmt: skip
    return {
        "counts.csv": "problem,n,c\na,4,2\nb,4,0\nc,4,4\n",
        "scored.jsonl": '\n{"problem": "a", "sample": 1, "verdict": "right", "step": 2}\n\n',
        "samples.jsonl": json.dumps(lm_eval),
        "choices.jsonl": json.dumps(choice_row(0, ["-3.1", "-1.2"], 1.0)),
        "limit.jsonl": json.dumps(
            {**limit_row(0, "4", ["4", "5"]), "finish_reason": ["stop", "abort"]}
        ),
        "output.jsonl": json.dumps(nemo_row("p", "70", True)),
        "20.jsonl": json.dumps({"input": "a", "output": "so", "score": 1.0}),
        "x_eval_results.json": json.dumps(evalplus),
        "x_eval_all.json": json.dumps(livecodebench),
        "x_predictions.json": json.dumps([prediction_row("q", test_id=0)]),
        "log.json": json.dumps(inspect),
        "batch_in.jsonl": json.dumps(batch_request("q-0", "2 + 2 = ?")),
        "batch_out.jsonl": json.dumps(batch_response("q-0", ["4", "5"])),
        "gold.jsonl": json.dumps({"problem": "q-0", "gold": "4"}),
        "counts.json": json.dumps([{"problem": "a", "n": 4, "c": 2}]),
        "per_instance_stats.json": json.dumps(
            [{"instance_id": "id1", "stats": [{"name": {"name": "m"}, "count": 1, "sum": 1.0}]}]
        ),
    }


def mutated(value: Any, generator: random.Random) -> Any:
    """A JSON value with one place of it dropped, retyped or blown up."""
    odd = generator.choice([None, -1, 1 << 80, 1e400, "x", [], {}, [[[]]], True, "\ud800", 0.5])
    if isinstance(value, dict) and value and generator.random() < 0.9:
        key = generator.choice(list(value))
        changed = dict(value)
        if generator.random() < 0.3:
            del changed[key]
        else:
            changed[key] = mutated(value[key], generator)
        return changed
    if isinstance(value, list) and value and generator.random() < 0.8:
        place = generator.randrange(len(value))
        return [*value[:place], mutated(value[place], generator), *value[place + 1 :]]
    return odd


def cut(text: str, generator: random.Random) -> bytes:
    """A file cut off, or with bytes of it changed."""
    data = bytearray(text.encode())
    if generator.random() < 0.5:
        return bytes(data[: generator.randrange(len(data))])
    for _ in range(3):
        data[generator.randrange(len(data))] = generator.randrange(256)
    return bytes(data)


def test_mutated_files_end_in_one_line(tmp_path: Path, soak: bool) -> None:
    generator = random.Random(5)
    changes: list[Callable[[str], bytes]] = [
        lambda text: cut(text, generator),
        lambda text: json.dumps(mutated(json.loads(text), generator)).encode(),
    ]
    refused = 0
    for number in range(1000 if soak else 100):
        name, text = generator.choice(list(originals().items()))
        change = changes[0] if name.endswith(".csv") else generator.choice(changes)
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / name).write_bytes(change(text))
        try:
            done = take_in(folder / "run", folder / name)
        except UserError as error:
            refused += 1
            assert "\n" not in str(error).strip(), error
            continue
        if done.samples or done.counts:
            compact(Layout(folder / "run"))
    assert refused > 25


def read(path: Path) -> str:
    """Each response or count of a file in a line, with the name of the format.

    Both readings of a verdict come from judging again alone.
    """
    form = next(form for form in FORMATS if form.fits(path))
    rows = []
    for imported in form.read(path, None):
        fields = asdict(imported)
        readings = {fields.pop(name, Status.MISSING) for name in ("strict", "lenient")}
        assert readings == {Status.MISSING}
        rows.append(" ".join(f"{name}={value!r}" for name, value in fields.items()))
    return "\n".join([f"=== {path.name}: {form.name}", *rows]).replace(f"{path.parent}/", "")


def test_what_is_read_of_each_format(tmp_path: Path) -> None:
    texts = []
    for name, text in originals().items():
        (tmp_path / name).write_text(text)
        texts.append(read(tmp_path / name))
    assert "\n".join(texts) + "\n" == EXPECTED.read_text()


def test_what_crosses_the_border_cannot_be_changed_on_its_way() -> None:
    modules = [import_module(m.name) for m in walk_packages(exchange.__path__, "rlbhpc.exchange.")]
    classes = {c for m in modules for c in vars(m).values() if isinstance(c, type)}
    mutable = {c for c in classes if is_dataclass(c) and not c.__dataclass_params__.frozen}
    assert not mutable


def stats(right: float) -> str:
    stat = {"name": {"name": "m"}, "count": 2, "sum": right}
    return json.dumps([{"instance_id": "id1", "stats": [stat]}])


@pytest.mark.parametrize(
    ("name", "text", "metric", "complaint"),
    [
        ("x_eval_results.json", "", "soft", "no score 'soft'; allowed are base and plus"),
        (
            "x.json",
            json.dumps({"eval": {"t/0": [evalplus_row("t/0", "pass", None)]}}),
            "plus",
            "t/0, program 0: .*only the base tests were run; use --metric base",
        ),
        ("x.json", '{"eval": {"t/0": [], "t/1": 3}}', None, "x.json: not a whole EvalPlus results"),
        ("x.json", '{"eval": {}, 3: 4}', None, "x.json: not JSON .*char 13"),
        ("x.json", '{"eval": {"t/0": []}} 1', None, "x.json: not JSON .*char 22"),
        ("samples.jsonl", "", "acc,loose", "samples.jsonl: no record with the filter 'loose'"),
        ("samples.jsonl", "", "acc", "jsonl:1: no score 'acc'; its scores are exact_match"),
        ("a.jsonl", '{"problem": "a", "correct": 1, "seed": "x"}', None, "seed are whole numbers"),
        ("a.json", '[{"problem": "a", "score": 1}, 3]', None, "a.json: entry 1 is no object"),
        ("a.jsonl", '{"problem": "a", "score": 1}\n[1]', None, "a.jsonl:2: a list; one object per"),
        ("a.csv", "problem,n,c\na,4,5\n", None, "a.csv:2: n=4, c=5; allowed is 0 <= c <= n"),
        ("a.csv", "problem,n,c\na,4,-1\n", None, "a.csv:2: n=4, c=-1; allowed is 0 <= c <= n"),
        ("a.json", stats(-1.0), None, "a.json: object 0: m has the sum -1 over 2; allowed is"),
        ("a.json", stats(2.5), None, "a.json: object 0: m has the sum 2.5 over 2; allowed is"),
        ("a.json", stats(0.5), "m", "a.json: object 0: m has the sum 0.5 over 2; allowed is"),
        (
            "a.jsonl",
            '{"idx": 0, "code": [], "pred": [], "score": []}\n{"idx": 1}',
            None,
            r"a.jsonl:2: not a row of limit-of-RLVR .* \(no field 'code'\)",
        ),
    ],
)
def test_what_is_no_row_of_a_format_is_refused(
    tmp_path: Path, name: str, text: str, metric: str | None, complaint: str
) -> None:
    (tmp_path / name).write_text(text or originals()[name])
    with pytest.raises(UserError, match=complaint):
        take_in(tmp_path / "run", tmp_path / name, metric=metric)
