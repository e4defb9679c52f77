"""The kernel's own dm-log-writes, in a guest that has it, against our reader of its logs.

Requires qemu-system-x86_64 and the guest with LVM (``diskproof guest build --with storage``).
"""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from diskproof.crash.block_log_import import import_log
from diskproof.guest.ours.boot import start_guest
from diskproof.guest.ours.build import build_guest
from diskproof.host.accel import probe_accel
from diskproof.process.native import require_native
from diskproof.qemu.disk import second_disk_args
from diskproof.qemu.machine import GuestMachine
from diskproof.recording.dm_log_writes import DISCARD, MARK, read_entries
from support.crash_logs import read_log

pytestmark = pytest.mark.long

SIZE, LOG_SIZE = 16 << 20, 256 << 20
MARKS = ("made", "written", "trimmed", "renamed")
SCRIPT = f"""
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mkdir /run/disk /run/on
mount -t tmpfs -o size=64m disk /run/disk
cd /run/disk
truncate -s {SIZE} image
disk=$(losetup --show --find image)
dmsetup create logged --table "0 {SIZE >> 9} log-writes $disk /dev/vdb"
dmsetup mknodes logged
mark() {{
  sync
  sync /dev/mapper/logged # what sync wrote back last, no flush has covered
  dmsetup message logged 0 mark "$1"
  dd if="$disk" iflag=direct bs=1M 2> /dev/null | sha256sum
}}
mkfs.ext4 -q -J size=4 -E lazy_itable_init=0,lazy_journal_init=0 /dev/mapper/logged
mark made
mount -o discard /dev/mapper/logged /run/on
head -c 3000000 /dev/urandom > /run/on/data
mark written
rm /run/on/data
sync
fstrim /run/on
mark trimmed
echo promised > /run/on/new
sync /run/on/new
mv /run/on/new /run/on/name
umount /run/on
mark renamed
dmsetup remove logged
"""


@pytest.fixture
def recorded(tmp_path: Path, run_dir: Path) -> tuple[Path, dict[str, str]]:
    """What the kernel logged of ext4, and the sum of the disk below at each mark."""
    log = tmp_path / "log"
    with log.open("w+b") as stream:
        os.truncate(log, LOG_SIZE)
        machine = GuestMachine(
            probe_accel().accel,
            disk_args=tuple(second_disk_args(stream.fileno(), device=False, direct=False)),
            disk_fds=(stream.fileno(),),
        )
        with start_guest(build_guest(extra="storage"), machine, run_dir=run_dir) as guest:
            guest.load_modules(["ext4", "loop", "dm_mod", "dm_log_writes"])
            done = guest.channel.exec(["sh", "-euc", SCRIPT], timeout=300)
            assert done.exit.code == 0, done.stderr
            guest.power_off()
    sums = [line.split()[0] for line in done.stdout.decode().splitlines()]
    return log, dict(zip(MARKS, sums, strict=True))


def test_the_disk_at_each_mark_is_the_kernels(
    recorded: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    log, sums = recorded
    disk, seen, discards = bytearray(SIZE), {}, 0
    for entry in read_entries(log):
        if entry.flags & MARK:
            seen[entry.text.decode()] = hashlib.sha256(disk).hexdigest()
        discards += bool(entry.flags & DISCARD)
        new = bytes(entry.length) if entry.flags & DISCARD else entry.data
        disk[entry.start : entry.start + entry.length] = new
    assert discards > 0
    assert {name: seen[name] for name in MARKS} == sums

    # And so it is in what the explorer makes of it: nothing but what was safe.
    base = tmp_path / "base"
    base.mkdir()
    with (base / "disk.raw").open("wb") as stream:
        stream.truncate(SIZE)
    import_log(log, base / "disk.raw", tmp_path / "crash.log", "the end")
    promises = {
        record.payload.decode(): number
        for number, record in enumerate(read_log(tmp_path / "crash.log"), 1)
        if record.kind == "acknowledge"
    }
    for name in MARKS:
        state = show(tmp_path, f"power:512:{promises[name]}:nothing", tmp_path / name)
        assert hashlib.sha256(state).hexdigest() == sums[name], name


def show(room: Path, state: str, target: Path) -> bytes:
    program, log, base = require_native("diskproof-states"), room / "crash.log", room / "base"
    argv = [str(program), "show", str(log), str(base), state, "--to", str(target)]
    subprocess.run(argv, check=True, timeout=120, capture_output=True)
    return (target / "disk.raw").read_bytes()
