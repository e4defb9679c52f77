"""QEMU's guest agent, spoken to over its virtio-serial port: how a foreign guest is driven.

Protocol: QEMU's "QEMU Guest Agent Protocol Reference". One JSON object a line each way, one
request at a time; ``guest-sync-delimited`` finds the place again after whatever came before. What
the guest says is hostile: lines, outputs and waits are bounded.
"""

import base64
import binascii
import json
import math
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diskproof.errors import RunFailure
from diskproof.guest.ours.channel import GuestGone
from diskproof.qemu.own_machine import QEMU_AGENT_PORT

NEEDED = ("guest-exec", "guest-exec-status")
MAX_OUTPUT = 16 << 20
"""Bytes that the agent keeps of each output of a command (its GUEST_EXEC_MAX_OUTPUT)."""
MAX_LINE = 3 * MAX_OUTPUT  # both outputs in base64, and what is around them
ANSWER_SECONDS = 60.0  # for a small request, under emulation on a busy host
_SYNC_AGAIN = 5.0
_WATCH_SECONDS = 1.0
_CHUNK = 1 << 20  # of a file; an agent takes a good deal more
_SENTINEL = b"\xff"
POLLS = 100  # a command's end is seen within 1 % of its time
_POLL_SECONDS = (0.005, 0.5)
INSTALL = (
    "install qemu-guest-agent in the image (Windows: the virtio-win guest tools) and have it "
    "start at boot; raise [guest] boot_timeout when the guest is slow"
)


@dataclass(frozen=True)
class Ended:
    """A command that ended in the guest. ``status`` is negative for a signal; ``seconds`` are the
    host's, from the start's answer to the end as it was seen, within 1 %."""

    status: int
    stdout: bytes
    stderr: bytes
    seconds: float
    truncated: bool


class AgentCalls:
    """What is asked of an agent, whoever carries the words. ``execute`` is the carrier's."""

    def execute(
        self, command: str, arguments: Mapping[str, object] | None = None, timeout: float = 0.0
    ) -> Any:
        """The command's ``return`` value. Raises RunFailure ``guest``."""
        raise NotImplementedError

    def require_commands(self, needed: Sequence[str]) -> str:
        """The agent's version. Raises RunFailure ``guest`` for one that does not allow all that is
        needed."""
        info = self.execute("guest-info")
        known = info.get("supported_commands") if isinstance(info, dict) else None
        if not isinstance(info, dict) or not isinstance(known, list):
            raise _nonsense("guest-info", info)
        enabled = {
            each.get("name") for each in known if isinstance(each, dict) and each.get("enabled")
        }
        if missing := [name for name in needed if name not in enabled]:
            raise RunFailure(
                "guest",
                "the guest agent does not allow all that is needed",
                f"disabled in it: {', '.join(missing)}",
                "remove them from the block list in the image (/etc/qemu/qemu-ga.conf or "
                "/etc/sysconfig/qemu-ga: BLOCK_RPCS, BLACKLIST_RPC)",
            )
        return str(info.get("version"))[:100]

    def run(self, argv: Sequence[str], *, timeout: float) -> Ended:
        """Run a program to its end. There is no way to end one: after RunFailure ``timeout`` the
        guest must go."""
        request = {"path": argv[0], "arg": list(argv[1:]), "capture-output": True}
        answer = self.execute("guest-exec", request)
        pid = answer.get("pid") if isinstance(answer, dict) else None
        if type(pid) is not int:
            raise _nonsense("guest-exec", answer)
        began = time.monotonic()
        while True:
            status = self.execute("guest-exec-status", {"pid": pid})
            spent = time.monotonic() - began
            if not isinstance(status, dict) or type(status.get("exited")) is not bool:
                raise _nonsense("guest-exec-status", status)
            if status["exited"]:
                return _read_end(status, spent)
            if spent >= timeout:
                what = f"{argv[0][:100]} did not end in the guest within {timeout:.0f} s"
                raise RunFailure("timeout", what, hint="set a longer run_timeout in [protocol]")
            low, high = _POLL_SECONDS
            time.sleep(min(high, max(low, spent / POLLS), max(0.0, timeout - spent)))

    def write_file(self, path: str, content: bytes) -> None:
        handle = self._open(path, "wb")
        for start in range(0, len(content), _CHUNK):
            chunk = content[start : start + _CHUNK]
            packed = base64.b64encode(chunk).decode()
            answer = self.execute("guest-file-write", {"handle": handle, "buf-b64": packed})
            if not isinstance(answer, dict) or answer.get("count") != len(chunk):
                raise _nonsense("guest-file-write", answer)
        self.execute("guest-file-close", {"handle": handle})

    def read_file(self, path: str, limit: int) -> bytes:
        """A file of the guest. Raises RunFailure when it has more than ``limit`` bytes."""
        handle = self._open(path, "rb")
        content = bytearray()
        while True:
            answer = self.execute("guest-file-read", {"handle": handle, "count": _CHUNK})
            if not isinstance(answer, dict) or type(answer.get("eof")) is not bool:
                raise _nonsense("guest-file-read", answer)
            chunk = _decode(answer.get("buf-b64", ""), "guest-file-read")
            content += chunk
            if len(content) > limit:
                raise RunFailure("guest", f"{path} of the guest is too large", f"over {limit} B")
            if answer["eof"]:
                break
            if not chunk:
                raise _nonsense("guest-file-read", answer)
        self.execute("guest-file-close", {"handle": handle})
        return bytes(content)

    def _open(self, path: str, mode: str) -> int:
        handle = self.execute("guest-file-open", {"path": path, "mode": mode})
        if type(handle) is not int:
            raise _nonsense("guest-file-open", handle)
        return handle


class QemuAgent(AgentCalls):
    """One end of the port. Every failure is a RunFailure ``guest``, with what was said."""

    def __init__(
        self,
        connected: socket.socket,
        answer_seconds: float = ANSWER_SECONDS,
        watch: Callable[[], None] = lambda: None,
    ) -> None:
        """``watch`` is called now and then in a wait; it raises when no answer can come."""
        self._socket = connected
        self._watch = watch
        self._answer_seconds = answer_seconds
        self._pending = bytearray()
        self._syncs = 0
        self._last = math.inf

    def end_within(self, seconds: float) -> None:
        """From now on everything together has so many seconds: a guest that hands out a file byte
        by byte answers each time, and never ends."""
        self._last = time.monotonic() + seconds

    def wait_ready(self, deadline: float, needed: Sequence[str] = NEEDED) -> str:
        """Wait up to ``deadline`` seconds for the agent; gives its version.

        Raises RunFailure when none answers, or one that does not allow what is needed.
        """
        end = time.monotonic() + deadline
        while not self._sync(min(end, time.monotonic() + _SYNC_AGAIN)):
            if time.monotonic() >= end:
                raise RunFailure(
                    "guest",
                    "no QEMU guest agent answered",
                    f"nothing came from {QEMU_AGENT_PORT} within {deadline:.0f} s",
                    INSTALL,
                )
        return self.require_commands(needed)

    def execute(
        self, command: str, arguments: Mapping[str, object] | None = None, timeout: float = 0.0
    ) -> Any:
        """The command's ``return`` value."""
        request: dict[str, object] = {"execute": command}
        if arguments is not None:
            request["arguments"] = dict(arguments)
        end = min(self._last, time.monotonic() + (timeout or self._answer_seconds))
        self._send(request, end)
        line = self._receive_line(end)
        if time.monotonic() >= self._last:
            raise RunFailure(
                "timeout",
                "the guest did not end in time",
                f"the run's time was over at {command}",
                "set a longer run_timeout in [protocol]",
            )
        if line is None:
            raise RunFailure(
                "guest", "the guest agent stopped answering", f"{command} got no answer in time"
            )
        answer = _parse(line)
        if not isinstance(answer, dict):
            raise _nonsense(command, line)
        if "error" in answer:
            error = answer["error"]
            why = str(error.get("desc") if isinstance(error, dict) else error)[:500]
            raise RunFailure("guest", f"the guest agent refused {command}", why)
        if "return" not in answer:
            raise _nonsense(command, line)
        return answer["return"]

    def _sync(self, end: float) -> bool:
        """Whether the agent answered a new number before ``end``; what came before is dropped."""
        self._syncs += 1
        number = (id(self) ^ self._syncs) & 0x7FFFFFFF
        self._send({"execute": "guest-sync-delimited", "arguments": {"id": number}}, end)
        while (line := self._receive_line(end)) is not None:
            answer = _parse(line.rpartition(_SENTINEL)[2])
            if isinstance(answer, dict) and answer.get("return") == number:
                return True
        return False

    def _send(self, request: Mapping[str, object], end: float) -> None:
        self._socket.settimeout(max(0.01, end - time.monotonic()))
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except TimeoutError:
            raise RunFailure(
                "guest", "the guest agent stopped listening", "its port is full", INSTALL
            ) from None
        except OSError:
            raise GuestGone from None

    def _receive_line(self, end: float) -> bytes | None:
        """The next line; None when it is not whole at ``end``."""
        searched = 0
        while (stop := self._pending.find(b"\n", searched)) < 0:
            searched = len(self._pending)
            if searched > MAX_LINE:
                raise _nonsense("a line without end", bytes(self._pending[:200]))
            if (left := end - time.monotonic()) <= 0:
                return None
            self._pending += self._receive(min(left, _WATCH_SECONDS))
        line = bytes(self._pending[:stop])
        del self._pending[: stop + 1]
        return line

    def _receive(self, timeout: float) -> bytes:
        """What comes within ``timeout`` seconds. Raises GuestGone when QEMU closed the port."""
        self._socket.settimeout(max(0.001, timeout))
        try:
            chunk = self._socket.recv(1 << 16)
        except TimeoutError:
            self._watch()
            return b""
        except OSError:
            chunk = b""
        if not chunk:
            raise GuestGone
        return chunk


def _read_end(status: Mapping[str, Any], seconds: float) -> Ended:
    code, number = status.get("exitcode", 0), status.get("signal", 0)
    if type(code) is not int or type(number) is not int:
        raise _nonsense("guest-exec-status", status)
    return Ended(
        -abs(number) if number else code,
        _decode(status.get("out-data", ""), "guest-exec-status"),
        _decode(status.get("err-data", ""), "guest-exec-status"),
        seconds,
        bool(status.get("out-truncated") or status.get("err-truncated")),
    )


def _parse(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _decode(text: object, source: str) -> bytes:
    try:
        return base64.b64decode(text if isinstance(text, str) else "?", validate=True)
    except (binascii.Error, ValueError):
        raise _nonsense(source, text) from None


def _nonsense(source: str, said: object) -> RunFailure:
    text = said if isinstance(said, bytes) else repr(said).encode("utf-8", "replace")
    what = "the guest agent answers nonsense"
    return RunFailure("guest", what, f"{source}: {text[:200]!r}", INSTALL)
