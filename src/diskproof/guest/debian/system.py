"""The base image of a study of boots: a Debian that boots by its own init from its own disk.

Two levels like those of the guest: the packages, configured by Debian's own scripts, as one
tarball; from it an ext4 image for each size of disk and payload, which costs seconds. The kernel
is the guest's, which QEMU starts directly; a small initramfs mounts the root and hands over.
"""

import io
import math
import os
import random
import shutil
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from diskproof.errors import HostError, RunFailure
from diskproof.guest.debian import system_scripts
from diskproof.guest.ours import cache_folder as cache
from diskproof.guest.ours import cpio, packages
from diskproof.guest.ours.build import GuestFiles, require_guest
from diskproof.guest.ours.kernel import read_module
from diskproof.process.start import require_tool, run
from diskproof.qemu.machine import BUS_DRIVERS
from diskproof.records import WorkloadSpec, content_id
from diskproof.study import boots
from diskproof.units import render_bytes

RECIPE = 1  # raise it when the steps below change what comes out
PACKAGES = ("busybox-static", "e2fsprogs", "sysvinit-core")
SPACE_NEEDED = 1 << 30
CHANNEL_DRIVERS = ("virtio_pci", "virtio_console")
_UNUSED = ("/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*")
_BUSYBOX = "./bin/busybox"


@dataclass(frozen=True)
class SystemFiles:
    """A built base image (raw) with its kernel and initramfs. ``drivers`` are the modules that the
    initramfs loads for each bus. ``root`` is None: the disk under test is it."""

    kernel: Path
    initrd: Path
    image: Path
    id: str
    drivers: Mapping[str, tuple[str, ...]]
    root: None = None


def build_system(
    spec: WorkloadSpec, progress: Callable[[str], None] = lambda _: None
) -> SystemFiles:
    """The base image for a workload's ``size`` and ``scale``; what is missing of it is built.

    Raises HostError when the host lacks a tool, space, packages or the guest.
    """
    guest, suite, final = _locate(spec)
    folder = final.parent
    size, scale = int(spec.option("size")), boots.parse_scale(spec.option("scale"))
    if not final.is_dir():
        with cache.build_lock(cache.cache_folder(), progress):
            cache.remove_unfinished(cache.cache_folder())
            if not folder.is_dir():
                _build_debian(folder, suite, progress)
            if not final.is_dir():
                progress(f"base image: ext4 of {render_bytes(size)} with its payload")
                _build_image(final, folder / "root.tar", guest, size, scale)
    return require_system(spec)


def require_system(spec: WorkloadSpec) -> SystemFiles:
    """The built base image of a workload. Raises HostError when it is not there."""
    guest, _, final = _locate(spec)
    if not os.access(final / "disk.raw", os.R_OK):
        raise HostError("the base image is not built", f"it is not in {final.parent}")
    return SystemFiles(
        kernel=guest.kernel,
        initrd=final / "initrd.cpio",
        image=final / "disk.raw",
        id=f"{final.parent.name}-{final.name}",
        drivers=_drivers(guest),
    )


def _locate(spec: WorkloadSpec) -> tuple[GuestFiles, str, Path]:
    """The guest whose kernel is used, the suite, and the folder of the base image."""
    guest, suite = require_guest(), packages.require_suite()
    if "ext4" not in guest.root_modules:
        what = f"the {guest.kind} guest boots no other system"
        raise HostError(what, "it has no module ext4", "diskproof guest build")
    shape = [RECIPE, spec.option("size"), spec.option("scale"), guest.id, _script_texts()]
    name = f"disk-{content_id(shape)}"
    return guest, suite, cache.cache_folder() / _debian_id(suite) / name


def _debian_id(suite: str) -> str:
    return "system-" + content_id([RECIPE, suite, PACKAGES, _UNUSED])


def _script_texts() -> list[str]:
    """All that is in there: whatever changes makes another image."""
    return [getattr(system_scripts, name) for name in dir(system_scripts) if name.isupper()]


def _build_debian(folder: Path, suite: str, progress: Callable[[str], None]) -> None:
    """Debian's essential packages and ours, configured: as root in a chroot, else in a user
    namespace."""
    cache.require_space(folder.parent, SPACE_NEEDED)
    with cache.new_folder(folder) as work:
        progress(f"packages: installing a Debian {suite} that boots (about a minute)")
        scratch = work / "scratch"
        scratch.mkdir()
        argv = [
            *_mode_args(),
            "--variant=essential",
            "--format=tar",
            f"--include={','.join(PACKAGES)}",
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in _UNUSED),
            *packages.fetch_options(scratch / "apt.conf"),
            suite,
            str(work / "root.tar"),
            *packages.find_sources(suite),
        ]
        environment = {**packages.environment(os.environ), "TMPDIR": str(scratch)}
        try:
            run(argv, timeout=packages.FETCH_SECONDS, env=environment)
        except RunFailure as failure:
            raise HostError(
                "the base image's packages cannot be installed",
                failure.why or failure.what,
                "check that apt-get update works; without root, that user namespaces and "
                "subordinate ids (/etc/subuid) are there",
            ) from failure
        shutil.rmtree(scratch)


def _mode_args() -> list[str]:
    """mmdebstrap in namespaces of its own. Without, a killed one leaves the host's /dev, /proc and
    /sys mounted in its folder, and who clears that up clears them up too."""
    mmdebstrap = require_tool("mmdebstrap", "mmdebstrap")
    if os.geteuid() != 0:
        return [mmdebstrap, "--mode=unshare"]
    namespaces = ["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
    return [require_tool("unshare", "util-linux"), *namespaces, "--", mmdebstrap, "--mode=root"]


def _build_image(final: Path, packed: Path, guest: GuestFiles, size: int, scale: float) -> None:
    cache.require_space(final.parent, SPACE_NEEDED + boots.payload_bytes(scale) * 2)
    with cache.new_folder(final) as work:
        scratch = work / "scratch"
        tree = scratch / "root"
        tree.mkdir(parents=True)
        owners = _owner_args(scratch / "owners")
        # The kernel brings devices; making them takes a privilege.
        unpack = ["tar", "--numeric-owner", "--exclude=./dev/*", "-xf", str(packed), "-C"]
        run([*owners, *unpack, str(tree)], timeout=300)
        _place_scripts(tree)
        write_payload(tree / system_scripts.PAYLOAD.lstrip("/"), scale)
        _make_filesystem(tree, work / "disk.raw", size, owners)
        busybox = (tree / _BUSYBOX).read_bytes()
        (work / "initrd.cpio").write_bytes(_render_initrd(busybox, guest, scratch))
        shutil.rmtree(scratch)


def _owner_args(state: Path) -> list[str]:
    """Who is not root has files of other owners only as fakeroot tells it, kept in ``state``."""
    if os.geteuid() == 0:
        return []
    state.touch()
    return [require_tool("fakeroot", "fakeroot"), "-i", str(state), "-s", str(state), "--"]


def _place_scripts(tree: Path) -> None:
    (tree / system_scripts.COUNTER.lstrip("/")).parent.mkdir(parents=True)
    for name, text, mode in (
        ("etc/fstab", system_scripts.FSTAB, 0o644),
        ("etc/inittab", system_scripts.INITTAB, 0o644),
        ("etc/hostname", "diskproof\n", 0o644),
        (system_scripts.SYSINIT_SCRIPT, system_scripts.SYSINIT, 0o755),
        (system_scripts.SCRIPT, system_scripts.BOOT, 0o755),
        (system_scripts.HALT_SCRIPT, system_scripts.HALT, 0o755),
    ):
        path = tree / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)


def _make_filesystem(tree: Path, image: Path, size: int, owners: Sequence[str]) -> None:
    """No work is left for the guest's kernel to do later, beside the load (lazy init); blocks of
    one size, which mkfs would choose by the disk's."""
    mkfs = require_tool("mkfs.ext4", "e2fsprogs")
    late = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
    argv = [
        *(mkfs, "-q", "-b", "4096", "-L", system_scripts.LABEL, "-E", late),
        *("-d", str(tree), str(image)),
    ]
    try:
        run([*owners, *argv, f"{size >> 10}k"], timeout=600)
    except RunFailure as failure:
        raise HostError(
            f"a disk of {render_bytes(size)} cannot hold the base image",
            failure.why,
            "set a larger size, or a smaller scale",
        ) from failure


def _drivers(guest: GuestFiles) -> dict[str, tuple[str, ...]]:
    """For each bus the modules that the initramfs loads, in order."""
    listing = (guest.kernel.parent / "modules" / "deps.list").read_text().splitlines()
    orders = {
        name: [file.removesuffix(".ko") for file in files.split()]
        for name, _, files in (line.partition(":") for line in listing)
    }
    ext4 = [Path(path).name.partition(".ko")[0] for path in guest.root_modules["ext4"]]
    return {
        bus: tuple(
            dict.fromkeys(
                [needed for name in (*CHANNEL_DRIVERS, *drivers) for needed in orders[name]] + ext4
            )
        )
        for bus, drivers in BUS_DRIVERS.items()
    }


def _render_initrd(busybox: bytes, guest: GuestFiles, scratch: Path) -> bytes:
    """busybox, our script as /init, and every module that some bus needs."""
    unsquashfs = require_tool("unsquashfs", "squashfs-tools")
    wanted = [path.lstrip("/") for path in guest.root_modules["ext4"]]
    out = scratch / "modules"
    run([unsquashfs, "-q", "-n", "-d", str(out), str(guest.root), *wanted], timeout=60)
    modules = {path.name: path for path in (guest.kernel.parent / "modules").glob("*.ko")}
    modules |= {Path(name).name: out / name for name in wanted}
    entries = [
        *(cpio.directory_entry(name) for name in ("bin", "dev", "modules")),
        cpio.device_entry("dev/console", 5, 1),
        cpio.file_entry("init", system_scripts.EARLY_INIT.encode(), 0o755),
        cpio.file_entry("bin/busybox", busybox, 0o755),
    ]
    for name, path in sorted(modules.items()):
        plain = name.partition(".ko")[0]
        entries.append(cpio.file_entry(f"modules/{plain}.ko", read_module(path)))
    return cpio.render_cpio(entries)


SEED = 20120601
_SIGMA = 1.4  # of the log-normal sizes: median 4.5 KB, some above 200 KB
_LARGEST = 2 << 20


def write_payload(path: Path, scale: float) -> None:
    """Write the tarball, not packed: an emulated processor would measure its unpacking."""
    source = random.Random(SEED)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(boots.payload_files(scale)):
            if number % boots.FOLDER_FILES == 0:
                folder = f"linux/part{number // 1000}/dir{number // boots.FOLDER_FILES}"
                tar.addfile(_member(folder, tarfile.DIRTYPE, 0))
            content = source.randbytes(_size(source))
            member = _member(f"{folder}/file{number}.c", tarfile.REGTYPE, len(content))
            tar.addfile(member, io.BytesIO(content))


def _size(source: random.Random) -> int:
    """Log-normal, its mean ``MEAN_BYTES``."""
    mu = math.log(boots.MEAN_BYTES) - _SIGMA**2 / 2
    return min(_LARGEST, round(source.lognormvariate(mu, _SIGMA)))


def _member(name: str, kind: bytes, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    member.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    return member
