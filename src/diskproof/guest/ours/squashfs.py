"""A squashfs image of a folder, nothing in it compressed: for hosts that lack mksquashfs.

Layout: Documentation/filesystems/squashfs.rst of the Linux kernel, version 4.0. Order here: files,
inodes, directories, owners. All belongs to root and is of no time.
"""

import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

_BLOCK_LOG = 17
_BLOCK = 1 << _BLOCK_LOG
_META = 8192
_PLAIN_BLOCK, _PLAIN_META = 1 << 24, 1 << 15
_NONE, _NOWHERE = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
_FLAGS = 0x0001 | 0x0002 | 0x0008 | 0x0010 | 0x0200 | 0x0800  # plain, no fragments, no attributes
_SUPER = struct.Struct("<5I6H8Q")
_DIRECTORY, _FILE, _LINK = 1, 2, 3
_DEVICE_BLOCK = 4096


@dataclass
class _Table:
    """Metadata blocks that grow; a place in them is (block, offset)."""

    data: bytearray = field(default_factory=bytearray)

    def place(self) -> tuple[int, int]:
        blocks, offset = divmod(len(self.data), _META)
        return blocks * (_META + 2), offset

    def render(self) -> bytes:
        parts = (self.data[at : at + _META] for at in range(0, len(self.data), _META))
        return b"".join(struct.pack("<H", len(part) | _PLAIN_META) + part for part in parts)


@dataclass(frozen=True)
class _Inode:
    kind: int
    number: int
    place: tuple[int, int]


class _Image:
    def __init__(self, output: IO[bytes], count: int) -> None:
        self.output, self.count = output, count
        self.inodes, self.folders = _Table(), _Table()
        self.number = 0

    def add(self, path: Path, parent: int) -> _Inode:
        """What is below comes first; a folder's number is known before, for those in it."""
        self.number += 1
        number, mode = self.number, path.lstat().st_mode
        if stat.S_ISDIR(mode):
            below = [(child, self.add(child, number)) for child in _children(path)]
            return self._add_folder(mode, number, parent, below)
        place = self.inodes.place()
        if stat.S_ISLNK(mode):
            target = str(path.readlink()).encode()
            self._head(_LINK, 0o777, number)
            self.inodes.data += struct.pack("<2I", 1, len(target)) + target
            return _Inode(_LINK, number, place)
        self._add_file(path, mode, number)
        return _Inode(_FILE, number, place)

    def _head(self, kind: int, mode: int, number: int) -> None:
        self.inodes.data += struct.pack("<4H2I", kind, stat.S_IMODE(mode), 0, 0, 0, number)

    def _add_file(self, path: Path, mode: int, number: int) -> None:
        start, size, blocks = self.output.tell(), 0, []
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                self.output.write(block)
                size += len(block)
                blocks.append(len(block) | _PLAIN_BLOCK)
        self._head(_FILE, mode, number)
        self.inodes.data += struct.pack(f"<4I{len(blocks)}I", start, _NONE, 0, size, *blocks)

    def _add_folder(
        self, mode: int, number: int, parent: int, below: list[tuple[Path, _Inode]]
    ) -> _Inode:
        (block, offset), before = self.folders.place(), len(self.folders.data)
        for path, inode in below:  # a header for each: their inodes lie anywhere
            name = path.name.encode()
            self.folders.data += struct.pack("<3I", 0, inode.place[0], inode.number)
            self.folders.data += struct.pack("<HhHH", inode.place[1], 0, inode.kind, len(name) - 1)
            self.folders.data += name
        size = len(self.folders.data) - before + 3
        folders = sum(inode.kind == _DIRECTORY for _, inode in below)
        place = self.inodes.place()
        self._head(_DIRECTORY, mode, number)
        about = (block, 2 + folders, size, offset, parent)
        self.inodes.data += struct.pack("<2I2HI", *about)
        return _Inode(_DIRECTORY, number, place)


def _children(folder: Path) -> Iterator[Path]:
    """In the order that the kernel looks for names: that of their bytes."""
    yield from sorted(folder.iterdir(), key=lambda path: path.name.encode())


def write_squashfs(root: Path, image: Path) -> None:
    """Write an image of a folder of plain files, links and folders, each of less than 64 KiB of
    names."""
    count = 1 + sum(1 for _ in root.rglob("*"))
    with image.open("wb") as output:
        output.write(bytes(_SUPER.size))
        writer = _Image(output, count)
        top = writer.add(root, count + 1)
        inodes = output.tell()
        output.write(writer.inodes.render())
        folders = output.tell()
        output.write(writer.folders.render())
        owners = output.tell()
        output.write(_Table(bytearray(struct.pack("<I", 0))).render())
        owner_list = output.tell()
        output.write(struct.pack("<Q", owners))
        used = output.tell()
        output.write(bytes(-used % _DEVICE_BLOCK))
        output.seek(0)
        small = (1, _BLOCK_LOG, _FLAGS, 1, 4, 0)  # gzip, which every kernel with squashfs knows
        where = (owner_list, _NOWHERE, inodes, folders, _NOWHERE, _NOWHERE)
        reference = top.place[0] << 16 | top.place[1]
        head = (0x73717368, writer.number, 0, _BLOCK, 0)
        output.write(_SUPER.pack(*head, *small, reference, used, *where))
