"""The QEMU guest agent's protocol against an agent that says what a test wants it to say."""

import base64
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.errors import RunFailure
from diskproof.guest.ours.channel import GuestGone
from diskproof.guest.own.qemu_agent import NEEDED, QemuAgent
from support.patience import in_time

Said = bytes | object
INFO = {"version": "8", "supported_commands": [{"name": n, "enabled": True} for n in NEEDED]}


@contextmanager
def speaking(
    answer: Callable[[Mapping[str, Any]], Said | None], seconds: float = 20.0
) -> Iterator[QemuAgent]:
    """An agent that ``answer`` speaks for: bytes as they are, None ends, else a ``return``."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with suppress(ConnectionError), theirs, theirs.makefile("rb") as lines:
            for line in lines:
                said = answer(json.loads(line))
                if said is None:
                    return
                if not isinstance(said, bytes):
                    said = json.dumps({"return": said}).encode() + b"\n"
                try:
                    theirs.sendall(said)
                except OSError:
                    return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with ours:
            yield QemuAgent(ours, seconds)
    finally:
        thread.join(20)
        assert not thread.is_alive()


def packed(text: bytes) -> str:
    return base64.b64encode(text).decode()


def test_a_file_that_drips_ends_with_the_run() -> None:
    """Each answer comes at once, and the file never ends."""

    def answer(request: Mapping[str, Any]) -> Said:
        if request["execute"] == "guest-file-open":
            return 1
        time.sleep(0.02)
        return {"buf-b64": packed(b"x"), "eof": False}

    def read() -> str:
        with speaking(answer) as agent:
            agent.end_within(0.5)
            with pytest.raises(RunFailure, match="did not end in time") as caught:
                agent.read_file("/dripping", 1 << 26)
        return caught.value.kind

    assert in_time(5, read) == "timeout"


def test_what_came_before_is_dropped_at_the_start() -> None:
    def answer(request: Mapping[str, Any]) -> Said:
        if request["execute"] == "guest-info":
            return INFO
        number = request["arguments"]["id"]
        return b'{"return": 7}\nnoise\n\xff' + json.dumps({"return": number}).encode() + b"\n"

    with speaking(answer) as agent:
        assert agent.wait_ready(10) == "8"


def test_a_blocked_command_is_named_with_what_to_do() -> None:
    blocked = {**INFO, "supported_commands": [{"name": "guest-exec", "enabled": False}]}

    def answer(request: Mapping[str, Any]) -> Said:
        sync = request["execute"] == "guest-sync-delimited"
        return request["arguments"]["id"] if sync else blocked

    with speaking(answer) as agent, pytest.raises(RunFailure, match="does not allow") as caught:
        agent.wait_ready(10)
    assert "guest-exec" in caught.value.why and "block list" in caught.value.hint


def test_silence_ends_with_what_to_install() -> None:
    with speaking(lambda request: b"") as agent, pytest.raises(RunFailure) as caught:
        agent.wait_ready(0.2)
    assert caught.value.what == "no QEMU guest agent answered"
    assert "install qemu-guest-agent" in caught.value.hint


def test_a_command_is_asked_for_until_it_has_ended() -> None:
    asked = []

    def answer(request: Mapping[str, Any]) -> Said:
        asked.append(request)
        if request["execute"] == "guest-exec":
            return {"pid": 4}
        if len(asked) < 4:
            return {"exited": False}
        ended = {"exited": True, "exitcode": 3, "out-data": packed(b"out")}
        return {**ended, "err-data": packed(b"err"), "err-truncated": True}

    with speaking(answer) as agent:
        done = agent.run(["prog", "a b", "{}"], timeout=10)
    assert asked[0]["arguments"] == {"path": "prog", "arg": ["a b", "{}"], "capture-output": True}
    assert (done.status, done.stdout, done.stderr, done.truncated) == (3, b"out", b"err", True)


def test_a_command_without_end_is_a_timeout() -> None:
    def answer(request: Mapping[str, Any]) -> Said:
        return {"pid": 1} if request["execute"] == "guest-exec" else {"exited": False}

    with speaking(answer) as agent, pytest.raises(RunFailure, match="did not end") as caught:
        agent.run(["sleep", "inf"], timeout=0.2)
    assert caught.value.kind == "timeout"


def test_files_come_and_go_in_pieces() -> None:
    content, kept = bytes(range(256)) * 10_000, bytearray()

    def answer(request: Mapping[str, Any]) -> Said:
        given = request.get("arguments", {})
        if request["execute"] == "guest-file-write":
            data = base64.b64decode(given["buf-b64"])
            kept.extend(data)
            return {"count": len(data), "eof": False}
        if request["execute"] == "guest-file-read":
            data = bytes(kept[:1_000_000])
            del kept[:1_000_000]
            return {"count": len(data), "buf-b64": packed(data), "eof": not kept}
        return 1000

    with speaking(answer) as agent:
        agent.write_file("/tmp/x", content)
        assert agent.read_file("/tmp/x", len(content)) == content
        kept.extend(content)
        with pytest.raises(RunFailure, match="too large"):
            agent.read_file("/tmp/x", 100)


def test_the_end_of_the_guest_is_seen() -> None:
    with speaking(lambda request: None) as agent, pytest.raises(GuestGone):
        agent.execute("guest-ping")


def test_an_agent_that_stops_is_noticed() -> None:
    with speaking(lambda request: b'{"ret', 0.2) as agent:
        with pytest.raises(RunFailure, match="stopped answering"):
            agent.execute("guest-ping")


def test_a_refusal_says_why() -> None:
    refusal = b'{"error": {"class": "GenericError", "desc": "Failed to execute child process"}}\n'
    with speaking(lambda request: refusal) as agent:
        with pytest.raises(RunFailure, match="refused guest-exec") as caught:
            agent.run(["nothing"], timeout=5)
    assert "Failed to execute" in caught.value.why


def test_a_line_without_end_is_not_kept() -> None:
    with speaking(lambda request: b"x" * (1 << 20) * 50) as agent:
        with pytest.raises(RunFailure, match="nonsense"):
            agent.execute("guest-ping")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
_KEYS = ("pid", "exited", "exitcode", "signal", "out-data", "eof", "buf-b64", "count")
_SHAPED = st.fixed_dictionaries({}, optional=dict.fromkeys(_KEYS, _JSON))


@given(_SHAPED | _JSON | st.binary(max_size=40))
def test_whatever_is_said_ends_as_a_failure_or_an_answer(said: Said) -> None:
    line = said + b"\n" if isinstance(said, bytes) else said
    for act in (
        lambda agent: agent.run(["x"], timeout=0.05),
        lambda agent: agent.read_file("x", 100),
        lambda agent: agent.write_file("x", b"yy"),
        lambda agent: agent.wait_ready(0.05),
    ):
        with speaking(lambda request: line, 0.05) as agent:
            try:
                act(agent)
            except RunFailure as failure:
                assert failure.kind in ("guest", "timeout")
