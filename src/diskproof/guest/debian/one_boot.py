"""One boot of a guest from its own disk: from QEMU's start to its end, and what the guest says of
it in lines ``key=value``. Guests are not trusted."""

import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from diskproof.errors import RunFailure
from diskproof.guest.ours.boot import BootFiles, explained, has_sandbox, start_qemu
from diskproof.guest.ours.console import Console
from diskproof.process.start import Process
from diskproof.qemu.machine import GuestMachine
from diskproof.qemu.qmp import Qmp, start_qmp
from diskproof.records import Check

MAX_REPORT = 16 << 10
_LINE = re.compile(rb"([a-z_][a-z0-9_.]{0,30})=([ -~]{0,500})")
_STEPS = 20
_TIME = r"\d{1,9}\.\d\d"


@dataclass(frozen=True)
class BootReport:
    """One boot. ``boots`` is the guest's own count, kept on its disk; ``steps`` are seconds by
    name; ``counts`` what each step handled, one number a time (files and bytes ``walked``, members
    ``listed`` and ``unpacked``, bytes ``zeroed``). ``read_bytes`` and ``written_bytes`` are what
    its kernel asked of the disk. ``failed`` is the command that did not work, or empty."""

    kind: str
    boots: int
    kernel: str
    write_cache: str
    size: int
    started: float
    steps: Mapping[str, float]
    counts: Mapping[str, tuple[tuple[int, ...], ...]]
    read_bytes: int
    written_bytes: int
    failed: str


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
        with explained(process, console):
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


def parse_report(data: bytes) -> BootReport:
    """Raises RunFailure ``guest`` for what no boot of ours says."""
    pairs = list(_pairs(data))
    last = dict(pairs)
    if "done" not in last:
        raise _refusal("it ends before its boot did", data)
    stat = _numbers(last.get("stat", ""), data, 11)
    names = ("walked", "listed", "zeroed", "unpacked")
    counts = {
        name: tuple(_numbers(value, data) for key, value in pairs if key == name) for name in names
    }
    return BootReport(
        kind=last["done"],
        boots=_number(last.get("boots", ""), data),
        kernel=last.get("kernel", ""),
        write_cache=last.get("write_cache", ""),
        size=_number(last.get("size", ""), data) * 512,
        started=_time(last.get("started", ""), data),
        steps=dict(_steps(pairs, data)),
        counts=counts,
        read_bytes=stat[2] * 512,  # Documentation/block/stat.rst
        written_bytes=stat[6] * 512,
        failed=last.get("failed", ""),
    )


def _pairs(data: bytes) -> Iterator[tuple[str, str]]:
    for line in data.splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            raise _refusal("a line is not key=value", data)
        yield found[1].decode(), found[2].decode()


def _steps(pairs: list[tuple[str, str]], data: bytes) -> Iterator[tuple[str, float]]:
    steps = [(key, value) for key, value in pairs if key.startswith("step.")]
    if len(steps) > _STEPS:
        raise _refusal("it has too many steps", data)
    for key, value in steps:
        began, _, ended = value.partition(" ")
        seconds = _time(ended, data) - _time(began, data)
        if seconds < 0:
            raise _refusal("a step ended before it began", data)
        yield key.removeprefix("step."), seconds


def _numbers(text: str, data: bytes, least: int = 1) -> tuple[int, ...]:
    words = text.split()
    if not least <= len(words) <= 30:
        raise _refusal("a line lacks its numbers", data)
    return tuple(_number(word, data) for word in words)


def _number(text: str, data: bytes) -> int:
    if not re.fullmatch(r"\d{1,15}", text, re.ASCII):
        raise _refusal(f"{text!r} is not a number", data)
    return int(text)


def _time(text: str, data: bytes) -> float:
    if not re.fullmatch(_TIME, text, re.ASCII):
        raise _refusal(f"{text!r} is not a time", data)
    return float(text)


def _refusal(why: str, data: bytes) -> RunFailure:
    evidence = (("boot-report", data[:MAX_REPORT]),)
    return RunFailure("guest", "the guest's report of its boot is not right", why, "", evidence)
