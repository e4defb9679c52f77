"""A logical volume in a volume group of the study's own: linear, with a snapshot, or thin.

LVM is run with a configuration of its own that lets it see one device: the host's volume groups
are neither scanned nor touched, and the host's LVM is told not to activate ours.
"""

import mmap
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from diskproof.backings import volumes
from diskproof.backings.device import wipe
from diskproof.backings.filesystem import make_file
from diskproof.backings.loop import start_loop
from diskproof.backings.place import Place, choose_size, read_device_bytes, start_run_dir
from diskproof.errors import HostError, RunFailure
from diskproof.process.start import Completed, require_tool, run
from diskproof.records import BackingSpec
from diskproof.units import render_bytes

DISK, SNAPSHOT, POOL = "disk", "before", "pool"
EXTENT = 4 << 20
_MISC = Path("/proc/misc")
_CONFIG = """\
devices {{
    dir = "/dev"
    scan = [ "/dev" ]
    use_devicesfile = 0
    obtain_device_list_from_udev = 0
    external_device_info_source = "none"
    hints = "none"
    scan_lvs = 1
    filter = [ "a|^{device}$|", "r|.*|" ]
    global_filter = [ "a|^{device}$|", "r|.*|" ]
}}
activation {{ monitoring = 0 }}
backup {{
    backup = 0
    archive = 0
}}
global {{
    locking_dir = "{folder}/locks"
    event_activation = 0
    use_lvmpolld = 0
    thin_check_executable = ""
}}
"""


class LvmBacking:
    """``kind = "lvm"``: ``type``, ``size``, ``chunk``. The disk of type snapshot is a volume that
    has a snapshot, taken anew before each run: the first write to each chunk copies it first."""

    @contextmanager
    def start(self, spec: BackingSpec, base: Place | None) -> Iterator[Place]:
        assert base
        require_device_mapper()
        kind = spec.option("type")
        needed = partial(needed_bytes, kind)
        size = choose_size(spec, base, needed, EXTENT)
        free = base.free_bytes() * size // needed(size)
        with ExitStack() as stack:
            note = stack.enter_context(volumes.start_note(base))
            below, where = base.below, base.name or str(base.device)
            if base.device:
                device = base.device
            else:
                room = stack.enter_context(start_run_dir(base))
                file = make_file(room, needed(size))
                loop = stack.enter_context(start_loop(file))
                device, below, where = loop.path, (file,), loop.words
            group = stack.enter_context(start_group(note, device, stays=bool(base.device)))
            disk = make_disk(group, kind, size, spec.option("chunk"))
            yield Place(
                base.folder,
                device=disk,
                name=f"LVM {kind} on {where}{read_chunk(group, kind)}",
                below=below,
                base_free=free,
                lowest=base.home,
                renew=partial(renew_snapshot, group, spec.option("chunk"))
                if kind == "snapshot"
                else None,
            )


BACKING = LvmBacking()


def needed_bytes(kind: str, size: int) -> int:
    """What a volume takes of its device at most, LVM's own data (1 MiB, whole extents) included.

    A snapshot keeps 16 bytes for each chunk beside the chunk, and a chunk has 4 KiB at least; a
    thin pool about 64 bytes a chunk of 64 KiB and more, and LVM keeps spare room for as much.
    """
    if kind == "snapshot":
        return 2 * size + _whole_extents(size // 128) + 4 * EXTENT
    if kind == "thin":
        return size + 2 * thin_metadata_bytes(size) + 4 * EXTENT
    return size + 2 * EXTENT


def thin_metadata_bytes(size: int) -> int:
    """Twice what lvmthin(7) tells to expect."""
    return min(15 << 30, _whole_extents(max(EXTENT, size // 512)))


def _whole_extents(count: int) -> int:
    return -(-count // EXTENT) * EXTENT


def require_device_mapper() -> None:
    """Raises HostError where LVM or the kernel's part of it is missing."""
    require_tool("lvm", "lvm2")
    if "device-mapper" not in _MISC.read_text().split():
        if os.geteuid() == 0:
            run(["modprobe", "--quiet", "dm_mod"], timeout=30, check=False)
        if "device-mapper" not in _MISC.read_text().split():
            why = "the kernel has no device mapper (dm_mod)"
            hint = "boot a kernel that has it (apt-get install linux-image-amd64)"
            raise HostError("there is no LVM here", why, hint)


class Group:
    """A volume group and the configuration that LVM sees it with."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder

    def lvm(self, *arguments: str) -> Completed:
        return volumes.run_quietly(["lvm", *arguments], LVM_SYSTEM_DIR=str(self.folder))

    def require(self, *arguments: str) -> Completed:
        """Raises HostError with LVM's words."""
        done = self.lvm(*arguments)
        if done.returncode != 0:
            told = [line for line in done.error_text.splitlines() if "WARNING" not in line]
            raise HostError(f"LVM cannot do its {arguments[0]}", "\n".join(told[-5:]))
        return done


@contextmanager
def start_group(note: Path, device: Path, *, stays: bool) -> Iterator[Group]:
    """A volume group of our own on a device, noted in a folder before it is made; ``stays``: the
    device outlives it, so that it is wiped. Raises HostError."""
    device = device.resolve()
    devices = (device,) if stays else ()
    group = configure(volumes.new_name(), note, device)
    volumes.write_note(note, volumes.Volume("lvm", group.name, devices))
    try:
        group.require("vgcreate", "--setautoactivation", "n", "--yes", group.name, str(device))
        yield group
    finally:
        if left := remove_group(note, group.name, devices):
            raise RunFailure("tool", f"volume group {group.name} could not be removed", left)


def configure(name: str, note: Path, device: Path) -> Group:
    folder = note / "lvm"
    folder.mkdir(exist_ok=True)
    quoted = str(folder).replace("\\", "\\\\").replace('"', '\\"')
    (folder / "lvm.conf").write_text(_CONFIG.format(device=device, folder=quoted))
    return Group(name, folder)


def remove_group(note: Path, name: str, devices: tuple[Path, ...]) -> str:
    """Take away a volume group of ours, also one that is half made, and its label on devices that
    stay. Gives why something is still there, or nothing."""
    left = volumes.take_down(volumes.find_standing_on(volumes.find_named(name)))
    for device in devices if not left else ():
        query = ["pvs", "--noheadings", "--options", "vg_name", str(device)]
        if (
            device.is_block_device()
            and configure(name, note, device).lvm(*query).text.strip() == name
        ):
            left = wipe(device)
    remove_links(name)
    return left


def remove_links(name: str) -> None:
    """What udev would take away in /dev where it runs: links to devices that are gone."""
    folder = Path("/dev") / name
    if folder.is_dir():
        for link in folder.iterdir():
            link.unlink(missing_ok=True)
        folder.rmdir()


def make_disk(group: Group, kind: str, size: int, chunk: str) -> Path:
    """The volume that is the disk under test."""
    create = ["lvcreate", "--yes", "--wipesignatures", "n"]
    if kind == "thin":
        pool = ["--type", "thin-pool", "--name", POOL, "--size", f"{size}b", *chunk_args(chunk)]
        metadata = ["--poolmetadatasize", f"{thin_metadata_bytes(size)}b"]
        group.require("lvcreate", "--yes", *pool, *metadata, group.name)
        thin = ["--virtualsize", f"{size}b", "--thinpool", POOL, "--name", DISK]
        group.require(*create, *thin, group.name)
    else:
        group.require(*create, "--name", DISK, "--size", f"{size}b", group.name)
    disk = Path(f"/dev/mapper/{group.name}-{DISK}")
    if kind == "snapshot":
        write_all(disk)
        renew_snapshot(group, chunk)
    return disk


def chunk_args(chunk: str) -> list[str]:
    return ["--chunksize", f"{int(chunk)}b"] if chunk else []


def renew_snapshot(group: Group, chunk: str) -> None:
    """A snapshot of the disk as it is now, in place of the one there was."""
    if Path(f"/dev/mapper/{group.name}-{SNAPSHOT}").exists():
        group.require("lvremove", "--yes", f"{group.name}/{SNAPSHOT}")
    snapshot = ["--snapshot", "--name", SNAPSHOT, "--extents", "100%FREE", *chunk_args(chunk)]
    group.require("lvcreate", "--yes", *snapshot, f"{group.name}/{DISK}")


def read_chunk(group: Group, kind: str) -> str:
    """The size of the pieces in which it is mapped, as LVM tells it."""
    if kind == "linear":
        return ""
    of = SNAPSHOT if kind == "snapshot" else POOL
    query = ["lvs", "--noheadings", "--nosuffix", "--units", "b", "--options", "chunk_size"]
    told = group.require(*query, f"{group.name}/{of}").text.strip()
    return f", chunks of {render_bytes(int(told))}"


def write_all(device: Path) -> None:
    """Write a device once, so that there is something to keep. Raises HostError."""
    step = 1 << 20
    try:
        left = read_device_bytes(device)
        handle = os.open(device, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
        with os.fdopen(handle, "wb", buffering=0) as stream, mmap.mmap(-1, step) as block:
            block.write(os.urandom(step))
            view = memoryview(block)
            while left:
                count = os.write(stream.fileno(), view[: min(step, left)])
                left -= count
            os.fsync(stream.fileno())
            view.release()
    except OSError as error:
        raise HostError(f"{device} cannot be written", error.strerror or "") from None
