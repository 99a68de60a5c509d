"""Answer the calls of episodes: a calculator, Python in a sandbox, and tools of one's own."""

from __future__ import annotations

import ast
import math
import operator
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol

from rlbhpc.engines.episode import Call, Result
from rlbhpc.study.keys import Sampling
from rlbhpc.study.tools import Tool, find_tool
from rlbhpc.verify.kinds.code import reached_tier
from rlbhpc.verify.sandbox.box import SandboxError
from rlbhpc.verify.sandbox.session import Nursery, Session, SessionEnd

# Processor seconds of a block of Python, and seconds of a call of a tool of one's own.
_SECONDS: Final = 5.0
_OWN_SECONDS: Final = 60.0


class Toolbox:
    """The tools of one sampling setting, for many episodes side by side.

    Calls run in threads, one for each processor. The process that Python sessions are forked from
    starts with the first of them.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.threads = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
        self._nursery: Nursery | None = None
        self._lock = threading.Lock()

    def open(self) -> OpenTools:
        """Begin an episode, in which nothing of another one is left."""
        return OpenTools(self)

    def start_session(self) -> Session:
        """Start a Python session; a second time if the sandbox itself fails."""
        with self._lock:
            if self._nursery is None:
                self._nursery = Nursery(reached_tier())
            try:
                return Session(self._nursery, _SECONDS)
            except (SandboxError, OSError):
                self._nursery.close()
                self._nursery = Nursery(reached_tier())
                return Session(self._nursery, _SECONDS)

    def close(self) -> None:
        """End all sessions that are still open, and wait for calls under way."""
        self.threads.shutdown(cancel_futures=True)
        if self._nursery is not None:
            self._nursery.close()


class OpenTools:
    """The tools of one episode; each is made at its first call and then keeps what it has."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self._answerers: dict[str, Answerer] = {}

    def start(self, calls: Sequence[Call]) -> Future[list[Result]]:
        """Make calls in the background, one after the other."""
        return self._toolbox.threads.submit(self._answer_all, calls)

    def _answer_all(self, calls: Sequence[Call]) -> list[Result]:
        return [self._answer(call) for call in calls]

    def _answer(self, call: Call) -> Result:
        """Make one call; what is no call of a tool is answered with the reason."""
        if call.error:
            return Result(f"Error: {call.error}", failed=True)
        tool = self._toolbox.tools.get(call.tool)
        if tool is None:
            names = ", ".join(self._toolbox.tools)
            return Result(f"Error: no tool {call.tool[:100]!r}; the tools are {names}", failed=True)
        arguments = call.arguments
        if arguments.keys() == {""}:
            # A block is the only argument of its tool.
            arguments = {next(iter(tool.parameters)): arguments[""]}
        complaint = _complaint(tool, arguments)
        if complaint:
            return Result(f"Error: {complaint}", failed=True)
        if call.tool not in self._answerers:
            self._answerers[call.tool] = self._make_answerer(tool)
        return self._answerers[call.tool].answer(arguments)

    def _make_answerer(self, tool: Tool) -> Answerer:
        if tool.name == "python" and tool.value is None:
            return Python(self._toolbox.start_session)
        if tool.value is None:
            return OwnTool(calculate)
        return OwnTool(tool.value() if isinstance(tool.value, type) else tool.value)

    def close(self) -> None:
        """End what the episode has started."""
        for answerer in self._answerers.values():
            answerer.close()


@contextmanager
def open_tools(sampling: Sampling) -> Iterator[Toolbox | None]:
    """The tools that a sampling setting names, or None where it has no turns."""
    if sampling.turns is None:
        yield None
        return
    toolbox = Toolbox([find_tool(reference) for reference in sampling.turns.tools])
    try:
        yield toolbox
    finally:
        toolbox.close()


_PYTHON_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool,
}  # fmt: skip


def _complaint(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """What is wrong with the arguments of a call; empty if nothing is."""
    if arguments.keys() != tool.parameters.keys():
        return f"{tool.name} takes {', '.join(tool.parameters) or 'no arguments'}"
    for name, kind in tool.parameters.items():
        if not isinstance(arguments[name], _PYTHON_TYPES[kind]):
            return f"{tool.name}: {name} must be a JSON {kind}"
    return ""


class Answerer(Protocol):
    """A tool as one episode has it."""

    def answer(self, arguments: Mapping[str, Any]) -> Result:
        """Make a call."""
        ...

    def close(self) -> None:
        """End what it has started."""
        ...


class Python:
    """A session in the sandbox; one that had to be ended is replaced at the next call."""

    def __init__(self, start_session: Callable[[], Session]) -> None:
        self._start_session = start_session
        self._session: Session | None = None

    def answer(self, arguments: Mapping[str, Any]) -> Result:
        """Run the code; what it prints, and the traceback if it raises."""
        if self._session is None:
            self._session = self._start_session()
        try:
            output, _ = self._session.run(arguments["code"])
        except SessionEnd as end:
            self.close()
            return Result(f"{end.output}\nError: {end}; all variables are lost", failed=True)
        return Result(output)

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            self._session.close()
            self._session = None


class OwnTool:
    """A function that is called in this process, for as long as it may take."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def answer(self, arguments: Mapping[str, Any]) -> Result:
        """Call the function; an exception is told as text, and one that hangs is left behind."""
        results: list[Result] = []

        def call() -> None:
            try:
                results.append(Result(str(self._function(**arguments))))
            except Exception as error:
                results.append(Result(f"Error: {type(error).__name__}: {error}", failed=True))

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(_OWN_SECONDS)
        return results[0] if results else Result("Error: no answer in time", failed=True)

    def close(self) -> None:
        """Close the object, where it has something to close."""
        with suppress(Exception):
            getattr(self._function, "close", lambda: None)()


# ---- calculator ----------------------------------------------------------------------------------

_OPERATORS: Final[Mapping[type, Callable[..., Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip
# Digits of the longest result: a power of a power has more than fit into memory.
_MAX_DIGITS: Final = 1000


def calculate(expression: str) -> str:
    """Work out an arithmetic expression as Python does; ``^`` is a power, too."""
    if len(expression) > _MAX_DIGITS:
        raise ValueError("the expression is too long")
    tree = ast.parse(expression.replace("^", "**").strip(), mode="eval")
    value = _evaluate(tree.body)
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _evaluate(node: ast.expr) -> int | float:
    """Value of a part of an expression."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value  # type: ignore[return-value]
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate(node.operand))  # type: ignore[no-any-return]
    if isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left), _evaluate(node.right)
        if isinstance(node.op, ast.Pow):
            return _power(left, right)
        if type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](left, right)  # type: ignore[no-any-return]
    raise ValueError("only numbers, + - * / // % ** and parentheses are understood")


def _power(base: float, exponent: float) -> int | float:
    """A power of at most so many digits."""
    if base and abs(exponent) * abs(math.log10(abs(base))) > _MAX_DIGITS:
        raise ValueError("the result has too many digits")
    power = base**exponent
    if not isinstance(power, int | float):
        raise ValueError("the result is no real number")
    return power
