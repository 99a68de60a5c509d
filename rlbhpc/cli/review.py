"""``rlbhpc review``: have people read the reasoning behind rare right answers."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import click

from rlbhpc.cli import shared
from rlbhpc.cli.shared import print_json, print_rows, print_table, tell, visible
from rlbhpc.cli.verify import paired_curves
from rlbhpc.engines.endpoint import EndpointEngine
from rlbhpc.errors import DONE, INCOMPLETE, NOTHING_TO_DO
from rlbhpc.study.layout import Layout
from rlbhpc.sweep.again import Stored
from rlbhpc.verify.audit.chain_judge import judge_sheet, parse_judge, without_verdict
from rlbhpc.verify.audit.review import (
    HIGHEST_RATE,
    WORDS,
    ChainCounts,
    agreement,
    chain_counts,
    make_sheet,
    model_counts,
)
from rlbhpc.verify.audit.reviews import Kept, add, keep, kept, take

# Seconds without a byte after which a question to a judge is asked again.
_PATIENCE: Final = 300.0


@click.command(
    epilog="Examples: rlbhpc review runs/math --arm base; "
    "rlbhpc review runs/math --take judgements.json; rlbhpc review runs/math --results"
)
@click.argument("run", type=click.Path(path_type=Path))
@shared.one_arm
@shared.one_step
@click.option(
    "--rate", type=click.FloatRange(min=0, max=1, min_open=True), default=HIGHEST_RATE,
    show_default=True, help="Read problems that at most this share of the samples solves.",
)  # fmt: skip
@click.option("--chains", type=click.IntRange(min=1), default=4, show_default=True,
    help="Right answers to read per problem.",
)  # fmt: skip
@click.option(
    "--take", "given", type=click.Path(path_type=Path), help="Store what a reader has saved."
)
@click.option(
    "--judge", "judge_at", metavar="URL/MODEL",
    help="Have a served model judge the chains too, in a column of its own.",
)  # fmt: skip
@click.option("--key-env", help="With --judge: environment variable that holds the key.")
@click.option("--results", is_flag=True, help="Show what the readers said so far.")
@shared.as_json
def review(
    run: Path, arm: str | None, step: int | None, rate: float, chains: int, given: Path | None,
    judge_at: str | None, key_env: str | None, results: bool, as_json: bool,
) -> int:  # fmt: skip
    """Have people judge the reasoning of rare right answers in the run in the folder RUN.

    At a large k one lucky guess solves a problem. Without --take and --results, a page is written
    for every arm, problem set and step with the right answers to problems that are rarely solved.
    Open it in a browser, judge each chain as valid, invalid or unclear, save, and give the file
    back with --take. --results shows how many chains hold, how far two readers agree, and pass@k
    that counts valid chains alone.

    --judge asks a model behind an OpenAI-compatible server as well, such as
    http://localhost:8000/v1/some-model. What it says stands in a column of its own and never
    enters the counts; a chain that it gives no verdict on is unclear. Given again, it asks about
    those alone. Exit code 3 says that there are some.
    """
    if key_env is not None and judge_at is None:
        raise click.UsageError("--key-env goes with --judge")
    layout = Layout(run)
    if given is not None:
        sheet, judged = take(layout.reviews, given)
        click.echo(
            f"{judged.reviewer}: {len(judged.words)} of {len(sheet.sheet.chains)} chains of "
            f"{sheet.title}."
        )
        return DONE
    if results:
        return _results(list(kept(layout.reviews)), as_json)
    written = _sheets(layout, arm, step, rate, chains)
    if judge_at is not None and written:
        return _judge(written, judge_at, key_env, as_json)
    if as_json:
        print_json(
            [{"of": paper.title, "chains": len(paper.sheet.chains), "page": str(paper.page)}
             for paper in written]
        )  # fmt: skip
    else:
        rows = [[paper.title, len(paper.sheet.chains), str(paper.page)] for paper in written]
        print_table("Sheets to read", ["of", "chains", "page"], rows)
        if not written:
            click.echo(f"No problem is solved by more than none and at most {rate:.0%} of samples.")
    return DONE if written else NOTHING_TO_DO


def _sheets(
    layout: Layout, arm: str | None, step: int | None, rate: float, chains: int
) -> list[Kept]:
    sheets = []
    stored = Stored(layout, arm, step)
    for group in stored.groups():
        for place, records in stored.steps(group):
            sheet = make_sheet(records, rate, chains)
            if sheet.chains:
                sheets.append(keep(layout.reviews, sheet, f"{group}, step {place}"))
    return sheets


def _judge(sheets: list[Kept], judge_at: str, key_env: str | None, as_json: bool) -> int:
    """Have a model judge the sheets; what it gives no verdict on is said aloud."""
    url, model = parse_judge(judge_at)
    name = f"{model} at {url}"
    engine = EndpointEngine(
        model, url=url, chat=True, key_env=key_env, concurrency=8, tries=4, timeout=_PATIENCE,
        top_logprobs=0,
    )  # fmt: skip
    rows, reasons = [], Counter[str]()
    for page in sheets:
        before = next((j for j in page.judgements() if j.by_model and j.reviewer == name), None)
        judged = judge_sheet(engine, name, page.sheet, before)
        add(page, judged)
        missing = without_verdict(judged)
        reasons.update(missing)
        said = Counter(judged.words.values())
        row: dict[str, Any] = {"of": page.title}
        row.update((word, said[word]) for word in WORDS)
        rows.append(row | {"without_verdict": len(missing)})
    if as_json:
        print_json(rows)
    else:
        print_rows(f"What {model} says", rows)
        for reason, count in reasons.most_common():
            tell(f"{count} without a verdict: {visible(reason, lines=False)}")
    return INCOMPLETE if reasons else DONE


def _results(sheets: list[Kept], as_json: bool) -> int:
    results = [_result(result) for result in sheets]
    if as_json:
        print_json(results)
        return DONE if results else NOTHING_TO_DO
    for result in results:
        print_rows(f"{result['of']}: chains", result["problems"])
        print_rows("What models say, beside it", result["models"])
        print_rows("Agreement of readers", result["agreement"])
        if result["pass_at_k"]:
            print_table(
                "pass@k of these problems", ["k", "right answers", "valid chains"],
                [list(row.values()) for row in result["pass_at_k"]],
            )  # fmt: skip
    if not results:
        click.echo("No sheet was made yet; leave --results out to make them.")
    return DONE if results else NOTHING_TO_DO


def _result(page: Kept) -> dict[str, Any]:
    """All that the readers of a sheet said, for tables and machines."""
    judged = page.judgements()
    counts = chain_counts(page.sheet, judged)
    pairs = [(a, b, agreement(a, b)) for a, b in combinations(judged, 2)]
    return {
        "of": page.title,
        "readers": [{"name": j.reviewer, "model": j.by_model} for j in judged],
        "problems": [count._asdict() for count in counts],
        "models": [count._asdict() for count in model_counts(page.sheet, judged)],
        "agreement": [
            {"readers": f"{a.reviewer}, {b.reviewer}", "both": said.both, "same": said.same,
             "kappa": None if said.kappa != said.kappa else round(said.kappa, 3)}
            for a, b, said in pairs
        ],
        "pass_at_k": _curves([count for count in counts if count.read]),
    }  # fmt: skip


def _curves(counts: list[ChainCounts]) -> list[dict[str, float]]:
    """Mean pass@k over the problems that were read, by right answers and by valid chains."""
    curves = paired_curves(
        [count.n for count in counts],
        [count.right for count in counts],
        [count.valid_among_right for count in counts],
    )
    return [{"k": k, "right": right, "valid": valid} for k, right, valid in curves]
