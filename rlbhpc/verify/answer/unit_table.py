"""The table of units: names and symbols, their factors, and what they measure."""

from __future__ import annotations

from fractions import Fraction
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

# SI symbols and names that take prefixes, the factor, and the dimension (or derived product).
_PREFIXED: Final = (
    ("m", "meter metre", "1", "m"), ("g", "gram", "1/1000", "kg"), ("s", "second", "1", "s"),
    ("A", "ampere amp", "1", "ampere"), ("mol", "mole", "1", "mol"), ("N", "newton", "1", "N"),
    ("J", "joule", "1", "J"), ("W", "watt", "1", "W"), ("Pa", "pascal", "1", "Pa"),
    ("Hz", "hertz", "1", "Hz"), ("C", "coulomb", "1", "coulomb"), ("V", "volt", "1", "volt"),
    ("Ω", "ohm", "1", "ohm"), ("F", "farad", "1", "farad"), ("T", "tesla", "1", "tesla"),
    ("Wb", "weber", "1", "weber"), ("H", "henry", "1", "henry"), ("S", "siemens", "1", "siemens"),
    ("L", "liter litre", "1/1000", "m3"), ("l", "", "1/1000", "m3"),
    ("M", "molar", "1000", "molar"),
    ("eV", "electronvolt", "1.602176634e-19", "J"), ("cal", "calorie", "4.184", "J"),
    ("Wh", "", "3600", "J"), ("Bq", "becquerel", "1", "Hz"), ("Gy", "gray", "1", "gray"),
    ("Sv", "sievert", "1", "gray"), ("pc", "parsec", "30856775814913673", "m"),
    ("lm", "lumen", "1", "lumen"), ("lx", "lux", "1", "lux"), ("cd", "candela", "1", "candela"),
    ("bar", "", "100000", "Pa"), ("Da", "dalton", "1", "dalton"), ("t", "tonne", "1000", "kg"),
    ("bit", "", "1", "bit"), ("B", "byte", "8", "bit"), ("G", "gauss", "1/10000", "tesla"),
    ("rad", "radian", "1", "radian"), ("K", "kelvin", "1", "kelvin"), ("W·h", "", "3600", "J"),
)  # fmt: skip
_PREFIXES: Final = {
    "f femto": "1e-15", "p pico": "1e-12", "n nano": "1e-9", "µ micro": "1e-6", "u micro": "1e-6",
    "m milli": "1/1000", "c centi": "1/100", "d deci": "1/10", "k kilo": "1000", "M mega": "1e6",
    "G giga": "1e9", "T tera": "1e12",
}  # fmt: skip

# Names of one unit without prefixes, its factor, and what it measures.
_UNITS: Final = (
    ("micron um", "1e-6", "m"), ("angstrom Å", "1e-10", "m"), ("AU au", "149597870700", "m"),
    ("ly lightyear", "9460730472580800", "m"), ("in inch inches", "0.0254", "m"),
    ("ft foot feet", "0.3048", "m"), ("yd yard", "0.9144", "m"), ("mi mile", "1609.344", "m"),
    ("kilo kilos", "1", "kg"), ("gm", "1/1000", "kg"), ("ton", "1", "ton"),
    ("lb lbs pound", "0.45359237", "kg"), ("oz ounce", "0.028349523125", "kg"),
    ("amu u", "1", "dalton"), ("M_sun", "1", "M_sun"), ("R_sun", "1", "R_sun"),
    ("L_sun", "1", "L_sun"), ("sec", "1", "s"), ("min mins minute", "60", "s"),
    ("h hr hrs hour", "3600", "s"), ("d day", "86400", "s"), ("week wk", "604800", "s"),
    ("month", "1", "month"), ("year yr yrs", "12", "month"), ("decade", "120", "month"),
    ("century centuries", "1200", "month"), ("ha hectare", "10000", "m2"),
    ("acre", "4046.8564224", "m2"), ("cc", "1e-6", "m3"), ("gal gallon", "1", "gallon"),
    ("quart qt", "1/4", "gallon"), ("pint pt", "1/8", "gallon"), ("cup", "1/16", "gallon"),
    ("mph", "0.44704", "m/s"), ("kmh kph kmph", "5/18", "m/s"), ("mps", "1", "m/s"),
    ("dollar usd buck", "1", "$"), ("cent penny pennies", "1/100", "$"), ("euro eur", "1", "€"),
    ("gbp", "1", "£"), ("yen jpy", "1", "¥"), ("yuan rmb", "1", "yuan"),
    ("rupee rs inr", "1", "₹"), ("dyne dyn", "1e-5", "N"), ("erg", "1e-7", "J"),
    ("hp horsepower", "1", "horsepower"), ("atm atmosphere", "101325", "Pa"),
    ("torr mmHg", "1", "torr"), ("psi", "1", "psi"), ("rpm", "1/60", "Hz"),
    ("degree deg", "1", "degree"), ("sr steradian", "1", "steradian"),
    ("arcmin arcminute", "1/60", "degree"), ("arcsec arcsecond", "1/3600", "degree"),
    ("celsius", "1", "celsius"), ("fahrenheit", "1", "fahrenheit"), ("dB decibel", "1", "decibel"),
    ("ppm", "1", "ppm"), ("ppb", "1/1000", "ppm"), ("rev revolution", "1", "revolution"),
    ("Jy jansky", "1", "jansky"), ("Ci curie", "1", "curie"), ("Debye debye", "1", "debye"),
    # In other languages.
    ("米 メートル м метр метров метра metros mètres Meter", "1", "m"),
    ("厘米 公分 см", "1/100", "m"), ("毫米 мм", "1/1000", "m"), ("分米", "1/10", "m"),
    ("千米 公里 км", "1000", "m"), ("平方米", "1", "m2"), ("平方厘米", "1/10000", "m2"),
    ("平方千米", "1000000", "m2"), ("立方米", "1", "m3"), ("立方厘米", "1e-6", "m3"),
    ("千克 公斤 кг", "1", "kg"), ("克", "1/1000", "kg"), ("吨", "1000", "kg"),
    ("升", "1/1000", "m3"),
    ("毫升", "1e-6", "m3"), ("秒 segundos secondes Sekunden", "1", "s"),
    ("分钟 分 minutos Minuten", "60", "s"), ("小时 时 horas heures Stunden", "3600", "s"),
    ("天 日 días jours Tage", "86400", "s"), ("年 岁 años ans Jahre", "12", "month"),
    ("元 块 块钱", "1", "yuan"), ("円", "1", "¥"), ("원", "1", "₩"), ("度", "1", "degree"),
)  # fmt: skip

SCALES: Final = {
    "dozen": 12, "score": 20, "gross": 144, "hundred": 100, "thousand": 1000,
    "million": 10**6, "mil": 10**6, "billion": 10**9, "trillion": 10**12, "lakh": 10**5,
    "crore": 10**7, "百": 100, "千": 1000, "万": 10**4, "亿": 10**8,
}  # fmt: skip


def _table() -> dict[str, Unit]:
    table: dict[str, Unit] = {}
    for names, factor, dim in _UNITS:
        unit = _unit(factor, dim)
        for name in names.split():
            _enter(table, name, unit)
    for symbol, names, factor, dim in _PREFIXED:
        table[symbol] = _unit(factor, dim)
        for name in names.split():
            _enter(table, name, table[symbol])
        for prefix, size in _PREFIXES.items():
            short, long = prefix.split()
            unit = table[symbol]._replace(factor=table[symbol].factor * Fraction(size))
            table.setdefault(short + symbol, unit)
            for name in names.split():
                _enter(table, long + name, unit)
    table["percent"] = table["pct"] = table["percentage"] = PERCENT
    return table


def _unit(factor: str, dim: str) -> Unit:
    return Unit(Fraction(factor), tuple(sorted(_DERIVED.get(dim, {dim: 1}).items())))


def _enter(table: dict[str, Unit], name: str, unit: Unit) -> None:
    table[name] = unit
    if len(name) > 2:
        table.setdefault(name + "s", unit)
        table.setdefault(name + "es", unit)


_TABLE: Final = _table()


def known(word: str) -> Unit | None:
    """Return the unit that a word names; a symbol of one or two letters only as it is written."""
    return _TABLE.get(word) or (_TABLE.get(word.lower()) if len(word) > 2 else None)
