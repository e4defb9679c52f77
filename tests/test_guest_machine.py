"""The guest's machine as arguments."""

from dataclasses import replace

from diskproof.qemu.machine import (
    BUS_DRIVERS,
    Descriptors,
    GuestMachine,
    NetworkCard,
    card_args,
    control_args,
    isolation_args,
    kernel_args,
    machine_args,
    processor_args,
    promises_args,
    root_args,
)

FDS = Descriptors(kernel=3, initrd=4, root=5, qmp=6, agent=7, console=8)


def test_processor() -> None:
    tcg = GuestMachine("tcg", vcpus=2, memory_bytes=256 << 20)
    expected = ["-machine", "pc,accel=tcg", "-cpu", "max,erms=off,fsrm=off"]
    expected += ["-smp", "2", "-m", "262144K"]
    assert processor_args(tcg) == expected
    bounded = replace(tcg, translated_bytes=192 << 20)
    assert processor_args(bounded)[:4] == ["-machine", "pc", "-accel", "tcg,tb-size=192"]
    assert processor_args(GuestMachine("kvm", translated_bytes=192 << 20))[:4] == [
        *("-machine", "pc,accel=kvm"),
        *("-cpu", "host"),
    ]


def test_files_come_as_descriptors() -> None:
    assert kernel_args(FDS)[:4] == ["-kernel", "/proc/self/fd/3", "-initrd", "/proc/self/fd/4"]
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


def test_promises_go_to_a_descriptor_by_a_console() -> None:
    assert promises_args(None) == []
    machine = GuestMachine("tcg", disk_fds=(11,), state=12, promises=13)
    assert machine.fds() == (11, 12, 13)
    said = " ".join(machine_args(machine, FDS, sandbox=True))
    file = "-chardev file,id=promises,path=/dev/fdset/101"
    assert f"-add-fd fd=13,set=101 {file} -device virtconsole,chardev=promises" in said


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


def test_a_card_on_a_descriptor() -> None:
    assert card_args(None) == []
    card = NetworkCard("52:54:00:4d:01:02", "tap", 9)
    expected = [
        *("-netdev", "tap,id=net,fd=9"),
        *("-device", "virtio-net-pci,netdev=net,mac=52:54:00:4d:01:02,romfile="),
    ]
    assert card_args(card) == expected
    machine = GuestMachine("tcg", disk_fds=(11, 12), card=card)
    assert machine_args(machine, FDS, sandbox=True)[-4:] == expected
    assert machine.fds() == (11, 12, 9)
    assert card_args(replace(card, via="socket"))[1] == "socket,id=net,fd=9"


def test_a_guest_that_goes_on_from_a_state() -> None:
    machine = GuestMachine("tcg", state=9, generation=True)
    arguments = machine_args(machine, FDS, sandbox=True)
    assert arguments[-4:] == ["-device", "vmgenid", "-incoming", "fd:9"]
    assert machine.fds() == (9,)
    assert "-incoming" not in machine_args(GuestMachine("tcg"), FDS, sandbox=True)


def test_drivers() -> None:
    assert GuestMachine("tcg").drivers == ("virtio_blk", "squashfs")
    for bus, drivers in BUS_DRIVERS.items():
        assert set(GuestMachine("tcg", bus=bus).drivers) == {"virtio_blk", "squashfs", *drivers}


def test_a_slot_for_disks_that_come_and_go() -> None:
    machine = GuestMachine("tcg", slot=True)
    assert machine.drivers == ("virtio_blk", "squashfs", *BUS_DRIVERS["virtio-scsi"])
    arguments = machine_args(machine, FDS, sandbox=True)
    assert arguments[-2:] == ["-device", "virtio-scsi-pci,id=diskproof-slot"]
    plain = machine_args(replace(machine, slot=False), FDS, sandbox=True)
    assert arguments[:-2] == plain
