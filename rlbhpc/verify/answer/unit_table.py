"""The table of units: names and symbols, their factors, and what they measure."""

from __future__ import annotations

from fractions import Fraction
from importlib import resources
from typing import Final, NamedTuple


class Unit(NamedTuple):
    """A rational factor times a product of dimensions, as sorted (dimension, exponent) pairs.

    ``scale`` is the part of the size that scale words make: it belongs to the number and stays when
    the unit is dropped.
    """

    factor: Fraction
    dims: tuple[tuple[str, int], ...]
    scale: int = 1


PERCENT: Final = Unit(Fraction(1, 100), (("%", 1),))
DEGREE: Final = Unit(Fraction(1), (("degree", 1),))
RADIAN: Final = Unit(Fraction(1), (("radian", 1),))

_DERIVED: Final = {
    "N": {"kg": 1, "m": 1, "s": -2}, "J": {"kg": 1, "m": 2, "s": -2},
    "W": {"kg": 1, "m": 2, "s": -3}, "Pa": {"kg": 1, "m": -1, "s": -2}, "Hz": {"s": -1},
    "m2": {"m": 2}, "m3": {"m": 3}, "m/s": {"m": 1, "s": -1}, "coulomb": {"ampere": 1, "s": 1},
    "volt": {"kg": 1, "m": 2, "s": -3, "ampere": -1},
    "ohm": {"kg": 1, "m": 2, "s": -3, "ampere": -2},
    "farad": {"kg": -1, "m": -2, "s": 4, "ampere": 2},
    "tesla": {"kg": 1, "s": -2, "ampere": -1}, "weber": {"kg": 1, "m": 2, "s": -2, "ampere": -1},
    "henry": {"kg": 1, "m": 2, "s": -2, "ampere": -2},
    "siemens": {"kg": -1, "m": -2, "s": 3, "ampere": 2},
    "gray": {"m": 2, "s": -2}, "molar": {"mol": 1, "m": -3},
}  # fmt: skip

_PREFIXES: Final = {
    "f femto": "1e-15", "p pico": "1e-12", "n nano": "1e-9", "µ micro": "1e-6", "u micro": "1e-6",
    "m milli": "1/1000", "c centi": "1/100", "d deci": "1/10", "k kilo": "1000", "M mega": "1e6",
    "G giga": "1e9", "T tera": "1e12",
}  # fmt: skip

SCALES: Final = {
    "dozen": 12, "score": 20, "gross": 144, "hundred": 100, "thousand": 1000,
    "million": 10**6, "mil": 10**6, "billion": 10**9, "trillion": 10**12, "lakh": 10**5,
    "crore": 10**7, "百": 100, "千": 1000, "万": 10**4, "亿": 10**8,
}  # fmt: skip


def _table() -> dict[str, Unit]:
    """Read ``units.txt``; the first line that names a prefixed symbol or a plural keeps it."""
    table: dict[str, Unit] = {}
    prefixed: list[tuple[str, list[str], Unit]] = []
    text = resources.files("rlbhpc.verify.answer").joinpath("units.txt").read_text("utf-8")
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        symbol, names, factor, dimension = (cell.strip() for cell in line.split("|"))
        unit = _unit(factor, dimension)
        if symbol == "-":
            for name in names.split():
                _enter(table, name, unit)
        else:
            prefixed.append((symbol, names.replace("-", "").split(), unit))
    for symbol, long_names, unit in prefixed:
        _enter_prefixed(table, symbol, long_names, unit)
    table["percent"] = table["pct"] = table["percentage"] = PERCENT
    return table


def _enter_prefixed(table: dict[str, Unit], symbol: str, names: list[str], unit: Unit) -> None:
    table[symbol] = unit
    for name in names:
        _enter(table, name, unit)
    for prefix, size in _PREFIXES.items():
        short, long = prefix.split()
        scaled = unit._replace(factor=unit.factor * Fraction(size))
        table.setdefault(short + symbol, scaled)
        for name in names:
            _enter(table, long + name, scaled)


def _unit(factor: str, dim: str) -> Unit:
    return Unit(Fraction(factor), tuple(sorted(_DERIVED.get(dim, {dim: 1}).items())))


def _enter(table: dict[str, Unit], name: str, unit: Unit) -> None:
    table[name] = unit
    if len(name) > 2:
        table.setdefault(name + "s", unit)
        table.setdefault(name + "es", unit)


_TABLE: Final = _table()


def unit_named(word: str) -> Unit | None:
    """Return the unit that a word names; a symbol of one or two letters only as it is written."""
    return _TABLE.get(word) or (_TABLE.get(word.lower()) if len(word) > 2 else None)
