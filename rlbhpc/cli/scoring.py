"""The verbs that score texts under models: `score`, `match-entropy`."""

from __future__ import annotations

import json
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
    study: Path, overrides: tuple[str, ...], chosen: tuple[str, ...], limit: float | None,
    as_json: bool,
) -> int:  # fmt: skip
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
    models = set()
    for name in names:
        request = resolved.file.scores[name]
        models.add(request.model)
        if request.responses is not None:
            models.add(resolved.arms[request.responses].model)
    reject_foreign_models(resolved, models)
    store_study(resolved)
    states_before = read_score_states(resolved, names)
    with Drain(limit=limit) as drain:
        too_long = score_all(resolved, states_before, drain, tell)
        is_stopped = drain.requested
    states = read_score_states(resolved, names)
    rows = [score_row(resolved, condition_state) for condition_state in states]
    if as_json:
        print_json(rows)
    else:
        print_rows("Scores", rows)
    if too_long:
        tell(f"{too_long:,} texts are longer than the model holds")
    is_missing = any(condition_state.missing for condition_state in states)
    if is_stopped and is_missing:
        return TRY_AGAIN
    lacks_samples = any(len(each.requested.requests) < each.requested.expected for each in states)
    if is_missing or lacks_samples:
        return INCOMPLETE
    had_work = any(condition_state.missing for condition_state in states_before)
    return DONE if had_work else NOTHING_TO_DO


def score_row(study: Study, condition_state: ScoreState) -> dict[str, Any]:
    """One condition as JSON-ready values; the perplexity is the median over responses.

    A condition is the texts of one source at one step, scored by one model at one step: the scorer
    gives each text the sum of its tokens' log-probs. ``requested`` are the texts that should have a
    score, of which ``expected`` counts also those that are not sampled yet.
    """
    condition = condition_state.condition
    logprob_sums = []
    token_counts = []
    for row in tables.read_scores(study.layout, *condition.table).to_pylist():
        if (row["step"], row["scorer_step"]) == (condition.step, condition.scorer_step):
            logprob_sums.append(row["logprob_sum"])
            token_counts.append(row["n_tokens"])
    median = None
    if logprob_sums:
        median = round(summarize_perplexities(perplexity(logprob_sums, token_counts)).median, 4)
    requested = condition_state.requested
    scored = len(requested.requests) - len(condition_state.missing)
    return {
        "score": condition.score,
        "texts_of": condition.source,
        "problem_set": condition.set_name,
        "step": condition.step,
        "scorer": condition.model,
        "scorer_step": condition.scorer_step,
        "scored": scored,
        "missing": requested.expected - scored,
        "median_perplexity": median,
    }


@click.command(epilog="Example: rlbhpc match-entropy math.yaml --match rl-matched")
@click.argument("study", type=click.Path(path_type=Path))
@shared.overrides
@click.option("--match", "chosen", multiple=True, help="Only this match; may be given again.")
def match_entropy(study: Path, overrides: tuple[str, ...], chosen: tuple[str, ...]) -> int:
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
    for name in names:
        entry = resolved.file.match_entropy[name]
        # Samples at one temperature after the other, and tells the entropy of each.
        matched = match(resolved, name, tell)
        click.echo(
            f"{entry.arm} at temperature {matched.temperature:g} has {matched.entropy:.4f} "
            f"nat per token, {entry.to} has {matched.target:.4f} "
            f"(tolerance {entry.tolerance:g}).\n"
            f"In the study, remove match_entropy.{name} and put under `arms`:\n"
            f"  {arm_line(resolved, name, matched.temperature)}"
        )
    return DONE


def arm_line(study: Study, name: str, temperature: float) -> str:
    """The matched arm as one line of a study file."""
    arm = study.file.arms[study.file.match_entropy[name].arm]
    values = arm.model_dump(mode="json", exclude_defaults=True)
    values["temperature"] = temperature
    pairs = ", ".join(f"{key}: {_format_yaml(value)}" for key, value in values.items())
    return f"{name}: {{{pairs}}}"


def _format_yaml(value: Any) -> str:
    """A value as YAML reads it back; JSON is YAML."""
    is_word = isinstance(value, str) and value.replace("-", "").replace("_", "").isalnum()
    return str(value) if is_word else json.dumps(value, ensure_ascii=False)
