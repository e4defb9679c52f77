"""Host samples around a run: the stream of our monitor as time series.

The sampler writes JSON lines into memory that both sides share, so that it costs the disk under
test nothing; they are read when it has ended.
"""

import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diskproof.errors import RunFailure
from diskproof.host.caches import ARC
from diskproof.process.native import require_native
from diskproof.process.start import start_process
from diskproof.records import Series

PROGRAM = "diskproof-monitor"
PROTOCOL = 1
MAX_STREAM = 64 << 20  # bytes; a day at two samples a second
MAX_COLUMNS = 256
MODULES = ("cpu", "disk", "io", "flush", "disk-util", "mem", "dirty", "psi", "sys", "self")


@dataclass
class Sampling:
    """What is being sampled. ``zero`` is the Unix time that counts as second 0.

    ``series`` is empty until the block of ``start_sampler`` has ended.
    """

    zero: float
    series: tuple[Series, ...] = field(default=())


@contextmanager
def start_sampler(
    pids: Sequence[int], *, run_dir: Path, interval: float = 0.5, more: Sequence[str] = ()
) -> Iterator[Sampling]:
    """Sample host and ``pids`` every ``interval`` seconds for the length of a ``with`` block.
    ``more`` names modules beside MODULES.

    Raises HostError when the sampler is not built; RunFailure ``tool`` after the block when it
    failed or wrote something else than samples.
    """
    program = require_native(PROGRAM)
    more = (*more, *(("arc",) if ARC.exists() else ()))
    recording = Sampling(time.time())
    with os.fdopen(os.memfd_create(PROGRAM), "w+b") as stream:
        with start_process(
            sampler_args(program, pids, interval, more),
            name="sampler",
            log=run_dir / "sampler.log",
            stdout=stream,
        ) as process:
            yield recording
            status = process.poll()
        if status is not None:
            why = process.read_log(2000).decode("utf-8", "replace").strip()
            raise RunFailure("tool", f"the sampler ended with status {status}", why)
        stream.seek(0)
        recording.series = parse_samples(stream.read(MAX_STREAM), recording.zero)


def sampler_args(
    program: Path, pids: Sequence[int], interval: float, more: Sequence[str] = ()
) -> list[str]:
    """The sampler's command line; it takes 10 ms to a minute."""
    return [
        *(str(program), "--json", "--quiet"),
        *(f"--{module}" for module in (*MODULES, *more)),
        *(("--process",) if pids else ()),
        *(part for pid in pids for part in ("--pid", str(pid))),
        f"{min(60.0, max(0.01, interval)):g}",
    ]


def parse_samples(stream: bytes, zero: float) -> tuple[Series, ...]:
    """The stream as one series a column, times relative to ``zero`` (a Unix time in seconds).

    A last line that was cut when the sampler ended is left out, and so are values that the
    kernel does not tell. Raises RunFailure ``tool`` for anything else.
    """
    lines = stream.split(b"\n")[:-1]
    if not lines:
        return ()
    names, units = _parse_header(_parse_line(lines[0]))
    points: list[list[tuple[float, float]]] = [[] for _ in names]
    for line in lines[1:]:
        at, values = _parse_sample(_parse_line(line), len(names))
        for column, value in zip(points, values, strict=True):
            if value is not None:
                column.append((at - zero, value))
    return tuple(
        Series("host", name, unit, tuple(at for at, _ in column), tuple(v for _, v in column))
        for name, unit, column in zip(names, units, points, strict=True)
        if column
    )


def _parse_line(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise _strange(line) from None
    if not isinstance(message, dict):
        raise _strange(line)
    return message


def _parse_header(message: dict[str, Any]) -> tuple[list[str], list[str]]:
    columns = message.get("columns")
    if message.get("type") != "header" or message.get("protocol") != PROTOCOL:
        raise _strange(repr(message).encode())
    if not isinstance(columns, list) or not 0 < len(columns) <= MAX_COLUMNS:
        raise _strange(repr(message).encode())
    if not all(isinstance(column, dict) for column in columns):
        raise _strange(repr(message).encode())
    return [str(column.get("name")) for column in columns], [
        str(column.get("unit")) for column in columns
    ]


def _parse_sample(message: dict[str, Any], width: int) -> tuple[float, list[float | None]]:
    at, values = message.get("time"), message.get("values")
    if message.get("type") != "sample" or not _is_number(at):
        raise _strange(repr(message).encode())
    if not isinstance(values, list) or len(values) != width:
        raise _strange(repr(message).encode())
    if not all(value is None or _is_number(value) for value in values):
        raise _strange(repr(message).encode())
    assert isinstance(at, int | float)
    return float(at), [None if value is None else float(value) for value in values]


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _strange(line: bytes) -> RunFailure:
    shown = line[:200].decode("utf-8", "replace")
    return RunFailure("tool", "the sampler wrote something else than samples", shown, "make setup")
