"""Run a machine of the user's own for the length of a ``with`` block."""

import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diskproof.errors import RunFailure
from diskproof.guest.ours.boot import explain, explained, has_sandbox, open_ends, start_qemu_process
from diskproof.guest.ours.channel import GuestGone
from diskproof.guest.ours.console import Console
from diskproof.guest.own.image import OwnImage, copy_variables, make_overlay, require_firmware
from diskproof.guest.own.qemu_agent import INSTALL, QemuAgent
from diskproof.process.start import Process
from diskproof.qemu.machine import GuestMachine
from diskproof.qemu.own_machine import OwnDescriptors, own_machine_args
from diskproof.qemu.qmp import Qmp, start_qmp
from diskproof.study.guest import OwnGuest

QMP_SECONDS = 20.0
_EVENT_SECONDS = 2.0  # the event lies in the socket before QEMU ends
_TAIL_LINES = 10
_NOT_TEXT = re.compile(rb"\x1b\[[0-9;?=]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
"""What a console does to a terminal: firmware paints in colours."""


@dataclass(frozen=True)
class OwnRunning:
    """A machine whose guest agent has answered, ``seconds`` after QEMU was started."""

    process: Process
    agent: QemuAgent
    qmp: Qmp
    console: Console
    version: str
    seconds: float


@contextmanager
def start_own_guest(
    own: OwnGuest,
    machine: GuestMachine,
    image: OwnImage,
    *,
    run_dir: Path,
    folder: Path,
    deadline: float,
) -> Iterator[OwnRunning]:
    """Boot the machine until its agent answers, within ``deadline`` seconds.

    QEMU runs confined in ``folder``, where its overlay is made, and logs to ``qemu.log`` in
    ``run_dir``. Raises RunFailure ``guest`` without an agent, for a guest that ends or reboots,
    ``qemu`` when QEMU fails; failures out of the block carry console and QEMU log as evidence.
    """
    with ExitStack() as stack:
        make_overlay(folder, image.size)
        began = time.monotonic()
        log = run_dir / "qemu.log"
        process, ends = _start_qemu(stack, own, machine, image, log=log, folder=folder)
        console = Console(ends["console"])
        qmp: Qmp | None = None
        with explained(process, console, lambda why, *_: _explain(why, process, console, qmp)):
            qmp = monitor = stack.enter_context(start_qmp(ends["qmp"], QMP_SECONDS))
            agent = QemuAgent(ends["agent"], watch=lambda: _require_port(monitor))
            version = _wait_agent(agent, console, began + deadline)
            yield OwnRunning(process, agent, qmp, console, version, time.monotonic() - began)


def _start_qemu(
    stack: ExitStack,
    own: OwnGuest,
    machine: GuestMachine,
    image: OwnImage,
    *,
    log: Path,
    folder: Path,
) -> tuple[Process, dict[str, socket.socket]]:
    """Start QEMU with descriptors of all that it needs; gives it and our ends of the sockets."""
    firmware = ""
    if own.firmware == "uefi":
        code, variables = require_firmware()
        copy_variables(folder, variables)
        firmware = str(code)
    booted = {"kernel": own.kernel, "initrd": own.initrd}
    with ExitStack() as theirs:
        paths = {name: Path(path) for name, path in booted.items() if path}
        ours, numbers = open_ends(stack, theirs, paths)
        layers = tuple((layer.fd, layer.format) for layer in image.layers)
        fds = OwnDescriptors(layers=layers, **numbers)
        args = own_machine_args(own, machine, fds, firmware=firmware, sandbox=has_sandbox())
        process = start_qemu_process(
            stack, args, machine, fds=fds.all(), booted=fds.booted(), log=log, folder=folder
        )
    return process, ours


def _wait_agent(agent: QemuAgent, console: Console, end: float) -> str:
    try:
        return agent.wait_ready(max(1.0, end - time.monotonic()))
    except GuestGone:
        raise
    except RunFailure as failure:
        shown = _NOT_TEXT.sub(b"", console.read()).decode("utf-8", "replace")
        said = shown.strip().splitlines()[-_TAIL_LINES:]
        tail = "\n".join(line[:200] for line in said)
        told = f"end of its console:\n{tail}" if tail else "its serial console stayed silent"
        raise RunFailure("guest", failure.what, f"{failure.why}\n{told}", failure.hint) from None


def _require_port(qmp: Qmp) -> None:
    """Raises RunFailure when the agent has closed its port since this was asked last, or the
    guest has ended."""
    while event := qmp.wait_event(("VSERPORT_CHANGE", "SHUTDOWN"), 0.01):
        if event["event"] == "SHUTDOWN":
            raise _describe_shutdown(event)
        if not _data(event).get("open"):
            raise RunFailure(
                "guest", "the guest agent stopped", "it closed its port in the middle", INSTALL
            )


def _describe_shutdown(event: Mapping[str, Any]) -> RunFailure:
    reason = str(_data(event).get("reason", "unknown"))
    if reason == "guest-reset":
        return RunFailure(
            "guest",
            "the guest rebooted",
            "a reboot would measure another system than the one that was started",
            "boot the image once by hand until it is set up",
        )
    return RunFailure("guest", "the guest ended", f"QMP SHUTDOWN: {reason}")


def _data(event: Mapping[str, Any]) -> Mapping[str, Any]:
    data = event.get("data")
    return data if isinstance(data, dict) else {}


def _explain(
    failure: RunFailure, process: Process, console: Console, qmp: Qmp | None
) -> RunFailure:
    """``explain``, and for a guest that ended QEMU in order what it did, which only QMP tells."""
    told = explain(failure, process, console)
    if told.kind != "guest" or process.poll() is None:
        return told
    event = qmp.wait_event(("SHUTDOWN",), _EVENT_SECONDS) if qmp else None
    cause = _describe_shutdown(event) if event else failure
    if isinstance(cause, GuestGone):
        return told
    return RunFailure(cause.kind, cause.what, cause.why, cause.hint, told.evidence)
