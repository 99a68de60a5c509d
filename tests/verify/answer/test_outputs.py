"""Everything that the math verifier says of a thousand answers, held as it is.

The tables of facts say whether an answer is right; this one also holds by which rule, in which
form, as what it was read, and what a RIGHT rests on. ``python -m tests.verify.answer.test_outputs``
writes the table anew: read its differences like those of code.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path

from rlbhpc.verify import verify
from rlbhpc.verify.answer.read import read
from rlbhpc.verify.answer.value import Node
from tests.verify.test_math import boxed, rows_of

TABLE = "answer/outputs.tsv"
HEAD = ("gold", "response; @ for a box", "rule", "form", "read as", "witness")


def outputs(gold: str, response: str) -> list[str]:
    """One row of the table."""
    verdict = verify("math", gold, boxed(response[2:]) if response[:2] == "@ " else response)
    texts = (verdict.rule, verdict.canonical, written(read(verdict.answer)), verdict.witness)
    return [gold, response, *texts]


def written(part: object) -> str:
    """A value as its kind and its fields, an expression in prefix form."""
    if isinstance(part, Node):
        words = [part.op, *([] if part.value is None else [str(part.value)])]
        return "{" + " ".join([*words, *map(written, part.args)]) + "}"
    if is_dataclass(part):
        inner = (written(getattr(part, field.name)) for field in fields(part))
        return f"{type(part).__name__}({', '.join(inner)})"
    if isinstance(part, tuple):
        return f"({', '.join(map(written, part))})"
    return str(part)


def test_what_is_said_of_each_answer() -> None:
    rows = rows_of(TABLE)
    assert len(rows) > 1000
    different = [row for row in rows if outputs(row[0], row[1]) != row]
    assert not different


def main() -> None:
    """Write the table anew."""
    rows = [HEAD, *(outputs(gold, response) for gold, response, *_ in rows_of(TABLE))]
    pictures = str.maketrans("\n\r", "␊␍")
    text = "".join("\t".join(row).translate(pictures) + "\n" for row in rows)
    (Path(__file__).parents[1] / TABLE).write_text(text)


if __name__ == "__main__":
    main()
