"""cpio archives in the "newc" format, as the kernel unpacks them into its first file system.

Format: Documentation/driver-api/early-userspace/buffer-format.rst of the Linux kernel.
"""

import stat
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One file, directory or device node, owned by root. ``mode`` includes the file type."""

    name: str
    mode: int
    content: bytes = b""
    device: tuple[int, int] = (0, 0)


def file_entry(name: str, content: bytes, permissions: int = 0o644) -> Entry:
    return Entry(name, stat.S_IFREG | permissions, content)


def directory_entry(name: str) -> Entry:
    return Entry(name, stat.S_IFDIR | 0o755)


def device_entry(name: str, major: int, minor: int) -> Entry:
    """A character device. Written into an archive it needs no privilege."""
    return Entry(name, stat.S_IFCHR | 0o600, device=(major, minor))


def render_cpio(entries: Iterable[Entry]) -> bytes:
    """The archive; directories must come before what is in them."""
    archive = bytearray()
    for number, entry in enumerate([*entries, Entry("TRAILER!!!", 0)], start=1):
        name = entry.name.encode() + b"\0"
        fields = (
            number,
            entry.mode,
            0,  # uid
            0,  # gid
            1,  # links
            0,  # time of change: equal inputs give equal archives
            len(entry.content),
            *(0, 0),  # device the file was on
            *entry.device,
            len(name),
            0,  # checksum, unused in this format
        )
        archive += b"070701" + b"".join(b"%08X" % field for field in fields) + name
        archive += b"\0" * (-len(archive) % 4)
        archive += entry.content
        archive += b"\0" * (-len(archive) % 4)
    return bytes(archive)
