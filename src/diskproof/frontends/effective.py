"""What QEMU and the kernel say of the disk under test, against what the cell asks for.

QMP names the block nodes' drivers and flags; the open flags of the image come from
/proc/PID/fdinfo, the way I/O is submitted from the rings that the process holds. No QEMU reports
``discard``, ``l2-cache-size`` or the file driver's ``aio``; of the first two the check is that
the running process was given them (QEMU ends on an option it does not take).
"""

import json
import os
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from diskproof.drive import DiskImage
from diskproof.errors import RunFailure
from diskproof.process.cage import PROOF
from diskproof.process.open_files import find_open_flags, find_rings
from diskproof.process.start import find_cage_obstacle
from diskproof.qemu import disk
from diskproof.qemu.machine import GuestMachine
from diskproof.qemu.qmp import Qmp
from diskproof.records import Cell, Check
from diskproof.units import parse_bytes

CAGE_NODE = "diskproof-outside"
_NODES = "QMP query-named-block-nodes"


def read_disk(qmp: Qmp, pid: int, cell: Cell, image: DiskImage) -> tuple[Check, ...]:
    """Every setting of the disk that can be read back from a running QEMU or storage daemon."""
    nodes = read_nodes(qmp)
    return (
        *check_nodes(nodes, cell, image),
        *check_way(nodes, pid, cell, image),
        check_iothread(qmp, cell),
        check_cage(qmp),
        *check_given(pid, cell),
    )


def read_guest(
    qmp: Qmp, pid: int, cell: Cell, image: DiskImage, machine: GuestMachine
) -> tuple[Check, ...]:
    """Every setting of a guest and its disk that QEMU tells."""
    return (
        *read_disk(qmp, pid, cell, image),
        check_device(qmp, cell),
        *check_machine(qmp, machine),
    )


def read_nodes(qmp: Qmp) -> dict[str, Mapping[str, object]]:
    """The block nodes by name."""
    answer = qmp.execute("query-named-block-nodes", {"flat": True})
    return {str(item.get("node-name")): item for item in require_objects(answer, _NODES)}


def require_objects(answer: object, source: str) -> list[Mapping[str, object]]:
    """QMP's list of objects, or RunFailure."""
    if isinstance(answer, list) and all(isinstance(item, dict) for item in answer):
        return answer
    raise RunFailure("qemu", f"{source} did not answer with a list of objects")


def require_field(item: Mapping[str, object], path: str, source: str) -> object:
    """A field such as ``image.virtual-size``, or RunFailure."""
    value: object = item
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            raise RunFailure("qemu", f"{source} has no {path}", f"there is: {sorted(item)}")
        value = value[name]
    return value


def make_check(name: str, requested: object, effective: object, source: str) -> Check:
    """A check that is right when both sides read the same."""
    wanted, found = render_level(requested), render_level(effective)
    return Check(name, wanted, found, source, wanted == found)


def render_level(value: object) -> str:
    """A value as a level is spelt: booleans are ``on`` and ``off``."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def check_nodes(
    nodes: Mapping[str, Mapping[str, object]], cell: Cell, image: DiskImage
) -> tuple[Check, ...]:
    """Both block nodes of the disk."""
    wanted: list[tuple[str, str, object]] = [
        (disk.FILE_NODE, "drv", image.driver),
        (disk.DISK_NODE, "drv", image.format),
        (disk.DISK_NODE, "image.virtual-size", image.size),
        (disk.DISK_NODE, "detect_zeroes", cell.level("detect-zeroes", "off")),
    ]
    for node in (disk.FILE_NODE, disk.DISK_NODE):
        wanted += [(node, f"cache.{flag}", on) for flag, on in disk.node_cache(cell).items()]
        wanted.append((node, "ro", False))
    if image.format == "qcow2":
        lazy = cell.level("lazy_refcounts", "off") == "on"
        wanted.append((disk.DISK_NODE, "image.format-specific.data.lazy-refcounts", lazy))
    if cell.level("cluster_size"):
        wanted.append(
            (disk.DISK_NODE, "image.cluster-size", parse_bytes(cell.level("cluster_size")))
        )
    return tuple(
        make_check(
            f"{node.removeprefix('diskproof-')}: {path.rpartition('data.')[2]}",
            value,
            require_field(nodes.get(node, {}), path, f"{_NODES} ({node})"),
            _NODES,
        )
        for node, path, value in wanted
    )


def check_way(
    nodes: Mapping[str, Mapping[str, object]], pid: int, cell: Cell, image: DiskImage
) -> tuple[Check, ...]:
    """How the process reaches the disk: an open file and its rings, or a server."""
    if image.network is None:
        return check_open_flags(pid, cell, image.path), check_aio(pid, cell)
    told = require_field(
        nodes.get(disk.FILE_NODE, {}), "image.filename", f"{_NODES} ({disk.FILE_NODE})"
    )
    wanted = image.network.address
    return (Check("server", wanted, str(told), _NODES, wanted in str(told)),)


def check_open_flags(pid: int, cell: Cell, image: Path) -> Check:
    """O_DIRECT on the image, as the kernel has it open for the process."""
    direct, flags = disk.node_cache(cell)["direct"], find_open_flags(pid, image)
    source = f"/proc/PID/fdinfo of {image.name}"
    if flags is None:
        return Check("O_DIRECT", render_level(direct), "not open", source, False)
    return make_check("O_DIRECT", direct, bool(flags & os.O_DIRECT), source)


def check_aio(pid: int, cell: Cell) -> Check:
    """The rings of the process: io_uring's descriptor, the mapping of a Linux AIO context.

    QEMU makes a ring only for a node that asks for it, and refuses to start without. Newer ones
    may hold an io_uring for their event loop as well, so there its presence is allowed with any
    level, and proves the level io_uring only as far as the option was taken.
    """
    rings = find_rings(pid)
    level = cell.level("aio", "threads")
    wanted = {"native": "aio", "io_uring": "io_uring"}.get(level)
    right = wanted in rings if wanted else "aio" not in rings
    effective = level if right else " and ".join(sorted(rings)) or "no ring"
    held = ", ".join(sorted(rings)) or "none"
    source = f"rings in /proc/PID/fd and maps: {held} (an io_uring may be the event loop's)"
    return Check("aio", level, effective, source, right)


def check_cage(qmp: Qmp) -> Check:
    """QEMU is asked to open a file that is not its run's, which every user may read."""
    obstacle = find_cage_obstacle()
    node = {"driver": "file", "node-name": CAGE_NODE, "filename": PROOF, "read-only": True}
    refused = ""
    try:
        qmp.execute("blockdev-add", node)
        qmp.execute("blockdev-del", {"node-name": CAGE_NODE})
    except RunFailure as failure:
        refused = failure.why
    caged = "Permission denied" in refused
    effective = "out of reach" if caged else refused or "it opens them"
    requested = f"its user's rights only: {obstacle}" if obstacle else "out of reach"
    source = f"QMP blockdev-add of {PROOF}"
    return Check("files of others", requested, effective, source, caged or bool(obstacle))


def check_iothread(qmp: Qmp, cell: Cell) -> Check:
    """The thread of the disk, among the objects of the process."""
    # A storage daemon without objects has not even the folder for them.
    present = "objects" in _list_children(qmp, "/") and disk.IOTHREAD_ID in _list_children(
        qmp, "/objects"
    )
    return make_check("iothread", disk.has_iothread(cell), present, "QMP qom-list /objects")


def check_given(pid: int, cell: Cell) -> tuple[Check, ...]:
    """Settings that can only be seen on the command line of the running process."""
    argv = read_command_line(pid)
    given = [
        json.loads(value)
        for option, value in pairwise(argv)
        if option.lstrip("-") == "blockdev" and value.startswith("{")
    ]
    found = {node["node-name"]: node for node in given}
    source = "/proc/PID/cmdline, which QEMU took; it cannot be asked"
    discard = cell.level("discard", "ignore")
    wanted = [(disk.FILE_NODE, "discard", discard), (disk.DISK_NODE, "discard", discard)]
    if cell.level("format") == "qcow2" and cell.level("l2-cache-size"):
        size = str(parse_bytes(cell.level("l2-cache-size")))
        wanted.append((disk.DISK_NODE, "l2-cache-size", size))
    return tuple(
        make_check(
            f"{node.removeprefix('diskproof-')}: {name}",
            value,
            found.get(node, {}).get(name, "not given"),
            source,
        )
        for node, name, value in wanted
    )


def check_write_through(pid: int, cell: Cell) -> Check:
    """Write-through as the running process was asked for.

    No QEMU reports it of an export. That each write is then followed by a flush is proved by a
    test that watches the daemon's system calls.
    """
    argv = read_command_line(pid)
    source = "/proc/PID/cmdline, which the daemon took; it cannot be asked"
    effective: object = "no export"
    if "--export" in argv:
        effective = json.loads(argv[argv.index("--export") + 1]).get("writethrough")
    return make_check("write-through", disk.writes_through(cell), effective, source)


def check_device(qmp: Qmp, cell: Cell) -> Check:
    """Write-through of the device's own backend, as the guest's driver left it."""
    source = "QMP query-block"
    for item in require_objects(qmp.execute("query-block"), source):
        if disk.DEVICE_ID in str(item.get("qdev")):
            write_back = require_field(item, "inserted.cache.writeback", source)
            return make_check(
                "write-through", disk.writes_through(cell), write_back is False, source
            )
    raise RunFailure("qemu", f"{source} does not name the disk under test")


def check_machine(qmp: Qmp, machine: GuestMachine) -> tuple[Check, ...]:
    """The accelerator in force, processors and memory."""
    kvm = qmp.execute("query-kvm")
    enabled = require_field(kvm if isinstance(kvm, dict) else {}, "enabled", "QMP query-kvm")
    cpus = require_objects(qmp.execute("query-cpus-fast"), "QMP query-cpus-fast")
    memory = qmp.execute("query-memory-size-summary")
    source = "QMP query-memory-size-summary"
    size = require_field(memory if isinstance(memory, dict) else {}, "base-memory", source)
    return (
        make_check("accel", machine.accel, "kvm" if enabled is True else "tcg", "QMP query-kvm"),
        make_check("vcpus", machine.vcpus, len(cpus), "QMP query-cpus-fast"),
        make_check("memory", render_level(machine.memory_bytes), size, source),
    )


def check_view(cell: Cell, image: DiskImage, size: int, write_cache: str) -> tuple[Check, ...]:
    """What the guest's own kernel says of the disk."""
    source = "the guest's sysfs"
    checks = [make_check("guest: size", image.size, size, source)]
    if disk.bus(cell.level("bus", "virtio-blk")).reports_write_cache:
        wanted = "write through" if disk.writes_through(cell) else "write back"
        checks.append(make_check("guest: write_cache", wanted, write_cache, source))
    return tuple(checks)


def read_command_line(pid: int) -> list[str]:
    """The arguments a process was started with. Raises RunFailure when it is gone."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError as error:
        why = f"/proc/{pid}/cmdline: {error.strerror}"
        raise RunFailure("qemu", "the process of the disk cannot be looked at", why) from None
    return [os.fsdecode(part) for part in text.split(b"\0")[:-1]]


def _list_children(qmp: Qmp, path: str) -> list[object]:
    answer = qmp.execute("qom-list", {"path": path})
    return [item.get("name") for item in require_objects(answer, "QMP qom-list")]
