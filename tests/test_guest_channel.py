"""The channel against a far end that misbehaves. The real agent is at the far end in tests/vm."""

import base64
import json
import re
import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskproof.errors import RunFailure
from diskproof.guest.ours import channel as channel_module
from diskproof.guest.ours.channel import Channel, GuestGone
from diskproof.guest.ours.console import HEAD, TAIL, Console

Pair = tuple[Channel, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours), theirs


def say(far: socket.socket, *events: object) -> None:
    far.sendall(b"".join(json.dumps(event).encode() + b"\n" for event in events))


def output(number: int, data: bytes, stream: str = "stdout") -> dict[str, object]:
    encoded = base64.b64encode(data).decode()
    return {"type": "output", "id": number, "stream": stream, "data_base64": encoded}


def exit_event(number: int) -> dict[str, object]:
    times = {"timed_out": False, "user_us": 1, "system_us": 2, "elapsed_ns": 3}
    return {"type": "exit", "id": number, "code": 0, "signal": None, **times}


HELLO = {"type": "hello", "protocol": 2, "agent": "0.1.0", "kernel": "6.1", "monotonic_ns": 1}


def test_hello(pair: Pair) -> None:
    channel, far = pair
    say(far, HELLO)
    assert channel.wait_hello(5).kernel == "6.1"


def test_another_protocol_is_refused(pair: Pair) -> None:
    channel, far = pair
    say(far, {**HELLO, "protocol": 1})
    with pytest.raises(RunFailure, match="speaks protocol 1"):
        channel.wait_hello(5)


def test_silence_ends_at_the_deadline(pair: Pair) -> None:
    channel, far = pair
    with pytest.raises(RunFailure, match="did not come up within 0 s") as caught:
        channel.wait_hello(0.05)
    assert caught.value.kind == "guest"


def test_a_closed_channel_is_a_guest_that_is_gone(pair: Pair) -> None:
    channel, far = pair
    far.close()
    with pytest.raises(GuestGone):
        channel.wait_hello(5)


def test_sending_to_a_closed_channel(pair: Pair) -> None:
    channel, far = pair
    far.close()
    with pytest.raises(GuestGone):
        channel.clock()


def test_two_programs_at_once_keep_apart(pair: Pair) -> None:
    channel, far = pair
    one = channel.start_exec(["one"], timeout=60)
    two = channel.start_exec(["two"], timeout=60)
    say(far, output(2, b"b"), output(1, b"a"), output(1, b"!", "stderr"))
    say(far, exit_event(2), exit_event(1))
    first = channel.wait_exec(one, 5)
    assert (first.stdout, first.stderr) == (b"a", b"!")
    assert channel.wait_exec(two, 5).stdout == b"b"


@pytest.mark.parametrize("at_once", [True, False])
def test_a_callback_may_ask_for_more_and_all_stays_in_order(pair: Pair, at_once: bool) -> None:
    """Also when the program's end and the answer have come with the words it was called for."""
    channel, far = pair
    seen: list[bytes] = []
    rest = (output(1, b"last"), {"type": "done", "id": 2}, exit_event(1))

    def take(_: str, data: bytes) -> None:
        seen.append(data)
        if data == b"first":
            if not at_once:
                say(far, *rest)
            channel.write_file("/tmp/go", b"")
            seen.append(b"written")

    say(far, output(1, b"first"), *(rest if at_once else ()))
    done = channel.exec(["x"], timeout=5, on_output=take)
    assert done.stdout == b"firstlast"
    assert seen == [b"first", b"last", b"written"]


def test_kept_output_is_bounded_and_the_callback_sees_all(pair: Pair) -> None:
    channel, far = pair
    seen: list[tuple[str, bytes]] = []
    say(far, output(1, b"abc"), output(1, b"def", "stderr"), exit_event(1))
    done = channel.exec(
        ["x"], timeout=5, limit=4, on_output=lambda stream, data: seen.append((stream, data))
    )
    assert (done.stdout, done.stderr, done.truncated) == (b"abc", b"d", True)
    assert seen == [("stdout", b"abc"), ("stderr", b"def")]


def test_an_error_ends_its_request_only(pair: Pair) -> None:
    channel, far = pair
    say(far, {"type": "error", "id": 1, "what": "cannot run it", "why": "no such file"})
    with pytest.raises(RunFailure, match="cannot run it") as caught:
        channel.exec(["x"], timeout=60)
    assert caught.value.why == "no such file"
    say(far, exit_event(2))
    assert channel.exec(["x"], timeout=60).exit.code == 0


@pytest.mark.parametrize(
    "line",
    [
        b"no json\n",
        b'{"type":"done","id":77}\n',
        b'{"type":"clock","id":1,"monotonic_ns":1,"realtime_ns":1}\n',
        b"x" * (64 << 10),
        json.dumps(HELLO).encode() + b"\n" + json.dumps(HELLO).encode() + b"\n",
    ],
    ids=["garbage", "foreign id", "wrong answer", "endless line", "second hello"],
)
def test_a_broken_protocol_is_a_failure_of_the_guest(pair: Pair, line: bytes) -> None:
    channel, far = pair
    far.sendall(line)
    with pytest.raises(RunFailure, match="broke the protocol") as caught:
        channel.exec(["x"], timeout=60)
    assert caught.value.kind == "guest"


def test_unknown_events_are_passed_over(pair: Pair) -> None:
    channel, far = pair
    say(far, {"type": "weather", "id": 1}, exit_event(1))
    assert channel.exec(["x"], timeout=60).exit.code == 0


def test_lines_may_arrive_in_pieces(pair: Pair) -> None:
    channel, far = pair
    text = json.dumps(HELLO).encode() + b"\n"

    def trickle() -> None:
        for at in range(len(text)):
            far.sendall(text[at : at + 1])

    thread = threading.Thread(target=trickle)
    thread.start()
    assert channel.wait_hello(20).agent == "0.1.0"
    thread.join()


def test_a_guest_that_talks_and_never_listens_blocks_nobody(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "ANSWER_SECONDS", 0.2)
    channel, far = pair
    with pytest.raises(RunFailure, match="takes no requests"):
        for _ in range(50):
            channel.start_exec(["x"], timeout=5, stdin=bytes(500_000))


def test_a_long_request_is_sent_while_output_comes_in(pair: Pair) -> None:
    channel, far = pair
    job = channel.start_exec(["x"], timeout=60)
    far.recv(1 << 16)

    def flood_then_read() -> None:
        for _ in range(100):
            say(far, output(1, bytes(30_000)))
        received = 0
        while received < 900_000:
            received += len(far.recv(1 << 20))
        say(far, {"type": "done", "id": 2}, exit_event(1))

    thread = threading.Thread(target=flood_then_read)
    thread.start()
    channel.write_file("/tmp/x", bytes(700_000))
    assert len(channel.wait_exec(job, 20).stdout) == 3_000_000
    thread.join()


def test_a_request_that_does_not_fit_leaves_the_channel_usable(pair: Pair) -> None:
    channel, far = pair
    with pytest.raises(ValueError, match="longer than"):
        channel.write_file("/tmp/x", bytes(1 << 20))
    say(far, exit_event(2))
    assert channel.exec(["x"], timeout=60).exit.code == 0


def test_a_flooded_console_keeps_its_beginning_and_end() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        console = Console(ours)
        with theirs:
            theirs.sendall(b"first" + bytes(2 * (HEAD + TAIL)) + b"last")
        console.wait_end(20)
        text = console.read()
    assert text.startswith(b"first") and text.endswith(b"last")
    assert b"bytes left out]" in text
    assert len(text) < HEAD + TAIL + 100


def test_what_a_console_says_a_little_later_is_waited_for() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        console = Console(ours)
        assert console.find(re.compile(rb"Killed .*"), 0.0) == []
        theirs.sendall(b"it is ")
        threading.Timer(0.2, theirs.sendall, [b"Killed 7\nand Killed 8\n"]).start()
        assert console.find(re.compile(rb"Killed \d"), 20.0) == [b"Killed 7", b"Killed 8"]


_EVENTS = (HELLO, output(1, b"x"), exit_event(1), {"type": "done", "id": 1})


@settings(max_examples=60)
@given(
    st.lists(
        st.sampled_from(_EVENTS).map(lambda event: json.dumps(event).encode() + b"\n")
        | st.binary(max_size=40)
        | st.just(b"{" * 3000),
        max_size=6,
    )
)
def test_whatever_a_guest_says_ends_in_time(said: list[bytes]) -> None:
    ours, far = socket.socketpair()
    with ours, far:
        channel = Channel(ours)
        far.sendall(b"".join(said))
        far.shutdown(socket.SHUT_WR)
        try:
            assert channel.wait_hello(1).kernel == "6.1"
        except RunFailure as failure:
            assert failure.kind == "guest"
