"""What this host can do, at a glance: nothing is booted and nothing is tried, as doctor does."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Thread

from diskproof.guest.ours.build import find_guest
from diskproof.host.accel import find_accel
from diskproof.host.identity import read_version
from diskproof.host.machines import FoundMachines, find_machines

MACHINES_SECONDS = 1.0
"""Who only wants to know where they are does not wait longer for a manager's answer."""

_PROGRAMS = (
    ("QEMU", "qemu-storage-daemon", "qemu-system-common"),
    ("fio", "fio", "fio"),
    ("qemu-img", "qemu-img", "qemu-utils"),
)


@dataclass(frozen=True)
class Glance:
    """``able`` and ``unable`` are phrases, ``packages`` bring what is missing. ``machines`` is None
    where their managers did not answer in time."""

    able: tuple[str, ...]
    unable: tuple[str, ...]
    packages: tuple[str, ...]
    machines: FoundMachines | None


def glance() -> Glance:
    """Look at this host, in less than two seconds."""
    found: list[FoundMachines] = []
    # A daemon: a manager that does not answer must not hold the process at its end.
    looking = Thread(target=lambda: found.append(find_machines()), daemon=True)
    looking.start()
    with ThreadPoolExecutor(len(_PROGRAMS)) as pool:
        argvs = [[program, "--version"] for _, program, _ in _PROGRAMS]
        versions = list(pool.map(read_version, argvs))
    able, unable = _guest_phrases()
    programs = list(zip(_PROGRAMS, versions, strict=True))
    there = [f"{name} {text.split()[0]}" for (name, *_), text in programs[:2] if text]
    missing = [(name, package) for (name, _, package), text in programs if not text]
    looking.join(MACHINES_SECONDS)
    return Glance(
        (*there, *able),
        (*(f"no {name}" for name, _ in missing), *unable),
        tuple(package for _, package in missing),
        found[0] if found else None,
    )


def _guest_phrases() -> tuple[list[str], list[str]]:
    """What is known of guests without booting one: whether there is one, and what it runs under."""
    if find_guest() is None:
        return [], ["no guest built yet (the first study with guests builds it)"]
    accel = find_accel()
    if accel is None:
        return ["a guest is built (KVM is tried by the first study with guests)"], []
    if accel.accel == "kvm":
        return ["guests under KVM"], []
    return ["guests under TCG, slow emulation"], []
