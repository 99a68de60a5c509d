"""Commands and all that they print, as one text."""

from __future__ import annotations

import re
from pathlib import Path

from click import ClickException
from click.testing import CliRunner

from rlbhpc.cli.main import cli
from rlbhpc.errors import UserError

FOLDER = Path(__file__).with_name("transcripts")


def say(folder: Path, *words: object, typed: str | None = None) -> str:
    """A command, its output without the padding of tables, its complaints and its exit code."""
    texts = [str(word) for word in words]
    result = CliRunner().invoke(cli, texts, standalone_mode=False, input=typed)
    error = result.exception
    if error is not None and not isinstance(error, UserError | ClickException):
        raise error
    end = f"refused: {error}" if error else f"exit code {result.return_value}"
    beside = [f"stderr: {line}" for line in result.stderr.splitlines() if line]
    text = "\n".join([f"$ {' '.join(texts)}", *narrowed(result.stdout), *beside, end]) + "\n"
    digest = r"(?<!\.)\b(?=[a-f]*[0-9])[0-9a-f]{8,64}\b"
    text = re.sub(digest, "DIGEST", text.replace(str(folder), "FOLDER"))
    return re.sub(r"[0-9]{8}T[0-9]{6}-\S+-DIGEST", "ATTEMPT", text)


def narrowed(printed: str) -> list[str]:
    """Lines that hold something, without padding: columns are as wide as a folder's name."""
    lines = [line.rstrip() for line in re.sub(r"(?<=\S) {2,}", "  ", printed).splitlines()]
    return list(filter(None, lines))


def expected(name: str) -> str:
    """The transcript that is kept under a name."""
    return (FOLDER / f"{name}.txt").read_text()
