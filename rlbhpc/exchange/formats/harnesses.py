"""Logs of evaluation harnesses: HELM and lm-evaluation-harness."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.exchange.formats.form import (
    Form,
    Imported,
    ImportedCounts,
    as_verdict,
    choose_score,
    row_of,
    single_reference,
)
from rlbhpc.exchange.formats.rows import entries, first_value, json_lines
from rlbhpc.verify.verdict import Status


class HelmStats(Form):
    """Sums and counts of metrics per instance; the trials of an instance are added up.

    ``--metric`` names the metric, such as exact_match. Perturbed instances are left out: they are
    other problems.
    """

    name = "HELM statistics (per_instance_stats.json)"

    def fits(self, path: Path) -> bool:
        """By the ending and the fields of the first object."""
        first = first_value(path)
        return isinstance(first, dict) and {"instance_id", "stats"} <= first.keys()

    def read(self, path: Path, metric: str | None) -> Iterator[ImportedCounts]:
        """Yield how many responses each problem has (n) and how many are right (c).

        HELM calls a problem an instance. One has a record per trial, whose counts are added up. A
        perturbed instance (with its text altered) is another problem, so it is left out. `row_of`
        puts the record's place before an error.
        """
        totals: dict[str, tuple[int, int]] = {}
        for number, row in entries(path):
            place = f"{path}: object {number}"
            with row_of(self.name, place):
                if row.get("perturbation"):
                    continue
                problem = str(row["instance_id"])
                n, c = _counts(row, metric, place)
                earlier_n, earlier_c = totals.get(problem, (0, 0))
                totals[problem] = earlier_n + n, earlier_c + c
        for problem, (n, c) in totals.items():
            yield ImportedCounts(problem, n, c)


def _counts(row: dict[str, Any], metric: str | None, place: str) -> tuple[int, int]:
    """Return how many samples one record has, and how many of them are right.

    ``metric`` must be 0 or 1 for each response, so that its sum is the number of right ones.
    """
    scores = {str(stat["name"]["name"]): stat for stat in row["stats"]}
    stat = choose_score(scores, metric, place)
    n, c = int(stat["count"]), float(stat["sum"])
    if not 0 <= c <= n or not c.is_integer():
        raise UserError(
            f"{place}: {metric or next(iter(scores))} has the sum {c:g} over {n}; allowed is a "
            "metric that is 0 or 1 for each response"
        )
    return n, int(c)


# What stands beside the scores in a record.
_NOT_SCORES: Final = {
    "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics",
    "doc_hash", "prompt_hash", "target_hash",
}  # fmt: skip

_QUESTION_FIELDS: Final = (
    "question", "Question", "problem", "query", "input", "prompt", "goal", "sentence",
)  # fmt: skip


class LmEvalSamples(Form):
    """One record per document and filter; its score is that of the filtered response.

    A document that was answered several times (``repeats``) has one score for all of its answers,
    which says nothing about each: these come in without a verdict and must be judged again. A
    document of a multiple-choice task is one response without a text: its choices were weighed.
    """

    name = "lm-eval sample log (--log_samples)"
    fields = frozenset({"doc_id", "filtered_resps"})

    def read(self, path: Path, metric: str | None) -> Iterator[Imported]:
        """Yield the responses; ``metric`` may be ``<score>`` or ``<score>,<filter>``.

        A filter of lm-eval takes the answer out of a response. Every filter has a record of each
        document, with the same responses: they are read once, and have a complaint in place of a
        verdict as long as no filter is chosen. `row_of` puts the record's place before an error.
        """
        score_name, _, chosen_filter = (metric or "").partition(",")
        complaint = "" if chosen_filter else _complain_of_several_filters(path)
        has_records = False
        for place, row in json_lines(path):
            chosen_filter = chosen_filter or _filter_name(row)
            if _filter_name(row) != chosen_filter:
                continue
            has_records = True
            with row_of(self.name, place):
                responses = _responses(row, score_name or None, place)
            if complaint:
                responses = [replace(response, verdict=complaint) for response in responses]
            yield from responses
        if not has_records:
            raise UserError(f"{path}: no record with the filter {chosen_filter!r}")


def _filter_name(row: dict[str, Any]) -> str:
    return str(row.get("filter", "none"))


def _complain_of_several_filters(path: Path) -> str:
    """Complain if a log has records of more than one filter; empty where it has one.

    A filter of lm-eval takes the answer out of a response, so each may give another verdict.
    """
    first_filter: str | None = None
    for place, row in json_lines(path):
        filter_name = _filter_name(row)
        if first_filter is None:
            first_filter = filter_name
        if filter_name != first_filter:
            names = ", ".join(sorted((first_filter, filter_name)))
            return (
                f"{place}: this log has the filters {names}; choose one with --metric SCORE,FILTER"
            )
    return ""


def _responses(row: dict[str, Any], score_name: str | None, place: str) -> list[Imported]:
    """Return the responses to one document, which is lm-eval's word for a problem.

    In multiple choice the model only weighs given texts: that is one response without a text, and
    with a verdict. Several responses share one score, so they have no verdict of their own. An
    `Imported` is one response, whose ``gold`` is the reference answer; ``resps`` are lm-eval's
    responses and ``filtered_resps`` the answers that it took out of them.
    """
    problem = str(row["doc_id"])
    gold = _gold(row.get("target"))
    question = _question(row.get("doc"))
    if any(_is_weighed(request) for request in row["resps"]):
        verdict = _verdict(row, score_name, place)
        return [Imported(problem, verdict, text=None, question=question)]
    responses = [
        Imported(problem, None, text=text, gold=gold, question=question)
        for text in _flatten_texts(row["resps"])
    ]
    # One score for several responses says nothing about each.
    if len(responses) != 1:
        return responses
    filtered = _flatten_texts(row.get("filtered_resps", []))
    answer = filtered[0] if filtered else ""
    return [replace(responses[0], verdict=_verdict(row, score_name, place), answer=answer)]


def _gold(target: Any) -> str | None:
    """The reference answer; lm-eval writes a list of texts as Python does: ``"['18']"``.

    Of a worked solution in GSM8K's form, ``… #### 42``, what it ends in.
    """
    if isinstance(target, str) and target.startswith(("['", '["')):
        with suppress(ValueError, SyntaxError):
            target = ast.literal_eval(target)
    text = single_reference(target)
    return None if text is None else text.rpartition("####")[2].strip()


def _question(doc: Any) -> str:
    """Return a document's question, under the names that most tasks have for it; empty if none."""
    if not isinstance(doc, dict):
        return ""
    for field in _QUESTION_FIELDS:
        if doc.get(field):
            return str(doc[field])
    return ""


def _verdict(row: dict[str, Any], score_name: str | None, place: str) -> Status | str:
    """Return the verdict of the score that decides, or the complaint that there is none.

    All numbers of a record that are not known to be something else are scores. `choose_score` picks
    the one that decides, and `as_verdict` turns it into a status; ``place`` says where the record
    stands.
    """
    scores = {
        name: value
        for name, value in row.items()
        if name not in _NOT_SCORES and isinstance(value, bool | int | float)
    }
    try:
        return as_verdict(choose_score(scores, score_name, place), place)
    except UserError as error:
        return str(error)


def _is_weighed(request: Any) -> bool:
    """Whether a request asked how likely a text is: answers are (likelihood, greedy or not)."""
    return isinstance(request, list) and any(
        isinstance(answer, list) and len(answer) == 2 for answer in request
    )


def _flatten_texts(value: Any) -> list[str]:
    if isinstance(value, list):
        return [text for part in value for text in _flatten_texts(part)]
    return [str(value)]
