"""Sessions of Python: what one keeps, what none leaves behind, and what hostile calls get."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing

import pytest

from rlbhpc.engines.episode import Call, Result
from rlbhpc.study.keys import Sampling, Turns
from rlbhpc.study.tools import find_tool
from rlbhpc.verify import tools as tools_module
from rlbhpc.verify.sandbox import session as session_module
from rlbhpc.verify.sandbox.session import MAX_OUTPUT, Nursery, Session, SessionEnd
from rlbhpc.verify.tools import OpenTools, Toolbox, open_tools
from tests.verify.conftest import RecordingSandbox, World
from tests.verify.hostile import HOSTILE

PROGRAMS = [(name, text) for texts in HOSTILE.values() for name, text in texts.items()]
SECONDS = 0.3


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little time, so that a hundred programs that want everything are done soon."""
    monkeypatch.setattr(tools_module, "_SECONDS", SECONDS)
    monkeypatch.setattr(session_module, "_SPARE_SECONDS", 1.0)


@pytest.fixture(scope="module")
def nursery(best: RecordingSandbox) -> Iterator[Nursery]:
    with closing(Nursery(best.tier)) as nursery:
        yield nursery


def make_call(episode: OpenTools, code: str) -> Result:
    (result,) = episode.start([Call("python", {"code": code})]).result(60)
    return result


@pytest.fixture
def toolbox(sandbox: RecordingSandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[Toolbox]:
    """Tools whose Python runs at each tier in turn."""
    monkeypatch.setattr(tools_module, "reached_tier", lambda: sandbox.tier)
    with closing(Toolbox([find_tool("python")])) as toolbox:
        yield toolbox


def test_hostile_programs_as_calls_of_an_episode(
    toolbox: Toolbox, impatient: None, world: World, soak: bool
) -> None:
    programs = PROGRAMS if soak else random.Random(8).sample(PROGRAMS, len(PROGRAMS) // 10)
    for name, text in programs:
        with closing(toolbox.open()) as episode:
            make_call(episode, "kept = 'of this episode'")
            result = make_call(episode, world.fill_in(text))
            # A traceback shows the line that would print it.
            lines = result.text.splitlines()
            assert not any(line.startswith("ESCAPED") for line in lines), f"{name}: {lines[:5]}"
            # The episode goes on, whatever became of its session.
            assert make_call(episode, "6 * 7").text.endswith("42\n"), name
        assert world.damage() == [], name
        with closing(toolbox.open()) as following:
            seen = "import os\nprint('kept' in globals(), os.getcwd() == '/' or os.listdir('.'))"
            assert make_call(following, seen).text in ("False True\n", "False []\n"), name


def test_honest_calls_get_what_python_gives(nursery: Nursery) -> None:
    rng = random.Random(4)
    with closing(Session(nursery, 5.0)) as session:
        assert session.run("total = 0") == ("", True)
        total = 0
        for _ in range(100):
            a, b = rng.randrange(-(10**9), 10**9), rng.randrange(1, 10**6)
            expression = rng.choice(["{} * {}", "{} // {}", "{} % {}", "divmod({}, {})"])
            expression = expression.format(a, b)
            assert session.run(expression) == (f"{eval(expression)!r}\n", True)
            total += a
            assert session.run(f"total += {a}\nprint(total)") == (f"{total}\n", True)


def test_a_session_keeps_names_and_survives_exceptions(nursery: Nursery) -> None:
    with closing(Session(nursery, SECONDS)) as session:
        session.run("def double(x):\n    return 2 * x")
        for code, part in [
            ("1 / 0", "ZeroDivisionError"), ("syntax error", "SyntaxError"),
            ("input()", "EOFError"), ("while True: pass", "TimeoutError"),
            ("try:\n    while True: pass\nexcept Exception: pass", "TimeoutError"),
            ("import sys\nsys.exit('left')", "left"),
        ]:  # fmt: skip
            output, succeeded = session.run(code)
            assert part in output
            assert not succeeded
            # Nothing of this machine is in what a model is told.
            assert "rlbhpc" not in output
        assert session.run("double(21)") == ("42\n", True)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os; os._exit(0)", "ended"),
        (f"print('x' * {2 * MAX_OUTPUT})", "bytes of output"),
        ("import time; time.sleep(100)", "no answer"),
    ],
)
def test_what_ends_a_session_costs_one_call(
    code: str, reason: str, toolbox: Toolbox, impatient: None
) -> None:
    with closing(toolbox.open()) as episode, closing(toolbox.open()) as neighbour:
        make_call(neighbour, "x = 5")
        make_call(episode, "x = 1")
        result = make_call(episode, code)
        assert result.failed
        assert reason in result.text
        assert "NameError" in make_call(episode, "x").text
        assert make_call(neighbour, "x") == Result("5\n")


def test_many_sessions_live_side_by_side(nursery: Nursery, impatient: None) -> None:
    sessions = [Session(nursery, SECONDS) for _ in range(24)]
    try:
        for number, session in enumerate(sessions):
            session.run(f"open('mine', 'w').write('{number}'); number = {number}")
        for number, session in enumerate(sessions):
            assert session.run("number, open('mine').read()") == (f"({number}, '{number}')\n", True)
    finally:
        for session in sessions:
            session.close()


def test_a_session_that_ended_says_so(nursery: Nursery) -> None:
    with closing(Session(nursery, SECONDS)) as session:
        for _ in range(2):
            with pytest.raises(SessionEnd):
                session.run("import os; os._exit(3)")


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (Call("", {}, "no JSON"), "no JSON"),
        (Call("nothing", {}), "nothing"),
        (Call("calculator", {"x": "1"}), "expression"),
        (Call("calculator", {"expression": 3}), "string"),
        (Call("calculator", {"expression": "9**9**9**9"}), "digits"),
        (Call("calculator", {"expression": "x"}), "numbers"),
    ],
)
def test_what_is_no_call_is_answered_with_the_reason(call: Call, part: str) -> None:
    turns = Turns(2, ("calculator",))
    with open_tools(Sampling(1.0, 1.0, 9, turns=turns)) as toolbox:
        assert toolbox is not None
        with closing(toolbox.open()) as episode:
            (result,) = episode.start([call]).result(10)
    assert result.failed
    assert part in result.text
