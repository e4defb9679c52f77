"""What the host asks of the agent, one pure function a request (docs/guest-protocol.md)."""

import base64
import json
from collections.abc import Mapping, Sequence

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
    acks: bool,
) -> Request:
    request: dict[str, object] = {
        "op": "exec",
        "id": number,
        "argv": list(argv),
        "env": dict(env),
        "cwd": cwd,
        "acks": acks,
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
