"""The verbs that score texts under models: `score`, `match-entropy`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from rlbhpc.cli import shared
from rlbhpc.cli.shared import print_json, print_rows, tell
from rlbhpc.errors import DONE, INCOMPLETE, NOTHING_TO_DO, TRY_AGAIN
from rlbhpc.stats.perplexities import perplexity, summarize_perplexities
from rlbhpc.store import tables
from rlbhpc.study.lineage import reject_foreign_models
from rlbhpc.study.study import Study
from rlbhpc.sweep.match import match
from rlbhpc.sweep.process import Drain
from rlbhpc.sweep.remember import store_study
from rlbhpc.sweep.score import ScoreState, read_score_states, score_all


@click.command(epilog="Example: rlbhpc score math.yaml --score rl-under-base")
@click.argument("study", type=click.Path(path_type=Path))
@shared.overrides
@click.option("--score", "chosen", multiple=True, help="Only this score; may be given again.")
@shared.minutes
@shared.as_json
def score(
    study: Path,
    overrides: tuple[str, ...],
    chosen: tuple[str, ...],
    limit: float | None,
    as_json: bool,
) -> int:
    """Score the texts that STUDY names under `scores`, which perplexity is made of.

    Whose texts are scored by whom is one entry each: the base on its own answers and on the trained
    model's, the trained model on its own, and any model on the texts of a file. The same command
    again goes on from where it stopped. Exit code 3 says that samples to be scored do not exist
    yet, or are too long for the model.
    """
    resolved = shared.logged_study(study, overrides, "score")
    names = shared.named_entries("--score", chosen, resolved.file.scores)
    if not names:
        click.echo("The study names no scores.")
        return NOTHING_TO_DO
    requests = [resolved.file.scores[name] for name in names]
    answering = {resolved.arms[r.responses].model for r in requests if r.responses is not None}
    reject_foreign_models(resolved, answering | {request.model for request in requests})
    store_study(resolved)
    before = read_score_states(resolved, names)
    with Drain(limit=limit) as drain:
        too_long = score_all(resolved, before, drain, tell)
        stopped = drain.requested
    after = read_score_states(resolved, names)
    rows = [row(resolved, s) for s in after]
    if as_json:
        print_json(rows)
    else:
        print_rows("Scores", rows)
    if too_long:
        tell(f"{too_long:,} texts are longer than the model holds")
    if stopped and any(s.missing for s in after):
        return TRY_AGAIN
    if any(s.missing or len(s.requested.requests) < s.requested.expected for s in after):
        return INCOMPLETE
    return DONE if any(s.missing for s in before) else NOTHING_TO_DO


def row(study: Study, s: ScoreState) -> dict[str, Any]:
    """One condition as JSON-ready values; the perplexity is the median over responses."""
    c = s.condition
    scores = tables.read_scores(study.layout, *c.table).to_pylist()
    mine = [r for r in scores if (r["step"], r["scorer_step"]) == (c.step, c.scorer_step)]
    values = perplexity([r["logprob_sum"] for r in mine], [r["n_tokens"] for r in mine])
    median = summarize_perplexities(values).median
    scored = len(s.requested.requests) - len(s.missing)
    return {
        "score": c.score,
        "texts_of": c.source,
        "problem_set": c.set_name,
        "step": c.step,
        "scorer": c.model,
        "scorer_step": c.scorer_step,
        "scored": scored,
        "missing": s.requested.expected - scored,
        "median_perplexity": round(median, 4) if mine else None,
    }


@click.command(epilog="Example: rlbhpc match-entropy math.yaml --match rl-matched")
@click.argument("study", type=click.Path(path_type=Path))
@shared.overrides
@click.option("--match", "chosen", multiple=True, help="Only this match; may be given again.")
@shared.as_json
def match_entropy(
    study: Path, overrides: tuple[str, ...], chosen: tuple[str, ...], as_json: bool
) -> int:
    """Find the temperatures that STUDY asks for under `match_entropy`.

    For each entry the temperature at which the mean token entropy of one arm is that of the other
    arm at its own temperature, by bisection on a seeded subset of the problems. What is printed is
    the arm to put into the study in place of the entry; nothing is stored.
    """
    resolved = shared.logged_study(study, overrides, "match-entropy")
    names = shared.named_entries("--match", chosen, resolved.file.match_entropy)
    if not names:
        click.echo("The study asks for no match.")
        return NOTHING_TO_DO
    results: dict[str, Any] = {}
    for name in names:
        entry = resolved.file.match_entropy[name]
        matched = match(resolved, name, tell)
        arm = line(resolved, name, matched.temperature)
        results[name] = {**asdict(matched), "tolerance": entry.tolerance, "arm": arm}
        if not as_json:
            click.echo(
                f"{entry.arm} at temperature {matched.temperature:g} has {matched.entropy:.4f} "
                f"nat per token, {entry.to} has {matched.target:.4f} "
                f"(tolerance {entry.tolerance:g}).\n"
                f"In the study, remove match_entropy.{name} and put under `arms`:\n"
                f"  {arm}"
            )
    if as_json:
        print_json(results)
    return DONE


def line(study: Study, name: str, temperature: float) -> str:
    """The matched arm as one line of a study file."""
    arm = study.file.arms[study.file.match_entropy[name].arm]
    values = arm.model_dump(mode="json", exclude_defaults=True) | {"temperature": temperature}
    return f"{name}: {{{', '.join(f'{key}: {_plain(value)}' for key, value in values.items())}}}"


def _plain(value: Any) -> str:
    """A value as YAML reads it back; JSON is YAML."""
    simple = isinstance(value, str) and value.replace("-", "").replace("_", "").isalnum()
    return str(value) if simple else json.dumps(value, ensure_ascii=False)
