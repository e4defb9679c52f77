"""A real Chromium over its DevTools pipe: load a file, look at it, list what it asked for."""

import fcntl
import json
import os
import select
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from diskproof.process.start import find_tool, start_process

# Chromium speaks DevTools on descriptors 3 and 4, which may be taken in a test: moved by the child.
_MOVE = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def find_chromium() -> str | None:
    return find_tool("chromium") or find_tool("chromium-browser") or find_tool("google-chrome")


class Browser:
    """One tab. ``events`` holds all that Chromium reported since the last ``load``."""

    def __init__(self, into: int, out: int) -> None:
        self._into, self._out = into, out
        self._pending = b""
        self._count = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = str(attached["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its answer; events on the way are kept."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._into, data) :]
        while (answer := self._read()).get("id") != self._count:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def _read(self, timeout: float = 300) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._out], [], [], deadline - time.monotonic())
            chunk = os.read(self._out, 1 << 20) if ready else b""
            if not chunk:
                raise RuntimeError("Chromium says nothing")
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\0")
        return dict(json.loads(line))

    def load(
        self, page: Path, *, width: int, height: int = 900, scripts: bool = True, dark: bool = False
    ) -> None:
        """Show a file and wait for its load event."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is awaited."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def complaints(self) -> list[str]:
        """What a developer would see in the console: errors, warnings, exceptions, refusals."""
        found = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(json.dumps(params))
            if method == "Log.entryAdded" and params["entry"]["level"] != "verbose":
                found.append(str(params["entry"]["text"]))
            if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                found.append(json.dumps(params["args"]))
        return found

    def requests(self) -> list[str]:
        """Every address the page asked for."""
        return [
            str(event["params"]["request"]["url"])
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]


@contextmanager
def start_browser() -> Iterator[Browser]:
    """A headless Chromium with a profile of its own, gone at the end of the block."""
    program = find_chromium()
    assert program is not None, "needs chromium: apt-get install chromium"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        commands, into = _pipe(stack)
        out, answers = _pipe(stack)
        argv = [sys.executable, "-c", _MOVE, str(commands), str(answers), program, *_FLAGS]
        stack.enter_context(
            start_process(
                [*argv, f"--user-data-dir={folder / 'profile'}"],
                name="chromium",
                log=folder / "log",
                pass_fds=(commands, answers),
            )
        )
        yield Browser(into, out)


def _pipe(stack: ExitStack) -> tuple[int, int]:
    """A pipe whose descriptors are above 9, so that moving one to 3 cannot close another."""
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10))
        stack.callback(os.close, ends[-1])
        os.close(end)
    return ends[0], ends[1]
