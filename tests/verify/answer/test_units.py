"""What may follow a number without changing it, and what may not."""

from __future__ import annotations

import pytest

from rlbhpc.verify import verify

SYMBOLS = (
    "m cm mm km nm um fm dm AU ly pc kpc Mpc in ft yd mi kg g mg t lb oz u amu Da s ms ns "
    "min h hr d yr Hz kHz MHz GHz N kN dyn Pa kPa MPa bar atm mmHg Torr psi J kJ MJ eV keV MeV GeV "
    "cal kcal erg kWh W kW MW GW hp K C nC A mA V mV kV F pF T mT G Wb H mH S mol mmol "
    "M L mL rad sr deg Bq Ci Gy Sv lm lx cd dB Jy rpm mph km/h m/s m/s^2 kg/m^3 J/K W/m^2 N·m "
    "J/(mol·K) kg\\,m/s mol/L cm^3 g/cm^3"
).split()


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_a_unit_may_be_left_out(symbol):
    text = symbol.replace("·", "\\cdot ")
    forms = [f"5\\text{{ {symbol}}}", f"5\\ \\mathrm{{{text}}}", f"5~\\text{{{symbol}}}"]
    for form in forms:
        assert verify("math", "5", f"\\boxed{{{form}}}").right, form
        assert not verify("math", "6", f"\\boxed{{{form}}}").right, form


RIGHT = [
    ("5", r"5\ kg"), ("5", "5~cm"), ("5", r"5\,\mathrm{C}"), ("5", r"5 \text{ apples}"),
    ("5", r"5 \text{ red marbles}"), ("12", r"12 \text{ ways}"),
    ("5", r"5 \text{ people}"), ("1", r"1 \text{ apple}"), ("5", r"5 \text{ children}"),
    ("5", r"5 \text{ students per class}"), ("12", "12元"),
    ("3", "3 厘米"), (r"3 \text{ cm}", "3厘米"),
    (r"2 \text{ hours}", "120分钟"), ("5", r"5 \text{ metros}"),
    ("5", r"5\text{ cm}^2"), ("5", r"5 \text{ square units}"),
]  # fmt: skip
WRONG = [
    ("5", r"5 \text{ factorial}"), ("5", r"5 \text{ halves}"), ("5", r"5 \text{ is incorrect}"),
    ("2", r"2 \text{ point five}"), ("2", r"2 \text{ pi}"), ("3", r"3 \text{ crore}"),
    ("5", r"5 \text{ squared}"), ("5", r"5 \text{ thirds}"), ("5", r"5 \text{ times } 2"),
    ("5", r"5 \text{ hundredths}"), ("5", r"5 \text{ lakh}"), ("5", r"5 \text{ dozen}"),
    ("5", r"5 \text{ or } 6"), ("5", r"5 \text{ percent}"[:8] + r"halves}"), ("3", "3万"),
    ("5", r"5 \text{ root three}"), ("5", r"5 \text{ mod } 7"), ("5", r"5 \text{ is wrong}"),
    ("5", r"5 \text{ and a half}"), ("5", r"5 \text{ million}"), ("5", r"5 \text{ over } 3"),
    ("5", r"5 \text{ fails}"), ("5", r"5 \text{ cubed}"), ("5", r"5 \text{ too small}"),
    (r"5\text{ m}", r"5\text{ km}"), (r"5\text{ C}", r"5\text{ F}"),
    (r"5\text{ kg}", r"5\text{ m}"),
    (r"5\text{ apples}", r"5\text{ oranges}"), ("5", "5x"), ("5", "5m"), ("5", r"5\,x"),
    ("5", r"5 \text{ negative}"), ("5", r"5 \text{ infinity}"), ("2", r"2 \text{ thirds of } n"),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "answer"), RIGHT)
def test_what_counts_or_measures_is_a_unit(gold, answer):
    verdict = verify("math", gold, f"\\boxed{{{answer}}}")
    assert verdict.right, verdict


@pytest.mark.parametrize(("gold", "answer"), WRONG)
def test_what_changes_or_judges_a_number_is_none(gold, answer):
    verdict = verify("math", gold, f"\\boxed{{{answer}}}")
    assert not verdict.right, verdict
