"""Truths that a critic would try the answer on, and how often it holds there.

``python -m tests.stats.critics 40`` prints a table of them, ``… 40 topics`` the rows whose name
holds a word. Every second study has its arms exchanged.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rlbhpc.stats import Answer, Counts, ErrorCounts, Told, Verdict, Word, answer
from rlbhpc.stats.decision import MARGIN
from tests.stats import answer_truths as truths
from tests.stats.answer_truths import Rates, times

Arms = Callable[[int, np.random.Generator], tuple[Rates, Rates]]


@dataclass(frozen=True)
class Critic:
    """One truth, and the study that meets it.

    Attributes
    ----------
    name, rates, problems, n
        As of a truth. Problems of one topic have the same ``topic`` behaviour.
    base_n
        Samples of the base where they are not n.
    false_right, missed
        Error rates of the verifier in base and trained model.
    known
        ``told``, ``audit``, or nothing.
    topic
        Problems of a topic.
    stop_after, lacking
        Right samples at which the trained model's sampling ends; share of problems that lack a few.
    """

    name: str
    rates: Arms
    problems: int = 200
    n: int = 256
    base_n: int = 0
    false_right: tuple[float, float] = (0.0, 0.0)
    missed: float = 0.0
    known: str = ""
    topic: int = 1
    stop_after: int = 0
    lacking: float = 0.0


# Responses judged right that an audit reads in each arm.
READ = 400


def hard_tail(problems: int, rng: np.random.Generator) -> Rates:
    """A quarter never solved, the rest with a heavy tail."""
    return np.where(rng.random(problems) < 0.25, 0.0, rng.beta(0.3, 2, problems))


def same(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """Nothing moved."""
    base = hard_tail(problems, rng)
    return base, base


def lost(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    """A tenth lost for good."""
    base = hard_tail(problems, rng)
    return base, np.where(rng.random(problems) < 0.1, 0.0, base)


def by_topic(size: int, share: float, spread: float) -> Arms:
    """Topics of which a share is lost as a whole, and that differ in speed."""

    def rates(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
        base = hard_tail(problems, rng)
        topics = -(-problems // size)
        topic = np.repeat(np.arange(topics), size)[:problems]
        factor = np.exp(spread * rng.normal(size=topics))[topic]
        hit = (rng.random(topics) < share)[topic]
        return base, np.where(hit, 0.0, times(base, factor))

    return rates


def copies(size: int, share: float) -> Arms:
    """Near-copies: the problems of a group have nearly the same rates, and are lost together."""

    def rates(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
        base = np.repeat(hard_tail(problems // size, rng), size)
        base = times(base, np.exp(0.1 * rng.normal(size=problems)))
        hit = np.repeat(rng.random(problems // size) < share, size)
        return base, np.where(hit, 0.0, base)

    return rates


def heavy(share: float) -> Arms:
    """Nearly all mass near 0, a share lost."""

    def rates(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
        base = rng.beta(0.15, 1.5, problems)
        return base, np.where(rng.random(problems) < share, 0.0, base)

    return rates


def tiny(share: float) -> Arms:
    """Base rates of 1 in 10,000, of which a share becomes easy."""

    def rates(problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
        base = np.full(problems, 1e-4)
        new = rng.random(problems) < share
        return base, np.where(new, rng.beta(1, 3, problems), base)

    return rates


def both(share: float) -> Arms:
    """As many lost as gained."""
    return lambda problems, rng: truths.churn(problems, rng, share)


CRITICS = (
    Critic("nothing moved", same),
    Critic("10 % lost", lost),
    Critic("nothing moved, f .001 = .001, told", same, false_right=(1e-3, 1e-3), known="told"),
    Critic("nothing moved, f .01, .0005, told", same, false_right=(1e-2, 5e-4), known="told"),
    Critic("nothing moved, f .003, .0002, told", same, false_right=(3e-3, 2e-4), known="told"),
    Critic("10 % lost, f .01 = .01, told", lost, false_right=(1e-2, 1e-2), known="told"),
    Critic("10 % lost, f .001 = .001, told", lost, false_right=(1e-3, 1e-3), known="told"),
    Critic("10 % lost, f .01, .0005, told", lost, false_right=(1e-2, 5e-4), known="told"),
    Critic("10 % lost, f .0005, .01, told", lost, false_right=(5e-4, 1e-2), known="told"),
    Critic("nothing moved, f .001 = .001, audit", same, false_right=(1e-3, 1e-3), known="audit"),
    Critic("nothing moved, f .01, .0005, audit", same, false_right=(1e-2, 5e-4), known="audit"),
    Critic("nothing moved, f .003, .0002, audit", same, false_right=(3e-3, 2e-4), known="audit"),
    Critic("10 % lost, f .001 = .001, audit", lost, false_right=(1e-3, 1e-3), known="audit"),
    Critic("10 % lost, f 0, audit", lost, known="audit"),
    Critic("10 % lost, 10 % of right ones missed, told", lost, missed=0.1, known="told"),
    Critic("topics of 25, 7 % of topics lost", by_topic(25, 0.07, 0.0), 300, topic=25),
    Critic("topics of 25, speed by topic", by_topic(25, 0.0, 0.7), 300, topic=25),
    Critic("topics of 5, 10 % of topics lost", by_topic(5, 0.1, 0.0), topic=5),
    Critic("topics of 5, speed by topic", by_topic(5, 0.0, 0.7), topic=5),
    Critic("topics of 50, speed by topic", by_topic(50, 0.0, 0.5), 400, topic=50),
    Critic("4 near-copies each, 10 % lost", copies(4, 0.1), topic=4),
    Critic("2 near-copies each, nothing moved", copies(2, 0.0), topic=2),
    Critic("heavy tail, nothing moved", heavy(0.0)),
    Critic("heavy tail, 8 % lost", heavy(0.08)),
    Critic("30 problems, nothing moved", same, 30, 512),
    Critic("30 problems, a third lost", truths.contest_lost, 30, 512),
    Critic("base rates 1e-4, nothing moved", tiny(0.0)),
    Critic("base rates 1e-4, 10 % gained", tiny(0.1)),
    Critic("1.2 % lost, 1.2 % gained", both(0.012), 300),
    Critic("5 % lost, 5 % gained", both(0.05), 300),
    Critic("trained model stops at 2 right, nothing moved", same, stop_after=2),
    Critic("trained model stops at 2 right, 10 % lost", lost, stop_after=2),
    Critic("n 1,024 against 256, nothing moved", same, base_n=1024),
    Critic("n 1,024 against 256, 10 % lost", lost, base_n=1024),
    Critic("a tenth lacks samples, 10 % lost", lost, lacking=0.1),
    Critic("three seeds that disagree", truths.three_seeds, 128),
    Critic("three quiet seeds", truths.three_quiet_seeds, 128),
    Critic("easy ones quicker, hard ones slower", truths.trap),
    Critic("six times quicker", truths.quicker),
)


@dataclass(frozen=True)
class Shares:
    """What is true: shares lost and gained, and differences at K and at k = 1."""

    lost: float
    gained: float
    net: float
    first: float


def true_shares(critic: Critic) -> Shares:
    """Average over many problems."""
    rng = np.random.default_rng(7)
    case = truths.Truth(critic.name, critic.problems, critic.n, critic.rates)
    rows = [truths._population(case, *critic.rates(20_000, rng)) for _ in range(20)]
    return Shares(*np.mean(rows, axis=0).tolist())


def counts(rates: Rates, critic: Critic, n: int, arm: int, rng: np.random.Generator) -> Counts:
    """Draw the verdicts of an arm."""
    false = critic.false_right[arm]
    seen = rates * (1 - critic.missed) + (1 - rates) * false
    size = np.full(critic.problems, n)
    if critic.lacking:
        size -= (rng.random(critic.problems) < critic.lacking) * rng.integers(1, n // 8)
    if arm and critic.stop_after:
        right = (rng.random((critic.problems, n)) < seen[:, None]).cumsum(axis=1)
        stopped = right[:, -1] >= critic.stop_after
        length = np.where(stopped, (right >= critic.stop_after).argmax(axis=1) + 1, n)
        found = np.minimum(right[:, -1], critic.stop_after)
        return Counts.of(length, found, critic.stop_after, n)
    return Counts.of(size, rng.binomial(size, seen))


def audit(rates: Rates, critic: Critic, arm: int, rng: np.random.Generator) -> ErrorCounts:
    """Read some of the responses that were judged right."""
    false = float(((1 - rates) * critic.false_right[arm]).mean())
    accepted = false + float((rates * (1 - critic.missed)).mean())
    return ErrorCounts(float(rng.binomial(READ, false / accepted)), READ)


def study(critic: Critic, rng: np.random.Generator, exchanged: bool) -> Answer:
    """Draw one study and give its answer, with the arms exchanged where that is asked."""
    base, trained = critic.rates(critic.problems, rng)
    runs = np.atleast_2d(trained)
    ours = counts(base, critic, critic.base_n or critic.n, 0, rng)
    theirs = [counts(run, critic, critic.n, 1, rng) for run in runs]
    errors: tuple[object, object] = (None, None)
    if critic.known == "told":
        errors = tuple(Told(false, critic.missed) for false in critic.false_right)  # type: ignore[assignment]
    elif critic.known == "audit":
        errors = audit(base, critic, 0, rng), audit(runs[0], critic, 1, rng)
    topics = None if critic.topic == 1 else np.arange(critic.problems) // critic.topic
    if exchanged:
        return answer(theirs[0], ours, errors=errors[::-1], clusters=topics)  # type: ignore[arg-type]
    return answer(ours, theirs, errors=errors, clusters=topics)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Outcome:
    """What came of one study: intervals that hold the truth, or NaN for none; claims."""

    net: float
    first: float
    lost: float
    gained: float
    false_side: bool
    false_sign: bool
    false_word: bool
    called: bool
    word: Word


def outcome(found: Answer, true: Shares) -> Outcome:
    """Compare an answer with the truth."""

    def held(low: float, high: float, value: float) -> float:
        return np.nan if np.isnan(low) else float(low - 1e-9 <= value <= high + 1e-9)

    def wrong(sign: int, value: float) -> bool:
        return bool(sign) and (abs(value) < 1e-3 or sign != np.sign(value))

    states = found.states
    sides = [(states.lost, true.lost), (states.gained, true.gained)]
    false_side = any(verdict is Verdict.YES and share < 1e-3 for verdict, share in sides)
    one_word = found.word in (
        Word.TRADES, Word.SHRINKS, Word.EXPANDS, Word.ONLY_SHARPENS, Word.ONLY_BLUNTS,
        Word.UNCHANGED,
    )  # fmt: skip
    false_word = one_word and any(
        (verdict is Verdict.YES) != (share >= MARGIN) for verdict, share in sides
    )
    larger = max(sides, key=lambda side: side[1])
    return Outcome(
        held(found.net.low, found.net.high, true.net),
        held(found.efficiency.low, found.efficiency.high, true.first),
        held(found.lost.low, found.lost.high, true.lost),
        held(found.gained.low, found.gained.high, true.gained),
        false_side,
        wrong(states.net, true.net) or wrong(states.first, true.first),
        false_word,
        larger[0] is Verdict.YES,
        found.word,
    )


def outcomes(critic: Critic, number: int, seed: int = 1) -> list[Outcome]:
    """Simulate some studies of a truth."""
    rng = np.random.default_rng(seed)
    true = true_shares(critic)
    mirror = Shares(true.gained, true.lost, -true.net, -true.first)
    seeds = np.ndim(critic.rates(4, np.random.default_rng(0))[1]) > 1
    found = []
    for turn in range(number):
        exchanged = bool(turn % 2) and not seeds
        found.append(outcome(study(critic, rng, exchanged), mirror if exchanged else true))
    return found


def row(critic: Critic, number: int) -> str:
    """Give one line of the table."""
    found = outcomes(critic, number)
    true = true_shares(critic)

    def share(name: str) -> float:
        return float(np.mean([getattr(one, name) for one in found]))

    def coverage(*names: str) -> str:
        values = np.array([getattr(one, name) for one in found for name in names])
        given = ~np.isnan(values)
        if not given.any():
            return "none"
        part = "" if given.all() else f" of {given.mean():.2f}"
        return f"{values[given].mean():.2f}{part}"

    words = {one.word for one in found}
    usual = max(words, key=lambda word: sum(one.word is word for one in found))
    called = f"{share('called'):.2f}" if max(true.lost, true.gained) >= MARGIN else "–"
    return (
        f"| {critic.name} | {100 * true.lost:.1f} / {100 * true.gained:.1f} | "
        f"{coverage('lost', 'gained')} | {coverage('net')} | {coverage('first')} | "
        f"{share('false_side'):.2f} / {share('false_sign'):.2f} / {share('false_word'):.2f} | "
        f"{called} | {usual} |"
    )


def main() -> None:
    """Print the table."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    wanted = " ".join(sys.argv[2:])
    for critic in CRITICS:
        if wanted in critic.name:
            print(row(critic, number), flush=True)


if __name__ == "__main__":
    main()
