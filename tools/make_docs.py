"""Write the generated pages of docs/; with --check only say whether they are current.

A page is one function that returns its text and one line in PAGES.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

import rlbhpc
from rlbhpc.launch.cluster import Cluster
from rlbhpc.report.claim import claim_schema
from rlbhpc.stats.metrics import METRICS, Metric
from rlbhpc.store import cube_schema
from rlbhpc.store.accessor import DatasetAccessor, TreeAccessor
from rlbhpc.store.sample_rows import COLUMNS
from rlbhpc.study.fields import NAME_ALLOWED, Entry, Shape, allowed, fields, own_first
from rlbhpc.study.schema import StudyFile
from rlbhpc.verify.answer.statements import OPENINGS, STATEMENTS, TURN_ENDS

ROOT = Path(__file__).parents[1]
HEADS = Path(__file__).parent / "pages"
_TABLE = "<!-- generated from rlbhpc/store/sample_rows.py by `make docs` -->\n"
_RULES = "<!-- generated from rlbhpc/verify/answer/statements.py by `make docs` -->\n"
_TABLE_END = "<!-- end -->"
_BETTER = {"higher": "higher", "lower": "lower", "neither": "–"}
# How the values of a message are said in the tables of the study file.
_SHORT = (
    ("a list, of which each item is ", "list of "),
    ("a mapping from names to ", "mapping to "),
    ("text that is not empty, of at most 2,000 characters", "text"),
    ("the name of a prompt, or a path that ends in .txt", "prompt or `.txt` file"),
    ("the name of a registered problem set, or", "a name, or"),
    (", or a file such as ./mine.py or ./mine.py:name", " or file"),
    (", or a file such as ./mine.py", " or file"),
    ("a whole number from ", "integer, "),
    (" and up to ", ", at most "),
    ("true or false", "boolean"),
    (", see below", ""),
    ("a n", "n"),
    ("a path", "path"),
    ("list of name", "list of names"),
    ("list of names or file", "list of names or files"),
    ("list of integer,", "list of integers,"),
)


def study_file() -> str:
    """The reference of the study file, from its schema."""
    head = (HEADS / "study-file.md").read_text()
    page = head + "\n" + "\n".join(_sections("", "The whole file", StudyFile))
    return "\n".join(_rows_once(page.split("\n")))


def _rows_once(lines: list[str]) -> Iterator[str]:
    """The lines with short values; rows that an earlier table has are named below their table."""
    title = ""
    shown: dict[str, str] = {}
    again: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("## "):
            title = line.removeprefix("## ")
        if not line and again:
            for place, keys in again.items():
                yield f"\nAlso, as in {place}: {', '.join(keys)}."
            again = {}
        if line.startswith("| `"):
            place = shown.setdefault(line, title)
            if place != title:
                again.setdefault(place, []).append(line.split(" | ")[0].removeprefix("| "))
                continue
            key, value, rest = line.split(" | ", 2)
            for words, short in _SHORT:
                value = value.replace(words, short)
            line = f"{key} | {value} | {rest}"
        yield line


def _sections(path: str, title: str, entry: type[Entry]) -> Iterator[str]:
    """A heading and table for one mapping of the file, then for those inside it."""
    yield f"## {title}\n"
    if path:
        yield _prose(entry.__doc__) + "\n"
    yield "| key | value | default | meaning |\n|---|---|---|---|"
    inner: dict[type[Entry], list[str]] = {}
    for name, field in own_first(entry):
        key = field.alias or name
        found = fields(entry)[key]
        cells = [f"`{key}`", _value(found), _default(field), _prose(field.description)]
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        where, child = _inside(f"{path}.{key}" if path else key, found)
        if child is not None:
            inner.setdefault(child, []).append(where)
    yield ""
    for child, places in inner.items():
        yield from _sections(places[0], ", ".join(f"`{place}`" for place in places), child)


def _inside(path: str, found: Shape) -> tuple[str, type[Entry] | None]:
    """Key path and class of the mapping that a field holds, directly or by name or in a list."""
    if found.is_entry:
        return path, found.core
    if found.item is not None and found.item.is_entry:
        step = "[ ]" if found.core is list else ".NAME"
        return path + step, found.item.core
    return path, None


def _value(found: Shape) -> str:
    """What may stand there; mappings have tables of their own."""
    if found.is_entry:
        return "mapping, see below"
    if found.item is not None and found.item.is_entry:
        return "list of mappings, see below" if found.core is list else "names, see below"
    # What a name may consist of is said once, at the top of the page.
    return allowed(found).replace(f" ({NAME_ALLOWED})", "")


def _default(field: FieldInfo) -> str:
    """The default as it would be written; a key without one has to be given."""
    if field.is_required():
        return "**needed**"
    value: Any = field.get_default(call_default_factory=True)
    if isinstance(value, Entry) or value in (None, {}, []):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _prose(text: str | None) -> str:
    """A docstring as one paragraph of Markdown."""
    return re.sub(r"\s+", " ", (text or "").replace("``", "`")).strip()


def statistics() -> str:
    """The page of the statistics: the hand-written head, then one entry per metric."""
    head = ROOT / "tools" / "pages" / "statistics.md"
    return f"{head.read_text()}\n{metrics_page()}"


def metrics_page() -> str:
    """Write the table of metrics and one section for each."""
    return "\n".join([*_metric_table(), "", *_metric_sections()]) + "\n"


def _metric_table() -> Iterator[str]:
    yield "## Metrics"
    yield ""
    yield "| metric | better | range | reads | least n | enough n |"
    yield "|---|---|---|---|---|---|"
    for metric, anchor in zip(METRICS, _metric_anchors(), strict=True):
        cells = (
            f"[{metric.name}](#{anchor})",
            _BETTER[metric.better],
            f"{_range_end(metric.low)} … {_range_end(metric.high)}",
            ", ".join(f"`{name}`" for name in metric.needs),
            _multiple_of_k(metric.samples_per_k),
            _multiple_of_k(metric.advised_per_k),
        )
        yield "| " + " | ".join(cells) + " |"


def _metric_sections() -> Iterator[str]:
    for metric, anchor in zip(METRICS, _metric_anchors(), strict=True):
        if anchor[-1].isdigit():  # a renderer may number repeats in another way
            yield f'<a id="{anchor}"></a>'
            yield ""
        yield f"### {metric.name}"
        yield ""
        yield _metric_summary(metric)
        yield ""
        yield f"$${metric.formula}$$"
        yield ""
        also = f" Also called {', '.join(metric.aliases)}." if metric.aliases else ""
        yield f"`{metric.where}` · {metric.reference}.{also}"
        yield ""


def _metric_summary(metric: Metric) -> str:
    """First line of the docstring, with the mathematics of Sphinx in the dollars of Markdown."""
    return re.sub(r":math:`([^`]*)`", r"$\1$", metric.summary)


def _metric_anchors() -> list[str]:
    """Anchors of the sections as a Markdown renderer makes them: repeats get a number."""
    anchors: list[str] = []
    repeats: Counter[str] = Counter()
    for metric in METRICS:
        letters = "".join(c for c in metric.name.lower() if c.isalnum() or c in " -_")
        anchor = letters.replace(" ", "-")
        anchors.append(f"{anchor}-{repeats[anchor]}" if repeats[anchor] else anchor)
        repeats[anchor] += 1
    return anchors


def _range_end(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:g}"


def _multiple_of_k(factor: int) -> str:
    return {0: "1", 1: "k"}.get(factor, f"{factor} k")


def clusters() -> str:
    """The page of the cluster table: the hand-written head, then every key of an entry."""
    head = (HEADS / "clusters.md").read_text()
    return head + "\n" + "\n".join(_sections("", "One entry", Cluster))


def samples_on_disk() -> str:
    """The page of parts and journals, with the columns of a row."""
    rows = ["| column | type | meaning |", "|---|---|---|"]
    for name, column in COLUMNS.items():
        kind = "string" if column.is_text else str(column.dtype)
        kind = f"list of {kind}" if column.is_list else kind
        rows.append(f"| `{name}` | {kind} | {column.meaning} |")
    return _with_table("samples-on-disk.md", rows)


def storage_schema() -> str:
    """The page of the cube, with the variables that each sample has."""
    rows = ["| name | dimensions | type | missing | what |", "|---|---|---|---|---|"]
    for variable in cube_schema.SAMPLE_VARIABLES:
        meaning = ": ".join(filter(None, (variable.attrs["long_name"], _codes(variable.attrs))))
        if "units" in variable.attrs:
            meaning += f", {variable.attrs['units']}"
        missing = "NaN" if variable.dtype.kind == "f" else "−1"
        cells = (f"`{variable.name}`", ", ".join(variable.dims), variable.dtype, missing, meaning)
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    page = _with_table("storage-schema.md", rows)
    return re.sub(r"(?<=`schema_version` = )\d+", str(cube_schema.SCHEMA_VERSION), page)


def _codes(attrs: Mapping[str, Any]) -> str:
    """What the codes of a variable stand for; empty if it has none."""
    if "flag_values" not in attrs:
        return ""
    words = zip(attrs["flag_values"], attrs["flag_meanings"].split(), strict=True)
    return ", ".join(f"{code} {word.replace('_', ' ')}" for code, word in words if code >= 0)


def verification() -> str:
    """The page of the grader, with the rules by which it finds an answer."""
    rows = ["| finds | for example | which means | source | met in |", "|---|---|---|---|---|"]
    for pattern in (*STATEMENTS, *TURN_ENDS, *OPENINGS):
        example = pattern.example.strip().replace("|", "\\|").replace("\n", " ⏎ ")
        cells = (pattern.name, f"`{example}`", pattern.meaning, pattern.source, pattern.fired)
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return _with_table("verification.md", rows, _RULES)


def _with_table(name: str, rows: list[str], mark: str = _TABLE) -> str:
    """A hand-written page with its generated table; what stands around the table stays."""
    page = (ROOT / "docs" / name).read_text()
    before, rest = page.split(mark)
    return before + mark + "\n".join(rows) + "\n" + rest[rest.index(_TABLE_END) :]


def _api_rows(owner: Any, prefix: str) -> Iterator[str]:
    """A row for each public name: how it is called, and the first line of its docstring."""
    for name in dir(owner):
        member = getattr(owner, name)
        if name.startswith("_") or inspect.ismodule(member) or not inspect.getdoc(member):
            continue
        call = ""
        if inspect.isroutine(member):
            parameters = [p for p in inspect.signature(member).parameters if p != "self"]
            call = f"({', '.join(parameters)})"
        summary = (inspect.getdoc(member) or "").split("\n\n")[0].replace("\n", " ")
        summary = re.sub(r":(?:math|func|class|data):`([^`]*)`", r"`\1`", summary)
        yield f"| `{prefix}{name}{call}` | {summary.replace('|', chr(92) + '|')} |"


def api() -> str:
    """The public names of Python, from their docstrings."""
    text = (HEADS / "api.md").read_text()
    for title, owner, prefix in (
        ("The package", rlbhpc, "rlbhpc."),
        ("Launches", rlbhpc.launch, "rlbhpc.launch."),
        ("`.rlb` of a Dataset: one arm on one problem set", DatasetAccessor, ".rlb."),
        ("`.rlb` of a tree: all arms and sets", TreeAccessor, ".rlb."),
        ("Statistics", rlbhpc.stats, "rlbhpc.stats."),
    ):
        rows = "\n".join(_api_rows(owner, prefix))
        text += f"\n## {title}\n\n| name | what |\n|---|---|\n{rows}\n"
    return text


PAGES: dict[str, Callable[[], str]] = {
    "api.md": api,
    "claim.schema.json": claim_schema,
    "study-file.md": study_file,
    "statistics.md": statistics,
    "clusters.md": clusters,
    "samples-on-disk.md": samples_on_disk,
    "storage-schema.md": storage_schema,
    "verification.md": verification,
}


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check name those that are not current; 1 if there are any."""
    stale = []
    for name, make in PAGES.items():
        page, text = ROOT / "docs" / name, make()
        if page.is_file() and page.read_text() == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            page.parent.mkdir(exist_ok=True)
            page.write_text(text)
            print(f"docs/{name}: written")
    if stale and "--check" in arguments:
        print(f"not current: {', '.join(stale)}; run `make docs`")
    return bool(stale and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
