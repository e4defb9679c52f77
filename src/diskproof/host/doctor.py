"""What this host can do: everything is probed by doing it, at the same time where it can be."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from diskproof.errors import HostError
from diskproof.host import kernel_findings, nested, reclaim, storage_findings, tool_findings
from diskproof.process.start import find_tool, require_tool, run
from diskproof.records import Finding

Probe = Callable[[], Finding | Iterable[Finding]]
_WORKERS = 8  # they wait for processes more than they compute
_MONITOR = "diskproof-monitor"
_PROXMOX_QEMU = "pve-qemu-kvm"
# Program, package, and whether the frontend daemon takes it.
_PROGRAMS = (
    ("fio", "fio", True),
    ("qemu-img", "qemu-utils", True),
    ("qemu-storage-daemon", "qemu-system-common", True),
    ("qemu-system-x86_64", "qemu-system-x86", False),
)


def examine(directories: Sequence[Path], *, refresh: bool) -> tuple[Finding, ...]:
    """All findings, in the order in which people need them; ``directories`` are those that
    images may live in (default: the current one).

    A KVM that was probed since the host's boot is not probed again unless ``refresh``. Nothing is
    left behind: what is made lives in namespaces, or in a run's folder, which the next run sweeps
    if we are killed. Raises HostError when the host lacks what starts any process of ours.
    """
    for program in ("setpriv", "unshare"):
        require_tool(program, "util-linux")
    folders = _absolute(directories or [Path()])
    probes = tuple(_probes(folders, refresh))  # chosen before any of them makes anything
    with ThreadPoolExecutor(_WORKERS) as pool:
        futures = [pool.submit(_examine_one, probe) for probe in probes]
        try:
            found = tuple(finding for future in futures for finding in future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return tuple(map(_without_harm, found)) if _is_proxmox() else found


def _is_proxmox() -> bool:
    argv = ["dpkg-query", "--show", "--showformat", "${db:Status-Status}", _PROXMOX_QEMU]
    return find_tool(argv[0]) is not None and run(argv, timeout=60, check=False).text == "installed"


def _without_harm(finding: Finding) -> Finding:
    """Debian's QEMU conflicts with that of Proxmox: apt would take the hypervisor away for it."""
    install, *words = finding.hint.split(" ")[1:] or [""]
    if install != "install" or not any(word.startswith("qemu-") for word in words):
        return finding
    others = [word for word in words if not word.startswith(("qemu-", "--"))]
    hint = f"apt-get install {' '.join(others or ['--reinstall', _PROXMOX_QEMU])}"
    return replace(finding, hint=hint)


def _absolute(directories: Sequence[Path]) -> list[Path]:
    try:
        return [directory.absolute() for directory in directories]
    except FileNotFoundError:
        raise HostError("the current folder is gone", hint="cd to one that is there") from None


def _probes(directories: Sequence[Path], refresh: bool) -> Iterator[Probe]:
    yield from _measuring_probes(directories)
    yield from _guest_probes(refresh)
    yield from _storage_probes(directories[0])
    yield kernel_findings.examine_fuse
    yield kernel_findings.examine_ksm
    yield kernel_findings.examine_network_namespaces
    yield kernel_findings.examine_user_namespaces
    yield kernel_findings.examine_governor
    yield reclaim.examine_reclaim


def _measuring_probes(directories: Sequence[Path]) -> Iterator[Probe]:
    for program, package, needed in _PROGRAMS:
        yield partial(tool_findings.examine_tool, program, package, needed=needed)
    yield tool_findings.examine_engine
    yield partial(tool_findings.examine_native, _MONITOR, needed=True)
    yield kernel_findings.examine_confinement
    yield tool_findings.examine_containers
    yield partial(tool_findings.examine_disks, directories)


def _guest_probes(refresh: bool) -> Iterator[Probe]:
    yield partial(tool_findings.examine_accel, refresh=refresh)
    yield nested.examine_nested
    yield tool_findings.examine_guest
    yield tool_findings.examine_build_tools
    yield tool_findings.examine_buses


def _storage_probes(directory: Path) -> Iterator[Probe]:
    """In a directory, or the nearest one above where it is not there yet: probes run at the same
    time, and none may take it for its own."""
    directory = next(path for path in (directory, *directory.parents) if path.is_dir())
    yield partial(storage_findings.examine_loop, directory)
    for file_system in storage_findings.FILE_SYSTEMS:
        yield partial(storage_findings.examine_file_system, file_system)
    for stack in storage_findings.STACKS:
        yield partial(storage_findings.examine_stack, stack, directory)


def _examine_one(probe: Probe) -> tuple[Finding, ...]:
    found = probe()
    return (found,) if isinstance(found, Finding) else tuple(found)
