"""The ``[guest]`` table of a study: a machine of the user's own, whose image is only ever read.

What the image holds is part of the study's id by facts that cost nothing to read: its length, the
time of its last change and a hash of its beginning. A copy under another name is the same guest;
an image that was booted and written to is another one.
"""

import hashlib
import os
import stat as stat_module
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from diskproof.study import keys
from diskproof.study.factors import FACTOR_BY_NAME

FRONTEND = "own-guest"
HEAD_BYTES = 64 << 10
# What lies at the start of a file of some format; a raw disk with one of them is a mistake.
MAGICS = {
    b"QFI\xfb": "qcow2",
    b"QED\0": "qed",
    b"KDMV": "vmdk",
    b"vhdxfile": "vhdx",
    b"conectix": "vpc",
    b"LUKS\xba\xbe": "luks",
}


_NAMED = keys.matching(r"[^\0]{1,4096}", "a file's name")


@dataclass(frozen=True)
class OwnGuest:
    """``[guest]``: a machine of the user's. Paths are absolute; ``kernel`` and ``initrd`` are empty
    for one that boots by its own boot loader. ``bases`` are files outside of the image's folder
    that it may be based on. ``bus`` is that of its system disk. Waits in seconds. ``digest`` stands
    for what the files hold."""

    image: str = keys.field("", _NAMED, required=True)
    format: str = keys.field("qcow2", keys.choice("qcow2", "raw", "vdi", "vhdx"))
    os: str = keys.field("linux", keys.choice("linux", "windows"))
    machine: str = keys.field("pc", keys.choice("pc", "q35"))
    firmware: str = keys.field("bios", keys.choice("bios", "uefi"))
    bus: str = keys.field("virtio-blk", keys.choice(*FACTOR_BY_NAME["bus"].levels))
    settle: float = keys.field(10.0, keys.duration(0))
    boot_timeout: float = keys.field(300.0, keys.duration(1))
    kernel: str = keys.field("", _NAMED)
    initrd: str = keys.field("", _NAMED)
    append: str = keys.field(
        "", keys.matching(r"[\x20-\x7e]{0,1000}", "a line of at most 1000 ASCII letters")
    )
    bases: tuple[str, ...] = keys.field((), keys.some(_NAMED, 16))
    digest: str = ""

    @property
    def shape(self) -> list[object]:
        """What of it is part of a study's id."""
        waits = [self.settle, self.boot_timeout]
        named = [self.os, self.machine, self.firmware, self.bus, self.append]
        return [self.digest, self.format, *named, *waits]


def read_guest(content: object, folder: Path, mistakes: keys.Mistakes) -> OwnGuest:
    """The table's machine, files relative to ``folder``; mistakes are noted."""
    guest = keys.read_table(OwnGuest, content, ("guest",), mistakes)
    digest = hashlib.sha256()
    files: dict[str, Any] = {}
    for name in ("image", "kernel", "initrd"):
        if file := getattr(guest, name):
            files[name] = os.path.realpath(folder / file)
            digest.update(_read_facts(name, Path(files[name]), guest.format, mistakes))
    for name in ("initrd", "append"):
        if getattr(guest, name) and not guest.kernel:
            mistakes.add(("guest", name), f"{name}: this goes with a kernel")
    if guest.machine == "q35" and guest.bus == "ide":
        mistakes.add(("guest", "bus"), "bus: a q35 machine has no ide; its disks are on ahci")
    files["bases"] = tuple(os.path.realpath(folder / base) for base in guest.bases)
    return replace(guest, **files, digest=digest.hexdigest())


def _read_facts(key: str, path: Path, form: str, mistakes: keys.Mistakes) -> bytes:
    """Length, time of change and first bytes of a file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO must not block
        with os.fdopen(handle, "rb") as stream:
            stat = os.fstat(stream.fileno())
            if not stat_module.S_ISREG(stat.st_mode):
                raise OSError(0, "it is not a file")
            head = stream.read(HEAD_BYTES) or b""
    except OSError as error:
        mistakes.add(("guest", key), f"{key}: cannot read {path}: {error.strerror}")
        return b""
    found = next((name for magic, name in MAGICS.items() if head.startswith(magic)), "")
    if key == "image" and form == "raw" and found:
        message = f'image: {path.name} begins as {found}, which format = "raw" would give the guest'
        hint = "; decrypt it first" if found == "luks" else f'; say format = "{found}"'
        mistakes.add(("guest", key), message + hint)
    return f"{stat.st_size} {stat.st_mtime_ns} {hashlib.sha256(head).hexdigest()}\n".encode()


def check_use(
    guest: OwnGuest | None,
    factors: Mapping[str, tuple[str, ...]],
    workloads: Sequence[tuple[str, str]],
    mistakes: keys.Mistakes,
) -> None:
    """Whether table, factors and workloads (names and kinds) go together; mistakes are noted."""
    used = FRONTEND in factors.get("frontend", ())
    if guest is None and used:
        message = f'frontend: {FRONTEND} needs a table [guest] with image = "FILE"'
        mistakes.add(("factors", "frontend"), message, FRONTEND)
    if guest is None:
        return
    if not used:
        mistakes.add(("guest",), f'guest: nobody uses it without frontend = "{FRONTEND}"')
    if guest.machine == "q35" and "ide" in factors.get("bus", ()):
        mistakes.add(("factors", "bus"), "bus: a q35 machine has no ide", "ide")
    for name, kind in workloads:
        if guest.os == "windows" and kind != "command":
            message = f"{name}: in a Windows guest a workload is a command"
            mistakes.add(("workloads", name), message, name)
