"""``rlbhpc check``: resolve a study and print what it means."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from rlbhpc.cli import shared
from rlbhpc.cli.shared import print_json, print_table
from rlbhpc.errors import DONE, INCOMPLETE, UserError
from rlbhpc.launch.cluster import choose
from rlbhpc.launch.prepare import reject_what_jobs_would
from rlbhpc.study.difference import Difference, diff
from rlbhpc.study.load import context_length, load_study, stored_study
from rlbhpc.study.schema import MoreSampling
from rlbhpc.study.study import Study

# What a recipe says of its size.
RECIPE_SIZES: Final = {"learning_rate", "prompts_per_step", "samples_per_prompt", "seed"}
RECIPE_SOURCES: Final = {"algorithm", "texts"}
SCORE_KEYS: Final = {"model", "responses", "texts", "per_problem"}
MODEL_COLUMNS: Final = "model origin base steps holds"
SET_COLUMNS: Final = "problem_set set subset problems duplicates_left_out n path"
RECIPE_COLUMNS: Final = (
    "recipe algorithm problems prompt learning_rate prompts_per_step samples_per_prompt seed"
)
SCORE_COLUMNS: Final = "score model responses texts per_problem"


@click.command(epilog="Example: rlbhpc check math.yaml --set sampling.n=64")
@click.argument("study", type=click.Path(path_type=Path))
@shared.overrides
@click.option("--json", "as_json", is_flag=True, help="Print the expansion as JSON.")
def check(study: Path, overrides: tuple[str, ...], as_json: bool) -> int:
    """Check a study file and show what it expands to, or check a cube.

    Everything that STUDY names is looked up: models, problems, prompts, checkpoints. Where the
    study has been run before, it is said which stored samples stay valid, and why others do not.

    Where STUDY is the folder of a run or a cube (cube.zarr), every byte and number of the cube is
    checked instead; exit code 3 says that it has to be derived anew.
    """
    if study.is_dir():
        return check_cube(study, as_json)
    with show_progress("The first look at a large model reads all of it …"):
        resolved = load_study(study, overrides)
        _, cluster = choose(resolved.file.cluster)
        reject_what_jobs_would(resolved, cluster)
    difference = compare_with_last_run(resolved)
    if as_json:
        record = expansion(resolved)
        record["since_last_run"] = difference and difference.as_dict()
        print_json(record)
        return DONE
    print_expansion(resolved)
    if difference is not None:
        print_difference(difference)
    return DONE


def check_cube(path: Path, as_json: bool) -> int:
    """Print what is wrong with a cube, the array of all verdicts that was derived from the samples.

    Gives the exit code.
    """
    from rlbhpc.store.schema_check import validate_cube  # loads zarr, which a study does not need

    faults = validate_cube(path)
    if as_json:
        print_json(faults)
    else:
        click.echo("\n".join(faults) or f"{path}: the cube is sound.")
    return INCOMPLETE if faults else DONE


def show_progress(text: str) -> contextlib.AbstractContextManager[object]:
    """A line that moves while one waits; nothing where nobody is watching."""
    console = Console(stderr=True)
    return console.status(text) if console.is_terminal else contextlib.nullcontext()


def compare_with_last_run(study: Study) -> Difference | None:
    """What differs from the study as it was last run; None where it never was.

    ``study.layout.study`` is the file that keeps the study of the last run.
    """
    stored = study.layout.study
    if not stored.is_file():
        return None
    try:
        return diff(stored_study(stored), study)
    except (UserError, OSError) as error:
        raise UserError(f"{error}; or move it away to go on without it") from None


def expansion(study: Study) -> dict[str, Any]:
    """What a study file means, as JSON-ready values: each entry with its defaults filled in.

    A study samples arms: a model at some training steps, with a prompt and sampling settings, on
    some problem sets. Comparisons are pairs of a base and a trained arm. `trainings` gives arms of
    one recipe that differ by seed, by the name under which they are pooled. "resolved" is the file
    itself, with defaults.
    """
    arms = [_arm_row(study, name) for name in study.arms]
    identities = [identity.rpartition("@") for identity in study.plugins.values()]
    return {
        "name": study.name,
        "question": study.file.question,
        "hash": study.hash,
        "seed": study.seed,
        "output": study.file.output,
        "cluster": study.file.cluster,
        "models": [_model_row(study, name) for name in study.models],
        "problem_sets": [_problem_set_row(study, name) for name in study.problem_sets],
        "recipes": [_recipe_row(study, name) for name in study.file.recipes],
        "arms": arms,
        "scores": [
            {"score": name, **score.model_dump(include=SCORE_KEYS)}
            for name, score in study.file.scores.items()
        ],
        "comparisons": [{"base": base, "trained": arm} for base, arm in study.comparisons()],
        "seeds": [{"pooled": name, "arms": arms} for name, arms in study.trainings().items()],
        "plugins": [{"plugin": name, "digest": digest} for name, _, digest in identities],
        "samples": sum(arm["samples"] for arm in arms),
        "resolved": study.file.model_dump(mode="json", by_alias=True),
    }


def _model_row(study: Study, name: str) -> dict[str, Any]:
    """A model as JSON-ready values: where it is from, and how many tokens it holds.

    An entry is an endpoint (a served model), a training, or a folder. "holds" is the context
    length, and "content" the digest of the model's files at each step.
    """
    entry = study.models[name]
    if entry.endpoint is not None:
        origin = f"{entry.endpoint.model} at {entry.endpoint.url}"
    elif entry.train is not None:
        origin = f"trained from {entry.train.from_ or 'nothing'} by {entry.train.recipe}"
    else:
        origin = str(entry.path)
    digests = {str(step): digest for step, digest in study.digests[name].items()}
    return {
        "model": name,
        "origin": origin,
        "base": study.base(name),
        "steps": study.steps(name),
        "holds": context_length(study, name),
        "content": digests,
    }


def _problem_set_row(study: Study, name: str) -> dict[str, Any]:
    """A problem set of a study as JSON-ready values.

    ``entry.set`` is the set's public name where the study gives it another. Duplicates are repeated
    records of its files, which are left out.
    """
    entry = study.problem_sets[name]
    return {
        "problem_set": name,
        "set": entry.set or name,
        "subset": entry.subset,
        "problems": len(study.problem_ids(name)),
        "duplicates_left_out": study.duplicates.get(name, 0),
        "n": entry.n,
        "path": entry.path,
    }


def _recipe_row(study: Study, name: str) -> dict[str, Any]:
    """A recipe, which says how a model is trained, as JSON-ready values.

    A teacher is an arm whose answers the training learns from. `RECIPE_SOURCES` and `RECIPE_SIZES`
    name the fields of a recipe that are shown before and behind it.
    """
    recipe = study.file.recipes[name]
    prompts = [study.prompts[each.prompt].name for each in recipe.components if each.prompt]
    return {
        "recipe": name,
        **recipe.model_dump(include=RECIPE_SOURCES),
        "problems": " ".join(component.problems for component in recipe.components) or None,
        "teacher": recipe.teacher and recipe.teacher.arm,
        "prompt": " ".join(dict.fromkeys(prompts)) or None,
        **recipe.model_dump(include=RECIPE_SIZES),
    }


def _arm_row(study: Study, name: str) -> dict[str, Any]:
    """An arm as JSON-ready values: what it samples from which model, and how often.

    ``study.n`` is the samples of each problem of a set. "stop_after" is the number of right samples
    at which a problem is sampled no further, None where all are drawn. `extras` are sampling
    settings that are not always there. "steps" are the training steps of the model that are
    sampled.
    """
    arm = study.arms[name]
    samples_of_set = {set_name: study.n(name, set_name) for set_name in study.sets(name)}
    return {
        "arm": name,
        "model": arm.model,
        "steps": list(arm.steps),
        "prompt": study.prompts[arm.prompt].name,
        "temperature": arm.sampling.temperature,
        "top_p": arm.sampling.top_p,
        "max_tokens": arm.sampling.max_tokens,
        "stop": list(arm.sampling.stop),
        **arm.sampling.extras(),
        "engine": study.engine(name),
        "problem_sets": list(samples_of_set),
        "n": samples_of_set,
        "stop_after": {key: study.stop_after(name, key) or None for key in samples_of_set},
        "samples": study.count_samples(name),
    }


def print_expansion(study: Study) -> None:
    """Print the tables of `rlbhpc check`: one for each kind of entry of the study file.

    `expansion` gives the entries as dictionaries. An idle arm has no problem set to answer.
    """
    entries = expansion(study)
    click.echo(f"Study {study.name}, hash {study.hash}, seed {study.seed}")
    if study.file.question:
        click.echo(study.file.question)
    click.echo(f"Results in {study.file.output}\n")
    _print_columns("Models", entries["models"], MODEL_COLUMNS)
    _print_columns("Problem sets", entries["problem_sets"], SET_COLUMNS)
    _print_columns("Recipes", entries["recipes"], RECIPE_COLUMNS)
    stops_early = _print_arms(entries["arms"])
    _print_columns("Scores", entries["scores"], SCORE_COLUMNS)
    _print_columns("Comparisons", entries["comparisons"], "base trained")
    _print_columns("Seeds of one recipe, one arm in the report", entries["seeds"], "pooled arms")
    _print_columns("Plugins", entries["plugins"], "plugin digest")
    idle_arms = [arm["arm"] for arm in entries["arms"] if not arm["problem_sets"]]
    if idle_arms:
        click.echo(
            f"{', '.join(idle_arms)}: no problem set is left to answer; one that a recipe trains on"
            " or that examples come from must be named under `problem_sets` of `sampling` or an arm"
        )
    limit = " at the most" if stops_early else ""
    click.echo(f"{entries['samples']:,} samples in all{limit}")


def _print_arms(arms: list[dict[str, Any]]) -> bool:
    """Print the arms with those columns that any of them has; whether one may stop early.

    ``arms`` are rows of JSON-ready values, whose "n" and "stop_after" have a number for each
    problem set: samples of a problem, and right ones after which a problem is sampled no further.
    """
    rows = []
    for arm in arms:
        sizes = sorted(set(arm["n"].values()))
        stops = sorted({stop for stop in arm["stop_after"].values() if stop})
        rows.append({**arm, "n": sizes, "stop_after": stops})
    stops_early = any(row["stop_after"] for row in rows)
    columns = ["arm", "model", "steps", "prompt", "temperature", "top_p"]
    columns += [key for key in MoreSampling.model_fields if any(key in row for row in rows)]
    columns += ["max_tokens", "n"]
    if stops_early:
        columns.append("stop_after")
    columns += ["problem_sets", "engine", "samples"]
    _print_columns("Arms", rows, " ".join(columns))
    return stops_early


def _print_columns(title: str, rows: list[dict[str, Any]], columns: str) -> None:
    """Print some columns of rows, which are named in one text; nothing where there are no rows."""
    if not rows:
        return
    names = columns.split()
    headings = [name.replace("_", " ") for name in names]
    print_table(title, headings, [[row.get(name) for name in names] for row in rows])


def print_difference(difference: Difference) -> None:
    """Print which samples of the last run stay valid.

    A block is the samples of one arm on one problem set. ``judged`` are sets that have another
    verifier now.
    """
    if all(block.is_valid for block in difference.blocks):
        click.echo("All stored samples stay valid.")
    else:
        click.echo("What becomes of the stored samples:")
        for block in difference.blocks:
            click.echo(f"  {block}")
    tell_of_old_verdicts(difference.judged, click.echo)


def tell_of_old_verdicts(sets: Sequence[str], say: Callable[[str], None]) -> None:
    """Say that stored samples keep the verdicts of the verifier before."""
    if sets:
        say(
            f"Stored samples of {', '.join(sets)} keep the verdicts of the verifier before; after "
            "`rlbhpc sample`, `rlbhpc verify RUN --into NEW` judges them with today's."
        )
