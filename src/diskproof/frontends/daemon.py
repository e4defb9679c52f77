"""qemu-storage-daemon over NBD: QEMU's block layer at native speed, without a guest."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from diskproof.drive import Command, Drive, DriveFacts, Execution, RunContext
from diskproof.errors import RunFailure
from diskproof.frontends import effective
from diskproof.frontends.host import run_here
from diskproof.process.cage import CLIENT_CAGE, QEMU_CAGE
from diskproof.process.owner import hand_over_node, write_private
from diskproof.process.start import Process, start_process
from diskproof.qemu.disk import DISK_NODE, EXPORT_ID, EXPORT_NAME, daemon_args
from diskproof.qemu.qmp import Qmp, connect
from diskproof.records import Artefact, Check

LOG = "qemu-storage-daemon.log"
ARGV = "qemu-storage-daemon.argv.json"
SOCKET = "nbd.sock"
# QEMU 7.2 with its fix of CVE-2024-7409 asserts the main thread where an iothread may be.
_IOTHREAD_ABORT = "nbd_blockdev_client_closed"
_IOTHREAD_HINT = "this QEMU ends when the client of an export with an iothread leaves: iothread=off"
_LAST_MOMENTS = 0.5
# Relative to the scratch folder that commands work in: the path of a run's folder may be longer
# than a socket's address (108 bytes).
_FIO = {"ioengine": "nbd", "uri": f"nbd+unix:///{EXPORT_NAME}?socket=../{SOCKET}"}


@dataclass
class DaemonDrive(Drive):
    """A disk behind a running storage daemon."""

    context: RunContext
    process: Process
    qmp: Qmp

    def run(self, command: Command) -> Execution:
        done = run_here(self.context.run_dir, command, CLIENT_CAGE)
        # A client can be faster than the end of the process, of which it may be the cause.
        late = done.returncode or self.context.cell.level("iothread") == "on"
        status = self.process.wait(_LAST_MOMENTS if late else 0.0)
        if status is not None:
            evidence = (("stdout", done.stdout), ("stderr", done.stderr))
            raise _ended(self.process, status, evidence)
        return done

    def read_back(self) -> tuple[Check, ...]:
        context = self.context
        exports = effective.require_objects(
            self.qmp.execute("query-block-exports"), "query-block-exports"
        )
        exported = [item.get("node-name") for item in exports if item.get("id") == EXPORT_ID]
        return (
            *effective.read_disk(self.qmp, self.process.pid, context.cell, context.image),
            effective.make_check(
                "exported node", DISK_NODE, "".join(map(str, exported)), "QMP query-block-exports"
            ),
            effective.check_write_through(self.process.pid, context.cell),
        )


class DaemonFrontend:
    """The frontend ``daemon``."""

    name = "daemon"

    @contextmanager
    def start(self, context: RunContext) -> Iterator[Drive]:
        with ExitStack() as stack:
            process, control = _start_daemon(stack, context)
            try:
                qmp = connect(control, context.deadline_seconds)
                stack.callback(qmp.close)
            except RunFailure:
                status = process.wait(1.0)
                raise _ended(process, status) if status is not None else _mute(process) from None
            pids = (process.pid, *context.image.server_pids)
            local = "".join(map(str, context.image.local[:1]))
            facts = DriveFacts(context.image.size, _FIO, pids, path=local)
            yield DaemonDrive(facts, context, process, qmp)

    def artefacts(self, context: RunContext) -> tuple[Artefact, ...]:
        found = (context.run_dir / ARGV, context.run_dir / LOG)
        media = {ARGV: "application/json", LOG: "text/plain"}
        return tuple(
            Artefact(path.name, media[path.name], path.read_bytes()[-(1 << 20) :])
            for path in found
            if path.is_file()
        )


def _start_daemon(stack: ExitStack, context: RunContext) -> tuple[Process, socket.socket]:
    """Start the daemon with a listening socket and a control socket; gives it and our end."""
    ours, theirs = socket.socketpair()
    with theirs, _listen(stack, context.run_dir) as listener:
        fds = (listener.fileno(), theirs.fileno())
        image = context.image
        argv = daemon_args(context.cell, image, nbd_fd=fds[0], qmp_fd=fds[1])
        write_private(context.run_dir / ARGV, json.dumps(argv, indent=1).encode())
        starting = start_process(
            argv,
            name="qemu-storage-daemon",
            log=context.run_dir / LOG,
            cwd=image.path.parent,
            pass_fds=fds,
            confined=True,
            cage=QEMU_CAGE,
            network=image.namespace,
        )
        stack.callback(ours.close)
        return stack.enter_context(starting), ours


def _listen(stack: ExitStack, run_dir: Path) -> socket.socket:
    """A listening socket in the run's folder, bound through a descriptor: its path may be long."""
    listener = socket.socket(socket.AF_UNIX)
    os.fchmod(listener.fileno(), 0o600)  # the name that it is bound to gets this mode
    folder = os.open(run_dir, os.O_PATH | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{SOCKET}")
        stack.callback((run_dir / SOCKET).unlink, missing_ok=True)
        if os.geteuid() == 0:
            hand_over_node(run_dir / SOCKET)  # fio, its client, has no rights either
    except OSError as error:
        listener.close()
        why = f"{run_dir}: {error.strerror}"
        raise RunFailure("tool", "no socket can be made for the storage daemon", why) from None
    finally:
        os.close(folder)
    listener.listen()
    return listener


def _ended(
    process: Process, status: int, evidence: tuple[tuple[str, bytes], ...] = ()
) -> RunFailure:
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    tail = process.read_log(2000).decode("utf-8", "replace").strip().splitlines()[-3:]
    kept = (*evidence, (LOG, process.read_log()))
    why = "\n".join(tail)
    hint = _IOTHREAD_HINT if _IOTHREAD_ABORT in why else ""
    return RunFailure("qemu", f"qemu-storage-daemon {how}", why, hint, evidence=kept)


def _mute(process: Process) -> RunFailure:
    kept = ((LOG, process.read_log()),)
    return RunFailure("qemu", "qemu-storage-daemon does not answer", evidence=kept)


FRONTEND = DaemonFrontend()
