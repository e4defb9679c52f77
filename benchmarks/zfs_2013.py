"""``studies/zfs-2013.toml`` run for real, in small, where the host itself has no OpenZFS.

A Debian with QEMU, fio and OpenZFS's tools is installed on a disk, with this lab and its own guest,
and the guest with ZFS (``diskproof guest build --with zfs``) runs the study from there. QEMU's
storage daemon stands for the guests: they would be emulated twice here. ``--guests`` runs a handful
of them all the same, on a machine with nothing else to do. Figures of such a machine say nothing of
storage; the order of flushes, what ZFS's cache answers and the space that blocks take are what they
are elsewhere.

Requires root, mmdebstrap, e2fsprogs, 4 GiB in ``--room`` (kept for the next time), 5 GiB of memory.
"""

import argparse
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from diskproof.guest.ours import packages
from diskproof.guest.ours.boot import Guest, start_guest
from diskproof.guest.ours.build import build_guest, require_guest
from diskproof.guest.ours.cache_folder import cache_folder
from diskproof.guest.ours.kernel import EXTRA_MODULES
from diskproof.host.accel import probe_accel
from diskproof.process.start import run
from diskproof.qemu.disk import second_disk_args
from diskproof.qemu.machine import GuestMachine

ROOT = Path(__file__).resolve().parents[1]
STUDY = ROOT / "studies" / "zfs-2013.toml"
INSTALLED = (
    *("coreutils", "e2fsprogs", "fio", "iproute2", "kmod", "mount", "python3", "qemu-system-x86"),
    *("qemu-system-common", "qemu-utils", "util-linux", "zfsutils-linux"),
)
DISK_BYTES = 14 << 30  # sparse: what RAIDZ1 of four takes, and its files
MEMORY = 5 << 30
SETUP = """export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t tmpfs room /mnt; mkdir /mnt/lab
for disk in /dev/vd?; do mount -t ext4 "$disk" /mnt/lab 2> /dev/null && break; done
cd /mnt/lab
ln -sf /proc/self/fd /dev/fd
mount --rbind /dev dev; mount --rbind /sys sys; mount -t proc proc proc
mount -t tmpfs run run; mount -t tmpfs tmp tmp; ip link set lo up
"""
TRY = f"""cd /root; mkdir -p diskproof-images; rm -f diskproof.sqlite*
export HOME=/root TERM=dumb PATH={ROOT}/.venv/bin:/usr/sbin:/usr/bin:/sbin:/bin
diskproof run study.toml; diskproof rank; echo "ended $?"
"""
SMALL: Mapping[str, str] = {
    r', "rand-\w+-(512k|1m)-d1"': "",
    r"(?m)^blocks = .*": "blocks = 1",
    r"(?m)^size = .*": 'size = "64MiB"',
    r"(?m)^runtime = .*": 'runtime = "2s"',
    r"(?m)^ramp = .*": 'ramp = "0s"',
}
"""What is longer in the study, by regular expression; two of its block sizes are left out."""
BY_DAEMON: Mapping[str, str] = {r'"guest"': '"daemon"', r"(?m)^(bus|memory) = .*\n": ""}
BY_GUESTS: Mapping[str, str] = {
    r"(?s)workloads = \[.*?\]": 'workloads = ["rand-write-4k-d1"]',
    r"(?m)^(backing = ).*one-zvol.*": r'\1["bare", "one-zvol", "one-dataset"]',
    r'(?m)^backing = \["one-dataset".*': 'backing = ["one-dataset"]',
    r"(?m)^cache = .*": 'cache = ["writeback"]',
    r"(?m)^memory = .*": 'memory = "192M"',
    r"(?m)^size = .*": 'size = "16MiB"',
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--room", type=Path, required=True)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--guests", action="store_true")
    options = parser.parse_args()
    options.room.mkdir(exist_ok=True)
    options.room.chmod(0o755)
    tree, disk = options.room / "tree", options.room / "disk.raw"
    if not tree.is_dir():
        install(tree)
    install_lab(tree, write_study(BY_GUESTS if options.guests else BY_DAEMON))
    disk.unlink(missing_ok=True)
    run(["mkfs.ext4", "-q", "-d", str(tree), str(disk), str(DISK_BYTES >> 10)], timeout=600)
    handle = os.open(disk, os.O_RDWR)
    machine = GuestMachine(
        probe_accel().accel,
        vcpus=2,
        memory_bytes=MEMORY,
        disk_args=tuple(second_disk_args(handle, device=False, direct=False)),
        disk_fds=(handle,),
    )
    with start_guest(build_guest(extra="zfs"), machine, run_dir=options.room) as guest:
        guest.load_modules(["ext4", "loop", *EXTRA_MODULES["zfs"]])
        last = ""
        for text in try_in(guest, options.hours * 3600):
            print(text, end="", flush=True)
            last = text
        guest.power_off()
    return 0 if last.endswith("ended 0\n") else 1


def write_study(changes: Mapping[str, str]) -> str:
    text = STUDY.read_text()
    for pattern, new in {**SMALL, **changes}.items():
        text, count = re.subn(pattern, new, text)
        if not count:
            raise SystemExit(f"the study has no {pattern}")
    return text


def install(tree: Path) -> None:
    """Debian's essential packages and ours, configured."""
    suite, room = packages.require_suite(), tree.parent
    sources = packages.with_component(packages.find_sources(suite), "contrib", room / "sources")
    argv = [
        *("mmdebstrap", "--mode=root", "--variant=essential", "--format=directory"),
        f"--include={','.join(INSTALLED)}",
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        *packages.fetch_options(room / "apt.conf"),
        *(suite, str(tree), *sources),
    ]
    run(argv, timeout=1800, env=packages.environment(os.environ))


def install_lab(tree: Path, study: str) -> None:
    """What this process runs from, at the same place, on Debian's Python; and its guest."""
    inside = tree / ROOT.relative_to("/")
    shutil.rmtree(inside, ignore_errors=True)
    venv = Path(sys.prefix)
    if venv != ROOT / ".venv":
        raise SystemExit(f"run it with {ROOT}/.venv/bin/python")
    shutil.copytree(ROOT / "src", inside / "src")
    shutil.copytree(venv, inside / ".venv", symlinks=True)
    for link in (inside / ".venv/bin").glob("python*"):
        link.unlink()
    (inside / ".venv/bin/python").symlink_to("/usr/bin/python3")
    (inside / ".venv/pyvenv.cfg").write_text("home = /usr/bin\n")
    guest = require_guest()
    home = tree / "root/.cache/diskproof/guest" / guest.kernel.parent.relative_to(cache_folder())
    if not home.is_dir():
        shutil.copytree(guest.kernel.parent, home)
    (tree / "root/study.toml").write_text(study)
    (tree / "root/try.sh").write_text(TRY)


def try_in(guest: Guest, seconds: float) -> Iterator[str]:
    """What the study says, as it says it."""
    done = guest.channel.exec(["sh", "-c", SETUP], timeout=120)
    print(done.stderr.decode(), end="", file=sys.stderr)
    command = "setsid sh /root/try.sh < /dev/null > /root/told 2>&1"
    argv = ["chroot", "/mnt/lab", "sh", "-c", command]
    guest.channel.start_exec(argv, timeout=seconds)
    told, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(5)
        argv = ["sh", "-c", f"tail -c +{told + 1} /mnt/lab/root/told | head -c 65536"]
        text = guest.channel.exec(argv, timeout=60).stdout
        told += len(text)
        if text:
            yield text.decode("utf-8", "replace")
        if re.search(rb"(?m)^ended \d+$", text):
            return


if __name__ == "__main__":
    raise SystemExit(main())
