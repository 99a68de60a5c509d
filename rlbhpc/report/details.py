"""Everything a report shows beyond the answer, worked out once for page and tables alike."""

from __future__ import annotations

from dataclasses import dataclass

from rlbhpc.report.beyond import Beyond, More, beyond, compared, more
from rlbhpc.report.gather import Report
from rlbhpc.report.guesses import Unguessed, unguessed
from rlbhpc.report.reliability import Reliability, reliability
from rlbhpc.report.responses import Responses, Votes, responses, votes
from rlbhpc.report.scored import Evolution, Scored, evolutions, scored
from rlbhpc.report.temperatures import Temperatures, temperatures
from rlbhpc.report.training import Training, training


@dataclass(frozen=True)
class Details:
    """What there is of each kind; an empty tuple where the run has nothing of it."""

    responses: tuple[Responses, ...]
    votes: tuple[Votes, ...]
    training: tuple[Training, ...]
    scored: tuple[Scored, ...]
    evolutions: tuple[Evolution, ...]
    temperatures: tuple[Temperatures, ...]
    unguessed: tuple[Unguessed, ...]
    reliability: tuple[Reliability, ...]
    beyond: tuple[Beyond, ...]
    more: tuple[More, ...]


def details(report: Report) -> Details:
    """Work out all details of a report."""
    scores = scored(report)
    return Details(
        tuple(responses(report)),
        tuple(votes(report, compared(report))),
        tuple(training(report)),
        tuple(scores),
        tuple(evolutions(scores)),
        tuple(temperatures(report)),
        tuple(unguessed(report)),
        tuple(reliability(report, compared(report))),
        tuple(beyond(report)),
        tuple(more(report)),
    )
