"""Options of recipes held against the dataclass that they are for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from rlbhpc.errors import UserError
from rlbhpc.study.complaints import Share, Weight, Whole, check_values, from_options


@dataclass(frozen=True)
class Settings:
    """One option of each kind."""

    steps: Whole = 1
    rate: Weight = 0.5
    share: Share = 1.0
    name: Literal["a", "b"] = "a"
    most: Annotated[float, Field(gt=0, lt=2)] = 1.0


STEPS = "allowed: a whole number from 0 to 10,000,000"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (5, "here: found 5; allowed: a mapping with the keys steps, rate, share, name, most"),
        ({"x": 1}, "here: unknown setting 'x'; allowed: steps, rate, share, name, most"),
        ({"step": 1}, "here: unknown setting 'step'; allowed: steps, rate, share, name, most"
                      "; did you mean steps?"),
        ({"steps": -1}, f"steps: found -1; {STEPS}"),
        ({"steps": 1.0}, f"steps: found 1.0; {STEPS}"),
        ({"steps": 10**7 + 1}, f"steps: found 10000001; {STEPS}"),
        ({"rate": -0.1}, "rate: found -0.1; allowed: a number from 0"),
        ({"rate": float("inf")}, "rate: found inf; allowed: a number from 0"),
        ({"rate": "1"}, "rate: found '1'; allowed: a number from 0"),
        ({"share": 1.1}, "share: found 1.1; allowed: a number from 0 to 1"),
        ({"share": -0.1}, "share: found -0.1; allowed: a number from 0 to 1"),
        ({"name": "c"}, "name: found 'c'; allowed: a or b"),
        ({"most": 2.0}, "most: found 2.0; allowed: a number above 0 and below 2"),
        ({"most": 0.0}, "most: found 0.0; allowed: a number above 0 and below 2"),
    ],
)  # fmt: skip
def test_what_an_option_cannot_be(options: Any, said: str) -> None:
    with pytest.raises(UserError) as refused:
        check_values(from_options(Settings, options, "here"))
    assert str(refused.value) == said


def test_what_stands_at_a_bound_is_allowed() -> None:
    options = {"steps": 10_000_000, "rate": 0.0, "share": 0, "name": "b", "most": 1}
    settings = from_options(Settings, options, "here")
    check_values(settings)
    check_values(Settings(steps=0, share=1.0))
    assert settings == Settings(10_000_000, 0.0, 0, "b", 1)
