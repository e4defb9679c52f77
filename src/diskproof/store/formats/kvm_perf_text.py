"""The text of kvm-perf into configurations: liberal in layout, strict in figures.

A configuration is a line of names and levels (``type raw cache none aio native if ide``) followed
by single times and printed intervals. Nothing else of the layout is relied upon.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from diskproof.errors import UsageError

MAX_BYTES = 4 << 20
MAX_LINES = 100_000
MAX_LINE = 1000
MAX_LIST = 1 << 20
MAX_CONFIGURATIONS = 10_000
MAX_TIMES = 100_000
MAX_SECONDS = 1e9
_MAX_WORD = 100

# Names on a configuration's line, by our name of the factor. A line must have two of these names,
# one of them of the disk, or be a lone format: anything else may be prose.
_DISK = {
    "type": "format",
    "format": "format",
    "cache": "cache",
    "aio": "aio",
    "if": "bus",
    "bus": "bus",
    "prealloc": "preallocation",
    "preallocation": "preallocation",
}
_PLACE = {name: name for name in ("host", "kernel", "fs", "filesystem", "release", "qemu")}
# What results may be said to come from, before or between configurations.
_CONTEXT = re.compile(
    rf"({'|'.join(_PLACE)}|hostname|machine|uname|distro)(?:\s*[:=]\s*(.+)|\s+(\S+))",
    re.IGNORECASE,
)
_TITLE = re.compile(r"(={2,}|-{2,}|\*{2,}|~{2,})\s*(.*?)\s*:?\s*[=\-*~]*")
_HEADING = re.compile(r"(\S+(?: \S+){0,5})\s*:")
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,80}>")  # of a page that the text was copied from
_TIMES = re.compile(r"(reads?|writes?)\s*(?:times?\s*)?[:=]?\s*(.*)", re.IGNORECASE)
_INTERVAL = re.compile(r"(read|write)s?[ _-]*(?:interval|mean)\s*[:=]?\s*(.*)", re.IGNORECASE)
_PRINTED = re.compile(r"(\S+)\s*(?:\+/-|\+-|\u00b1)\s*(\S+)")
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{0,20})?(?:[eE][+-]?\d{1,2})?", re.ASCII)
_BLANK = frozenset({"nan", "inf", "none", "-", "n/a", "na"})


@dataclass(frozen=True)
class Printed:
    """A mean and half width as the source printed them (None: no figure there), and its line."""

    line: int
    mean: float | None
    half_width: float | None


@dataclass
class Configuration:
    """One block of the text: levels and times in seconds by workload (``read``, ``write``)."""

    line: int
    levels: tuple[tuple[str, str], ...]
    context: tuple[tuple[str, str], ...]
    times: dict[str, tuple[float, ...]] = field(default_factory=dict)
    printed: dict[str, Printed] = field(default_factory=dict)


@dataclass(frozen=True)
class KvmPerfText:
    """All configurations of a text in its order. ``ignored`` are (line, text) of no known kind."""

    configurations: tuple[Configuration, ...]
    ignored: tuple[tuple[int, str], ...]


def parse_kvm_perf(data: bytes, name: str) -> KvmPerfText:
    """Read the text. Raises UsageError naming the line that cannot be what it should be."""
    reader = _Reader(name)
    for number, line in _logical_lines(_decode(data, name), name):
        reader.take(number, line)
    if not reader.found:
        raise UsageError(
            f"{name} holds no results of kvm-perf",
            "no line in it begins a configuration",
            "one looks like: type raw cache none aio native if virtio prealloc no",
        )
    return KvmPerfText(tuple(reader.found), tuple(reader.ignored))


def refusal(name: str, line: int, why: str) -> UsageError:
    """The error for a line that cannot be imported."""
    return UsageError(f"{name}:{line}: not imported", why, "nothing of the file was stored")


def _decode(data: bytes, name: str) -> str:
    if len(data) > MAX_BYTES:
        raise UsageError(f"{name} is too large", f"more than {MAX_BYTES >> 20} MiB")
    if b"\0" in data:
        raise UsageError(f"{name} is not a text", "it holds NUL bytes")
    return data.decode("utf-8-sig", "replace")


def _logical_lines(text: str, name: str) -> Iterator[tuple[int, str]]:
    """Numbered lines without comments and blanks; a list in brackets may span several."""
    parts: list[str] = []
    began = depth = length = 0
    for number, raw in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        if number > MAX_LINES:
            raise refusal(name, number, f"the file has more than {MAX_LINES} lines")
        line = _TAG.sub("", raw.partition("#")[0]).strip().lstrip("> ")
        if not line:
            continue
        began = began or number
        parts.append(line)
        is_list = _TIMES.match(parts[0]) is not None
        depth += line.count("[") - line.count("]") if is_list else 0
        length += len(line)
        if length > (MAX_LIST if is_list else MAX_LINE):
            raise refusal(name, began, "the line is too long")
        if depth <= 0:
            yield began, " ".join(parts)
            parts, began, depth, length = [], 0, 0, 0
    if parts:
        raise refusal(name, began, "a list of times is not closed with ]")


class _Reader:
    """Takes line after line; knows the configuration that is being read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: list[Configuration] = []
        self.ignored: list[tuple[int, str]] = []
        self.context: dict[str, str] = {}
        self.times = 0
        self.broken: tuple[int, str] | None = None

    def take(self, number: int, line: str) -> None:
        if match := _INTERVAL.fullmatch(line):
            self._take_interval(number, match[1].lower(), match[2])
        elif (match := _TIMES.fullmatch(line)) and _looks_like_times(match[2]):
            self._take_times(number, match[1].lower().rstrip("s"), match[2])
        elif levels := _find_levels(line):
            self._take_levels(number, levels)
        elif match := (_HEADING.fullmatch(line) or _TITLE.fullmatch(line)):
            self._take_context(number, "section", match[match.lastindex or 0])
        elif match := _CONTEXT.fullmatch(line):
            self._take_context(number, match[1].lower(), match[2] or match[3])
        else:
            self.ignored.append((number, line[:_MAX_WORD]))

    def _take_levels(self, number: int, words: list[str]) -> None:
        if len(self.found) >= MAX_CONFIGURATIONS:
            raise refusal(self.name, number, f"more than {MAX_CONFIGURATIONS} configurations")
        self.broken = None
        if len(words) % 2:
            # A line of a summary, perhaps; an error as soon as times follow.
            self.broken = (number, "a name on the configuration's line has no level")
            self.ignored.append((number, " ".join(words)[:_MAX_WORD]))
            return
        names = [_DISK.get(word.lower(), word.lower()) for word in words[::2]]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise refusal(self.name, number, f"{twice[:40]!r} stands twice in the configuration")
        long = next((word for word in words if len(word) > _MAX_WORD), None)
        if long is not None or not all(map(str.isprintable, words)):
            raise refusal(self.name, number, "a name or level of the configuration is odd")
        levels = tuple(zip(names, (word.lower() for word in words[1::2]), strict=True))
        context = tuple(sorted(self.context.items()))
        self.found.append(Configuration(number, levels, context))

    def _take_context(self, number: int, name: str, text: str) -> None:
        text = " ".join(text.split())[:_MAX_WORD]
        if not text.isprintable():
            raise refusal(self.name, number, "a heading holds characters that cannot be printed")
        if text:
            self.context[name] = text

    def _current(self, number: int, what: str) -> Configuration:
        if self.broken is not None:
            raise refusal(self.name, *self.broken)
        if not self.found:
            raise refusal(self.name, number, f"{what} before any configuration")
        return self.found[-1]

    def _take_times(self, number: int, workload: str, text: str) -> None:
        configuration = self._current(number, "times")
        if workload in configuration.times:
            raise refusal(self.name, number, f"a second list of {workload}s in one configuration")
        words = [word for word in re.split(r"[\s,;\[\]()]+", text) if word]
        self.times += len(words)
        if self.times > MAX_TIMES:
            raise refusal(self.name, number, f"more than {MAX_TIMES} times in one file")
        times = tuple(self._parse(number, word, "a time") for word in words)
        configuration.times[workload] = times

    def _take_interval(self, number: int, workload: str, text: str) -> None:
        configuration = self._current(number, "an interval")
        if workload in configuration.printed:
            raise refusal(self.name, number, f"a second {workload} interval in one configuration")
        match = _PRINTED.fullmatch(text)
        if match is None:
            raise refusal(self.name, number, f"no 'mean +/- half width': {text[:40]!r}")
        mean, half = (
            None if word.lower().lstrip("+-") in _BLANK else self._parse(number, word, "a figure")
            for word in match.groups()
        )
        configuration.printed[workload] = Printed(number, mean, half)

    def _parse(self, number: int, word: str, what: str) -> float:
        value = float(word) if _NUMBER.fullmatch(word) else math.nan
        if not 0 <= value <= MAX_SECONDS:
            raise refusal(self.name, number, f"{word[:40]!r} is not {what} in seconds")
        return value


def _looks_like_times(text: str) -> bool:
    """``[70.1, 69.2]``, ``70.1 69.2`` or nothing: a list, not a sentence."""
    return not text or text[0] in "[(+-." or text[0].isdigit()


def _find_levels(line: str) -> list[str] | None:
    """The words of a configuration's line, names and levels in turn; None for any other line."""
    words = [word for word in re.split(r"[\s,;:=]+", line) if word]
    names = [word.lower() for word in words[::2]]
    of_disk = [name for name in names if name in _DISK]
    known = len(of_disk) + sum(name in _PLACE for name in names)
    alone = len(words) == 2 and names[0] in ("type", "format")
    return words if alone or (of_disk and known >= 2) else None
