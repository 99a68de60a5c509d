"""Put what other tools measured into a run folder, as samples or as counts."""

from __future__ import annotations

import csv
import hashlib
import itertools
import os
import platform
import secrets
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rlbhpc import __version__
from rlbhpc.engines.completion import finish_name
from rlbhpc.errors import UserError
from rlbhpc.exchange.arriving import ArrivingSamples, Counts, Digests, Target, take_counts
from rlbhpc.exchange.formats import ENDINGS, FORMATS
from rlbhpc.exchange.formats.form import Form, Imported, ImportedCounts, LogState
from rlbhpc.exchange.formats.rows import fields, file_ending, json_lines, open_unpacked
from rlbhpc.problems.problem import Problem
from rlbhpc.store import checked, grid, tables
from rlbhpc.store import samples as stored_samples
from rlbhpc.store.grid import Grid, natural_order
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.questions import put_questions, stored_questions
from rlbhpc.store.sources import Group
from rlbhpc.study.keys import Cell, SampleKey
from rlbhpc.study.layout import Layout
from rlbhpc.verify.running.batch import BatchVerifier, Item
from rlbhpc.verify.verdict import Status

# Rows that are read, judged and checked at a time.
_BATCH: Final = 256
# Names of a folder's contents in one line.
_MOST_NAMED: Final = 8
_FORMATS: Final = "`rlbhpc import --help` lists the formats; a CSV of problem,n,c is one"


@dataclass(frozen=True)
class Importing:
    """What an import did: new samples, new counts of a problem, and of both what was known.

    ``failed``: new samples of which no response came. ``shortfalls``: of each file whose run did
    not draw all that it was to draw, what is lacking.
    ``absent`` names what none of the new samples tells, ``twins`` arms with samples of the same
    files on this problem set. ``error``: why some samples have no verdict. ``unread``: what
    was passed over in each folder.
    """

    samples: int
    failed: int
    known: int
    counts: int
    shortfalls: tuple[str, ...]
    absent: tuple[str, ...]
    twins: tuple[str, ...]
    error: str
    unread: tuple[str, ...]


def import_files(
    layout: Layout,
    paths: Sequence[Path],
    target: Target,
    metric: str | None = None,
    judge: str | None = None,
) -> Importing:
    """Import result files, or folders of them, into an arm.

    Importing the same files again changes nothing. Responses without a number of their own are
    numbered per problem and step in the order of the files. Nothing is stored unless every file
    can be read.

    ``metric``: name of the score that decides, where a file has several. ``judge``: kind of
    verifier that judges the texts again, instead of the file's own scores.
    """
    forms: dict[Path, Form] = {}
    unread = []
    for given in paths:
        results, others = _importable_files(given)
        forms |= results
        if others:
            unread.append(f"{given}: {_list_names(others)}")
    verifier = BatchVerifier(judge) if judge else None
    judged_by = verifier.module.FINGERPRINT if verifier else "the file"
    origins = _file_origins(forms, judged_by)
    rejudged = _changed_judges(layout, target, origins, judged_by)
    counts: Counts = {}
    shortfalls: list[str] = []
    with tempfile.TemporaryFile("w+", dir=layout.root, encoding="ascii") as scratch:
        stored, failed = _stored_digests(layout, target)
        samples = ArrivingSamples(target, stored, failed, scratch, rejudged)
        for path, form in forms.items():
            rows = _read_rows(path, form, metric)
            drawn: Counter[bool] = Counter()
            while batch := list(itertools.islice(rows, _BATCH)):
                for row in batch:
                    if isinstance(row, ImportedCounts):
                        take_counts(counts, target, path, row)
                responses = [row for row in batch if isinstance(row, Imported)]
                drawn.update(response.verdict is Status.FAILED for response in responses)
                samples.take(path, _judge_responses(path, form, responses, target, verifier))
            if shortfall := _missing_samples(form.state(path), drawn.total(), drawn[True]):
                origins[path]["shortfall"] = shortfall
                shortfalls.append(f"{path}: {shortfall}")
        arm, problem_set, model = target.arm, target.problem_set, target.model
        if stored and (counts or tables.counts_file(layout, arm, problem_set).exists()):
            raise UserError(
                f"arm {arm} would have samples and counts of {problem_set}; import either into an "
                "arm of its own (--arm)"
            )
        new_counts = tables.put_counts(layout, arm, problem_set, model, counts)
        stored_texts = stored_questions(layout, arm, problem_set)
        has_more_texts = bool(samples.questions.keys() - stored_texts.keys())
        # A plan that was lost is written again: without it the cube stays as it is. One of an
        # older version gets the questions.
        is_unplanned = _stored_plan(layout, target) is None
        if samples.new or (samples.known and (is_unplanned or has_more_texts)):
            _reject_copies(origins)
            _store_samples(layout, samples, origins)
    already = samples.known + len(counts) - new_counts
    error = "their files hold no verdict on them" if samples.errors else ""
    if verifier and verifier.tally.last_error:
        error = f"{judge} failed on them; the last time: {verifier.tally.last_error}"
    twins = _arms_of_same_file(layout, target)
    absent = samples.absent()
    return Importing(
        samples.new,
        samples.failed,
        already,
        new_counts,
        tuple(shortfalls),
        absent,
        twins,
        error,
        tuple(unread),
    )


def _missing_samples(state: LogState | None, drawn: int, failed: int) -> str:
    """What a file lacks of its run: ``log status: error; 100 of 160 failed``; empty if nothing."""
    causes = []
    if state is not None and state.status:
        causes.append(f"log status: {state.status}")
    if state is not None and drawn < state.planned:
        causes.append(f"{drawn:,} of {state.planned:,} samples are in it")
    if failed:
        causes.append(f"{failed:,} of {drawn:,} failed")
    return "; ".join(causes)


def _arms_of_same_file(layout: Layout, target: Target) -> tuple[str, ...]:
    """Other arms that hold a file of this one: a base against itself, by a slip of the pen."""

    def digests(arm: str) -> set[str]:
        origins = _earlier_origins(layout, replace(target, arm=arm))
        return {origin["sha256"] for origin in origins.values()}

    own = digests(target.arm)
    others = {arm for arm, name in layout.groups() if name == target.problem_set} - {target.arm}
    return tuple(arm for arm in sorted(others) if digests(arm) & own)


def _importable_files(folder: Path) -> tuple[dict[Path, Form], list[str]]:
    """A file, or a folder's files of a known ending, that have a format; what else seems there.

    Subfolders are other models or problem sets in every tool's layout, so none is entered.
    """
    if folder.is_file():
        form = _find_form(folder)
        if form is None:
            raise UserError(f"{folder}: {_what_is_there(folder)}of no known format; {_FORMATS}")
        return {folder: form}, []
    if not folder.is_dir():
        raise UserError(f"{folder}: no such file or folder")
    forms: dict[Path, Form] = {}
    others: list[str] = []
    for path in sorted(folder.iterdir(), key=lambda path: natural_order(path.name)):
        if path.is_dir():
            others += [f"{path.name}/"] * (not path.name.startswith("."))
        # A copy such as ``a.jsonl.bak`` would be taken for more samples.
        elif path.is_file() and file_ending(path) in ENDINGS:
            form = _find_form(path)
            if form is None:
                others.append(path.name)
            else:
                forms[path] = form
    if not forms:
        # NeMo-Skills and lm-eval write a folder for each benchmark or model.
        below = sorted({path.parent for path in folder.rglob("*") if file_ending(path) in ENDINGS})
        inside = next((path for path in below if path != folder and _has_results(path)), None)
        hint = f"results are in {inside}: give that folder" if inside else _FORMATS
        raise UserError(f"{folder}: none of its own files is of a known format; {hint}")
    return forms, others


def _has_results(folder: Path) -> bool:
    files = (path for path in folder.iterdir() if path.is_file() and file_ending(path) in ENDINGS)
    with suppress(UserError):
        return any(map(_find_form, files))
    return False


def _list_names(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _what_is_there(path: Path) -> str:
    """What a file of no known format holds, as far as anybody can tell."""
    with open_unpacked(path) as file:
        if not any(map(bytes.strip, file)):
            raise UserError(f"{path}: holds nothing")
    if file_ending(path) in {".jsonl", ".ndjson"}:
        # What is no JSON at all is told by its reader.
        next(json_lines(path), None)
    names = ", ".join(filter(str.isprintable, fields(path)))
    return f"with the fields {names} it is " if names else ""


def _find_form(path: Path) -> Form | None:
    return next((form for form in FORMATS if form.fits(path)), None)


def _read_rows(path: Path, form: Form, metric: str | None) -> Iterator[Imported | ImportedCounts]:
    """What a file holds. Whatever its reader trips over is the file's fault."""
    try:
        yield from form.read(path, metric)
    except (KeyError, TypeError, ValueError, AttributeError, csv.Error) as error:
        raise UserError(f"{path}: not a whole {form.name} ({error!r})") from error


def _judge_responses(
    path: Path,
    form: Form,
    responses: list[Imported],
    target: Target,
    verifier: BatchVerifier | None,
) -> list[Imported]:
    """The responses with a verdict each: the file's own, or the verifier's where there is one."""
    if verifier is None:
        unscored = next((r for r in responses if not isinstance(r.verdict, Status)), None)
        if unscored is not None and unscored.verdict is not None:
            raise UserError(str(unscored.verdict))
        if unscored is not None:
            raise UserError(
                f"{path}: problem {unscored.problem} has one score for several responses "
                f"({form.name}); judge each of them with --judge-again math"
            )
        return responses
    items: list[Item] = []
    for response in responses:
        text = response.text
        if text is None or response.gold is None:
            missing = "text of a response" if text is None else "single reference answer"
            raise UserError(
                f"{path}: problem {response.problem} has no {missing} in this file, so it can't be "
                "judged again; import it without --judge-again"
            )
        # As a study's verifier would see it, as far as the file tells.
        identity, fields = target.problem(response.problem), {"question": response.question}
        problem = Problem(identity, fields, response.gold, verifier.kind)
        items.append((response.gold, text, problem, finish_name(response.finish)))
    verdicts = verifier.verify_many(items)
    return [
        # A response that could not be drawn stays what it is.
        response
        if response.verdict is Status.FAILED
        else replace(
            response,
            verdict=verdict.strict,
            strict=verdict.strict,
            lenient=verdict.status,
            answer=verdict.answer,
        )
        for response, verdict in zip(responses, verdicts, strict=True)
    ]


def _file_origins(forms: dict[Path, Form], judged_by: str) -> dict[Path, dict[str, str]]:
    """Where samples are from, for the cube's provenance."""
    origins = {}
    for path, form in forms.items():
        # Unpacked, for a copy may be packed.
        with open_unpacked(path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        origins[path] = {"sha256": digest, "format": form.name, "judged_by": judged_by}
    return origins


def _reject_copies(origins: dict[Path, dict[str, str]]) -> None:
    first: dict[str, Path] = {}
    for path, origin in origins.items():
        original = first.setdefault(origin["sha256"], path)
        if original != path:
            raise UserError(f"{path}: a copy of {original}; give the same samples once")


def _origins_by_name(
    origins: dict[Path, dict[str, str]], earlier: dict[str, dict[str, str]]
) -> dict[str, dict[str, str]]:
    """Origins by the names of their files, with a digest behind a name that another file has."""
    named = dict(earlier)
    for path, origin in origins.items():
        name = path.name
        if named.get(name, origin)["sha256"] != origin["sha256"]:
            name = f"{name}@{origin['sha256'][:16]}"
        named[name] = origin
    return named


def _earlier_origins(layout: Layout, target: Target) -> dict[str, dict[str, str]]:
    plan = _stored_plan(layout, target)
    return plan.provenance.get("imported", {}) if plan else {}


def _changed_judges(
    layout: Layout, target: Target, origins: dict[Path, dict[str, str]], judged_by: str
) -> str:
    """Who judged these very files for the arm, and who does now; empty where nothing changed."""
    digests = {origin["sha256"] for origin in origins.values()}
    judges = {
        o["judged_by"] for o in _earlier_origins(layout, target).values() if o["sha256"] in digests
    }
    return f"{', '.join(sorted(judges))}, and {judged_by}" if judges - {judged_by} else ""


def _begin_attempt(layout: Layout, imported: dict[str, dict[str, str]]) -> str:
    """Record what differs from run to run; a name that is unique and sorted by time."""
    now = datetime.now(UTC)
    host = platform.node()
    name = f"{now:%Y%m%dT%H%M%S}-{host.partition('.')[0]}-{os.getpid()}"
    name += f"-{secrets.token_hex(4)}"
    record = {
        "attempt": name,
        "began": now.isoformat(timespec="seconds"),
        "host": host,
        "pid": os.getpid(),
        "python": platform.python_version(),
        "rlbhpc": __version__,
        "slurm": {k: v for k, v in sorted(os.environ.items()) if k.startswith("SLURM_JOB_")},
        "imported": imported,
    }
    checked.write(layout.attempts / f"{name}.json", record)
    return name


def _store_samples(
    layout: Layout, samples: ArrivingSamples, origins: dict[Path, dict[str, str]]
) -> None:
    """Write the new samples into a journal, and ask for the cells of all in the grid."""
    target = samples.target
    imported = _origins_by_name(origins, _earlier_origins(layout, target))
    if samples.new:
        attempt = _begin_attempt(layout, _origins_by_name(origins, {}))
        with JournalWriter(layout.journals(target.arm, target.problem_set), attempt) as writer:
            for sample in samples.samples():
                writer.append(sample)
    cells = {
        Cell(target.arm, step, problem, target.request): length
        for (step, problem), length in samples.lengths.items()
    }
    questions = put_questions(layout, target.arm, target.problem_set, samples.questions)
    provenance = {"imported": imported, **questions}
    grid.request_samples(layout, target.arm, target.problem_set, target.model, cells, provenance)


def _stored_plan(layout: Layout, target: Target) -> Grid | None:
    return Grid.load(layout.grid(target.arm, target.problem_set))


def _stored_digests(layout: Layout, target: Target) -> tuple[Digests, set[SampleKey]]:
    """Digests of the samples that the arm has, and those on which a verifier failed."""
    columns = ("step", "problem", "sample", "digest", "verdict")
    table = stored_samples.read_rows(layout, Group(target.arm, target.problem_set), columns)
    digests: Digests = {}
    failed = set()
    for chunk in table.to_batches():
        values = [chunk.column(name).to_pylist() for name in columns]
        for step, problem, sample, digest, verdict in zip(*values, strict=True):
            digests.setdefault((step, problem), {})[sample] = digest
            if verdict == Status.ERROR:
                failed.add(SampleKey(target.arm, step, problem, sample))
    return digests, failed
