"""Hold the shape: arrows between rooms go one way, without circles, and nothing stands unused.

A parameter that functions of many rooms only hand on belongs to a value that the last one is given.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "rlbhpc"
# Beside each __init__.py, modules that load what they name when it is first asked for.
ENTRANCES = {PACKAGE / "xarray.py"}

# A room may import the rooms before it, never those after it.
ROOMS = (
    "problems", "study", "stats", "engines", "verify", "store", "exchange",
    "sweep", "train", "launch", "report", "view", "cli",
)  # fmt: skip
# Rooms a login node uses: these may not import any of HEAVY, not even inside a function.
LIGHT_ROOMS = {
    "problems",
    "study",
    "stats",
    "verify",
    "store",
    "exchange",
    "launch",
    "report",
    "view",
}
HEAVY = {"torch", "transformers", "vllm", "deepspeed", "dask"}
# Rooms that a parameter may be handed through, and the noun that each room may be handed.
MAX_PASSED = 3
EVERYWHERE = {"layout"}
# Folders whose code may call the package; what only tests call is no feature.
CALLERS = ("rlbhpc", "analysis", "tools")
# Decorators that hand a function or class to a library, which calls it.
REGISTERING = ("click.", "xr.register", "group.", "main.")

# Records that change after they are made; all others are frozen.
CHANGING = {
    "ArmAudit", "Comparison", "Listing", "Panel", "ProblemChange", "ProblemQueue", "Row", "Score",
    "Tally", "Wave", "_Call", "_Worker",
}  # fmt: skip

Trees = dict[Path, ast.Module]
# A function by its dotted name, and one of its parameters.
Parameter = tuple[str, str]


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def misplaced(path: Path, tree: ast.Module) -> Iterator[str]:
    """Imports that go against the order of the rooms."""
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for line, name in imports(tree):
        top, *rest = name.split(".")
        if top in HEAVY and room in LIGHT_ROOMS:
            yield f"{path}:{line}: {room} must run on a login node and may not import {top}"
        if top != "rlbhpc" or not rest or rest[0] not in ROOMS:
            continue
        if room not in ROOMS:
            if path.parent == PACKAGE and room in {"__main__", "__init__", "xarray"}:
                continue
            yield f"{path}:{line}: a module outside the rooms may not import rlbhpc.{rest[0]}"
        elif ROOMS.index(rest[0]) > ROOMS.index(room):
            order = " < ".join(ROOMS)
            yield f"{path}:{line}: arrow from {room} up to {rest[0]}; the order is {order}"


def module_name(path: Path) -> str:
    """The dotted name under which a file of the package is imported."""
    dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return dotted.removesuffix(".__init__")


def import_graph(trees: Trees) -> dict[str, set[str]]:
    """Each module of the package with the modules of the package that it imports."""
    modules = {module_name(path) for path in trees}
    graph: dict[str, set[str]] = {}
    for path, tree in trees.items():
        targets: set[str] = set()
        if path.name == "__init__.py" or path in ENTRANCES:
            tree = without_type_imports(tree)
        for _, name in imports(tree):
            # `from a.b import c` names the module a.b.c, or the member c of a.b.
            parent = name.rpartition(".")[0]
            targets |= {name if name in modules else parent} & modules
        graph[module_name(path)] = targets - {module_name(path)}
    return graph


def without_type_imports(tree: ast.Module) -> ast.Module:
    """An entrance without the names of other modules that it only shows to a type checker."""
    body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
    return ast.Module(body, tree.type_ignores)


def circles(trees: Trees) -> Iterator[str]:
    """Every group of modules that import each other, also through an import in a function."""
    graph = import_graph(trees)
    reach = {module: reachable(graph, module) for module in graph}
    reported: set[str] = set()
    for module in sorted(graph):
        circle = {other for other in reach[module] if module in reach[other]}
        if circle and module not in reported:
            reported |= circle
            yield "import circle: " + ", ".join(sorted(circle | {module}))


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    """The modules that a module imports, directly or through others."""
    reached: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += graph[module]
    return reached


def mentions(tree: ast.Module) -> Iterator[str]:
    """Every name that a module reads, and strings that name one: `module:function`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.replace(":", ".").rpartition(".")[2]


def unreached(trees: Trees) -> Iterator[str]:
    """Public functions and classes that nothing in the product names, and no page for users."""
    callers = [tree for path, tree in trees.items() if path.name != "__init__.py"]
    for folder in CALLERS[1:]:
        callers += [ast.parse(path.read_text()) for path in (ROOT / folder).rglob("*.py")]
    # What an __init__ lists is the public interface.
    exported = [tree for path, tree in trees.items() if path.name == "__init__.py"]
    uses = Counter(name for tree in callers + exported for name in mentions(tree))
    pages = (*(ROOT / "docs").glob("*.md"), *(ROOT / "analysis").glob("*.md"))
    for page in (ROOT / "pyproject.toml", *pages):
        uses.update(re.findall(r"\w+", page.read_text()))
    for path, tree in trees.items():
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
                continue
            registered = any(ast.unparse(d).startswith(REGISTERING) for d in node.decorator_list)
            if not registered and uses[node.name] == 0:
                place = f"{path}:{node.lineno}"
                yield f"{place}: nothing calls {node.name}; delete it or show it in docs/"


def functions(trees: Trees) -> dict[str, ast.FunctionDef]:
    """Every function of a module, by its dotted name."""
    return {
        f"{module_name(path)}.{node.name}": node
        for path, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }


def called(call: ast.Call, module: str, imported: dict[str, str]) -> str:
    """The dotted name of what is called; empty for a method of a value."""
    if isinstance(call.func, ast.Name):
        return imported.get(call.func.id, f"{module}.{call.func.id}")
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        return f"{imported.get(call.func.value.id, '')}.{call.func.attr}"
    return ""


def handed_on(trees: Trees) -> dict[Parameter, set[Parameter]]:
    """Each parameter with those to which its function hands it as it is."""
    by_name = functions(trees)
    handed: dict[Parameter, set[Parameter]] = {}
    for path, tree in trees.items():
        module = module_name(path)
        imported = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for name, function in functions({path: tree}).items():
            own = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
            for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
                target = called(call, module, imported)
                if target not in by_name:
                    continue
                arguments = by_name[target].args
                names = [arg.arg for arg in (*arguments.posonlyargs, *arguments.args)]
                values = [*zip(call.args, names, strict=False)]
                values += [(word.value, word.arg) for word in call.keywords if word.arg]
                for value, parameter in values:
                    if isinstance(value, ast.Name) and value.id in own:
                        handed.setdefault((name, value.id), set()).add((target, parameter))
    return handed


def passed_through(trees: Trees) -> Iterator[str]:
    """Parameters that are handed on, as they are, through too many rooms."""
    handed = handed_on(trees)

    def ways(way: tuple[Parameter, ...]) -> Iterator[tuple[Parameter, ...]]:
        yield way
        for step in handed.get(way[-1], ()):
            if step not in way:
                yield from ways((*way, step))

    for start in sorted(handed):
        for way in ways((start,)):
            rooms = dict.fromkeys(function.split(".")[1] for function, _ in way)
            if len(rooms) > MAX_PASSED and start[1] not in EVERYWHERE:
                yield f"{start[0]}: {start[1]} is handed through {', '.join(rooms)}"
                break


def unfrozen(trees: Trees) -> Iterator[str]:
    """Dataclasses that anybody may change, though none should."""
    for path, tree in trees.items():
        classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
        for record in classes:
            words = " ".join(map(ast.unparse, record.decorator_list))
            if "dataclass" in words and "frozen=True" not in words and record.name not in CHANGING:
                yield f"{path}:{record.lineno}: {record.name} is not frozen"


def main() -> int:
    """Print every complaint; 1 if there was one."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
    complaints = [line for path, tree in trees.items() for line in misplaced(path, tree)]
    complaints += circles(trees)
    complaints += unreached(trees)
    complaints += passed_through(trees)
    complaints += unfrozen(trees)
    complaints += [
        f"{path}: no such room in the order; add it to ROOMS"
        for path in PACKAGE.iterdir()
        if path.is_dir() and path.name not in ROOMS and path.name != "__pycache__"
    ]
    print("\n".join(complaints) or "structure: ok")
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
