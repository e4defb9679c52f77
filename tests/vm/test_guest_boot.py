"""Boots and what ends them, with real QEMU and a real kernel. Requires the built guest."""

import dataclasses
import os
import shutil
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from diskproof.drive import DiskImage
from diskproof.errors import RunFailure
from diskproof.guest.ours.boot import start_agent, start_guest, start_qemu
from diskproof.guest.ours.build import GuestFiles, render_initrd
from diskproof.guest.ours.console import HEAD, TAIL
from diskproof.process.native import require_native
from diskproof.process.run_user import require_run_user
from diskproof.qemu.disk import guest_disk_args
from diskproof.qemu.machine import BUS_DRIVERS, GuestMachine
from diskproof.qemu.qmp import start_qmp
from diskproof.records import Cell, WorkloadSpec
from support.stopping import stop_whole

SIZE = 64 << 20
TCG = GuestMachine("tcg")


@pytest.fixture
def disk_folder(tmp_path: Path) -> Path:
    """A folder with a raw image that the confined QEMU may open, below one it may not search."""
    folder = tmp_path / "closed" / "images"
    folder.mkdir(parents=True)
    image = folder / "disk.img"
    with image.open("wb") as stream:
        stream.truncate(SIZE)
    folder.chmod(0o777)
    image.chmod(0o666)
    folder.parent.chmod(0o700)
    return folder


@pytest.mark.parametrize("bus", BUS_DRIVERS)
def test_every_bus_shows_the_disk(
    bus: str, guest_files: GuestFiles, run_dir: Path, disk_folder: Path
) -> None:
    levels = {"frontend": "guest", "format": "raw", "bus": bus, "cache": "writeback"}
    cell = Cell(tuple(sorted(levels.items())), WorkloadSpec("none", "fio"))
    image = DiskImage(disk_folder / "disk.img", "raw", SIZE)
    machine = GuestMachine("tcg", bus=bus, disk_args=tuple(guest_disk_args(cell, image)))
    with start_guest(guest_files, machine, run_dir=run_dir, disk_folder=disk_folder) as guest:
        disk = guest.started.disk
        assert disk is not None
        assert disk.size == SIZE
        assert disk.write_cache == "write back"
        assert BUS_DRIVERS[bus][0] in disk.drivers
        script = f"echo diskproof | dd of={disk.device} bs=512 conv=sync,fsync"
        assert guest.channel.exec(["sh", "-c", script], timeout=60).exit.code == 0
        names = [entry["device"] for entry in guest.qmp.execute("query-block")]  # type: ignore[attr-defined]
        assert len(names) == 2
        guest.power_off()
    assert (disk_folder / "disk.img").read_bytes()[:10] == b"diskproof\n"


def test_a_guest_runs_confined(guest_files: GuestFiles, run_dir: Path) -> None:
    with start_agent(guest_files, TCG, run_dir=run_dir, folder=run_dir, deadline=120) as booted:
        status = Path(f"/proc/{booted.process.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        assert booted.hello.kernel == guest_files.kernel_release
        assert booted.sandboxed and fields["Seccomp"].strip() == "2"
        assert fields["NoNewPrivs"].strip() == "1"
        if os.geteuid() == 0:
            assert fields["Uid"].split() == [str(require_run_user())] * 4
            assert int(fields["CapEff"], 16) == 0


def test_qemu_opens_no_file_outside_its_folder(
    guest_files: GuestFiles, disk_folder: Path, public_file: Path
) -> None:
    """QEMU is asked over QMP, as one that a guest has taken over would ask itself."""
    with ExitStack() as stack:
        log = disk_folder / "qemu.log"
        _, ends = start_qemu(stack, guest_files, TCG, log=log, folder=disk_folder)
        qmp = stack.enter_context(start_qmp(ends["qmp"], 60))
        node = {"driver": "file", "read-only": True}
        qmp.execute("blockdev-add", {**node, "node-name": "inside", "filename": "disk.img"})
        for name in (str(public_file), "/etc/passwd", "/proc/1/status"):
            with pytest.raises(RunFailure, match="Permission denied"):
                qmp.execute("blockdev-add", {**node, "node-name": "outside", "filename": name})
        memory = {"val": 0, "size": 4096}
        qmp.execute("pmemsave", {**memory, "filename": "disk.img"})
        with pytest.raises(RunFailure, match="Permission denied"):
            qmp.execute("pmemsave", {**memory, "filename": str(public_file)})
    assert public_file.read_bytes() == b"theirs"


@pytest.mark.skipif(os.geteuid() != 0, reason="only QEMU of root runs as another user")
def test_a_guest_in_a_closed_home_boots(
    guest_files: GuestFiles, run_dir: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    moved = {}
    for name in ("kernel", "initrd", "root"):
        moved[name] = home / name
        shutil.copyfile(getattr(guest_files, name), moved[name])
    files = dataclasses.replace(guest_files, **moved)
    with start_guest(files, TCG, run_dir=run_dir) as guest:
        guest.power_off()


def test_a_kernel_panic_is_told(guest_files: GuestFiles, run_dir: Path) -> None:
    with pytest.raises(RunFailure, match="kernel panicked") as caught:
        with start_guest(guest_files, TCG, run_dir=run_dir) as guest:
            guest.channel.exec(["sh", "-c", "echo c > /proc/sysrq-trigger"], timeout=60)
    assert caught.value.kind == "guest"
    assert "sysrq triggered crash" in caught.value.why
    evidence = dict(caught.value.evidence)
    assert b"Kernel panic" in evidence["console"]
    assert "qemu.log" in evidence


def test_a_killed_qemu_is_told(guest_files: GuestFiles, run_dir: Path) -> None:
    with pytest.raises(RunFailure, match="QEMU was killed by signal 9") as caught:
        with start_guest(guest_files, TCG, run_dir=run_dir) as guest:
            os.kill(guest.process.pid, signal.SIGKILL)
            guest.channel.clock()
    assert caught.value.kind == "qemu"


def test_a_guest_that_hangs_is_told(guest_files: GuestFiles, run_dir: Path) -> None:
    with pytest.raises(RunFailure, match="did not answer within 1 s") as caught:
        with start_guest(guest_files, TCG, run_dir=run_dir) as guest:
            stop_whole(guest.process.pid)
            guest.channel.read_file("/etc/passwd", 1000, timeout=1)
    assert caught.value.kind == "guest"


def test_a_guest_too_slow_for_its_deadline_is_told(guest_files: GuestFiles, run_dir: Path) -> None:
    with pytest.raises(RunFailure, match="did not come up"):
        with start_guest(guest_files, TCG, run_dir=run_dir, deadline=0.2):
            pass


@pytest.mark.parametrize(
    ("program", "what", "why"),
    [
        ("diskproof-poweroff", "switched itself off", ""),
        ("diskproof-agent", "agent in the guest gave up", "boot.list"),
    ],
)
def test_a_guest_whose_first_program_ends_is_told(
    guest_files: GuestFiles, run_dir: Path, program: str, what: str, why: str
) -> None:
    initrd = run_dir.parent / "initrd"
    initrd.write_bytes(render_initrd(require_native(program).read_bytes(), None))
    files = dataclasses.replace(guest_files, initrd=initrd)
    with pytest.raises(RunFailure, match=what) as caught:
        with start_guest(files, TCG, run_dir=run_dir):
            pass
    assert why in caught.value.why


def test_what_qemu_refuses_is_told(guest_files: GuestFiles, run_dir: Path) -> None:
    machine = GuestMachine("tcg", bus="nvme", disk_args=("-device", "no-such-device"))
    with pytest.raises(RunFailure, match="QEMU ended with status 1") as caught:
        with start_guest(guest_files, machine, run_dir=run_dir):
            pass
    assert caught.value.kind == "qemu"
    assert "no-such-device" in caught.value.why


def test_a_missing_disk_is_told(guest_files: GuestFiles, run_dir: Path) -> None:
    with pytest.raises(RunFailure, match="no drive with serial") as caught:
        with start_guest(guest_files, GuestMachine("tcg", bus="virtio-blk"), run_dir=run_dir):
            pass
    assert caught.value.kind == "guest"


def test_a_flooded_console_fills_nothing(guest_files: GuestFiles, run_dir: Path) -> None:
    with start_guest(guest_files, TCG, run_dir=run_dir) as guest:
        flood = ["sh", "-c", "exec yes $(printf %0999d 7) > /dev/ttyS0"]
        job = guest.channel.start_exec(flood, timeout=100)
        while b"bytes left out" not in guest.booted.console.read():
            guest.channel.clock()
        guest.channel.kill(job, signal.SIGKILL)
        guest.process.kill()
        assert len(guest.booted.console.read()) < HEAD + TAIL + 100
        assert sum(path.stat().st_size for path in run_dir.iterdir()) < 10_000
