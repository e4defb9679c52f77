"""What planning and reports need to know of this host: probed in about a quarter of a second."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from diskproof.backings import Consent, Place, probe_backing, start_place
from diskproof.backings.place import start_run_dir
from diskproof.container.runtime import require_containers
from diskproof.errors import DiskproofError, NotHere, RunFailure
from diskproof.guest.ours.build import MINIMAL, find_guest, require_guest
from diskproof.guest.own.image import open_own_image, require_firmware
from diskproof.host.accel import KVM, AccelFacts, find_accel, probe_accel
from diskproof.host.backing_ground import add_ground
from diskproof.host.identity import host_record, read_memory_bytes
from diskproof.host.iothread_probe import find_daemon_iothread_fault
from diskproof.host.memory_limit import find_limit_obstacle
from diskproof.host.qemu_probe import Probed, explain, probe_block_layer, probe_buses
from diskproof.host.reclaim import find_reclaim
from diskproof.process.start import require_tool, run
from diskproof.qemu.machine import BUS_DRIVERS
from diskproof.records import BackingFacts, BackingSpec, HostFacts
from diskproof.study.backings import OVER_NETWORK, SERVED
from diskproof.study.factors import FRONTENDS
from diskproof.study.guest import OwnGuest

__all__ = ["host_record", "probe_facts", "probe_frontends", "require_engine"]

FIO_SECONDS = 20.0
_DAEMON_TOOLS = (
    ("qemu-storage-daemon", "qemu-system-common"),
    ("qemu-img", "qemu-utils"),
    ("fio", "fio"),
)
_HOST_TOOLS = (("fio", "fio"), ("qemu-img", "qemu-utils"))
_GUEST_TOOLS = (("qemu-system-x86_64", "qemu-system-x86"), ("qemu-img", "qemu-utils"))


def probe_facts(
    backings: Sequence[BackingSpec],
    consent: Consent,
    *,
    guest: bool,
    progress: Callable[[str], None],
    own_guest: OwnGuest | None = None,
) -> HostFacts:
    """This host as a plan needs it; ``guest`` probes the accelerator too, by booting.

    Without ``consent`` to what a backing destroys, it is looked at and not made. ``progress`` gets
    a line before what may take seconds. Raises HostError for a backing that cannot be used, and
    with UsageError for the user's ``own_guest``; everything else that is missing is in ``reasons``.
    """
    if own_guest:
        progress(f"image of the guest: {require_own_guest(own_guest)}")
    disks = {spec.name: add_ground(spec, _probe_disks(spec, consent)) for spec in backings}
    with (
        start_place(_pick_backing(backings, disks), consent) as place,
        ThreadPoolExecutor() as pool,
    ):
        block_layer = pool.submit(_probe_block_layer, place)
        iothread = pool.submit(_probe_daemon_iothread, place)
        devices = pool.submit(probe_buses)
        frontends = pool.submit(probe_frontends)
        accel = _probe_accel(guest, progress)
        formats, aio = block_layer.result()
        buses, iothread_buses = devices.result()
        usable = frontends.result()
        reasons = _name_reasons(frontend=usable, format=formats, aio=aio, bus=buses)
        reasons |= iothread.result()
        if unbounded := find_limit_obstacle():
            reasons["cache limit"] = unbounded
    return HostFacts(
        memory_bytes=read_memory_bytes(),
        cpus=len(os.sched_getaffinity(0)),
        accel=accel.accel,
        accel_reason=accel.reason,
        frontends=usable.usable,
        aio=aio.usable | {"threads"},
        formats=formats.usable,
        buses=buses.usable,
        iothread_buses=iothread_buses.usable,
        backings=disks,
        reasons=reasons,
        bounds_caches=not unbounded,
        minimal_guest=_find_minimal(),
        idle_seconds=min((each.seconds for each in find_reclaim()), default=None),
    )


def _find_minimal() -> frozenset[str] | None:
    found = find_guest()
    if found is None or found.kind != MINIMAL:
        return None
    loaded = {bus: {f"module {name}" for name in names} for bus, names in BUS_DRIVERS.items()}
    return found.has | {f"bus={bus}" for bus, modules in loaded.items() if modules <= found.has}


def probe_frontends() -> Probed:
    """Frontends that have all they need here."""
    checks: Mapping[str, Callable[[], None]] = {
        "host": lambda: _require_tools(_HOST_TOOLS),
        "container": _require_container,
        "daemon": _require_daemon,
        "guest": _require_guest,
        "own-guest": lambda: _require_tools(_GUEST_TOOLS),
    }
    reasons = {}
    for name in FRONTENDS:
        try:
            checks[name]()
        except DiskproofError as error:
            reasons[name] = explain(error)
    return Probed(frozenset(FRONTENDS) - reasons.keys(), reasons)


def _require_tools(tools: Sequence[tuple[str, str]]) -> None:
    for name, package in tools:
        require_tool(name, package)


def _require_container() -> None:
    _require_tools(_HOST_TOOLS)
    require_containers()


def _require_daemon() -> None:
    _require_tools(_DAEMON_TOOLS)
    require_engine("nbd")


def _require_guest() -> None:
    _require_tools(_GUEST_TOOLS)
    require_guest()


def require_own_guest(own: OwnGuest) -> str:
    """The user's image and what it is based on, for people. Raises UsageError or HostError when it
    cannot be booted now."""
    _require_tools(_GUEST_TOOLS)
    if own.firmware == "uefi":
        require_firmware()
    with open_own_image(own) as image:
        return image.chain


def require_engine(name: str) -> None:
    """Raises RunFailure ``tool`` when this fio cannot load an I/O engine."""
    done = run([require_tool("fio", "fio"), f"--enghelp={name}"], timeout=FIO_SECONDS, check=False)
    if done.returncode != 0:
        why = (done.error_text or done.text).strip()
        raise RunFailure("tool", f"this fio has no {name} engine", why, "apt-get install fio")


def _probe_accel(guest: bool, progress: Callable[[str], None]) -> AccelFacts:
    if not guest:
        return AccelFacts("tcg", "not probed: the study has no guests", 0.0)
    if find_guest() is None:
        return AccelFacts("tcg", "not probed: the guest is not built", 0.0)
    if KVM.exists() and find_accel() is None:
        progress("accelerator: KVM is probed by booting a guest (once for each boot of the host)")
    try:
        return probe_accel()
    except DiskproofError as error:
        return AccelFacts("tcg", f"not probed: {explain(error)}", 0.0)
    except OSError as error:  # where the result is kept is another user's, or full
        return AccelFacts("tcg", f"not probed: {error}", 0.0)


def _pick_backing(
    backings: Sequence[BackingSpec], disks: Mapping[str, BackingFacts]
) -> BackingSpec:
    """One with direct I/O if there is: aio=native is not to blame for a directory without. One
    that may not be made is stood for by the folder at its bottom."""
    made = [s for s in backings if not disks[s.name].unprobed and not disks[s.name].obstacle]
    best = max(made or backings, key=lambda spec: disks[spec.name].o_direct)
    while not made and best.on:
        best = best.on
    return best


def _probe_disks(spec: BackingSpec, consent: Consent) -> BackingFacts:
    """A backing; of one that this host does not have, whose server does not start here, or that
    lies on such a one, why, as of a container that does not.

    Raises HostError for any other one, and for what the server's disks would lie on.
    """
    try:
        return probe_backing(spec, consent)
    except DiskproofError as error:
        if spec.on is None or spec.option("uri"):
            raise
        below = _probe_disks(spec.on, consent)
        may_lack = spec.kind in SERVED or isinstance(error, NotHere)
        if not may_lack and not below.obstacle:
            raise
        network = spec.kind if spec.kind in OVER_NETWORK else ""
        why = below.obstacle or explain(error)
        return replace(below, network=network, fio=False, obstacle=why)


def _probe_block_layer(place: Place) -> tuple[Probed, Probed]:
    with start_run_dir(place) as folder:
        return probe_block_layer(folder)


def _probe_daemon_iothread(place: Place) -> dict[str, str]:
    try:
        with start_run_dir(place) as folder:
            fault = find_daemon_iothread_fault(folder)
    except DiskproofError as error:
        fault = explain(error)
    return {"frontend=daemon,iothread=on": fault} if fault else {}


def _name_reasons(**probed: Probed) -> dict[str, str]:
    """``{"aio=io_uring": why}`` from the probes by factor."""
    return {
        f"{factor}={level}": reason
        for factor, found in probed.items()
        for level, reason in found.reasons.items()
    }
