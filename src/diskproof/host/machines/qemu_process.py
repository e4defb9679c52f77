"""A running QEMU as /proc shows it: who it is, what it has open, which threads it has."""

import os
import re
import struct
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from diskproof.errors import RunFailure
from diskproof.process.open_files import OpenFile, file_key, find_rings, read_open_files
from diskproof.process.plain_file import open_plain, read_plain

_PROGRAM = re.compile(r"\.?(qemu-system-[\w.-]+|qemu-kvm|kvm|qemu)")
_MAX_FILE = 4 << 20
_MAX_WORDS = 20_000
_QCOW2 = struct.Struct(">4sIQI")
_MACHINES = ("-machine", "--machine", "-M", "--M")
# Files that QEMU makes for itself: memory, and what -snapshot writes on.
_OWN = re.compile(r"qemu_back_mem\..*|vl\.\w{6}")


@dataclass(frozen=True)
class QemuProcess:
    """One process. ``argv`` is its command line."""

    pid: int
    argv: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return Path(f"/proc/{self.pid}")

    @cached_property
    def files(self) -> tuple[OpenFile, ...] | None:
        """What it has open; None where we may not look."""
        try:
            return read_open_files(self.pid)
        except RunFailure:
            return None

    @cached_property
    def rings(self) -> frozenset[str] | None:
        """``aio`` and ``io_uring`` (one may be its event loop's); None where we may not look."""
        try:
            return find_rings(self.pid)
        except (RunFailure, OSError):
            return None

    @cached_property
    def threads(self) -> frozenset[str]:
        """The names of its threads."""
        names = set()
        with suppress(OSError):
            for task in (self.folder / "task").iterdir():
                with suppress(OSError):
                    names.add((task / "comm").read_text(errors="replace").strip())
        return frozenset(names)

    @cached_property
    def cgroup(self) -> str:
        return self.read_file("/cgroup", proc=True) or ""

    @cached_property
    def contained(self) -> bool:
        """Whether it sees other files than we do."""
        with suppress(OSError):
            return (self.folder / "ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink()
        return False

    def see(self, path: str) -> Path:
        """A path of its own as one of ours."""
        return self.folder / "root" / path.lstrip("/") if path.startswith("/") else self._cwd / path

    def absolute(self, path: str) -> str:
        """A path of its own, from the root."""
        with suppress(OSError):
            return path if path.startswith("/") else str(self._cwd.readlink() / path)
        return path

    @property
    def _cwd(self) -> Path:
        return self.folder / "cwd"

    def key_of(self, path: str) -> tuple[int, int] | None:
        """What tells that file from others; None where it is not there."""
        try:
            return file_key(self.see(path).stat())
        except (OSError, ValueError):
            return None

    def read_file(self, path: str, *, proc: bool = False) -> str | None:
        """A text file that it names, the first 4 MiB; None where it cannot be read."""
        place = self.folder / path.lstrip("/") if proc else self.see(path)
        try:
            return read_plain(place, _MAX_FILE).decode("utf-8", "replace")
        except (OSError, ValueError):
            return None

    def read_backing(self, file: OpenFile) -> str:
        """What a qcow2 image that it has open names as the image below; empty for none (QEMU's
        docs/interop/qcow2.txt: magic, version, offset and length of the name). It is said, not
        opened: whoever wrote the image chose it."""
        try:
            fd = open_plain(self.folder / "fd" / str(file.fd), blocks=True)
            try:
                magic, _, offset, size = _QCOW2.unpack(os.pread(fd, _QCOW2.size, 0))
                known = magic == b"QFI\xfb" and offset and size < 1024
                return os.pread(fd, size, offset).decode("utf-8", "replace") if known else ""
            finally:
                os.close(fd)
        except (OSError, struct.error, OverflowError):
            return ""

    def find_unnamed(self, known: set[tuple[int, int]], more: str) -> list[OpenFile]:
        """Files open for writing that neither the command line names, nor ``more`` (what it was
        configured with besides), nor ``known`` has."""
        found = {
            file.key: file
            for file in self.files or ()
            if file.writable
            and file.key not in known
            and not file.path.startswith(("/memfd:", "/dev/shm/"))
            and not (file.deleted and _OWN.fullmatch(Path(file.path).name))
        }
        if found:
            words = {
                w for text in (*self.argv, more) for w in re.split(r'[,="{}\[\]\s]+|:(?=/)', text)
            }
            likely = [word for word in words if 0 < len(word) < 4096][:_MAX_WORDS]
            named = {self.key_of(word) for word in likely}
            found = {key: file for key, file in found.items() if key not in named}
        return list(found.values())


def find_processes() -> list[QemuProcess]:
    """Every QEMU system emulator on this host, those in containers too, but for ``-machine none``:
    tools ask such ones what they can do."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or not _is_qemu(entry):
            continue
        with suppress(OSError):
            text = (entry / "cmdline").read_bytes()[:_MAX_FILE]
            argv = tuple(os.fsdecode(part) for part in text.split(b"\0")[:-1])
            pairs = zip(argv, argv[1:], strict=False)
            asked = {b.removeprefix("type=").split(",")[0] for a, b in pairs if a in _MACHINES}
            if argv and "none" not in asked:
                found.append(QemuProcess(int(entry.name), argv))
    return sorted(found, key=lambda process: process.pid)


def _is_qemu(entry: Path) -> bool:
    """By its program; where that cannot be seen, by its own words."""
    try:
        name = (entry / "exe").readlink().name.removesuffix(" (deleted)")
        return _PROGRAM.fullmatch(name) is not None
    except PermissionError:
        pass
    except OSError:
        return False  # a kernel's thread, or gone
    with suppress(OSError):
        first = (entry / "cmdline").read_bytes()[:4096].split(b"\0")[0]
        return _PROGRAM.fullmatch(os.fsdecode(first).rpartition("/")[2]) is not None
    return False
