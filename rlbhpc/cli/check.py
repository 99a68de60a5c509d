"""``rlbhpc check``: resolve a study and print what it means."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from rlbhpc.cli import shared
from rlbhpc.cli.shared import print_json, print_table
from rlbhpc.errors import DONE, INCOMPLETE, UserError
from rlbhpc.launch.cluster import choose
from rlbhpc.launch.prepare import reject_what_jobs_would
from rlbhpc.study.difference import Difference, diff
from rlbhpc.study.load import context_length, load_study, stored_study
from rlbhpc.study.plugin_check import brought, place
from rlbhpc.study.schema import MoreSampling
from rlbhpc.study.study import Study

SHOWN_CHANGES = 40
# What a recipe says of its size.
_SIZES = {"learning_rate", "prompts_per_step", "samples_per_prompt", "seed"}


@click.command(epilog="Example: rlbhpc check math.yaml --set sampling.n=64")
@click.argument("study", type=click.Path(path_type=Path))
@shared.overrides
@click.option("--json", "as_json", is_flag=True, help="Print the expansion as JSON.")
def check(study: Path, overrides: tuple[str, ...], as_json: bool) -> int:
    """Check a study file and show what it expands to, or check a cube.

    Everything that STUDY names is looked up: models, problems, prompts, checkpoints. Where the
    study has been run before, what changed since is shown, and which stored samples stay valid.

    Where STUDY is the folder of a run or a cube (cube.zarr), every byte and number of the cube is
    checked instead; exit code 3 says that it has to be derived anew.
    """
    if study.is_dir():
        return check_cube(study, as_json)
    looked_at = brought(study, overrides)
    with waiting("The first look at a large model reads all of it …"):
        resolved = load_study(study, overrides)
        _, cluster = choose(resolved.file.cluster)
        reject_what_jobs_would(resolved, cluster)
    changed = since_last_run(resolved)
    if as_json:
        record = expansion(resolved) | {"since_last_run": changed and changed.as_dict()}
        print_json(record | ({"plugins": looked_at} if looked_at else {}))
    else:
        print_expansion(resolved)
        if resolved.plugins:
            click.echo()
        rows = []
        for reference, identity in resolved.plugins.items():
            name, _, digest = identity.rpartition("@")
            holds = ", ".join(looked_at[place(reference)])
            rows.append({"plugin": name, "digest": digest, "holds": holds})
        _print_rows("Plugins", rows, "plugin digest holds")
        print_difference(changed)
    return DONE


def check_cube(path: Path, as_json: bool) -> int:
    """Print what is wrong with a cube."""
    from rlbhpc.store.schema_check import validate_cube  # loads zarr, which a study does not need

    findings = validate_cube(path)
    if as_json:
        print_json(findings)
    else:
        click.echo("\n".join(findings) or f"{path}: the cube is sound.")
    return INCOMPLETE if findings else DONE


def waiting(text: str) -> contextlib.AbstractContextManager[object]:
    """A line that moves while one waits; nothing where nobody is watching."""
    console = Console(stderr=True)
    return console.status(text) if console.is_terminal else contextlib.nullcontext()


def since_last_run(study: Study) -> Difference | None:
    """What differs from the study as it was last run; None where it never was."""
    stored = study.layout.study
    if not stored.is_file():
        return None
    try:
        return diff(stored_study(stored), study)
    except (UserError, OSError) as error:
        raise UserError(f"{error}; or move it away to go on without it") from None


def expansion(study: Study) -> dict[str, Any]:
    """What a study file means, as JSON-ready values."""
    arms = [_arm(study, name) for name in study.arms]
    return {
        "name": study.name,
        "question": study.file.question,
        "hash": study.hash,
        "seed": study.seed,
        "output": study.file.output,
        "cluster": study.file.cluster,
        "models": [_model(study, name) for name in study.models],
        "problem_sets": [_problem_set(study, name) for name in study.problem_sets],
        "recipes": [_recipe(study, name) for name in study.file.recipes],
        "arms": arms,
        "scores": [_score(study, name) for name in study.file.scores],
        "comparisons": [{"base": base, "trained": arm} for base, arm in study.comparisons()],
        "seeds": [{"pooled": name, "arms": arms} for name, arms in study.trainings().items()],
        "samples": sum(arm["samples"] for arm in arms),
        "resolved": study.file.model_dump(mode="json", by_alias=True),
    }


def _model(study: Study, name: str) -> dict[str, Any]:
    entry = study.models[name]
    if entry.endpoint is not None:
        origin = f"{entry.endpoint.model} at {entry.endpoint.url}"
    elif entry.train is not None:
        origin = f"trained from {entry.train.from_ or 'nothing'} by {entry.train.recipe}"
    else:
        origin = str(entry.path)
    return {
        "model": name,
        "origin": origin,
        "base": study.base(name),
        "steps": study.steps(name),
        "holds": context_length(study, name),
        "content": {str(step): digest for step, digest in study.digests[name].items()},
    }


def _problem_set(study: Study, name: str) -> dict[str, Any]:
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


def _recipe(study: Study, name: str) -> dict[str, Any]:
    recipe = study.file.recipes[name]
    return {
        "recipe": name,
        **recipe.model_dump(include={"algorithm", "problems", "texts"}),
        "teacher": recipe.teacher and recipe.teacher.arm,
        "prompt": recipe.prompt and study.prompts[recipe.prompt].name,
        **recipe.model_dump(include=_SIZES),
    }


def _score(study: Study, name: str) -> dict[str, Any]:
    columns = {"model", "responses", "texts", "per_problem"}
    return {"score": name, **study.file.scores[name].model_dump(include=columns)}


def _arm(study: Study, name: str) -> dict[str, Any]:
    arm, sets = study.arms[name], study.sets(name)
    per_step = sum(len(study.problem_ids(s)) * study.n(name, s) for s in sets)
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
        "problem_sets": list(sets),
        "n": {s: study.n(name, s) for s in sets},
        "stop_after": {s: study.stop_after(name, s) or None for s in sets},
        "samples": per_step * len(arm.steps),
    }


def print_expansion(study: Study) -> None:
    """Print the tables of `rlbhpc check`."""
    entries = expansion(study)
    click.echo(f"Study {study.name}, hash {study.hash}, seed {study.seed}")
    if study.file.question:
        click.echo(study.file.question)
    click.echo(f"Results in {study.file.output}\n")
    _print_rows("Models", entries["models"], "model origin base steps holds")
    _print_rows(
        "Problem sets",
        entries["problem_sets"],
        "problem_set set subset problems duplicates_left_out n path",
    )
    columns = (
        "recipe algorithm problems prompt learning_rate prompts_per_step samples_per_prompt seed"
    )
    _print_rows("Recipes", entries["recipes"], columns)
    arms = entries["arms"]
    for arm in arms:
        arm["n"] = sorted(set(arm["n"].values()))
        arm["stop_after"] = sorted({r for r in arm["stop_after"].values() if r})
    stops = "stop_after " if any(arm["stop_after"] for arm in arms) else ""
    more = [key for key in MoreSampling.model_fields if any(key in arm for arm in arms)]
    extras = "".join(f"{key} " for key in more)
    columns = f"arm model steps prompt temperature top_p {extras}max_tokens n {stops}"
    columns += "problem_sets engine samples"
    _print_rows("Arms", arms, columns)
    _print_rows("Scores", entries["scores"], "score model responses texts per_problem")
    _print_rows("Comparisons", entries["comparisons"], "base trained")
    _print_rows("Seeds of one recipe, one arm in the report", entries["seeds"], "pooled arms")
    idle = [arm["arm"] for arm in arms if not arm["problem_sets"]]
    if idle:
        click.echo(
            f"{', '.join(idle)}: no problem set is left to answer; one that a recipe trains on or "
            "that examples come from must be named under `problem_sets` of `sampling` or an arm"
        )
    most = " at the most" if stops else ""
    click.echo(f"{entries['samples']:,} samples in all{most}")


def _print_rows(title: str, rows: list[dict[str, Any]], columns: str) -> None:
    if not rows:
        return
    names = columns.split()
    heads = [name.replace("_", " ") for name in names]
    print_table(title, heads, [[row.get(name) for name in names] for row in rows])


def print_difference(changed: Difference | None) -> None:
    """Print what changed since the last run."""
    if changed is None:
        return
    if not changed.changes:
        click.echo("Nothing changed since the last run.")
        return
    click.echo("\nChanged since the last run:")
    for change in changed.changes[:SHOWN_CHANGES]:
        click.echo(f"  {change}")
    if len(changed.changes) > SHOWN_CHANGES:
        click.echo(f"  and {len(changed.changes) - SHOWN_CHANGES} more; --json shows all")
    click.echo("What becomes of the stored samples:")
    for block in changed.blocks:
        click.echo(f"  {block}")
    tell_of_old_verdicts(changed.judged, click.echo)


def tell_of_old_verdicts(sets: Sequence[str], say: Callable[[str], None]) -> None:
    """Say that stored samples keep the verdicts of the verifier before."""
    if sets:
        say(
            f"Stored samples of {', '.join(sets)} keep the verdicts of the verifier before; after "
            "`rlbhpc sample`, `rlbhpc verify RUN --into NEW` judges them with today's."
        )
