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
from typing import Any, Final
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup

from rlbhpc.engines.completion import finish_name
from rlbhpc.report.phrases import count_text, printable
from rlbhpc.store.sample import Sample
from rlbhpc.store.samples import Found
from rlbhpc.verify.audit.judgements import WORDS, load_judgements
from rlbhpc.verify.verdict import Status
from rlbhpc.view import text
from rlbhpc.view.run import Hit, OpenRun, Pair

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
    site: Site, run: OpenRun, pair: Pair, problem: str, responses: Sequence[Sequence[Found]],
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
