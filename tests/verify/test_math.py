"""The math verifier against facts: which answers are the gold answer, and which are not."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from decimal import Decimal, InvalidOperation, getcontext
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rlbhpc.verify
from rlbhpc.problems.problem import Problem
from rlbhpc.verify import verify
from rlbhpc.verify.verdict import Status

getcontext().prec = 60
HERE = Path(__file__).parent
LINE_BREAKS = str.maketrans("␊␍", "\n\r")


def rows_of(name: str) -> list[list[str]]:
    """Rows of a table without its head.

    A line break within a text stands there as the picture of its control character.
    """
    lines = (HERE / name).read_text().splitlines()[1:]
    return [line.translate(LINE_BREAKS).split("\t") for line in lines]


def table(name: str) -> list[tuple[str, str, str, bool]]:
    """Rows (class, gold, answer or response, right) of one of the fact tables."""
    return [(kind, gold, text, expected == "right") for kind, expected, gold, text in rows_of(name)]


def by_class(name: str) -> list[pytest.param]:
    rows = table(name)
    return [
        pytest.param([row[1:] for row in rows if row[0] == kind], id=kind)
        for kind in dict.fromkeys(row[0] for row in rows)
    ]


def boxed(answer: str) -> str:
    return f"Working it through, we obtain $\\boxed{{{answer}}}$."


@pytest.mark.parametrize("facts", by_class("math_answers.tsv"))
def test_boxed_answers(facts):
    wrong = [
        (gold, answer, verdict.rule)
        for gold, answer, expected in facts
        if (verdict := verify("math", gold, boxed(answer))).right != expected
        or verdict.status > Status.NO_ANSWER
    ]
    assert not wrong


@pytest.mark.parametrize("facts", by_class("math_responses.tsv"))
def test_committed_answers(facts):
    wrong = [
        (gold, response, verdict.answer, verdict.rule)
        for gold, response, expected in facts
        if (verdict := verify("math", gold, response)).right != expected
    ]
    assert not wrong


HOSTILE = {
    "digits": (boxed("9" * 60_000), False),
    "parentheses": (boxed("(" * 5000 + "4" + ")" * 5000), False),
    "braces": (boxed("{" * 5000 + "4" + "}" * 5000), False),
    "fractions": (boxed(r"\frac{" * 3000 + "1"), False),
    "roots": (boxed(r"\sqrt{" * 3000), False),
    "tower": (boxed("4" + "^4" * 100), False),
    "signs": (boxed("-" * 10_000 + "4"), False),
    "texts": (boxed(r"\text{" * 2000), False),
    "decimals": (boxed("0." + "3" * 5000), False),
    "cells": (boxed("&" * 5000), False),
    "lefts": (boxed(r"\left(" * 1000 + "4" + r"\right)" * 1000), False),
    "commas": (boxed("1," * 1500), False),
    "equals": (boxed("x=" * 1500 + "4"), False),
    "factors": (boxed("(x+1)" * 190), False),
    "terms": (boxed("+".join(f"x_{{{i}}}^{{99}}" for i in range(150))), False),
    "dollars": ("$" * 30_000 + r" \boxed{5}", False),
    "dollars, right": ("$" * 30_000 + r" \boxed{4}", True),
    "open boxes": (r"\boxed{" * 20_000, False),
    "nested boxes": (r"\boxed{" * 5000 + "4" + "}" * 5000, True),
    "open braces": ("{" * 100_000, False),
    "thinks": ("<think>" * 20_000, False),
    "closed thinks": ("<think></think>" * 20_000 + r"\boxed{4}", True),
    "markers": ("####" * 20_000, False),
    "tags": ("<answer>" * 20_000, False),
    "final answers": ("final answer " * 20_000, False),
    "answers": ("Answer " * 20_000 + "is 5", False),
    "many boxes": (r"\boxed{1}" * 20_000, False),
    "backslashes": ("\\" * 100_000 + r" \boxed{4}", True),
    "blanks": (" " * 200_000 + r"\boxed{4}" + " " * 200_000, True),
    "conclusions": ("So " * 50_000 + "x = 5.", False),
    "wishes": ("x = 5. " + "I hope this helps " * 20_000, False),
    "take-backs": (r"\boxed{5} " + "I forgot " * 20_000, False),
    "corrections": (r"\boxed{5} " + "the correct the " * 20_000, False),
    "dollars behind": (r"\boxed{4} mistake " + "$1 " * 20_000, True),
    "JSON": ('{"answer": ' * 20_000, False),
    "repeating": ("The answer is 0." + "3" * 100_000 + "...", False),
}


@pytest.mark.parametrize(("response", "expected"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_judged_in_the_process_in_no_time(response, expected):
    start = time.thread_time()
    assert verify("math", "4", response).right == expected
    # Processor time, generous: a quadratic step over these lengths takes minutes.
    assert time.thread_time() - start < 5


def test_dev_probe(shared_reference, tmp_path, monkeypatch):
    """The development part of the probe set: agreement, no false positive, no file."""
    monkeypatch.chdir(tmp_path)
    disagreements = []
    for line in (shared_reference / "math_probe_dev.jsonl").read_text().splitlines():
        case = json.loads(line)
        verdict = verify("math", case["gold"], case["response"])
        assert verdict.status in (Status.RIGHT, Status.WRONG, Status.NO_ANSWER), case["id"]
        if verdict.right != case["expected"]:
            disagreements.append(case["id"])
            assert not verdict.right or "debatable" in case["note"], case["id"]
    assert len(disagreements) <= 126 * 0.06
    assert list(tmp_path.iterdir()) == []


# --- gold answers --------------------------------------------------------------------------------


def gold_answers(shared_reference: Path) -> list[Problem]:
    path = shared_reference.parent / "data" / "gold_answers.jsonl"
    problems = []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        extras = {
            key: record[key]
            for key in ("is_multiple_answer", "answer_type", "unit", "error")
            if record.get(key)
        }
        name = f"{record['set']}/{record['index']}"
        problems.append(Problem(name, {"question": ""}, record["gold"], "math", extras))
    return problems


def test_every_gold_answer_verifies_against_itself(shared_reference):
    problems = gold_answers(shared_reference)
    assert len(problems) == 2836
    failed = [
        problem.id
        for problem in problems
        for given in (problem, None)
        if not verify("math", problem.gold, boxed(problem.gold), given).right
    ]
    assert failed == []


# A set that is symmetric about zero is its own negative, and 100 · 62.5 % is 62.5.
NO_MUTANTS = {"olympiadbench/139", "olympiadbench/150", "olympiadbench/188"}


def test_no_gold_answer_verifies_against_a_mutant_of_itself(shared_reference):
    accepted = []
    for problem in gold_answers(shared_reference):
        gold = problem.gold.strip().strip("$").rstrip(".")
        plain = not any(sign in gold for sign in ("=", ",", "\\cup", "\\pm", "text", "$"))
        mutants = [f"{gold}+1", f"100\\left({gold}\\right)", f"-\\left({gold}\\right)"]
        value = _number(gold)
        if value is not None:
            # Without float: 4.5e33 + 1 must not round back to the gold.
            others = (value + 1, 100 * value, -value) if value else (value + 1,)
            mutants = [format(other, "f") for other in others]
        elif not plain:
            continue
        if problem.id not in NO_MUTANTS:
            accepted += [
                (problem.id, mutant)
                for mutant in mutants
                if verify("math", problem.gold, boxed(mutant), problem).right
            ]
    assert accepted == []


@pytest.mark.slow
def test_random_gold_pairs(shared_reference, soak):
    """12,000 pairs of different gold answers per set: every accepted one is listed and defended.

    The table holds all accepted pairs of all gold answers that are no plain integers.
    """
    defended = {(name, gold, answer) for name, gold, answer, _ in rows_of("gold_pairs.tsv")}
    assert all(reason for *_, reason in rows_of("gold_pairs.tsv"))
    problems = gold_answers(shared_reference)
    draw = random.Random(20240501)
    accepted = set()
    for name in sorted({problem.set_name for problem in problems}):
        members = [problem for problem in problems if problem.set_name == name]
        for _ in range(12_000 if soak else 1_200):
            ours, theirs = draw.choice(members), draw.choice(members)
            one_number = _number(ours.gold) is not None and _number(ours.gold) == _number(
                theirs.gold
            )
            if ours.gold == theirs.gold or one_number:
                continue
            if verify("math", ours.gold, boxed(theirs.gold), ours).right:
                accepted.add((name, ours.gold, theirs.gold))
    assert accepted <= defended


def test_defended_pairs_are_still_accepted(shared_reference):
    """The table is the truth of today: a pair that is no longer accepted leaves it."""
    problems = {(p.set_name, p.gold): p for p in gold_answers(shared_reference)}
    for name, gold, answer, _ in rows_of("gold_pairs.tsv"):
        assert verify("math", gold, boxed(answer), problems[name, gold]).right, (gold, answer)


def _number(text: str) -> Decimal | None:
    try:
        return Decimal(text.replace(",", ""))
    except InvalidOperation:
        return None


# --- nothing is run ------------------------------------------------------------------------------


def test_model_text_is_never_run(tmp_path):
    """Payloads at every door: nothing appears, whatever the working folder is."""
    marker = tmp_path / "ran"
    payloads = [
        f'__import__("pathlib").Path("{marker}").write_text("x")',
        f'[__import__("os").system("touch {marker}")]',
        f'x).__class__.__base__.__subclasses__() or open("{marker}","w")',
        f"\\sympify{{open('{marker}','w')}}",
        f"\\int open('{marker}','w') dx",
    ]
    golds = ["42", r"\begin{pmatrix}1\\2\end{pmatrix}", r"\int_0^1 x dx", "x^2+y^2=4"]
    for payload in payloads:
        for gold in golds:
            for response in (boxed(payload), f"The answer is {payload}", f"#### {payload}"):
                assert not verify("math", gold, response).right
                assert not verify("math-paper", gold, response).right
    assert not marker.exists()


def test_verdicts_are_the_same_off_the_main_thread():
    found = []
    thread = threading.Thread(
        target=lambda: found.append(verify("math", r"\frac{x^2-1}{x-1}", boxed("x+1")))
    )
    thread.start()
    thread.join()
    assert found[0].status is Status.RIGHT


def test_the_room_has_two_names():
    assert [callable(getattr(rlbhpc.verify, name)) for name in rlbhpc.verify.__all__] == [True] * 2
    with pytest.raises(AttributeError, match=r"'rlbhpc.verify' has no attribute 'grade'"):
        _ = rlbhpc.verify.grade


def test_importing_the_contract_is_light():
    code = (
        "import sys, rlbhpc.verify, rlbhpc.verify.registry\n"
        "print(sorted({'sympy', 'mpmath', 'math_verify', 'numpy'} & set(sys.modules)))"
    )
    root = Path(__file__).parents[2]
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)}, check=True,
    )  # fmt: skip
    assert out.stdout.strip() == "[]"


# --- Math-Verify's own published facts -----------------------------------------------------------


def test_differences_from_math_verifys_own_facts_have_a_reason():
    """Its tests, as answers of a box: where we say otherwise, the table says why."""
    rows = rows_of("math_verify_facts.tsv")
    assert len(rows) > 150
    unexplained = [
        (gold, answer, verdict.rule)
        for theirs, gold, answer, reason in rows
        if ((verdict := verify("math", gold, boxed(answer))).right != (theirs == "right"))
        != bool(reason)
    ]
    assert not unexplained


def test_a_sum_that_stands_in_the_gold_answer_is_compared_as_text():
    gold = r"\sum_{k=1}^{n}k"
    assert verify("math", gold, boxed(r"\sum_{k=1}^{n} k")).right
    evaluated = verify("math", gold, boxed(r"\frac{n(n+1)}{2}"))
    assert (evaluated.status, evaluated.rule) == (Status.WRONG, "box/unread")


@pytest.mark.parametrize("gold", ["42", "B"])
@pytest.mark.parametrize("response", ["", " \n", '{"answer": ""}', boxed(r"\begin{cases}]")])
def test_an_answer_that_holds_nothing_is_no_fault_of_the_verifier(gold, response):
    assert verify("math", gold, response).status in (Status.WRONG, Status.NO_ANSWER)


# --- any text at all -----------------------------------------------------------------------------

PIECES = [
    *r"\frac \sqrt \boxed \text \left \right \begin{pmatrix} \end{pmatrix} \pm \cup \infty".split(),
    *r"\{ \} { } ( ) [ ] | ^ _ , ; : . = < > + - * / ! % ' & \\ ~ $ 0 1 2 12 1.5 1e9".split(),
    *r"x y n i e \pi \sin \log \binom \overline \circ \in \approx \le \sum \int".split(),
    *r"\mathbb{R} a b C f( and or cm hours no dozen PM March ½ √ ² ∞ ≤ − ° £ 五".split(),
    " ",
]
VECTOR = r"\begin{pmatrix}1\\2\end{pmatrix}"
GOLDS = ["42", r"\frac12", "(1,2)", "x^2+1", r"\text{east}", "x>2", VECTOR]


@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join), st.sampled_from(GOLDS))
def test_any_text_is_judged_without_a_fault(text, gold):
    """No exception, a bounded time, and an answer is always equal to itself."""
    start = time.thread_time()
    verdict = verify("math", gold, f"\\boxed{{{text}}}")
    assert time.thread_time() - start < 2
    assert verdict.status in (Status.RIGHT, Status.WRONG, Status.NO_ANSWER), verdict.rule
    again = verify("math", text, f"\\boxed{{{text}}}")
    refused = again.status is Status.NO_ANSWER or again.answer != text.strip()
    assert again.right or refused


@settings(max_examples=150)
@given(st.fractions(max_denominator=500), st.fractions(max_denominator=500))
def test_rationals_are_equal_exactly_if_they_are(a, b):
    """Whatever way they are written: fraction, decimal where finite, mixed number, e-notation."""
    for text in written(b):
        assert verify("math", rf"\frac{{{a.numerator}}}{{{a.denominator}}}", boxed(text)).right == (
            a == b
        )


def written(value: Fraction) -> list[str]:
    top, bottom = abs(value.numerator), value.denominator
    sign = "-" if value < 0 else ""
    forms = [
        rf"{sign}\frac{{{top}}}{{{bottom}}}",
        f"{sign}{top}/{bottom}",
        f"{sign}{3 * top}/{3 * bottom}",
    ]
    whole, rest = divmod(top, bottom)
    if rest and whole:
        forms.append(rf"{sign}{whole}\frac{{{rest}}}{{{bottom}}}")
    if not rest:
        forms += [f"{sign}{whole}.0", f"{sign}{whole}e0", f"{sign}0{whole}" if whole else "0"]
    return forms
