"""The kinds of backings as data: which options a ``[backings.NAME]`` table of each kind takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from diskproof.units import parse_bytes


@dataclass(frozen=True)
class Option:
    """One key. ``default`` None: it must be given. ``pattern`` bounds its text, ``size`` says that
    it is a number of bytes, kept as a plain number."""

    default: str | None = ""
    pattern: str = r"[^\x00-\x1f]{0,4096}"
    size: bool = False
    help: str = ""

    def parse(self, text: str) -> str:
        """The value in canonical spelling. Raises ValueError."""
        if self.size:
            return str(parse_bytes(text))
        if not re.fullmatch(self.pattern, text):
            raise ValueError(f"{text!r} is not {self.help or 'a value of this key'}")
        return text


@dataclass(frozen=True)
class Kind:
    """``nests``: the table may say ``on = "NAME"``, the backing that it is made on, or where the
    logs of its runs go; without it, that is a folder in the current one."""

    options: Mapping[str, Option]
    nests: bool = False


_WORDS = r"[A-Za-z0-9_=,.:/^ -]{0,400}"

KINDS: Mapping[str, Kind] = {
    "directory": Kind({"path": Option(None, r"[^\x00]{1,4096}", help="a path")}),
    "filesystem": Kind(
        {
            "fs": Option("ext4", r"[a-z0-9]{1,16}", help="a type of file system that mkfs makes"),
            "size": Option("", size=True),
            "mkfs": Option("", _WORDS, help="options of mkfs"),
            "mount": Option("", _WORDS, help="mount options"),
        },
        nests=True,
    ),
    "tmpfs": Kind({"size": Option("1GiB", size=True)}, nests=True),
    "device": Kind(
        {"path": Option(None, r"/dev/[A-Za-z0-9._/-]{1,255}", help="a block device")}, nests=True
    ),
}
