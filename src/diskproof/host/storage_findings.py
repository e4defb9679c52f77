"""Where images could live here: file systems that can be made, volume managers, iSCSI."""

from dataclasses import dataclass
from pathlib import Path

from diskproof.backings import NO_CONSENT, start_disk_dir, start_place
from diskproof.backings.filesystem import make_file
from diskproof.backings.loop import start_loop
from diskproof.errors import DiskproofError
from diskproof.host.kernel_findings import find_module, is_root, namespace_args, try_command
from diskproof.process.start import find_tool
from diskproof.records import BackingSpec, Finding
from diskproof.study.backings import KINDS

# Everything happens on a tmpfs in a mount namespace: the image is never on a disk, and loop device
# (released with its mount, loop(4)) and mounts end with the shell.
_MAKE_AND_MOUNT = """
set -e
mount -t tmpfs -o mode=700,size=1g diskproof "$1"
cd "$1"
kind=$2
shift 2
truncate -s 512M diskproof-image
mkdir disk
"$@" diskproof-image >&2
mount -t "$kind" -o loop diskproof-image disk
echo written > disk/file
"""
_COVERED = "/dev/shm"  # no program that we need lives there
_SMALL = 16 << 20
_KERNEL = "boot a kernel that has it (apt-get install linux-image-amd64)"


@dataclass(frozen=True)
class FileSystem:
    """One that a study may ask for; ``make`` is the program with its options."""

    name: str
    make: tuple[str, ...]
    package: str


FILE_SYSTEMS = (
    FileSystem("ext4", ("mkfs.ext4", "-q", "-F"), "e2fsprogs"),
    FileSystem("xfs", ("mkfs.xfs", "-q", "-f"), "xfsprogs"),
    FileSystem("btrfs", ("mkfs.btrfs", "-q", "-f"), "btrfs-progs"),
)


@dataclass(frozen=True)
class Stack:
    """Storage with a program and a part of the kernel.

    ``sign`` is a file and a word in it that show the kernel's part at work (empty: the file alone).
    ``backing`` is the kind of backing that it is, ``factor`` what there are several of.
    """

    name: str
    program: str
    package: str
    module: str = ""
    sign: tuple[str, str] = ("", "")
    kernel_hint: str = _KERNEL
    backing: str = ""
    factor: str = ""
    levels: tuple[str, ...] = ()


STACKS = (
    Stack(
        *("LVM", "lvm", "lvm2", "dm_mod", ("/proc/misc", "device-mapper"), _KERNEL),
        *("lvm", "type", ("linear", "snapshot", "thin")),
    ),
    Stack(
        *("md (RAID)", "mdadm", "mdadm", "md_mod", ("/proc/mdstat", ""), _KERNEL),
        *("md", "level", ("0", "1", "5", "10")),
    ),
    Stack(
        "ZFS",
        "zpool",
        "zfsutils-linux",
        "zfs",
        ("/proc/filesystems", "zfs"),
        "apt-get install zfs-dkms   (Debian: in contrib)",
        *("zfs", "type", ("zvol", "dataset")),
    ),
    Stack("iSCSI initiator", "iscsiadm", "open-iscsi", "iscsi_tcp"),
    Stack(
        *("iSCSI target", "tgtadm", "tgt", "", ("", ""), "apt-get install tgt qemu-block-extra"),
        *("iscsi", "store", ("fileio-wb", "aio")),
    ),
    Stack(
        *("iSCSI target (LIO)", "iscsiadm", "open-iscsi", "iscsi_target_mod", ("", ""), _KERNEL),
        *("lio", "store", ("fileio", "fileio-wb", "blockio", "nullio")),
    ),
    Stack(
        *("NBD server", "qemu-nbd", "qemu-utils", "", ("", ""), "apt-get install qemu-utils"),
        *("nbd", "cache", ("writeback",)),
    ),
)


def examine_file_system(kind: FileSystem) -> Finding:
    """Make one, mount it through a loop device and write to it. Only root may."""
    name = f"{kind.name} on loop"
    program = find_tool(kind.make[0])
    if program is None:
        what = f"{kind.make[0]} is not installed"
        return Finding(name, "no", what, f"apt-get install {kind.package}")
    if not is_root():
        what = f"{kind.make[0]} is there, not tried: only root may mount"
        return Finding(name, "limited", what, "run diskproof doctor as root")
    arguments = [_COVERED, kind.name, program, *kind.make[1:]]
    shell = ["/bin/sh", "-c", _MAKE_AND_MOUNT, "sh", *arguments]
    failed = try_command([*namespace_args("--mount"), *shell])
    if failed:
        return Finding(name, "no", failed, _hint(failed, kind))
    return Finding(name, "yes", "made, mounted through a loop device and written to")


def _hint(failed: str, kind: FileSystem) -> str:
    if "loop device" in failed:
        return "modprobe loop"
    return _KERNEL if failed.startswith("mount:") else f"apt-get install {kind.package}"


def examine_loop(folder: Path) -> Finding:
    """A loop device over a file there."""
    name = "loop devices"
    if not is_root():
        return Finding(name, "limited", "not tried: only root may", "run diskproof doctor as root")
    try:
        with (
            start_disk_dir(_directory(folder), NO_CONSENT) as room,
            start_loop(make_file(room, 1 << 20)) as loop,
        ):
            return Finding(name, "yes", f"{loop.words} was made in {folder}")
    except DiskproofError as error:
        return Finding(name, "no", f"{error.what}: {error.why}", error.hint or "modprobe loop")


def examine_stack(stack: Stack, folder: Path) -> Finding:
    """Program and kernel; what is a backing is made on files in a folder."""
    kernel = find_kernel_part(stack)
    if find_tool(stack.program) is None:
        what, hint = f"{stack.program} is not installed", f"apt-get install {stack.package}"
        if not kernel:
            what, hint = f"{what}; the kernel has no {stack.module}", f"{hint}; {stack.kernel_hint}"
        return Finding(stack.name, "no", what, hint)
    if not kernel:
        what = f"{stack.program} is there, but the kernel has no {stack.module}"
        return Finding(stack.name, "no", what, stack.kernel_hint)
    found = f"{stack.program} is there; {kernel}"
    if not is_root():
        return Finding(stack.name, "limited", f"{found}; only root may use it", "run it as root")
    if not stack.backing:
        return Finding(stack.name, "yes", found)
    return _try_levels(stack, folder)


def _try_levels(stack: Stack, folder: Path) -> Finding:
    """Make one of each, small and sparse."""
    made, failed = [], []
    for level in stack.levels:
        try:
            with start_place(_small(stack, level, folder), NO_CONSENT) as place:
                proof = place.service.flushes if place.service else ""
                made.append(f"{level} ({proof})" if proof else level)
        except DiskproofError as error:
            failed.append(f"{level}: {error.what}: {error.why.replace(chr(10), '; ')}")
    what = f"{stack.factor} {', '.join(made)}: made in {folder} and removed"
    if not failed:
        return Finding(stack.name, "yes", what)
    told = "; ".join([*([what] if made else []), *failed])
    return Finding(stack.name, "limited" if made else "no", told, stack.kernel_hint)


def _small(stack: Stack, level: str, folder: Path) -> BackingSpec:
    defaults = {key: option.default_text for key, option in KINDS[stack.backing].options.items()}
    options = {**defaults, "size": str(_SMALL), stack.factor: level}
    return BackingSpec("doctor", stack.backing, tuple(options.items()), _directory(folder))


def _directory(folder: Path) -> BackingSpec:
    return BackingSpec("doctor", "directory", (("path", str(folder)),), make=True)


def find_kernel_part(stack: Stack) -> str:
    """How the kernel does its part, or empty when it cannot."""
    if not stack.module:
        return "it needs nothing of the kernel"
    file, word = stack.sign
    if file and _has_word(Path(file), word):
        return "the kernel has it"
    how = find_module(stack.module)
    return f"{stack.module}: {how}" if how else ""


def _has_word(path: Path, word: str) -> bool:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return False
    return not word or word in text.split()
