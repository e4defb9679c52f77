"""A ZFS pool of the study's own with one volume or one file system in it.

The pool lies on loop devices over files, or on the block device of the backing below: a file that
is a member itself is opened by threads of the kernel, which do not see a study's own mounts. It is
imported without a cache file, so that the host does not import it again at its next boot. What was
set is read back.
"""

import fcntl
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from diskproof.backings import volumes
from diskproof.backings.device import wipe
from diskproof.backings.loop import start_loop
from diskproof.backings.mounting import start_mount
from diskproof.backings.place import Place, choose_size, start_run_dir
from diskproof.errors import HostError, NotHere, RunFailure
from diskproof.process.start import find_tool, require_tool, run
from diskproof.records import BackingSpec
from diskproof.units import MIB, render_bytes

DISK = "disk"
SECTOR = 4096
"""Of the pool, whatever its files lie on (ashift 12)."""
LOG_BYTES, RESERVE = 64 * MIB, 192 * MIB
_MODULE = Path("/sys/module/zfs")
_LEAST = {"single": 1, "mirror": 2, "raidz1": 3, "raidz2": 4}
_PARITY = {"raidz1": 1, "raidz2": 2}
_SETTLE_SECONDS = 30.0
_PAUSE = 0.1
_BUSY_ATTEMPTS = 100
_NAME_OF_VOLUME = 0x8100127D  # BLKZNAME
_NAME_BYTES = 256


class ZfsBacking:
    """``kind = "zfs"``: the pool's ``vdev``, ``members`` and ``log``; ``type`` zvol or dataset,
    its ``size``, and properties by their names in zfsprops(7)."""

    @contextmanager
    def start(self, spec: BackingSpec, base: Place | None) -> Iterator[Place]:
        assert base
        check_shape(spec, base)
        require_zfs()
        size = choose_size(spec, base, partial(needed_bytes, spec), MIB)
        with ExitStack() as stack:
            note = stack.enter_context(volumes.start_note(base))
            room = stack.enter_context(start_run_dir(Place(base.folder)))
            files = () if base.device else make_members(room, spec, size)
            log = (make_file(room / "log.img", LOG_BYTES),) if has_log(spec) else ()
            loops = [stack.enter_context(start_loop(file)) for file in (*files, *log)]
            where = loops[0].words if files else base.name or str(base.device)
            if len(files) > 1:
                where = f"{spec.option('vdev')} of {len(files)} x {where}"
            stays = (base.device,) if base.device else ()
            targets = (*stays, *(loop.path for loop in loops))
            pool = stack.enter_context(start_pool(note, spec, targets, stays))
            before = set(volumes.SYS.glob("zd*"))
            _require(f"backing {spec.name}", ["zfs", *create_args(pool, spec, size)])
            told = ", ".join(f"{name}={value}" for name, value in require_properties(pool, spec))
            name = f"ZFS {spec.option('type')} on {where} ({told}{_describe(spec)})"
            free, disk, folder = base.free_bytes(), None, base.folder
            if spec.option("type") == "zvol":
                disk = find_zvol(pool, before)
            else:
                arguments = ["-t", "zfs", f"{pool}/{DISK}"]
                folder = stack.enter_context(start_mount(arguments, note / "mnt"))
            below = (*(files or base.below), *log)
            yield Place(
                folder,
                device=disk,
                name=name,
                below=below,
                base_free=free,
                lowest=base.home,
                uncached=partial(start_uncached, spec, pool),
            )


BACKING = ZfsBacking()


def has_log(spec: BackingSpec) -> bool:
    return spec.option("log") == "file"


def member_count(spec: BackingSpec) -> int:
    return int(spec.option("members")) or _LEAST[spec.option("vdev")]


def check_shape(spec: BackingSpec, base: Place) -> None:
    """Raises HostError for what cannot be a pool."""
    vdev, count, where = spec.option("vdev"), member_count(spec), f"[backings.{spec.name}]"
    if count < _LEAST[vdev] or (vdev == "single" and count > 1):
        why = f"it has {count} members, {vdev} has {_LEAST[vdev]}"
        more = "" if vdev == "single" else " or more"
        raise HostError(f"backing {spec.name} is no pool", why + more, f"set others in {where}")
    if base.device and vdev != "single":
        why = f"the members of {vdev} are files"
        raise HostError(
            f"backing {spec.name} cannot be made on {base.device}", why, "make it on a directory"
        )


def needed_bytes(spec: BackingSpec, size: int) -> int:
    """What the files take when it is full: blocks with their copies or parity and what they are
    padded with, half as much again for metadata, and the pool's reserve (1/32, at least 128 MiB:
    spa_slop_shift) with what each member keeps for itself."""
    vdev, members = spec.option("vdev"), member_count(spec)
    block = int(spec.option("volblocksize" if spec.option("type") == "zvol" else "recordsize"))
    sectors, data = max(1, -(-block // SECTOR)), 1
    if parity := _PARITY.get(vdev, 0):
        data = members - parity
        sectors += -(-sectors // data) * parity
        sectors += -sectors % (parity + 1)
    elif vdev == "mirror":
        sectors *= members
    allocated = max(1, -(-size // block)) * sectors * SECTOR
    return allocated * 3 // 2 + members * RESERVE // data + has_log(spec) * LOG_BYTES


def make_members(room: Path, spec: BackingSpec, size: int) -> tuple[Path, ...]:
    count = member_count(spec)
    each = (needed_bytes(spec, size) - has_log(spec) * LOG_BYTES) // count
    return tuple(make_file(room / f"member{number}.img", each) for number in range(count))


def make_file(path: Path, size: int) -> Path:
    """A sparse one."""
    with path.open("xb") as stream:
        os.truncate(stream.fileno(), size)
    return path


def require_zfs() -> None:
    """Raises NotHere where the tools of ZFS or its module are missing."""
    try:
        require_tool("zpool", "zfsutils-linux")
        require_tool("zfs", "zfsutils-linux")
    except HostError as error:
        raise NotHere(error.what, error.why, error.hint) from None
    if not _MODULE.exists():
        run(["modprobe", "--quiet", "zfs"], timeout=60, check=False)
    if not _MODULE.exists():
        hint = "apt-get install zfs-dkms   (Debian: in contrib)"
        raise NotHere("there is no ZFS here", "its kernel module cannot be loaded", hint)


@contextmanager
def start_pool(
    note: Path, spec: BackingSpec, targets: Sequence[Path], stays: tuple[Path, ...]
) -> Iterator[str]:
    """A pool of our own, noted in a folder before it is made; those that ``stay`` after it are
    wiped. Raises HostError."""
    name = volumes.new_name()
    volumes.write_note(note, volumes.Volume("zfs", name, stays))
    try:
        _require("the pool of a backing", ["zpool", *pool_args(name, spec, targets)])
        yield name
    finally:
        if left := remove_pool(name, stays):
            raise RunFailure("tool", f"pool {name} could not be removed", left)


def pool_args(name: str, spec: BackingSpec, targets: Sequence[Path]) -> list[str]:
    """``targets``: its members, then its log."""
    members = [] if spec.option("vdev") == "single" else [spec.option("vdev")]
    members += map(str, targets)
    if has_log(spec):
        members.insert(-1, "log")
    options = ["-o", "cachefile=none", "-o", "ashift=12", "-O", "mountpoint=legacy"]
    return ["create", *options, name, *members]


def properties_of(spec: BackingSpec) -> Mapping[str, str]:
    """What the study sets, by the names of zfsprops(7)."""
    own = ("volblocksize",) if spec.option("type") == "zvol" else ("recordsize", "atime")
    names = (*own, "sync", "compression", "logbias", "primarycache")
    return {name: spec.option(name) for name in names}


def create_args(pool: str, spec: BackingSpec, size: int) -> list[str]:
    """Its space is not reserved unless asked for: as images of other kinds it takes what is
    written."""
    properties = [f"{name}={value}" for name, value in properties_of(spec).items()]
    kind = ["-V", str(size)]
    if spec.option("type") == "dataset":
        kind = []
        properties.append(f"quota={size}")
        properties += [f"refreservation={size}"] if spec.option("reserve") == "yes" else []
    elif spec.option("reserve") == "no":
        kind.insert(0, "-s")
    settings = [word for setting in properties for word in ("-o", setting)]
    return ["create", *kind, *settings, f"{pool}/{DISK}"]


def require_properties(pool: str, spec: BackingSpec) -> Iterator[tuple[str, str]]:
    """What is in force, as ZFS tells it, for people. Raises HostError where something else was
    set."""
    wanted = properties_of(spec)
    query = ["zfs", "get", "-H", "-p", "-o", "property,value", ",".join(wanted), f"{pool}/{DISK}"]
    told = _require("what was set", query)
    found = dict(line.split("\t") for line in told.splitlines())
    for name, value in wanted.items():
        # ZFS calls its own default level of a compression by the name without one.
        if found.get(name) not in (value, value.partition("-")[0]):
            why = f"{name} is {found.get(name, 'not told')}, not {value}"
            raise HostError(f"backing {spec.name} is not as the study wants it", why)
        yield name, render_bytes(int(value)) if name.endswith("size") else value


@contextmanager
def start_uncached(spec: BackingSpec, pool: str) -> Iterator[None]:
    """ZFS keeps nothing of what is written or read meanwhile: what lies in its cache goes with the
    export of a pool only. Raises HostError."""
    cached = f"primarycache={spec.option('primarycache')}"
    if cached == "primarycache=all":
        _require("its cache empty", ["zfs", "set", "primarycache=metadata", f"{pool}/{DISK}"])
    try:
        yield
    finally:
        # What is not on the disk yet would be cached as it is written.
        _require("its cache empty", ["zpool", "sync", pool])
        _require("its cache as it was", ["zfs", "set", cached, f"{pool}/{DISK}"])


def _describe(spec: BackingSpec) -> str:
    """What the properties do not say."""
    more = [", reserved"] if spec.option("reserve") == "yes" else []
    more += [", with a log device"] if has_log(spec) else []
    version = read_version()
    buffers = spec.option("type") == "dataset" and is_buffering(version)
    return f"{''.join(more)}; ZFS {version}{', which buffers direct I/O' if buffers else ''}"


def is_buffering(version: str) -> bool:
    """Whether its datasets take O_DIRECT and use their cache all the same, as all before 2.3."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) < (2, 3)


def read_version() -> str:
    """The module's."""
    try:
        return (_MODULE / "version").read_text().strip()
    except OSError:
        return "of unknown version"


def find_zvol(pool: str, before: set[Path]) -> Path:
    """The node of its volume, which is not among those that were there before. Raises HostError.

    The kernel makes it beside the command that asked for it; the link that udev makes comes later,
    and in a guest without udev never.
    """
    ends = time.monotonic() + _SETTLE_SECONDS
    while time.monotonic() < ends:
        for entry in set(volumes.SYS.glob("zd*")) - before:
            node = Path("/dev") / entry.name
            if _read_volume_name(node) == f"{pool}/{DISK}":
                return node
        time.sleep(_PAUSE)
    raise HostError(f"{pool}/{DISK} has no node in /dev", "ZFS or udev has not made it")


def _read_volume_name(node: Path) -> str:
    """What ZFS calls the volume of a node; nothing where there is none (yet)."""
    name = bytearray(_NAME_BYTES)
    try:
        handle = os.open(node, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        fcntl.ioctl(handle, _NAME_OF_VOLUME, name)
    except OSError:
        return ""
    finally:
        os.close(handle)
    return os.fsdecode(bytes(name).partition(b"\0")[0])


def remove_pool(name: str, devices: tuple[Path, ...]) -> str:
    """Take a pool of ours away. Gives why it is still there, or nothing."""
    if find_tool("zpool") is None or not _MODULE.exists():
        return ""
    for attempt in range(_BUSY_ATTEMPTS):  # udev may look at a volume for a moment
        if volumes.run_quietly(["zpool", "list", "-H", name]).returncode != 0:
            return ""
        done = volumes.run_quietly(["zpool", "destroy", "-f", name])
        if done.returncode == 0:
            left = [why for device in devices if (why := wipe(device))]
            return left[0] if left else ""
        time.sleep(_PAUSE if attempt + 1 < _BUSY_ATTEMPTS else 0)
    return done.error_text


def _require(what: str, argv: list[str]) -> str:
    """The answer of a tool. Raises HostError with its words."""
    done = volumes.run_quietly(argv)
    if done.returncode != 0:
        told = "\n".join(done.error_text.splitlines()[-5:])
        raise HostError(f"ZFS cannot make {what}", told)
    return done.text
