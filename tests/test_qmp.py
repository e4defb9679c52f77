"""The monitor's answers, errors, silences and ends, against sockets that speak QMP.

Requires nothing; a real QEMU answers in tests/integration/test_daemon.py.
"""

import gc
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskproof.errors import RunFailure
from diskproof.qemu.qmp import connect, start_qmp

GREETING = {"QMP": {"version": {"qemu": {"major": 7, "minor": 2, "micro": 0}, "package": ""},
                    "capabilities": []}}  # fmt: skip

Answer = Callable[[dict[str, object]], bytes | None]


@contextmanager
def monitor(answer: Answer, greeting: bytes | None = None) -> Iterator[socket.socket]:
    """A peer that greets, then answers each command; ``None`` hangs up."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with theirs, suppress(BrokenPipeError, ConnectionResetError):
            theirs.sendall(greeting if greeting is not None else _line(GREETING))
            for request in _requests(theirs):
                known = request["execute"] == "qmp_capabilities"
                reply = _line({"return": {}}) if known else answer(request)
                if reply is None:
                    return
                theirs.sendall(reply)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield ours
    finally:
        ours.close()
        thread.join(10)
    assert not thread.is_alive()


def _requests(sock: socket.socket) -> Iterator[dict[str, object]]:
    """Requests come as JSON objects; nothing ends them but their brace."""
    pending = ""
    while chunk := sock.recv(4096):
        pending += chunk.decode()
        with suppress(json.JSONDecodeError):
            request, _ = json.JSONDecoder().raw_decode(pending)
            pending = ""
            yield request


def _line(content: object) -> bytes:
    return json.dumps(content).encode() + b"\n"


def test_answers_come_back_and_events_between_them_do_no_harm() -> None:
    event = _line({"event": "RESUME", "timestamp": {"seconds": 1, "microseconds": 1}})

    def echo(request: dict[str, object]) -> bytes:
        return event + _line({"return": request["arguments"], "id": request["id"]})

    with monitor(echo) as sock, start_qmp(sock, 5) as qmp:
        for number in range(20):
            assert qmp.execute("echo", {"n": number}) == {"n": number}


def test_error_reply_says_what_qemu_said() -> None:
    def refuse(request: dict[str, object]) -> bytes:
        error = {"class": "CommandNotFound", "desc": "no such thing"}
        return _line({"error": error, "id": request["id"]})

    with monitor(refuse) as sock, start_qmp(sock, 5) as qmp:
        with pytest.raises(RunFailure, match="query-block") as caught:
            qmp.execute("query-block")
        assert caught.value.kind == "qemu"
        assert "no such thing" in caught.value.why


def test_end_of_connection_is_a_failure_now_and_later() -> None:
    with monitor(lambda _: None) as sock, start_qmp(sock, 5) as qmp:
        for _ in range(2):
            with pytest.raises(RunFailure) as caught:
                qmp.execute("query-block")
            assert caught.value.kind == "qemu"


def test_silence_ends_at_the_deadline() -> None:
    with monitor(lambda _: b"") as sock, start_qmp(sock, 5) as qmp:
        with pytest.raises(RunFailure, match="query-block") as caught:
            qmp.execute("query-block", timeout=0.2)
        assert "no answer" in caught.value.why


@pytest.mark.parametrize(
    "greeting", [b"", b"not json\n", b'{"QMP": 5}\n', b"[]\n", b"\xff\xfe\n"], ids=repr
)
def test_bad_greeting_is_a_failure(greeting: bytes) -> None:
    with monitor(lambda _: None, greeting) as sock:
        with pytest.raises(RunFailure, match="greeting"):
            connect(sock, 0.3)
        assert sock.fileno() == -1


@contextmanager
def interrupted_at(call: int) -> Iterator[None]:
    """Ctrl-C when the block has called so many functions, ours or the client's."""
    left = call

    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)  # ours, not another thread's

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)


# It may come between a coroutine and what waits for it.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("call", range(1, 2000, 37))
def test_ctrl_c_at_any_moment_is_heard_once(call: int, capfd: pytest.CaptureFixture[str]) -> None:
    with monitor(lambda request: _line({"return": {}, "id": request["id"]})) as sock:
        with pytest.raises(KeyboardInterrupt), start_qmp(sock, 5) as qmp, interrupted_at(call):
            while True:
                qmp.execute("query-block")
    gc.collect()
    assert capfd.readouterr() == ("", "")


def test_ctrl_c_does_not_wait_for_an_answer() -> None:
    with monitor(lambda _: b"") as sock, start_qmp(sock, 5) as qmp:
        with pytest.raises(KeyboardInterrupt):
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            qmp.execute("query-block", timeout=1000)


def test_close_twice() -> None:
    with monitor(lambda _: None) as sock:
        qmp = connect(sock, 5)
        qmp.close()
        qmp.close()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)
_KEYS = ("return", "error", "id", "event", "data", "timestamp", "class", "desc", "QMP")


@settings(max_examples=60)
@given(
    st.dictionaries(st.sampled_from(_KEYS), _JSON).map(lambda said: json.dumps(said).encode())
    | st.binary(max_size=60)
)
def test_whatever_a_qemu_says_is_an_answer_or_a_failure(said: bytes) -> None:
    """A guest that took QEMU over speaks for it."""
    with monitor(lambda request: said + b"\r\n") as sock, start_qmp(sock, 5) as qmp:
        try:
            qmp.execute("query-status", timeout=0.05)
        except RunFailure as failure:
            assert failure.kind == "qemu"
