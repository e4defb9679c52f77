"""A ZFS pool on a disk of a guest, as a file system of writers: made, imported, looked through.

The pool lies on a loop device over the disk, around the page cache: of a whole disk zpool would
make a partition, and wait for udev, which no guest of ours has.
"""

from collections.abc import Callable, Sequence

KIND = "zfs"
POOL = "diskproof"
Do = Callable[[Sequence[str]], bytes]
"""Runs a program in the guest, gives what it printed, and raises when it fails."""
_KEPT = ("-o", "cachefile=none")
FSCK = (
    "sh",
    "-euc",
    f"""zpool scrub -w {POOL}
[ "$(zpool status -x {POOL})" = "pool '{POOL}' is healthy" ] && exit
zpool status -v {POOL}
exit 1
""",
)
"""Reads all that is there, with its checksums. The disk that follows is the shell's ``$0``."""


def make_pool(do: Do, device: str, properties: str) -> None:
    """Make one, with properties of its file system by commas, and leave it exported."""
    loop = _start_loop(do, device)
    settings = [word for each in properties.split(",") if each for word in ("-O", each)]
    pool = ["-o", "ashift=12", *_KEPT, "-O", "mountpoint=legacy", *settings, POOL, loop]
    do(["zpool", "create", "-f", *pool])
    do(["zpool", "export", POOL])
    do(["losetup", "--detach", loop])


def import_pool(do: Do, device: str) -> str:
    """What mount(8) is to mount. The last one who had it did not export it, if the power was
    cut."""
    loop = _start_loop(do, device)
    do(["zpool", "import", "-f", "-N", *_KEPT, "-d", loop, POOL])
    return POOL


def _start_loop(do: Do, device: str) -> str:
    argv = ["losetup", "--find", "--show", "--direct-io=on", device]
    return do(argv).decode().strip()
