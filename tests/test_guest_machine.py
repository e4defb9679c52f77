"""The guest's machine as arguments."""

from __future__ import annotations

from diskproof.qemu.machine import (
    BUS_DRIVERS,
    Descriptors,
    GuestMachine,
    control_args,
    isolation_args,
    kernel_args,
    machine_args,
    processor_args,
    root_args,
)

FDS = Descriptors(kernel=3, initrd=4, root=5, qmp=6, agent=7, console=8)


def test_processor() -> None:
    tcg = GuestMachine("tcg", vcpus=2, memory_bytes=256 << 20)
    expected = ["-machine", "pc,accel=tcg", "-cpu", "max", "-smp", "2", "-m", "262144K"]
    assert processor_args(tcg) == expected
    assert processor_args(GuestMachine("kvm"))[:4] == [
        *("-machine", "pc,accel=kvm"),
        *("-cpu", "host"),
    ]


def test_files_come_as_descriptors() -> None:
    assert kernel_args(FDS)[:4] == ["-kernel", "/dev/fd/3", "-initrd", "/dev/fd/4"]
    assert root_args(FDS) == [
        *("-add-fd", "fd=5,set=100"),
        "-blockdev",
        "driver=raw,node-name=root,read-only=on,"
        "file.driver=file,file.filename=/dev/fdset/100,file.locking=off",
        *("-device", "virtio-blk-pci,drive=root,serial=diskproof-root"),
    ]


def test_sockets_come_as_descriptors() -> None:
    arguments = control_args(FDS)
    for name, fd in (("qmp", 6), ("agent", 7), ("console", 8)):
        assert f"socket,id={name},fd={fd}" in arguments
    assert "virtserialport,chardev=agent,name=diskproof.agent" in arguments


def test_isolation() -> None:
    plain = ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
    assert isolation_args(False) == plain
    assert isolation_args(True) == [
        *plain,
        "-sandbox",
        "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
    ]


def test_the_disk_comes_last_so_that_the_root_keeps_its_address() -> None:
    machine = GuestMachine("tcg", bus="nvme", disk_args=("-device", "nvme,drive=x"))
    assert machine_args(machine, FDS, sandbox=True)[-2:] == ["-device", "nvme,drive=x"]


def test_drivers() -> None:
    assert GuestMachine("tcg").drivers == ("virtio_blk", "squashfs")
    for bus, drivers in BUS_DRIVERS.items():
        assert set(GuestMachine("tcg", bus=bus).drivers) == {"virtio_blk", "squashfs", *drivers}
