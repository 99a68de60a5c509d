"""The HTML of a review sheet: one file, no network, no model text that could run.

Model text stands between ``<pre>`` tags with every special character escaped. The content policy
allows the one script and the one style of this file, by their hashes, and nothing else: no request
leaves the page, and a tag that got through would still not run. What the reader enters is kept in
the page and saved by the reader as JSON.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib import resources
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rlbhpc.verify.audit.review import Chain, Sheet

_FOLDER: Final = resources.files("rlbhpc.verify.audit").joinpath("static")


def render(sheet: Sheet, format_name: str, title: str) -> str:
    """Return the whole page."""
    script, style = (
        _FOLDER.joinpath(f"review.{kind}").read_text("utf-8") for kind in ("js", "css")
    )
    chain_ids = [chain.id for chain in sheet.chains]
    facts = {"format": format_name, "sheet": sheet.id, "chains": chain_ids}
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    problems = "\n".join(
        _problem(name, *sheet.counts[name], list(group))
        for name, group in groupby(sheet.chains, key=lambda chain: chain.problem)
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{_text(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"<h1>{_text(title)}</h1>\n{_INTRODUCTION}\n{problems}\n"
        f'<script type="application/json" id="facts">{_json(facts)}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


_INTRODUCTION: Final = """<p>Each chain below ends in the right answer. Is its reasoning valid?
<b>Valid</b>: every step that the answer rests on is sound. <b>Invalid</b>: the answer rests on a
wrong or missing step, on a guess, or on a pattern without a reason. <b>Unclear</b>: neither can be
told. Your work stays in this page until you save it.</p>
<p class="bar"><label>Your name <input id="reviewer" autocomplete="off"></label>
<button id="save" type="button">Save judgements</button> <span id="state"></span></p>"""


def _problem(name: str, n: int, right: int, chains: Sequence[Chain]) -> str:
    body = "\n".join(_chain(chain, index, len(chains)) for index, chain in enumerate(chains, 1))
    return (
        f"<section><h2>{_text(name)}</h2>\n<p>{right} right of {n} samples</p>\n"
        f"<pre class=question>{_text(chains[0].question)}</pre>\n"
        f"<p>Gold answer: <code>{_text(chains[0].gold)}</code></p>\n{body}\n</section>"
    )


def _chain(chain: Chain, index: int, of: int) -> str:
    name = _text(chain.id)
    words = " ".join(
        f'<label><input type="radio" name="{name}" value="{word}"> {word}</label>'
        for word in ("valid", "invalid", "unclear")
    )
    return (
        f"<article><h3>Chain {index} of {of}, answer <code>{_text(chain.answer)}</code></h3>\n"
        f"<pre>{_text(chain.text)}</pre>\n<p class=words>{words} "
        f'<label>note <input class="note" data-chain="{name}" autocomplete="off"></label></p>'
        "</article>"
    )


def _text(text: str) -> str:
    """Escape text for an element or an attribute; control characters become visible."""
    characters = "".join(
        char
        if char in "\n\t" or (char.isprintable() and char not in _TURNS)
        else f"\\u{ord(char):04x}"
        for char in text
    )
    return html.escape(characters, quote=True)


# Marks that turn the direction of writing can make a text read as what it is not.
_TURNS: Final = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")


def _json(value: Any) -> str:
    """JSON that no parser of HTML can leave early."""
    return json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(source: str) -> str:
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    return f"'sha256-{digest}'"
