"""Sandboxes at every tier of this node, and a world around them that nobody may touch."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlbhpc.verify.sandbox import confine
from rlbhpc.verify.sandbox.box import Sandbox, SandboxError
from rlbhpc.verify.sandbox.job import Job, Limits, Outcome, Tier

TIERS = {
    "T1": Tier(),
    "T2": Tier(landlock=confine.landlock_version()),
    "T3": Tier(landlock=confine.landlock_version(), namespaces=True),
    "T3 without Landlock": Tier(namespaces=True),
}
# Its parent is the supervisor, where programs live in no namespace.
PARENT = "import os\nprint(os.getppid())"


class RecordingSandbox(Sandbox):
    """A sandbox that remembers what came out of it."""

    def __init__(self, tier: Tier) -> None:
        super().__init__(tier)
        self.outcomes: list[Outcome] = []

    def run(self, job: Job, stdin: bytes = b"", limits: Limits | None = None) -> Outcome:
        outcome = super().run(job, stdin, limits)
        self.outcomes.append(outcome)
        return outcome


def open_sandbox(name: str) -> RecordingSandbox:
    """Start a sandbox of a tier, or skip where this node lacks it."""
    sandbox = RecordingSandbox(TIERS[name])
    try:
        if name == "T2" and not TIERS[name].landlock:
            raise SandboxError("no Landlock here")
        sandbox.run(Job("print(1)"))
    except SandboxError as error:
        pytest.skip(f"{name}: {error}")
    return sandbox


@pytest.fixture(scope="session", params=list(TIERS))
def sandbox(request: pytest.FixtureRequest) -> Iterator[RecordingSandbox]:
    """A sandbox, once for every tier."""
    with open_sandbox(request.param) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def best() -> Iterator[RecordingSandbox]:
    """A sandbox of the best tier that starts here."""
    for name in ("T3", "T3 without Landlock", "T2", "T1"):
        try:
            with open_sandbox(name) as sandbox:
                yield sandbox
                return
        except pytest.skip.Exception:
            continue


class World:
    """What hostile programs are after: bait whose every touch is seen."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="rlbhpc-bait-")
        self.folder = Path(self._folder.name)
        self.folder.chmod(0o777)
        self.canary = self.folder / "canary"
        self.canary.write_text("secret")
        self.canary.chmod(0o666)
        self.mark = f"mark-{secrets.token_hex(6)}"
        self.bystander = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=-1)
        self.name = f"rlbhpc-{secrets.token_hex(6)}"
        self._listeners = [
            self._bound(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            self._bound(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{self.name}"),
            self._bound(socket.AF_UNIX, socket.SOCK_DGRAM, f"\0{self.name}-D"),
        ]
        self._stat = self.canary.stat()
        os.environ["RLBHPC_TEST_TOKEN"] = "a secret of the verifier"

    @staticmethod
    def _bound(family: int, kind: int, address: object) -> socket.socket:
        listener = socket.socket(family, kind)
        listener.bind(address)  # type: ignore[arg-type]
        listener.setblocking(False)
        if kind == socket.SOCK_STREAM:
            listener.listen()
        return listener

    def fill_in(self, program: str) -> str:
        """Tell a program where the bait is."""
        words = {
            "CANARY": str(self.canary), "FOLDER": str(self.folder), "MARK": self.mark,
            "SOCKET": self.name, "PORT": str(self._listeners[0].getsockname()[1]),
            "VERIFIER": str(os.getpid()), "BYSTANDER": str(self.bystander.pid),
        }  # fmt: skip
        for word, value in words.items():
            program = program.replace(word, value)
        return program

    def damage(self) -> list[str]:
        """Everything that is no longer as it was."""
        found = []
        if self.bystander.poll() is not None:
            found.append("the bystander died")
        if [*self.folder.iterdir()] != [self.canary] or self.canary.read_text() != "secret":
            found.append("the canary was touched")
        now = self.canary.stat()
        if (now.st_mode, now.st_uid, now.st_mtime_ns) != (
            self._stat.st_mode, self._stat.st_uid, self._stat.st_mtime_ns,
        ):  # fmt: skip
            found.append("the canary's state was changed")
        for listener in self._listeners:
            try:
                listener.accept() if listener.type == socket.SOCK_STREAM else listener.recv(1)
                found.append("somebody connected")
            except BlockingIOError:
                pass
        for place in ("/var/tmp", "/dev/shm", "/run", "/tmp", "/"):
            if Path(place, self.mark).exists():
                found.append(f"a mark in {place}")
        return found

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        self.bystander.kill()
        self.bystander.communicate()
        self._folder.cleanup()
        del os.environ["RLBHPC_TEST_TOKEN"]


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()
