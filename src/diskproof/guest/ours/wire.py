"""What the agent says, as typed records, and what it is asked, one pure function a request
(docs/guest-protocol.md). Guests are not trusted."""

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

PROTOCOL = 2
MAX_EVENT_LINE = 64 << 10
_MAX_INTEGER = (1 << 64) - 1
STREAMS = ("stdout", "stderr", "file")


@dataclass(frozen=True)
class Hello:
    """The agent is there. ``kernel`` is the guest's ``uname -r``."""

    protocol: int
    agent: str
    kernel: str
    monotonic_ns: int


@dataclass(frozen=True)
class GuestDisk:
    """The disk under test as the guest's own kernel sees it. Sizes in bytes, from sysfs."""

    device: str
    size: int
    logical_block_size: int
    physical_block_size: int
    write_cache: str
    fua: bool
    rotational: bool
    scheduler: str
    queue_depth: int
    nr_requests: int
    hardware_queues: int
    max_sectors_kb: int
    discard_max_bytes: int
    driver: str
    drivers: tuple[str, ...]


@dataclass(frozen=True)
class Started:
    id: int
    root: str
    disk: GuestDisk | None


@dataclass(frozen=True)
class Output:
    """A piece of ``stdout``, ``stderr`` or a ``file`` that is read."""

    id: int
    stream: str
    data: bytes


@dataclass(frozen=True)
class ProgramExit:
    """The end of a program; exactly one of ``code`` and ``signal`` is None."""

    id: int
    code: int | None
    signal: int | None
    timed_out: bool
    user_us: int
    system_us: int
    elapsed_ns: int


@dataclass(frozen=True)
class Clock:
    id: int
    monotonic_ns: int
    realtime_ns: int


@dataclass(frozen=True)
class Done:
    id: int


@dataclass(frozen=True)
class Error:
    """A request failed; without ``id`` it could not even be read."""

    id: int | None
    what: str
    why: str


Reply = Started | Output | ProgramExit | Clock | Done | Error
Event = Hello | Reply


def parse_event(line: bytes) -> Event | None:
    """One line of the channel; None for a type this host does not know.

    Raises ValueError for what is no event: bad JSON, a missing field, a field of another type
    or out of range.
    """
    try:
        content = json.loads(line.decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("not an object")
    parse = _PARSERS.get(_text(content, "type"))
    return parse(content) if parse else None


def _hello(content: Mapping[str, object]) -> Hello:
    return Hello(
        _count(content, "protocol"),
        _text(content, "agent"),
        _text(content, "kernel"),
        _count(content, "monotonic_ns"),
    )


def _started(content: Mapping[str, object]) -> Started:
    disk = _disk(content) if "disk" in content else None
    return Started(_count(content, "id"), _text(content, "root"), disk)


def _disk(content: Mapping[str, object]) -> GuestDisk:
    drivers = content.get("drivers")
    if not isinstance(drivers, list) or not all(isinstance(name, str) for name in drivers):
        raise ValueError("drivers is not a list of names")
    return GuestDisk(
        device=_text(content, "disk"),
        size=_count(content, "size"),
        logical_block_size=_count(content, "logical_block_size"),
        physical_block_size=_count(content, "physical_block_size"),
        write_cache=_text(content, "write_cache"),
        fua=_flag(content, "fua"),
        rotational=_flag(content, "rotational"),
        scheduler=_text(content, "scheduler"),
        queue_depth=_count(content, "queue_depth"),
        nr_requests=_count(content, "nr_requests"),
        hardware_queues=_count(content, "hardware_queues"),
        max_sectors_kb=_count(content, "max_sectors_kb"),
        discard_max_bytes=_count(content, "discard_max_bytes"),
        driver=_text(content, "driver"),
        drivers=tuple(drivers),
    )


def _output(content: Mapping[str, object]) -> Output:
    stream = _text(content, "stream")
    if stream not in STREAMS:
        raise ValueError(f"{stream[:20]!r} is no stream")
    try:
        data = base64.b64decode(_text(content, "data_base64"), validate=True)
    except binascii.Error as error:
        raise ValueError(f"data_base64: {error}") from None
    return Output(_count(content, "id"), stream, data)


def _exit(content: Mapping[str, object]) -> ProgramExit:
    code, signal = _optional(content, "code"), _optional(content, "signal")
    if (code is None) == (signal is None):
        raise ValueError("not exactly one of code and signal")
    return ProgramExit(
        _count(content, "id"),
        code,
        signal,
        _flag(content, "timed_out"),
        _count(content, "user_us"),
        _count(content, "system_us"),
        _count(content, "elapsed_ns"),
    )


def _clock(content: Mapping[str, object]) -> Clock:
    return Clock(
        _count(content, "id"), _count(content, "monotonic_ns"), _count(content, "realtime_ns")
    )


def _error(content: Mapping[str, object]) -> Error:
    return Error(_optional(content, "id"), _text(content, "what"), _text(content, "why"))


_PARSERS: Mapping[str, Callable[[Mapping[str, object]], Event]] = {
    "hello": _hello,
    "started": _started,
    "output": _output,
    "exit": _exit,
    "clock": _clock,
    "done": lambda content: Done(_count(content, "id")),
    "error": _error,
}


def _text(content: Mapping[str, object], name: str) -> str:
    value = content.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is missing or not a text")
    value.encode()  # JSON can spell half of a character; nobody could print that
    return value


def _flag(content: Mapping[str, object], name: str) -> bool:
    value = content.get(name)
    if not isinstance(value, bool):
        raise ValueError(f"{name} is missing or not a truth value")
    return value


def _count(content: Mapping[str, object], name: str) -> int:
    value = content.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_INTEGER:
        raise ValueError(f"{name} is missing or not a count")
    return value


def _optional(content: Mapping[str, object], name: str) -> int | None:
    """A field that must be there and may be null."""
    return None if name in content and content[name] is None else _count(content, name)


MAX_REQUEST_LINE = 1 << 20
MAX_TIMEOUT_MS = 604_800_000

Request = Mapping[str, object]


def render_request(request: Request) -> bytes:
    """One line of the channel. Raises ValueError when it is longer than the agent takes."""
    line = json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    if len(line) > MAX_REQUEST_LINE:
        raise ValueError(f"a request of {len(line)} bytes is longer than {MAX_REQUEST_LINE}")
    return line


def start_request(
    number: int, modules: Sequence[str], root_serial: str, disk_serial: str | None, seconds: float
) -> Request:
    return {
        "op": "start",
        "id": number,
        "modules": list(modules),
        "root_serial": root_serial,
        "disk_serial": disk_serial,
        "timeout_ms": timeout_ms(seconds),
    }


def exec_request(
    number: int,
    argv: Sequence[str],
    *,
    seconds: float,
    env: Mapping[str, str],
    cwd: str,
    stdin: bytes | None,
) -> Request:
    request: dict[str, object] = {
        "op": "exec",
        "id": number,
        "argv": list(argv),
        "env": dict(env),
        "cwd": cwd,
        "timeout_ms": timeout_ms(seconds),
    }
    if stdin is not None:
        request["stdin_base64"] = base64.b64encode(stdin).decode()
    return request


def kill_request(number: int, target: int, signal: int) -> Request:
    return {"op": "kill", "id": number, "target": target, "signal": signal}


def read_request(number: int, path: str, max_bytes: int) -> Request:
    return {"op": "read", "id": number, "path": path, "max_bytes": max_bytes}


def write_request(number: int, path: str, data: bytes, mode: int) -> Request:
    encoded = base64.b64encode(data).decode()
    return {"op": "write", "id": number, "path": path, "data_base64": encoded, "mode": mode}


def clock_request(number: int) -> Request:
    return {"op": "clock", "id": number}


def poweroff_request(number: int, sync: bool) -> Request:
    return {"op": "poweroff", "id": number, "sync": sync}


def timeout_ms(seconds: float) -> int:
    return min(max(1, round(seconds * 1000)), MAX_TIMEOUT_MS)
