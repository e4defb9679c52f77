"""The guest with OpenZFS: its modules are those of its kernel, and they keep data.

Requires qemu-system-x86_64 and what builds that guest (some minutes the first time;
``diskproof guest build --with zfs``).
"""

from pathlib import Path

import pytest

from diskproof.errors import RunFailure
from diskproof.guest.ours.boot import start_guest
from diskproof.guest.ours.build import GuestFiles
from diskproof.guest.ours.kernel import EXTRA_MODULES
from diskproof.host.accel import probe_accel
from diskproof.qemu.machine import GuestMachine

SECONDS = 300.0
SCRIPT = """
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mkdir /run/pool /run/files
mount -t tmpfs -o size=600m pool /run/pool
cd /run/pool
truncate -s 512M device
head -c 3145728 /dev/urandom > data
device=$(losetup --show --find device)
zpool create -o cachefile=none -O mountpoint=legacy tried "$device"
zfs create tried/files
zfs create -s -V 64M tried/volume
mount -t zfs tried/files /run/files
cp data /run/files/data
until [ -b /dev/zd0 ]; do :; done
dd if=data of=/dev/zd0 bs=1M conv=notrunc,fsync 2> /dev/null
umount /run/files
zpool export tried
! zpool list -H tried 2> /dev/null
zdb -l "$device" | head -1
zpool import -d /dev -o cachefile=none tried
mount -t zfs tried/files /run/files
until [ -b /dev/zd0 ]; do :; done
dd if=/dev/zd0 of=volume bs=1M count=3 2> /dev/null
for copy in data /run/files/data volume; do sha256sum < $copy; done | sort -u
zpool scrub -w tried
zpool status -x tried
zpool version
"""


def test_a_pool_is_exported_imported_and_read_back(zfs_files: GuestFiles, run_dir: Path) -> None:
    machine = GuestMachine(probe_accel().accel, memory_bytes=1 << 30)
    with start_guest(zfs_files, machine, run_dir=run_dir) as guest:
        guest.load_modules(["loop", *EXTRA_MODULES["zfs"]])
        done = guest.channel.exec(["sh", "-euc", SCRIPT], timeout=SECONDS)
        told = (done.stdout + done.stderr).decode("utf-8", "replace")
        assert done.exit.code == 0, told
        lines = done.stdout.decode().splitlines()
        assert "pool 'tried' is healthy" in lines
        assert sum(line.endswith("  -") for line in lines) == 1, told  # one content
        # The tools say their own version and the module's; the same sources made both.
        versions = {line.removeprefix("zfs-kmod-").removeprefix("zfs-") for line in lines[-2:]}
        assert len(versions) == 1, told
        guest.power_off()


def test_a_guest_without_it_names_the_one_that_has_it(
    guest_files: GuestFiles, run_dir: Path
) -> None:
    machine = GuestMachine(probe_accel().accel, memory_bytes=256 << 20)
    with start_guest(guest_files, machine, run_dir=run_dir) as guest:
        with pytest.raises(RunFailure, match="has no module zfs") as caught:
            guest.load_modules(["zfs"])
        assert caught.value.hint == "diskproof guest build --with zfs"
        guest.power_off()
