"""Where images could live here: file systems that can be made, volume managers, iSCSI."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from diskproof.host.kernel_findings import find_module, is_root, namespace_args, try_command
from diskproof.proc import find_tool
from diskproof.records import Finding

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
    """

    name: str
    program: str
    package: str
    module: str = ""
    sign: tuple[str, str] = ("", "")
    kernel_hint: str = _KERNEL


STACKS = (
    Stack("LVM", "lvm", "lvm2", "dm_mod", ("/proc/misc", "device-mapper")),
    Stack("md (RAID)", "mdadm", "mdadm", "md_mod", ("/proc/mdstat", "")),
    Stack(
        "ZFS",
        "zpool",
        "zfsutils-linux",
        "zfs",
        ("/proc/filesystems", "zfs"),
        "apt-get install zfs-dkms   (Debian: in contrib)",
    ),
    Stack("iSCSI initiator", "iscsiadm", "open-iscsi", "iscsi_tcp"),
    Stack("iSCSI target", "tgtadm", "tgt"),
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


def examine_stack(stack: Stack) -> Finding:
    """Program and kernel; nothing is made, for that would be seen by the whole host."""
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
    return Finding(stack.name, "yes", found)


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
