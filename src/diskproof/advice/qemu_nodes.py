"""The block nodes that a QEMU command line asks for, with what each inherits.

Rules: QEMU 7.2, qemu(1) ``-blockdev`` and ``-drive``, block.c ``bdrv_inherited_options`` (an inline
child takes its parent's cache.direct and cache.no-flush and has discard=unmap; a node that is
named has its own), block/io.c ``bdrv_co_flush`` (a flush ends at the lowest node's no-flush alone)
and blockdev.c (``cache=`` of -drive is three settings; those spelt out come first).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from diskproof.advice.qemu_options import Flat, child_keys, read_json
from diskproof.study.factors import CACHE_MODES

FILTERS = frozenset(
    {"throttle", "copy-on-read", "preallocate", "copy-before-write", "compress", "blkdebug"}
)
LOCAL = frozenset({"file", "host_device"})
NETWORK = frozenset(
    {"nbd", "rbd", "iscsi", "http", "https", "ftp", "ftps", "ssh", "gluster", "nfs", "sheepdog"}
)
_OTHER_ENDS = frozenset({"nvme", "nvme-io_uring", "io_uring", "vvfat", "host_cdrom", "null-co"})
_FLAGS = ("cache.direct", "cache.no-flush")
_SWITCH = dict.fromkeys(("on", "yes", "true", "y"), "on") | dict.fromkeys(
    ("off", "no", "false", "n"), "off"
)
_SPELLINGS = {
    "discard": {"ignore": "ignore", "off": "ignore", "unmap": "unmap", "on": "unmap"},
    "detect-zeroes": {name: name for name in ("off", "on", "unmap")},
    "aio": {name: name for name in ("threads", "native", "io_uring")},
    **dict.fromkeys((*_FLAGS, "cache.writeback", "read-only", "lazy-refcounts"), _SWITCH),
}
_SIZES = ("l2-cache-size", "cache-size")
_DEEPEST = 100
# What -drive has beside the options of its node.
_OF_DRIVE = re.compile(
    "file|if|id|index|media|bus|unit|format|cache|cache.writeback|aio|snapshot|readonly|werror"
    "|rerror|serial|addr|group|boot|cyls|heads|secs|trans"
)


@dataclass(frozen=True)
class BlockNode:
    """One node. ``keys`` are its own and inherited options, spelt in one way (``?``: as nobody can
    tell); ``written`` those that somebody wrote. ``driver`` is empty where QEMU probes."""

    driver: str
    name: str
    image: str
    keys: Mapping[str, str]
    written: frozenset[str]
    file: "BlockNode | None" = None
    backing: "BlockNode | None" = None
    names: frozenset[str] = field(default_factory=frozenset)

    @property
    def end(self) -> "BlockNode":
        """The lowest node, which has the bytes."""
        return self.file.end if self.file else self

    @property
    def format(self) -> str:
        """The image's format; empty where QEMU probes it."""
        if self.driver in FILTERS and self.file:
            return self.file.format
        return "raw" if self.driver and self.file is None else self.driver

    @property
    def known_end(self) -> bool:
        """Whether what lies lowest is a file, a device or a server."""
        return self.end.driver in LOCAL | NETWORK | _OTHER_ENDS

    @property
    def path(self) -> "tuple[BlockNode, ...]":
        """From this node down to the lowest."""
        return (self, *(self.file.path if self.file else ()))


def drive_keys(keys: Flat) -> Flat:
    """The options of a -drive as those of its node, ``cache.writeback`` too."""
    node: dict[str, str | None] = {k: v for k, v in keys.items() if not _OF_DRIVE.fullmatch(k)}
    image = str(keys.get("file") or "")
    if image.startswith("json:"):
        node = {**read_json(image[5:], "-drive file=json:"), **node}
    elif image:
        node = {**_end_keys(image), **node}
    if form := keys.get("format"):
        node["driver"] = form
    mode = CACHE_MODES.get({"off": "none"}.get(word := str(keys.get("cache") or ""), word))
    if mode:
        named = (mode.direct, mode.no_flush, not mode.write_through)
        for key, on in zip((*_FLAGS, "cache.writeback"), named, strict=True):
            node.setdefault(key, "on" if on else "off")
    elif word:
        node = {**dict.fromkeys((*_FLAGS, "cache.writeback"), "?"), **node}
    for key, of_drive in (("read-only", "readonly"), ("cache.writeback", "cache.writeback")):
        if of_drive in keys:
            node[key] = keys[of_drive]
    if "aio" in keys:
        node.setdefault("aio" if node.get("driver") in LOCAL else "file.aio", keys["aio"])
    return node


def _end_keys(image: str) -> dict[str, str | None]:
    """A file name of -drive as the options of the lowest node."""
    scheme, colon, _ = image.partition(":")
    driver = scheme.split("+")[0]
    if colon and (driver in NETWORK or driver == "fat"):
        driver = {"fat": "vvfat", "sheepdog": "sheepdog"}.get(driver, driver)
    elif image.startswith("/dev/") and not image.startswith(("/dev/fdset/", "/dev/shm/")):
        driver = "host_device"
    else:
        driver, image = "file", image.removeprefix("file:") if scheme == "file" else image
    return {"file.driver": driver, "file.filename": image}


@dataclass
class BlockGraph:
    """All nodes of a command line. ``named`` are the options of -blockdev by node name; each is
    opened once, whoever stands on it."""

    named: dict[str, Flat] = field(default_factory=dict)
    _opened: dict[str, BlockNode | None] = field(default_factory=dict)

    def find(self, name: str, depth: int = 0) -> BlockNode | None:
        """The node of that name with those below it; None where there is none, or in a circle."""
        if name in self.named and name not in self._opened and depth < _DEEPEST:
            self._opened[name] = None
            self._opened[name] = self.open(self.named[name], None, depth + 1)
        return self._opened.get(name)

    def open(self, keys: Flat, above: BlockNode | None = None, depth: int = 0) -> BlockNode:
        """The node of those options; ``above`` is who has it inline."""
        own = _own_keys(keys)
        if above is not None:
            for flag in _FLAGS:
                if flag in above.keys:
                    own.setdefault(flag, above.keys[flag])
            own.setdefault("discard", "unmap")
        written = frozenset(key for key in own if key in keys or (above and key in above.written))
        driver, name = str(keys.get("driver") or ""), str(keys.get("node-name") or "")
        node = BlockNode(driver, name, _image(keys), own, written)
        file, backing = (self._child(keys, child, node, depth) for child in ("file", "backing"))
        names = frozenset({name}).union(*(found.names for found in (file, backing) if found))
        return replace(node, file=file, backing=backing, names=names)

    def _child(self, keys: Flat, child: str, node: BlockNode, depth: int) -> BlockNode | None:
        if name := keys.get(child):
            return self.find(name, depth)
        inline = child_keys(keys, child) if depth < _DEEPEST else {}
        return self.open(inline, node, depth + 1) if inline else None


def _own_keys(keys: Flat) -> dict[str, str]:
    """What the node's own options say, each value spelt in one way."""
    found = {key: value for key in _SIZES if (value := keys.get(key))}
    for key, spellings in _SPELLINGS.items():
        if value := keys.get(key):
            found[key] = spellings.get(value, "?")
    return found


def _image(keys: Flat) -> str:
    """What a lowest node is of: a path, or a server's words put together."""
    for key in ("filename", "url", "device"):
        if value := keys.get(key):
            return value
    driver = str(keys.get("driver") or "")
    if driver not in NETWORK:
        return ""
    host = keys.get("server.host") or keys.get("server.path") or keys.get("portal") or ""
    what = [keys.get(key) for key in ("pool", "image", "export", "target", "volume", "path")]
    return f"{driver}:" + "/".join(str(part) for part in (host, *what) if part)
