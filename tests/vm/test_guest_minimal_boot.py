"""The minimal guest boots, loads a disk with fio and writes a ledger that a crash is judged by.

Its kernel is Debian's, out of the guest that is built: this host may have none.
"""

import shutil
from pathlib import Path

import pytest

from diskproof.guest.ours import minimal
from diskproof.guest.ours.boot import start_guest
from diskproof.guest.ours.build import GuestFiles
from diskproof.qemu.machine import DISK_SERIAL, GuestMachine

DISK = (
    *("-blockdev", "driver=file,node-name=disk,filename=disk.raw"),
    *("-device", f"virtio-blk-pci,drive=disk,serial={DISK_SERIAL}"),
)
FIO = (
    "fio --name=w --filename={} --rw=randwrite --size=4M --ioengine=psync --fsync=1 --verify=crc32c"
)
LEDGER = ["/run/diskproof/diskproof-ledger", "write"]


@pytest.mark.long
def test_it_boots_and_works(
    guest_files: GuestFiles, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = tmp_path / guest_files.kernel_release
    shutil.copytree(guest_files.kernel.parent / "modules", modules)
    (modules / "modules.builtin").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = minimal.HostKernel(guest_files.kernel, modules)
    files = minimal.build_minimal(found, lambda _: None)
    assert "module ext4" in files.lacks
    folder = tmp_path / "disk"
    folder.mkdir()
    with (folder / "disk.raw").open("wb") as disk:
        disk.truncate(16 << 20)
    (folder / "disk.raw").chmod(0o666)
    folder.chmod(0o777)
    machine = GuestMachine("tcg", bus="virtio-blk", disk_args=DISK)
    with start_guest(files, machine, run_dir=run_dir, disk_folder=folder) as guest:
        assert guest.started.disk is not None and guest.started.disk.size == 16 << 20
        device = guest.started.disk.device
        for argv in (FIO.format(device).split(), [*LEDGER, "--records", "8", device]):
            done = guest.channel.exec(argv, timeout=120)
            assert done.exit.code == 0, done.stderr
        guest.power_off()
    assert any((folder / "disk.raw").read_bytes())
