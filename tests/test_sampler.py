"""The sampler's stream, read and refused."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.errors import RunFailure
from diskproof.host.sampler import parse_samples, sampler_args

HEADER = {
    "type": "header",
    "protocol": 1,
    "interval_ms": 500,
    "disks": ["sda"],
    "columns": [{"name": "cpu.user", "unit": "percent"}, {"name": "psi.io", "unit": "percent"}],
}


def stream_of(*messages: object) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def sample(at: float, *values: float | None) -> dict[str, object]:
    return {"type": "sample", "time": at, "values": list(values)}


def test_each_column_is_a_series_relative_to_the_start() -> None:
    stream = stream_of(HEADER, sample(99.5, 1, None), sample(100.5, 2.5, 0))
    user, psi = parse_samples(stream, 100.0)
    assert (user.source, user.name, user.unit) == ("host", "cpu.user", "percent")
    assert (user.times, user.values) == ((-0.5, 0.5), (1.0, 2.5))
    assert (psi.times, psi.values) == ((0.5,), (0.0,))


def test_a_column_that_never_tells_is_left_out() -> None:
    stream = stream_of(HEADER, sample(1, 1, None), sample(2, 2, None))
    assert [series.name for series in parse_samples(stream, 0)] == ["cpu.user"]


def test_a_last_line_that_was_cut_is_left_out() -> None:
    whole = stream_of(HEADER, sample(1, 1, 1), sample(2, 2, 2))
    assert parse_samples(whole[:-4], 0)[0].times == (1.0,)
    assert parse_samples(b"", 0) == ()


@pytest.mark.parametrize(
    "stream",
    [
        b"panic\n",
        b"[]\n",
        b"[" * 100_000 + b"\n",
        stream_of({**HEADER, "protocol": 2}),
        stream_of({**HEADER, "columns": []}),
        stream_of({**HEADER, "columns": [1]}),
        stream_of({**HEADER, "columns": [{"name": "x", "unit": "y"}] * 300}),
        stream_of(sample(1, 1, 1)),
        stream_of(HEADER, sample(1, 1)),
        stream_of(HEADER, {"type": "sample", "time": "now", "values": [1, 1]}),
        stream_of(HEADER, {"type": "sample", "time": 1, "values": [1, True]}),
        stream_of(HEADER) + b'{"type":"sample","time":1,"values":[NaN,1]}\n',
        stream_of(HEADER) + b'{"type":"sample","time":1,"values":[1' + b"0" * 400 + b",1]}\n",
    ],
)
def test_anything_else_is_refused(stream: bytes) -> None:
    with pytest.raises(RunFailure) as caught:
        parse_samples(stream, 0)
    assert caught.value.kind == "tool"


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(noise: bytes) -> None:
    try:
        parse_samples(stream_of(HEADER) + noise, 0)
    except RunFailure as failure:
        assert failure.kind == "tool"


def test_arguments() -> None:
    arguments = sampler_args(Path("/s"), [7, 8], 0.25)
    assert arguments[:3] == ["/s", "--json", "--quiet"]
    assert {"--cpu", "--flush", "--psi", "--self"} < set(arguments)
    assert arguments[-6:] == ["--process", "--pid", "7", "--pid", "8", "0.25"]


def test_without_processes_they_are_not_asked_for() -> None:
    assert "--process" not in sampler_args(Path("/s"), [], 1)


def test_the_monitor_takes_ten_milliseconds_to_a_minute() -> None:
    assert sampler_args(Path("/s"), [], 0)[-1] == "0.01"
    assert sampler_args(Path("/s"), [], 900)[-1] == "60"
