"""A guest as one file: a tar, packed with gzip, that begins by saying all that it holds.

Its first member, the manifest, names every other one with its length and digest. From that follows
each byte of the headers, and a header that has another is refused: no name, link, device or mode
is ever taken from an archive, and nothing is unpacked that the manifest did not announce.
"""

import hashlib
import json
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from diskproof.errors import UsageError
from diskproof.guest.ours.kernel import MAX_KERNEL
from diskproof.study.guest_root import split_root

FORMAT = "diskproof-guest"
VERSION = 1
ARCHITECTURE = "x86_64"
MANIFEST = "manifest.json"
_LEVEL = 1  # the root is packed already: 9 saves 3 % and takes three times as long
_GZIP = 16 + zlib.MAX_WBITS
_CHUNK = 1 << 20
_MAX_MANIFEST = 64 << 10
_MAX_ITEMS = 300
_MAX_MODULES = 64 << 20
"""Bytes of all modules together: they are read at once for the initramfs."""
_MOST = {"guest.json": 64 << 10, "kernel": MAX_KERNEL, "root.squashfs": 4 << 30}
_LISTS = ("modules/boot.list", "modules/deps.list")
_MODULE = re.compile(r"modules/[A-Za-z0-9_]{1,60}\.ko")
_WORD = re.compile(r"[a-z0-9-]{0,40}")
_DIGEST = re.compile(r"[0-9a-f]{64}")

Tell = Callable[[int, int], None]
"""Told how many bytes of how many are done."""


@dataclass(frozen=True)
class Item:
    """A file of the guest; ``name`` is its path in the folder, ``size`` in bytes."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a file holds: ``base`` names the folder of the guest, ``id`` is the guest's where it was
    exported, ``extra`` its further packages."""

    base: str
    id: str
    suite: str
    extra: str
    items: tuple[Item, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(item.size for item in self.items)


def list_items(folder: Path) -> tuple[Item, ...]:
    """The files of a built guest without its initramfs, which whoever imports it makes anew."""
    modules = sorted(path.name for path in (folder / "modules").iterdir())
    names = [*_MOST, *(f"modules/{name}" for name in modules)]
    return tuple(_measure(folder, name) for name in names)


def _measure(folder: Path, name: str) -> Item:
    with (folder / name).open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return Item(name, stream.tell(), digest)


def write_parcel(manifest: Manifest, folder: Path, output: IO[bytes], tell: Tell) -> str:
    """Write a guest's file, equal bytes for equal guests; gives its digest. Raises OSError."""
    packer, digest, done = zlib.compressobj(_LEVEL, wbits=_GZIP), hashlib.sha256(), 0
    for part in _parts(manifest, folder):
        packed = packer.compress(part)
        digest.update(packed)
        output.write(packed)
        done += len(part)
        tell(min(done, manifest.size), manifest.size)
    last = packer.flush()
    digest.update(last)
    output.write(last)
    return digest.hexdigest()


def _parts(manifest: Manifest, folder: Path) -> Iterator[bytes]:
    head = {"format": FORMAT, "version": VERSION, "architecture": ARCHITECTURE, **asdict(manifest)}
    text = json.dumps(head, indent=1).encode()
    yield _header(MANIFEST, len(text)) + text + _padding(len(text))
    for item in manifest.items:
        yield _header(item.name, item.size)
        with (folder / item.name).open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk
        yield _padding(item.size)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.USTAR_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)


class Parcel:
    """A guest's file that is read. Whatever is in it, methods give what they say or raise
    UsageError; no more is held in memory than a manifest and 1 MiB."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._packer = zlib.decompressobj(_GZIP)
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Of what was read so far: of the whole file after ``unpack``."""
        return self._digest.hexdigest()

    def read_manifest(self) -> Manifest:
        """What the file says it holds; comes before ``unpack``."""
        try:
            header = self._read(tarfile.BLOCKSIZE)
            size = tarfile.TarInfo.frombuf(header, "utf-8", "strict").size
        except (UsageError, tarfile.HeaderError, ValueError):
            raise _foreign("it does not begin as such a file does") from None
        if not 0 < size <= _MAX_MANIFEST or header != _header(MANIFEST, size):
            raise _foreign("it does not begin with a manifest")
        text = self._read(size)
        self._expect(_padding(size))
        return parse_manifest(text)

    def unpack(self, manifest: Manifest, folder: Path | None, tell: Tell) -> None:
        """Write its files into an empty folder, each as its digest wants it, to the very end;
        without a folder only look whether that could be done. Raises OSError, too."""
        if folder is not None:
            (folder / "modules").mkdir()
        done = 0
        for item in manifest.items:
            self._expect(_header(item.name, item.size))
            digest = hashlib.sha256()
            with _place(folder, item.name).open("wb") as output:
                for size in _chunks(item.size):
                    chunk = self._read(size)
                    digest.update(chunk)
                    output.write(chunk)
                    done += size
                    tell(done, manifest.size)
            if digest.hexdigest() != item.sha256:
                raise damaged(f"{item.name} is not what it was")
            self._expect(_padding(item.size))
        self._expect(bytes(2 * tarfile.BLOCKSIZE))
        self._finish()

    def _expect(self, expected: bytes) -> None:
        if self._read(len(expected)) != expected:
            raise damaged("it holds something else than its manifest says")

    def _read(self, size: int) -> bytes:
        """So many bytes, unpacked."""
        found = bytearray()
        while len(found) < size:
            packed = self._packer.unconsumed_tail or self._take()
            if self._packer.eof or not packed:
                raise damaged("it is cut short")
            found += self._unpack(packed, size - len(found))
        return bytes(found)

    def _unpack(self, packed: bytes, most: int) -> bytes:
        try:
            return self._packer.decompress(packed, most)
        except zlib.error as error:
            raise damaged(f"it cannot be unpacked ({error})") from None

    def _take(self) -> bytes:
        packed = self._stream.read(_CHUNK)
        self._digest.update(packed)
        return packed

    def _finish(self) -> None:
        """The packed data ends here, its checksum is right, and so ends the file."""
        while not self._packer.eof:
            packed = self._packer.unconsumed_tail or self._take()
            if not packed:
                raise damaged("it is cut short")
            if self._unpack(packed, 1):
                raise damaged("it goes on behind its end")
        if self._packer.unused_data or self._take():
            raise damaged("it goes on behind its end")


def _place(folder: Path | None, name: str) -> Path:
    return Path(os.devnull) if folder is None else folder / name


def _chunks(size: int) -> Iterator[int]:
    while size > 0:
        yield min(size, _CHUNK)
        size -= _CHUNK


def parse_manifest(text: bytes) -> Manifest:
    """What a manifest says. Raises UsageError for one that is not ours, or of another machine."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise damaged("its manifest cannot be read") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise _foreign("it has another manifest")
    if content.get("version") != VERSION:
        why = f"it is of version {str(content.get('version'))[:20]}, this diskproof knows {VERSION}"
        raise UsageError("the guest cannot be imported", why, "export it with this diskproof")
    if (machine := content.get("architecture")) != ARCHITECTURE:
        why = f"it is for {str(machine)[:20]!r}, and guests here are {ARCHITECTURE}"
        raise UsageError("the guest cannot be imported", why)
    words = [str(content.get(name)) for name in ("base", "id", "suite", "extra")]
    items = content.get("items")
    if not all(_WORD.fullmatch(word) for word in words[:3]) or not _names_root(words[3]):
        raise damaged("its manifest names no guest")
    if not isinstance(items, list) or len(items) > _MAX_ITEMS:
        raise damaged("its manifest lists no files")
    base, name, suite, extra = words
    return Manifest(base, name, suite, extra, _check_items([_parse_item(each) for each in items]))


def _names_root(extra: str) -> bool:
    try:
        split_root(extra)
    except ValueError:
        return False
    return True


def _parse_item(content: Any) -> Item:
    match content:
        case {"name": str(name), "size": int(size), "sha256": str(sha256)} if (
            type(size) is int and size >= 0 and _DIGEST.fullmatch(sha256)
        ):
            return Item(name, size, sha256)
    raise damaged("its manifest lists no files")


def _check_items(items: Sequence[Item]) -> tuple[Item, ...]:
    """Just the files that a guest has, none larger than any guest's."""
    sizes: Mapping[str, int] = {item.name: item.size for item in items}
    modules = [name for name in sizes if name not in _MOST]
    if len(sizes) != len(items) or not sizes.keys() >= {*_MOST, *_LISTS}:
        raise damaged("its manifest lacks files of a guest, or has some twice")
    if not all(name in _LISTS or _MODULE.fullmatch(name) for name in modules):
        raise damaged("its manifest lists files that no guest has")
    too_large = [name for name, most in _MOST.items() if sizes[name] > most]
    if too_large or sum(sizes[name] for name in modules) > _MAX_MODULES:
        raise damaged(f"its {too_large[0] if too_large else 'modules'} would be larger than any")
    return tuple(items)


def damaged(why: str) -> UsageError:
    """A file of ours that did not arrive as it was made."""
    hint = "copy it once more, and compare sha256sum with what `guest export` printed"
    return UsageError("the guest's file is damaged", why, hint)


def _foreign(why: str) -> UsageError:
    return UsageError("this is no file of a guest", why, "`diskproof guest export FILE` makes one")
