"""The kinds of backings as data: which options a ``[backings.NAME]`` table of each kind takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from diskproof.option_rules import Option


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
