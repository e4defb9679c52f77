"""The tree of block devices as sysfs shows it, and how devices of ours are taken down.

A name of ours has 64 random bits and is noted in a folder of ours before a device gets it
(``volume_note``): a device is ours when it has such a name, or when all that it is made of is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from diskproof.process.start import Completed, find_tool, run

SYS = Path("/sys/block")
SECONDS = 60.0
_ATTEMPTS = 50
_PAUSE = 0.1
_FOREIGN = "is no part of the study and stands on"
_UDEV = Path("/run/udev/control")


def find_named(name: str) -> tuple[str, ...]:
    """Device-mapper devices of the volume group ``name``, as the kernel names them (``dm-0``).

    A volume group's devices are called VG-LV, and ours have no dash in their names (lvm(8)).
    """
    found = (entry for entry in SYS.glob("dm-*") if _read(entry / "dm/name").startswith(f"{name}-"))
    return tuple(sorted(entry.name for entry in found))


def find_standing_on(roots: Iterable[str]) -> tuple[str, ...]:
    """Roots and all that stands on nothing else, each after those that stand on it."""
    ours = dict.fromkeys(roots)
    grown = True
    while grown:
        holders = {holder for name in ours for holder in _list(name, "holders")} - ours.keys()
        more = [each for each in sorted(holders) if _list(each, "slaves") <= ours.keys()]
        ours |= dict.fromkeys(more)
        grown = bool(more)
    ordered: list[str] = []
    for name in ours:
        _append(name, ours.keys(), ordered)
    return tuple(ordered)


def _append(name: str, among: Iterable[str], ordered: list[str]) -> None:
    if name not in ordered:
        for holder in sorted(_list(name, "holders") & set(among)):
            _append(holder, among, ordered)
        ordered.append(name)


def take_down(names: Sequence[str]) -> str:
    """Remove dm devices and stop md arrays, in this order; loop devices go by themselves.

    Gives why one is still there, or nothing.
    """
    for attempt in range(_ATTEMPTS):
        why = ""
        for made, group in groupby(names, _kind):
            why = why or _remove(made, [name for name in group if (SYS / name).exists()], names)
        if not why or _FOREIGN in why:
            break
        time.sleep(_PAUSE if attempt + 1 < _ATTEMPTS else 0)
    return why


def _kind(name: str) -> str:
    return name.rstrip("0123456789")


def _remove(kind: str, names: list[str], ours: Sequence[str]) -> str:
    """Gives why that failed: a process that has just ended may hold a device for a moment."""
    for name in names:
        if foreign := _list(name, "holders") - set(ours):
            return f"{', '.join(sorted(foreign))} {_FOREIGN} {name}"
    if kind == "dm-":
        argv = ["dmsetup", "remove", "--", *(_read(SYS / name / "dm/name") for name in names)]
    else:
        argv = ["mdadm", "--stop", *(f"/dev/{name}" for name in names)]
    if kind == "loop" or not names:
        return ""
    if find_tool(argv[0]) is None:
        return f"{', '.join(names)}: {argv[0]} is not installed"
    done = run_quietly(argv)
    if done.returncode == 0:
        return ""
    return f"{', '.join(names)}: {done.error_text or 'in use'}"


def run_quietly(argv: list[str], timeout: float = SECONDS, **settings: str) -> Completed:
    """A tool of device mapper or md with plain messages; where no udev runs, it makes the nodes
    in /dev itself."""
    env = {**os.environ, "LC_ALL": "C", **settings}
    if not _UDEV.exists():
        env["DM_DISABLE_UDEV"] = "1"
    return run(argv, timeout=timeout, env=env, check=False)


def _list(name: str, what: str) -> set[str]:
    try:
        return {entry.name for entry in (SYS / name / what).iterdir()}
    except OSError:
        return set()


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
