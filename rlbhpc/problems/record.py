"""One record of a data file, with the place it came from, so that every complaint names it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError


@dataclass(frozen=True)
class Record:
    """The values of one record and where they stand.

    ``number`` counts from 1 within ``file``. ``offset`` is the byte at which the record's line
    begins, known for plain JSONL only; with it one huge record can be read again alone.
    """

    values: Mapping[str, Any]
    file: Path
    number: int
    offset: int | None = None

    @property
    def place(self) -> str:
        """File and record number, for messages."""
        return f"{self.file}, record {self.number}"

    def get(self, *names: str) -> Any:
        """Return the first of these fields that is there and not null, else ``None``."""
        for name in names:
            value = self.values.get(name)
            if value is not None:
                return value
        return None

    def need(self, *names: str) -> Any:
        """Like :meth:`get`, but a record that has none of these fields is the user's to mend."""
        value = self.get(*names)
        if value is None:
            wanted = " or ".join(f"`{name}`" for name in names)
            present = (
                ", ".join(
                    f"{name} (null)" if self.values[name] is None else name
                    for name in sorted(self.values)
                )
                or "no fields at all"
            )
            raise UserError(f"{self.place}: no field {wanted}; found: {present}")
        return value

    def text(self, *names: str) -> str:
        """Return the first of these fields as a string; see :func:`number_text` for numbers."""
        value = self.need(*names)
        if isinstance(value, str):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return number_text(value)
        name = next(name for name in names if self.values.get(name) is not None)
        kind = type(value).__name__
        raise UserError(f"{self.place}: field `{name}` is a {kind}; a text or number belongs there")

    def optional_text(self, *names: str) -> str:
        """Like :meth:`text`, but empty where there is no such field."""
        return "" if self.get(*names) is None else self.text(*names)

    def texts(self, name: str) -> list[str]:
        """Return the items of a list as strings; none where the field is no list."""
        value = self.get(name)
        return [str(item) for item in value] if isinstance(value, list) else []

    def index(self) -> str:
        """Return verl's number of a record; empty where there is none."""
        number = (self.get("extra_info") or {}).get("index")
        return "" if number is None else str(number)

    def ground_truth(self) -> str | None:
        """Return verl's reference answer, of a list its only item; None where there is none."""
        judged_by = self.get("reward_model")
        answer = judged_by.get("ground_truth") if isinstance(judged_by, Mapping) else None
        if isinstance(answer, list) and len(answer) == 1:
            answer = answer[0]
        if isinstance(answer, list | Mapping):
            # Any of them, or all of them? The files that the sets are made for hold one text.
            raise UserError(
                f"{self.place}: `ground_truth` is {answer!r:.80}; allowed: one text or number; "
                "write one answer there, or read the file with a set of your own"
            )
        return None if answer is None else str(answer)

    def images(self, *names: str) -> tuple[bytes, ...]:
        """Return the image or images in the first of these fields, as bytes."""
        value = self.need(*names)
        values = value if isinstance(value, list | tuple) else [value]
        return tuple(self._image(image) for image in values)

    def _image(self, value: Any) -> bytes:
        """One image: bytes, an image struct of ``datasets``, a data URI, or a file beside this."""
        if isinstance(value, Mapping):
            value = value.get("bytes") or value.get("path")
        if isinstance(value, bytes) and value:
            return value
        if not isinstance(value, str) or not value:
            raise UserError(
                f"{self.place}: an image is bytes, a struct with `bytes`, a data URI or the path "
                f"of a file; found a {type(value).__name__}"
            )
        if value.startswith("data:"):
            return self._data_uri(value)
        root = self.file.parent.resolve()
        target = (root / value).resolve()
        # A record decides what is read and shown to a model, so it may only name its neighbours.
        if not target.is_relative_to(root):
            raise UserError(f"{self.place}: image path {value!r} leads out of {self.file.parent}")
        if not target.is_file():
            raise UserError(f"{self.place}: no image file {value!r} in {self.file.parent}")
        return target.read_bytes()

    def _data_uri(self, value: str) -> bytes:
        head, comma, body = value.partition(",")
        try:
            if not comma or not head.endswith(";base64"):
                raise ValueError("no base64 body")
            return base64.b64decode(body, validate=True)
        except (ValueError, binascii.Error) as error:
            raise UserError(f"{self.place}: data URI of an image is broken ({error})") from None


def number_text(value: float) -> str:
    """Write a number as a person does: 27.0 is 27, since a float column is a matter of storage."""
    if not isinstance(value, int) and abs(value) < 2**53 and value == int(value):
        return str(int(value))
    return str(value)


# ---- boxed ---------------------------------------------------------------------------------------
# The last balanced ``\boxed{…}`` of a reference solution.


_BOX: Final = re.compile(r"\\boxed|\\fbox")
# An escaped brace is text.
_BRACE: Final = re.compile(r"\\.|[{}]", re.DOTALL)


def last_boxed(record: Record, *names: str) -> str:
    """Gold answer in the last balanced box of the solution in the first of these fields."""
    content = last_balanced(record.text(*names))
    if not content:
        raise UserError(f"{record.place}: no balanced \\boxed{{…}} in field `{names[0]}`")
    return content


def last_balanced(text: str) -> str:
    r"""Content of the last ``\boxed{…}`` or ``\fbox{…}`` whose braces close; empty if none.

    Escaped braces (``\{``) are text. A box without braces, ``\boxed 5``, holds one token. Reference
    solutions are trusted and short; what models write is read by ``verify``.
    """
    for start in reversed([match.end() for match in _BOX.finditer(text)]):
        rest = text[start:]
        if rest.startswith(" ") and rest.split():
            return rest.split()[0].strip("$.,")
        content = braced(rest, 0) if rest.startswith("{") else None
        if content is not None:
            return content.strip()
    return ""


def braced(text: str, start: int) -> str | None:
    """What stands between the brace at ``start`` and the one that closes it, if one does."""
    depth = 0
    for brace in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return text[start + 1 : brace.start()]
    return None


def ends_in_box(text: str) -> bool:
    r"""Whether the last ``\boxed{`` of a text is never closed."""
    start = text.rfind("\\boxed{")
    return start >= 0 and braced(text, start + len("\\boxed")) is None
