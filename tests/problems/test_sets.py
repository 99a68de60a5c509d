"""Every set from a file of its real shape, in every format; what the sets' notes say."""

from __future__ import annotations

import csv
import json
import pickle
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import Selection, digest
from rlbhpc.problems.prompts import get_prompt, prompt_names, render
from rlbhpc.problems.registry import get_set, load_set, set_names
from tests.problems import shapes
from tests.problems.shapes import LCB_BASE, PNG, SHAPES, WRITERS

SUBSET = {"livecodebench": "all", "math": "test"}


def load(name: str, path: Path) -> list[Problem]:
    return load_set(name, path, SUBSET.get(name))


def test_every_registered_set_has_a_shape() -> None:
    generated = {"compose", "countdown", "program-tasks", "reasoning-gym"}
    assert set(SHAPES) | generated == set(set_names())


@pytest.mark.parametrize("fmt", WRITERS)
@pytest.mark.parametrize("name", SHAPES)
def test_round_trip(name: str, fmt: str, tmp_path: Path) -> None:
    """The same records give the same problems, ids and contents, whatever the file format."""
    records, golds = SHAPES[name]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    problems = load(name, WRITERS[fmt](records, tmp_path / "a"))
    assert [problem.gold for problem in problems] == golds
    assert all(problem.id.startswith(f"{name}/") for problem in problems)
    assert all(problem.fields["question"].strip() for problem in problems)
    assert digest(problems) == digest(load(name, shapes.parquet(records, tmp_path / "b")))
    assert pickle.loads(pickle.dumps(problems)) == problems


@pytest.mark.parametrize("name", [name for name, shape in SHAPES.items() if len(shape[0]) > 1])
def test_ids_do_not_depend_on_order(name: str, tmp_path: Path) -> None:
    records, _ = SHAPES[name]
    (tmp_path / "b").mkdir()
    forward = load(name, shapes.json_list(records, tmp_path))
    backward = load(name, shapes.json_list(records[::-1], tmp_path / "b"))
    assert [(p.id, p.content_hash) for p in forward] == [
        (p.id, p.content_hash) for p in backward[::-1]
    ]


def test_ids_are_the_sets_own_where_it_has_any(tmp_path: Path) -> None:
    ids = {}
    for name, (records, _) in SHAPES.items():
        (tmp_path / name).mkdir()
        ids[name] = load(name, shapes.parquet(records, tmp_path / name))[0].id
    assert ids["math500"] == "math500/test/precalculus/807.json"
    assert ids["minerva"] == "minerva/1"
    assert ids["olympiadbench"] == "olympiadbench/1606"
    assert ids["humaneval+"] == "humaneval+/HumanEval/0"
    assert ids["livecodebench"] == "livecodebench/3221"
    assert ids["mathvista"] == "mathvista/2"


@pytest.mark.parametrize("name", SHAPES)
def test_a_missing_field_is_told_with_its_place(name: str, tmp_path: Path) -> None:
    records, _ = SHAPES[name]
    file = tmp_path / "x.jsonl"
    good = shapes.plain(records, tmp_path)
    file.write_text(json.dumps(good[0]) + '\n{"unheard_of": 1}\n')
    with pytest.raises(UserError) as told:
        load(name, file)
    assert f"{file}, record 2: no field `" in str(told.value)
    assert str(told.value).endswith("found: unheard_of")


def test_olympiadbench_keeps_how_to_compare(tmp_path: Path) -> None:
    several, one = load("olympiadbench", shapes.parquet(SHAPES["olympiadbench"][0], tmp_path))
    assert several.extras["is_multiple_answer"] and not one.extras["is_multiple_answer"]
    assert (one.extras["unit"], one.extras["error"]) == ("cm", "1e-2")
    assert one.fields["question"] == "Let $T=3$.\n\nCompute $T$."


def test_livemathbench_is_read_by_language_and_by_release(tmp_path: Path) -> None:
    """Configurations as they are published; the hard one repeats a problem of another."""
    kind = {"question_type": "problem-solving"}
    amc = {"question": "How many are even?", "answer": "$4$", **kind}
    hard = {"question": "Find the least n.", "answer": "$\\frac{3}{2}$", **kind}
    chinese = {"question": "求最小的 n。", "answer": "$\\frac{3}{2}$", "question_type": "问答"}
    folder = tmp_path / "livemathbench"
    parts = {"v202412_AMC_en": [amc, hard], "v202412_hard_en": [hard], "v202412_AMC_cn": [chinese]}
    for part, records in parts.items():
        (folder / part).mkdir(parents=True)
        shapes.parquet(records, folder / part)
    with pytest.raises(UserError, match="duplicates: drop"):
        load("livemathbench", folder)
    dropped: list[str] = []
    english = get_set("livemathbench").load(Selection("livemathbench", folder, dropped=dropped))
    assert [problem.gold for problem in english] == ["$4$", "$\\frac{3}{2}$"]
    assert len(dropped) == 1
    (other,) = load_set("livemathbench", folder, "cn")
    assert other.fields["question"] == "求最小的 n。"
    for part, records in parts.items():
        assert len(load("livemathbench", folder / part)) == len(records)


def test_omni_splits_by_hash_and_always_alike(tmp_path: Path) -> None:
    records = [{"problem": f"Problem {i}", "answer": str(i)} for i in range(2821)]
    file = shapes.jsonl(records, tmp_path)
    (tmp_path / "b").mkdir()
    shuffled = shapes.jsonl(records[::-1], tmp_path / "b")
    train, test = (
        load_set("omni-math-rule", file, "train"),
        load_set("omni-math-rule", file, "test"),
    )
    assert (len(train), len(test)) == (2000, 821)
    assert not {p.id for p in train} & {p.id for p in test}
    # The split is a protocol: its digest may not change from one release to the next.
    assert digest(test) == "8ca0b8c337e03f3f"
    assert digest(load_set("omni-math-rule", shuffled, "test", seed=9)) == digest(test)


def lcb(tmp_path: Path, *changes: dict[str, object]) -> Path:
    folder = tmp_path / "lcb"
    folder.mkdir()
    return shapes.jsonl([{**LCB_BASE, **change} for change in changes], folder)


def test_livecodebench_needs_a_window_and_honours_both_ends(tmp_path: Path) -> None:
    days = ["2024-07-31", "2024-08-01", "2025-01-31", "2025-02-01"]
    file = lcb(tmp_path, *({"question_id": d, "contest_date": f"{d}T00:00:00"} for d in days))
    with pytest.raises(UserError, match="needs a subset: a window"):
        load_set("livecodebench", file)

    def window(subset: str) -> list[str]:
        return [p.extras["date"] for p in load_set("livecodebench", file, subset)]

    assert window("2024-08..2025-01") == days[1:3]
    assert window("2024-07-31..2024-08-01") == days[:2]
    assert window("all") == days
    with pytest.raises(UserError, match=r"no subset '2024..2025'; allowed: all, FROM..TO, sound"):
        window("2024..2025")


def test_livecodebench_lists_errata_by_id_and_by_title(tmp_path: Path) -> None:
    file = lcb(tmp_path, {}, {"question_id": "abc337_e", "question_title": "E. Bad Juice"},
               {"question_id": "1", "question_title": "Fine"})  # fmt: skip
    assert [p.extras["erratum"] for p in load_set("livecodebench", file, "all")] == [
        "several outputs are right, one is accepted", "interactive", "",
    ]  # fmt: skip
    assert [p.id for p in load_set("livecodebench", file, "all/sound")] == ["livecodebench/1"]


def test_livecodebench_question_is_the_prompt_of_the_harness(tmp_path: Path) -> None:
    with_code, without = load_set(
        "livecodebench", lcb(tmp_path, {}, {"question_id": "2", "starter_code": ""}), "all"
    )
    text = render(get_prompt("livecodebench"), with_code)
    assert text.endswith(
        "Question: You are given {peaks}.\n\n### Format: You will use the following starter code "
        "to write the solution to the problem and enclose your code within delimiters.\n```python\n"
        "class Solution:\n    def f(self):\n        \n```\n\n<|im_end|>\n<|im_start|>assistant\n"
        "```python\n"
    )
    assert without.fields["question"].endswith(
        "output to STDOUT.\n```python\n# YOUR CODE HERE\n```"
    )


@pytest.mark.parametrize("fmt", WRITERS)
def test_private_tests_are_read_when_needed_and_only_if_unchanged(fmt: str, tmp_path: Path) -> None:
    records = [
        {**LCB_BASE, "question_id": str(i), "private_test_cases": f"secret {i} é" * 9}
        for i in range(40)
    ]
    path = WRITERS[fmt](records, tmp_path)
    problems = load_set("livecodebench", path, "all")
    assert "secret" not in repr(problems)
    for problem in (problems[39], problems[0], problems[17]):
        number = problem.id.partition("/")[2]
        assert problem.extras["tests"].read() == {"private_test_cases": f"secret {number} é" * 9}
    if fmt == "jsonl":
        path.write_text(path.read_text().replace("secret 17", "forged 17"))
        with pytest.raises(UserError, match="record 18: changed since"):
            problems[17].extras["tests"].read()


def test_content_hash_covers_the_tests_but_not_their_place(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    here = load_set("livecodebench", lcb(tmp_path, {}), "all")[0]
    there = load_set("livecodebench", lcb(tmp_path / "elsewhere", {}), "all")[0]
    other = {**LCB_BASE, "private_test_cases": "other"}
    changed = load_set("livecodebench", shapes.jsonl([other], tmp_path), "all")[0]
    assert here.content_hash == there.content_hash != changed.content_hash


def test_livecodebench_v5_ends_with_the_fifth_part(tmp_path: Path) -> None:
    for part, number in (("test.jsonl", "1"), ("test5.jsonl", "5"), ("test6.jsonl", "6")):
        text = json.dumps({**LCB_BASE, "question_id": number}) + "\n"
        (tmp_path / part).write_text(text)
    ids = [p.id for p in load_set("livecodebench", tmp_path, "all")]
    assert ids == ["livecodebench/1", "livecodebench/5"]


def test_livecodebench_dates_of_a_parquet_column(tmp_path: Path) -> None:
    record = {**LCB_BASE, "contest_date": datetime(2025, 1, 31, 12)}
    path = shapes.parquet([record], tmp_path)
    assert load_set("livecodebench", path, "2025-01..2025-01")[0].extras["date"] == "2025-01-31"


def test_evalplus_tests_keep_their_values(tmp_path: Path) -> None:
    problem = load("humaneval+", shapes.jsonl_gz(SHAPES["humaneval+"][0], tmp_path))[0]
    tests = problem.extras["tests"].read()
    assert tests == {"base_input": [[1.5], [2.0]], "plus_input": [[3.5]]}
    assert problem.extras["prompt"].startswith("\ndef") and problem.extras["entry_point"] == "close"


def test_vision_sets_carry_image_bytes_and_no_multiple_choice(tmp_path: Path) -> None:
    for name in ("geometry3k", "mathvista", "mathvision"):
        (tmp_path / name).mkdir()
        (problem,) = load(name, shapes.jsonl(SHAPES[name][0], tmp_path / name))
        assert problem.images == (PNG,)
        assert "<image" not in problem.fields["question"]
        assert "<|vision_start|><|image_pad|><|vision_end|>" in render(
            get_prompt("easyr1"), problem
        )
    with pytest.raises(UserError, match="shows 0 images"):
        render(get_prompt("qwen-boxed"), problem)


def test_mathvista_annotations_by_pid(tmp_path: Path) -> None:
    """MathVista's own JSON maps pid to record."""
    plain = shapes.plain(SHAPES["mathvista"][0], tmp_path)
    (tmp_path / "testmini.json").write_text(json.dumps({one["pid"]: one for one in plain}))
    assert [p.id for p in load("mathvista", tmp_path / "testmini.json")] == ["mathvista/2"]


def test_the_real_golds_come_out_of_real_records(shared_reference: Path, tmp_path: Path) -> None:
    """All 2,836 gold answers, put where each set's files have them, and loaded again."""
    golds: dict[str, list[dict[str, Any]]] = {}
    for line in (shared_reference.parent / "data" / "gold_answers.jsonl").read_text().splitlines():
        record = json.loads(line)
        golds.setdefault(record["set"], []).append(record)
    where: dict[str, Callable[[str], dict[str, Any]]] = {
        "gsm8k": lambda gold: {"answer": f"So.\n#### {int(gold.replace(',', '')):,}"},
        "math500": lambda gold: {"answer": gold},
        "minerva": lambda gold: {"solution": rf"$\boxed{{0}}$, no, $\boxed{{{gold}}}$."},
        "olympiadbench": lambda gold: {"final_answer": [gold]},
        "aime24": lambda gold: {"answer": gold},
        "amc23": lambda gold: {"answer": float(gold)},
    }
    for name, answers in golds.items():
        records = [
            {"id": i, "question": f"Question {i}?", **one, **where[name](one["gold"])}
            for i, one in enumerate(answers)
        ]
        (tmp_path / name).mkdir()
        problems = load(name, shapes.parquet(records, tmp_path / name))
        wanted = [one["gold"].strip() for one in answers]
        if name == "gsm8k":
            wanted = [one.replace(",", "") for one in wanted]
        elif name == "amc23":
            wanted = [one.removesuffix(".0") for one in wanted]
        assert [problem.gold for problem in problems] == wanted
        if name == "olympiadbench":
            assert sum(problem.extras["is_multiple_answer"] for problem in problems) == 94


def test_the_page_names_every_set_and_prompt() -> None:
    page = (Path(__file__).parents[2] / "docs" / "problem-sets.md").read_text()
    for name in (*set_names(), *prompt_names()):
        assert f"`{name}`" in page


def test_a_problem_of_dapo_inside_its_prompt_is_the_same_problem(tmp_path: Path) -> None:
    """The authors' file has whole prompts in the shape of a conversation."""
    records = SHAPES["dapo-math"][0]
    template = get_prompt("dapo").text
    asked = template[template.rindex("user\n") + 5 : template.rindex("<|im_end|>")]
    wrapped = [
        {
            **record,
            "prompt": [{"role": "user", "content": asked.replace("{question}", record["prompt"])}],
        }
        for record in records
    ]
    (tmp_path / "b").mkdir()
    plain = load("dapo-math", shapes.jsonl(records, tmp_path))
    assert load("dapo-math", shapes.jsonl(wrapped, tmp_path / "b")) == plain
    assert [problem.id for problem in plain] == ["dapo-math/b8a1c2d0", "dapo-math/b8a1c2d1"]


@pytest.mark.parametrize("prompt", [[], [{"role": "user"}], [{"role": "user", "content": 3}]])
def test_a_conversation_without_a_question_is_told(prompt: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="record 1: `prompt` is neither a text nor a conv"):
        load("dapo-math", shapes.jsonl([{"prompt": prompt, "solution": "1"}], tmp_path))


def test_an_answer_of_0_and_an_index_that_is_missing(tmp_path: Path) -> None:
    rest = {"reward_model": {"ground_truth": 0}, "extra_info": {"index": None}}
    records = [{"prompt": question, **rest} for question in ("1 - 1?", "2 - 2?")]
    one, two = load("dapo-math", shapes.jsonl(records, tmp_path))
    assert (one.gold, two.gold) == ("0", "0")
    assert one.id != two.id


@pytest.mark.parametrize("name", ["dapo-math", "rlpr-train"])
def test_an_answer_in_a_list_is_its_only_item(name: str, tmp_path: Path) -> None:
    """As a column of lists gives it: the gold answer was the text "['2']"."""
    [record, *_] = SHAPES[name][0]

    def golds(answer: Any) -> list[str]:
        changed = {**record, "reward_model": {"ground_truth": answer, "style": "rule"}}
        return [problem.gold for problem in load(name, shapes.jsonl([changed], tmp_path))]

    assert golds(["2"]) == golds("2") == ["2"]
    with pytest.raises(UserError, match=r"record 1: `ground_truth` is \['2', '3'\]; allowed: one"):
        golds(["2", "3"])


def test_math_by_levels(tmp_path: Path) -> None:
    made = [
        {"problem": f"{level}?", "answer": "1", "level": level}
        for level in ("Level 1", "Level 3", 4, "Level 5", "Level ?")
    ]
    path = shapes.jsonl(made, tmp_path)
    found = load_set("math", path, "levels[3-5]")
    assert [problem.fields["question"] for problem in found] == ["Level 3?", "4?", "Level 5?"]
    for wrong in ("levels[3-9]", "levels[5-3]"):
        with pytest.raises(UserError, match=rf"no subset {re.escape(repr(wrong))}"):
            load_set("math", path, wrong)


def test_comma_separated_values_are_read(tmp_path: Path) -> None:
    """GPQA comes as CSV: quoted line breaks and commas belong to their field."""
    records, golds = SHAPES["gpqa"]
    file = tmp_path / "gpqa_diamond.csv"
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(records[0]))
        writer.writeheader()
        writer.writerows(records)
    assert [problem.gold for problem in load("gpqa", tmp_path)] == golds
    assert digest(load("gpqa", file)) == digest(load("gpqa", shapes.jsonl(records, tmp_path)))
    file.write_text(file.read_text() + "only,three,fields\n")
    with pytest.raises(UserError, match="record 3: not as many fields"):
        load("gpqa", file)
