"""Machines of a manager and their running QEMUs are one; nothing is joined by guessing."""

from dataclasses import replace

from diskproof.host.machines.join import join_machines, merge_layers
from diskproof.records.virtual_machines import Layer, Machine, MachineDisk, Remark

UUID = "7a2f0b1c-0000-4000-8000-000000000001"


def managed(name: str = "web", uuid: str = "", pid: int | None = None) -> Machine:
    layer = Layer({"cache": "unsafe", "aio": "threads"}, "XML", frozenset({"aio"}))
    disk = MachineDisk("vda", "/srv/web.qcow2", "file", configured=layer, line="<disk/>")
    return Machine(name, "libvirt", "qemu:///system", (disk,), uuid, pid)


def process(pid: int = 7, name: str = "web", uuid: str = "") -> Machine:
    taken = Layer({"cache": "none", "bus": "virtio-blk"}, "cmdline")
    remark = Remark("uneven-direct", "configured", "note", "nodes disagree", "QEMU")
    disk = MachineDisk(
        "virtio-disk0", "/srv/web.qcow2", "file", configured=taken, remarks=(remark,)
    )
    running = replace(disk, running=Layer({"cache": "none"}, "QMP"))
    return Machine(name, "libvirt", f"process {pid}", (running,), uuid, pid)


def test_a_machine_and_its_process_are_one() -> None:
    for own, other in (
        (managed(pid=7), process(7, "other")),
        (managed(uuid=UUID), process(7, "other", UUID.upper())),
        (managed(), process()),
    ):
        (machine,) = join_machines([other, own])
        (disk,) = machine.disks
        assert machine.manager == "libvirt" and machine.pid == 7 and disk.name == "vda"
        assert disk.configured is not None and disk.configured.levels["cache"] == "unsafe"
        assert disk.running is not None and disk.running.levels["cache"] == "none"
        assert disk.line == "<disk/>"
        assert [remark.layer for remark in disk.remarks] == ["running"]


def test_a_name_that_two_have_joins_nothing() -> None:
    machines = join_machines([process(7), process(8), managed()])
    assert [machine.pid for machine in machines] == [None, 7, 8]
    assert machines[0].disks[0].running is None


def test_another_process_is_not_taken_for_it() -> None:
    assert len(join_machines([managed(pid=6), process(7)])) == 2
    assert len(join_machines([managed("web", UUID), process(7, "db", "")])) == 2


def test_without_a_look_inside_the_command_line_is_what_runs() -> None:
    hidden = process()
    hidden = replace(hidden, disks=(replace(hidden.disks[0], running=None),))
    (machine,) = join_machines([hidden, managed()])
    running = machine.disks[0].running
    assert running is not None and running.source == "cmdline"


def test_a_disk_that_only_runs_is_kept() -> None:
    later = MachineDisk("later.raw", "/srv/later.raw", "file", running=Layer({}, "fdinfo"))
    base = MachineDisk("firmware", "/usr/share/OVMF/code.fd", "file", read_only=True)
    own = process()
    (machine,) = join_machines([replace(own, disks=(*own.disks, later, base)), managed()])
    assert [disk.name for disk in machine.disks] == ["vda", "later.raw"]


def test_what_was_read_counts_before_what_was_assumed() -> None:
    told = Layer({"cache": "none", "aio": "native"}, "XML", frozenset({"cache"}))
    seen = Layer({"cache": "writeback", "aio": "threads"}, "QMP", frozenset({"aio"}))
    merged = merge_layers(told, seen)
    assert merged == Layer({"cache": "writeback", "aio": "native"}, "QMP; XML", frozenset())
    assert merge_layers(None, seen) is seen and merge_layers(told, None) is told
