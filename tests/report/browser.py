"""A real browser without a window, steered over a pair of pipes by the DevTools protocol.

Pipes and not a port: nothing listens on the network, and no driver has to fit the browser.
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

_ALONE = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


PATIENCE_SECONDS = 120


class Browser:
    """One page of a browser: what it shows, what it computes, and what it complains about."""

    def __init__(self, commands: int, replies: int) -> None:
        self._commands = os.fdopen(commands, "wb", buffering=0)
        self._replies = os.fdopen(replies, "rb", buffering=0)
        self._rest = b""
        self._number = itertools.count(1)
        self._session = ""
        self._events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Give a command and wait for its result; events that come meanwhile are kept."""
        number = next(self._number)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        while True:
            reply = self._next()
            if reply.get("id") == number:
                assert "error" not in reply, (method, reply["error"])
                result: dict[str, Any] = reply["result"]
                return result
            self._events.append(reply)

    def open(
        self, page: Path | str, width: int, *, dark: bool = False, script: bool = True
    ) -> None:
        """Load a file or an address into a window of some width and wait until it is there."""
        self.send("Emulation.setScriptExecutionDisabled", value=not script)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=scheme)
        self.resize(width, 900)
        self._events.clear()
        address = page if isinstance(page, str) else page.resolve().as_uri()
        self.send("Page.navigate", url=address)
        self.wait_for_load()

    def wait_for_load(self) -> None:
        """Wait until the page that is being loaded is there."""
        while not any(e.get("method") == "Page.loadEventFired" for e in self._events):
            self._events.append(self._next())

    def resize(self, width: int, height: int) -> None:
        """Set the size of the window in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)

    def ask(self, expression: str) -> Any:
        """Evaluate an expression in the page; of a promise, what it comes to."""
        reply = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def wait_until(self, condition: str) -> None:
        """Wait until an expression is true in the page, a frame at a time."""
        self.ask(
            f"new Promise(done => {{ const look = () => ({condition}) ? done() "
            ": requestAnimationFrame(look); look(); })"
        )

    def press(self, key: str, text: str = "") -> None:
        """Press and release a key."""
        named = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "End": 35, "Escape": 27}
        code = named.get(key) or ord(key.upper())
        stroke: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        down = stroke | ({"text": text} if text else {})
        self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **down)
        self.send("Input.dispatchKeyEvent", type="keyUp", **stroke)

    def follow(self, key: str, text: str = "") -> None:
        """Press a key that leads to another page, and wait until that is there."""
        self._events.clear()
        self.press(key, text)
        self.wait_for_load()

    def arrive(self, expression: str) -> None:
        """Evaluate what leads to another page, and wait until that is there."""
        self._events.clear()
        self.ask(expression)
        self.wait_for_load()

    def screenshot(self, path: Path, clip: dict[str, float] | None = None) -> None:
        """Write what the whole page looks like."""
        height = self.ask("document.documentElement.scrollHeight")
        width = self.ask("window.innerWidth")
        area = clip or {"x": 0, "y": 0, "width": width, "height": height}
        shot = self.send(
            "Page.captureScreenshot", captureBeyondViewport=True, clip={**area, "scale": 1}
        )
        path.write_bytes(base64.b64decode(shot["data"]))

    @property
    def complaints(self) -> list[str]:
        """Console messages, exceptions and log entries since the page was opened."""
        self.send("Runtime.evaluate", expression="0")  # events of before it have come then
        names = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(e) for e in self._events if e.get("method") in names]

    @property
    def requested(self) -> list[str]:
        """Addresses that the page asked for."""
        method = "Network.requestWillBeSent"
        return [e["params"]["request"]["url"] for e in self._events if e.get("method") == method]

    def close(self) -> None:
        """Close the pipes, which ends the browser."""
        self._commands.close()
        self._replies.close()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._replies], [], [], PATIENCE_SECONDS)
            assert ready, f"the browser said nothing for {PATIENCE_SECONDS} s"
            part = self._replies.read(1 << 16)
            assert part, "the browser went away"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start a browser with a profile of its own in a folder; skip where there is none."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium; tools/install_browser.sh installs it on Debian")
    ours, theirs = os.pipe(), os.pipe()
    # The browser reads from descriptor 3 and writes to 4, so ours must lie out of their way.
    reads, writes = (fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (ours[0], theirs[1]))
    shell = f'exec "$@" 3<&{reads} 4>&{writes}'
    with (folder / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", shell, "browser", program, *_ALONE, f"--user-data-dir={folder}/profile"],
            pass_fds=(reads, writes), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    for fd in (ours[0], theirs[1], reads, writes):
        os.close(fd)
    try:
        page = Browser(ours[1], theirs[0])
        yield page
        page.close()
        process.wait(20)
    finally:
        # Renderers and helpers are in the browser's own process group.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
