"""A small guest of what this host has: its kernel, copies of its programs, and ours.

It is for hosts with neither mmdebstrap nor a network. What it lacks is written down with it, and
its figures are kept apart: it is another system than the guest that is made of Debian packages.
"""

import hashlib
import json
import platform
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from diskproof.errors import HostError
from diskproof.guest.ours import build, kernel, root
from diskproof.guest.ours import cache_folder as cache
from diskproof.guest.ours.build import GuestFiles
from diskproof.guest.ours.squashfs import write_squashfs
from diskproof.process.start import find_tool, require_tool, run
from diskproof.records import content_id

RECIPE = 2
# Without these nothing runs in a guest; each is a program of coreutils, or any shell.
NEEDED = ("sh", "cat", "mkdir", "rm", "stty", "test")
USEFUL: Mapping[str, str] = {
    "fio": "workloads of fio",
    "dd": "workloads of dd",
    "env": "workloads of dd",
    "cp": "copies of trees",
    "insmod": "file systems in the guest",
    "mount": "file systems in the guest",
    "umount": "file systems in the guest",
    "mkfs.ext4": "ext4 in the guest",
    "mkfs.xfs": "xfs in the guest",
    "mkfs.btrfs": "btrfs in the guest",
    "sync": "copies of trees",
}
"""What it has where the host has it, and what cannot be run without."""
_SPACE = 1 << 30
_NEEDED_DRIVERS = ("virtio_blk", "squashfs")
# An ELF note of Xen's with the entry that QEMU starts an unpacked kernel at (PVH).
_PVH = re.compile(rb"\x04\0\0\0[\x04\x08]\0\0\0\x12\0\0\0Xen\0")


@dataclass(frozen=True)
class HostKernel:
    """A kernel image, and the folder of its modules, which has its release as name."""

    image: Path
    modules: Path

    @property
    def is_whole(self) -> bool:
        """Whether both are there."""
        return self.image.is_file() and (self.modules / "modules.builtin").is_file()


def find_host_kernel(
    boot: Path = Path("/boot"), modules: Path = Path("/lib/modules")
) -> HostKernel:
    """The running kernel if its files are here, else the newest whose are. Raises HostError."""
    releases = [
        platform.release(),
        *sorted((path.name for path in modules.glob("*")), reverse=True),
    ]
    for release in releases:
        folder = modules / release
        for image in (boot / f"vmlinuz-{release}", folder / "vmlinuz"):
            if (found := HostKernel(image, folder)).is_whole:
                return found
    raise HostError(
        "this host has no kernel for a guest",
        f"no vmlinuz in {boot} has its modules in {modules}",
        "name one: --kernel FILE --modules FOLDER",
    )


def build_minimal(found: HostKernel, progress: Callable[[str], None]) -> GuestFiles:
    """Make the minimal guest of a kernel and of what this host has; does nothing when it is there.

    Raises HostError when the kernel cannot be read, or lacks what any guest needs.
    """
    for name in NEEDED:
        require_tool(name, "coreutils")
    programs = {name: path for name in (*NEEDED, *USEFUL) if (path := find_tool(name))}
    folder = cache.cache_folder()
    with cache.full_disk_told(folder), cache.build_lock(folder, progress):
        cache.remove_unfinished(folder)
        base = folder / f"{build.MINIMAL}-{_inputs_id(found, programs)}"
        if not base.is_dir():
            cache.require_space(folder, _SPACE)
            with cache.new_folder(base) as unfinished:
                _fill(unfinished, found, programs, progress)
        progress("initramfs: agent, our programs and the modules for every bus")
        build.add_initrd(base)
    return build.read_guest(base)


def _inputs_id(found: HostKernel, programs: Mapping[str, str]) -> str:
    files = [str(found.image), *programs.values()]
    return content_id([RECIPE, found.modules.name, sorted(programs), *map(_digest, files)])


def _digest(file: str) -> str:
    try:
        with Path(file).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        hint = f"chmod a+r {file}, or once with sudo"
        raise HostError(f"cannot read {file}", error.strerror or "", hint) from None


def _fill(
    folder: Path, found: HostKernel, programs: Mapping[str, str], progress: Callable[[str], None]
) -> None:
    scratch = folder / "scratch"
    tree = scratch / "root"
    tree.mkdir(parents=True)
    modules = kernel.read_modules(found.modules)
    progress(f"kernel: {modules.release} of this host, sorting its modules")
    (folder / "kernel").write_bytes(read_kernel(found.image, scratch))
    drivers, no_drivers = sort_names(modules, kernel.CHANNEL + kernel.DRIVES)
    for name in {*kernel.CHANNEL, *_NEEDED_DRIVERS} & set(no_drivers):
        kernel.load_order(modules, name)  # raises, and says what is missing
    build.write_modules(folder / "modules", modules, drivers)
    in_root, not_in_root = sort_names(modules, kernel.root_modules(""))
    progress(f"root: {', '.join(programs)} of this host with their libraries")
    placed = root.place_modules(tree, modules, in_root)
    copy_programs(tree, programs)
    lacks = [f"{name} ({USEFUL[name]})" for name in USEFUL if name not in programs]
    lacks += [f"module {name}" for name in (*no_drivers, *not_in_root)]
    facts = {"kernel_release": modules.release, "suite": "", "root_modules": placed}
    has = [*programs, *(f"module {name}" for name in (*drivers, *in_root))]
    more = {"kind": build.MINIMAL, "has": has, "lacks": lacks}
    (folder / "guest.json").write_text(json.dumps(facts | more, indent=1))
    write_squashfs(tree, folder / "root.squashfs")
    shutil.rmtree(scratch)


def sort_names(
    modules: kernel.KernelModules, names: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those that a kernel has, as modules or built in, and those that it has not."""
    known = modules.builtin | modules.files.keys()
    there = tuple(name for name in names if name in known)
    return there, tuple(name for name in names if name not in known)


def read_kernel(image: Path, scratch: Path) -> bytes:
    """What QEMU boots: the kernel unpacked, where it can be entered so, else as it is."""
    content = image.read_bytes()
    if content.startswith(b"\x7fELF"):
        return content
    try:
        unpacked = kernel.unpack_kernel(content, scratch)
    except HostError:
        kernel.find_payload(content)  # raises for what is no kernel at all
        return content
    return unpacked if _PVH.search(unpacked) else content


def copy_programs(tree: Path, programs: Mapping[str, str]) -> None:
    """Programs and the libraries they load into a root, where their loader looks for them."""
    for name in ("dev", *root.MOUNT_POINTS, "usr/bin"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    for name, path in programs.items():
        shutil.copyfile(path, tree / "usr/bin" / name)
        (tree / "usr/bin" / name).chmod(0o755)
        for library in find_libraries(path):
            place = tree / library.relative_to("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, place)
    if not (tree / "bin").exists():
        (tree / "bin").symlink_to("usr/bin")
    for name, content in root.ACCOUNTS.items():
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text(content)
    (tree / "etc/mtab").symlink_to("/proc/self/mounts")


def find_libraries(program: str) -> Iterator[Path]:
    """What the loader loads for a program, itself included; nothing for a static one."""
    told = run([require_tool("ldd", "libc-bin"), program], timeout=60, check=False).text
    for path in re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", told, re.MULTILINE):
        yield Path(path)
