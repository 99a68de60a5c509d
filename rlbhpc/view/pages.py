"""The pages of a run: the table of problems, one problem, what a search found.

The templates escape whatever stands in them; what comes as markup is made in
:mod:`rlbhpc.view.text` alone.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import jinja2
import numpy as np
from markupsafe import Markup

from rlbhpc.engines.completion import finish_name
from rlbhpc.errors import UserError
from rlbhpc.report.phrases import count_text, printable
from rlbhpc.store.sample import Sample
from rlbhpc.store.samples import StoredSample
from rlbhpc.verify.error_audit import WORDS, load_judgements
from rlbhpc.verify.verdict import Status
from rlbhpc.view import text
from rlbhpc.view.run import Hit, OpenRun, Pair, Side

#: Filters of the table, each with what it keeps.
FILTERS: Final = {
    "lost": "solved on the left, never on the right",
    "gained": "never solved on the left, solved on the right",
    "thin": "one or two right samples on a side",
    "wrong": "no right sample on either side",
    "cut": "at least a tenth of a side's samples reached the limit of tokens",
    "no answer": "at least a tenth of a side's samples have no answer",
    "strict ≠ lenient": "samples that are right by one of the two verdicts alone",
}
_VERDICTS: Final = {status: status.name.lower().replace("_", " ") for status in Status}


def _visible(value: Any) -> Any:
    """Show no character of a text that hides or reorders others."""
    return printable(value, lines=True) if type(value) is str else value


_TEMPLATES: Final = jinja2.Environment(
    loader=jinja2.PackageLoader("rlbhpc.view"), autoescape=True, undefined=jinja2.StrictUndefined,
    trim_blocks=True, lstrip_blocks=True, finalize=_visible,
)  # fmt: skip
_TEMPLATES.filters |= {"several": count_text, "rich": text.rich}


@dataclass(frozen=True)
class Site:
    """Where pages stand: behind a server, or as a copy, in which each page is a file."""

    name: str
    is_copy: bool = False

    def table(self, pair: Pair) -> str:
        """Address of the table."""
        return "index.html" if self.is_copy else f"./?{urlencode(pair._asdict())}"

    def problem(self, problem: str, pair: Pair, **query: object) -> str:
        """Address of a problem's page."""
        if self.is_copy:
            return f"problem-{hashlib.sha256(problem.encode()).hexdigest()[:16]}.html"
        return f"problem?{urlencode({'problem': problem, **pair._asdict(), **query})}"

    def page(self, template: str, **values: Any) -> str:
        """Write a page of the site, which may load nothing and run nothing but its own script."""
        folder = files("rlbhpc.view")
        css, js = (folder.joinpath(name).read_text() for name in ("page.css", "page.js"))
        own = "'none'" if self.is_copy else "'self'"
        policy = (
            f"default-src 'none'; base-uri 'none'; form-action {own}; connect-src {own}; "
            f"style-src '{_hash(css)}'; script-src '{_hash(js)}'; "
            "require-trusted-types-for 'script'; trusted-types 'none'"
        )
        page = _TEMPLATES.get_template(template)
        return page.render(site=self, policy=policy, css=Markup(css), js=Markup(js), **values)


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def table_page(site: Site, run: OpenRun, pair: Pair, problems: Sequence[str]) -> str:
    """Every problem with the rates of all arms, those that differ most first."""
    tallies = {side: run.tallies(side) for side in (*pair, *run.last_sides)}
    strata: dict[str, set[str]] = {}
    for words in run.strata.values():
        for name, word in words.items():
            strata.setdefault(name, set()).add(word)
    return site.page(
        "table.html", run=run, pair=pair, problems=problems, tallies=tallies, filters=FILTERS,
        strata={name: sorted(strata[name]) for name in sorted(strata)},
    )  # fmt: skip


def problem_page(
    site: Site, run: OpenRun, pair: Pair, problem: str, responses: Sequence[Sequence[StoredSample]],
    hidden: Pair | None = None,
) -> str:  # fmt: skip
    """A problem with responses of both sides of a pair beside each other.

    ``hidden``: the sides in the order in which they are shown without their names.
    """
    problems = run.by_difference(pair)
    place = problems.index(problem)
    around = {"Previous": problems[place - 1 : place], "Next": problems[place + 1 : place + 2]}
    sent: dict[str, object] = {"problem": problem}
    if found := [*responses[0], *responses[1]]:
        sent["sample"] = found[0].sample.key.sample
    strata = [f"{name} {word}" for name, word in run.strata[problem].items()]
    return site.page(
        "problem.html", run=run, problem=problem, responses=responses, asked_pair=pair,
        pair=hidden or pair, is_blind=int(hidden is not None),
        neighbours={name: found[0] for name, found in around.items() if found},
        link=f"{site.table(pair).partition('?')[0]}#{urlencode(sent)}",
        words=[*strata, *run.marks(problem, pair)],
        question=run.question(problem), judgements=load_judgements(run.layout), facts=_facts,
        verdicts=_VERDICTS, judgement_words=WORDS, most_characters=text.CHARACTERS,
    )  # fmt: skip


def _facts(sample: Sample) -> dict[str, Any]:
    """What stands above a response; empty values are left out."""
    facts = {
        "rule": sample.rule,
        "answer": sample.answer,
        "ended by": finish_name(sample.finish),
        "tokens": sample.n_tokens,
        "seed": sample.seed,
        "error": sample.error,
    }
    for name in ("strict", "lenient"):
        verdict = getattr(sample, name, Status.MISSING)
        if verdict not in {Status.MISSING, sample.verdict}:
            facts[f"{name} verdict"] = _VERDICTS[verdict]
    return facts


def search_page(
    site: Site, run: OpenRun, pair: Pair, words: str, where: str, hits: Sequence[Hit],
    following: int,
) -> str:  # fmt: skip
    """What a search found, each with a link to where it stands."""
    query = {"text": words, "where": where, "first": following, **pair._asdict()}
    return site.page(
        "search.html", run=run, pair=pair, words=words, where=where, hits=hits,
        following=following, following_page=f"search?{urlencode(query)}",
    )  # fmt: skip


# ---- copy ----------------------------------------------------------------------------------------
# A copy of some problems as files: to put on the web, or to open from the disk.


#: Responses of each verdict that a page shows of a side.
EACH: Final = 3


def write_copy(run: OpenRun, folder: Path, chosen: Sequence[str] = ()) -> list[Path]:
    """Write the table and a page of each chosen problem; those lost and gained by default."""
    pair = run.pair
    problems = run.by_difference(pair)
    if unknown := [name for name in chosen if name not in run.strata]:
        raise UserError(f"--problem {unknown[0]!r}: not in this run; such as {problems[0]!r}")
    if not chosen:
        chosen = [p for p in problems if {"lost", "gained"} & {*run.marks(p, pair)}]
    kept = [problem for problem in problems if problem in set(chosen)]
    site = Site(run.folder.resolve().name, is_copy=True)
    folder.mkdir(parents=True, exist_ok=True)
    pages = {"index.html": table_page(site, run, pair, kept)}
    for problem in kept:
        responses = [_examples(run, problem, side) for side in pair]
        pages[site.problem(problem, pair)] = problem_page(site, run, pair, problem, responses)
    for name, page in pages.items():
        (folder / name).write_text(page, encoding="utf-8")
    return [folder / name for name in pages]


def _examples(run: OpenRun, problem: str, side: Side) -> list[StoredSample]:
    """The first right responses and the first others of a side."""
    verdicts = run.verdicts(problem, side)
    is_right = verdicts == Status.RIGHT
    is_other = ~is_right & (verdicts != Status.MISSING)
    numbers = [*np.flatnonzero(is_right)[:EACH], *np.flatnonzero(is_other)[:EACH]]
    if not numbers:
        return []
    responses = run.read(problem, side, {int(number) for number in numbers})
    return sorted(responses, key=lambda found: found.sample.verdict != Status.RIGHT)
