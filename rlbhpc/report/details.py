"""Everything a report shows beyond the answer, worked out once for page and tables alike."""

from __future__ import annotations

from dataclasses import dataclass

from rlbhpc.report.audited import Audited, audited
from rlbhpc.report.beyond import Beyond, More, beyond, compared, more
from rlbhpc.report.budgets import Budget, budgets
from rlbhpc.report.chosen import Chosen, chosen
from rlbhpc.report.gather import Report
from rlbhpc.report.guesses import Unguessed, unguessed
from rlbhpc.report.matched import Matched, matched
from rlbhpc.report.positions import Positions, positions
from rlbhpc.report.prompts import Prompts, UnderPrompt, prompts, under_prompts
from rlbhpc.report.regraded import Verdicts
from rlbhpc.report.reliability import Reliability, reliability
from rlbhpc.report.repeats import Repeats, repeats
from rlbhpc.report.responses import Responses, Votes, responses, votes
from rlbhpc.report.reviewed import Reviewed, reviewed
from rlbhpc.report.scored import Evolution, Scored, evolutions, scored
from rlbhpc.report.temperatures import Temperatures, temperatures
from rlbhpc.report.training import Training, training


@dataclass(frozen=True)
class Details:
    """What there is of each kind; an empty tuple, or None, where the run has nothing of it."""

    responses: tuple[Responses, ...]
    votes: tuple[Votes, ...]
    training: tuple[Training, ...]
    scored: tuple[Scored, ...]
    evolutions: tuple[Evolution, ...]
    positions: tuple[Positions, ...]
    temperatures: tuple[Temperatures, ...]
    matched: tuple[Matched, ...]
    prompts: tuple[Prompts, ...]
    under_prompts: tuple[UnderPrompt, ...]
    budgets: tuple[Budget, ...]
    chosen: tuple[Chosen, ...]
    unguessed: tuple[Unguessed, ...]
    reliability: tuple[Reliability, ...]
    repeats: tuple[Repeats, ...]
    beyond: tuple[Beyond, ...]
    more: tuple[More, ...]
    reviewed: tuple[Reviewed, ...]
    audited: tuple[Audited, ...]
    verdicts: Verdicts | None


def details(report: Report, verdicts: Verdicts | None = None) -> Details:
    """Work out all details of a report; ``verdicts`` are those of another grader, if there are."""
    scores, shown, written = scored(report), compared(report), responses(report)
    hot = temperatures(report)
    last = [one for one in written if any(one.of is other for other in shown)]
    return Details(
        tuple(written),
        tuple(votes(report, shown)),
        tuple(training(report)),
        tuple(scores),
        tuple(evolutions(scores)),
        tuple(positions(report, last)),
        tuple(hot),
        tuple(matched(report, hot, written)),
        tuple(prompts(report)),
        tuple(under_prompts(report)),
        tuple(budgets(report, written)),
        tuple(chosen(report)),
        tuple(unguessed(report)),
        tuple(reliability(report, shown)),
        tuple(repeats(report, last)),
        tuple(beyond(report)),
        tuple(more(report)),
        tuple(reviewed(report)),
        tuple(audited(report)),
        verdicts,
    )
