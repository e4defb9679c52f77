"""What is read around a disk, in its guest and below its image: keys, values and what is known
of them.

A layer's levels are texts by key; a key is one of the words here, and for most a blank and the name
of what it is about: ``mount /data`` = ``ext4 rw,nobarrier``, ``queue sda`` = ``write back``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from diskproof.records.virtual_machines import Effect, Layer

WRITE_CACHE = "write_cache"
"""Of the guest's kernel: ``write back`` or ``write through``."""
DEVICE = "device"
"""The guest's name of the disk."""
MOUNT = "mount"
"""A mount point with its file system and options."""
ZFS_SYNC = "zfs-sync"
"""A dataset or volume with its property ``sync``."""
QUEUE = "queue"
"""A block device of the host with its ``queue/write_cache``."""
CACHE_TYPE = "cache_type"
"""A block device of the host with the write cache that it reports itself."""
TARGET = "target"
"""An iSCSI disk of this same host with the store behind it, one of ``TARGETS``."""
UNSEEN = "unseen"
"""What could not be looked at, with the reason."""

TARGETS: dict[str, tuple[Effect, str]] = {
    "tgt aio": ("loses", "it answers a flush and does nothing"),
    "tgt null": ("loses", "it keeps nothing"),
    "memory": ("loses", "a power cut empties it, whatever is flushed"),
    "LIO rd_mcp": ("loses", "it keeps everything in memory"),
    "LIO buffered": ("loses", "it works in the page cache and tells of no write cache"),
    "a target of this host": ("unknown", "its store was not found among tgt's and LIO's"),
    "another host": ("unknown", "what it does with a flush cannot be seen from here"),
}
"""Stores that are known not to keep, or of which nobody here knows (docs/backings.md)."""

IN_MEMORY = dict.fromkeys(
    ("tmpfs", "ramfs", "hugetlbfs"), "memory, which a power cut empties whatever is flushed"
)
ELSEWHERE = dict.fromkeys(
    ("nfs", "nfs4", "cifs", "smb3", "ceph", "glusterfs", "lustre", "gpfs", "ocfs2", "afs"),
    "what its server does with a flush (NFS: async) cannot be seen from here",
) | dict.fromkeys(
    ("fuse", "fuseblk", "9p", "virtiofs", "vboxsf"), "what lies below it cannot be seen from here"
)
"""File systems by kind that keep nothing, and those that somebody else keeps."""

_NO_BARRIER = ("nobarrier", "barrier=0", "barrier=none", "barrier=off")


@dataclass(frozen=True)
class Setting:
    """A setting of a database in the guest. ``bad`` are the values that lose."""

    rule: str
    key: str
    bad: tuple[str, ...]
    good: str
    effect: Effect
    what: str
    source: str
    takes_effect: str


_OFF = ("off", "false", "no", "0")
_PG_RELOAD = "after a reload: SELECT pg_reload_conf()"
SETTINGS = (
    Setting(
        "guest-fsync-off",
        "fsync",
        _OFF,
        "on",
        "loses",
        "PostgreSQL forces nothing to disk, and its cluster may be damaged by a power cut",
        "PostgreSQL, Write Ahead Log: fsync",
        _PG_RELOAD,
    ),
    Setting(
        "guest-async-commit",
        "synchronous_commit",
        _OFF,
        "on",
        "loses",
        "PostgreSQL acknowledges a commit before it is on disk",
        "PostgreSQL, Asynchronous Commit",
        _PG_RELOAD,
    ),
    Setting(
        "guest-torn-pages",
        "full_page_writes",
        _OFF,
        "on",
        "may lose",
        "a page that a power cut tears cannot be mended",
        "PostgreSQL, Write Ahead Log: full_page_writes",
        _PG_RELOAD,
    ),
    Setting(
        "guest-innodb-flush",
        "innodb_flush_log_at_trx_commit",
        ("0", "2"),
        "1",
        "loses",
        "InnoDB flushes its log once a second, not at each commit",
        "MySQL Reference Manual, innodb_flush_log_at_trx_commit",
        "after a restart, or at once by SET GLOBAL innodb_flush_log_at_trx_commit = 1",
    ),
)


def entries(layer: Layer | None, word: str) -> Iterator[tuple[str, str]]:
    """What a layer has under a word, by the name that stands after it."""
    for key, value in (layer.levels if layer else {}).items():
        first, _, name = key.partition(" ")
        if first == word:
            yield name, value


def mounts(layer: Layer | None) -> Iterator[tuple[str, str]]:
    """Mount points with ``TYPE OPTIONS``."""
    return entries(layer, MOUNT)


def settings(layer: Layer | None, key: str) -> Iterator[tuple[str, str]]:
    """Files with the value that they give a setting."""
    return entries(layer, key)


def options(text: str) -> tuple[str, ...]:
    """The options of a mount."""
    return tuple(text.partition(" ")[2].split(","))


def no_barrier(text: str) -> str:
    """The option that keeps a file system from sending flushes, or empty."""
    return next((word for word in options(text) if word in _NO_BARRIER), "")
