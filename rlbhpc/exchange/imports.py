"""Put what other tools measured into a run folder, as samples or as counts."""

from __future__ import annotations

import csv
import hashlib
import itertools
import platform
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rlbhpc.engines.completion import finish_name
from rlbhpc.errors import UserError
from rlbhpc.exchange.arriving import (
    ArrivingSamples,
    Counts,
    Digests,
    ProblemAtStep,
    Target,
    take_counts,
)
from rlbhpc.exchange.formats import ENDINGS, FORMATS
from rlbhpc.exchange.formats.form import (
    Form,
    Imported,
    ImportedCounts,
    ImportedQuestion,
    LogState,
    Row,
)
from rlbhpc.exchange.formats.rows import entries, fields, file_ending, json_lines, open_unpacked
from rlbhpc.problems.problem import Problem
from rlbhpc.store import grid, tables
from rlbhpc.store import samples as stored_samples
from rlbhpc.store.grid import Grid, natural_order
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.parts import FAILED
from rlbhpc.store.questions import put_questions, stored_questions
from rlbhpc.store.sources import Group
from rlbhpc.study.keys import Cell, SampleKey
from rlbhpc.study.layout import Layout
from rlbhpc.verify.running.batch import BatchVerifier, Item
from rlbhpc.verify.verdict import Status

# Rows that are read, judged and checked at a time.
_BATCH_ROWS: Final = 256
# Names of a folder's contents in one line.
_MAX_NAMES: Final = 8
_FORMATS_HELP: Final = "`rlbhpc import --help` lists the formats; a CSV of problem,n,c is one"

#: Where the samples of a file are from: its digest, its format, who judged them, what is lacking.
Origin = dict[str, str]


@dataclass(frozen=True)
class Importing:
    """What an import did: new samples, new counts of a problem, and of both what was known.

    ``failed``: new samples of which no response came. ``shortfalls``: of each file whose run did
    not draw all that it was to draw, what is lacking.
    ``absent`` names what none of the new samples tells. ``error``: why some samples have no
    verdict. ``unread``: what was passed over in each folder.
    """

    samples: int
    failed: int
    known: int
    counts: int
    shortfalls: tuple[str, ...]
    absent: tuple[str, ...]
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
    for path in paths:
        forms_in_path, other_names = _find_importable_files(path)
        forms |= forms_in_path
        if other_names:
            unread.append(f"{path}: {_list_names(other_names)}")
    verifier = BatchVerifier(judge) if judge else None
    judged_by = verifier.module.FINGERPRINT if verifier else "the file"
    origins = _describe_origins(forms, judged_by)
    counts: Counts = {}
    with tempfile.TemporaryFile("w+", dir=layout.root, encoding="ascii") as scratch:
        stored, unverified = _stored_digests(layout, target)
        samples = ArrivingSamples(target, stored, unverified, scratch)
        # Files that repeat samples which came before, and now lack none.
        completed_names: set[str] = set()
        # Questions and reference answers first: responses in other files are judged by them.
        for path, form in sorted(forms.items(), key=lambda item: item[1].has_responses):
            known_before = samples.known
            shortfall = _read_file(path, form, metric, samples, counts, verifier)
            if shortfall:
                origins[path]["shortfall"] = shortfall
            elif samples.known > known_before:
                completed_names.add(path.name)
        new_counts = _store_counts(layout, target, counts, has_samples=bool(stored))
        _store_samples(layout, samples, origins, completed_names)
    error = "their files hold no verdict on them" if samples.errors else ""
    if verifier and verifier.tally.last_error:
        error = f"{judge} failed on them; the last time: {verifier.tally.last_error}"
    return Importing(
        samples=samples.new,
        failed=samples.failed,
        known=samples.known + len(counts) - new_counts,
        counts=new_counts,
        shortfalls=tuple(
            f"{path}: {origin['shortfall']}"
            for path, origin in origins.items()
            if "shortfall" in origin
        ),
        absent=samples.absent(),
        error=error,
        unread=tuple(unread),
    )


def _read_file(
    path: Path,
    form: Form,
    metric: str | None,
    samples: ArrivingSamples,
    counts: Counts,
    verifier: BatchVerifier | None,
) -> str:
    """Read a file's results into ``samples`` and ``counts``; return what its run did not finish.

    A row is one response, the counts of a problem, or what a problem asks. A verifier, where there
    is one, judges the responses again. The result is a text such as ``100 of 160 failed``, empty if
    nothing is lacking. ``form`` is the format, which reads the rows; ``samples`` collects responses
    and keeps those that are new.
    """
    drawn_count = 0
    failed_count = 0
    rows = _read_rows(path, form, metric)
    while batch := list(itertools.islice(rows, _BATCH_ROWS)):
        responses = []
        for row in batch:
            if isinstance(row, ImportedCounts):
                take_counts(counts, samples.target, path, row)
            elif isinstance(row, ImportedQuestion):
                samples.known_questions.add(row)
            else:
                responses.append(samples.known_questions.complete(row))
        drawn_count += len(responses)
        failed_count += sum(response.verdict is Status.FAILED for response in responses)
        # `take` numbers the responses and keeps those that are new.
        samples.take(path, _judge_responses(path, form, responses, samples.target, verifier))
    return _missing_samples(form.state(path), drawn_count, failed_count)


def _missing_samples(state: LogState | None, drawn: int, failed: int) -> str:
    """Say what a file lacks of its run: ``log status: error; 100 of 160 failed``; empty if nothing.

    ``state`` is how the run ended and how many samples it was to draw, if the file tells. ``drawn``
    are the samples in the file, ``failed`` those among them of which no response came.
    """
    causes = []
    if state is not None and state.status:
        causes.append(f"log status: {state.status}")
    if state is not None and drawn < state.planned:
        causes.append(f"{drawn:,} of {state.planned:,} samples are in it")
    if failed:
        causes.append(f"{failed:,} of {drawn:,} failed")
    return "; ".join(causes)


def _find_importable_files(path: Path) -> tuple[dict[Path, Form], list[str]]:
    """Return the format of each file that can be imported, and names of what is passed over.

    ``path`` is a file, or a folder whose own files count. Subfolders are other models or problem
    sets in every tool's layout, so none is entered. `_find_form` gives the format of a file, if
    known. ``ENDINGS`` are those that some format has.
    """
    if path.is_file():
        form = _find_form(path)
        if form is None:
            fields = _describe_fields(path)
            raise UserError(f"{path}: {fields}of no known format; {_FORMATS_HELP}")
        return {path: form}, []
    if not path.is_dir():
        raise UserError(f"{path}: no such file or folder")
    forms: dict[Path, Form] = {}
    other_names: list[str] = []
    for entry in sorted(path.iterdir(), key=lambda entry: natural_order(entry.name)):
        if entry.is_dir():
            if not entry.name.startswith("."):
                other_names.append(f"{entry.name}/")
            continue
        # A copy such as ``a.jsonl.bak`` would be taken for more samples.
        if file_ending(entry) not in ENDINGS:
            continue
        form = _find_form(entry)
        if form is None:
            other_names.append(entry.name)
        else:
            forms[entry] = form
    if not forms:
        folder = _first_folder_with_results(path)
        hint = _FORMATS_HELP if folder is None else f"results are in {folder}: give that folder"
        raise UserError(f"{path}: none of its own files is of a known format; {hint}")
    return forms, other_names


def _first_folder_with_results(path: Path) -> Path | None:
    """A folder below one: NeMo-Skills and lm-eval write one for each benchmark or model."""
    folders = {file.parent for file in path.rglob("*") if file_ending(file) in ENDINGS}
    for folder in sorted(folders - {path}):
        if _has_results(folder):
            return folder
    return None


def _has_results(folder: Path) -> bool:
    files = (path for path in folder.iterdir() if path.is_file() and file_ending(path) in ENDINGS)
    with suppress(UserError):
        return any(map(_find_form, files))
    return False


def _list_names(names: Sequence[str]) -> str:
    text = ", ".join(names[:_MAX_NAMES])
    unlisted = len(names) - _MAX_NAMES
    return f"{text} and {unlisted} more" if unlisted > 0 else text


def _describe_fields(path: Path) -> str:
    """Say what a file of no known format holds, as the first words of a sentence, or nothing."""
    with open_unpacked(path) as file:
        if not any(map(bytes.strip, file)):
            raise UserError(f"{path}: holds nothing")
    names = ", ".join(filter(str.isprintable, fields(path)))
    if names:
        return f"with the fields {names} it is "
    # What is no JSON at all is told by its reader.
    if file_ending(path) == ".json":
        next(entries(path), None)
    elif file_ending(path) in {".jsonl", ".ndjson"}:
        next(json_lines(path), None)
    return ""


def _find_form(path: Path) -> Form | None:
    return next((form for form in FORMATS if form.fits(path)), None)


def _read_rows(path: Path, form: Form, metric: str | None) -> Iterator[Row]:
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
    """Return the responses with a verdict each: the verifier's if there is one, else the file's.

    A verifier reads the answer in the text anew. It gives two verdicts, strict and lenient, of
    which the strict one counts. ``form`` is the format of the file, for messages. ``Status.FAILED``
    says that no response came.
    """
    if verifier is None:
        for response in responses:
            _check_scored(path, form, response)
        return responses
    items = [_verifier_item(path, response, target, verifier.kind) for response in responses]
    verdicts = verifier.verify_many(items)
    judged = []
    for response, verdict in zip(responses, verdicts, strict=True):
        # A response that could not be drawn stays what it is.
        if response.verdict is not Status.FAILED:
            response = replace(
                response,
                verdict=verdict.strict,
                strict=verdict.strict,
                lenient=verdict.status,
                answer=verdict.answer,
            )
        judged.append(response)
    return judged


def _check_scored(path: Path, form: Form, response: Imported) -> None:
    """Refuse a response without a verdict; a text in its place is the complaint to raise.

    A `Status` is a verdict; ``form`` is the format of the file.
    """
    if response.verdict is None:
        raise UserError(
            f"{path}: problem {response.problem} has one score for several responses "
            f"({form.name}); judge each of them with --judge-again math"
        )
    if not isinstance(response.verdict, Status):
        raise UserError(response.verdict)


def _verifier_item(path: Path, response: Imported, target: Target, kind: str) -> Item:
    """Return a response as a verifier takes it: reference answer, text, problem, and why it ended.

    ``kind`` names the verifier. A file that lacks the text or the reference answer is refused.
    """
    if response.text is None or response.gold is None:
        missing = "text of a response" if response.text is None else "single reference answer"
        raise UserError(
            f"{path}: problem {response.problem} has no {missing} in this file, so it can't be "
            "judged again; give a file with the fields problem and gold beside it, or import it "
            "without --judge-again"
        )
    problem_id = target.problem(response.problem)
    problem = Problem(problem_id, {"question": response.question}, response.gold, kind)
    return response.gold, response.text, problem, finish_name(response.finish)


def _describe_origins(forms: dict[Path, Form], judged_by: str) -> dict[Path, Origin]:
    """Return the digest, format and judge of each file, to be stored with its samples.

    ``form`` is the format of a file.
    """
    origins = {}
    for path, form in forms.items():
        # Unpacked, for a copy may be packed.
        with open_unpacked(path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        origins[path] = {"sha256": digest, "format": form.name, "judged_by": judged_by}
    return origins


def _reject_copies(origins: dict[Path, Origin]) -> None:
    """Refuse files with the same content: their samples would be counted twice."""
    first_paths: dict[str, Path] = {}
    for path, origin in origins.items():
        original = first_paths.setdefault(origin["sha256"], path)
        if original != path:
            raise UserError(f"{path}: a copy of {original}; give the same samples once")


def _origins_by_name(origins: dict[Path, Origin], earlier: dict[str, Origin]) -> dict[str, Origin]:
    """Add origins to earlier ones, by the names of their files.

    An origin says where samples come from, with a digest of the file. A name that another file has
    already gets the digest behind it. ``sha256`` is that digest.
    """
    by_name = dict(earlier)
    for path, origin in origins.items():
        name = path.name
        if name in by_name and by_name[name]["sha256"] != origin["sha256"]:
            name = f"{name}@{origin['sha256'][:16]}"
        by_name[name] = origin
    return by_name


def _new_attempt() -> str:
    """A name for one call that writes samples; it is unique and sorts by time."""
    host = platform.node().partition(".")[0]
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{host}-{secrets.token_hex(6)}"


def _store_counts(layout: Layout, target: Target, counts: Counts, has_samples: bool) -> int:
    """Store samples and right ones of each problem and step; return how many problems are new.

    An arm has either samples or counts on a problem set. ``target`` names both. ``layout`` gives
    the paths of the run's folder.
    """
    counts_file = tables.counts_file(layout, target.arm, target.problem_set)
    if has_samples and (counts or counts_file.exists()):
        raise UserError(
            f"arm {target.arm} would have samples and counts of {target.problem_set}; import "
            "either into an arm of its own (--arm)"
        )
    by_step_and_problem = {(key.step, key.problem): value for key, value in counts.items()}
    return tables.put_counts(
        layout, target.arm, target.problem_set, target.model, by_step_and_problem
    )


def _store_samples(
    layout: Layout,
    samples: ArrivingSamples,
    origins: dict[Path, Origin],
    completed_names: set[str],
) -> None:
    """Write the new samples into a journal, and ask for all of them in the arm's plan.

    The journal is a file to which samples are appended. The plan (*grid*) says what is asked for of
    an arm on a problem set: a *cell* is one problem at one training step with the fingerprint of
    its request, and ``length`` how many samples it needs. Only samples that the plan asks for
    count. ``origins`` says which files the samples are from. ``completed_names``: files that were
    imported before their run had ended, and are whole now. ``target`` names the arm, the problem
    set and the model; ``samples.known`` counts what was stored before.
    """
    target = samples.target
    # A plan that was lost is written again: without it the cube stays as it is. One of an older
    # version gets the questions.
    stored_plan = Grid.load(layout.grid(target.arm, target.problem_set))
    stored_texts = stored_questions(layout, target.arm, target.problem_set)
    has_new_texts = not samples.questions.keys() <= stored_texts.keys()
    is_plan_outdated = samples.known > 0 and (has_new_texts or stored_plan is None)
    if not samples.new and not is_plan_outdated:
        return
    _reject_copies(origins)
    stored_origins = stored_plan.provenance.get("imported", {}) if stored_plan else {}
    earlier = {
        name: origin
        for name, origin in stored_origins.items()
        if name not in completed_names or "shortfall" not in origin
    }
    imported = _origins_by_name(origins, earlier)
    if samples.new:
        folder = layout.journals(target.arm, target.problem_set)
        with JournalWriter(folder, _new_attempt()) as writer:
            for sample in samples.samples():
                writer.append(sample)
    cells = {
        Cell(target.arm, step, problem, target.request): length
        for (step, problem), length in samples.lengths.items()
    }
    questions = put_questions(layout, target.arm, target.problem_set, samples.questions)
    provenance = {"imported": imported, **questions}
    grid.request_samples(layout, target.arm, target.problem_set, target.model, cells, provenance)


def _stored_digests(layout: Layout, target: Target) -> tuple[Digests, set[SampleKey]]:
    """Return a digest of each sample that the arm has, and those without a verdict.

    The digests are by problem and training step, then by the number of the sample. A sample has no
    verdict where its response or the verifier failed.
    """
    columns = ("step", "problem", "sample", "digest", "verdict")
    table = stored_samples.read_rows(layout, Group(target.arm, target.problem_set), columns)
    digests: Digests = {}
    unverified = set()
    for chunk in table.to_batches():
        values = [chunk.column(name).to_pylist() for name in columns]
        for step, problem, sample, digest, verdict in zip(*values, strict=True):
            digests.setdefault(ProblemAtStep(step, problem), {})[sample] = digest
            if verdict in FAILED:
                unverified.add(SampleKey(target.arm, step, problem, sample))
    return digests, unverified
