"""The guest's read-only root: a squashfs image with the tools."""

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from diskproof.guest.ours import server_root
from diskproof.guest.ours.kernel import KernelModules, load_order
from diskproof.process.start import require_tool, run
from diskproof.study.guest_root import split_root

# Measured in an emulated guest: the first start of fio takes 1.0 s from lz4, 1.4 s from zstd at
# level 3 and as long as from lz4 when nothing is compressed, at 93, 68 and 182 MiB.
COMPRESSION = ("-comp", "lz4", "-b", "128K")
MOUNT_POINTS = ("proc", "sys", "dev", "tmp", "run", "mnt", "root")
MODULE_FOLDER = "usr/lib/diskproof/modules"
MAKE_FILE_SYSTEM: Mapping[str, tuple[str, ...]] = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0"),  # else ext4's thread flushes
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
    "f2fs": ("mkfs.f2fs", "-q", "-f"),
}
SERVERS = "servers"
_PYTHON_UNUSED = (
    *("usr/lib/python3*/ensurepip", "usr/lib/python3*/idlelib", "usr/lib/python3*/lib2to3"),
    *("usr/lib/python3*/pydoc_data", "usr/lib/python3*/test", "usr/lib/python3*/tkinter"),
)
UNUSED = (
    "boot",
    "lib/modules",
    "usr/lib/modules",
    "usr/lib/python3*",
    "usr/share/doc",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/perl*",
    "var",
)
# PostgreSQL loads its compiler of queries (JIT) only for large ones, and ours are not.
EXTRA_UNUSED: Mapping[str, tuple[str, ...]] = {
    "postgres": ("usr/lib/*/libLLVM*", "usr/lib/*/libz3.so*", "usr/lib/llvm*"),
    SERVERS: server_root.UNUSED,
    "storage": _PYTHON_UNUSED,
    "zfs": _PYTHON_UNUSED,
}
# What an extra needs of what the others do not.
EXTRA_USED: Mapping[str, tuple[str, ...]] = {
    "storage": ("usr/lib/python3*",),
    "zfs": ("usr/lib/python3*",),
}
# Beside packages that somebody listed all else stays: nobody knows what they count on.
UNUSED_BESIDE = (
    *("boot", "lib/modules", "usr/lib/modules", "usr/share/doc", "usr/share/info"),
    *("usr/share/lintian", "usr/share/locale", "usr/share/man"),
    *("var/cache/apt", "var/lib/apt", "var/lib/dpkg"),
)
# Programs look names up; root and nobody are who they run as.
ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/nonexistent:/bin/false\n",
    "etc/group": "root:x:0:\ndisk:x:6:\nnogroup:x:65534:\n",
}


def place_modules(
    root: Path, modules: KernelModules, names: Iterable[str]
) -> Mapping[str, tuple[str, ...]]:
    """Copy modules to where the guest's insmod finds them.

    Gives for each name the paths in the guest, in load order.
    """
    folder = root / MODULE_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    placed = {}
    for name in names:
        files = [modules.files[needed] for needed in load_order(modules, name)]
        for file in files:
            shutil.copyfile(file, folder / file.name)
        placed[name] = tuple(f"/{MODULE_FOLDER}/{file.name}" for file in files)
    return placed


def unused_of(extra: str) -> tuple[str, ...]:
    """What of the packages no guest of this kind needs, as patterns."""
    kind, listed = split_root(extra)
    if listed:
        return UNUSED_BESIDE
    used = EXTRA_USED.get(kind, ())
    return (*(name for name in UNUSED if name not in used), *EXTRA_UNUSED.get(kind, ()))


def merge_usr(root: Path) -> None:
    """The links into usr that packages count on."""
    for name in ("bin", "sbin", "lib", "lib64"):
        if not (root / name).exists() and (root / "usr" / name).exists():
            (root / name).symlink_to(f"usr/{name}")


def prepare_root(root: Path, extra: str) -> None:
    """Turn unpacked packages into a root: what their maintainer scripts would have done."""
    for pattern in unused_of(extra):
        for path in root.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    merge_usr(root)
    for name in MOUNT_POINTS:
        (root / name).mkdir(exist_ok=True)
    kind, listed = split_root(extra)
    serves = kind == SERVERS
    more = server_root.ACCOUNTS if serves else {}
    for name, content in ACCOUNTS.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(content + more.get(name, ""))
    if serves:
        server_root.complete_root(root)
    if listed and not os.path.lexists(root / "usr/bin/awk"):
        (root / "usr/bin/awk").symlink_to("mawk")
    compile_python(root, known=not listed)
    mounts = root / "etc" / "mtab"
    mounts.unlink(missing_ok=True)
    mounts.symlink_to("/proc/self/mounts")


def compile_python(root: Path, *, known: bool = True) -> None:
    """What a maintainer script would have done with Python's modules: in an emulated guest it
    takes a minute at each start. The root's own Python does it, with its own libraries. Packages
    that are not ``known`` may have files of other Pythons, which it cannot compile."""
    python = root / "usr/bin/python3"
    folders = [str(path) for path in root.glob("usr/lib/python3*")]
    if not (python.exists() and folders):
        return
    libraries = [*root.glob("lib/*-linux-gnu"), *root.glob("usr/lib/*-linux-gnu")]
    (loader, *_) = [file for folder in libraries for file in folder.glob("ld-linux*.so.2")]
    argv = [str(loader), "--library-path", ":".join(map(str, libraries)), str(python)]
    # By hash and unchecked: dates may change on the way.
    how = ["-qq", "-s", str(root), "-p", "/", "--invalidation-mode", "unchecked-hash"]
    settings = {"PYTHONHOME": str(root / "usr"), "LC_ALL": "C"}
    run([*argv, "-m", "compileall", *how, *folders], timeout=600, env=settings, check=known)


def pack_root(root: Path, image: Path) -> None:
    """Write the image; everything in it belongs to root, whoever built it."""
    mksquashfs = require_tool("mksquashfs", "squashfs-tools")
    options = ["-noappend", "-all-root", "-no-xattrs", "-no-progress", *COMPRESSION]
    run([mksquashfs, str(root), str(image), *options], timeout=900)
