"""One boot of a guest from its own disk: from QEMU's start to its end."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from diskproof.errors import RunFailure
from diskproof.guest.boot import BootFiles, explain, has_sandbox, start_qemu
from diskproof.guest.boot_report import MAX_REPORT, BootReport, parse_report
from diskproof.guest.console import Console
from diskproof.process.start import Process
from diskproof.qemu.machine import GuestMachine
from diskproof.qemu.qmp import Qmp, start_qmp
from diskproof.records import Check

QMP_SECONDS = 20.0
_EVENT_SECONDS = 2.0  # the event lies in the socket before QEMU ends
ROOT_DEVICES = {
    "virtio-blk": "/dev/vda",
    "virtio-scsi": "/dev/sda",
    "ide": "/dev/sda",
    "ahci": "/dev/sda",
    "nvme": "/dev/nvme0n1",
}
"""What the kernel calls the only disk of a bus."""

ReadBack = Callable[[Qmp, int], tuple[Check, ...]]


@dataclass(frozen=True)
class Boot:
    """One boot: ``seconds`` from QEMU's start to its end, what the guest said, what was in
    force."""

    seconds: float
    report: BootReport
    said: bytes
    checks: tuple[Check, ...]
    console: bytes


def boot_parameters(bus: str, drivers: tuple[str, ...], kind: str, block: int) -> tuple[str, ...]:
    """What the kernel, the initramfs and the guest's own script are told."""
    return (
        f"root={ROOT_DEVICES[bus]}",
        "ro",
        f"diskproof.drivers={','.join(drivers)}",
        f"diskproof.boot={kind}",
        f"diskproof.block={block}",
    )


def boot_once(
    files: BootFiles,
    machine: GuestMachine,
    *,
    run_dir: Path,
    disk_folder: Path,
    deadline: float,
    read_back: ReadBack,
) -> Boot:
    """Start QEMU, read its settings back while the guest is at work, wait until it is off.

    Raises RunFailure with console and log as evidence: ``guest`` for one that panics, hangs,
    reboots or says nonsense, ``qemu`` when QEMU fails.
    """
    has_sandbox()  # asked once, before the clock starts
    with ExitStack() as stack:
        began = time.monotonic()
        log = run_dir / "qemu.log"
        process, ends = start_qemu(stack, files, machine, log=log, folder=disk_folder)
        console = Console(ends["console"])
        try:
            qmp = stack.enter_context(start_qmp(ends["qmp"], QMP_SECONDS))
            # Its driver decides on the write cache: before it is there nothing is in force.
            said = _receive(ends["agent"], began + deadline)
            checks = read_back(qmp, process.pid) if said else ()
            _let_go(ends["agent"])
            said += read_all(ends["agent"], began + deadline)
            _wait_off(process, console, began + deadline, deadline)
            seconds = time.monotonic() - began
            _require_power_off(qmp)
            report = parse_report(said)
        except RunFailure as failure:
            explained = explain(failure, process, console)
            process.kill()
            if explained is failure:
                raise
            raise explained from failure
        return Boot(seconds, report, said, checks, console.read())


def _let_go(agent: socket.socket) -> None:
    with suppress(OSError):  # a guest that is gone is told by its end
        agent.sendall(b"\n")


def read_all(agent: socket.socket, end: float) -> bytes:
    """What the guest says until QEMU closes its port, which is when it ends."""
    said = bytearray()
    while chunk := _receive(agent, end):
        said += chunk
        if len(said) > MAX_REPORT:
            raise RunFailure("guest", "the guest says too much", f"more than {MAX_REPORT} bytes")
    return bytes(said)


def _receive(agent: socket.socket, end: float) -> bytes:
    agent.settimeout(max(0.01, end - time.monotonic()))
    try:
        return agent.recv(4096)
    except TimeoutError:
        raise RunFailure(
            "guest",
            "the guest was not off in time",
            "it hangs, or the machine is slower than the time that it was given",
            "look at its console; set a longer run_timeout in the study's [protocol]",
        ) from None
    except ConnectionResetError:
        return b""


def _wait_off(process: Process, console: Console, end: float, deadline: float) -> None:
    """Its sockets close as QEMU ends; that is seen sooner than by waiting for the process."""
    console.wait_end(max(0.01, end - time.monotonic()))
    status = process.wait(max(0.01, end - time.monotonic()))
    if status is None:
        raise RunFailure("guest", f"the guest was not off within {deadline:.0f} s")
    if status != 0:
        raise RunFailure("qemu", f"QEMU ended with status {status}")


def _require_power_off(qmp: Qmp) -> None:
    """A guest that reboots or panics ends QEMU as well (-no-reboot)."""
    event = qmp.wait_event(("SHUTDOWN",), _EVENT_SECONDS)
    reason = str((event or {}).get("data", {}).get("reason", "unknown"))
    if reason != "guest-shutdown":
        raise RunFailure("guest", "the guest did not switch itself off", f"QMP SHUTDOWN: {reason}")
