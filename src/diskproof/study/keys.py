"""What one key of a study's table may hold, as data."""

from __future__ import annotations

import re
from dataclasses import dataclass

from diskproof.units import parse_bytes, parse_seconds


@dataclass(frozen=True)
class Option:
    """One key. ``default`` None: it must be given. ``pattern`` bounds its text; with ``size`` it is
    a number of bytes and with ``time`` one of seconds, kept as plain numbers; with ``regex`` it is
    a regular expression with one group. ``help`` completes "is not ..."."""

    default: str | None = ""
    pattern: str = r"[^\x00-\x1f]{0,4096}"
    size: bool = False
    time: bool = False
    regex: bool = False
    help: str = "a value of this key"

    def parse(self, text: str) -> str:
        """The value in canonical spelling. Raises ValueError."""
        if self.size:
            return str(parse_bytes(text))
        if self.time:
            return f"{parse_seconds(text):g}"
        if not re.fullmatch(self.pattern, text):
            raise ValueError(f"{text!r} is not {self.help}")
        if self.regex and text:
            _check_regex(text)
        return text

    @property
    def default_text(self) -> str:
        """The default in canonical spelling."""
        return self.parse(self.default) if self.default else ""


def _check_regex(text: str) -> None:
    try:
        groups = re.compile(text).groups
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    if groups != 1:
        raise ValueError(f"{text!r} has {groups} groups; one is to hold the figure")


def one_of(default: str, *others: str) -> Option:
    """A key with a few words to choose from, the default first."""
    words = (default, *others)
    return Option(default, "|".join(words), help=f"one of {', '.join(words)}")
