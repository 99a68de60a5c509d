"""Exit codes, and the one exception that becomes a clear line for the user."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
INCOMPLETE: Final = 3
NOTHING_TO_DO: Final = 4
USAGE: Final = 64
TRY_AGAIN: Final = 75


class UserError(Exception):
    """Bad input, told in one line: place, value, what is allowed, what to do next.

    The command line prints the message without a traceback and exits with ``code``.
    """

    def __init__(self, message: str, code: int = USAGE) -> None:
        super().__init__(message)
        self.code = code


class LeftOutWarning(UserWarning):
    """Something on disk was left out of what is shown: damaged, foreign, conflicting or purged.

    The command line prints it and exits with 3 (``INCOMPLETE``), unless ``incomplete`` is false:
    then a killed process left half a sample that nobody counts on.
    """

    incomplete: bool = True
