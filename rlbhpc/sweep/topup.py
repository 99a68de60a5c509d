"""More samples for a chosen subset: which problems, how many, and by which rule they were chosen.

The choice is kept beside the study. A subset that was chosen by its results (problems that nobody
solved, say) is not a random one, so whoever reduces the samples must be able to see the rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from rlbhpc.errors import UserError
from rlbhpc.store import checked
from rlbhpc.study.layout import Layout

if TYPE_CHECKING:
    from rlbhpc.sweep.presence import Presence

RULES: Final = ("unsolved", "thin", "discordant", "ids")
# A problem solved this seldom hangs on single verdicts.
THIN: Final = 2


@dataclass(frozen=True)
class TopUp:
    """``n`` samples instead of the study's n for some problems of one arm, set and step."""

    arm: str
    set_name: str
    step: int
    n: int
    rule: str
    problems: tuple[str, ...]


def choose(
    rule: str, present: Presence, partner: Presence | None, ids: Sequence[str]
) -> tuple[str, ...]:
    """Problems of one block that a rule picks.

    ``unsolved``: sampled and never right. ``thin``: right once or twice. ``discordant``: solved
    under exactly one of the arm and its partner. ``ids``: those that are named.
    """
    block = present.block
    sampled, solved = present.count > 0, present.right > 0
    picked: NDArray[np.bool_]
    match rule:
        case "unsolved":
            picked = sampled & ~solved
        case "thin":
            picked = solved & (present.right <= THIN)
        case "discordant":
            if partner is None:
                raise UserError(
                    f"arm {block.arm} has no partner to disagree with; name the pair under "
                    "`analysis.compare` of the study"
                )
            theirs = dict(zip(partner.block.problems, partner.right > 0, strict=True))
            in_both = np.array([name in theirs for name in block.problems])
            other = np.array([theirs.get(name, False) for name in block.problems])
            picked = sampled & in_both & (solved != other)
        case "ids":
            wanted = set(ids)
            picked = np.array([name in wanted for name in block.problems])
        case _:
            raise UserError(f"--only {rule}: allowed: {', '.join(RULES)}")
    return tuple(np.array(block.problems, object)[picked])


def record(layout: Layout, added: Sequence[TopUp]) -> None:
    """Add top-ups to those that are kept; the same one again changes nothing."""
    kept = dict.fromkeys([*read(layout), *added])
    checked.write(layout.topups, {"topups": [asdict(topup) for topup in kept]})


def read(layout: Layout) -> list[TopUp]:
    """All top-ups of a study, in the order in which they were asked for."""
    try:
        rows = checked.read(layout.topups)["topups"]
        return [TopUp(**{**row, "problems": tuple(row["problems"])}) for row in rows]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{layout.topups}: damaged ({error}); restore it, or remove it and top up again"
        ) from None
