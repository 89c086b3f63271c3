"""A real browser without a window, driven over a pipe: Chromium's own protocol, so that no other package is needed.

Messages are JSON with a NUL after each, on file descriptors 3 and 4. https://chromedevtools.github.io/devtools-protocol
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",  # root has none, and pages are our own
    "--disable-gpu",
    "--disable-dev-shm-usage",  # containers have little of it
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PATIENCE_SECONDS = 90  # a busy machine is slow to start a browser


def find_browser() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a browser; everything that its console says or throws is kept."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._buffer, self._count = b"", 0
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], PATIENCE_SECONDS)
            more = os.read(self._read, 1 << 20) if ready else b""
            assert more, "the browser does not answer, or has ended"
            self._buffer += more
        message, _, self._buffer = self._buffer.partition(b"\0")
        found = json.loads(message)
        if found.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.complaints.append(json.dumps(found["params"]))
        return found

    def open(self, page: Path, width: int = 1280, height: int = 900) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=page.as_uri())
        self.wait_for("document.readyState === 'complete'")

    def ask(self, expression: str) -> Any:
        """The value of an expression, evaluated in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, expression: str) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not self.ask(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.02)

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of what can be seen of it: nothing may lie above it."""
        place = json.dumps(selector)
        self.ask(f"document.querySelector({place}).scrollIntoView({{block: 'center', inline: 'center'}})")
        box = self.ask(
            f"(() => {{ const it = document.querySelector({place}), b = it.getClientRects()[0];"
            "const x = b.x + b.width / 2, y = b.y + b.height / 2, met = document.elementFromPoint(x, y);"
            "return {x, y, free: it === met || it.contains(met) || met.contains(it)}; })()"
        )
        assert box["free"], f"{selector} is covered"
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box["x"], y=box["y"], button="left", clickCount=1)

    def press_enter(self) -> None:
        for kind in ("keyDown", "keyUp"):
            words = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
            self.call("Input.dispatchKeyEvent", type=kind, **words, **({"text": "\r"} if kind == "keyDown" else {}))

    def screenshot(self, path: Path) -> Path:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
        return path


@contextlib.contextmanager
def browse(program: str, profile: Path) -> Iterator[Browser]:
    """A fresh browser with a fresh profile, ended with all its processes."""
    (their_read, our_write), (our_read, their_write) = os.pipe(), os.pipe()
    quiet = (os.POSIX_SPAWN_OPEN, 2, str(profile.with_suffix(".log")), os.O_WRONLY | os.O_CREAT, 0o600)
    # First out of the way of 3 and 4, which may be among the four.
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (their_read, their_write)]
    actions = [quiet, (os.POSIX_SPAWN_DUP2, high[0], 3), (os.POSIX_SPAWN_DUP2, high[1], 4)]
    words = [program, *FLAGS, f"--user-data-dir={profile}"]
    process = os.posix_spawn(program, words, os.environ, file_actions=actions, setpgroup=0)
    for end in (*high, their_read, their_write):
        os.close(end)
    try:
        yield Browser(our_read, our_write)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(our_read)
        os.close(our_write)
