"""The kinds of backings as data: which options a ``[backings.NAME]`` table of each kind takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from diskproof.study.keys import Option, one_of


@dataclass(frozen=True)
class Kind:
    """``nests``: the table may say ``on = "NAME"``, the backing that it is made on, or where the
    logs of its runs go; without it, that is a folder in the current one. ``carries``: others can
    be made on it."""

    options: Mapping[str, Option]
    nests: bool = False
    carries: bool = True


NOT_OWN = ("directory", "device", "nbd", "iscsi")
"""Kinds that may not be filled up: others use them, or the study has not made them."""

_WORDS = r"[A-Za-z0-9_=,.:/^ -]{0,400}"
_NBD = r"nbd(://[A-Za-z0-9.:\[\]-]+|\+unix://)/[^\x00-\x20,]{0,300}"
_DEVICE = r"/dev/[A-Za-z0-9._/-]{1,255}"

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
    "device": Kind({"path": Option(None, _DEVICE, help="a block device")}, nests=True),
    "lvm": Kind(
        {
            "type": one_of("linear", "snapshot", "thin"),
            "size": Option("", size=True),
            "chunk": Option("", size=True),
        },
        nests=True,
    ),
    "md": Kind(
        {
            "level": one_of("0", "1", "5", "10"),
            "members": Option("4", r"[2-9]|1[0-9]|2[0-4]", help="a number from 2 to 24"),
            "size": Option("", size=True),
            "chunk": Option("512KiB", size=True),
            "bitmap": one_of("none", "internal"),
            "path": Option("", f"({_DEVICE}( {_DEVICE})*)?", help="block devices, with spaces"),
        },
        nests=True,
    ),
    "nbd": Kind(
        {
            "server": one_of("qemu-nbd"),
            "cache": one_of("writeback", "none", "writethrough", "directsync", "unsafe"),
            "aio": one_of("threads", "native", "io_uring"),
            "discard": one_of("unmap", "ignore"),
            "uri": Option("", f"({_NBD})?", help="like nbd://HOST:PORT/EXPORT"),
        },
        nests=True,
        carries=False,
    ),
    "iscsi": Kind(
        {"store": one_of("fileio", "fileio-wb", "blockio", "aio", "nullio")},
        nests=True,
        carries=False,
    ),
    "lio": Kind(
        {
            "store": one_of("fileio", "fileio-wb", "blockio", "nullio"),
            "size": Option("", size=True),
        },
        nests=True,
    ),
    "zfs": Kind(
        {
            "type": one_of("zvol", "dataset"),
            "size": Option("", size=True),
            "volblocksize": Option("16KiB", size=True),
            "recordsize": Option("128KiB", size=True),
            "sync": one_of("standard", "always", "disabled"),
            "compression": Option("on", r"[a-z0-9-]{1,16}", help="a way to compress, on or off"),
        },
        nests=True,
    ),
}
