"""A ZFS pool on a disk of a guest, as a file system of writers: made, imported, looked through.

The pool lies on a loop device over the disk, around the page cache: of a whole disk zpool would
make a partition, and wait for udev, which no guest of ours has. A separate log device is the first
part of the same disk: what a power cut takes of one and of the other is of one moment.
"""

from collections.abc import Callable, Mapping, Sequence

from diskproof.guest.ours.root import MAKE_FILE_SYSTEM
from diskproof.units import MIB

POOL = "diskproof"
LOG_BYTES = 64 << 20
"""The least that ZFS takes for a device."""
VOLUME, VOLUME_SHARE = f"{POOL}/disk", 4
"""A quarter of the disk: of a small pool ZFS keeps half to itself."""
NODE = "/dev/zd0"
"""Of the only volume of a guest."""
Do = Callable[[Sequence[str]], bytes]
"""Runs a program in the guest, gives what it printed, and raises when it fails."""
_KEPT = ("-o", "cachefile=none")
_SCRUB = f"""zpool scrub -w {POOL}
if [ "$(zpool status -x {POOL})" != "pool '{POOL}' is healthy" ]; then
    zpool status -v {POOL}
    exit 1
fi
"""
FSCK: Mapping[str, tuple[str, ...]] = {
    "zfs": ("sh", "-euc", _SCRUB),
    "zfs-log": ("sh", "-euc", _SCRUB),
    "zvol-ext4": ("sh", "-euc", f"{_SCRUB}exec e2fsck -f -n {NODE}"),
}
"""By the kinds of file systems that take a pool. Reads all that is there, with its checksums. The
disk that follows is the shell's ``$0``."""
KINDS = tuple(FSCK)
MODULES: Mapping[str, tuple[str, ...]] = {
    "zfs": ("zfs", "loop"),
    "zfs-log": ("zfs", "loop"),
    "zvol-ext4": ("zfs", "loop", "ext4"),
}
# A node comes a moment after the command that made it.
_WAIT = ("timeout", "30", "sh", "-c", f"until [ -b {NODE} ]; do sleep 0.1; done")


def make_pool(do: Do, kind: str, device: str, properties: str) -> None:
    """Make one, with properties of what lies in it by commas, and leave it exported."""
    loops = _start_loops(do, kind, device)
    settings = [word for each in properties.split(",") if each for word in ("-O", each)]
    pool = ["-o", "ashift=12", *_KEPT, "-O", "mountpoint=legacy", *settings, POOL, loops[0]]
    do(["zpool", "create", "-f", *pool, *(word for each in loops[1:] for word in ("log", each))])
    if kind == "zvol-ext4":
        size = int(do(["blockdev", "--getsize64", device])) // VOLUME_SHARE // MIB * MIB
        do(["zfs", "create", "-s", "-V", str(size), VOLUME])
        do(_WAIT)
        do([*MAKE_FILE_SYSTEM["ext4"], NODE])
    do(["zpool", "export", POOL])
    do(["losetup", "--detach", *loops])


def import_pool(do: Do, kind: str, device: str) -> tuple[str, str]:
    """The type and the source that mount(8) is to mount. The last one who had it did not export
    it, if the power was cut."""
    loops = _start_loops(do, kind, device)
    where = [word for loop in loops for word in ("-d", loop)]
    do(["zpool", "import", "-f", "-N", *_KEPT, *where, POOL])
    if kind != "zvol-ext4":
        return "zfs", POOL
    do(_WAIT)
    return "ext4", NODE


def _start_loops(do: Do, kind: str, device: str) -> tuple[str, ...]:
    """The pool's, then its log's."""
    start = ["losetup", "--find", "--show", "--direct-io=on"]
    parts: list[list[str]] = [[]]
    if kind == "zfs-log":
        parts = [["--offset", str(LOG_BYTES)], ["--sizelimit", str(LOG_BYTES)]]
    return tuple(do([*start, *part, device]).decode().strip() for part in parts)
