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

from rlbhpc.engines.completion import as_conversation, finish_name, read_turns
from rlbhpc.report.phrases import count_text, printable
from rlbhpc.store.sample_rows import Sample
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
_VERDICT_NAMES: Final = {status: status.name.lower().replace("_", " ") for status in Status}


def _show_hidden_characters(value: Any) -> Any:
    """Make characters of a text visible that would hide or reorder others."""
    return printable(value, lines=True) if type(value) is str else value


_TEMPLATES: Final = jinja2.Environment(
    loader=jinja2.PackageLoader("rlbhpc.view"), autoescape=True, undefined=jinja2.StrictUndefined,
    trim_blocks=True, lstrip_blocks=True, finalize=_show_hidden_characters,
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

    def page(self, template_name: str, **values: Any) -> str:
        """Render a page from a template; it may load nothing and run only its own script.

        ``values``: what the template shows. The content security policy names the style and the
        script by their digests, so the browser refuses any others, such as those that a model
        wrote. Only a served page may send forms and requests, and only to its own server.
        """
        folder = files("rlbhpc.view")
        css = folder.joinpath("page.css").read_text()
        script = folder.joinpath("page.js").read_text()
        allowed_server = "'none'" if self.is_copy else "'self'"
        policy = (
            f"default-src 'none'; base-uri 'none'; form-action {allowed_server}; "
            f"connect-src {allowed_server}; style-src '{_source_hash(css)}'; "
            f"script-src '{_source_hash(script)}'; "
            "require-trusted-types-for 'script'; trusted-types 'none'"
        )
        template = _TEMPLATES.get_template(template_name)
        return template.render(
            site=self, policy=policy, css=Markup(css), js=Markup(script), **values
        )


def _source_hash(content: str) -> str:
    """Name a style or script in a content security policy."""
    digest = hashlib.sha256(content.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def table_page(site: Site, run: OpenRun, pair: Pair, problems: Sequence[str]) -> str:
    """Return the page with all problems, each with its rates on every side.

    A *side* is an arm (a model of the study) at a training step; ``pair`` holds the two that are
    compared. ``problems``: those to list, in order. A *tally* counts the samples of a problem on
    one side: judged, right, cut off and so on. *Strata* are what a problem set says of a problem,
    such as its level; the page offers all values of each as filters.
    """
    tallies = {side: run.tallies(side) for side in (*pair, *run.last_sides)}
    strata: dict[str, set[str]] = {}
    for problem_strata in run.strata.values():
        for name, value in problem_strata.items():
            strata.setdefault(name, set()).add(value)
    return site.page(
        "table.html",
        run=run,
        pair=pair,
        problems=problems,
        tallies=tallies,
        filters=FILTERS,
        strata={name: sorted(strata[name]) for name in sorted(strata)},
    )


def problem_page(
    site: Site, run: OpenRun, pair: Pair, problem: str, responses: Sequence[Sequence[StoredSample]],
    blind_pair: Pair | None = None,
) -> str:  # fmt: skip
    """Return the page of a problem, with responses of both sides of a pair beside each other.

    A *side* is an arm (a model of the study) at a training step. ``responses``: those to show, of
    the left and of the right side. ``blind_pair``: the sides in the order in which they are shown
    without their names; None if they are named. Neighbours are the problems before and behind this
    one, by how much the rates of both sides differ. *Strata* are what the problem set says of a
    problem, *marks* the filters that find it. ``link`` leads back to its place in the table.
    """
    problems = run.by_difference(pair)
    index = problems.index(problem)
    neighbours = {}
    if index > 0:
        neighbours["Previous"] = problems[index - 1]
    if index + 1 < len(problems):
        neighbours["Next"] = problems[index + 1]
    link: dict[str, object] = {"problem": problem}
    # Both sides' responses; the link leads to the first one.
    shown = [*responses[0], *responses[1]]
    if shown:
        link["sample"] = shown[0].sample.key.sample
    table_address = site.table(pair).partition("?")[0]
    strata = [f"{name} {value}" for name, value in run.strata[problem].items()]
    return site.page(
        "problem.html",
        run=run,
        problem=problem,
        responses=responses,
        asked_pair=pair,
        pair=blind_pair or pair,
        is_blind=int(blind_pair is not None),
        neighbours=neighbours,
        link=f"{table_address}#{urlencode(link)}",
        words=[*strata, *run.marks(problem, pair)],
        question=run.questions.get(problem),
        judgements=load_judgements(run.layout),
        facts=_facts,
        turns_of=lambda sample: read_turns(sample.trace, sample.text),
        conversation=lambda sample: as_conversation(sample.trace, sample.text),
        verdicts=_VERDICT_NAMES,
        judgement_words=WORDS,
        most_characters=text.MAX_CHARACTERS,
    )


def _facts(sample: Sample) -> dict[str, Any]:
    """Return what stands above a response, by name; the template leaves out empty values.

    The verdict may be read strictly or leniently; such a reading is named only where it differs.
    """
    facts = {
        "rule": sample.rule,
        "answer": sample.answer,
        "ended by": finish_name(sample.finish),
        "tokens": sample.n_tokens,
        "seed": sample.seed,
        "error": sample.error,
    }
    readings = {"strict": sample.strict, "lenient": sample.lenient}
    for reading, verdict in readings.items():
        if verdict not in {Status.MISSING, sample.verdict}:
            facts[f"{reading} verdict"] = _VERDICT_NAMES[Status(verdict)]
    return facts


def search_page(
    site: Site, run: OpenRun, pair: Pair, words: str, where: str, hits: Sequence[Hit],
    next_problem: int,
) -> str:  # fmt: skip
    """Return the page with what a search found, each hit with a link to where it stands.

    ``words``: what was searched for. ``where``: in what kind of text. ``pair``: the two sides that
    are compared, each an arm at a training step. ``next_problem``: number of the problem with which
    the search goes on, 0 at its end.
    """
    query = {"text": words, "where": where, "first": next_problem, **pair._asdict()}
    return site.page(
        "search.html",
        run=run,
        pair=pair,
        words=words,
        where=where,
        hits=hits,
        following=next_problem,
        following_page=f"search?{urlencode(query)}",
    )


# --- a copy of some problems as files: to put on the web, or to open from the disk ---------------

#: Right and other responses that a page of a copy shows of each side, at most.
EXAMPLES: Final = 3


def write_copy(run: OpenRun, folder: Path, chosen: Sequence[str] = ()) -> list[Path]:
    """Write the table and a page of each chosen problem as files; return their paths.

    ``chosen``: ids of problems; by default those *lost* (solved on the left side alone) and
    *gained* (on the right side alone). A *side* is an arm (a model of the study) at a training
    step, and the run's ``pair`` holds the two that are compared.
    """
    pair = run.pair
    problems = run.by_difference(pair)
    if chosen:
        kept = [problem for problem in problems if problem in set(chosen)]
    else:
        kept = [
            problem
            for problem in problems
            if not {"lost", "gained"}.isdisjoint(run.marks(problem, pair))
        ]
    site = Site(run.folder.resolve().name, is_copy=True)
    pages = {"index.html": table_page(site, run, pair, kept)}
    for problem in kept:
        responses = [_read_examples(run, problem, side) for side in pair]
        pages[site.problem(problem, pair)] = problem_page(site, run, pair, problem, responses)
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in pages.items():
        (folder / name).write_text(page, encoding="utf-8")
    return [folder / name for name in pages]


def _read_examples(run: OpenRun, problem: str, side: Side) -> list[StoredSample]:
    """Return the first right responses of a side to a problem, and then the first others.

    ``side``: an arm at a training step. ``verdicts`` has one for each sample of the problem, by
    number; MISSING means that there is no such sample.
    """
    verdicts = run.verdicts(problem, side)
    right = np.flatnonzero(verdicts == Status.RIGHT)[:EXAMPLES].tolist()
    is_not_right = (verdicts != Status.RIGHT) & (verdicts != Status.MISSING)
    not_right = np.flatnonzero(is_not_right)[:EXAMPLES].tolist()
    if not right and not not_right:
        return []
    responses = run.read(problem, side, {*right, *not_right})
    return sorted(responses, key=lambda stored: stored.sample.verdict != Status.RIGHT)
