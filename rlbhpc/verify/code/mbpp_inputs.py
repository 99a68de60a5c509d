"""MBPP+ inputs as Python values: JSON has no tuples, sets or complex numbers.

Which task wants what is published with evalplus (``data/mbpp.py``, release v0.2.0) as a list of
task numbers; here each number is given the conversion of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

Convert = Callable[[list[Any]], list[Any]]


def _tuples(arguments: list[Any]) -> list[Any]:
    return [tuple(argument) for argument in arguments]


def _all_tuples(value: Any) -> Any:
    return tuple(_all_tuples(item) for item in value) if isinstance(value, list) else value


_TASKS: Final[list[tuple[tuple[int, ...], Convert]]] = [
    ((2, 116, 132, 143, 222, 261, 273, 394, 399, 421, 424, 429, 470, 560, 579, 596, 616, 630, 726,
      740, 744, 809), _tuples),
    ((63, 64, 70, 94, 120, 237, 272, 299, 400, 409, 417, 438, 473, 614, 780),
     lambda arguments: [_tuples(argument) for argument in arguments]),
    ((75, 413, 444, 753), lambda arguments: [_tuples(arguments[0]), arguments[1]]),
    ((106, 750), lambda arguments: [arguments[0], tuple(arguments[1])]),
    # An empty set is an empty dictionary there, so it is here.
    ((115,), lambda arguments: [[set(item) if isinstance(item, list) and item else {}
                                 for item in arguments[0]]]),
    ((124,), lambda arguments: [float(arguments[0]), complex(arguments[1])]),
    ((250, 307, 405, 446, 617, 720, 763, 808),
     lambda arguments: [tuple(arguments[0]), *arguments[1:]]),
    ((259, 401, 445), lambda arguments: [tuple(_tuples(argument)) for argument in arguments]),
    ((278,), lambda arguments: [tuple(tuple(item) if isinstance(item, list) else item
                                      for item in arguments[0])]),
    ((722,), lambda arguments: [{key: tuple(value) for key, value in arguments[0].items()},
                                *arguments[1:]]),
    ((252,), lambda arguments: [complex(arguments[0])]),
    ((580, 615, 791), lambda arguments: list(_all_tuples(arguments))),
]  # fmt: skip
_BY_TASK: Final = {task: convert for tasks, convert in _TASKS for task in tasks}


def python_inputs(task_id: str, inputs: list[list[Any]]) -> list[list[Any]]:
    """Turn one task's argument lists into what its function expects.

    ``task_id`` is of the form ``Mbpp/NUMBER``; tasks that aren't listed take JSON as it is.
    """
    convert = _BY_TASK.get(int(task_id.rpartition("/")[2]))
    return [convert(arguments) for arguments in inputs] if convert else inputs
