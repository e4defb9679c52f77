"""Whether a block device is an iSCSI disk of this same host, and what serves it there."""

import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path

import psutil

from diskproof.errors import DiskproofError
from diskproof.process.start import find_tool, run

_CLASS = Path("/sys/class")
_LIO = Path("/sys/kernel/config/target")
SECONDS = 3.0
ELSEWHERE = "another host"
UNKNOWN = "a target of this host"


def find_store(device: Path) -> str:
    """What is behind an iSCSI disk, in the words of ``observed.TARGETS``; empty for a disk that is
    none. ``device`` is its folder in sysfs."""
    session = re.search(r"/(session\d+)/target\d+:\d+:\d+/\d+:\d+:\d+:(\d+)/", f"{device}/")
    if session is None:
        return ""
    name, lun = session[1], int(session[2])
    target = _read(_CLASS / "iscsi_session" / name / "targetname")
    portals = (_CLASS / "iscsi_connection").glob(f"connection{name[7:]}:*")
    addresses = [_read(each / "persistent_address") for each in portals]
    if not any(map(is_ours, addresses)):
        return ELSEWHERE
    return (
        find_lio_store(_LIO, target, lun) or find_tgt_store(read_targets(), target, lun) or UNKNOWN
    )


def is_ours(address: str) -> bool:
    """Whether an address is one of this host."""
    try:
        wanted = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return wanted.is_loopback or wanted in set(_own_addresses())


def _own_addresses() -> Iterator[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    for each in psutil.net_if_addrs().values():
        for one in each:
            try:
                yield ipaddress.ip_address(one.address.partition("%")[0])
            except ValueError:  # a hardware address
                continue


def find_lio_store(root: Path, target: str, lun: int) -> str:
    """The kernel's target by its configfs: the kind of its store, and whether it works in the
    page cache without telling of a write cache."""
    for place in (root / "iscsi" / target).glob(f"tpgt_*/lun/lun_{lun}/*"):
        if not place.is_symlink():
            continue
        store = place.resolve()
        kind = store.parent.name.rpartition("_")[0]
        told = _read(store / "attrib/emulate_write_cache")
        buffered = "Buffered" in _read(store / "info")
        if kind == "fileio" and buffered and told == "0":
            return "LIO buffered"
        return f"LIO {kind}"
    return ""


def read_targets() -> str:
    """tgt's own list, empty where there is none or it does not answer."""
    if find_tool("tgtadm") is None:
        return ""
    argv = ["tgtadm", "--lld", "iscsi", "--mode", "target", "--op", "show"]
    try:
        done = run(argv, timeout=SECONDS, check=False)
    except DiskproofError:
        return ""
    return done.text if done.returncode == 0 else ""


def find_tgt_store(listed: str, target: str, lun: int) -> str:
    """tgt's kind of store behind a disk."""
    here, number = "", ""
    for each in listed.splitlines():
        key, _, value = each.strip().partition(": ")
        if key.startswith("Target "):
            here = value
        elif key == "LUN":
            number = value
        elif key == "Backing store type" and here == target and number == str(lun):
            return f"tgt {value}"
    return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")[:4096].strip()
    except OSError:
        return ""
