"""What QEMU and the kernel say of the disk under test, against what the cell asks for.

QMP names the block nodes' drivers and flags; the open flags of the image come from
/proc/PID/fdinfo, the way I/O is submitted from the rings that the process holds. No QEMU reports
``discard``, ``l2-cache-size`` or the file driver's ``aio``; of the first two the check is that
the running process was given them (QEMU ends on an option it does not take).
"""

from __future__ import annotations

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
from diskproof.qemu.disk import DISK_NODE, FILE_NODE, IOTHREAD_ID, cache_mode, has_iothread
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
    mode = cache_mode(cell)
    wanted: list[tuple[str, str, object]] = [
        (FILE_NODE, "drv", image.driver),
        (DISK_NODE, "drv", image.format),
        (DISK_NODE, "image.virtual-size", image.size),
        (DISK_NODE, "detect_zeroes", cell.level("detect-zeroes", "off")),
    ]
    for node in (FILE_NODE, DISK_NODE):
        wanted += [
            (node, "cache.direct", mode.direct),
            (node, "cache.no-flush", mode.no_flush),
            (node, "ro", False),
        ]
    if image.format == "qcow2":
        lazy = cell.level("lazy_refcounts", "off") == "on"
        wanted.append((DISK_NODE, "image.format-specific.data.lazy-refcounts", lazy))
    if cell.level("cluster_size"):
        wanted.append((DISK_NODE, "image.cluster-size", parse_bytes(cell.level("cluster_size"))))
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
    told = require_field(nodes.get(FILE_NODE, {}), "image.filename", f"{_NODES} ({FILE_NODE})")
    wanted = image.network.address
    return (Check("server", wanted, str(told), _NODES, wanted in str(told)),)


def check_open_flags(pid: int, cell: Cell, image: Path) -> Check:
    """O_DIRECT on the image, as the kernel has it open for the process."""
    flags = find_open_flags(pid, image)
    source = f"/proc/PID/fdinfo of {image.name}"
    if flags is None:
        return Check("O_DIRECT", render_level(cache_mode(cell).direct), "not open", source, False)
    return make_check("O_DIRECT", cache_mode(cell).direct, bool(flags & os.O_DIRECT), source)


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
    present = "objects" in _list_children(qmp, "/") and IOTHREAD_ID in _list_children(
        qmp, "/objects"
    )
    return make_check("iothread", has_iothread(cell), present, "QMP qom-list /objects")


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
    wanted = [(FILE_NODE, "discard", discard), (DISK_NODE, "discard", discard)]
    if cell.level("format") == "qcow2" and cell.level("l2-cache-size"):
        size = str(parse_bytes(cell.level("l2-cache-size")))
        wanted.append((DISK_NODE, "l2-cache-size", size))
    return tuple(
        make_check(
            f"{node.removeprefix('diskproof-')}: {name}",
            value,
            found.get(node, {}).get(name, "not given"),
            source,
        )
        for node, name, value in wanted
    )


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
