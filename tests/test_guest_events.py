"""Events and requests against the golden files that the agent's tests read too."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.guest.ours import wire

GOLDEN = Path(__file__).parent / "golden" / "wire"
EVENT_LINES = (GOLDEN / "events.jsonl").read_bytes().splitlines()
REQUEST_LINES = (GOLDEN / "requests.jsonl").read_bytes().splitlines()


def test_golden_events_cover_every_kind() -> None:
    parsed = [wire.parse_event(line) for line in EVENT_LINES]
    assert {type(event) for event in parsed} == set(wire.Event.__args__)


def test_golden_events_keep_their_content() -> None:
    hello, started, bare, stdout, stderr, *_ = map(wire.parse_event, EVENT_LINES)
    assert hello == wire.Hello(2, "0.1.0", "6.1.0-42-amd64", 1834567890)
    assert isinstance(started, wire.Started)
    assert started.disk is not None
    assert started.disk.size == 1 << 30
    assert started.disk.drivers == ("virtio_blk", "virtio-pci")
    assert bare == wire.Started(2, "/dev/vda", None)
    assert stdout == wire.Output(3, "stdout", b'{"fio version":')
    assert stderr == wire.Output(3, "stderr", b"\xff\0")


@pytest.mark.parametrize("line", REQUEST_LINES, ids=range(1, len(REQUEST_LINES) + 1))
def test_requests_are_rendered_as_in_the_golden_file(line: bytes) -> None:
    golden = json.loads(line)
    rendered = wire.render_request(rebuild(golden))
    assert json.loads(rendered) == golden
    assert rendered.endswith(b"\n") and rendered.count(b"\n") == 1


def rebuild(golden: dict[str, object]) -> wire.Request:
    """The request made by our own functions from what the golden line says."""
    fields = dict(golden)
    op, number = fields.pop("op"), fields.pop("id")
    seconds = fields.pop("timeout_ms", 0) / 1000
    match op:
        case "start":
            return wire.start_request(number, **fields, seconds=seconds)
        case "exec":
            stdin = fields.pop("stdin_base64", None)
            data = None if stdin is None else wire.base64.b64decode(stdin)
            return wire.exec_request(number, **fields, stdin=data, seconds=seconds)
        case "write":
            data = wire.base64.b64decode(fields.pop("data_base64"))
            return wire.write_request(number, data=data, **fields)
        case _:
            return getattr(wire, f"{op}_request")(number, **fields)


def test_a_request_too_long_is_refused_here() -> None:
    with pytest.raises(ValueError, match="longer than"):
        wire.render_request(wire.write_request(1, "/tmp/x", bytes(1 << 20), 0o644))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b"\xff",
        b"[" * 60000,
        b'{"type":1}',
        b'{"type":"done"}',
        b'{"type":"done","id":-1}',
        b'{"type":"done","id":1.0}',
        b'{"type":"done","id":true}',
        b'{"type":"done","id":18446744073709551616}',
        b'{"type":"done","id":' + b"9" * 5000 + b"}",
        b'{"type":"error","id":1,"what":"\\ud800","why":""}',
        b'{"type":"output","id":1,"stream":"stdlog","data_base64":""}',
        b'{"type":"output","id":1,"stream":"stdout","data_base64":"a*=="}',
        b'{"type":"exit","id":1,"code":0,"signal":9,"timed_out":false,'
        b'"user_us":0,"system_us":0,"elapsed_ns":0}',
        b'{"type":"exit","id":1,"signal":9,"timed_out":false,'
        b'"user_us":0,"system_us":0,"elapsed_ns":0}',
        b'{"type":"started","id":1,"root":"/dev/vda","disk":"/dev/vdb"}',
    ],
)
def test_hostile_lines_are_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=".+"):
        wire.parse_event(line)


def test_unknown_types_and_fields_are_ignored() -> None:
    assert wire.parse_event(b'{"type":"weather","id":1}') is None
    assert wire.parse_event(b'{"type":"done","id":1,"more":2}') == wire.Done(1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(st.sampled_from(EVENT_LINES), st.data())
def test_a_field_replaced_or_removed_is_read_or_refused(line: bytes, data: st.DataObject) -> None:
    content = json.loads(line)
    name = data.draw(st.sampled_from(sorted(content)))
    if data.draw(st.booleans()):
        content[name] = data.draw(JSON)
    else:
        del content[name]
    try:
        event = wire.parse_event(json.dumps(content).encode())
    except ValueError:
        return
    assert event is None or isinstance(event, wire.Event)
