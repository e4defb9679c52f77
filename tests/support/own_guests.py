"""A small Debian with QEMU's guest agent, as somebody's own virtual machine, for tests.

Built once by mmdebstrap with the recipe's hash for a name, beside the built guests. It boots by
direct kernel boot: the guest's kernel and the initramfs of the base images of ``boots``.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from diskproof.guest.debian.system import (
    _drivers,
    _make_filesystem,
    _mode_args,
    _owner_args,
    _render_initrd,
)
from diskproof.guest.ours import cache_folder as cache
from diskproof.guest.ours import packages
from diskproof.guest.ours.build import GuestFiles
from diskproof.process.start import run
from diskproof.records import content_id

PACKAGES = ("busybox-static", "e2fsprogs", "fio", "kmod", "qemu-guest-agent", "udev")
SIZE = 768 << 20
INIT = """\
#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
/bin/busybox mount -o remount,rw /
for module in {modules}; do insmod "/modules/$module.ko"; done
mkdir -p /run/qemu /dev/pts
/usr/lib/systemd/systemd-udevd --daemon
udevadm trigger
udevadm settle
for word in $(cat /proc/cmdline); do
    [ "$word" = no-agent ] && {{ echo "nobody home" > /dev/console; while :; do sleep 1000; done; }}
done
qemu-ga --daemonize --retry-path || qemu-ga --daemonize
while :; do sleep 1000; done
"""
_UNUSED = ("/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*")


@dataclass(frozen=True)
class OwnDebian:
    """``image`` is raw; ``table`` is what a study's [guest] says of it, without the image."""

    image: Path
    table: str


def build_own_debian(guest: GuestFiles) -> OwnDebian:
    """The image, from the cache or built now (some 40 s)."""
    suite = packages.require_suite()
    name = f"own-{content_id([suite, PACKAGES, SIZE, INIT, guest.id])}"
    folder = cache.cache_folder() / name
    _make_once(folder, lambda: _build(folder, suite, guest))
    drivers = ",".join(_drivers(guest)["virtio-blk"])
    append = (
        f"console=ttyS0 quiet panic=-1 no_timer_check root=/dev/vda diskproof.drivers={drivers}"
    )
    table = (
        f'kernel = "{guest.kernel}"\ninitrd = "{folder / "initrd.cpio"}"\n'
        f'append = "{append}"\nsettle = "0s"\nboot_timeout = "400s"\n'
    )
    return OwnDebian(folder / "disk.raw", table)


def find_efi_kernel(guest: GuestFiles) -> Path:
    """The guest's kernel as Debian packs it, which is a program of EFI's too; fetched once."""
    name = f"linux-image-{guest.kernel_release}"
    folder = cache.cache_folder() / f"efi-{content_id([name, guest.id])}"
    _make_once(folder, lambda: _unpack_kernel(folder, name, guest))
    return folder / "vmlinuz"


def _make_once(folder: Path, make: Callable[[], None]) -> None:
    """Whoever waited for another that made it has it."""
    if not folder.is_dir():
        with cache.build_lock(cache.cache_folder(), lambda _: None):
            if not folder.is_dir():
                make()


def _unpack_kernel(folder: Path, name: str, guest: GuestFiles) -> None:
    with cache.new_folder(folder) as made:
        tree = made / "scratch" / "root"
        tree.parent.mkdir()
        packages.extract_packages(packages.require_suite(), [name], tree)
        shutil.copy(tree / "boot" / f"vmlinuz-{guest.kernel_release}", made / "vmlinuz")
        shutil.rmtree(tree.parent)


def _build(folder: Path, suite: str, guest: GuestFiles) -> None:
    with cache.new_folder(folder) as work:
        scratch = work / "scratch"
        tree = scratch / "root"
        tree.mkdir(parents=True)
        packed = scratch / "root.tar"
        argv = [
            *_mode_args(),
            "--variant=essential",
            "--format=tar",
            f"--include={','.join(PACKAGES)}",
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in _UNUSED),
            *packages.fetch_options(scratch / "apt.conf"),
            suite,
            str(packed),
            *packages.find_sources(suite),
        ]
        run(argv, timeout=600, env=packages.environment({"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}))
        owners = _owner_args(scratch / "owners")
        unpack = ["tar", "--numeric-owner", "--exclude=./dev/*", "-xf", str(packed), "-C"]
        run([*owners, *unpack, str(tree)], timeout=300)
        busybox = (tree / "bin/busybox").read_bytes()
        (work / "initrd.cpio").write_bytes(_render_initrd(busybox, guest, scratch))
        # The drivers of every bus: the image has no modules of its own.
        names = list(dict.fromkeys(name for each in _drivers(guest).values() for name in each))
        script = 'cd "$0" && mkdir modules && bin/busybox cpio -i "modules/*" < "$1"'
        run(["sh", "-c", script, str(tree), str(work / "initrd.cpio")], timeout=60)
        for path in (tree / "sbin/init", tree / "usr/sbin/init"):
            path.unlink(missing_ok=True)
        init = tree / "usr/sbin/init"
        init.write_text(INIT.format(modules=" ".join(names)))
        init.chmod(0o755)
        _make_filesystem(tree, work / "disk.raw", SIZE, owners)
        shutil.rmtree(scratch)
