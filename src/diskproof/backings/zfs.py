"""A ZFS pool of the study's own with one volume or one file system in it.

The pool lies on a file, or on the block device of the backing below. It is imported without a
cache file, so that the host does not import it again at its next boot.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from diskproof.backings.block_tree import run_quietly
from diskproof.backings.device import wipe
from diskproof.backings.filesystem import make_file
from diskproof.backings.mounting import start_mount
from diskproof.backings.place import Place
from diskproof.backings.room import choose_size
from diskproof.backings.run_dir import start_run_dir
from diskproof.backings.volume_note import Volume, new_name, start_note, write_note
from diskproof.errors import HostError, RunFailure
from diskproof.process.start import find_tool, require_tool, run
from diskproof.records import BackingSpec
from diskproof.units import MIB

DISK = "disk"
SETTLE_SECONDS = 30.0
_MODULE = Path("/sys/module/zfs")


class ZfsBacking:
    """``kind = "zfs"``: ``type`` zvol or dataset, ``size``, ``volblocksize`` or ``recordsize``,
    ``sync``, ``compression``."""

    @contextmanager
    def start(self, spec: BackingSpec, base: Place | None) -> Iterator[Place]:
        assert base
        require_zfs()
        size = choose_size(spec, base, needed_bytes, MIB)
        with ExitStack() as stack:
            note = stack.enter_context(start_note(base))
            below, where, target = base.below, base.name, base.device
            if target is None:
                file = make_file(stack.enter_context(start_run_dir(base)), needed_bytes(size))
                below, where, target = (file,), "a file", file
            pool = stack.enter_context(start_pool(note, target, stays=bool(base.device)))
            _require(f"backing {spec.name}", ["zfs", *create_args(pool, spec, size)])
            name = f"ZFS {spec.option('type')} on {where} ({read_properties(pool, spec)})"
            free = base.free_bytes()
            if spec.option("type") == "zvol":
                disk = find_zvol(pool)
                folder = base.folder
            else:
                disk = None
                arguments = ["-t", "zfs", f"{pool}/{DISK}"]
                folder = stack.enter_context(start_mount(arguments, note / "mnt"))
            yield Place(
                folder, device=disk, name=name, below=below, base_free=free, lowest=base.home
            )


BACKING = ZfsBacking()


def needed_bytes(size: int) -> int:
    """A pool's own data, its reserve (1/32, spa_slop_shift) and what small blocks cost: half as
    much again, and the least size of a pool."""
    return size * 3 // 2 + 256 * MIB


def require_zfs() -> None:
    """Raises HostError where the tools of ZFS or its module are missing."""
    require_tool("zpool", "zfsutils-linux")
    require_tool("zfs", "zfsutils-linux")
    if not _MODULE.exists():
        run(["modprobe", "--quiet", "zfs"], timeout=60, check=False)
    if not _MODULE.exists():
        hint = "apt-get install zfs-dkms   (Debian: in contrib)"
        raise HostError("there is no ZFS here", "its kernel module cannot be loaded", hint)


@contextmanager
def start_pool(note: Path, target: Path, *, stays: bool) -> Iterator[str]:
    """A pool of our own, noted in a folder before it is made. Raises HostError."""
    name = new_name()
    devices = (target,) if stays else ()
    write_note(note, Volume("zfs", name, devices))
    try:
        _require("the pool of a backing", ["zpool", *pool_args(name, target)])
        yield name
    finally:
        if left := remove_pool(name, devices):
            raise RunFailure("tool", f"pool {name} could not be removed", left)


def pool_args(name: str, target: Path) -> list[str]:
    return ["create", "-o", "cachefile=none", "-O", "mountpoint=legacy", name, str(target)]


def create_args(pool: str, spec: BackingSpec, size: int) -> list[str]:
    """A sparse volume: as images of other kinds it takes what is written."""
    properties = [f"sync={spec.option('sync')}", f"compression={spec.option('compression')}"]
    if spec.option("type") == "zvol":
        kind = ["-s", "-V", str(size)]
        properties.append(f"volblocksize={spec.option('volblocksize')}")
    else:
        kind = []
        properties += [f"recordsize={spec.option('recordsize')}", f"quota={size}"]
    settings = [word for setting in properties for word in ("-o", setting)]
    return ["create", *kind, *settings, f"{pool}/{DISK}"]


def read_properties(pool: str, spec: BackingSpec) -> str:
    """What is in force, as ZFS tells it."""
    block = "volblocksize" if spec.option("type") == "zvol" else "recordsize"
    names = f"{block},sync,compression"
    query = ["zfs", "get", "-H", "-o", "property,value", names, f"{pool}/{DISK}"]
    told = _require("what was set", query)
    return ", ".join(line.replace("\t", "=") for line in told.splitlines())


def find_zvol(pool: str) -> Path:
    """The node that udev has made for it. Raises HostError."""
    if find_tool("udevadm"):
        run(["udevadm", "settle"], timeout=SETTLE_SECONDS, check=False)
    link = Path("/dev/zvol") / pool / DISK
    if not link.is_block_device():
        raise HostError(f"there is no {link}", "udev makes it, with the rules of zfsutils-linux")
    return link.resolve()


def remove_pool(name: str, devices: tuple[Path, ...]) -> str:
    """Take a pool of ours away. Gives why it is still there, or nothing."""
    if find_tool("zpool") is None or not _MODULE.exists():
        return ""
    if run_quietly(["zpool", "list", "-H", name]).returncode == 0:
        done = run_quietly(["zpool", "destroy", "-f", name])
        if done.returncode != 0:
            return done.error_text
        for device in devices:
            if left := wipe(device):
                return left
    return ""


def _require(what: str, argv: list[str]) -> str:
    """The answer of a tool. Raises HostError with its words."""
    done = run_quietly(argv)
    if done.returncode != 0:
        told = "\n".join(done.error_text.splitlines()[-5:])
        raise HostError(f"ZFS cannot make {what}", told)
    return done.text
