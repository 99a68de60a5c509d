"""The parts under the math verifier, where a table of answers would not show which one failed."""

from __future__ import annotations

from fractions import Fraction

import pytest

from rlbhpc.verify import verify
from rlbhpc.verify.answer.extract import extract
from rlbhpc.verify.answer.grammar import Unreadable, parse
from rlbhpc.verify.answer.lexer import canonical, to_latex, tokenize
from rlbhpc.verify.answer.numeric import Undecided, are_identical, exact_value
from rlbhpc.verify.answer.quantity import read_unit
from rlbhpc.verify.answer.read import read
from rlbhpc.verify.answer.value import (
    Based,
    Interval,
    Items,
    Quantity,
    Relation,
    Unread,
    unit_named,
)
from rlbhpc.verify.verdict import Status


def tree(text):
    return parse(tokenize(text))


@pytest.mark.parametrize(
    ("response", "text", "rule"),
    [
        (r"so \boxed{5}", "5", "box"),
        ("<answer>5</answer>", "5", "tag"),
        ("#### 5", "5", "marker"),
        ("The answer is 5.", "5", "phrase"),
        ("Therefore x = 5.", "5", "last value"),
        ("5", "5", "bare"),
        (r"(a) \boxed{3} (b) \boxed{4}", "3, 4", "box"),
        (r"x=\boxed{3}, y=\boxed{4}", "3, 4", "box"),
        (r"x=\boxed{3}", "3", "box"),
        (r"\boxed{3} or \boxed{4}", r"3 \text{ or } 4", "box"),
    ],
)
def test_the_rule_that_found_the_answer_is_recorded(response, text, rule):
    found = extract(response)
    assert found is not None
    assert (found.text, found.rule) == (text, rule)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("033", "33"), ("27.0", "27"), ("9:05", "9 : 05"), (r"\dfrac12", "frac { 1 } { 2 }"),
        (r"\left( 1 ,\, 2 \right)", "( 1 , 2 )"), ("10{,}080", "10080"), ("6.02e23", "6.02e23"),
        (r"\text{m}", '"m"'), ("m", "m"), ("  7. ", "7 ."), ("½", "frac { 1 } { 2 }"),
    ],
)  # fmt: skip
def test_canonical_forms(text, form):
    assert canonical(text) == form


@pytest.mark.parametrize("text", [r"\equiv", r"\equiv{5}", r"\text{≡ } 5", r"x \≡ y"])
def test_a_congruence_without_a_left_side_is_wrong_and_no_error(text):
    assert verify("math", "5", rf"\boxed{{{text}}}").status is Status.WRONG


def test_a_word_and_a_symbol_of_one_letter_differ():
    assert canonical(r"5\text{m}") != canonical("5m")


@pytest.mark.parametrize("text", ["x²+½", "3⁻⁴", "√12", "0.3̅", "１２", "a₁₀", "−5"])
def test_unicode_becomes_ascii(text):
    assert to_latex(text).isascii()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"3\frac12", Fraction(7, 2)), (r"0.1\overline{6}", Fraction(1, 6)),
        ("6.02e-3", Fraction(301, 50000)),
        ("2^{-3}", Fraction(1, 8)), (r"\sqrt[3]{-8}", -2), ("-2^2", -4), ("(-2)^2", 4),
        ("2^{2^3}", 256), (r"\lfloor -2.5\rfloor", -3), ("3!", 6),
        ("1/2/2", Fraction(1, 4)), (r"\frac12\cdot 4", 2), ("|-3|", 3), (r"2\cdot-3", -6),
    ],
)  # fmt: skip
def test_exact_values(text, value):
    assert exact_value(tree(text)) == value


@pytest.mark.parametrize("text", ["10^{10^{10}}", "(10^6)!", "2^{10^9}", r"\frac{1}{0}", "0^0"])
def test_what_is_too_large_or_undefined_is_not_computed(text):
    with pytest.raises(Undecided):
        exact_value(tree(text))


@pytest.mark.parametrize(
    "text", ["", "x+", "1 2", ")(", r"\frac{1}", "x y z )", r"\sum_1^n n", "2 and 3", r"\frac123"]
)
def test_what_is_no_expression_is_refused(text):
    with pytest.raises(Unreadable):
        tree(text)


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (r"\sin^2 x+\cos^2 x", "1", True),
        ("(x+y)^3", "x^3+3x^2y+3xy^2+y^3", True),
        ("(x+y)^3", "x^3+y^3", False),
        (r"\sqrt{x^2}", "x", False),
        (r"\ln x^2", r"2\ln x", True),
        ("e^{-1000}", "e^{-1001}", False),
        ("e^{-1000}", "0", False),
        (r"\sqrt8-2\sqrt2", "0", True),
        (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt6}", True),
        ("f(x)", "f(y)", False),
        ("f(2)", "2f(1)", False),
    ],
)
def test_identity(a, b, equal):
    assert are_identical(tree(a), tree(b)) is equal


def test_units_multiply_and_convert():
    metre, inch = unit_named("m"), unit_named("inches")
    assert metre is not None
    assert inch is not None
    assert inch.factor / metre.factor == Fraction(254, 10000)
    speed = read_unit(tokenize(r"\text{miles per hour}"))
    mph = unit_named("mph")
    assert speed is not None
    assert speed == mph
    assert read_unit(tokenize(r"\text{thousand dollars}")) is None
    assert read_unit(tokenize(r"\text{square units}")).dimensions == ()


PRODUCTS = {"L": "dm^3", "mps": "m/s", "kmh": "km/h", "平方米": "m^2"}


@pytest.mark.parametrize("symbol", PRODUCTS)
def test_a_derived_unit_is_the_product_that_defines_it(symbol):
    assert unit_named(symbol) == read_unit(tokenize(rf"\text{{{PRODUCTS[symbol]}}}"))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("(1,2)", Items), ("(1,2]", Interval), ("x>2", Interval), (r"x\ne2", Relation),
        ("5", Quantity), ("101_2", Based), ("{", Unread),
        ("5 !important @ ?", Unread),
    ],
)  # fmt: skip
def test_kinds_of_values(text, kind):
    assert isinstance(read(text), kind)


# The largest of a kind that is read, as a function of its size.
LIMITS = {
    "pairs in brackets": (10, lambda n: "(" * n + "(1,2)" + ")" * n),
    "roots": (39, lambda n: r"\sqrt{" * n + "x" + "}" * n),
    "terms in brackets": (39, lambda n: "x+(" * n + "x" + ")" * n),
    "items": (100, lambda n: ";".join("1" * n)),
    "terms": (300, lambda n: "+".join("x" * n)),
    "repeating digits": (200, lambda n: r"0.\overline{" + "3" * n + "}"),
    "digits": (2000, lambda n: "9" * n),
    "digits and decimals": (2000, lambda n: f"{'9' * (n - 2)}.5"),
    "exponent": (5000, lambda n: f"1e{n}"),
    "negative exponent": (5000, lambda n: f"1e-{n}"),
    "characters": (4000, lambda n: "(" + " " * (n - 3) + "1)"),
    "power of a unit": (99, lambda n: rf"5\text{{ m}}^{{{n}}}"),
    "negative power of a unit": (9, lambda n: rf"5\text{{ m}}^{{-{n}}}"),
}


@pytest.mark.parametrize("kind", LIMITS)
def test_what_is_larger_is_not_read(kind):
    largest, written = LIMITS[kind]
    assert not isinstance(read(written(largest)), Unread)
    assert isinstance(read(written(largest + 1)), Unread)


def test_digit_groups_are_a_number_or_a_list():
    assert read("100,200") == read("100200")
    assert len(read("100,200", is_list_expected=True).items) == 2
    assert len(read("(100,200)").items) == 2
    assert isinstance(read("27,54,108,135"), Items)
    assert read("1,200; 3,400", is_list_expected=True) == read("1200; 3400", is_list_expected=True)
