"""What a model may call, and what it is told of it: names, descriptions, schemas of arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, get_type_hints

from rlbhpc import plugins
from rlbhpc.errors import UserError

#: JSON types by the type hints that a function of one's own may have.
_JSON_TYPES: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}


@dataclass(frozen=True)
class Tool:
    """A tool: what a model is told, and for one's own the function or class that answers calls.

    ``parameters``: JSON types by name of the parameter.
    """

    name: str
    description: str
    parameters: Mapping[str, str]
    value: Any = None

    @property
    def schema(self) -> dict[str, Any]:
        """The declaration that chat formats put into the prompt."""
        properties = {name: {"type": kind} for name, kind in self.parameters.items()}
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": {
                    "type": "object",
                    "properties": properties,
                    "required": list(properties),
                },
            },
        }


OWN_TOOLS: Final = {
    "calculator": Tool(
        "calculator",
        "Work out an arithmetic expression with + - * / // % ** and parentheses.",
        {"expression": "string"},
    ),
    "python": Tool(
        "python",
        "Run Python code in a session that keeps its variables; returns what is printed, and the "
        "value of a last line that is an expression.",
        {"code": "string"},
    ),
}


def find_tool(reference: str) -> Tool:
    """Find a tool by its name, by a reference to a file of one's own, or by an installed name."""
    if reference in OWN_TOOLS:
        plugins.reject_own_name("tools", reference)
        return OWN_TOOLS[reference]
    plugin = plugins.find("tools", reference)
    if plugin is None:
        raise UserError(
            f"turns.tools: found {reference!r}; allowed: {', '.join(OWN_TOOLS)}, or a function of "
            "your own, such as ./mine.py:name"
        )
    return _declare(plugin.value, reference)


def _declare(value: Any, reference: str) -> Tool:
    """Declare a function of one's own, or a class whose objects are called, by its signature."""
    function = value.__call__ if isinstance(value, type) else value
    hints = get_type_hints(function)
    parameters = {}
    for name in inspect.signature(function).parameters:
        if name == "self":
            continue
        if hints.get(name) not in _JSON_TYPES:
            raise UserError(
                f"{reference}: parameter {name} needs a type hint that JSON has; allowed: "
                f"{', '.join(kind.__name__ for kind in _JSON_TYPES)}"
            )
        parameters[name] = _JSON_TYPES[hints[name]]
    return Tool(value.__name__, inspect.getdoc(value) or "", parameters, value)
