"""What EvalPlus's sanitizer keeps of a response's program, told again with Python's own parser.

It keeps the imports, and of the top-level functions, classes and plain assignments those that the
entry function needs, directly or through others. Prints, tests and example uses go. A function
without a ``return`` counts as no answer and goes too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator


def _name(statement: ast.stmt) -> str | None:
    """Name that a top-level statement defines, if it is of a kind that is kept."""
    if isinstance(statement, ast.ClassDef):
        return statement.name
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        returns = any(isinstance(node, ast.Return) for node in ast.walk(statement))
        return statement.name if returns else None
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        return target.id if isinstance(target, ast.Name) else None
    return None


def _mentioned(statement: ast.stmt) -> Iterator[str]:
    """Every identifier in a statement, attribute names among them."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def pruned(text: str, entry: str) -> ast.Module:
    """Parse a program and keep the imports and what ``entry`` needs; a name's first definition."""
    tree = ast.parse(text)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    definitions: dict[str | None, ast.stmt] = {}
    for statement in tree.body:
        definitions.setdefault(_name(statement), statement)
    needed: set[str] = set()
    open_names = [entry]
    while open_names:
        name = open_names.pop()
        if name in definitions and name not in needed:
            needed.add(name)
            open_names.extend(_mentioned(definitions[name]))
    kept = [statement for name, statement in definitions.items() if name in needed]
    return ast.Module(body=[*imports, *kept], type_ignores=[])
