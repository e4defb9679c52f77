"""What a guest says of one boot: lines ``key=value``. Guests are not trusted."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from diskproof.errors import RunFailure

MAX_REPORT = 16 << 10
_LINE = re.compile(rb"([a-z_][a-z0-9_.]{0,30})=([ -~]{0,500})")
_STEPS = 20
_TIME = r"\d{1,9}\.\d\d"


@dataclass(frozen=True)
class BootReport:
    """One boot. ``boots`` is the guest's own count, kept on its disk; ``steps`` are seconds by
    name; ``counts`` what each step handled, one number a time (files and bytes ``walked``, members
    ``listed`` and ``unpacked``, bytes ``zeroed``). ``read_bytes`` and ``written_bytes`` are what
    its kernel asked of the disk. ``failed`` is the command that did not work, or empty."""

    kind: str
    boots: int
    kernel: str
    write_cache: str
    size: int
    started: float
    steps: Mapping[str, float]
    counts: Mapping[str, tuple[tuple[int, ...], ...]]
    read_bytes: int
    written_bytes: int
    failed: str


def parse_report(data: bytes) -> BootReport:
    """Raises RunFailure ``guest`` for what no boot of ours says."""
    pairs = list(_pairs(data))
    last = dict(pairs)
    if "done" not in last:
        raise _refusal("it ends before its boot did", data)
    stat = _numbers(last.get("stat", ""), data, 11)
    names = ("walked", "listed", "zeroed", "unpacked")
    counts = {
        name: tuple(_numbers(value, data) for key, value in pairs if key == name) for name in names
    }
    return BootReport(
        kind=last["done"],
        boots=_number(last.get("boots", ""), data),
        kernel=last.get("kernel", ""),
        write_cache=last.get("write_cache", ""),
        size=_number(last.get("size", ""), data) * 512,
        started=_time(last.get("started", ""), data),
        steps=dict(_steps(pairs, data)),
        counts=counts,
        read_bytes=stat[2] * 512,  # Documentation/block/stat.rst
        written_bytes=stat[6] * 512,
        failed=last.get("failed", ""),
    )


def _pairs(data: bytes) -> Iterator[tuple[str, str]]:
    for line in data.splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            raise _refusal("a line is not key=value", data)
        yield found[1].decode(), found[2].decode()


def _steps(pairs: list[tuple[str, str]], data: bytes) -> Iterator[tuple[str, float]]:
    steps = [(key, value) for key, value in pairs if key.startswith("step.")]
    if len(steps) > _STEPS:
        raise _refusal("it has too many steps", data)
    for key, value in steps:
        began, _, ended = value.partition(" ")
        seconds = _time(ended, data) - _time(began, data)
        if seconds < 0:
            raise _refusal("a step ended before it began", data)
        yield key.removeprefix("step."), seconds


def _numbers(text: str, data: bytes, least: int = 1) -> tuple[int, ...]:
    words = text.split()
    if not least <= len(words) <= 30:
        raise _refusal("a line lacks its numbers", data)
    return tuple(_number(word, data) for word in words)


def _number(text: str, data: bytes) -> int:
    if not re.fullmatch(r"\d{1,15}", text, re.ASCII):
        raise _refusal(f"{text!r} is not a number", data)
    return int(text)


def _time(text: str, data: bytes) -> float:
    if not re.fullmatch(_TIME, text, re.ASCII):
        raise _refusal(f"{text!r} is not a time", data)
    return float(text)


def _refusal(why: str, data: bytes) -> RunFailure:
    evidence = (("boot-report", data[:MAX_REPORT]),)
    return RunFailure("guest", "the guest's report of its boot is not right", why, "", evidence)
